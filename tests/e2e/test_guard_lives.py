"""What `tailscope guard` does around the ends, starts and collections of replicas."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from rig.guard import Guard, JavaReplica, Replica, StartGuard, ask
from rig.guard_load import Load
from rig.processes import AS_NOBODY, NOBODY
from rig.waiting import until


def test_a_replica_that_has_started_again_is_warmed_up_before_it_gets_requests(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    started = guard("--warm-up")
    first = pair[0]
    with Load(started, may=(502,)) as load:
        first.kill()
        load.goes_on()
        first.start()
        until(lambda: started.count("warm_ups") > 0, "it gets copies")
        until(lambda: not started.status()["replicas"][0]["warms_up"], "it is warm")
        before = len(first.executed())
        until(lambda: len(first.executed()) > before + 20, "it gets requests")
        assert started.count("warm_ups") >= 8 * 48
        assert load.wrong() == []
    load.executed_once(pair)


#: Its eden fills with 300 requests, and is counted in all versions.
G1 = ("-XX:-UseSerialGC", "-XX:+UseG1GC", "-Xmx128m", "-Xmn24m")


def test_a_jvm_collects_while_it_has_no_requests(recordable: None, folder: Path) -> None:
    with ExitStack() as stack:
        pair = []
        for name in ("first", "second"):
            pair.append(JavaReplica(folder, name, flags=G1))
            stack.callback(pair[-1].end)
        started = stack.enter_context(Guard(pair, "--drain-gc", "--budget", "0"))

        def counted(what: str) -> int:
            return sum(one[what] for one in started.status()["replicas"])

        load = stack.enter_context(Load(started, posts=False, path="/garbage"))
        until(lambda: counted("collections_asked") >= 6, "they are asked to collect")
        assert load.wrong() == []
        # Under this load, a collection for which guard does nothing meets requests.
        met, all_of_them = counted("collections_met"), collections(started)
        assert all_of_them - met >= 3, (all_of_them, met)
        assert "can't ask" not in started.err


def collections(started: Guard) -> int:
    """How many began in all replicas."""
    direct = http.client.HTTPConnection("127.0.0.1", started.admin, timeout=60)
    lines = ask(direct, "GET", "/metrics")[1].splitlines()
    ours = [line for line in lines if "hazards_total{" in line and '"collection"' in line]
    return sum(int(line.split()[-1]) for line in ours)


def test_an_unprivileged_guard_drains_jvms_of_its_own_user(recordable: None, folder: Path) -> None:
    with ExitStack() as stack:
        pair = []
        for name in ("first", "second"):
            pair.append(JavaReplica(folder, name, flags=G1, **AS_NOBODY))
            stack.callback(pair[-1].end)
        started = stack.enter_context(Guard(pair, "--drain-gc", under=NOBODY))
        with Load(started, posts=False, path="/garbage"):
            until(
                lambda: sum(one["collections_asked"] for one in started.status()["replicas"]) >= 2,
                "they are asked to collect",
            )
        assert "can't ask" not in started.err, started.err


@pytest.fixture
def seconds() -> Iterator[int]:
    """How long the slow tests go on."""
    yield 60


@pytest.mark.more
def test_no_get_fails_and_no_post_is_executed_twice_while_a_replica_is_killed_each_second(
    guard: StartGuard, pair: tuple[Replica, Replica], seconds: int
) -> None:
    started = guard()
    end = time.monotonic() + seconds
    with Load(started, clients=6, may=(502,)) as load:
        at = 0
        while time.monotonic() < end:
            replica = pair[at % 2]
            replica.kill()
            load.goes_on()
            replica.start()
            until(lambda: not is_down(started), "both can be asked")
            at += 1
            time.sleep(max(0.0, end - seconds + at - time.monotonic()))
        assert load.wrong() == []
    load.executed_once(pair)
    assert at >= seconds / 3


def is_down(started: Guard) -> bool:
    return any(one["down"] or one["hazards"] for one in started.status()["replicas"])


@pytest.mark.more
def test_no_post_is_executed_twice_under_stops_kills_and_hand_overs(
    guard: StartGuard, pair: tuple[Replica, Replica], seconds: int
) -> None:
    started = guard("--budget", "100%", "--grace", "500ms")
    end = time.monotonic() + seconds
    with Load(started, clients=6, may=(502,)) as load:
        while time.monotonic() < end:
            for replica in pair:
                for strike in (replica.freeze, replica.thaw, replica.kill, replica.start):
                    strike()
                    load.goes_on()
                until(lambda guard=started: not is_down(guard), "both can be asked")
            following = guard("--budget", "100%", "--grace", "500ms", after=started)
            started.wait().clean()
            started = following
        assert load.wrong() == []
    load.executed_once(pair)
    connection = started.connect()
    assert ask(connection, "GET", "/")[0] == 200
