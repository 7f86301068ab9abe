"""The cards of `observe`'s page with the rates by the tags' values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tailscope.present.pages.charts import bars
from tailscope.present.pages.charts.bars import Row
from tailscope.present.pages.charts.frame import WIDE, Words, drawn
from tailscope.present.pages.parts import Panel, Table
from tailscope.present.pages.units import rate, share, whole

#: Values in the picture, and in the table.
SHOWN, LISTED = 15, 500


def cards(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One for the values, and before it one for the functions where the tag is a place in code."""
    tags = report["by_tag"]
    if tags is None:
        return
    signals, counters = ", ".join(tags["signals"]), [rate["signal"] for rate in report["rates"]]
    say = (
        "The share of the samples that saw each value, and the counters' rates in the pairs of "
        f"samples that both saw it. In {share(tags['changed_share'])} of the time, the value "
        "changed between two samples."
    )
    if tags["functions"] is not None:
        rows = [of_function(function) for function in tags["functions"]]
        yield card(f"By function of {signals}", say, rows, counters)
    yield card(f"By {signals}", say, [of_value(value) for value in tags["values"]], counters)


def of_function(function: Mapping[str, Any]) -> Row:
    """A function's row: its rates have no deviations."""
    name = function["name"] if function["name"] is not None else "(unknown)"
    rates = ((mean, None) if mean is not None else None for mean in function["per_second"] or ())
    return Row(name, function["share"], function["samples"], tuple(rates))


def of_value(value: Mapping[str, Any]) -> Row:
    """A value's row."""
    rates = (
        (mean, deviation) if mean is not None else None
        for mean, deviation in zip(value["per_second"] or (), value["deviation"], strict=False)
    )
    return Row(name_of(value), value["share"], value["samples"], tuple(rates))


def name_of(value: Mapping[str, Any]) -> str:
    """What a value of the tags is called."""
    numbers, names = value["tags"], value["names"]
    if numbers is None or names is None:
        return "others"
    pairs = zip(numbers, names, strict=True)
    return ", ".join(str(number) if name is None else name for number, name in pairs)


def card(title: str, say: str, rows: Sequence[Row], counters: Sequence[str]) -> dict[str, Any]:
    """A picture of the first rows and a table."""
    about = "No value was seen."
    if rows:
        about = f"Most often {rows[0].name}, {share(rows[0].share)} of the samples."
    words, shown = Words(f"{title}: shares and rates", about), rows[:SHOWN]
    notes = []
    if rest := rows[SHOWN:]:
        part = share(sum(row.share for row in rest))
        notes.append(f"Not drawn: {len(rest):,} more, {part} of the samples together.")
    picture = drawn(lambda width: bars.draw(shown, counters, words, width), WIDE)
    return {
        "title": title,
        "say": say,
        "panel": Panel("", picture if rows else None, notes if rows else [about]),
        "table": Table(
            "The figures: rates by value, with their standard deviations",
            ("value", "share", "pairs of samples", *counters),
            [*(cells(row, len(counters)) for row in rows[:LISTED]), *left_out(rows, counters)],
        ),
    }


def cells(row: Row, counters: int) -> list[str]:
    """A row of the table."""
    return [
        row.name,
        share(row.share),
        whole(row.samples),
        *(in_words(row.rate(number)) for number in range(counters)),
    ]


def in_words(found: tuple[float, float | None] | None) -> str:
    """A rate with its standard deviation."""
    if found is None:
        return "–"
    mean, deviation = found
    return rate(mean) if deviation is None else f"{rate(mean)} ± {rate(deviation)}"


def left_out(rows: Sequence[Row], counters: Sequence[str]) -> list[list[str]]:
    """The last row of a table that is not complete."""
    rest = rows[LISTED:]
    if not rest:
        return []
    part, samples = share(sum(row.share for row in rest)), sum(row.samples for row in rest)
    return [[f"{len(rest):,} more (--json)", part, whole(samples), *("–" for _ in counters)]]
