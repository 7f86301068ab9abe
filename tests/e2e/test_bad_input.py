"""Whatever is wrong gets a clear message and the right exit code: 2 wrong usage, 3 this machine
can't. Never a panic or a traceback."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from conftest import Record
from rig import installed
from rig.processes import NOBODY, Ended, Started
from rig.waiting import until

Run = Callable[..., Started]
Tailscope = Callable[..., Ended]


@pytest.fixture
def tailscope(folder: Path) -> Tailscope:
    """Runs the command to its end."""

    def run_to_end(*arguments: object, under: Sequence[object] = ()) -> Ended:
        with Started([*under, installed.tailscope(), *arguments], cwd=folder) as started:
            return started.wait()

    return run_to_end


def check_message(ended: Ended, code: int, *words: str) -> None:
    """The exit code, the important words, and no trace of a crash."""
    assert ended.code == code, ended
    missing = [word for word in words if word.lower() not in ended.err.lower()]
    assert not missing, f"no {missing} in: {ended.err}"
    for crash in ("panicked", "RUST_BACKTRACE", "Traceback"):
        assert crash not in ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["record"], ["nothing to record", "-p PID", "command"]),
        (["record", "-p", "1", "--span", "jvm:nope"], ["unknown span source", "jvm:nope", "sdk"]),
        (["record", "-p", "1", "--span", "request", "--name", "http3"], ["'http3'", "memcached"]),
        (["record", "-p", "1", "--span", "sdk", "--name", "http"], ["--name", "--span request"]),
        (["record", "-p", "1", "--span", "sdk", "--no-names"], ["--no-names", "--span request"]),
        (["record", "-p", "1", "--name", "http", "--no-names"], ["--name", "--no-names"]),
        (["record", "-p", "1", "--span", "sdk", "--traceparent"], ["--traceparent", "request"]),
        (["record", "-p", "1", "--sapn", "sdk"], ["--sapn", "--span"]),
        (["record", "-p", "me"], ["'me'", "--pid"]),
        (["record", "-p", "1", "-d", "10y"], ["'y' is not a unit of time", "ms, s, m, h or d"]),
        (["record", "-p", "1", "-d", "soon"], ["--duration", "soon"]),
        (["record", "-p", "1", "-d", "0s"], ["longer than 0"]),
        (["record", "-p", "1", "-d", "-5"], ["-5"]),
        (["record", "-p", "1", "--sample", "0"], ["share", "1%"]),
        (["record", "-p", "1", "--keep", "101%"], ["share", "101%"]),
        (["guard", "--replica", "127.0.0.1:1"], ["nowhere to accept", "--listen"]),
        (["guard", "--listen", "127.0.0.1:0"], ["no server", "--replica"]),
        (["guard", "--listen", "localhost"], ["'localhost'", "--listen"]),
        (
            ["guard", "--listen", "127.0.0.1:9", "--replica", "127.0.0.1:9"],
            ["forward requests to itself", "127.0.0.1:9"],
        ),
        (
            ["guard", "--listen", "127.0.0.1:0", *["--replica", "127.0.0.1:1"] * 2],
            ["named twice", "127.0.0.1:1"],
        ),
        (["guard", "--listen", "127.0.0.1:0", "--budget", "200%"], ["between 0%", "200%"]),
        (["guard", "--listen", "127.0.0.1:0", "--budget", "many"], ["percentage", "1%"]),
        (["guard", "--listen", "127.0.0.1:0", "--hedge-at", "p100"], ["p100", "percentile"]),
        (["guard", "--listen", "127.0.0.1:0", "--tls-cert", "x"], ["--tls-key"]),
        (
            [
                *["guard", "--listen", "127.0.0.1:0", "--replica", "127.0.0.1:1"],
                *["--admin", "none", "--tls-cert", "/no/such", "--tls-key", "/no/such"],
            ],
            ["can't read /no/such"],
        ),
        (["guard", "--config", "/no/such.toml"], ["can't read /no/such.toml"]),
        (["guard", "--config", "/etc/passwd"], ["/etc/passwd", "line 1"]),
        (
            [
                *["guard", "--listen", "127.0.0.1:0", "--replica", "127.0.0.1:1"],
                *["--health", "ready"],
            ],
            ["ready is not a path"],
        ),
        (["guard", "hazards"], ["--pid"]),
        (["guard", "hazards", "-p", "4194305"], ["no process 4194305"]),
        (["guard", "hazards", "-p", "0"], ["'0'", "--pid"]),
        (["record", "--", "no-such-program"], ["can't start 'no-such-program'", "PATH"]),
        (["record", "--", "/etc/passwd"], ["/etc/passwd", "not executable"]),
        (
            ["record", "-p", "1", "--span", "syscall:recv..send", "--span", "syscall:ready..send"],
            ["exclude each other"],
        ),
        (
            ["record", "-p", "1", "--counters", "instructons"],
            ["instructons", "did you mean instructions?"],
        ),
        (["record", "-p", "1", "--counters", "cpux/event=1/"], ["no PMU 'cpux'"]),
        (["record", "-p", "1", "--counters", ""], ["no event ''"]),
        (
            ["record", "-p", "1", "--span", "syscall:recv..send", "--counters", "cycles"],
            ["needs SDK spans", "tailscope.h"],
        ),
        (
            ["observe", "--signal", "mem:1:total:moved"],
            ["can't read 'mem:1:total:moved'", "does not move pages", "use 'mem:1:total'"],
        ),
        (
            ["observe", "--signal", "core:0:instructions"],
            ["'core' is not a kind of signal", "counter:PID:EVENT"],
        ),
        (["locality"], ["--pid", "required"]),
        (["locality", "-p", "4194304"], ["process 4194304", "no process"]),
        (["locality", "-p", "1", "--rate", "0"], ["--rate", "1..=10000"]),
        (["locality", "-p", "2"], ["kernel"]),
        (["symbols", "ledger"], ["ledger is no ledger", "has no ledger.json"]),
        (["symbols", "ledger", "--debug", "gone"], ["--debug gone: no such file or folder"]),
        (["chase", "--cpus", "0"], ["2 to 64 different CPUs", "--cpus 0,1"]),
        (["chase", "--cpus", "0,4095"], ["can't run on CPU 4095", "choose from"]),
        (["chase", "-w", "0"], ["'0' is no size", "24KiB"]),
        (["chase", "-w", "1000000GiB"], ["half of the available memory", "use fewer"]),
        (["chase", "-u", "2"], ["'2' is no share", "0% to 100%"]),
        (["chase", "-s", "0"], ["--sessions", "1..=10000"]),
        (["chase", "--start", "2"], ["no phase 2 to start in", "0 to 1"]),
        (["chase", "-m", "sync,sync"], ["names a mode twice"]),
        (["chase", "--distribution", "normal"], ["'normal' is no distribution", "zipf"]),
        (["chase", "--phase", "8"], ["'8' does not describe lines", "no /", "8/512,0.5"]),
        (["chase", "--phase", "0/0"], ["phase 0 has no lines"]),
        (["chase", "--phase", "1/1", "--shared", "1/1:0/1"], ["there is no phase 1"]),
        (["recrod"], ["no command 'recrod'", "--help"]),
        ([], ["usage", "record"]),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, list) else None,
)
def test_wrong_usage_is_answered_with_what_is_right(
    arguments: list[str], words: list[str], tailscope: Tailscope, folder: Path
) -> None:
    check_message(tailscope(*arguments), 2, *words)
    assert not (folder / "ledger").exists()


def test_a_process_that_is_gone_is_said_to_be(tailscope: Tailscope) -> None:
    with Started(["true"]) as gone:
        gone.wait()
    check_message(tailscope("record", "-p", gone.pid), 2, f"no process {gone.pid}", "ended")


def test_a_zombie_is_as_good_as_gone(tailscope: Tailscope) -> None:
    with Started(["true"]) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        check_message(tailscope("record", "-p", zombie.pid), 2, f"no process {zombie.pid}")


def test_a_thread_is_answered_with_its_process(tailscope: Tailscope, run: Run) -> None:
    bench = run("loopbench", "--seconds", 60, "--think-us", 1000)
    tasks = Path(f"/proc/{bench.pid}/task")
    until(lambda: len(list(tasks.iterdir())) > 1, "the bench has its thread")
    thread = max(int(task.name) for task in tasks.iterdir())
    ended = tailscope("record", "-p", thread)
    check_message(ended, 2, f"{thread} is a thread of process {bench.pid}", f"-p {bench.pid}")


def test_a_thread_of_the_kernel_has_no_requests(tailscope: Tailscope) -> None:
    if Path("/proc/2/comm").read_text().strip() != "kthreadd":
        pytest.skip("no thread of the kernel is visible here")
    check_message(tailscope("record", "-p", 2), 2, "2 is a kernel thread")


@pytest.fixture
def as_nobody(folder: Path) -> tuple[str, ...]:
    """A prefix that runs a command as a user without rights."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    folder.chmod(0o777)
    return NOBODY


