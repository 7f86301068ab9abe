"""Everything that an expression may be made of (DESIGN §5): each engine answers all of it alike.

A question in `tailscope.engines.measure` uses nothing else: what it needs is added here first.
The table has `start_ns`, of which no two are alike; `wall_ns`; `weight`; `lock_ns`, which is
null in some rows; `span`.
"""

from __future__ import annotations

from collections.abc import Callable

import ibis
from ibis import _
from ibis.expr.types import Table
from tailscope.engines.draw import lot
from tailscope.engines.grid import bin_of

Question = Callable[[Table], Table]


def totals(table: Table) -> Table:
    """Each aggregate, with nulls among the values."""
    return table.group_by("span", "ledger").agg(
        rows=_.count(),
        known=_.lock_ns.count(),
        sum=_.lock_ns.sum(),
        least=_.lock_ns.min(),
        most=_.lock_ns.max(),
        weight=_.weight.sum(),
        weighted=(_.weight * _.lock_ns).sum(),
    )


def empty(table: Table) -> Table:
    """Aggregates of no row: counts are 0, the rest is null."""
    nothing = table.filter(table.wall_ns < 0)
    return nothing.agg(
        rows=_.count(), known=_.lock_ns.count(), sum=_.wall_ns.sum(), most=_.wall_ns.max()
    )


def arithmetic(table: Table) -> Table:
    """Whole numbers: differences below 0, shifts, remainders, comparisons as numbers."""
    wall, start = table.wall_ns, table.start_ns
    return table.select(
        "start_ns",
        below=wall - 1_000_000,
        product=wall * 7_919 - start % 1_000_003,
        shifted=((start - 1_600_000_000_000_000_000) >> 31) + 5,
        begin=start - start % 10_000_000,
        lot=lot(start, wall, 7),
        large=(wall >= 50_000).cast("int64"),
        greater=ibis.greatest(wall - 40_000, 0),
    )


def bins(table: Table) -> Table:
    """The grid, as a key and as a column."""
    return table.group_by(bin=bin_of(table.wall_ns), lock=bin_of(table.lock_ns.fill_null(0))).agg(
        n=_.count()
    )


def choices(table: Table) -> Table:
    """Nulls in comparisons, and values by cases."""
    lock = table.lock_ns
    return table.select(
        "start_ns",
        either=ibis.ifelse(lock > 100, lock, -1),
        case=ibis.cases((lock > 100, 2), (lock == 0, 1), else_=0),
        known=lock.notnull().cast("int64"),
        filled=lock.fill_null(3),
        within=lock.fill_null(0).between(0, 1 << 58).cast("int64"),
        both=((lock > 0) & (table.wall_ns > 0)).cast("int64"),
    )


def filtered(table: Table) -> Table:
    """Rows that a comparison with null neither keeps nor leaves."""
    return table.filter((table.lock_ns > 0) | (table.wall_ns % 2 == 0)).select("start_ns")


def worst(table: Table) -> Table:
    """The first few in an order."""
    return table.order_by(table.wall_ns.desc(), table.start_ns).limit(7).select("start_ns")


def neighbours(table: Table) -> Table:
    """The rows before and after; null beyond the ends."""
    inside = ibis.window(group_by=table.span, order_by=table.start_ns)
    return table.select(
        "start_ns",
        before=table.wall_ns.lag(1).over(inside),
        after=table.wall_ns.lead(2).over(inside),
    )


def windows(table: Table) -> Table:
    """Sums over rows around, and over a range of time before."""
    rows = ibis.window(preceding=2, following=1, order_by=table.start_ns)
    near = ibis.range_window(preceding=5_000_000, following=0, order_by=table.start_ns)
    running = ibis.cumulative_window(order_by=table.start_ns)
    return table.select(
        "start_ns",
        rows=table.wall_ns.sum().over(rows),
        near=table.wall_ns.max().over(near),
        running=table.wall_ns.sum().over(running),
    )


def joined(table: Table) -> Table:
    """An equi-join; who has no partner has nulls, and a null is nobody's partner."""
    slow = table.filter(table.wall_ns > 45_000).select(when="start_ns", key="lock_ns")
    sums = slow.group_by("key").agg(partners=_.count(), last=_.when.max())
    return table.left_join(sums, table.lock_ns == sums.key).select("start_ns", "partners", "last")


#: Each question's name, for the tests' names.
QUESTIONS: dict[str, Question] = {
    question.__name__: question
    for question in (
        totals,
        empty,
        arithmetic,
        bins,
        choices,
        filtered,
        worst,
        neighbours,
        windows,
        joined,
    )
}
