#!/usr/bin/env python3
"""Fuzzes `tailscope explain` with damaged ledgers: `fuzz/ledgers.py SECONDS [SEED]`.

Each try changes some bytes of a ledger's `ledger.json` or of its Parquet file. Most changed files
get a checksum that is right: `explain` does not read the contents of a file with a wrong one. The
answer may be an explanation or one sentence. A traceback, a crash or a minute of CPU time is a
finding, and stays in target/fuzz/found.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import zlib
from pathlib import Path

from tailscope.cli import main
from tailscope.ledger.checksum import IN_FOOTER, IN_JSON, ROOM

HERE = Path(__file__).resolve().parent
FOUND = HERE.parent / "target" / "fuzz" / "found"
#: Each file's corpus, and where the file has its checksum.
CORPUS = {
    "ledger.json": (HERE / "corpus" / "ledger-json", IN_JSON),
    "rows.parquet": (HERE / "corpus" / "parquet", IN_FOOTER),
}
#: The share of damaged files that get a checksum that is right.
SEALED = 0.8
#: What one process tries before the next one starts, its limit of memory, and of a try's time.
TRIES, MEMORY, SECONDS = 5, 6 << 30, 60
#: Numbers at which parsers of lengths go wrong.
ODD = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 63)


def changed(data: bytes, dice: random.Random) -> bytes:
    """The bytes with one to eight changes."""
    new = bytearray(data)
    for _ in range(dice.randint(1, 8)):
        at = dice.randrange(len(new)) if new else 0
        match dice.randrange(5):
            case 0:
                new[at : at + 1] = bytes([dice.randrange(256)])
            case 1:
                width = dice.choice((1, 2, 4, 8))
                value = dice.choice(ODD) % (1 << 8 * width)
                new[at : at + width] = value.to_bytes(width, "little")
            case 2:
                del new[at : at + dice.randint(1, 64)]
            case 3:
                new[at:at] = new[at : at + dice.randint(1, 64)]
            case 4:
                other = dice.randrange(len(new)) if new else 0
                new[at : at + 16] = new[other : other + 16]
    return bytes(new)


def sealed(data: bytes, checksum: re.Pattern[bytes]) -> bytes:
    """The bytes with a checksum that is right, where they have room for one."""
    rooms = [found.span(1) for found in checksum.finditer(data)]
    if not rooms:
        return data
    begin, end = rooms[-1]
    right = zlib.crc32(data[:begin] + ROOM + data[end:])
    return data[:begin] + b"%08x" % right + data[end:]


def make(folder: Path, dice: random.Random) -> None:
    """A ledger of which one file is damaged."""
    damaged = dice.choice(list(CORPUS))
    for name, (corpus, checksum) in CORPUS.items():
        data = dice.choice(sorted(corpus.iterdir())).read_bytes()
        if name == damaged:
            data = changed(data, dice)
            if dice.random() < SEALED:
                data = sealed(data, checksum)
        (folder / name).write_bytes(data)


def try_all(folder: Path, seed: int) -> None:
    """A child's work: it ends with 0 if nothing is found."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for number in range(TRIES):
        make(folder, random.Random(seed * TRIES + number))
        said = io.StringIO()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of CPU time: others may use the machine
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = main([str(folder)])
        signal.setitimer(signal.ITIMER_PROF, 0)
        if code not in (0, 2, 3) or "Traceback" in said.getvalue():
            print(said.getvalue(), file=sys.stderr)
            os._exit(1)


def run(seconds: float, seed: int) -> int:
    """Tries until the time is over; how many findings there were."""
    end, found, tries = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
            child = os.fork()
            if child == 0:
                try_all(Path(name), seed)
                os._exit(0)
            if os.waitpid(child, 0)[1] != 0:
                found += 1
                kept = FOUND / f"ledger-{seed}"
                shutil.copytree(name, kept, dirs_exist_ok=True)
                print(f"found: {kept}", file=sys.stderr)
        seed, tries = seed + 1, tries + TRIES
    print(f"explain: {found or 'nothing'} found in {seconds:g} s, {tries} ledgers")
    return found


if __name__ == "__main__":
    sys.exit(run(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1) > 0)
