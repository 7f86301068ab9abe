"""`tailscope guard` in operation: settings, reloads, hand-overs, its end, and its status."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from proof.ports import answers, free_port
from rig import installed
from rig.guard import Guard, Replica, StartGuard, ask
from rig.guard_load import Load
from rig.processes import NOBODY, Started
from rig.waiting import until


def test_a_replica_that_says_it_is_not_well_gets_no_requests(
    guard: StartGuard, pair: tuple[Replica, Replica]
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


def connections(port: int, *states: str) -> int:
    """How many there are to this port of the loopback interface, in these states (proc(5))."""
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [row.split() for row in rows]
    return sum(row[2] == f"0100007F:{port:04X}" and row[3] in states for row in fields)


ESTABLISHED, CLOSE_WAIT = "01", "08"


def test_idle_connections_that_a_replica_has_closed_are_closed(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    started = guard()
    until(lambda: started.get()[1] == "first", "the first is asked")
    assert connections(pair[0].port, ESTABLISHED) > 0
    pair[0].kill()
    until(lambda: not connections(pair[0].port, ESTABLISHED, CLOSE_WAIT), "they are closed")
    assert started.get()[1] == "second"


def test_threads_that_serve_have_no_capabilities(guard: StartGuard) -> None:
    started = guard("--threads", 2)
    assert started.get()[0] == 200
    held = {}
    for task in Path(f"/proc/{started.pid}/task").iterdir():
        lines = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines())
        held.setdefault(lines["Name"], set()).add(int(lines["CapPrm"], 16))
    assert held["guard"] == {0}
    assert held["hazards"] != {0}


def test_another_user_sees_hazards_at_once_with_the_capabilities_of_the_unit(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    unit = (installed.ROOT / "packaging" / "tailscope-hazards.service").read_text()
    line = next(line for line in unit.splitlines() if line.startswith("AmbientCapabilities="))
    names = [name.removeprefix("CAP_").lower() for name in line.partition("=")[2].split()]
    wanted = ",".join(f"+{name}" for name in names)
    started = guard(under=(*NOBODY, "--inh-caps", wanted, "--ambient-caps", wanted))
    assert [one["signals"] for one in started.status()["replicas"]] == ["kernel", "kernel"]
    pair[0].freeze()
    until(lambda: started.status()["replicas"][0]["hazards"] == ["stopped"], "it is seen")
    assert {started.get()[1] for _ in range(10)} == {"second"}
    for task in Path(f"/proc/{started.pid}/task").iterdir():
        lines = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines())
        assert lines["Uid"].split()[0] == "65534"
        assert (int(lines["CapPrm"], 16) != 0) == (lines["Name"] == "hazards")


def test_metrics_and_status_say_what_was_done(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
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


def test_new_settings_hold_after_a_reload_and_wrong_ones_do_not(
    pair: tuple[Replica, Replica], folder: Path
) -> None:
    port, config, control = free_port(), folder / "guard.toml", folder / "control"

    def settings(*replicas: Replica, more: str = "") -> None:
        named = "".join(f"[[replica]]\naddress = '{one.address}'\n" for one in replicas)
        text = f"listen = ['127.0.0.1:{port}']\nadmin = 'none'\ncontrol = '{control}'\n{more}"
        config.write_text(text + named)

    def reload(says: str) -> None:
        before = started.err.count(says)
        os.kill(started.pid, signal.SIGHUP)
        until(lambda: started.err.count(says) > before or not started.runs, "it has read them")

    settings(pair[0])
    with Started([installed.tailscope(), "guard", "--config", config]) as started:
        until(lambda: "listening on" in started.err or not started.runs, "it serves")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        assert ask(connection, "GET", "/") == (200, "first")
        settings(pair[1], more="budget = '3%'\n")
        reload("the new settings hold")
        # The connection stays; its next request goes where the new settings say.
        assert ask(connection, "GET", "/") == (200, "second")
        assert status_at(control)["budget"] == 0.03
        assert [one["address"] for one in status_at(control)["replicas"]] == [pair[1].address]
        settings(pair[0], more="budget = 'all'\n")
        reload("the old settings stay")
        assert "line 4" in started.err and "'all' is not a percentage" in started.err
        assert ask(connection, "GET", "/") == (200, "second")
        settings(*pair)
        reload("the new settings hold")
        assert {ask(connection, "GET", "/")[1] for _ in range(10)} == {"first", "second"}
        assert started.stop().code == 0
    assert not control.exists()


def status_at(control: Path) -> dict[str, Any]:
    """The status of the guard with this control socket."""
    command = [installed.tailscope(), "guard", "status", "--json", str(control)]
    return json.loads(subprocess.check_output(command, timeout=60))


def reloads(started: Guard, count: int) -> None:
    for _ in range(count):
        before = started.err.count("the new settings hold")
        os.kill(started.pid, signal.SIGHUP)
        until(lambda b=before: started.err.count("the new settings hold") > b, "it has read them")


def test_reloads_under_load_fail_no_request(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    started = guard("--threads", 2)
    with Load(started) as load:
        reloads(started, 15)
        load.goes_on()
        assert load.wrong() == []
    load.executed_once(pair)


def hand_overs(guard: StartGuard, count: int, *options: object) -> tuple[Load, Guard]:
    started = guard(*options)
    with Load(started) as load:
        for _ in range(count):
            following = guard(*options, after=started)
            ended = started.wait()
            assert (ended.code, "another guard has taken over" in ended.err) == (0, True), ended
            started = following
            load.goes_on()
        assert load.wrong() == []
    return load, started


def test_hand_overs_under_load_fail_no_request(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    load, last = hand_overs(guard, 2, "--threads", 2, "--grace", "500ms")
    load.executed_once(pair)
    assert last.status()["pid"] == last.pid


@pytest.mark.more
def test_a_hundred_reloads_and_hand_overs_under_load_fail_no_request(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    started = guard("--threads", 2)
    with Load(started) as load:
        reloads(started, 100)
        assert load.wrong() == []
    load.executed_once(pair)
    started.stop().clean()
    for one in pair:
        one.log.write_text("")
    load, _ = hand_overs(guard, 100, "--threads", 2, "--grace", "500ms")
    load.executed_once(pair)


def test_a_hand_over_leaves_an_idle_connection_open_and_finishes_requests(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    first = guard()
    idle = first.connect()
    assert ask(idle, "GET", "/")[0] == 200
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(first.get, "/slow?ms=1500")
        until(lambda: sum(first.outstanding()) == 1, "it is sent")
        second = guard(after=first)

        def closes() -> bool:
            idle.request("GET", "/")
            answer = idle.getresponse()
            assert (answer.status, answer.read() != b"") == (200, True)
            return answer.getheader("Connection") == "close"

        # Its next request is answered by the one that leaves, with the wish to connect anew.
        until(closes, "it is asked to connect anew")
        assert slow.result()[0] == 200
    first.wait().clean()
    assert second.get()[0] == 200


def test_after_a_hand_over_nobody_listens_where_only_the_old_guard_did(guard: StartGuard) -> None:
    other = free_port()
    first = guard("--listen", f"127.0.0.1:{other}", "--grace", "200ms")
    assert answers(other)
    second = guard(after=first)
    first.wait().clean()
    until(lambda: not answers(other), "it is closed")
    assert second.get()[0] == 200


def test_at_the_end_open_requests_are_answered_and_new_clients_refused(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    started = guard()
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(started.get, "/slow?ms=1000")
        until(lambda: sum(started.outstanding()) == 1, "it is sent")
        os.kill(started.pid, signal.SIGTERM)
        until(lambda: not answers(started.port), "nobody listens")
        assert slow.result()[0] == 200
    started.wait().clean()


def test_the_end_does_not_wait_for_requests_longer_than_asked(
    guard: StartGuard, pair: tuple[Replica, Replica]
) -> None:
    started = guard("--grace", "200ms", "--budget", "0")
    for replica in pair:
        replica.freeze()
    client = started.connect()
    client.request("GET", "/")
    until(lambda: sum(started.outstanding()) == 1, "it is sent")
    started.stop().clean()
    with pytest.raises((OSError, http.client.HTTPException)):
        client.getresponse()


def test_the_control_socket_is_for_its_owner_and_says_what_hedges_did(
    guard: StartGuard, pair: tuple[Replica, Replica], folder: Path
) -> None:
    control = folder / "control"
    started = guard("--budget", "100%", "--control", control)
    assert control.stat().st_mode & 0o777 == 0o600
    pair[0].freeze()
    pair[1].freeze()
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(started.get)
        until(lambda: sum(started.outstanding()) == 1, "one has it")
        other = started.outstanding().index(0)
        pair[other].thaw()
        assert answer.result() == (200, pair[other].name)
    pair[1 - other].thaw()
    until(lambda: started.count("losers_followed") == 1, "the loser has answered")
    command = [installed.tailscope(), "guard", "status", control]
    text = subprocess.check_output(command, text=True, timeout=60)
    assert "1 of 1 requests within 10 s were hedged (100.00 %), at most 100 % may be" in text
    assert "saved: " in text
    hedge = next(line for line in text.splitlines() if line.startswith("stopped"))
    assert pair[other].address in hedge and hedge.endswith("the extra")
    refused = subprocess.run([*NOBODY, *command], capture_output=True, text=True, timeout=60)
    assert (refused.returncode, "no guard answers" in refused.stderr) == (3, True)
    # A second guard does not take the name of one that runs.
    replica = ("--listen", "127.0.0.1:0", "--replica", pair[0].address, "--admin", "none")
    with Started([installed.tailscope(), "guard", *replica, "--control", control]) as second:
        ended = second.wait()
        assert (ended.code, "another guard serves it" in ended.err) == (3, True), ended
