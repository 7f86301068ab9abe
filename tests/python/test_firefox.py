"""The file for the Firefox Profiler, against what its sources ask for (`src/types/profile.ts`)."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from tailscope.engines.measure import Worst
from tailscope.ledger.stacks import Frame, Stack
from tailscope.present import firefox
from tailscope.present.thread_samples import Thread
from timelines import CASES, Case, Sample, case

#: Columns of tables, each with the table whose places its values are; `-` for none.
SHARED = {
    "stackTable": {"frame": "frameTable", "prefixOffset": "-"},
    "frameTable": {
        **dict.fromkeys(("address", "inlineDepth", "innerWindowID", "line", "column"), "-"),
        **dict.fromkeys(("nativeSymbol", "originalLocation", "subcategory"), "-"),
        **{"lib": "libs", "category": "categories", "func": "funcTable"},
    },
    "funcTable": {
        **dict.fromkeys(("isJS", "relevantForJS", "lineNumber", "columnNumber"), "-"),
        **{"name": "stringArray", "resource": "resourceTable"},
        **dict.fromkeys(("source", "originalLocation"), "-"),
    },
    "resourceTable": {"name": "stringArray", "host": "-", "type": "-"},
    "nativeSymbols": dict.fromkeys(("libIndex", "address", "name", "functionSize"), "-"),
    "sources": dict.fromkeys(
        ("id", "filename", "startLine", "startColumn", "sourceMapURL", "content"), "-"
    ),
    "sourceLocationTable": dict.fromkeys(("source", "line", "column"), "-"),
}
#: `CategoryColor`.
COLORS = {
    *("transparent", "purple", "green", "orange", "yellow", "lightblue", "blue", "brown"),
    *("magenta", "red", "lightred", "darkgrey", "grey"),
}


def check(profile: dict[str, Any]) -> None:
    """The tables are whole, and each place that a column names is there."""
    shared, meta = profile["shared"], profile["meta"]
    assert shared.keys() == {*SHARED, "stringArray"}
    sizes = {name: shared[name]["length"] for name in SHARED}
    sizes |= {"stringArray": len(shared["stringArray"]), "libs": len(profile["libs"])}
    sizes["categories"] = len(meta["categories"])
    for name, columns in SHARED.items():
        table = shared[name]
        assert table.keys() == {"length", *columns}
        for column, target in columns.items():
            assert len(table[column]) == table["length"], (name, column)
            places = [place for place in table[column] if place is not None]
            if target != "-":
                least = 0 if target in ("frameTable", "funcTable", "stringArray") else -1
                assert all(least <= place < sizes[target] for place in places), (name, column)
    stacks = shared["stackTable"]
    assert all(0 <= offset <= place for place, offset in enumerate(stacks["prefixOffset"]))
    places = [place - offset for place, offset in enumerate(stacks["prefixOffset"])]
    roots = [offset == 0 for offset in stacks["prefixOffset"]]
    assert_unique(zip(stacks["frame"], places, strict=True), roots)
    assert len(set(shared["stringArray"])) == len(shared["stringArray"])
    frames = shared["frameTable"]
    for category, inner in zip(frames["category"], frames["subcategory"], strict=True):
        assert (category is None) == (inner is None)
    assert_unique(zip(frames["func"], frames["address"], frames["lib"], strict=True))
    assert_unique(zip(shared["funcTable"]["name"], shared["funcTable"]["resource"], strict=True))
    assert meta["categories"][0]["color"] == "grey"
    assert all(one["color"] in COLORS for one in meta["categories"])
    schema = {field["key"] for field in meta["markerSchema"][0]["fields"]}
    for thread in profile["threads"]:
        for table in (thread["samples"], thread["markers"]):
            columns = [value for value in table.values() if isinstance(value, list)]
            assert {len(column) for column in columns} == {table["length"]}
        samples, markers = thread["samples"], thread["markers"]
        assert all(a <= b for a, b in pairwise(samples["time"]))
        assert all(0 <= place < sizes["stackTable"] for place in samples["stack"])
        assert all(0 <= place < sizes["stringArray"] for place in markers["name"])
        assert all(0 <= place < sizes["categories"] for place in markers["category"])
        assert all(one.keys() <= {"type", *schema} for one in markers["data"])


def assert_unique(rows: Any, roots: list[bool] | None = None) -> None:  # noqa: ANN401
    """No row is there twice. Of roots, the second value is their own place and does not count."""
    listed = list(rows)
    if roots:
        listed = [(a, None if root else b) for (a, b), root in zip(listed, roots, strict=True)]
    assert len(set(listed)) == len(listed)


def chain(profile: dict[str, Any], place: int) -> tuple[list[str], str]:
    """The names on a stack, the outermost first, and its category, as the Profiler finds it."""
    shared, names, category = profile["shared"], [], None
    while True:
        frame = shared["stackTable"]["frame"][place]
        own = shared["frameTable"]["category"][frame]
        category = own if category is None else category
        function = shared["frameTable"]["func"][frame]
        names.append(shared["stringArray"][shared["funcTable"]["name"][function]])
        offset = shared["stackTable"]["prefixOffset"][place]
        if offset == 0:
            return names[::-1], profile["meta"]["categories"][category or 0]["name"]
        place -= offset


def thread_of(table: dict[str, Any]) -> Thread:
    """Whose samples these are; the host is named where there are several."""
    pid, _, host = table["pid"].partition(" on ")
    return Thread(host, int(pid), table["tid"])


@given(CASES)
def test_any_samples_give_whole_tables_and_are_read_back(made: Case) -> None:
    profile = json.loads(json.dumps(firefox.profile(made.shown)))
    check(profile)
    start_ns = profile["meta"]["startTime"] * 1_000_000
    alone = len(made.shown.hosts) == 1
    found: Counter[Any] = Counter()
    walls: Counter[Any] = Counter()
    for table in profile["threads"]:
        thread = thread_of(table)
        thread = thread._replace(host=made.shown.hosts[0]) if alone else thread
        samples, markers = table["samples"], table["markers"]
        for at, ns, place in zip(samples["time"], samples["weight"], samples["stack"], strict=True):
            (cause, *names), category = chain(profile, place)
            assert category == cause
            found[thread, start_ns + round(at * 1e6), round(ns * 1e6), cause, tuple(names)] += 1
        for start, end in zip(markers["startTime"], markers["endTime"], strict=True):
            walls[thread, start_ns + round(start * 1e6), round((end - start) * 1e6)] += 1
    assert found == made.expected()
    assert walls == made.walls()


def test_a_marker_says_what_a_request_waited_for() -> None:
    request = Worst(
        start_ns=5_000_000,
        wall_ns=4_000_000,
        identity={"id": 7, "pid": 1, "tid": 1},
        causes={"lock": 3_000_000, "running": 1_000_000, "io": 0},
        culprits={"lock": "writer"},
    )
    profile = firefox.profile(case([], [(0, request)], {}).shown)
    check(profile)
    markers = profile["threads"][0]["markers"]
    assert markers["data"] == [
        {
            **{"type": "request", "most": "lock", "lock": 3.0, "running": 1.0},
            **{"lock_by": "writer", "id": "7"},
        }
    ]
    assert profile["meta"]["categories"][markers["category"][0]]["name"] == "lock"
    assert (markers["startTime"], markers["endTime"]) == ([0.0], [4.0])


def test_a_sample_has_the_category_of_its_cause() -> None:
    stacks = {1: Stack((Frame("memset", "/lib/libc.so.6", 5), Frame("put", "/bin/kv", 7)), True)}
    samples = [Sample(0, 1, 1, 10, 3_000_000, "lock", 1), Sample(0, 1, 1, 20, 500, "fault", 1)]
    made = case(samples, [], stacks)
    profile = firefox.profile(made.shown)
    table = profile["threads"][0]["samples"]
    assert [chain(profile, place) for place in table["stack"]] == [
        (["lock", "put", "memset"], "lock"),
        (["fault", "put", "memset"], "fault"),
    ]
    assert table["weight"] == [3.0, 0.0005]
    # A thread that waits has no CPU.
    assert table["threadCPUDelta"] == [0, 500]
    assert [one["path"] for one in profile["libs"]] == ["/bin/kv", "/lib/libc.so.6"]
    assert profile["shared"]["frameTable"]["lib"] == [-1, 0, 1, -1]


def test_the_file_is_json_that_no_terminal_obeys(tmp_path: Path) -> None:
    made = case([Sample(0, 1, 1, 10, 1, "running", 1)], [], {}, "\x1b[31m\u202e")
    firefox.save(made.shown, str(tmp_path / "p.json"))
    text = (tmp_path / "p.json").read_text()
    assert "\x1b" not in text and "\u202e" not in text
    assert json.loads(text)["meta"]["product"] == made.shown.title


@pytest.mark.parametrize("threads", [0, 30])
def test_at_most_so_many_threads_are_visible_at_first(threads: int) -> None:
    samples = [Sample(0, 1, number + 1, 10, number, "running", 1) for number in range(threads)]
    meta = firefox.profile(case(samples, [], {}).shown)["meta"]
    assert len(meta["initialVisibleThreads"]) == min(threads, firefox.VISIBLE)
    assert meta["initialSelectedThreads"] == ([threads - 1] if threads else [])
