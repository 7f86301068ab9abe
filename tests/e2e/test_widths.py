"""Text follows the terminal's width, and is ASCII under the C locale."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from rig import installed


def said(*words: object, columns: int = 80, locale: str = "C") -> subprocess.CompletedProcess:
    """A command's output with a width and a locale."""
    command = [str(word) for word in (installed.tailscope(), *words)]
    environment = os.environ | {"COLUMNS": str(columns), "LC_ALL": locale}
    done = subprocess.run(command, capture_output=True, env=environment, timeout=120)
    assert done.returncode == 0, done
    return done


def longest(text: bytes) -> int:
    """The length of the longest line that could have been broken."""
    lines = [line for line in text.decode().splitlines() if " " in line.strip()]
    return max(map(len, lines), default=0)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_doctor_fits(recordable: None, columns: int) -> None:
    done = said("doctor", columns=columns)
    assert done.stdout.isascii()
    assert longest(done.stdout) <= columns
    assert "…" in said("doctor", locale="C.UTF-8").stdout.decode()


def test_no_program_is_run_to_know_the_width(folder: Path) -> None:
    helper, asked = folder / "tput", folder / "asked"
    helper.write_text(f"#!/bin/sh\n: >{asked}\n")
    helper.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    environment["PATH"] = f"{folder}:{environment['PATH']}"
    # Without a terminal to ask: an agent under systemd has none.
    done = subprocess.run(
        [installed.tailscope(), "no-such-command"],
        capture_output=True,
        env=environment,
        start_new_session=True,
        timeout=60,
        check=False,
    )
    assert done.stderr
    assert not asked.exists()


def test_the_observer_fits() -> None:
    done = said("observe", "--self-test")
    assert done.stdout.isascii()
    assert 60 < longest(done.stdout) <= 80


def test_top_and_the_summary_of_a_recording_fit(recordable: None, folder: Path) -> None:
    program = ("--", installed.LAB / "sleepbench", "--spans", 2000, "--nap-us", 5, "--every", 3)
    top = said("top", "--batch", *program)
    pictures = b"\n".join(line for line in top.stdout.splitlines() if line[:1] != b"{")
    assert pictures.isascii()
    assert longest(pictures) <= 80
    assert b" us" in pictures
    recorded = said("record", "-o", folder / "ledger", *program, columns=50)
    assert recorded.stderr.isascii()
    figures = [line for line in recorded.stderr.splitlines() if b" lost" in line or b"p50" in line]
    assert figures
    assert max(map(len, figures)) <= 50


def test_a_story_fits(recordable: None, folder: Path) -> None:
    program = ("--", installed.LAB / "sleepbench", "--spans", 5000, "--nap-us", 5000, "--every", 50)
    said("timeline", "-o", folder / "windows", "--span", "sdk", "--slow", "3ms", *program)
    window = next((folder / "windows").glob("*.timeline"))
    told = {width: said("timeline", "story", window, columns=width).stdout for width in (60, 120)}
    assert all(text.isascii() for text in told.values())
    assert longest(told[60]) <= 60 < longest(told[120]) <= 120
    assert told[60].split() == told[120].split()
