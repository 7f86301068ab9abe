"""`tailscope guard`: clients do not see that a replica pauses, and nothing is executed twice."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from proof.ports import answers, free_port
from rig import installed
from rig.guard import Guard, JavaReplica, Replica, ask
from rig.malformed import MALFORMED
from rig.processes import AS_NOBODY, NOBODY, Started
from rig.waiting import until

Start = Callable[..., Guard]

SLOW = "/slow?ms=400"


@pytest.fixture
def pair(folder: Path) -> Iterator[tuple[Replica, Replica]]:
    """Two replicas. Both are ended."""
    with ExitStack() as stack:
        made = []
        for name in ("first", "second"):
            made.append(Replica(folder, name))
            stack.callback(made[-1].end)
        yield made[0], made[1]


@pytest.fixture
def guard(recordable: None, pair: tuple[Replica, Replica]) -> Iterator[Start]:
    """Starts guards in front of the pair. All are ended."""
    with ExitStack() as stack:

        def start(*options: object, under: tuple[str, ...] = ()) -> Guard:
            return stack.enter_context(Guard(pair, *options, under=under))

        yield start


@pytest.fixture
def unwatched(pair: tuple[Replica, Replica]) -> Iterator[Start]:
    """The same, also where no kernel programs can be loaded."""
    with ExitStack() as stack:

        def start(*options: object, under: tuple[str, ...] = ()) -> Guard:
            return stack.enter_context(Guard(pair, *options, under=under))

        yield start


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
    guard: Start, pair: tuple[Replica, Replica]
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
    guard: Start, pair: tuple[Replica, Replica]
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
    guard: Start, pair: tuple[Replica, Replica]
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
    guard: Start, pair: tuple[Replica, Replica]
) -> None:
    started = guard("--budget", "100%")
    for replica in pair:
        replica.freeze()
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(started.get) for _ in range(4)]
        until(lambda: sum(started.outstanding()) == 4, "all are sent")
        pair[1].thaw()
        assert [answer.result() for answer in answers] == [(200, "second")] * 4


def test_one_deadline_holds_for_all_attempts(guard: Start, pair: tuple[Replica, Replica]) -> None:
    started = guard("--budget", "100%", "--timeout", "300ms")
    for replica in pair:
        replica.freeze()
    status, body = started.get()
    assert (status, "within 0.3 s" in body) == (504, True)
    assert ask(started.connect(), "POST", "/", "x")[0] == 504
    assert started.count("timed_out") == 2
    until(lambda: sum(started.outstanding()) == 0, "both are cancelled")


def test_a_slow_reader_holds_the_replica_back(guard: Start) -> None:
    started = guard()
    size = 64 << 20
    with socket.create_connection(("127.0.0.1", started.port), timeout=60) as client:
        client.sendall(f"GET /large?bytes={size} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert client.recv(12) == b"HTTP/1.1 200"
        before = int(Started.status(started, "VmRSS").split()[0])
        # Nobody reads: as much as fits comes to guard, and then no more.
        sent = [-1, -2]
        while sent[-1] != sent[-2]:
            time.sleep(0.05)
            sent.append(int(Started.status(started, "VmRSS").split()[0]))
        assert sent[-1] - before < 4096
        left = size
        file = client.makefile("rb")
        while file.readline() != b"\r\n":
            pass
        while left:
            left -= len(file.read(min(left, 1 << 20)))


def test_a_client_that_leaves_cancels_its_request(
    guard: Start, pair: tuple[Replica, Replica]
) -> None:
    started = guard("--budget", "0")
    pair[0].freeze()
    pair[1].freeze()
    client = started.connect()
    client.request("GET", "/")
    until(lambda: sum(started.outstanding()) == 1, "it is sent")
    client.close()
    until(lambda: sum(started.outstanding()) == 0, "it is cancelled")


def test_a_dry_run_counts_and_does_nothing(guard: Start, pair: tuple[Replica, Replica]) -> None:
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
    unwatched: Start, pair: tuple[Replica, Replica]
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


def test_no_get_fails_while_replicas_are_killed(
    guard: Start, pair: tuple[Replica, Replica]
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
    guard: Start, pair: tuple[Replica, Replica]
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


def test_requests_that_can_be_read_in_two_ways_are_refused_and_not_forwarded(
    guard: Start, pair: tuple[Replica, Replica]
) -> None:
    started = guard()
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    for request in MALFORMED:
        answer = started.raw(request + (smuggled if request else b""))
        is_2 = request.startswith(b"PRI * HTTP/2.0")  # then it is answered in frames
        assert is_2 or answer == b"" or answer.startswith(b"HTTP/1.1 4"), (request[:80], answer)
        assert answer.count(b"HTTP/1.1") <= 1, (request[:80], answer)
    assert [replica.executed() for replica in pair] == [[], []]
    assert started.count("requests") == 0
    assert len(MALFORMED) >= 60


@pytest.mark.parametrize(
    "body",
    [
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"-1\r\n\r\n",
        b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    ],
)
def test_a_malformed_body_is_never_executed(
    guard: Start, pair: tuple[Replica, Replica], body: bytes
) -> None:
    started = guard()
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = started.raw(head + body + b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 502")), answer
    assert started.get()[0] == 200
    executed = [line for replica in pair for line in replica.executed()]
    assert executed == ["GET /"]


def test_streams_upgrades_and_bodies_pass_through(
    guard: Start, pair: tuple[Replica, Replica]
) -> None:
    started = guard()
    # A stream: its first part arrives while the second has not been sent.
    streaming = started.connect()
    streaming.request("GET", "/stream")
    answer = streaming.getresponse()
    assert answer.read(5) == b"first"
    for replica in pair:
        direct = http.client.HTTPConnection("127.0.0.1", replica.port, timeout=60)
        assert ask(direct, "GET", "/go")[0] == 200
    assert answer.read() == b"second"
    # Another protocol, of which the first bytes come before it is granted.
    with socket.create_connection(("127.0.0.1", started.port), timeout=60) as client:
        head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
        client.sendall(head + b"abc\n")
        file = client.makefile("rb")
        lines = [line.rstrip() for line in iter(file.readline, b"\r\n")]
        assert lines[0].startswith(b"HTTP/1.1 101")
        assert file.readline() == b"cba\n"
        client.sendall(b"xyz\n")
        assert file.readline() == b"zyx\n"
        file.close()
    # A large body with a length, one in chunks, and one for which the client asks first.
    connection = started.connect()
    large = "x" * 3_000_000
    assert ask(connection, "POST", "/", large) == (200, large)
    connection.request("PUT", "/", iter([b"one", b"two"]), encode_chunked=True)
    assert connection.getresponse().read() == b"onetwo"
    request = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    with socket.create_connection(("127.0.0.1", started.port), timeout=60) as client:
        client.sendall(request)
        assert client.recv(100).startswith(b"HTTP/1.1 100")
        client.sendall(b"ok")
        assert client.makefile("rb").read(12) == b"HTTP/1.1 200"
    # Many requests at once on one connection, in their order.
    with socket.create_connection(("127.0.0.1", started.port), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 3)
        got = b""
        while got.count(b"HTTP/1.1 200") < 3:
            part = client.recv(65536)
            assert part, got
            got += part


@pytest.mark.measures
def test_an_answer_in_two_pieces_does_not_wait_for_a_delayed_acknowledgement(
    guard: Start, pair: tuple[Replica, Replica]
) -> None:
    started = guard()

    def seconds(connection: http.client.HTTPConnection) -> float:
        ask(connection, "GET", "/")
        begin = time.monotonic()
        for _ in range(60):
            assert ask(connection, "GET", "/nagle")[0] == 200
        return time.monotonic() - begin

    direct = seconds(http.client.HTTPConnection("127.0.0.1", pair[0].port, timeout=60))
    assert seconds(started.connect()) < direct / 2


def test_clients_may_speak_http2_and_so_may_replicas(
    guard: Start, pair: tuple[Replica, Replica]
) -> None:
    inner = guard()
    with Guard([inner], "--replica-protocol", "http2") as outer:  # the other guard is its replica
        for version in ("--http2-prior-knowledge", "--http1.1"):
            url = f"http://127.0.0.1:{outer.port}/"
            command = ["curl", "-sS", version, "-w", " %{http_version} %{http_code}", url]
            for more in ([], ["-d", "body"]):
                done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=60)
                body, number, code = done.stdout.split()
                assert body in (("body",) if more else ("first", "second")), done
                assert (number, code) == ("2" if "2" in version else "1.1", "200")
    assert sum(len(replica.executed()) for replica in pair) == 4


def test_a_replica_that_says_it_is_not_well_gets_no_requests(
    guard: Start, pair: tuple[Replica, Replica]
) -> None:
    started = guard("--health", "/mixed?now")  # the second always says 500 there
    until(lambda: started.status()["replicas"][1]["down"], "the check fails")
    assert {started.get()[1] for _ in range(20)} == {"first"}
    assert not started.status()["replicas"][0]["down"]


def test_a_file_has_the_settings(pair: tuple[Replica, Replica], folder: Path) -> None:
    port, config = free_port(), folder / "guard.toml"
    replicas = "".join(f"[[replica]]\naddress = '{one.address}'\n" for one in pair)
    config.write_text(f"listen = ['127.0.0.1:{port}']\nadmin = 'none'\n{replicas}")
    command = [installed.tailscope(), "guard", "--config", config]
    checked = subprocess.run([*command, "--check"], capture_output=True, text=True, timeout=60)
    assert (checked.returncode, checked.stdout) == (0, "the settings are valid\n")
    with Started(command) as started:
        until(lambda: answers(port) or not started.runs, "it serves")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        assert ask(connection, "GET", "/")[0] == 200
    config.write_text(f"listen = ['127.0.0.1:{port}']\nbudget = 'all'\n{replicas}")
    checked = subprocess.run([*command, "--check"], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 2
    assert "line 2" in checked.stderr and "'all' is not a percentage" in checked.stderr


def test_a_proxy_in_front_may_say_who_the_client_is(
    guard: Start, pair: tuple[Replica, Replica]
) -> None:
    started = guard("--proxy-protocol")
    request = b"GET /headers HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    header = b"PROXY TCP4 10.1.2.3 10.0.0.1 5000 80\r\n"
    with socket.create_connection(("127.0.0.1", started.port), timeout=60) as client:
        client.sendall(header + request)
        answer = client.makefile("rb").read()
    assert b"x-forwarded-for: 10.1.2.3\n" in answer.lower()
    # Who does not say it is closed, and who says it unasked is malformed.
    assert started.raw(request) == b""
    assert guard().raw(header + request).startswith(b"HTTP/1.1 400")
    assert sum(len(replica.executed()) for replica in pair) == 1


def test_clients_may_use_tls(guard: Start, folder: Path) -> None:
    chain, key = folder / "chain.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", str(key)]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(chain)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    started = guard("--tls-cert", chain, "--tls-key", key)
    for version, number in (("--http2", "2"), ("--http1.1", "1.1")):
        url = f"https://127.0.0.1:{started.port}/"
        command = ["curl", "-sS", "--cacert", str(chain), version, "-d", "body", url]
        command += ["-w", " %{http_version} %{http_code}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.stdout.split() == ["body", number, "200"], done
    # Without TLS there is no answer, and others are served all the same.
    assert b"HTTP" not in started.raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    files = ("--tls-cert", key, "--tls-key", chain)
    replica = ("--listen", "127.0.0.1:0", "--replica", "127.0.0.1:1", "--admin", "none")
    with Started([installed.tailscope(), "guard", *replica, *files]) as refused:
        ended = refused.wait()
        assert (ended.code, f"no certificate in {key}" in ended.err) == (2, True), ended


def test_a_head_has_the_length_and_no_body(guard: Start) -> None:
    connection = guard().connect()
    for _ in range(3):
        connection.request("HEAD", "/")
        answer = connection.getresponse()
        assert answer.getheader("Content-Length") in ("5", "6")
        assert answer.read() == b""


def test_headers_of_the_connection_are_not_forwarded(guard: Start) -> None:
    started = guard()
    connection = started.connect()
    connection.request(
        "GET", "/headers", headers={"Connection": "X-Own", "X-Own": "1", "X-All": "2"}
    )
    lines = connection.getresponse().read().decode().lower().splitlines()
    names = {line.partition(":")[0] for line in lines if line}
    assert names == {"host", "accept-encoding", "x-all", "x-forwarded-for"}
    assert "x-forwarded-for: 127.0.0.1" in lines


def test_requests_wait_in_guard_where_replicas_have_enough(
    guard: Start, pair: tuple[Replica, Replica]
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


def test_threads_that_serve_have_no_capabilities(guard: Start) -> None:
    started = guard("--threads", 2)
    assert started.get()[0] == 200
    held = {}
    for task in Path(f"/proc/{started.pid}/task").iterdir():
        lines = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines())
        held.setdefault(lines["Name"], set()).add(int(lines["CapPrm"], 16))
    assert held["guard"] == {0}
    assert held["hazards"] != {0}


def test_metrics_and_status_say_what_was_done(guard: Start, pair: tuple[Replica, Replica]) -> None:
    started = guard("--threads", 2)
    for _ in range(10):
        started.get()
    connection = http.client.HTTPConnection("127.0.0.1", started.admin, timeout=60)
    status, metrics = ask(connection, "GET", "/metrics")
    assert status == 200
    assert "tailscope_guard_requests_total 10" in metrics.splitlines()
    assert (
        f'tailscope_guard_hazard_active{{replica="{pair[0].address}",kind="stopped"}} 0' in metrics
    )
    ended = started.stop()
    assert ended.code == 0, ended


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


def hazards(*arguments: object, under: tuple[str, ...] = ()) -> Started:
    """`guard hazards` that has begun."""
    command = [*under, installed.tailscope(), "guard", "hazards", "--json", *arguments]
    started = Started(command)
    until(lambda: '"watch"' in started.out or not started.runs, "it watches")
    return started


def lines(started: Started) -> list[tuple[str, str]]:
    """Hazard and edge of each line."""
    told = [json.loads(line) for line in started.out.splitlines()]
    return [(line["hazard"], line["edge"]) for line in told if line["kind"] == "hazard"]


def test_the_hazards_of_a_jvm_are_shown_with_their_lengths(recordable: None, folder: Path) -> None:
    jvm = JavaReplica(folder, "jvm")
    with hazards("-p", jvm.process.pid) as started:
        jvm.collect()
        jvm.freeze()
        jvm.thaw()
        until(lambda: ("stopped", "end") in lines(started), "the stop is over")
        jvm.kill()
        assert started.wait().code == 0
        told = lines(started)
        # The JVM may collect at other times too.
        assert told.count(("collection", "begin")) == told.count(("collection", "end")) > 0
        stops = [line for line in told if line[0] in ("stopped", "gone")]
        assert stops == [("stopped", "begin"), ("stopped", "end"), ("gone", "begin")]
        ends = [json.loads(line) for line in started.out.splitlines() if '"end"' in line]
        assert all(end["lasted_ns"] > 0 for end in ends)
        scopes = {end["hazard"]: end["scope"] for end in ends}
        assert scopes["collection"] == scopes["stopped"] == "process"


@pytest.mark.parametrize("under", [(), NOBODY])
def test_stops_are_seen_with_and_without_privileges(
    recordable: None, folder: Path, under: tuple[str, ...]
) -> None:
    replica = Replica(folder, "one")
    try:
        with hazards("-p", replica.process.pid, under=under) as started:
            assert ("CAP_BPF" in started.err) == bool(under)
            replica.freeze()
            until(lambda: ("stopped", "begin") in lines(started), "the stop is seen")
            replica.thaw()
            until(lambda: ("stopped", "end") in lines(started), "its end is seen")
            replica.kill()
            assert started.wait().code == 0
            assert lines(started)[-1] == ("gone", "begin")
    finally:
        replica.end()


def test_without_probes_hotspots_counters_show_collections(recordable: None, folder: Path) -> None:
    jvm = JavaReplica(folder, "jvm", **AS_NOBODY)
    try:
        with hazards("-p", jvm.process.pid, under=NOBODY) as started:
            assert "CAP_BPF" in started.err
            until(lambda: "polled_hsperf" in started.out, "its counters are found", 5)
            jvm.collect()
            until(lambda: ("collection", "end") in lines(started), "a collection is seen")
    finally:
        jvm.end()


def test_a_quota_that_is_used_up_is_a_hazard(recordable: None) -> None:
    lab = installed.FAULTS
    command = [lab, "quota", "--quota-us", 20000, "--", "sh", "-c", "while :; do :; done"]
    with Started(command) as program:
        child = until(lambda: children(program.pid), "it has started the loop")[0]
        with hazards("-p", child) as started:
            until(lambda: ("throttled", "end") in lines(started), "it was throttled")
            ended = started.stop(signal.SIGINT)
            assert ended.code == 0


def children(pid: int) -> list[int]:
    """The children of a process's main thread."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
