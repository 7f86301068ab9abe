"""`tailscope borrow`: the batch has only what the server leaves, and nothing of it stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from conftest import Record
from rig import installed
from rig.processes import Ended, Started
from rig.servers import Server, load, memcached
from rig.waiting import until

Borrow = Callable[..., Started]
HOG = (installed.FAULTS, "hog")
#: What waits for more work than a test takes.
ENDLESS = ("sh", "-c", "while :; do :; done")


@pytest.fixture
def state(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for the state files."""
    monkeypatch.setenv("TAILSCOPE_BORROW_STATE", str(folder / "state"))
    return folder / "state"


@pytest.fixture
def server(recordable: None, state: Path) -> Iterator[Server]:
    """A memcached on CPU 0."""
    with memcached(0) as server:
        yield server


@pytest.fixture
def borrow(server: Server, state: Path) -> Iterator[Borrow]:
    """Starts `tailscope borrow --for` the server. All are ended, and nothing is left of them."""
    before = groups()
    with ExitStack() as stack:

        def start(*arguments: object, under: tuple = ()) -> Started:
            words = [*under, installed.tailscope(), "borrow", "--for", server.pid, *arguments]
            return stack.enter_context(Started(words))

        yield start
    until(lambda: not list(state.glob("*")), lambda: f"no state files: {[*state.glob('*')]}")
    until(lambda: groups() <= before, lambda: f"the cgroups are gone: {groups() - before}")


def groups() -> set[str]:
    """The cgroups of all batch commands."""
    found = Path("/sys/fs/cgroup").glob("**/tailscope-borrow-*")
    return {str(path) for path in found}


def tailscope(*arguments: object) -> Ended:
    """Runs another of its commands to its end."""
    with Started([installed.tailscope(), *arguments]) as started:
        return started.wait()


def entry(state: Path) -> dict:
    """The state of the one batch command, once it has one with its groups."""

    def read() -> dict | None:
        for path in state.glob("*.json"):
            found = json.loads(path.read_text())
            return found if found["groups"] else None
        return None

    return until(read, "there is a state file")


def batch(state: Path) -> set[int]:
    """The processes with the mark of the one batch command."""
    wanted = f"TAILSCOPE_BORROW={entry(state)['mark']}".encode()
    return {pid for pid in pids() if wanted in environment(pid)}


def pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def runs(pid: int) -> bool:
    """Whether a process is there and not dead already."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def lives_idle(pid: int) -> bool:
    """Whether a process has SCHED_IDLE, on the server's CPU, in the groups of the batch."""
    try:
        policy, cpus = os.sched_getscheduler(pid), os.sched_getaffinity(pid)
        inside = Path(f"/proc/{pid}/cgroup").read_text().count("tailscope-borrow-")
    except OSError:
        return False
    return policy == os.SCHED_IDLE and cpus == {0} and inside >= 1


def begun(state: Path, processes: int = 1) -> set[int]:
    """The batch, once this number of its processes is in place."""

    def found() -> set[int]:
        there = batch(state)
        return there if len(there) >= processes and all(map(lives_idle, there)) else set()

    return until(found, f"{processes} processes of the batch run idle")


def of_server(server: Server) -> list:
    """The policy, affinity and cgroups of each of its threads."""
    tasks = sorted(int(path.name) for path in Path(f"/proc/{server.pid}/task").iterdir())
    return [
        (
            task,
            os.sched_getscheduler(task),
            os.sched_getaffinity(task),
            os.getpriority(os.PRIO_PROCESS, task),
            Path(f"/proc/{task}/cgroup").read_text(),
        )
        for task in tasks
    ]


