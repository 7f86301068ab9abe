"""Hazards that a process elsewhere reports: on other machines, or with the privileges for it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest
from conftest import StartGuard
from proof.ports import free_port
from rig import installed
from rig.guard import Guard, JavaReplica, Replica
from rig.machines import Machine, machines
from rig.processes import NOBODY, Started
from rig.waiting import until

pytestmark = pytest.mark.e2e

KEY = "a key that only tests use"
#: A user who may load programs, and may not look at processes of others, as if they ran elsewhere.
WITHOUT_PROCESSES = (*NOBODY, "--inh-caps", "+bpf,+perfmon", "--ambient-caps", "+bpf,+perfmon")
#: Both begin a datagram: of a guard, and of a publisher.
SUBSCRIPTION, REPORT = b"TSH1", b"TSh1"


class Publisher(Started):
    """`tailscope guard hazards --serve`."""

    def __init__(self, address: str, key: Path, under: tuple[str, ...] = ()) -> None:
        command = [installed.tailscope(), "guard", "hazards", "--serve", address, "--key", key]
        super().__init__([*under, *command])
        until(lambda: "are reported at" in self.err or not self.runs, "it reports")
        assert self.runs, self.wait()


@pytest.fixture
def key(folder: Path) -> Path:
    file = folder / "hazards.key"
    file.write_text(KEY)
    file.chmod(0o600)
    os.chown(file, *(65534, 65534) if os.geteuid() == 0 else (-1, -1))
    return file


@pytest.fixture
def address() -> str:
    """Where a publisher of this machine reports."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def publisher(recordable: None, address: str, key: Path) -> Iterator[Publisher]:
    with Publisher(address, key) as started:
        yield started


def lasts(condition: Callable[[], bool], seconds: float = 2) -> None:
    """It holds, and goes on to do so: searches for processes have come between.

    Where the machine stalls, no report comes for a while, and nothing is known.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        until(condition, "it still holds", 2)


def metric(guard: Guard, name: str) -> float:
    with urlopen(f"http://127.0.0.1:{guard.admin}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    line = next(line for line in lines if line.startswith(f"tailscope_guard_{name} "))
    return float(line.rsplit(" ", 1)[1])


def signals(guard: Guard) -> list[str]:
    return [one["signals"] for one in guard.status()["replicas"]]


def hazards(guard: Guard, replica: int = 0) -> list[str]:
    return guard.status()["replicas"][replica]["hazards"]


def capabilities(pid: int) -> set[int]:
    """What the threads of a process may do, as masks."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        lines = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines())
        found.add(int(lines["CapPrm"], 16))
    return found


def test_an_unprivileged_guard_gets_the_hazards_from_a_process_that_may_see_them(
    publisher: Publisher,
    unwatched: StartGuard,
    pair: tuple[Replica, Replica],
    address: str,
    key: Path,
) -> None:
    first, second = pair
    options = ("--hazards-from", address, "--hazards-key", key, "--budget", "100%")
    started = unwatched(*options, under=NOBODY)
    assert capabilities(started.pid) == {0}
    assert f"reported by {address}" in started.err
    assert "CAP_BPF" not in started.err
    until(lambda: signals(started) == ["kernel", "kernel"], "hazards are reported")
    first.freeze()
    until(lambda: hazards(started) == ["stopped"], "it is reported")
    assert {started.get()[1] for _ in range(20)} == {"second"}
    lasts(lambda: hazards(started) == ["stopped"])
    first.thaw()
    until(lambda: hazards(started) == [], "the hazard is over")
    assert metric(started, f'hazards_total{{replica="{first.address}",kind="stopped"}}') == 1
    status = started.status()
    assert [one["signals_from"] for one in status["replicas"]] == [address, address]
    # A replica that starts again is found again.
    second.kill()
    until(lambda: hazards(started, 1) == ["gone"], "its end is reported")
    life = started.status()["replicas"][1]["incarnation"]
    lasts(lambda: hazards(started, 1) == ["gone"])
    second.start()
    until(lambda: hazards(started, 1) == [], "its start is reported")
    until(lambda: started.status()["replicas"][1]["incarnation"] == life + 1, "it is another life")


def test_without_its_publisher_a_guard_knows_nothing_until_there_is_one_again(
    publisher: Publisher,
    unwatched: StartGuard,
    pair: tuple[Replica, Replica],
    address: str,
    key: Path,
) -> None:
    options = ("--hazards-from", address, "--hazards-key", key)
    # Another machine's publisher would look at processes that are not visible here.
    started = unwatched(*options, under=NOBODY)
    pair[0].freeze()
    until(lambda: hazards(started) == ["stopped"], "it is reported")
    publisher.stop(signal.SIGKILL)
    until(lambda: hazards(started) == [], "what it has said no longer counts")
    assert "kernel" not in signals(started)
    with Publisher(address, key):
        until(lambda: hazards(started) == ["stopped"], "another one reports")
        until(lambda: signals(started) == ["kernel", "kernel"], "hazards are reported")
    pair[0].thaw()


