"""The pages of `tailscope chase` and `tailscope cost`: their figures, and what is not known."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from made_reports import EVIL, QUOTED
from tailscope.present.pages import draw
from tailscope.present.pages.chase import context as chase
from tailscope.present.pages.chase import size
from tailscope.present.pages.cost import calibration, prediction
from test_report import check_one_file

KIB = 1 << 10


def estimate(value: float, part: float = 0.05) -> dict[str, float]:
    return {"value": value, "low": value * (1 - part), "high": value * (1 + part)}


def chased() -> dict[str, Any]:
    """What `tailscope chase --json` prints."""
    points = [
        {
            **{"working_set": bytes_, "updates": share, "accesses": 1000, "rounds": 20},
            **{"segments": 40, "dropped": 1, "line_ns": [60.0, 50.0, 90.0]},
            "speeds": [
                {"mode": "sync", "per_second": 1e8, "ratio": None},
                {"mode": "delegate", "per_second": 1e8 * ratio, "ratio": estimate(ratio)},
            ],
        }
        for bytes_, share, ratio in (
            (24 * KIB, 0.0, 0.7),
            (3 * KIB * KIB, 0.0001, 1.3),
            (24 * KIB, 1.0, 2.5),
            (3 * KIB * KIB, 1.0, 1.4),
        )
    ]
    return {
        **{"kind": "chase", "cpus": [0, 1], "one_core_by_topology": False, "others": 0.0},
        "pair": {
            **{"beside": estimate(0.98, 0.01), "verdict": "two-cores"},
            "line_ns": [61.0, 55.0, 99.0],
        },
        "caches": {"l1d": 48 * KIB, "l2": 2 * KIB * KIB, "l3": None},
        "costs": {"switch_ns": estimate(12.0), "migration_ns": None},
        "latencies": [{"bytes": 8 * KIB, "ns": 1.5}, {"bytes": 1 << 22, "ns": 20.0}],
        **{"knees": [50 * KIB], "points": points, "planned": 4, "sessions": 100, "seed": 1},
    }


def calibrated() -> dict[str, Any]:
    """What `tailscope cost calibrate --json` prints."""
    kinds = [
        {"kind": "uprobe", "ns": estimate(433.1), "loops": 1.0, "hits": 10_000, "earlier": []},
        {"kind": "payload.map", "ns": {"value": 0.4, "low": -2.0, "high": 2.9}, "loops": 0.1}
        | {"hits": 10_000, "earlier": []},
    ]
    machine = {"cpu": "a processor", "cpus": 2, "kernel": "6.1", "hypervisor": "none"}
    return {
        **{"kind": "cost-calibration", "version": 1, "machine": machine, "at": 0, "seconds": 9.8},
        **{"rounds": 30, "loop_ns": 0.3, "kinds": kinds, "notices": []},
        "absent": [["fentry", "this kernel refuses it"]],
    }


def predicted(command: str = "perf record -F 99") -> dict[str, Any]:
    """What `tailscope cost verify --json` prints."""
    part = {"hook": command, "per_second": estimate(99.0), "ns": estimate(1800.0)}
    return {
        **{"kind": "cost-verify", "command": command, "pid": 4711},
        "prediction": {
            **{"slowdown": estimate(0.012), "cpu": 0.7, "effort": {}, "effort_share": None},
            "parts": [part | {"share": estimate(0.012), "unknown": None}],
            "notices": ["the program hardly ran"],
        },
        "measured": {"slowdown": estimate(-0.001), "by": "cpu", "pairs": 8, "notices": []},
    }


@pytest.mark.parametrize(
    "report", [chased(), calibrated(), predicted()], ids=lambda one: one["kind"]
)
def test_a_page_is_well_formed_and_loads_nothing(report: dict[str, Any]) -> None:
    check_one_file(draw(report))


@pytest.mark.parametrize("evil", [EVIL, QUOTED, "{{ 7 * 7 }}", "\x1b[2J"])
def test_a_command_line_is_only_text(evil: str) -> None:
    page = draw(predicted(evil))
    assert "<script" not in page and "onload=x>" not in page and "\x1b" not in page


def test_chase_says_where_moving_pays_most() -> None:
    said = chase(chased())
    answer = said["answer"].replace("\u00a0", " ")
    assert answer == "delegate is up to 2.50 × as fast as sync: at 24 KiB with 100 % writes"
    assert said["careful"] == ["4 of 160 segments were dropped"]
    assert [name for _, name in said["modes"][0].legend] == [
        "0 % writes",
        "0.01 % writes",
        "100 % writes",
    ]
    assert said["points"].rows[0][:2] == ["24 KiB", "0\u00a0%"]


def test_chase_claims_no_gain_that_its_intervals_do_not_show() -> None:
    report = chased()
    for point in report["points"]:
        point["speeds"][1]["ratio"] = {"value": 1.1, "low": 0.9, "high": 1.3}
    assert chase(report)["answer"] == "nothing shows that delegate is faster than sync here"
    report["points"] = []
    assert "without a comparison" in chase(report)["answer"]
    assert draw(report)


def test_chase_says_what_makes_its_figures_doubtful() -> None:
    report = chased()
    report["others"], report["planned"] = 0.4, 9
    report["pair"]["verdict"] = "one-core"
    doubts = " ".join(chase(report)["careful"])
    for words in ("40 % of the calibration", "threads of one core", "4 of 9 combinations"):
        assert words in doubts
    report["others"] = None
    assert "not known" in chase(report)["careful"][0]


def test_a_cost_below_the_noise_is_a_bound() -> None:
    said = calibration(calibrated())
    kind, bound = said["tables"][0].rows[0][:2]
    assert (kind, bound.replace("\u00a0", " ")) == ("payload.map", "< 2.90 ns")
    assert said["tables"][1].rows == [["fentry", "this kernel refuses it"]]


def test_what_was_measured_leads_and_what_was_predicted_stands_beside_it() -> None:
    report = predicted()
    said = prediction(report)
    assert said["answer"].replace("\u00a0", " ").startswith("the same work took 0.10 % less time")
    assert [panel.title for panel in said["panels"]] == ["Predicted", "Measured"]
    assert said["careful"] == ["the program hardly ran"]
    alone = deepcopy(report) | {"measured": None}
    assert prediction(alone)["answer"].startswith("the same work would take 1.20")
    alone["prediction"]["slowdown"] = None
    assert prediction(alone)["answer"].startswith("not predicted")
    assert draw(report | {"prediction": None})


def test_sizes_are_in_powers_of_two() -> None:
    assert [size(n) for n in (64, 48 * KIB, 3 * KIB * KIB // 2)] == ["64 B", "48 KiB", "1.5 MiB"]
