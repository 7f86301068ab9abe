"""The pages of `tailscope cost`, from its JSON: what hooks cost, and what a command would cost.

docs/how-to/know-what-observing-costs.md says what each kind and each figure means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tailscope.present.pages.charts import interval
from tailscope.present.pages.charts.frame import WIDE, Words, drawn
from tailscope.present.pages.parts import Fact, Panel, Table
from tailscope.present.pages.units import brief_rate, or_dash, share, unbroken, whole
from tailscope.quantity import duration, figures

Report = Mapping[str, Any]


def calibration(report: Report) -> dict[str, Any]:
    """What the template needs of `cost calibrate`."""
    machine = report["machine"]
    rows = [
        [kind["kind"], cost(kind["ns"]), both_ends(kind["ns"], nanoseconds), whole(kind["hits"])]
        for kind in sorted(report["kinds"], key=lambda kind: kind["ns"]["value"])
    ]
    absent = [[name, why] for name, why in report["absent"]]
    return {
        "title": "what one hit costs",
        "kicker": "calibrate",
        "answer": f"{len(rows)} kinds of hooks were measured on this machine",
        "careful": report["notices"],
        "facts": [
            Fact("processor", machine["cpu"], f"{machine['cpus']} CPUs"),
            Fact("kernel", machine["kernel"], f"hypervisor: {machine['hypervisor']}"),
        ],
        "panels": [],
        "tables": [
            Table("One hit of each kind", ("kind", "a hit", "95 % interval", "hits"), rows),
            *([Table("Not available here", ("kind", "why"), absent)] if absent else []),
        ],
    }


def prediction(report: Report) -> dict[str, Any]:
    """What the template needs of `cost predict` and `cost verify`."""
    predicted, measured = report["prediction"], report.get("measured")
    panels = [
        picture("Predicted", predicted and predicted["slowdown"], report["command"]),
        picture("Measured", measured and measured["slowdown"], report["command"]),
    ]
    notices = [
        *(predicted or {"notices": []})["notices"],
        *(measured or {"notices": []})["notices"],
    ]
    return {
        "title": f"what {report['command']} costs",
        "kicker": f"for process {report['pid']}: {report['command']}",
        "answer": unbroken(answer(predicted, measured)),
        "careful": notices,
        "facts": list(facts(predicted, measured)),
        "panels": [panel for panel in panels if panel is not None],
        "tables": [parts(predicted)] if predicted else [],
    }


def answer(predicted: Report | None, measured: Report | None) -> str:
    """The slow-down in a sentence; what was measured counts for more than what was predicted."""
    if measured is not None and measured["slowdown"] is not None:
        slowdown = measured["slowdown"]
        return f"the same work took {change(slowdown)} (95 %: {both_ends(slowdown, share)})"
    if predicted is not None and predicted["slowdown"] is not None:
        slowdown = predicted["slowdown"]
        return f"the same work would take {change(slowdown)} (95 %: {both_ends(slowdown, share)})"
    return "not predicted: a part of the cost is not known"


def change(slowdown: Report) -> str:
    """`1.20 % longer`, or `0.10 % less time`."""
    value = slowdown["value"]
    return f"{share(value)} longer" if value >= 0 else f"{share(-value)} less time"


def facts(predicted: Report | None, measured: Report | None) -> Iterator[Fact]:
    """The figures in large letters."""
    for title, found in (("predicted", predicted), ("measured", measured)):
        if found is not None and (slowdown := found["slowdown"]) is not None:
            note = f"95 %: {both_ends(slowdown, share)}"
            yield Fact(title, unbroken(share(slowdown["value"])), unbroken(note))
    if predicted is not None:
        used = f"{100 * predicted['cpu']:.0f} %"
        yield Fact("the program used", unbroken(f"{used} of a CPU"), "while hits were counted")
        took = or_dash(predicted["effort_share"], share)
        yield Fact("counting took", unbroken(took), "of the program's CPU time")


def picture(title: str, slowdown: Report | None, command: str) -> Panel | None:
    """A slow-down on its interval."""
    if slowdown is None:
        return None

    def draw(width: float) -> str:
        words = Words(f"{title}: how much longer the same work takes", f"With {command}.")
        ends = slowdown["value"], slowdown["low"], slowdown["high"]
        return interval.draw(*ends, None, words, width)

    return Panel(title, drawn(draw, WIDE))


def parts(predicted: Report) -> Table:
    """What each hook adds."""
    rows = [
        [
            part["hook"],
            unbroken(brief_rate(part["per_second"]["value"])),
            or_dash(part["ns"], cost),
            or_dash(part["share"], lambda found: unbroken(share(found["value"]))),
            part["unknown"] or "",
        ]
        for part in predicted["parts"]
    ]
    head = ("hook", "hits", "a hit", "share of CPU time", "not known because")
    return Table("What each hook adds", head, rows)


def cost(estimate: Report) -> str:
    """The cost of a hit, or its bound where that is below the noise."""
    if estimate["low"] <= 0:
        return unbroken(f"< {nanoseconds(max(estimate['high'], 0.1))}")
    return unbroken(nanoseconds(estimate["value"]))


def nanoseconds(ns: float) -> str:
    """A length of time; below 100 ns with a decimal, as hooks differ by less than 1 ns."""
    return f"{figures(ns)} ns" if abs(ns) < 999.5 else duration(ns)


def both_ends(estimate: Report, shown: Callable[[float], str]) -> str:
    """An interval."""
    return unbroken(f"{shown(estimate['low'])} to {shown(estimate['high'])}")
