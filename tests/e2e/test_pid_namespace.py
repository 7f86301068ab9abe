"""A recorder inside a PID namespace, as in a container or a sidecar: it sees the numbers that its
users see, or says why it can't."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from rig import installed, ledger
from rig.agent import configuration
from rig.in_pid_namespace import REQUESTS, UNSHARE, run, scenario

pytestmark = pytest.mark.usefixtures("recordable")


@pytest.fixture(autouse=True)
def namespaces() -> None:
    """Skips where no namespace can be made."""
    done = run(*UNSHARE, "true")
    if done.returncode:
        pytest.skip(f"no PID namespace can be made here: {done.stderr.strip()}")


def columns(of: Path) -> tuple[set[int], set[int]]:
    """The processes and threads of a ledger's rows."""
    rows = ledger.query(of, "SELECT DISTINCT pid, tid FROM spans")
    return {pid for pid, _ in rows}, {tid for _, tid in rows}


@pytest.mark.parametrize("what", ["record", "record_further_inside"])
def test_every_request_is_recorded_under_the_inner_numbers(
    what: str, folder: Path, nothing_left: None
) -> None:
    said = scenario(what, folder)
    assert said["answered"] == REQUESTS == ledger.count(folder / "ledger")
    pids, tids = columns(folder / "ledger")
    assert pids == {said["pid"]}
    # Each connection has a thread of its own, whose number is not far from its process's.
    assert len(tids) == 2
    assert all(said["pid"] < tid < said["pid"] + 100 for tid in tids)


def test_in_a_namespace_within_a_namespace_too(folder: Path) -> None:
    said = scenario("record", folder, under=(*UNSHARE, *UNSHARE))
    assert said["answered"] == REQUESTS == ledger.count(folder / "ledger")
    assert columns(folder / "ledger")[0] == {said["pid"]}


def test_every_span_of_a_command_with_the_sdk_is_recorded(folder: Path) -> None:
    said = scenario("record_command", folder)
    assert 0 < said["spans"] == ledger.count(folder / "ledger")
    pids, tids = columns(folder / "ledger")
    assert pids == {said["pid"]}
    assert all(said["pid"] <= tid < said["pid"] + 100 for tid in tids)


def test_top_counts_the_same(folder: Path) -> None:
    said = scenario("top", folder)
    assert said["answered"] == REQUESTS == said["spans"]


def test_the_timeline_follows_requests_and_names_who_did_what(folder: Path) -> None:
    said = scenario("flight", folder)
    assert said["watched"] == [said["pid"]]
    assert said["answered"] == REQUESTS == said["requests"]
    named = {int(tid): thread for tid, thread in said["threads"].items()}
    assert named[said["pid"]]["process"] == said["pid"]
    assert said["story"]["from_packet"]


def test_the_agent_finds_servers_and_tells_them_apart(folder: Path) -> None:
    said = scenario("agent", folder)
    for port, answered in said["answered"].items():
        labels = f"{{process={said['name']}}}{{port={port}}}{{span=ready..send}}"
        count = said["figures"][f"tailscope_process_span_duration_seconds_count{labels}"]
        assert count == answered
    # The series of all processes together is as it always was.
    whole = said["figures"]["tailscope_span_duration_seconds_count{span=ready..send}"]
    assert whole == sum(said["answered"].values())


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="an observer needs a second CPU")
def test_the_observer_reads_meters_and_names_who_runs(folder: Path) -> None:
    said = scenario("observe", folder)
    assert said["grown"] > 0
    ours = [name for name in said["names"] if name and f" {said['pid']}/" in name]
    assert ours, said["names"]
    # Threads that the namespace does not show have no number here.
    strange = [name for name in said["names"] if name and "outside" in name]
    assert all(name == "outside this PID namespace" for name in strange)


def test_the_doctor_says_which_namespace_it_is_in() -> None:
    command = (installed.tailscope(), "doctor")
    for under, which, words in (
        ((), "initial", "in the initial PID namespace"),
        (UNSHARE, "nested", "in a nested PID namespace"),
    ):
        done = run(*under, *command, "--json")
        assert done.returncode == 0, done
        told = json.loads(done.stdout)["pid_namespace"]
        if not under and told != which:
            pytest.skip("this machine's own processes are in a PID namespace")
        assert told == which
        assert words in run(*under, *command).stdout


COMMANDS = {
    "record": ("record", "-o", "ledger", "-p", 1),
    "record -- CMD": ("record", "-o", "ledger", "--", "true"),
    "top": ("top", "-p", 1),
    "timeline": ("timeline", "-o", "windows", "-p", 1),
    "observe": ("observe", "--signal", "meter:1:sleep"),
    "agent": ("agent", "agent.toml"),
    "doctor": ("doctor",),
}


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """It ended with 3, and said all of this."""
    assert done.returncode == 3, done
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_proc_of_another_namespace_is_refused(command: tuple[object, ...], folder: Path) -> None:
    configuration(folder, "pid = 1")
    without_proc = ("unshare", "--pid", "--fork", "--kill-child")
    done = run(*without_proc, installed.tailscope(), *command, cwd=folder)
    refused(done, "/proc shows another PID namespace", "--mount-proc")


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_user_namespace_without_its_privileges_is_refused(
    command: tuple[object, ...], folder: Path
) -> None:
    as_container = ("unshare", "--user", "--map-root-user", *UNSHARE[1:])
    if run(*as_container, "true").returncode:
        pytest.skip("no user namespace can be made here")
    configuration(folder, "pid = 1")
    done = run(*as_container, installed.tailscope(), *command, cwd=folder)
    refused(done, "user namespace", "--userns=host")
