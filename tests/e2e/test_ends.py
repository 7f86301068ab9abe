"""However a recording ends, what was recorded is kept and nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from conftest import Record
from rig import bpf, installed, ledger
from rig.processes import Started
from rig.recorder import about
from rig.waiting import until

Run = Callable[..., Started]


@pytest.fixture
def busy(run: Run) -> Started:
    """A program that runs spans until it is stopped."""
    return run("loopbench", "--seconds", 120, "--think-us", 20)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_recording_properly(
    how: int, record: Record, busy: Started, nothing_left: None
) -> None:
    recorder = record("-p", busy.pid, "--span", "sdk").ready()
    recorder.serves(busy)
    ended = recorder.stop(how).clean()
    assert "stopped; the recording is kept" in ended.err
    told = about(recorder.ledger)
    assert told["state"] == "done"
    assert 0 < told["rows"] == ledger.count(recorder.ledger)
    assert busy.stop().clean()


def test_a_program_that_ends_ends_its_recording(
    record: Record, run: Run, nothing_left: None
) -> None:
    bench = run("loopbench", "--seconds", 600, "--think-us", 20)
    recorder = record("-p", bench.pid, "--span", "sdk").ready()
    recorder.serves(bench)
    spans = bench.stop().clean().json()["spans"]
    ended = recorder.wait().clean()
    assert "every process has ended" in ended.err
    assert about(recorder.ledger)["state"] == "done"
    assert 0 < ledger.count(recorder.ledger) <= spans


def test_a_program_that_ends_before_its_recording_has_begun_ends_it(
    record: Record, run: Run
) -> None:
    """The recorder has found it, and loads its programs into the kernel, which tell of ends."""
    idle = run(Path("/bin/sleep"), 600)
    recorder = record("-p", idle.pid, "--span", "syscall:recv..send")
    until(lambda: set(bpf.held_by(recorder.pid)), "it loads its programs")
    os.kill(recorder.pid, signal.SIGSTOP)
    idle.stop(signal.SIGKILL)
    os.kill(recorder.pid, signal.SIGCONT)
    ended = recorder.wait().clean()
    assert "every process has ended" in ended.err


def test_a_program_that_is_killed_keeps_its_spans(record: Record, busy: Started) -> None:
    recorder = record("-p", busy.pid, "--span", "sdk").ready()
    recorder.serves(busy)
    busy.stop(signal.SIGKILL)
    recorder.wait().clean()
    assert ledger.count(recorder.ledger) > 0


def test_the_command_of_a_recording_ends_with_it(record: Record) -> None:
    recorder = record("-d", "1s", "--", installed.LAB / "loopbench", "--seconds", 120)
    said = recorder.wait().clean().json()
    assert 0 < ledger.count(recorder.ledger) <= said["spans"]


def test_a_recorder_that_is_killed_leaves_whole_files_and_a_clean_kernel(
    record: Record, run: Run, nothing_left: None
) -> None:
    # Short spans, so that files are sealed for their number of rows and not for their age.
    bench = run("loopbench", "--seconds", 120, "--iterations", 2000)
    recorder = record("-p", bench.pid, "--span", "sdk").ready()
    assert len(set(bpf.held_by(recorder.pid))) > 5
    until(recorder.sealed, "the first file is sealed", 40)
    recorder.kill()
    files = recorder.sealed()
    with duckdb.connect() as engine:
        for file in files:
            assert engine.execute(
                "SELECT count(*) > 0 AND min(wall_ns) > 0 FROM read_parquet(?)", [str(file)]
            ).fetchone() == (True,)
    assert about(recorder.ledger)["state"] == "recording"
    warned = ledger.explain(recorder.ledger)["warnings"]
    assert any("was cut off, or is still being written" in warning for warning in warned)
    bench.works(10e6)  # as if nothing had been
    assert bench.stop().clean().json()["spans"] > 0


def test_a_recording_killed_at_once_says_that_it_was_cut_off(record: Record, run: Run) -> None:
    # Nothing is sealed: the program ends no span.
    idle = run("loopbench", "--seconds", 120, "--iterations", 1 << 62)
    recorder = record("-p", idle.pid, "--span", "sdk").ready()
    explain = [installed.tailscope(), "explain", recorder.ledger]
    going_on = subprocess.run(explain, capture_output=True, text=True, timeout=60)
    recorder.kill()
    cut_off = subprocess.run(explain, capture_output=True, text=True, timeout=60)
    idle.stop(signal.SIGKILL)  # it heeds SIGTERM between spans only
    assert going_on.returncode == cut_off.returncode == 2
    assert "still runs, and no file has been sealed yet" in going_on.stderr
    assert "was cut off before its first file was sealed" in cut_off.stderr


def test_a_recording_of_seconds_that_is_killed_keeps_its_first(
    record: Record, busy: Started
) -> None:
    recorder = record("-p", busy.pid, "--span", "sdk").ready()
    # After 1, 2, 5 and 10 s; that many small files are not sealed for their rows.
    until(lambda: len(recorder.sealed()) >= 2, "the second file is sealed", 40)
    recorder.kill()
    assert ledger.count(recorder.ledger) > 0
    assert not ledger.explain(recorder.ledger)["notices"]


@pytest.mark.parametrize(
    ("options", "command", "code"),
    [
        ([], "exit 7", 7),
        ([], "exit 0", 0),
        ([], "kill -KILL $$", 137),
        (["--ignore-exit-code"], "exit 7", 0),
    ],
)
def test_the_exit_code_is_that_of_the_command(
    options: list[str], command: str, code: int, record: Record
) -> None:
    recorder = record(*options, "--", "/bin/sh", "-c", command)
    ended = recorder.wait()
    assert ended.code == code, ended
    assert about(recorder.ledger)["state"] == "done"
    assert ("the command ended with" in ended.err) == (command != "exit 0")


def test_a_command_that_the_recording_ends_does_not_fail_it(record: Record) -> None:
    recorder = record("-d", "1s", "--", "/bin/sh", "-c", "trap 'exit 9' TERM; while :; do :; done")
    assert recorder.wait().code == 0


def test_a_normal_end_leaves_nothing_and_tells_its_cost(
    record: Record, run: Run, nothing_left: None
) -> None:
    """Four threads at full speed, far more than two CPUs and one recorder care for."""
    bench = run("loopbench", "--seconds", 60, "--threads", 4, "--iterations", 2000)
    recorder = record("-p", bench.pid, "--span", "sdk").ready()
    peaks = []

    def enough() -> bool:
        peaks.append(int(recorder.status("VmHWM").split()[0]) / 1024)
        return bool(recorder.sealed())

    until(enough, "a file is sealed, after a million rows or ten seconds", 40)
    recorder.interrupt().clean()
    assert max(peaks) < 64, f"{max(peaks):.0f} MiB"
    told = about(recorder.ledger)
    assert 0 < told["cost"]["max_rss_bytes"] < 64 << 20, told["cost"]
    assert told["cost"]["cpu_ns"] > 0
    print(f"{told['rows']} rows, lost {told['lost']}, cost {told['cost']}")
    assert told["rows"] == ledger.count(recorder.ledger)
    ledger.check_books(recorder.ledger)
    assert bench.stop().clean()


@pytest.mark.parametrize("options", [["--keep", "10%"], ["--sample", "10%"]], ids=lambda o: o[0])
def test_weights_stand_for_the_spans_that_were_not_written(
    options: list[str], record: Record
) -> None:
    bench = [installed.LAB / "loopbench", "--spans", 40000, "--iterations", 5000]
    recorder = record(*options, "--", *bench)
    assert recorder.wait().clean().json()["spans"] == about(recorder.ledger)["seen"] == 40000
    ((rows, weight),) = ledger.query(recorder.ledger, "SELECT count(*), sum(weight) FROM spans")
    # 4,000 expected; its standard deviation is 60.
    assert 3600 < rows < 4400
    # What is drawn with is the nearest probability that a row can carry.
    assert weight == pytest.approx(10 * rows, rel=1e-3)
