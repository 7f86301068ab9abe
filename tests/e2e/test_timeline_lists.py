"""`tailscope timeline requests` and `events`: many windows as a list, one as lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rig import installed
from rig.timeline import Timeline, about, stories
from rig.waiting import until
from test_timeline import MEASURED, OTHER, told_of, with_a_neighbour

pytestmark = pytest.mark.skipif(
    not {MEASURED, OTHER} <= os.sched_getaffinity(0), reason="needs two CPUs"
)


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with several windows of a memcached behind a hog."""
    folder = tmp_path_factory.mktemp("windows")
    if os.geteuid() != 0:
        pytest.skip("only root may record")
    with with_a_neighbour() as server:
        options = ("--keep", "3s", "--memory", "64MB", "--slow", "2ms", "--per-minute", 60)
        with Timeline(folder / "of", "-p", server.pid, *options) as recorder:
            until(lambda: len(recorder.windows()) >= 2, "two slow requests have a window", 40)
            told_of(recorder, 10)
            recorder.stop().clean()
    yield folder / "of"


def timeline(*words: object) -> subprocess.CompletedProcess[str]:
    command = [installed.tailscope(), "timeline", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def lines(*words: object) -> list[dict[str, Any]]:
    """What it prints, a JSON object each."""
    done = timeline(*words)
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_slow_requests_of_all_windows_are_one_list(windows: Path) -> None:
    listed = lines("requests", windows, "--json", "-n", 1000)
    of_windows = {
        (one["begin_ns"], one["latency_ns"])
        for window in windows.glob("*.timeline")
        for one in stories(window, "-n", 1000)["stories"]
    }
    # Each request once, whichever windows hold it, the slowest first.
    found = [(one["begin_ns"], one["latency_ns"]) for one in listed]
    assert sorted(found) == sorted(of_windows) and len(found) >= 10
    latencies = [one["latency_ns"] for one in listed]
    assert latencies == sorted(latencies, reverse=True)
    # By its number it is the same in its window.
    last = listed[-1]
    (again,) = stories(Path(last["window"]), "-n", last["number"])["stories"][-1:]
    assert again["sentence"] == last["sentence"]
    assert abs(last["begin_unix_ns"] / 1e9 - os.stat(last["window"]).st_mtime) < 60


def test_the_list_is_filtered_and_sorted(windows: Path) -> None:
    everything = lines("requests", windows, "--json", "-n", 1000)
    assert len(everything) < 1000
    behind = lines("requests", windows, "--json", "-n", 1000, "--cause", "waiting_for_cpu")
    assert behind == [one for one in everything if one["causes"][0]["kind"] == "waiting_for_cpu"]
    assert behind
    named = lines("requests", windows, "--json", "--name", "behind tailscope-lab", "--sort", "time")
    assert all("behind tailscope-lab" in one["sentence"] for one in named)
    begins = [one["begin_ns"] for one in named]
    assert begins == sorted(begins) and begins
    (first,) = lines("requests", windows, "--json", "-n", 1)
    assert first == everything[0]
    text = timeline("requests", windows, "-n", 1).stdout
    assert text.startswith("1 slow requests of "), text
    sentence = first["sentence"].partition(": ")[2]
    assert " ".join(sentence.split()) in " ".join(text.split()), text


def test_events_are_lines_of_the_schema(windows: Path) -> None:
    window = max(windows.glob("*.timeline"))
    schema = json.loads(timeline("events", "--schema").stdout)
    known = {one["title"]: set(one["required"]) for one in schema["oneOf"]}
    events = lines("events", window)
    assert len(events) == sum(part["events"] for part in about(window)["parts"])
    assert all(set(event) == known[event["event"]] for event in events)
    at = [event["at_ns"] for event in events]
    assert at == sorted(at)
    assert {"switch", "waking", "receive", "send"} <= {one["event"] for one in events}


def test_events_are_cut_by_request_process_and_name(windows: Path) -> None:
    window = max(windows.glob("*.timeline"))
    story = stories(window, "-n", 1)["stories"][0]
    begin, end = story["begin_ns"], story["begin_ns"] + story["latency_ns"]
    within = lines("events", window, "--request", 1)
    assert within == lines("events", window, "--from", begin, "--to", end + 1)
    # From the packet or the question to what ended it.
    assert {one["event"] for one in within if one["at_ns"] == end} & {"taken", "transmit"}
    (server,) = about(window)["watched"]
    switches = lines("events", window, "-p", server, "--event", "switch,waking")
    assert {one["event"] for one in switches} == {"switch", "waking"}
    of = ({one.get("pid"), one.get("to_pid"), one.get("woken_pid")} for one in switches)
    threads = about(window)["threads"]
    by = [threads.get(str(one["tid"]), {}).get("process") for one in switches]
    assert all(server in (*pids, who) for pids, who in zip(of, by, strict=True))


def test_a_window_says_where_and_how_it_was_made(windows: Path) -> None:
    told = stories(max(windows.glob("*.timeline")), "-n", 1)
    assert told["host"] == os.uname().nodename and told["kernel"] == os.uname().release
    assert told["tailscope"] in subprocess.check_output(
        [str(installed.tailscope()), "--version"], text=True
    )
    assert told["arguments"][:2] == ["timeline", "-o"] and "--slow" in told["arguments"]


def test_what_is_wrong_with_windows_is_said(windows: Path, tmp_path: Path) -> None:
    window = max(windows.glob("*.timeline"))
    other = tmp_path / "other"
    other.write_text("no window")
    for words, why in [
        (["events", window, "--event", "switching"], "there is no event 'switching'"),
        (["events", window, "--request", 1000], "it has no number 1000"),
        (["events", window, "--from", 9, "--to", 9], "no time lies between"),
        (["events", other], "is not a window"),
        (["events"], "required"),
        (["requests", windows, "--cause", "lock"], "unknown variant"),
        (["requests", other], "is not a window"),
        (["requests", tmp_path / "none"], "can't read"),
    ]:
        done = timeline(*words)
        assert done.returncode == 2 and why in done.stderr, (words, done)
    # Of a folder, what is no window is left out.
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    (mixed / "a.timeline").write_text("no window")
    (mixed / "b.timeline").write_bytes(window.read_bytes())
    os.mkfifo(mixed / "c.timeline")
    done = timeline("requests", mixed)
    assert done.returncode == 0 and "left out" in done.stderr, done
    assert "requests of 1 windows" in done.stdout, done
    empty = tmp_path / "empty"
    empty.mkdir()
    done = timeline("requests", empty)
    assert done.returncode == 0 and "has no window" in done.stderr, done
