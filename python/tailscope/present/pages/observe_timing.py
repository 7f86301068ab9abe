"""The card of `observe`'s page on the observer itself: periods, delays, and dropped pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailscope.present.pages.charts.axis import Cells
from tailscope.present.pages.charts.curves import Distribution, at_least, course
from tailscope.present.pages.charts.frame import HALF, Words, drawn
from tailscope.present.pages.parts import Panel
from tailscope.present.pages.units import cycles, or_dash, share, whole
from tailscope.quantity import duration

Report = Mapping[str, Any]

#: A gap is a period of at least this many median ones (docs/reference/observe.md).
GAP = 10.0
#: The share of the periods that may lie beyond each edge: the picture of the gaps has the longest.
OUTSIDE = 0.005


def evenness(report: Report) -> dict[str, Any]:
    """Four pictures, two in a row."""
    hz = max(report["clock_hz"], 1)
    period = report["period"]
    goal = (period, f"asked: {whole(period)}") if period else None
    return {
        "clock": f"{hz / 1e9:.2f} GHz, 1,000 cycles are {duration(1e12 / hz)}",
        "upper": [
            lengths(
                "Periods: from one sample to the next",
                "Distribution of the periods",
                report["curves"]["periods"],
                report["periods"],
                goal,
            ),
            lengths(
                "Within a sample: from one reading of the clock to the other",
                "Distribution of how long a sample takes",
                report["curves"]["reads"],
                report["reads"],
                None,
            ),
        ],
        "lower": [gaps(report, hz), dropped(report)],
    }


def lengths(
    title: str, name: str, cells: Cells, of: Report, goal: tuple[float, str] | None
) -> Panel:
    """How some lengths in cycles are distributed."""
    p50, p99 = or_dash(of["p50"], cycles), or_dash(of["p99"], cycles)
    longest = cycles(of["max"])
    about = f"Half are at most {p50} cycles, 99 % at most {p99}. The longest is {longest}."
    curve = Distribution(
        Words(name, about),
        "cycles",
        "% that are at most this long",
        "measured",
        cells,
        OUTSIDE,
        cycles,
        goal=goal,
    )
    if curve.axis is None:
        return Panel(title, None, ["There are none."])
    out = curve.beyond
    notes = [f"Beyond the right edge: {whole(out)} of them, up to {longest} cycles."] if out else []
    return Panel(title, drawn(curve.draw, HALF), notes)


def gaps(report: Report, hz: int) -> Panel:
    """When the observer itself was delayed: how many gaps were at least this long."""
    title = "Gaps: when the observer was delayed"
    median, ns = report["periods"]["p50"] or 0.0, 1e9 / hz
    start = GAP * median
    found = [(at * ns, count) for at, count in report["curves"]["periods"] if at >= start > 0]
    if not found:
        text = f"None: no period was ten times the median ({cycles(median)} cycles) or longer."
        return Panel(title, None, [text])
    seen = report["gaps"]
    about = (
        f"{whole(seen['count'])} gaps of {duration(start * ns)} or longer, "
        f"{share(seen['share'])} of the time; the longest took {duration(seen['longest'] * ns)}."
    )
    words, up = Words("Distribution of the gaps", about), "gaps that were at least this long"
    return Panel(
        title, drawn(lambda width: at_least(words, found, start * ns, up, width), HALF), [about]
    )


def dropped(report: Report) -> Panel:
    """The share of the pairs that were dropped, over time."""
    slices = []
    for piece in report["series"]:
        pairs = piece["kept"] + piece["dropped"]
        slices.append((piece["at"], 100 * piece["dropped"] / pairs if pairs else None))
    kept = report["kept_share"]
    about = (
        f"{or_dash(None if kept is None else 1 - kept, share)} of all pairs: "
        f"{whole(report['disagreed'])} whose two readings of the clock disagreed by more than "
        f"{share(report['tolerance'])}, {whole(report['preempted'])} across a preemption."
    )
    words = Words("Pairs of samples that were dropped, over time", about)
    has_picture = any(value is not None for _, value in slices)
    picture = drawn(
        lambda width: course(
            words, "% of the pairs of samples", "s-lost", slices, report["seconds"], 1, width
        ),
        HALF,
    )
    return Panel("Dropped pairs", picture if has_picture else None, [about])
