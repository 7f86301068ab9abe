"""The figures behind the pictures of `explain`'s page, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from tailscope.ledger.causes import CAUSES, RUNNING
from tailscope.present.pages.charts.explanation import class_name
from tailscope.present.pages.parts import Table
from tailscope.quantity import count, duration
from tailscope.statistics.blame import of_span
from tailscope.statistics.explanation import Explanation
from tailscope.statistics.segments import Segments

#: The slowest spans that are listed.
SPANS = 20


def of(values: Sequence[dict[str, float]]) -> list[str]:
    """The causes that some of the bars have."""
    return [name for name in (RUNNING, *CAUSES) if any(bar.get(name, 0) > 0 for bar in values)]


def cells(values: dict[str, float], names: Sequence[str]) -> list[str]:
    """A bar's parts."""
    return [duration(values[name]) if values.get(name, 0) > 0 else "–" for name in names]


def classes(explanation: Explanation) -> Table:
    """What spans are made of, from slow to fast: the means over each class."""
    names = of([chosen.causes_ns for chosen in explanation.classes])
    rows = [
        [
            class_name(chosen),
            count(chosen.spans),
            duration(chosen.mean_ns),
            *cells(chosen.causes_ns, names),
        ]
        for chosen in reversed(explanation.classes)
    ]
    return Table("The figures: means of each class", ("spans", "how many", "mean", *names), rows)


def slowest(explanation: Explanation) -> Table:
    """The slowest spans' ledgers."""
    spans = explanation.worst[:SPANS]
    bars = [{name: float(ns) for name, ns in span.causes.items()} for span in spans]
    names = of(bars)
    who = [name for name in ("id", "tid", "cpu") if any(name in span.identity for span in spans)]
    blamed = any(span.culprits for span in spans)
    traced = any(span.trace_id for span in spans)
    rows = [
        [
            f"{(span.start_ns - explanation.first_ns) / 1e9:.6f} s",
            *(str(span.identity.get(name, "–")) for name in who),
            duration(span.wall_ns),
            *([span.trace_id or "–"] if traced else []),
            *([of_span(span.causes, span.culprits) or "–"] if blamed else []),
            *cells(bar, names),
        ]
        for span, bar in zip(spans, bars, strict=True)
    ]
    optional = [name for name, shown in (("trace", traced), ("to blame", blamed)) if shown]
    head = ("begin", *who, "wall", *optional, *names)
    return Table("The figures: the slowest spans' ledgers", head, rows)


def segments(found: Segments, target: str) -> tuple[Table, Table]:
    """The percentiles of the best, the typical and the worst segment, and those of all."""
    marked = {"best": found.best, "typical": found.typical, "worst": found.worst}
    head = ("segment", "starts at", "spans", "p50", target)

    def row(name: str, number: int) -> list[str]:
        one = found.segments[number]
        when = f"{one.start_s:,.0f} s"
        return [name, when, count(one.spans), duration(one.p50_ns), duration(one.target_ns)]

    chosen = [row(name, found.segments.index(one)) for name, one in marked.items()]
    every = [row(str(number + 1), number) for number in range(len(found.segments))]
    return Table("segments", head, chosen), Table("The figures: all segments", head, every)
