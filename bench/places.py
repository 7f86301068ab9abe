"""Where the probes and functions of a program are in its file."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path


def _said(program: Path, *options: str) -> str:
    done = subprocess.run(
        ["readelf", "-W", *options, program], capture_output=True, text=True, check=True
    )
    return done.stdout


def _offset(program: Path, address: int) -> int:
    """The place in the file of what is loaded at an address."""
    segments = re.findall(r"LOAD\s+(0x\w+) (0x\w+) 0x\w+ (0x\w+)", _said(program, "-l"))
    for offset, begin, length in ([int(x, 16) for x in found] for found in segments):
        if begin <= address < begin + length:
            return offset + address - begin
    raise ValueError(f"{program} has nothing at {address:#x}")


def probe_offsets(program: Path, provider: str) -> dict[str, list[int]]:
    """The USDT probes of a provider, by their names: each may be at several places."""
    note = rf"Provider: {provider}\s+Name: (\S+)\s+Location: (0x\w+)"
    found: dict[str, list[int]] = {}
    for name, address in re.findall(note, _said(program, "--notes")):
        found.setdefault(name, []).append(_offset(program, int(address, 16)))
    return found


def symbol_offset(program: Path, function: str) -> int:
    """A function's entry."""
    symbols = _said(program, "--syms")
    symbol = re.search(rf"(\w+)\s+\d+ FUNC.* {function}$", symbols, re.MULTILINE)
    if not symbol:
        raise ValueError(f"{program} has no function {function}")
    return _offset(program, int(symbol[1], 16))
