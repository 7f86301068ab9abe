"""Where a result comes from: the machine, the sources, and the command."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def processor() -> str:
    """The CPU's model, empty where the kernel names none."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return ""


def machine() -> str:
    """The machine in a line, with nothing that changes from day to day."""
    model = processor() or platform.machine()
    return f"{os.cpu_count()} CPUs, {model}, Linux {platform.release()}"


def slug(model: str, cpus: int, architecture: str, release: str) -> str:
    """The name of a machine's folder, such as `amd-epyc-2cpu-x86_64-linux6.18`.

    A reboot or a patch release of the kernel does not change it.
    """
    named = re.sub(r"\((r|tm)\)|@.*|\b(cpu|processor)\b", " ", model.lower())
    kernel = ".".join(re.findall(r"\d+", release)[:2])
    return "-".join(
        [*re.findall(r"[a-z0-9]+", named), f"{cpus}cpu", architecture, f"linux{kernel}"]
    )


def this_machine() -> str:
    """The folder of this machine's results."""
    return slug(processor(), os.cpu_count() or 1, platform.machine(), platform.release())


def commit() -> str:
    """The sources' commit, with `-dirty` if a tracked file differs from it, results excepted."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        head = git("rev-parse", "--short", "HEAD")
        but = (":!bench/results", ":!bench/README.md")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", *but)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("-dirty" if changed else "")


def command() -> str:
    """The command line of this script."""
    script = "bench/" + Path(sys.argv[0]).name
    return shlex.join([".venv/bin/python", script, *sys.argv[1:]])
