"""Program files as an attacker makes them. Prints one with a broken note of the SDK's probe."""

import struct
import sys

PAGE = 4096
NOTE = 7
SYMBOLS = 2


def elf(section: bytes, name: bytes, kind: int, *, claims: int | None = None) -> bytes:
    """A 64-bit program file: a page of code that is no instruction, and one section of this name.

    `claims`: the length that the section's header says.
    """
    names = b"\0" + name + b"\0.names\0"
    at = {"section": 2 * PAGE, "names": 3 * PAGE, "headers": 3 * PAGE + 256}
    length = len(section) if claims is None else claims
    head = b"\x7fELF\2\1\1" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, at["headers"], 0, 64, 56, 1, 64, 3, 2)
    head += struct.pack("<IIQQQQQQ", 1, 5, PAGE, PAGE, PAGE, PAGE, PAGE, PAGE)
    headers = bytes(64)
    headers += struct.pack("<IIQQQQIIQQ", 1, kind, 0, 0, at["section"], length, 2, 0, 1, 24)
    headers += struct.pack(
        "<IIQQQQIIQQ", 2 + len(name), 3, 0, 0, at["names"], len(names), 0, 0, 1, 0
    )
    whole = bytearray(4 * PAGE)
    whole[: len(head)] = head
    whole[PAGE : 2 * PAGE] = b"\x06" * PAGE
    for key, bytes_ in {"section": section, "names": names, "headers": headers}.items():
        whole[at[key] : at[key] + len(bytes_)] = bytes_
    return bytes(whole)


def broken_program() -> bytes:
    """A program with a note like that of the SDK's probe, for what is no instruction."""
    said = struct.pack("<QQQ", PAGE + 64, 0, 0) + b"tailscope\0thread\0-8@%rax\0"
    note = struct.pack("<III", 8, len(said), 3) + b"stapsdt\0" + said
    return elf(note + bytes(-len(note) % 4), b".note.stapsdt", NOTE)


def sparse_symbols() -> bytes:
    """A program that says that its table of symbols is 3 GiB."""
    return elf(b"", b".symtab", SYMBOLS, claims=3 << 30)


if __name__ == "__main__":
    sys.stdout.buffer.write(broken_program())
