"""`tailscope guard`: clients do not see that a replica pauses, and nothing is executed twice."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from rig.guard import AtPort, Guard, JavaReplica, Replica, StartGuard, ask
from rig.processes import NOBODY
from rig.waiting import until

SLOW = "/slow?ms=400"


def both_have_one(guard: Guard, pool: ThreadPoolExecutor) -> list[Future[tuple[int, str]]]:
    """Slow requests, at least one at each replica."""
    for _ in range(20):
        answers = [pool.submit(guard.get, SLOW) for _ in range(4)]
        until(lambda: sum(guard.outstanding()) >= 4, "all are sent")
        if all(guard.outstanding()):
            return answers
        # The machine was busy: one of the replicas had waited for a CPU, and was passed by.
        assert {answer.result()[0] for answer in answers} == {200}
    raise AssertionError("never had both a request")


def is_well(guard: Guard) -> bool:
    """Whether guard sends requests to both."""
    return not any(one["hazards"] or one["down"] for one in guard.status()["replicas"])


def test_requests_that_a_stop_caught_are_answered_by_the_other_replica(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    first, second = pair
    started = guard("--budget", "100%")
    with ThreadPoolExecutor() as pool:
        answers = both_have_one(started, pool)
        first.freeze()
        # It stays stopped: whoever waits for it would wait for ever.
        assert {answer.result() for answer in answers} == {(200, "second")}
        assert [started.get()[1] for _ in range(20)] == ["second"] * 20
    status = started.status()
    assert status["counts"]["hedges_won"] > 0
    assert "stopped" in status["replicas"][0]["hazards"]
    assert status["counts"]["steered"] >= 20
    to = {hedge["to"] for hedge in status["latest_hedges"] if hedge["trigger"] == "stopped"}
    assert to <= {second.address}
    first.thaw()
    until(lambda: not started.status()["replicas"][0]["hazards"], "the hazard is over")
    until(lambda: "first" in {started.get()[1] for _ in range(2)}, "it is asked again")


def test_an_exhausted_budget_leaves_the_original_alone(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    started = guard("--budget", "0")
    with ThreadPoolExecutor() as pool:
        answers = both_have_one(started, pool)
        pair[0].freeze()
        until(lambda: started.count("hedges_over_budget") > 0, "the budget is asked")
        pair[0].thaw()
        assert {answer.result() for answer in answers} == {(200, "first"), (200, "second")}
    assert sum(started.status()["hedges"].values()) == 0


def test_a_fast_failure_does_not_beat_a_good_answer_that_is_on_its_way(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    first, second = pair
    started = guard("--budget", "100%")
    second.freeze()
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(started.get, "/mixed")
        until(lambda: started.outstanding() == [1, 0], "the first has it")
        second.thaw()
        until(lambda: not started.status()["replicas"][1]["hazards"], "the second goes on")
        first.freeze()
        until(lambda: second.executed() == ["GET /mixed"], "the second has it too")
        until(lambda: started.outstanding() == [1, 0], "and has answered with 500")
        first.thaw()
        assert answer.result() == (200, "first")


def test_where_all_replicas_are_stopped_requests_wait_for_the_first_that_goes_on(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    started = guard("--budget", "100%")
    for replica in pair:
        replica.freeze()
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(started.get) for _ in range(4)]
        until(lambda: sum(started.outstanding()) == 4, "all are sent")
        pair[1].thaw()
        assert [answer.result() for answer in answers] == [(200, "second")] * 4


def test_one_deadline_holds_for_all_attempts(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    started = guard("--budget", "100%", "--timeout", "300ms")
    for replica in pair:
        replica.freeze()
    status, body = started.get()
    assert (status, "within 0.3 s" in body) == (504, True)
    assert ask(started.connect(), "POST", "/", "x")[0] == 504
    assert started.count("timed_out") == 2
    until(lambda: sum(started.outstanding()) == 0, "both are cancelled")


def test_a_client_that_leaves_cancels_its_request(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    started = guard("--budget", "0")
    pair[0].freeze()
    pair[1].freeze()
    client = started.connect()
    client.request("GET", "/")
    until(lambda: sum(started.outstanding()) == 1, "it is sent")
    client.close()
    until(lambda: sum(started.outstanding()) == 0, "it is cancelled")


def test_a_dry_run_counts_and_does_nothing(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    started = guard("--dry-run", "--budget", "100%")
    with ThreadPoolExecutor() as pool:
        answers = both_have_one(started, pool)
        pair[0].freeze()
        until(lambda: started.count("hedges_dry") > 0, "it is counted")
        pair[0].thaw()
        assert {answer.result() for answer in answers} == {(200, "first"), (200, "second")}
    executed = sum(len(replica.executed()) for replica in pair)
    assert executed == started.count("requests")


def test_without_capabilities_slow_requests_are_hedged_at_a_percentile_and_guard_says_so(
    unwatched: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    started = unwatched("--budget", "100%", under=NOBODY)
    assert "CAP_BPF" in started.err
    assert "sent once more at p95" in started.err
    connection = started.connect()
    for _ in range(200):
        assert ask(connection, "GET", "/")[0] == 200
    pair[0].freeze()
    for _ in range(10):
        assert ask(connection, "GET", "/") == (200, "second")
    assert started.status()["hedges"]["percentile"] > 0


def test_a_pause_that_no_hazard_shows_is_seen_by_its_silence(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    first, _ = pair
    started = guard("--budget", "100%")
    connection = started.connect()
    for _ in range(200):
        assert ask(connection, "GET", "/")[0] == 200
    with ThreadPoolExecutor() as pool:
        direct = http.client.HTTPConnection("127.0.0.1", first.port, timeout=60)
        held = pool.submit(ask, direct, "GET", "/hold?ms=5000")
        until(lambda: not answers_soon(first), "it is held")
        while not held.done():
            got = [ask(connection, "GET", "/") for _ in range(20)]
            # All of them would have waited there.
            assert held.done() or got == [(200, "second")] * 20
            if started.status()["hedges"]["silent"] > 0:
                break
        assert not held.done()
        assert "stopped" not in started.status()["replicas"][0]["hazards"]
        first.kill()


def answers_soon(replica: Replica) -> bool:
    direct = http.client.HTTPConnection("127.0.0.1", replica.port, timeout=0.5)
    try:
        return ask(direct, "GET", "/")[0] == 200
    except TimeoutError:
        return False
    finally:
        direct.close()


def test_no_get_fails_while_replicas_are_killed(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    started = guard()
    over = threading.Event()

    def client() -> list[tuple[int, str]]:
        connection, wrong = started.connect(), []
        while not over.is_set():
            answer = ask(connection, "GET", "/slow?ms=5")
            if answer[0] != 200:
                wrong.append(answer)
        return wrong

    with ThreadPoolExecutor() as pool:
        clients = [pool.submit(client) for _ in range(6)]
        for _ in range(3):
            for replica in pair:
                before = started.count("requests")
                replica.kill()
                until(lambda before=before: started.count("requests") > before + 20, "load goes on")
                replica.start()
                until(lambda: is_well(started), "both can be asked")
        over.set()
        assert [wrong for answer in clients for wrong in answer.result()] == []


def test_no_post_is_executed_twice_and_no_answered_one_is_lost(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    started = guard("--budget", "100%")
    over = threading.Event()

    def client(number: int) -> tuple[set[str], set[str]]:
        """What was answered, and what was not."""
        connection, answered, failed = started.connect(), set(), set()
        for i in range(100_000):
            if over.is_set():
                break
            name = f"{number}-{i}"
            status, body = ask(connection, "POST", "/", name)
            assert (status, body) == (200, name) or status == 502
            (answered if status == 200 else failed).add(name)
        return answered, failed

    with ThreadPoolExecutor() as pool:
        clients = [pool.submit(client, number) for number in range(6)]
        for _ in range(2):
            for replica in pair:
                for strike in (replica.freeze, replica.thaw, replica.kill, replica.start):
                    before = started.count("requests")
                    strike()
                    until(lambda b=before: started.count("requests") > b + 20, "load goes on")
                until(lambda: is_well(started), "both can be asked")
        over.set()
        results = [answer.result() for answer in clients]
    executed = Counter(line for replica in pair for line in replica.executed())
    assert max(executed.values()) == 1
    answered = {f"POST {name}" for done, _ in results for name in done}
    assert len(answered) > 100
    assert answered <= set(executed)


#: The head of a request whose body does not come.
WITHOUT_BODY = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"


def head_of(client: socket.socket) -> bytes:
    """The head of an answer, in lower case."""
    got = b""
    while b"\r\n\r\n" not in got:
        part = client.recv(65536)
        assert part, got
        got += part
    return got.lower()


def test_an_answer_before_the_end_of_a_body_says_that_the_connection_closes(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    started = guard()
    for replica in pair:
        replica.kill()
    with socket.create_connection(("127.0.0.1", started.port), timeout=60) as client:
        client.sendall(WITHOUT_BODY)
        answer = head_of(client)
    assert answer.startswith(b"http/1.1 502") and b"connection: close\r\n" in answer, answer


def test_so_does_a_replicas_answer_before_the_end_of_a_body() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Guard([AtPort(server.getsockname()[1])]) as started,
        socket.create_connection(("127.0.0.1", started.port), timeout=60) as client,
    ):
        client.sendall(WITHOUT_BODY)
        replica = server.accept()[0]
        with replica:
            assert replica.recv(65536).startswith(b"POST / ")
            replica.sendall(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
            answer = head_of(client)
    assert answer.startswith(b"http/1.1 413") and b"connection: close\r\n" in answer, answer


def test_requests_wait_in_guard_where_replicas_have_enough(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    started = guard("--concurrency", 1, "--budget", "0")
    with ThreadPoolExecutor(max_workers=6) as pool:
        answers = [pool.submit(started.get, "/slow?ms=100") for _ in range(6)]
        seen = []
        while not all(answer.done() for answer in answers):
            seen.append(max(started.outstanding()))
            time.sleep(0.005)
        assert {answer.result()[0] for answer in answers} == {200}
    assert max(seen) == 1


def test_requests_that_a_collection_caught_are_answered_by_the_other_jvm(
    recordable: None, folder: Path
) -> None:
    over = threading.Event()
    with ExitStack() as stack:
        pair = []
        for name in ("first", "second"):
            pair.append(JavaReplica(folder, name))
            stack.callback(pair[-1].end)
        started = stack.enter_context(Guard(pair, "--budget", "100%"))

        def client() -> set[tuple[int, str]]:
            connection, seen = started.connect(), set()
            while not over.is_set():
                seen.add(ask(connection, "GET", "/"))
            return seen

        def hedged() -> bool:
            for replica in pair:
                replica.collect()
            return started.status()["hedges"]["collection"] > 0

        pool = stack.enter_context(ThreadPoolExecutor())
        stack.callback(over.set)
        clients = [pool.submit(client) for _ in range(4)]
        until(hedged, "a collection catches a request")
        over.set()
        answers = {answer for seen in clients for answer in seen.result()}
        assert answers == {(200, "first"), (200, "second")}
        status = started.status()
        assert [replica["signals"] for replica in status["replicas"]] == ["jvm", "jvm"]
        assert status["counts"]["hedges_won"] > 0
