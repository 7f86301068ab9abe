"""The page of `tailscope borrow`: its figures, and what is not known."""

from __future__ import annotations

from typing import Any

import pytest
from made_reports import EVIL, QUOTED
from tailscope.present.pages import draw
from tailscope.present.pages.borrow import context
from test_report import Balanced

UNKNOWN = {"value": None, "low": None, "high": None}


def lent(command: str = "make") -> dict[str, Any]:
    """What `tailscope borrow --json` prints."""
    side = {"time_ns": 19_200_000_000, "requests": 57_600, "busy": 0.992}
    tail = {
        "name": "p99",
        "lending_ns": {"value": 121_000.0, "low": 118_000.0, "high": 125_000.0},
        "held_back_ns": {"value": 118_000.0, "low": 110_000.0, "high": 126_000.0},
        "change": {"value": 0.025, "low": -0.031, "high": 0.08},
    }
    return {
        **{"kind": "borrow", "server": 4711, "command": [command, "-j2"], "cpus": [0]},
        "mechanism": {
            **{"idle_group": 1, "idle_group_why": None, "smt": False},
            "held_back_by": "cgroup.freeze",
        },
        **{"elapsed_ns": 20_000_000_000, "borrowed_ns": 10_900_000_000},
        "lending": side | {"batch": 0.57, "waited_ns": 1200.0},
        "held_back": side | {"busy": None, "batch": None, "waited_ns": None, "requests": 0},
        "tails": [tail, {"name": "p99.9"} | dict.fromkeys(list(tail)[1:], UNKNOWN)],
        "slo": {
            **{"slo": "p99=2ms", "reached_ns": 130_000, "limit_ns": 2_000_000},
            **{"windows_held": 5, "windows_broken": 1, "windows_unknown": 0, "lent_share": 0.9},
        },
        **{"between": 12, "lost": 0, "switches": 16, "switch_p50_ns": None},
        **{"policies_put_back": 1, "affinities_put_back": 0, "groups_put_back": 0},
        **{"not_put_back": 0, "processes": 3, "notes": ["it is only an example"]},
    }


@pytest.mark.parametrize("evil", ["make", EVIL, QUOTED, "{{ 7 * 7 }}", "\x1b[2J"])
def test_a_page_is_well_formed_whatever_the_command_is_called(evil: str) -> None:
    page = draw(lent(evil))
    reader = Balanced()
    reader.feed(page)
    assert reader.open == []
    assert "<script" not in page
    assert "onload=x>" not in page
    assert "\x1b" not in page


def test_it_says_what_lending_cost_and_how_sure_that_is() -> None:
    said = context(lent())
    assert said["answer"].replace("\u00a0", " ") == (
        "p99 with lending: +2.50 % (95 %: \u22123.10 % to +8.00 %)"
    )
    assert said["careful"] == ["it is only an example"]
    assert [fact.value for fact in said["facts"] if fact.is_goal] == ["5 of 6"]


def test_what_is_not_known_is_a_dash() -> None:
    report = lent()
    report["tails"][0]["change"] = UNKNOWN
    said = context(report)
    assert said["answer"] == "what lending did to p99 is not known"
    assert said["tails"].rows[1][1:] == ["–"] * 6
    assert said["phases"].rows[1][2] == "–"