def test_the_report_compares_lending_with_holding_back(server: Server, borrow: Borrow) -> None:
    before = of_server(server)
    with load(server, "--rate", 2000, "-d", "60s"):
        options = ("-d", "4s", "--held-back", "30%", "--json")
        report = borrow(*options, "--", *HOG).wait().clean().json()
    assert of_server(server) == before
    assert report["kind"] == "borrow"
    assert report["server"] == server.pid
    assert report["cpus"] == [0]
    assert report["borrowed_ns"] > 0
    lending, held_back = report["lending"], report["held_back"]
    assert lending["requests"] > 100
    assert held_back["requests"] > 100
    # On a busy machine the batch may have next to nothing.
    assert held_back["batch"] <= max(0.02, 0.5 * lending["batch"])
    share = held_back["time_ns"] / (lending["time_ns"] + held_back["time_ns"])
    assert 0.05 < share < 0.8
    p50 = report["tails"][0]
    assert p50["name"] == "p50"
    assert p50["lending_ns"]["value"] > 1000
    assert p50["held_back_ns"]["value"] > 1000
    assert report["lost"] == 0
    assert report["not_put_back"] == 0


def test_a_batch_without_a_busy_server_gets_the_idle_cpu(server: Server, borrow: Borrow) -> None:
    report = borrow("-d", "2s", "--json", "--", *HOG).wait().clean().json()
    assert report["lending"]["requests"] == 0
    assert report["lending"]["waited_ns"] is None
    assert any("not known" in note for note in report["notes"])
    # Other work of the machine may take all the rest.
    assert 0 < report["borrowed_ns"] < 1.1 * report["elapsed_ns"]


@pytest.mark.parametrize(
    ("command", "code", "held_back"),
    [
        ("exit 7", 7, "4%"),
        ("exit 0", 0, "4%"),
        ("kill -9 $$", 128 + 9, "4%"),
        ("sleep 0.5; exit 7", 7, "60%"),  # it ends while it is held back, or nearly so
    ],
)
def test_the_exit_code_is_the_batch_commands(
    borrow: Borrow, command: str, code: int, held_back: str
) -> None:
    options = ("-q", "--held-back", held_back)
    ended = borrow(*options, "--", "sh", "-c", f"echo done; {command}").wait()
    assert ended.code == code, ended
    assert ended.out.startswith("done\n")


def test_forks_follow_and_end_with_the_command(borrow: Borrow, state: Path) -> None:
    # One in a session of its own, whose parent ends at once.
    script = "setsid sleep 300 & (sleep 300 & sleep 300 &) ; exec sleep 300"
    started = borrow("-q", "--", "sh", "-c", script)
    there = begun(state, 4)
    ended = started.stop(signal.SIGINT)
    assert ended.code == 0, ended
    assert not any(map(runs, there))