def test_a_guard_with_another_key_says_that_it_gets_no_answer(
    publisher: Publisher, unwatched: StartGuard, address: str, folder: Path
) -> None:
    other = folder / "other.key"
    other.write_text("another key of the tests")
    other.chmod(0o644)
    command = ("--hazards-from", address, "--hazards-key", other)
    refused = Started(
        [installed.tailscope(), "guard", "--listen", "127.0.0.1:0", *replica_options(), *command]
    ).wait()
    assert refused.code == 2
    assert "chmod o=" in refused.err
    other.chmod(0o600)
    os.chown(other, 65534, 65534)
    started = unwatched(*command, under=NOBODY)
    assert f"no answer from {address}" in started.err
    assert "kernel" not in signals(started)
    assert "subscribes" not in publisher.err


def replica_options() -> tuple[str, ...]:
    return ("--replica", "127.0.0.1:1", "--replica", "127.0.0.1:2")


def test_strangers_get_no_hazards(
    publisher: Publisher, unwatched: StartGuard, address: str, key: Path
) -> None:
    options = ("--hazards-from", address, "--hazards-key", key)
    host, _, port = address.partition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tap:
        # A guard subscribes at a stranger's: as if its datagrams were read from the network.
        tap.bind(("127.0.0.1", 0))
        tap.settimeout(60)
        to_tap = ("--hazards-from", "{}:{}".format(*tap.getsockname()), "--hazards-key", key)
        started = unwatched(*to_tap, under=NOBODY)
        subscription = tap.recv(4096)
        assert subscription.startswith(SUBSCRIPTION)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.connect((host, int(port)))
        stranger.settimeout(60)
        for bytes_ in (b"", b"x", REPORT * 30, SUBSCRIPTION * 30, os.urandom(65000)):
            stranger.send(bytes_)
        for at in range(len(subscription)):
            changed = bytearray(subscription)
            changed[at] ^= 1
            stranger.send(changed)
        # Sent again from another address, it gets one short answer: a cookie, and no hazards.
        stranger.send(subscription)
        answer = stranger.recv(4096)
        assert answer.startswith(REPORT)
        assert len(answer) <= len(subscription)
        stranger.settimeout(0.5)
        with pytest.raises(TimeoutError):
            stranger.recv(4096)
        # And who answers a guard without the key is not believed.
    assert "kernel" not in signals(started)
    assert "subscribes" not in publisher.err
    known = unwatched(*options, under=NOBODY)
    until(lambda: signals(known) == ["kernel", "kernel"], "hazards are reported")


@dataclass
class AtAddress:
    """A replica by one of its names."""

    address: str


class Far:
    """A replica on another machine, and the publisher there."""

    def __init__(self, machine: Machine, replica: Replica, publisher: Publisher) -> None:
        self.machine, self.replica, self.publisher = machine, replica, publisher


@pytest.fixture
def far(recordable: None, folder: Path, key: Path) -> Iterator[list[Far]]:
    """Two machines with a replica each."""
    with machines(2) as made, ExitStack() as stack:
        all_ = []
        for number, machine in enumerate(made):
            replica = Replica(folder, ("first", "second")[number], machine)
            stack.callback(replica.end)
            address = f"{machine.address}:9747"
            publisher = stack.enter_context(Publisher(address, key, machine.under))
            all_.append(Far(machine, replica, publisher))
        yield all_


def test_hazards_of_other_machines_are_steered_around(far: list[Far], key: Path) -> None:
    first, second = (one.replica for one in far)
    sources = [word for one in far for word in ("--hazards-from", f"{one.machine.address}:9747")]
    options = (*sources, "--hazards-key", key, "--budget", "100%")
    with Guard((first, second), *options, under=WITHOUT_PROCESSES) as guard:
        until(lambda: signals(guard) == ["kernel", "kernel"], "hazards are reported")
        assert [one["pids"] for one in guard.status()["replicas"]] == [[], []]
        with ThreadPoolExecutor() as pool:
            slow = [pool.submit(guard.get, "/slow?ms=200") for _ in range(4)]
            until(lambda: all(guard.outstanding()), "both replicas have requests")
            first.freeze()
            # It stays stopped: a request that waits for it never ends.
            assert {answer.result() for answer in slow} == {(200, "second")}
        assert {guard.get()[1] for _ in range(20)} == {"second"}
        assert guard.status()["hedges"]["stopped"] > 0
        first.thaw()
        until(lambda: hazards(guard) == [], "the hazard is over")


