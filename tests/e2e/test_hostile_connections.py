"""Floods of connections, at the SDK's socket and at /metrics, and a file at the socket's path."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from rig import installed
from rig.agent import LOOPBENCH, Agent
from rig.hostile import PYTHON, Attack, descriptors, resident_mib
from rig.processes import AS_NOBODY, Started
from rig.recorder import Recorder, about
from rig.timeline import Timeline
from rig.waiting import until

Run = Callable[..., Started]


TIMES = 3000
SPANS = 2000


def begin(folder: Path) -> None:
    (folder / "begin").touch()


def connects(attack: Attack, folder: Path, times: int) -> Started:
    return attack("connects", folder / "sdk.sock", times, folder / "begin")


def may_connect(user: int, path: Path) -> bool:
    """Whether a process of this user reaches a socket; any other answer than yes and no fails."""
    code = (
        "import socket, sys\n"
        "try: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(sys.argv[1])\n"
        "except PermissionError: sys.exit(13)"
    )
    done = subprocess.run([PYTHON, "-c", code, path], user=user, extra_groups=[])
    assert done.returncode in (0, 13)
    return done.returncode == 0


def test_a_watched_process_that_connects_again_and_again_leaves_no_descriptors(
    record: Callable[..., Recorder],
    attack: Attack,
    folder: Path,
) -> None:
    attacker = connects(attack, folder, TIMES)
    recorder = record("-p", attacker.pid, "--span", "sdk").ready()
    before = descriptors(recorder.pid)
    begin(folder)
    until(lambda: "done" in attacker.out, "it has connected", 120)
    until(lambda: descriptors(recorder.pid) < before + 40, "its connections are closed")
    assert resident_mib(recorder) < 512
    recorder.stop(signal.SIGTERM).clean()


def test_a_flight_recorder_keeps_none_either(
    timeline: Callable[..., Timeline],
    attack: Attack,
    folder: Path,
) -> None:
    attacker = connects(attack, folder, TIMES)
    recorder = timeline("-p", attacker.pid, "--span", "sdk")
    before = descriptors(recorder.pid)
    begin(folder)
    until(lambda: "done" in attacker.out, "it has connected", 120)
    until(lambda: descriptors(recorder.pid) < before + 40, "its connections are closed")
    recorder.stop(signal.SIGTERM).clean()


def test_a_flood_by_a_stranger_takes_no_rows_from_others(
    record: Callable[..., Recorder],
    run: Run,
    attack: Attack,
    folder: Path,
) -> None:
    for _ in range(2):
        connects(attack, folder, 0)
    bench = installed.LAB / "loopbench"
    begin(folder)
    # Started by the recorder, the SDK waits for its answer as long as that takes.
    recorder = record("--span", "sdk", "--", bench, "--spans", SPANS, "--think-us", 200)
    recorder.wait(120).clean()
    ledger = about(recorder.ledger)
    assert ledger["rows"] == SPANS, ledger["lost"]
    assert ledger["lost"]["strangers"] > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_each_users_programs_have_a_socket_that_nobody_else_reaches(
    record: Callable[..., Recorder], folder: Path
) -> None:
    user = AS_NOBODY["user"]
    everybodys = folder / "sdk.sock"
    own = folder / f"sdk.sock.{user}"
    with subprocess.Popen(["sleep", "600"], **AS_NOBODY) as sleeper:
        recorder = record("-p", sleeper.pid, "--span", "sdk").ready()
        until(own.exists, "the user has a socket")
        assert may_connect(user, own) and may_connect(user, everybodys)
        assert may_connect(user - 1, everybodys)
        assert not may_connect(user - 1, own)
        recorder.stop(signal.SIGTERM).clean()
        sleeper.kill()
    assert not own.exists()


def test_half_open_scrapes_hold_up_nobody(agent: Callable[..., Agent]) -> None:
    started = agent(LOOPBENCH)
    port = int(re.findall(r"metrics at http://127.0.0.1:(\d+)", started.err)[-1])
    with ExitStack() as stack:
        for _ in range(100):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            half.sendall(b"GET /metrics HTTP/1.1\r\n")
        for _ in range(5):
            assert "tailscope_processes" in started.figures()
    started.stop(signal.SIGTERM).clean()


def test_a_file_at_the_sockets_path_is_left_alone(recordable: None, folder: Path) -> None:
    precious = folder / "precious"
    precious.write_text("precious")
    link = folder / "link"
    link.symlink_to(precious)
    for path in (precious, link):
        for command in ("record", "timeline"):
            out = folder / "out"
            done = subprocess.run(
                [installed.tailscope(), command, "--span", "sdk", "-o", out, "--", "/bin/true"],
                env={**os.environ, "TAILSCOPE_SOCKET": str(path)},
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode != 0
            assert "is not a socket" in done.stderr, done
    assert precious.read_text() == "precious"
    assert precious.stat().st_mode & 0o777 == 0o644
