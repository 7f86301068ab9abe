"""Explanations in a notebook: plain tables without anything else installed, data frames with
pandas, charts with Altair (`pip install 'tailscope[notebook]'`).

Times are ns in columns that end in `_ns`, shares are fractions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from html import escape
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from tailscope.engines.grid import middle
from tailscope.errors import MachineError
from tailscope.quantity import duration, percent, ratio, span_of_time
from tailscope.statistics.blame import words
from tailscope.statistics.ranking import Cause, flat

if TYPE_CHECKING:
    import altair
    import pandas

    from tailscope.statistics.explanation import Explanation
    from tailscope.statistics.segments import Segments

HEAD = (
    "cause",
    "saves",
    "95 % interval",
    "without it",
    "fair share",
    "of tail",
    "impact",
    "spans",
    "to blame",
)


def needed(name: str) -> ModuleType:
    """A module of the extra `notebook`."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MachineError(
            f"this needs {error.name or name}: pip install 'tailscope[notebook]'"
        ) from error


def row(cause: Cause) -> tuple[str, ...]:
    """A cause's figures as people read them, in the order of `HEAD`."""
    return (
        cause.name,
        duration(cause.saving.ns),
        span_of_time(cause.saving),
        duration(cause.predicted.ns),
        duration(cause.fair_ns) if cause.fair_ns is not None else "–",
        percent(cause.share),
        ratio(cause.impact),
        percent(cause.spans_share),
        words(cause.name, cause.blame) or "–",
    )


def plain(causes: Iterable[Cause]) -> str:
    """The table as text: names to the left, figures to the right."""
    rows = [HEAD, *map(row, causes)]
    widths = [max(len(line[i]) for line in rows) for i in range(len(HEAD))]
    lines = []
    for line in rows:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells))
    return "\n".join(lines)


def html(causes: Iterable[Cause]) -> str:
    """The table as HTML, in the notebook's own style."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in HEAD)
    lines = (
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row(cause)) + "</tr>"
        for cause in causes
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def frame(causes: Iterable[Cause]) -> pandas.DataFrame:
    """A cause a row, with all its figures."""
    return needed("pandas").DataFrame(
        [flat(cause) | {"blame": words(cause.name, cause.blame) or None} for cause in causes]
    )


def savings(causes: Iterable[Cause]) -> altair.LayerChart:
    """What each cause is worth, with its interval."""
    # Altair takes rows as dictionaries, so this needs no data frame.
    alt = needed("altair")
    rows = [
        {
            "cause": cause.name,
            "meaning": cause.meaning,
            "saves (µs)": cause.saving.ns / 1e3,
            "from": cause.saving.lo / 1e3,
            "to": cause.saving.hi / 1e3,
        }
        for cause in causes
    ]
    chart = alt.Chart(alt.Data(values=rows))
    names = alt.Y("cause:N", sort=None, title=None)
    bars = chart.mark_bar().encode(
        x="saves (µs):Q", y=names, tooltip=["cause:N", "meaning:N", "saves (µs):Q"]
    )
    whiskers = chart.mark_rule().encode(x=alt.X("from:Q", title="saves (µs)"), x2="to:Q", y=names)
    return bars + whiskers


def curve_rows(explanation: Explanation) -> list[dict[str, float | str]]:
    """The CDFs: as measured, and without each of the top causes; about 300 points each."""
    rows: list[dict[str, float | str]] = []
    for name, curve in explanation.curves.items():
        cumulated = np.cumsum(curve.weights) / curve.total
        quantiles = 1 - 10 ** -np.linspace(0, 5, 300)
        place = np.minimum(np.searchsorted(cumulated, quantiles), len(curve.bins) - 1)
        label = f"without {name}" if name else "as measured"
        rows += [
            {"curve": label, "quantile": float(q), "latency_ns": float(ns)}
            for q, ns in zip(quantiles, middle(curve.bins)[place], strict=True)
        ]
    return rows


def curves(explanation: Explanation) -> pandas.DataFrame:
    """The CDFs as a data frame: `curve`, `quantile`, `latency_ns`."""
    return needed("pandas").DataFrame(curve_rows(explanation))


def classes(explanation: Explanation) -> pandas.DataFrame:
    """What spans are made of: a latency class a row, the mean of each cause a column (ns)."""
    return needed("pandas").DataFrame(
        [
            {
                "from_percentile": chosen.from_percentile,
                "to_percentile": chosen.to_percentile,
                "spans": chosen.spans,
                "mean_ns": chosen.mean_ns,
                **{f"{name}_ns": ns for name, ns in chosen.causes_ns.items()},
            }
            for chosen in explanation.classes
        ]
    )


#: The columns of `impacts`, after the event's name.
IMPACT = (
    *("group", "impact", "high_from", "ranked_impact", "cut_by", "follows", "measured_share"),
    "high_share",
)


def impacts(explanation: Explanation) -> pandas.DataFrame:
    """An event a row, causes first: VarMRI's impact value and the outcome of its rules."""
    rows = [
        (
            cause.name,
            "cause",
            cause.impact,
            cause.high_from_ns,
            cause.ranked_impact,
            None,
            cause.follows,
            cause.measured_share,
            cause.high_share,
        )
        for cause in explanation.causes
    ]
    rows += [
        (counter.name, *(getattr(counter, name) for name in IMPACT))
        for counter in explanation.counters
    ]
    return needed("pandas").DataFrame(rows, columns=["event", *IMPACT])


