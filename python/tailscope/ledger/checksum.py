"""Whether a file is as it was written: by its own checksum (docs/reference/schema.md).

A checksum is the CRC32 of a whole file, with eight zeros (as characters) in its own place. Parquet
files have it in their footer, ledger.json has it as a key. It finds each change of up to four
neighbouring bytes, and misses one in four billion of the others.

Engines don't do this. DuckDB reads a changed page like any other. ClickHouse and Spark can check
the CRCs of pages, which cover neither the headers of pages nor the footer.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import BinaryIO

from tailscope.ledger import storage

MAGIC = b"PAR1"
#: What ends a Parquet file: the footer's length and the magic number.
END = 8
ROOM = b"00000000"
#: In a footer: the key, the value's field and length in Thrift's compact protocol, the checksum.
IN_FOOTER = re.compile(rb"tailscope\.crc32\x18\x08([0-9a-f]{8})")
#: The footer's second sign that there is a checksum, should the first be damaged.
MADE_WITH = re.compile(rb"tailscope [0-9a-z.+-]+ with checksum")
IN_JSON = re.compile(rb'"crc32": "([0-9a-f]{8})"')
#: Bytes that are read at a time.
BLOCK = 1 << 20
#: A footer has some kB for each row group, and is held in memory.
LARGEST_FOOTER = 64 << 20


class State(Enum):
    """What is known of a file."""

    #: Its checksum is right.
    WHOLE = "whole"
    #: Its checksum is wrong, or was there and is gone.
    DAMAGED = "damaged"
    #: It does not begin and end as a Parquet file.
    TRUNCATED = "truncated"
    #: It has no checksum: an older tailscope or another program wrote it.
    UNMARKED = "unmarked"
    #: It was not looked at.
    UNCHECKED = "unchecked"


@dataclass(frozen=True)
class Checked:
    """A file's state; `crc32` and `bytes` tell two files that are the same."""

    state: State
    crc32: int = 0
    bytes: int = 0
    #: Why it can't be read, in the system's words.
    error: str = ""


def check_all(files: Sequence[str]) -> list[Checked]:
    """The states of Parquet files, several at a time."""
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(check, files))


def check(file: str) -> Checked:
    """The state of a Parquet file. Reads all of it: 0.1 s for 10 million rows."""
    try:
        with storage.open_file(file) as opened:
            return check_opened(opened)
    except OSError as error:
        return Checked(State.UNCHECKED, error=error.strerror or str(error))


def check_opened(file: BinaryIO) -> Checked:
    """The same for a file that can be searched."""
    size = file.seek(0, os.SEEK_END)
    footer, begin = footer_of(file, size)
    if footer is None:
        return Checked(State.TRUNCATED, bytes=size)
    marks = list(IN_FOOTER.finditer(footer))
    if len(marks) != 1:
        damaged = marks or MADE_WITH.search(footer)
        return Checked(State.DAMAGED if damaged else State.UNMARKED, bytes=size)
    found = crc32(file, begin + marks[0].start(1))
    right = found == int(marks[0][1], 16)
    return Checked(State.WHOLE if right else State.DAMAGED, found, size)


def footer_of(file: BinaryIO, size: int) -> tuple[bytes | None, int]:
    """A Parquet file's footer and where it begins; None where there is none."""
    file.seek(0)
    if size < len(MAGIC) + END or file.read(len(MAGIC)) != MAGIC:
        return None, 0
    file.seek(size - END)
    end = file.read(END)
    begin = size - END - int.from_bytes(end[:4], "little")
    if end[4:] != MAGIC or begin < len(MAGIC) or size - begin > LARGEST_FOOTER:
        return None, 0
    file.seek(begin)
    return file.read(size - END - begin), begin


def crc32(file: BinaryIO, room: int) -> int:
    """The CRC32 of a file with zeros at `room`, where its checksum is."""
    file.seek(0)
    found = 0
    left = room
    while left and (block := file.read(min(BLOCK, left))):
        found = zlib.crc32(block, found)
        left -= len(block)
    found = zlib.crc32(ROOM, found)
    file.seek(room + len(ROOM))
    while block := file.read(BLOCK):
        found = zlib.crc32(block, found)
    return found


def check_json(text: bytes) -> State:
    """The state of a ledger.json."""
    marks = list(IN_JSON.finditer(text))
    if not marks:
        return State.UNMARKED
    mark = marks[-1]
    zeroed = text[: mark.start(1)] + ROOM + text[mark.end(1) :]
    return State.WHOLE if zlib.crc32(zeroed) == int(mark[1], 16) else State.DAMAGED