def test_a_process_of_somebody_else_is_refused(
    tailscope: Tailscope, run: Run, as_nobody: tuple[str, ...]
) -> None:
    bench = run("loopbench", "--seconds", 60, "--think-us", 1000)
    ended = tailscope("record", "-p", bench.pid, under=as_nobody)
    check_message(ended, 2, f"process {bench.pid} belongs to user 0", "CAP_SYS_PTRACE", "root")


@pytest.mark.parametrize("capability", ["bpf", "perfmon"])
def test_a_missing_capability_is_named_with_the_command_that_grants_it(
    capability: str, tailscope: Tailscope, folder: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can drop a capability")
    dropped = f"-{capability},-sys_admin"
    without = ("setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}")
    ended = tailscope("record", "--", "true", under=without)
    check_message(ended, 3, f"CAP_{capability.upper()}", "sudo setcap", str(installed.tailscope()))
    assert not (folder / "ledger").exists()


def test_without_any_right_every_missing_capability_is_named(
    tailscope: Tailscope, as_nobody: tuple[str, ...]
) -> None:
    ended = tailscope("record", "--", "true", under=as_nobody)
    check_message(ended, 3, "CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "sudo setcap")


def test_doctor_without_rights_says_what_is_missing(
    tailscope: Tailscope, as_nobody: tuple[str, ...]
) -> None:
    check_message(tailscope("doctor", under=as_nobody), 3, "CAP_BPF", "sudo setcap")


def test_a_folder_that_holds_a_ledger_is_not_overwritten_unasked(
    record: Record, folder: Path
) -> None:
    short = ("--span", "sdk", "--", installed.LAB / "loopbench", "--spans", 2000)
    record(*short).wait().clean()
    before = {path: path.read_bytes() for path in (folder / "ledger").rglob("*.*")}
    check_message(record(*short).wait(), 2, "already holds a ledger", "--overwrite")
    assert {path: path.read_bytes() for path in (folder / "ledger").rglob("*.*")} == before
    record("--overwrite", *short).wait().clean()
    assert (folder / "ledger" / "ledger.json").read_bytes() not in before.values()


def test_a_refused_recording_does_not_leave_its_command_running(
    record: Record, folder: Path
) -> None:
    record("--", installed.LAB / "loopbench", "--spans", 2000).wait().clean()
    mark = folder / "mark"
    check_message(record("--", "touch", mark).wait(), 2, "already holds a ledger")
    assert not mark.exists()


def test_an_output_that_is_a_file_is_refused(tailscope: Tailscope, folder: Path) -> None:
    (folder / "file").write_text("precious")
    ended = tailscope("record", "-o", "file", "--", "true")
    assert ended.code in (2, 3)
    check_message(ended, ended.code, "file")
    assert (folder / "file").read_text() == "precious"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ["there is no ledger"]),
        ({}, ["there is no ledger", "no ledger.json"]),
        ({"ledger.json": "{"}, ["there is no ledger"]),
        ({"a.parquet": "PAR1 and then nothing"}, ["is left out; truncated: "]),
        ({"ledger.json": '{"schema": 99}'}, ["schema 99", "newer"]),
    ],
    ids=["nothing", "an empty folder", "half a ledger.json", "no Parquet", "a newer schema"],
)
def test_explain_says_what_is_no_ledger(
    content: dict[str, str] | None, words: list[str], tailscope: Tailscope, folder: Path
) -> None:
    ledger = folder / "ledger"
    if content is not None:
        ledger.mkdir()
        for name, text in content.items():
            (ledger / name).write_text(text)
    check_message(tailscope("explain", ledger), 2, *words)