def test_a_machine_that_can_not_be_reached_reports_again_afterwards(
    far: list[Far], key: Path
) -> None:
    first, second = far
    # Its publisher sees both replicas: in truth, both run on this machine.
    options = ("--hazards-from", f"{first.machine.address}:9747", "--hazards-key", key)
    replicas = (first.replica, second.replica)
    with Guard(replicas, *options, under=WITHOUT_PROCESSES) as guard:
        until(lambda: signals(guard) == ["kernel", "kernel"], "hazards are reported")
        first.machine.cut_off()
        until(lambda: signals(guard) == ["none", "none"], "nothing is known of them")
        first.replica.freeze()
        first.machine.reach_again()
        until(lambda: signals(guard) == ["kernel", "kernel"], "its reports come again")
        until(lambda: hazards(guard) == ["stopped"], "it is stopped")
        first.replica.thaw()
        until(lambda: hazards(guard) == [], "it goes on")


def test_one_publisher_sees_the_containers_of_its_machine(
    far: list[Far], key: Path, address: str
) -> None:
    replicas = [one.replica for one in far]
    options = ("--hazards-from", address, "--hazards-key", key)
    with Publisher(address, key), Guard(replicas, *options, under=NOBODY) as guard:
        until(lambda: signals(guard) == ["kernel", "kernel"], "hazards are reported")
        replicas[1].freeze()
        until(lambda: hazards(guard, 1) == ["stopped"], "it is reported")
        replicas[1].thaw()


def test_collections_on_other_machines_are_reported(
    recordable: None, folder: Path, key: Path
) -> None:
    with machines(1) as (there,), ExitStack() as stack:
        replica = JavaReplica(folder, "first", machine=there)
        stack.callback(replica.end)
        here = Replica(folder, "second")
        stack.callback(here.end)
        address = f"{there.address}:9747"
        stack.enter_context(Publisher(address, key, there.under))
        options = ("--hazards-from", address, "--hazards-key", key)
        guard = stack.enter_context(Guard((replica, here), *options, under=WITHOUT_PROCESSES))
        until(lambda: signals(guard) == ["jvm", "none"], "hazards are reported")
        replica.collect()
        name = f'hazards_total{{replica="{replica.address}",kind="collection"}}'
        until(lambda: metric(guard, name) > 0, "the collection was reported")


def test_a_replica_elsewhere_that_has_started_again_is_warmed_up(far: list[Far], key: Path) -> None:
    first, second = far
    sources = [word for one in far for word in ("--hazards-from", f"{one.machine.address}:9747")]
    options = (*sources, "--hazards-key", key, "--warm-up")
    replicas = (first.replica, second.replica)
    with Guard(replicas, *options, under=WITHOUT_PROCESSES) as guard:
        for _ in range(100):
            assert guard.get()[0] == 200
        first.replica.kill()
        until(lambda: hazards(guard) == ["gone"], "its end is reported")
        first.replica.start()
        until(lambda: hazards(guard) == [], "its start is reported")
        until(lambda: guard.count("warm_ups") > 0, "it gets copies")


def test_a_server_with_two_addresses_has_the_same_hazards_at_both(
    publisher: Publisher, unwatched: StartGuard, folder: Path, address: str, key: Path
) -> None:
    with machines(1) as (there,), ExitStack() as stack:
        replica = Replica(folder, "first", there)
        stack.callback(replica.end)
        replica.kill()
        replica.binds = "0.0.0.0"
        replica.start()
        options = ("--hazards-from", address, "--hazards-key", key)
        # One name is the machine's, the other one its second address.
        subprocess.run(
            [*there.under, "ip", "addr", "add", "198.18.255.254/32", "dev", "eth0"], check=True
        )
        names = [AtAddress(f"{host}:{replica.port}") for host in (there.address, "198.18.255.254")]
        both = stack.enter_context(Guard(names, *options, under=NOBODY))
        other = stack.enter_context(Guard(names[1:], *options, under=NOBODY))
        replica.freeze()
        for guard, number in ((both, 0), (both, 1), (other, 0)):
            until(lambda: hazards(guard, number) == ["stopped"], "it is reported")  # noqa: B023
        other.stop(signal.SIGKILL)
        until(lambda: "has left" in publisher.err, "its lease has ended")
        replica.thaw()
        for number in (0, 1):
            until(lambda: hazards(both, number) == [], "it goes on")  # noqa: B023
        replica.kill()
        for number in (0, 1):
            until(lambda: hazards(both, number) == ["gone"], "its end is reported")  # noqa: B023


def test_a_server_of_this_machine_is_not_taken_for_one_elsewhere(guard: StartGuard) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        elsewhere = f"203.0.113.77:{server.getsockname()[1]}"  # a net for documentation
        started = guard("--replica", elsewhere)
        assert signals(started) == ["kernel", "kernel", "none"]
