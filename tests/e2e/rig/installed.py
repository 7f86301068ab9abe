"""Where the built things are: the command, the lab, and the tests' own programs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
VENV = ROOT / ".venv" / "bin"
LAB = ROOT / "target" / "lab"
FAULTS = ROOT / "target" / "release" / "tailscope-lab"
SDK = ROOT / "sdk" / "c"
SOURCES = ROOT / "tests" / "c"


def tailscope() -> Path:
    """The installed command, or the one in target/ where that was built later."""
    built, installed = ROOT / "target" / "release" / "tailscope", VENV / "tailscope"
    if not installed.exists():
        return built
    if built.exists() and built.stat().st_mtime > installed.stat().st_mtime:
        return built
    return installed


#: The commands that are in Python, and their modules.
IN_PYTHON = {
    "explain": "tailscope.cli",
    "report": "tailscope.report_cli",
    "requests": "tailscope.requests_cli",
}


def environment(shims: Path) -> dict[str, str]:
    """A PATH on which the commands in Python are found: the installed ones, else the source's."""
    changed = {"PATH": f"{VENV}:{os.environ['PATH']}"}
    for name, module in IN_PYTHON.items():
        if (VENV / f"tailscope-{name}").exists():
            continue
        shim = shims / f"tailscope-{name}"
        shim.write_text(f'#!/bin/sh\nexec "{VENV}/python" -m {module} "$@"\n')
        shim.chmod(0o755)
        changed["PATH"] = f"{shims}:{VENV}:{os.environ['PATH']}"
        changed["PYTHONPATH"] = str(ROOT / "python")
    return changed


def compile_program(source: str, output: Path, *flags: str, compiler: str = "cc") -> Path:
    """Compiles a program of tests/c with the SDK's header, warnings denied."""
    language = "c++17" if source.endswith(".cc") else "c11"
    command = [compiler, f"-std={language}", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]
    command += [f"-I{SDK}", "-o", str(output), str(SOURCES / source), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return output