def test_diff_is_found_and_says_what_is_no_ledger(tailscope: Tailscope, folder: Path) -> None:
    check_message(tailscope("diff", folder / "a", folder / "b"), 2, "tailscope diff:", "no ledger")


def test_explain_says_that_a_ledger_is_empty(
    tailscope: Tailscope, record: Record, folder: Path
) -> None:
    record("--span", "sdk", "--", "true").wait().clean()
    check_message(tailscope("explain", folder / "ledger"), 2, "empty")


def test_explain_takes_what_is_left_of_a_ledger_that_was_cut_short(
    tailscope: Tailscope, record: Record, folder: Path
) -> None:
    record("--", installed.LAB / "loopbench", "--spans", 2000).wait().clean()
    ledger = folder / "ledger"
    (whole,) = ledger.rglob("*.parquet")
    cut = whole.with_name("000001.parquet")
    cut.write_bytes(whole.read_bytes()[:-100])
    ended = tailscope("explain", ledger)
    check_message(ended, 0, cut.name, "left out")
    assert "p99" in ended.out
    whole.unlink()
    check_message(tailscope("explain", ledger), 2, "truncated")


def test_explain_knows_its_options(tailscope: Tailscope, record: Record, folder: Path) -> None:
    record("--", installed.LAB / "loopbench", "--spans", 2000).wait().clean()
    ledger = folder / "ledger"
    check_message(tailscope("explain", ledger, "-p", "fast"), 2, "fast")
    check_message(tailscope("explain", ledger, "--span", "get"), 2, "get", "loop")
    check_message(tailscope("explain"), 2, "ledger")


def test_a_full_disk_ends_the_recording_and_keeps_what_was_sealed(
    record: Record, run: Run, folder: Path
) -> None:
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", disk], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"can't mount a small disk: {mounted.stderr.strip()}")
    try:
        bench = run("loopbench", "--seconds", 120, "--iterations", 2000)
        recorder = record("-p", bench.pid, "--span", "sdk", name="disk/ledger")
        ended = recorder.wait(90)
        check_message(ended, 3, "no space left", "intact")
        assert not list(recorder.ledger.rglob("*.tmp"))
        check_readable(recorder.sealed())
        assert bench.stop().clean()
    finally:
        subprocess.run(["umount", disk], check=True)


def check_readable(files: list[Path]) -> int:
    """Reads every row of every file; how many there are."""
    import duckdb

    rows = 0
    for file in files:
        with duckdb.connect() as engine:
            (count,) = engine.execute(
                "SELECT count(wall_ns) FROM read_parquet(?)", [str(file)]
            ).fetchone()
        rows += count
    return rows
