"""Messages in the wire format of Protocol Buffers, without a library.

The formats that are written here need two kinds of fields: numbers and bytes.
"""

from __future__ import annotations

from collections.abc import Iterable


def varint(value: int) -> bytes:
    """A number, seven bits to a byte, the lowest first; not negative."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def number(field: int, value: int) -> bytes:
    """A field with a number."""
    return varint(field << 3) + varint(value)


def signed(field: int, value: int) -> bytes:
    """A field with a number that may be negative: `int64`, not `sint64`."""
    return number(field, value % (1 << 64))


def message(field: int, content: bytes) -> bytes:
    """A field with bytes: a text or another message."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def text(field: int, content: str) -> bytes:
    """A field with a text."""
    return message(field, content.encode("utf-8", "replace"))


def packed(field: int, values: Iterable[int]) -> bytes:
    """A field with several numbers."""
    return message(field, b"".join(map(varint, values)))