def pairs(explanation: Explanation) -> pandas.DataFrame:
    """Two events a row that go together and that no rule tells apart."""
    return needed("pandas").DataFrame(
        [
            {
                "one": pair.events[0],
                "other": pair.events[1],
                "correlation": pair.correlation,
                "overlap": pair.overlap,
            }
            for pair in explanation.pairs
        ],
        columns=["one", "other", "correlation", "overlap"],
    )


def roles(found: Segments) -> dict[int, str]:
    """Which segment, by its begin, is the best, the typical and the worst."""
    return {
        found.best.start_ns: "best",
        found.typical.start_ns: "typical",
        found.worst.start_ns: "worst",
    }


def segments(found: Segments) -> pandas.DataFrame:
    """A segment a row, in order of time; `role` says which is best, typical and worst."""
    role = roles(found)
    return needed("pandas").DataFrame(
        [{**asdict(one), "role": role.get(one.start_ns, "")} for one in found.segments]
    )


def segments_html(found: Segments) -> str:
    """The segments as a table, and the causes within the typical one."""
    role = roles(found)
    lines = "".join(
        f"<tr><td>{one.start_s:g} s</td><td>{one.rows:,}</td>"
        f"<td>{escape(duration(one.p50_ns))}</td><td>{escape(duration(one.target_ns))}</td>"
        f"<td>{role.get(one.start_ns, '')}</td></tr>"
        for one in found.segments
    )
    head = "<tr><th>begins</th><th>spans</th><th>p50</th><th>target</th><th></th></tr>"
    return (
        f"<table><thead>{head}</thead><tbody>{lines}</tbody></table>"
        f"<p>within the typical segment:</p>{html(found.within)}"
    )


def course(found: Segments) -> altair.LayerChart:
    """The target percentile over time, a step a segment, with the median below it."""
    alt = needed("altair")
    rows = [
        {"begins (s)": one.start_s, "µs": ns / 1e3, "percentile": name}
        for one in found.segments
        for name, ns in (("median", one.p50_ns), ("target", one.target_ns))
    ]
    lines = alt.Chart(alt.Data(values=rows)).encode(
        x="begins (s):Q", y="µs:Q", color=alt.Color("percentile:N", sort=None, title=None)
    )
    return lines.mark_line(interpolate="step-after") + lines.mark_point()


def distribution(explanation: Explanation) -> altair.Chart:
    """The CDFs as a chart; every nine has the same height."""
    alt = needed("altair")
    rows = [
        {
            "curve": row["curve"],
            "latency (µs)": max(float(row["latency_ns"]), 1.0) / 1e3,
            "nines": float(-np.log10(1 - float(row["quantile"]))),
        }
        for row in curve_rows(explanation)
    ]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line()
        .encode(
            x=alt.X("latency (µs):Q", scale=alt.Scale(type="log")),
            y=alt.Y("nines:Q", title="nines (2 is p99)"),
            color=alt.Color("curve:N", sort=None, title=None),
            order="nines:Q",
        )
    )
