"""The page of `tailscope locality`: which bytes of a line threads access, and what was not seen."""

from __future__ import annotations

import re
from typing import Any

import pytest
from made_reports import EVIL, QUOTED
from tailscope.present.pages import draw
from tailscope.present.pages.locality import context
from test_report import check_one_file


def share(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.01, "high": value + 0.01}


def user(tid: int, first: int, name: str = "stats.hits") -> dict[str, Any]:
    field = {"name": name, "type": "long int", "bytes": [first, first + 8], "accesses": 80}
    return {
        **{"tid": tid, "name": f"worker-{tid}", "reads": 40, "writes": 40},
        **{"bytes": [first, first + 8], "fields": [field]},
    }


def line(sharing: str, *users: dict[str, Any], what: str = "stats+0x0") -> dict[str, Any]:
    return {
        **{"address": "0x5640", "what": what, "time": share(0.25), "samples": 900},
        **{"sharing": sharing, "users": list(users), "functions": ["update"], "watched": [3, 0]},
    }


def found(*contended: dict[str, Any]) -> dict[str, Any]:
    """What `tailscope locality --json` prints."""
    part = {"name": "update", "time": share(0.9), "lines": 3, "reads": 40, "writes": 40}
    part["updates"] = share(0.5)
    counts = {"samples": 1000, "in_kernel": 100, "resolved": 800, "accesses": 9000}
    counts |= {"lost": 0, "dropped": 0, "threads_left_out": 0}
    group = {"phase": "rest", "session": "global", "lines": share(0.5), "time": share(0.6)}
    return {
        **{"kind": "locality", "pid": 4711, "phase": None, "seconds": 10.0, "counts": counts},
        "watch": {"words": 3, "hits": 9, "stopped": None},
        "lines": {"estimate": 512.0, "coverage": 0.99},
        "groups": [group | {"updates": None}],
        "functions": [part],
        "threads": [part | {"tid": 1}],
        "hot": [line("private", user(1, 0) | {"fields": []})],
        **{"contended": list(contended), "members_complete": True},
    }


def strips(page: str, kind: str) -> list[str]:
    """The coloured boxes of the first picture of a width."""
    picture = re.search(rf'<div class="{kind}"><svg.*?</svg>', page, re.S)
    assert picture
    return re.findall(r'<rect class="f-(\w+)" x="([\d.]+)"[^>]* width="([\d.]+)"', picture[0])


def test_a_page_is_well_formed_and_loads_nothing() -> None:
    lines = line("false", user(1, 0), user(2, 8)), line("unclear", user(1, 56))
    check_one_file(draw(found(*lines)))


def test_each_threads_bytes_are_at_their_place_in_its_colour() -> None:
    page = draw(found(line("false", user(2, 8, "stats.misses"), user(1, 0))))
    (left, right) = strips(page, "wide")
    assert left == ("two", "170", "56.00") and right == ("one", "226", "56.00")
    assert "stats.misses (long int)" in page and "stats.hits (long int)" in page
    assert [box[1:] for box in strips(page, "narrow")] == [("0", "43.25"), ("43.2", "43.25")]


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        ([line("false", user(1, 0)), line("true", user(1, 0))], "1 line is falsely shared: 25.0 %"),
        ([line("true", user(1, 0))] * 2, "2 lines are written by several threads: 50.0 %"),
        ([line("unclear", user(1, 0))], "no line was seen"),
        ([], "no line was seen"),
    ],
)
def test_the_worst_kind_of_sharing_leads(lines: list[dict[str, Any]], answer: str) -> None:
    said = context(found(*lines))
    assert said["answer"].replace("\u00a0", " ").startswith(answer)
    assert (said["picture"] is None) == (not lines)


def test_what_was_not_seen_is_said() -> None:
    assert context(found())["careful"] == []
    report = found()
    report["counts"] |= {"in_kernel": 870, "resolved": 13, "lost": 5, "threads_left_out": 2}
    report["lines"]["coverage"] = 0.5
    report["members_complete"] = False
    report["watch"]["stopped"] = "a debugger has the debug registers"
    doubts = " ".join(context(report)["careful"])
    for words in (
        *("87.0 % of the samples were in the kernel", "only 10.0 % of the samples in user space"),
        *("probability 50.0 %", "5 samples or accesses", "2 threads were not", "a debugger has"),
        "some are not named",
    ):
        assert words in doubts


@pytest.mark.parametrize("evil", [EVIL, QUOTED, "{{ 7 * 7 }}", "\x1b[2J"])
def test_names_are_only_text(evil: str) -> None:
    page = draw(found(line("false", user(1, 0, evil), user(2, 8), what=evil)))
    assert "<script" not in page and "onload=x>" not in page and "\x1b" not in page


def test_absurd_bytes_stay_in_the_strip() -> None:
    wild = user(1, 0)
    wild["fields"][0]["bytes"] = [-5, 900]
    (box,) = strips(draw(found(line("true", wild))), "wide")
    assert box == ("one", "170", "448.00")
