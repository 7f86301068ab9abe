"""The figures behind the report's pictures, as tables that open on demand: for readers who use a
keyboard, a screen reader or paper, and for those who want the number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from tailscope.ledger.causes import CAUSES, RUNNING
from tailscope.present.charts import class_name
from tailscope.quantity import count, duration
from tailscope.statistics.blame import of_span
from tailscope.statistics.explanation import Explanation
from tailscope.statistics.segments import Segments

#: The slowest spans that are listed.
SPANS = 20


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table that opens on demand, and scrolls by itself where it is wider than the page."""
    yield f"<details><summary>{escape(title)}</summary>"
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}"><table>'
    yield "<tr>" + "".join(f'<th scope="col">{escape(name)}</th>' for name in head) + "</tr>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
    yield "</table></div></details>"


def of(values: Sequence[dict[str, float]]) -> list[str]:
    """The causes that some of the bars have."""
    return [name for name in (RUNNING, *CAUSES) if any(bar.get(name, 0) > 0 for bar in values)]


def cells(values: dict[str, float], names: Sequence[str]) -> list[str]:
    """A bar's parts."""
    return [duration(values[name]) if values.get(name, 0) > 0 else "–" for name in names]


def classes(explanation: Explanation) -> Iterator[str]:
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
    yield from table(
        "The figures: means of each class", ("spans", "how many", "mean", *names), rows
    )


def slowest(explanation: Explanation) -> Iterator[str]:
    """The slowest spans' ledgers."""
    spans = explanation.worst[:SPANS]
    bars = [{name: float(ns) for name, ns in span.causes.items()} for span in spans]
    names = of(bars)
    who = [name for name in ("id", "tid", "cpu") if any(name in span.identity for span in spans)]
    blamed = any(span.culprits for span in spans)
    rows = [
        [
            f"{(span.start_ns - explanation.first_ns) / 1e9:.6f} s",
            *(str(span.identity.get(name, "–")) for name in who),
            duration(span.wall_ns),
            *([of_span(span.causes, span.culprits) or "–"] if blamed else []),
            *cells(bar, names),
        ]
        for span, bar in zip(spans, bars, strict=True)
    ]
    head = ("begin", *who, "wall", *(["to blame"] if blamed else []), *names)
    yield from table("The figures: the slowest spans' ledgers", head, rows)


def segments(found: Segments, target: str) -> Iterator[str]:
    """Each segment's percentiles; the best, the typical and the worst are always in sight."""
    marked = {"best": found.best, "typical": found.typical, "worst": found.worst}
    head = ("segment", "starts at", "spans", "p50", target)

    def row(name: str, number: int) -> list[str]:
        one = found.segments[number]
        when = f"{one.start_s:,.0f} s"
        return [name, when, count(one.spans), duration(one.p50_ns), duration(one.target_ns)]

    yield '<div class="scroll" tabindex="0" role="region" aria-label="segments"><table><tr>'
    yield "".join(f'<th scope="col">{escape(name)}</th>' for name in head) + "</tr>"
    for name, one in marked.items():
        line = row(name, found.segments.index(one))
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>"
    yield "</table></div>"
    rows = [row(str(number + 1), number) for number in range(len(found.segments))]
    yield from table("The figures: all segments", head, rows)
