"""Explanations in a notebook: plain tables without anything else installed, data frames with
pandas, charts with Altair (`pip install 'tailscope[notebook]'`).

Times are ns in columns that end in `_ns`, shares are fractions.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from tailscope.errors import MachineError
from tailscope.grid import middle
from tailscope.quantity import duration, percent, ratio, span_of_time
from tailscope.weighing import Cause, flat

if TYPE_CHECKING:
    import altair
    import pandas

    from tailscope.explanation import Explanation

HEAD = ("cause", "saves", "95 % interval", "without it", "fair share", "of tail", "impact", "spans")


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
    return needed("pandas").DataFrame([flat(cause) for cause in causes])


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
