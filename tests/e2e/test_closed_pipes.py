"""`tailscope … | head -1`: a reader that has seen enough ends a command silently."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import Begin, Record
from rig import installed
from rig.servers import load, memcached


def closed_pipe() -> int:
    """The end to write to of a pipe that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    return write


def unread(*arguments: object, stderr: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs the command with nobody at its stdout, or its stderr."""
    pipe = closed_pipe()
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    streams["stderr" if stderr else "stdout"] = pipe
    try:
        command = [str(word) for word in (installed.tailscope(), *arguments)]
        return subprocess.run(command, text=True, timeout=120, check=False, **streams)
    finally:
        os.close(pipe)


def check(arguments: Sequence[object]) -> None:
    ended = unread(*arguments)
    assert ended.returncode == 0, (arguments, ended)
    quiet = [line for line in ended.stderr.splitlines() if "roken" in line or "panic" in line]
    assert not quiet, (arguments, ended.stderr)


@pytest.fixture
def window(timeline: Begin) -> Path:
    with memcached(1) as server, load(server, "--rate", 500, "-d", "60s"):
        recorder = timeline("-p", server.pid, "--keep", "5s", "--memory", "16MB")
        recorder.ask()
        recorder.stop().clean()
    return recorder.windows()[0]


def test_stories_and_pictures_of_a_window_end_with_their_reader(window: Path) -> None:
    check(["timeline", "story", window, "--slower", "1us", "-n", 1000])
    check(["timeline", "story", window, "--slower", "1us", "-n", 1000, "--json"])
    check(["timeline", "page", window, "-o", "-"])
    check(["timeline", "page", window, "-o", "/dev/stdout"])
    check(["timeline", "perfetto", window, "-o", "-"])


def test_what_this_machine_can_and_does_ends_with_its_reader(recordable: None) -> None:
    check(["doctor"])
    check(["doctor", "--json"])
    check(["--help"])
    check(["observe", "--self-test"])
    check(["observe", "--self-test", "--json"])


def test_live_figures_end_with_their_reader(recordable: None) -> None:
    with memcached(1) as server, load(server, "--rate", 500, "-d", "60s"):
        of = ["top", "-p", server.pid, "--span", "syscall:recv..send", "--interval", "200ms"]
        check([*of, "--batch"])
        check([*of, "--json"])


def test_a_recording_goes_on_where_nobody_reads_what_it_says(folder: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(0.5)"]
    for arguments in (
        ["record", "--span", "syscall:recv..send", "-o", folder / "ledger", "--", *sleep],
        ["timeline", "-o", folder / "windows", "--memory", "8MB", "--", *sleep],
    ):
        ended = unread(*arguments, stderr=True)
        assert ended.returncode == 0, (arguments, ended)
    assert (folder / "ledger" / "ledger.json").exists()
    assert list((folder / "windows").glob("*.timeline"))


def test_explanations_end_with_their_reader(record: Record) -> None:
    with memcached(1) as server, load(server, "--rate", 2000, "-d", "60s"):
        recorder = record("-p", server.pid, "--span", "syscall:recv..send", "-d", "2s")
        recorder.wait().clean()
    ledger = recorder.ledger
    check(["explain", ledger])
    check(["explain", ledger, "--json"])
    check(["diff", ledger, ledger])
