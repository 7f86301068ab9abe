"""The shared memory as the Java SDK sees it, against the header that everybody else shares."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ABI = ROOT / "sdk" / "java" / "src" / "tailscope" / "Abi.java"
CONSTANT = re.compile(r"static final (\w+) (\w+) = (.+?);(?: // (.+))?$", re.MULTILINE)

#: Java's side of `ts_blamed`'s and retention's arithmetic, for every value that can be.
ARITHMETIC = """
    for (int cause = 0; cause < TS_CAUSES; cause++)
        if (TS_BLAMED_CAUSES & 1u << cause)
            printf("recent %d %zu\\n", cause,
                   offsetof(struct ts_meter, recent) + cause * sizeof(struct ts_recent));
"""


def in_c(value: str) -> str:
    """A constant of Java's as C has it."""
    return value.removesuffix("L") + "ll" if value.endswith("L") else value


def test_every_constant_is_what_the_header_says(tmp_path: Path) -> None:
    constants = CONSTANT.findall(ABI.read_text())
    assert len(constants) > 60
    bare = [name for _, name, _, expression in constants if not expression]
    assert not bare, f"without the C that they stand for: {bare}"
    checks = [
        f'    if (strcmp({expression}, {value})) printf("{name}\\n");'
        if kind == "String"
        else f'    if ((long long)({expression}) != {in_c(value)}) printf("{name}\\n");'
        for kind, name, value, expression in constants
    ]
    includes = ["tailscope_abi.h", "stddef.h", "stdio.h", "string.h"]
    source = tmp_path / "abi.c"
    source.write_text(
        "\n".join(f"#include <{name}>" for name in includes)
        + "\nint main(void)\n{\n"
        + "\n".join(checks)
        + ARITHMETIC
        + "    return 0;\n}\n"
    )
    program = tmp_path / "abi"
    header = f"-I{ROOT / 'sdk' / 'c'}"
    subprocess.run(["cc", "-std=c11", header, "-o", program, source], check=True, timeout=60)
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    lines = said.splitlines()
    wrong = [line for line in lines if not line.startswith("recent ")]
    assert not wrong, f"Abi.java and tailscope_abi.h differ: {wrong}"

    number = {name: int(value, 0) for kind, name, value, _ in constants if kind == "int"}
    for line in lines:
        cause, place = (int(word) for word in line.split()[1:])
        assert number["METER_RECENT"] + cause * number["RECENT_BYTES"] == place, cause
