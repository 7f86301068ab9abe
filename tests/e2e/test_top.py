"""`tailscope top`: what it shows, what keys do, and that it leaves the terminal as it was."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rig import bpf, installed
from rig.servers import Server, load, memcached
from rig.terminal import Terminal, top
from rig.waiting import until

RATE = 2000
SERVED = ("--span", "syscall:ready..send")


@pytest.fixture
def served(recordable: None) -> Iterator[Server]:
    """A memcached with 2,000 requests a second, for as long as a test takes."""
    with memcached(0) as server, load(server, "--rate", RATE, "-d", "120s"):
        yield server


def run(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """`tailscope top`, to its end."""
    return subprocess.run(
        [str(word) for word in top(*arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


def pictures(done: subprocess.CompletedProcess[str]) -> list[dict]:
    """What it said in JSON."""
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"kinds"')]


def program_said(done: subprocess.CompletedProcess[str]) -> dict:
    """What the program that it started printed."""
    (line,) = (line for line in done.stdout.splitlines() if line.startswith('{"program"'))
    return json.loads(line)


def test_a_person_looks_around(served: Server, nothing_left: None) -> None:
    with Terminal(*top("-p", served.pid, *SERVED)) as terminal:
        terminal.shows("KIND", "> ready..send", "q quit")

        def rate() -> float:
            row = re.search(r"> ready\.\.send +([\d,.]+) ", terminal.look())
            return float(row[1].replace(",", "")) if row else 0

        until(lambda: 0.8 * RATE < rate() < 1.2 * RATE, "it shows the load's rate", 40)
        terminal.press("\r")
        terminal.shows("MEAN TIME A SPAN", "queue", "running")
        terminal.press("\r")
        terminal.shows("KIND")
        terminal.press(" ")
        frozen = terminal.shows("FROZEN")
        terminal.press("?")
        terminal.shows("the hypervisor running something else")
        terminal.press("?")
        assert terminal.shows("FROZEN", "KIND") == frozen
        terminal.press(" /nothing")
        terminal.shows("filter: nothing_")
        terminal.press("\r")
        terminal.shows("none of 1 kinds has 'nothing'")
        terminal.press("\x1b")
        terminal.shows("> ready..send")
        terminal.press("w")
        until(lambda: re.search(r"  all \d+ s  ", terminal.look()), "it shows all since the begin")
        terminal.resize(60, 20)
        narrow = terminal.shows("> ready..send", "q quit")
        until(lambda: "p50" not in terminal.look(), "it has less room")
        assert "p99" in narrow
        terminal.press("q")
        assert terminal.ended() == 0
        terminal.check_given_back()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_gives_the_terminal_back(how: int, served: Server, nothing_left: None) -> None:
    with Terminal(*top("-p", served.pid, *SERVED)) as terminal:
        terminal.shows("> ready..send")
        assert len(set(bpf.held_by(terminal.pid))) > 5
        terminal.process.send_signal(how)
        assert terminal.ended() == 0
        terminal.check_given_back()


def test_a_program_that_ends_leaves_its_figures_to_be_read(recordable: None) -> None:
    bench = [installed.LAB / "loopbench", "--seconds", 3, "--think-us", 100]
    with Terminal(*top("--", *bench)) as terminal:
        terminal.shows("q quit")
        assert terminal.ended() == 0
        terminal.check_given_back()
        after = terminal.bytes[terminal.bytes.rfind(b"\x1b[?1049l") :].decode()
        assert "every process has ended" in after
        assert re.search(r"all \d+ s .* spans/s", after)
        assert "time of spans" in after


def test_without_colours_and_with_ascii_alone(served: Server) -> None:
    """What NO_COLOR and a plain locale ask for."""
    plain = {"LC_ALL": "C", "NO_COLOR": "1"}
    with Terminal(*top("-p", served.pid, *SERVED), **plain) as terminal:
        terminal.shows("> ready..send", "time of those >= p99", " us ")
        assert terminal.bytes.isascii()
        assert b"[48;5;" not in terminal.bytes
        terminal.press("c")
        until(lambda: terminal.look() and b"[48;5;" in terminal.bytes, "c asks for colours")


def test_a_pipe_gets_text(served: Server) -> None:
    done = run("-p", served.pid, *SERVED, "-n", 2, "-i", "500ms")
    assert done.returncode == 0, done
    first, second = done.stdout.rstrip().split("\n\n")
    for picture in (first, second):
        assert picture.startswith(" tailscope top  ")
        assert "  ready..send" in picture
    assert "\x1b" not in done.stdout


def test_its_figures_are_those_of_the_program(recordable: None) -> None:
    """Of each 50 spans one sleeps for 5 ms: that is the tail, and sleep is what it is made of."""
    naps = ["--spans", 20000, "--every", 50, "--nap-us", 5000]
    done = run("--json", "--", installed.LAB / "sleepbench", *naps)
    said = pictures(done)[-1]
    planted = program_said(done)["planted"]["spans"]
    (kind,) = said["kinds"]
    told = kind["since_begin"]
    assert told["spans"] == 20000
    assert told["p50_ns"] < 5e6 * 0.995 < told["p99_ns"] <= told["p999_ns"]
    tail = told["tail"]
    # A busy machine may add spans that waited as long, and delay naps, but can't cut one short.
    assert 200 <= tail["spans"] <= 1000
    assert tail["wall_ns"] > 5e6 * 0.98
    assert tail["sleep_ns"] > 10 * told["all"]["sleep_ns"]
    causes = sum(ns or 0 for name, ns in tail.items() if name not in ("spans", "wall_ns"))
    assert causes == pytest.approx(tail["wall_ns"])
    assert told["all"]["sleep_ns"] * 20000 > planted * 5e6 * 0.98


@pytest.mark.measures
def test_its_percentiles_are_those_that_the_program_saw(recordable: None) -> None:
    bench = [installed.LAB / "loopbench", "--spans", 20000, "--iterations", 100_000]
    done = run("--json", "--", *bench)
    (kind,) = pictures(done)[-1]["kinds"]
    told, saw = kind["since_begin"], program_said(done)
    assert told["spans"] == saw["spans"]
    # Its own clock readings are outside of the span's.
    assert told["p50_ns"] == pytest.approx(saw["p50_ns"], rel=0.03)
    assert told["p99_ns"] == pytest.approx(saw["p99_ns"], rel=0.1)


def test_the_function_that_makes_requests_slow_is_named(
    recordable: None, program: Callable[..., Path]
) -> None:
    """Of each 50 requests one waits for 10 ms for a lock, in a function of its own."""
    server = program("planted.c")
    spans = ("--span", f"uprobe:{server}:handle_request")
    done = run("--json", "--stacks", *spans, "--", server, "lock", 6000, 10_000)
    (kind,) = pictures(done)[-1]["kinds"]
    first = kind["functions"][0]
    assert first["cause"] == "lock", kind
    assert first["functions"] == ["planted_lock", "handle_request", "main"]
    assert first["ns"] == pytest.approx(kind["tail"]["lock_ns"], rel=0.05)


def test_spans_that_are_not_kept_are_counted_by_weight(recordable: None) -> None:
    bench = [installed.LAB / "loopbench", "--spans", 40000, "--iterations", 5000]
    (kind,) = pictures(run("--json", "--keep", "10%", "--", *bench))[-1]["kinds"]
    # 4,000 rows of weight 10; the standard deviation of their number is 60.
    assert 36000 < kind["since_begin"]["spans"] < 44000


def test_a_pipe_that_closes_ends_it(served: Server) -> None:
    command = [str(word) for word in top("-p", served.pid, *SERVED, "-i", "200ms")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            process.stdout.close()
            assert process.wait(30) == 0, process.stderr.read()
        finally:
            process.kill()


def test_nothing_to_show_is_wrong_usage(folder: Path) -> None:
    done = run()
    assert done.returncode == 2
    assert "-p PID" in done.stderr
