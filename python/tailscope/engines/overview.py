"""The first look at a ledger: what each span name adds up to, and which rows make no sense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import ibis

from tailscope.engines.engine import Engine, filled
from tailscope.engines.grid import Distribution, bin_of
from tailscope.errors import LedgerError
from tailscope.ledger.contents import Extent
from tailscope.ledger.ledger import Ledger
from tailscope.ledger.totals import Overview, Total

if TYPE_CHECKING:
    from ibis.expr.types import BooleanValue, Table

#: Times longer than 9 years, beginnings after the year 2116 and weights above a trillion are no
#: measurements; below these bounds no sum or difference of a row's columns leaves 64 bits.
LONGEST_NS = 1 << 58
LATEST_NS = 1 << 62
HEAVIEST = 1e12
#: Spans that may begin in the same ns: one on each CPU of the largest Linux.
MOST_A_NS = 8192


def look_over(engine: Engine, ledger: Ledger) -> tuple[Overview, Table]:
    """Each span name's totals, and the view without the rows that make no sense.

    A row makes sense if its wall time and causes are not negative, its weight is a positive number,
    and none of them is beyond all measure. Filtering costs time in every query, so it is only done
    where a minimum, a maximum, a count or the files' statistics leave the possibility of such a
    row.
    """
    table = engine.table()
    totals, rows, clean = total_up(engine, table)
    refuse_alike(totals)
    causes = ledger.stored_causes
    extents = [ledger.contents.extents.get(f"{cause}_ns") for cause in causes]
    if clean and all(map(plausible, extents)):
        return Overview(tuple(totals), rows, 0), table
    table = table.filter(sensible(table, causes))
    totals, kept, _ = total_up(engine, table)
    return Overview(tuple(totals), rows, rows - kept), table


def refuse_alike(totals: Sequence[Total]) -> None:
    """Refuse more rows than any machine can have begun in their time.

    A file of a few kB can hold a billion equal rows, and the analysis would keep them all.
    """
    for total in totals:
        if total.rows > max(1, total.last_ns - total.first_ns + 1) * MOST_A_NS:
            raise LedgerError(
                f"{total.rows:,} rows of '{total.span}' start within "
                f"{total.last_ns - total.first_ns + 1:,} ns, which no machine can do: "
                "no recorder wrote this ledger"
            )


def plausible(extent: Extent | None) -> bool:
    """Whether the files' statistics rule out that a cause makes no sense in some row."""
    return (
        extent is not None
        and extent.known
        and (extent.least or 0) >= 0
        and (extent.most or 0) <= LONGEST_NS
    )


def sensible(table: Table, causes: Sequence[str]) -> list[BooleanValue]:
    """What holds for each row that can be used."""
    rules = [
        table.span.notnull(),
        table.start_ns.between(0, LATEST_NS),
        table.wall_ns.between(0, LONGEST_NS),
        table.weight > 0,
        ~table.weight.isnan(),
        table.weight <= HEAVIEST,
    ]
    return rules + [table[f"{cause}_ns"].fill_null(0).between(0, LONGEST_NS) for cause in causes]


def total_up(engine: Engine, table: Table) -> tuple[list[Total], int, bool]:
    """The totals by recording and name, the number of rows, and whether all make sense."""
    found = engine.run(
        table.group_by("ledger", "span")
        .agg(
            rows=ibis._.count(),
            walls=ibis._.wall_ns.count(),
            starts=ibis._.start_ns.count(),
            # Not by minimum and maximum: what they are of NaN differs between engines.
            weighed=((ibis._.weight > 0) & (ibis._.weight <= HEAVIEST)).cast("int64").sum(),
            single=(ibis._.weight == 1).cast("int64").sum(),
            weight=ibis._.weight.sum(),
            first_ns=ibis._.start_ns.min(),
            last_ns=ibis._.start_ns.max(),
            min_ns=ibis._.wall_ns.min(),
            max_ns=ibis._.wall_ns.max(),
        )
        .order_by("ledger", "span")
    )
    found = {name: filled(values, None if name == "span" else -1) for name, values in found.items()}
    totals = []
    clean = True
    for i, span in enumerate(found["span"]):
        rows = found["rows"][i]
        clean = (
            clean
            and span is not None
            and rows == found["walls"][i] == found["starts"][i] == found["weighed"][i]
            and 0 <= found["first_ns"][i] <= found["last_ns"][i] <= LATEST_NS
            and 0 <= found["min_ns"][i] <= found["max_ns"][i] <= LONGEST_NS
        )
        numbers = ("ledger", "rows", "single", "first_ns", "last_ns", "min_ns", "max_ns")
        totals.append(
            Total(
                span=span,
                weight=float(found["weight"][i]),
                **{name: int(found[name][i]) for name in numbers},
            )
        )
    return totals, int(found["rows"].sum()), clean


def walls_by_span(engine: Engine, table: Table) -> dict[str, Distribution]:
    """The distribution of wall time for each span name."""
    found = engine.run(
        table.group_by("span", bin=bin_of(table.wall_ns)).agg(weight=ibis._.weight.sum())
    )
    names = filled(found["span"], "")
    return {
        name: Distribution.of(found["bin"][names == name], found["weight"][names == name])
        for name in sorted(set(names.tolist()))
    }