def test_a_batch_with_a_policy_and_an_affinity_of_its_own_is_put_back(
    borrow: Borrow, state: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may leave SCHED_IDLE for a better policy")
    cpu = max(os.sched_getaffinity(0))
    script = f"sleep 1; exec chrt --other 0 taskset -c {cpu} sh -c 'while :; do sleep 0.05; done'"
    started = borrow("--json", "--", "sh", "-c", script)
    deviated = "sh\0-c\0while"
    until(
        lambda: any(line.startswith(deviated) for line in command_lines(batch(state))),
        "it has deviated",
    )
    begun(state)
    report = started.stop(signal.SIGINT).clean().json()
    assert report["policies_put_back"] >= 1
    assert report["affinities_put_back"] >= (1 if cpu != 0 else 0)
    assert report["not_put_back"] == 0


def command_lines(processes: set[int]) -> list[str]:
    lines = []
    for pid in processes:
        try:
            lines.append(Path(f"/proc/{pid}/cmdline").read_text())
        except OSError:
            continue
    return lines


def test_kill_9_of_tailscope_ends_the_batch(server: Server, borrow: Borrow, state: Path) -> None:
    before = of_server(server)
    started = borrow("-q", "--", "sh", "-c", "trap '' TERM; sleep 300 & while :; do :; done")
    there = begun(state, 2)
    started.stop(signal.SIGKILL)
    until(lambda: not any(map(runs, there)), "the batch has ended", 5)
    until(lambda: not list(state.glob("*")), "its state is gone", 5)
    assert of_server(server) == before


def test_kill_9_of_the_keeper_ends_the_batch(borrow: Borrow, state: Path) -> None:
    started = borrow("-q", "--", "sh", "-c", "setsid sleep 300 & while :; do :; done")
    there = begun(state, 2)
    os.kill(entry(state)["keeper"]["pid"], signal.SIGKILL)
    ended = started.wait()
    assert ended.code == 3, ended
    assert "was killed; the batch was ended" in ended.err
    assert not any(map(runs, there))


def test_kill_9_of_all_is_restored(borrow: Borrow, state: Path) -> None:
    started = borrow("-q", "--", "sh", "-c", "setsid sleep 300 & while :; do :; done")
    there = begun(state, 2)
    keeper = entry(state)["keeper"]["pid"]
    guard = int(Path(f"/proc/{keeper}/stat").read_text().rpartition(")")[2].split()[1])
    # Each would end the batch when the next one is killed.
    for pid in (started.pid, guard):
        os.kill(pid, signal.SIGSTOP)
    for pid in (keeper, guard):
        os.kill(pid, signal.SIGKILL)
    started.stop(signal.SIGKILL)
    # A killed process lives on until a CPU is free for its end, and is no one's child here.
    until(lambda: not runs(keeper) and not runs(guard), "keeper and guard have ended")
    assert any(map(runs, there))
    status = tailscope("borrow", "status").clean()
    assert "--restore" in status.out
    restored = tailscope("borrow", "--restore").clean()
    assert f"process {started.pid}" in restored.err
    assert not any(map(runs, there))
    assert not list(state.glob("*"))


def test_status_and_stop(server: Server, borrow: Borrow, state: Path) -> None:
    assert tailscope("borrow", "status").clean().out == "this user lends nothing\n"
    started = borrow("-q", "--", *ENDLESS)
    there = begun(state)
    until(lambda: list(state.glob("*.status")), "there are figures")
    (told,) = json.loads(tailscope("borrow", "status", "--json").clean().out)
    assert (told["borrower"], told["server"]) == (started.pid, server.pid)
    assert told["figures"]["kind"] == "borrow"
    assert not told["left_behind"]
    shown = tailscope("borrow", "status").clean().out
    assert f"process {started.pid} lends the CPUs of process {server.pid}" in shown
    second = borrow("-q", "--", "true").wait()
    assert second.code == 2, second
    assert "already lends" in second.err
    wrong = tailscope("borrow", "stop", 1)
    assert wrong.code == 2, wrong
    stopped = tailscope("borrow", "stop", server.pid).clean()
    assert "stopped" in stopped.err
    assert started.wait().code == 0
    assert not any(map(runs, there))


def test_the_end_of_the_server_ends_the_batch(server: Server, borrow: Borrow, state: Path) -> None:
    started = borrow("-q", "--", *ENDLESS)
    there = begun(state)
    server.stop()
    ended = started.wait()
    assert ended.code == 0, ended
    assert "the server has ended" in ended.err
    assert not any(map(runs, there))


@pytest.mark.more
def test_two_servers_lend_to_a_batch_each(server: Server, borrow: Borrow, state: Path) -> None:
    with memcached(max(os.sched_getaffinity(0))) as other:
        first = borrow("-d", "3s", "--json", "--", *HOG)
        second = [installed.tailscope(), "borrow", "--for", other.pid, "-d", "3s", "--json", "--"]
        with Started([*second, *HOG]) as second:
            until(lambda: len(list(state.glob("*.json"))) == 2, "both lend")
            reports = [started.wait().clean().json() for started in (first, second)]
    for report, lends in zip(reports, (server, other), strict=True):
        assert report["server"] == lends.pid
        assert report["borrowed_ns"] > 0


def test_without_cgroups_it_says_so_and_holds_back_by_signals(borrow: Borrow, state: Path) -> None:
    # In a mount namespace of its own nobody else misses them.
    hidden = 'umount -R /sys/fs/cgroup && exec "$0" "$@"'
    under = ("unshare", "--mount", "--propagation", "private", "sh", "-c", hidden)
    if subprocess.run([*under, "true"], capture_output=True).returncode != 0:
        pytest.skip("can't unmount the cgroups in a mount namespace of its own")
    options = ("-d", "3s", "--held-back", "50%", "--json")
    report = borrow(*options, "--", *HOG, "--threads", 2, under=under).wait().clean().json()
    assert report["mechanism"]["idle_group"] is None
    assert report["mechanism"]["held_back_by"] == "SIGSTOP"
    assert any("only SCHED_IDLE" in note for note in report["notes"])
    held_back, lending = report["held_back"]["batch"], report["lending"]["batch"]
    assert held_back <= max(0.02, 0.5 * lending)


def test_with_an_slo_that_nothing_meets_hardly_anything_is_lent(
    server: Server, borrow: Borrow
) -> None:
    with load(server, "--rate", 1000, "-d", "60s"):
        options = ("-d", "4s", "--slo", "p99=1us", "--json")
        report = borrow(*options, "--", *HOG).wait().clean().json()
    slo = report["slo"]
    assert slo["slo"] == "p99=1us"
    assert slo["reached_ns"] > slo["limit_ns"]
    assert slo["lent_share"] == 0.02
    assert report["lending"]["time_ns"] < report["held_back"]["time_ns"]


def test_a_recording_is_played_by_each_policy(server: Server, record: Record) -> None:
    with load(server, "--rate", 2000, "-d", "60s"):
        recorder = record("-p", server.pid, "-d", "3s")
        recorder.wait().clean()
    options = ("--slo", "p99=50ms", "--budget", "100us")
    told = tailscope("borrow", "--simulate", recorder.ledger, *options, "--json").clean().json()
    assert told["recorded"]["p50_ns"] > 1000
    of = {(played["core"], played["policy"]): played for played in told["policies"]}
    nothing, idle = of["one CPU", "nothing"], of["one CPU", "borrow idle"]
    assert nothing["requests"] > 3000
    assert nothing["batch_share"] == 0
    assert idle["requests_share"] + idle["batch_share"] > 0.9
    assert of["SMT", "slo p99=50ms"]["beside_share"] > 0
    assert of["SMT", "fixed 100.0 µs"]["beside_share"] > 0
    shown = tailscope("borrow", "--simulate", recorder.ledger).clean().out
    assert shown.startswith("this is a model, not a measurement")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["borrow"], ["nothing to lend", "--for PID", "--"]),
        (["borrow", "--for", "1"], ["nothing to lend"]),
        (["borrow", "--", "true"], ["nothing to lend"]),
        (["borrow", "--for", "me", "--", "true"], ["'me'", "--for"]),
        (["borrow", "--for", "4194304", "--", "true"], ["no process 4194304"]),
        (["borrow", "--for", "2", "--", "true"], ["kernel thread"]),
        (["borrow", "--for", "1", "--", "no-such-program"], ["can't start 'no-such-program'"]),
        (["borrow", "--for", "1", "--slo", "2ms", "--", "true"], ["p99=2ms"]),
        (["borrow", "--for", "1", "--cpus", "3-1", "--", "true"], ["list of CPUs"]),
        (["borrow", "--for", "1", "--cpus", "1023", "--", "true"], ["--cpus", "online"]),
        (["borrow", "--for", "1", "--held-back", "0", "--", "true"], ["share"]),
        (["borrow", "--for", "1", "--held-back", "95%", "--", "true"], ["at most 90%"]),
        (["borrow", "stop", "4194304"], ["4194304", "status"]),
        (["borrow", "--simulate", "no-such-ledger"], ["no-such-ledger", "could not be read"]),
        (["borrow", "--simulate", "x", "--budget", "soon"], ["'soon'", "100us"]),
    ],
)
def test_bad_input_is_explained(state: Path, arguments: list[str], words: list[str]) -> None:
    ended = tailscope(*arguments)
    assert ended.code == 2, ended
    missing = [word for word in words if word.lower() not in ended.err.lower()]
    assert not missing, f"no {missing} in: {ended.err}"
    assert "panicked" not in ended.err
    assert not list(state.glob("*"))


def test_a_server_that_is_an_ancestor_is_refused(state: Path, recordable: None) -> None:
    ended = tailscope("borrow", "--for", os.getpid(), "--", "true")
    assert ended.code == 2, ended
    assert "ancestor" in ended.err
    assert not list(state.glob("*"))
