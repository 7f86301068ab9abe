"""`tailscope timeline`: the story of a slow request names what was planted."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Begin
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
from proof.ports import free_port
from rig import bpf, installed
from rig.java import java
from rig.processes import AS_NOBODY, NOBODY, Started, undisturbed
from rig.servers import Server, fault, kvserver, load, memcached
from rig.timeline import (
    Story,
    Timeline,
    drawn,
    leading,
    ran,
    share_of,
    share_of_others,
    stories,
    ticks,
)
from rig.waiting import until

MEASURED, OTHER = 1, 0

pytestmark = pytest.mark.skipif(
    not {MEASURED, OTHER} <= os.sched_getaffinity(0), reason="needs two CPUs"
)


def watch(timeline: Begin, server: Server, *options: object) -> Timeline:
    return timeline("-p", server.pid, "--keep", "3s", "--memory", "64MB", *options)


def told_of(recorder: Timeline, slow: int, *options: object) -> dict[str, Any]:
    """Asks for windows until one has so many slow requests, and tells of it."""

    def ask() -> dict[str, Any] | None:
        recorder.ask()
        told = stories(recorder.windows()[-1], *options)
        return told if told["slow"] >= slow else None

    return until(ask, f"a window has {slow} slow requests", 60)


@contextmanager
def with_a_neighbour() -> Iterator[Server]:
    """memcached under load, with a hog that takes its CPU for 6 ms at a time."""
    if not undisturbed():
        pytest.skip("real-time priorities are not allowed here")
    hog = ("hog", "--cpu", MEASURED, "--duty", "30%", "--period", "20ms")
    with (
        memcached(MEASURED, under=["chrt", "--fifo", 10]) as server,
        fault(*hog, under=undisturbed()),
        # The client's own waits behind others are no part of it.
        load(server, "--rate", 1000, "-d", "20s", "--cpu", OTHER, under=undisturbed()),
    ):
        yield server


def check_blamed(window: Path, told: dict[str, Any]) -> None:
    """Stories of requests that the hog held up name it first."""
    # A virtual CPU that stands still makes slow requests too: those are not the neighbour's.
    taken = ran(window, MEASURED, "tailscope-lab")
    struck = [story for story in told["stories"] if share_of(taken, story) > 0.6]
    assert len(struck) >= 20, (len(struck), leading(told))
    firsts = leading({"stories": struck})
    behind = f"waiting for CPU {MEASURED} behind tailscope-lab (real-time)"
    assert firsts["waiting_for_cpu", behind] >= 0.9 * len(struck), firsts
    # Ticks met the hog where it burns, or in the clock that it reads; few as it went to sleep.
    met = ticks(window, struck)
    assert met is None or met["tailscope_lab::hog::burn"] > max(0, met.total() / 2 - met["[vdso]"])


@pytest.mark.measures
def test_a_neighbour_on_memcacheds_cpu_leads_the_stories_and_perfetto_can_draw_it(
    timeline: Begin, nothing_left: None
) -> None:
    with with_a_neighbour() as server:
        recorder = watch(timeline, server, "--slow", "2ms", "--perfetto")
        until(lambda: "slow-0001.timeline" in recorder.err, "a slow request was seen", 40)
        told = told_of(recorder, 40, "-n", 50)
        recorder.stop().clean()
    windows = recorder.windows()
    assert windows[0].stem == "slow-0001"
    check_blamed(windows[-1], told)
    assert sum(story["from_packet"] for story in told["stories"]) >= 0.9 * len(told["stories"])
    # A picture of it: CPUs' lanes, and a lane for each slow request with a sentence on it.
    packets = drawn(windows[0])
    bundles = [packet.ftrace_events for packet in packets if packet.HasField("ftrace_events")]
    assert {bundle.cpu for bundle in bundles} >= {MEASURED, OTHER}
    assert any(event.HasField("sched_switch") for bundle in bundles for event in bundle.event)
    events = [packet.track_event for packet in packets if packet.HasField("track_event")]
    assert any("behind tailscope-lab" in event.name for event in events)
    tracks = {packet.track_descriptor.uuid for packet in packets}
    assert {event.track_uuid for event in events} <= tracks
    kinds = Counter((event.track_uuid, event.type) for event in events)
    for track, kind in kinds:
        if kind == TrackEvent.TYPE_SLICE_BEGIN:
            assert kinds[track, kind] == kinds[track, TrackEvent.TYPE_SLICE_END], track
    arrows = Counter(flow for event in events for flow in event.flow_ids)
    assert arrows
    assert min(arrows.values()) >= 3, "arrows from the packet to the device"


def test_an_answer_in_two_writes_waits_for_the_clients_acknowledgement(timeline: Begin) -> None:
    with (
        kvserver("--bare", "--split", under=undisturbed()) as server,
        load(server, "--rate", 100, "-d", "60s", "--keys", 10, under=undisturbed()),
    ):
        recorder = watch(timeline, server, "--slow", "20ms")
        told = told_of(recorder, 20, "-n", 50)
        recorder.stop().clean()
    firsts = leading(told)
    nagle = ("held_by_tcp", "kept back by TCP (Nagle) until the client acknowledged")
    assert firsts[nagle] >= 0.9 * len(told["stories"]), firsts


def test_memory_that_is_touched_first_is_a_story_of_page_faults(timeline: Begin) -> None:
    with (
        kvserver("--bare", "--fresh-every", 20, under=undisturbed()) as server,
        load(server, "--rate", 200, "-c", 1, "-d", "90s", "--keys", 10, under=undisturbed()),
    ):
        recorder = watch(timeline, server, "--slow", "1ms")
        # By their begin: windows that follow each other closely hold some requests twice.
        struck: dict[int, Story] = {}

        def enough() -> bool:
            recorder.ask()
            told = stories(recorder.windows()[-1], "-n", 100)
            # What else the machine has to do, for either side, is not the test's.
            alone = (story for story in told["stories"] if share_of_others(story) < 0.25)
            struck.update((story["begin_ns"], story) for story in alone)
            return len(struck) >= 40

        until(enough, "forty requests were slow by themselves", 80)
        recorder.stop().clean()
    # A virtual CPU that stands still costs a millisecond; to touch the memory takes several.
    found = sorted(struck.values(), key=lambda story: -story["latency_ns"])[:20]
    firsts = leading({"stories": found})
    assert firsts["page_fault", "page faults"] >= 0.9 * len(found), firsts


def collecting_share(story: Story, told: dict[str, Any]) -> float:
    """Which share of a request's time its JVM was collecting, by the JVM's own probes."""
    collections = [pause for pause in told["pauses"] if pause["collection"]]
    return share_of([(pause["from_ns"], pause["to_ns"]) for pause in collections], story)


def test_a_collection_of_the_jvm_is_named_for_its_collector(timeline: Begin) -> None:
    port = free_port()
    page = f"http://127.0.0.1:{port}/"
    with (
        Server(port, *java("Collecting", port)) as server,
        Started([installed.FAULTS, "load", "--http", page, "--rate", 200, "-c", 4, "-d", "90s"]),
    ):
        recorder = watch(timeline, server, "--slow", "3ms")

        def struck() -> tuple[dict[str, Any], list[Story]] | None:
            recorder.ask()
            told = stories(recorder.windows()[-1], "-n", 100)
            # What else the machine has to do makes requests slow too: those are not the test's.
            found = [s for s in told["stories"] if collecting_share(s, told) > 0.7]
            return (told, found) if len(found) >= 8 else None

        told, found = until(struck, "eight requests were slow while the JVM collected", 60)
        recorder.stop().clean()
    # The JVM's serial collector of the young generation calls itself so.
    collections = [pause for pause in told["pauses"] if pause["collection"]]
    assert {pause["process"] for pause in collections} == {server.pid}
    assert "stop-the-world collection Copy" in {pause["name"] for pause in collections}
    firsts = leading({"stories": found})
    named = sum(n for (kind, name), n in firsts.items() if kind == "jvm_pause" and "coll" in name)
    assert named >= 0.75 * len(found), firsts


def test_a_jvm_in_a_container_is_told_of_as_any_other(timeline: Begin, folder: Path) -> None:
    """It has its own processes' numbers, and its library lies where nobody else sees one."""
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("namespaces can't be made here")
    inside = folder / "inside"
    inside.mkdir()
    port = free_port()
    command = java("Collecting", port)
    home = Path(command[0]).parents[1]
    command[0] = str(inside / "bin" / "java")
    mounts = ["sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"', home, inside]
    page = f"http://127.0.0.1:{port}/"
    with (
        Server(port, *apart, *mounts, *command) as server,
        Started([installed.FAULTS, "load", "--http", page, "--rate", 200, "-c", 4, "-d", "90s"]),
    ):
        assert not list(inside.iterdir())
        recorder = watch(timeline, server)

        def struck() -> dict[str, Any] | None:
            recorder.ask()
            told = stories(recorder.windows()[-1], "-n", 20)
            return told if told["stories"] and len(told["pauses"]) >= 2 else None

        told = until(struck, "the JVM collected", 60)
        recorder.stop().clean()
        [jvm] = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        server.stop(signal.SIGKILL)  # unshare ignores SIGTERM
    assert {pause["process"] for pause in told["pauses"]} == {int(jvm)}
    assert any("stop-the-world collection" in pause["name"] for pause in told["pauses"])
    assert all(story["thread"].startswith("java") for story in told["stories"])


def test_classes_that_are_loaded_within_a_request_are_its_story(timeline: Begin) -> None:
    port = free_port()
    page = f"http://127.0.0.1:{port}/"
    with (
        Server(port, *java("Loading", port)) as server,
        Started([installed.FAULTS, "load", "--http", page, "--rate", 200, "-c", 1, "-d", "90s"]),
    ):
        recorder = watch(timeline, server, "--slow", "1ms")

        def struck() -> list[Story] | None:
            recorder.ask()
            told = stories(recorder.windows()[-1], "-n", 100)
            # What else the machine and the JVM have to do is not the test's.
            loads = [
                s for s in told["stories"] if any(jvm["classes_loaded"] >= 400 for jvm in s["jvms"])
            ]
            found = [s for s in loads if share_of_others(s) < 0.25]
            return found if len(found) >= 8 else None

        found = until(struck, "eight requests had classes loaded in them", 60)
        recorder.stop().clean()
    firsts = leading({"stories": found})
    assert firsts["class_loading", "loading or initialising classes"] >= 0.75 * len(found), firsts


def test_a_window_says_what_its_memory_had_no_room_for(timeline: Begin) -> None:
    with (
        memcached(MEASURED) as server,
        load(server, "--closed-loop", "-d", "60s", "--cpu", OTHER),
    ):
        recorder = timeline("-p", server.pid, "--keep", "60s", "--memory", "2MB")

        def short() -> dict[str, Any] | None:
            recorder.ask()
            told = stories(recorder.windows()[-1])
            return told if told["losses"] else None

        told = until(short, "more came than the memory holds", 40)
        recorder.stop().clean()
    assert any("the ring buffers are complete only from" in loss for loss in told["losses"]), told
    assert told["requests"] > 0
    assert told["whole_from_ns"] < told["to_ns"]


def test_a_flight_recorder_that_is_killed_leaves_nothing_in_the_kernel(
    timeline: Begin, nothing_left: None
) -> None:
    with memcached(MEASURED) as server:
        recorder = watch(timeline, server)
        assert len(set(bpf.held_by(recorder.pid))) > 20
        os.kill(recorder.pid, 9)
        assert recorder.wait().code == -9


def test_a_command_is_watched_from_its_begin_and_its_end_ends_it(timeline: Begin) -> None:
    port = "import socket; s = socket.create_server(('127.0.0.1', 0))\n"
    talk = (
        port + "c = socket.create_connection(s.getsockname()); a, _ = s.accept()\n"
        "for _ in range(20): c.send(b'ask'); a.recv(9); a.send(b'answer'); c.recv(9)\n"
    )
    recorder = timeline("--keep", "5s", "--memory", "16MB", "--", "python3", "-c", talk)
    ended = recorder.wait().clean()
    assert "every process has ended" in ended.err
    told = stories(recorder.windows()[0], "--slower", "1us", "-n", 100)
    # Both ends are watched, and one of them is a client: what comes in there is no request.
    assert told["requests"] == 20
    assert "python3" in {story["thread"] for story in told["stories"]}


#: A server that asks another one, which sleeps, and a client: three processes, two of which serve.
ASKING = """
import os, socket, time
def served(answer):
    s = socket.create_server(('127.0.0.1', 0))
    if os.fork() == 0:
        a, _ = s.accept()
        while a.recv(9): a.send(answer())
        os._exit(0)
    return socket.create_connection(s.getsockname())
def slow():
    time.sleep(0.02)
    return b'slow'
back = served(slow)
def asks():
    back.send(b'ask')
    return back.recv(9)
front = served(asks)
for _ in range(150): front.send(b'get'); front.recv(9)
front.close()
"""


def test_what_a_server_waited_for_another_for_is_told_where_it_happened(timeline: Begin) -> None:
    recorder = timeline("--keep", "30s", "--memory", "16MB", "--", "python3", "-c", ASKING)
    recorder.wait().clean()
    told = stories(recorder.windows()[0], "--slower", "15ms", "-n", 1000)
    # What comes in to a client is an answer: only what the two servers were asked counts.
    assert 200 <= told["slow"] <= 300, told["slow"]
    sleeps = "blocked in clock_nanosleep"
    firsts = leading(told)
    there = sum(n for (_, name), n in firsts.items() if name.startswith(sleeps))
    asked = sum(n for (_, name), n in firsts.items() if name.startswith(f"python3: {sleeps}"))
    assert min(there, asked) >= 100, firsts
    # The client is on this machine: a request ends when it received its answer.
    assert all(story["to_client"] for story in told["stories"][:200])


def test_a_slow_call_of_a_function_has_its_window_and_its_story(timeline: Begin) -> None:
    maps = Path("/proc/self/maps").read_text().split()
    (libc,) = {word for word in maps if word.endswith("/libc.so.6")}
    source = f"sleep=uprobe:{libc}:clock_nanosleep"
    sleeps = "import time\nfor _ in range(100): time.sleep(0.02)"
    options = ("--span", source, "--slow", "15ms", "--keep", "5s", "--memory", "16MB")
    recorder = timeline(*options, "--", "python3", "-c", sleeps)
    recorder.wait().clean()
    window = recorder.windows()[0]
    assert window.stem == "slow-0001"
    told = stories(window)
    assert told["slow"] >= 1
    assert {story["span"] for story in told["stories"]} == {"sleep"}
    firsts = {story["causes"][0]["name"] for story in told["stories"]}
    assert all(name.startswith("blocked in clock_nanosleep") for name in firsts), firsts


def test_the_window_can_be_asked_for_at_a_socket(timeline: Begin, folder: Path) -> None:
    control = folder / "control"
    dump = [installed.tailscope(), "timeline", "dump", control]
    with (
        memcached(MEASURED) as server,
        load(server, "--rate", 500, "-d", "60s", "--cpu", OTHER),
    ):
        recorder = watch(timeline, server, "--control", control)
        assert control.stat().st_mode & 0o777 == 0o600
        with Started(dump) as asking:
            asked = asking.wait().clean()
        window = Path(asked.out.strip())
        assert window in recorder.windows() and window.stem.startswith("asked-")
        assert stories(window, "--slower", "1us")["requests"] > 0
        recorder.stop().clean()
    assert not control.exists()
    with Started(dump) as asking:
        refused = asking.wait()
    assert refused.code == 3 and f"can't get a window from the recorder at {control}" in refused.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["timeline"], 2, ["nothing to watch", "-p PID"]),
        (["timeline", "-p", "4194304"], 2, ["no process 4194304"]),
        (["timeline", "-p", "1", "--slow", "p0"], 2, ["not a percentile"]),
        (["timeline", "--", "no-such-program"], 2, ["can't start 'no-such-program'"]),
        (["timeline", "-p", "1", "--span", "uprobe:/bin/true:work"], 2, ["--span", "work"]),
        (["timeline", "story", "/etc/passwd"], 2, ["not a window of tailscope timeline"]),
        (["timeline", "story", "/nowhere"], 2, ["can't read /nowhere"]),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], code: int, words: list[str]) -> None:
    with Started([installed.tailscope(), *arguments]) as started:
        ended = started.wait()
    assert ended.code == code, ended
    assert all(word in ended.err for word in words), ended.err
    assert "panicked" not in ended.err


def test_without_the_privilege_it_says_how_to_get_it(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody who may not")
    folder.chmod(0o777)
    mine = subprocess.Popen(["sleep", "60"], **AS_NOBODY)
    try:
        command = [*NOBODY, installed.tailscope(), "timeline", "-p", mine.pid, "-o", folder / "w"]
        with Started(command) as started:
            ended = started.wait()
    finally:
        mine.kill()
        mine.wait()
    assert ended.code == 3, ended
    assert "setcap" in ended.err and "CAP_BPF" in ended.err
