"""What a percentile is held against: from how much of a cause on it counts as too much.

Above the median, a cause's own median says what is usual, and a fix brings it down to that. At and
below the median it can't: what strikes every span is usual. There a fix brings a cause to its
median in a baseline ledger, recorded when all was well. Where none is given, it brings a cause to
the least that any span had of it, which is an upper bound of what fixing it can save.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from tailscope.engines import measure
from tailscope.engines.connect import connect
from tailscope.engines.grid import Distribution
from tailscope.engines.measure import Strikes
from tailscope.engines.overview import look_over
from tailscope.engines.spans import Spans, spans_named
from tailscope.engines.timed import Timed
from tailscope.engines.value_counts import Ranked
from tailscope.errors import LedgerError
from tailscope.ledger.causes import RUNNING
from tailscope.ledger.ledger import Ledger
from tailscope.quantity import Interval, duration
from tailscope.statistics.bootstrap import interval_of
from tailscope.statistics.contribution import Side, contributions
from tailscope.statistics.interrupt_penalty import Calm
from tailscope.statistics.span_name import length_s
from tailscope.statistics.storm import calm
from tailscope.statistics.target import Target

#: How far beyond the quartiles the usual ends, in distances between them.
FENCE = 3.0
#: No time is longer (ns), so that all engines can compare with it.
LARGEST_NS = 1 << 62


class Kind(Enum):
    """What a fix brings a cause down to."""

    MEDIAN = "median"
    MINIMUM = "minimum"
    BASELINE = "baseline"


@dataclass(frozen=True)
class Base:
    """What a percentile is held against. Times in ns."""

    kind: Kind
    #: The baseline ledger, its percentile and median, and how many rows these rest on.
    ledger: str | None = None
    target: Interval | None = None
    p50_ns: float | None = None
    rows: int = 0
    #: Of each cause in the baseline: its median, and its mean in the spans around the percentile.
    medians: dict[str, int] = field(default_factory=dict)
    means: dict[str, float] = field(default_factory=dict)
    #: Causes that the baseline could not measure: there the least of this ledger counts.
    unknown: tuple[str, ...] = ()
    #: Running in the baseline.
    calm: Calm | None = None

    @classmethod
    def for_target(cls, target: Target) -> Base:
        """Without a baseline ledger."""
        return cls(Kind.MEDIAN if target.has_tail else Kind.MINIMUM)

    @property
    def is_median(self) -> bool:
        """Whether the ledger's own median is the base: then the target has a tail to explain."""
        return self.kind is Kind.MEDIAN

    def limit(self, cause: str, found: Strikes) -> int:
        """What a fix brings a cause down to (ns), from its values."""
        if self.kind is Kind.MEDIAN:
            return int(found.values.value_at(0.5))
        if self.kind is Kind.BASELINE and cause not in self.unknown:
            return self.medians.get(cause, 0)
        return int(found.ranked.values[0])

    def usual(self, found: Strikes) -> int | None:
        """Up to how much of a cause is usual (ns), where most spans have it and so it varies.

        The outer fence of its logarithms in the spans that have it (Tukey, Exploratory Data
        Analysis, 1977): latencies are spread by factors.
        """
        if self.kind is not Kind.MEDIAN or found.values.value_at(0.5) <= 0:
            return None
        held = found.ranked.values > 0
        values = Ranked(found.ranked.values[held], found.ranked.weights[held]).binned()
        low, high = (values.value_at(quartile) for quartile in (0.25, 0.75))
        return int(min(high * (high / low) ** FENCE, LARGEST_NS))

    def mean(self, cause: str, limit: int) -> float:
        """How much of a cause (ns) the spans have that the target is compared with."""
        if self.kind is Kind.BASELINE and cause not in self.unknown:
            return self.means.get(cause, 0.0)
        return float(limit)

    def words(self) -> str:
        """What a cause is brought down to, to be put after "never more than"."""
        return {
            Kind.MEDIAN: "its own median",
            Kind.MINIMUM: "its least value in any span",
            Kind.BASELINE: f"its median in {self.ledger}",
        }[self.kind]

    def sentence(self, target: Target, causes: Sequence[str]) -> str:
        """Which base is used for some causes, and why."""
        if self.kind is Kind.BASELINE and self.target and self.p50_ns is not None:
            missing = [cause for cause in causes if cause in self.unknown]
            unknown = (
                f"; not measured there, so compared with their least here: {', '.join(missing)}"
                if missing
                else ""
            )
            median = f" and the median {duration(self.p50_ns)}" if target.percent != 50 else ""
            return (
                f"the base is {self.ledger}, where {target.name} is {duration(self.target.ns)}"
                f"{median}: a cause saves what it takes beyond its median there{unknown}"
            )
        if self.kind is Kind.MINIMUM:
            return (
                "the base is the least value of each cause in any span, so savings are upper "
                "bounds; --baseline LEDGER compares with a recording of a normal state"
            )
        return "the base is each cause's own median"

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "kind": self.kind.value,
            "ledger": self.ledger,
            "target_ns": asdict(self.target) if self.target else None,
            "p50_ns": self.p50_ns,
            "rows": self.rows,
            "medians_ns": self.medians,
            "not_measured": list(self.unknown),
        }


def of_ledger(ledger: Ledger, span: str, target: Target, seed: int) -> Base:
    """A recording when all was well: the spans of a name in it."""
    path = ", ".join(str(recording.path) for recording in ledger.recordings)
    with connect(ledger) as engine:
        overview, table = look_over(engine, ledger)
        totals = [total for total in overview.totals if total.span == span]
        if not totals:
            listed = ", ".join(sorted({total.span for total in overview.totals})[:10])
            raise LedgerError(
                f"the baseline {path} has no span named '{span}' to compare with; it has: {listed}"
            )
        spans = spans_named(engine, table, overview, ledger, span)
        rows = sum(total.rows for total in totals)
        unknown = unmeasured(ledger)
        # Another seed than the other ledger's: the same one would draw the same blocks.
        side = Side.of(
            spans, rows, length_s(totals), frozenset(unknown), target.quantile, seed + 1_000_003
        )
        percentile, _ = interval_of(side.walls, side.draws, target.quantile)
        means = contributions(side, target.quantile).causes_ns
        whole = side.walls.distribution()
        return Base(
            Kind.BASELINE,
            path,
            percentile,
            whole.value_at(0.5),
            rows,
            {cause: median(spans, cause, whole) for cause in (*spans.active, RUNNING)},
            means,
            unknown,
            calm(spans, whole.total),
        )


def unmeasured(ledger: Ledger) -> tuple[str, ...]:
    """The causes that a ledger has columns for and could not measure."""
    return tuple(cause for cause in ledger.stored_causes if ledger.is_null(cause))


def median(spans: Spans, cause: str, whole: Distribution) -> int:
    """A cause's median, in the spans in which it was measured."""
    known = spans.knowing((cause,))
    total = whole.total
    if known is not spans:
        total = float(Timed.of(measure.walls(known), spans.blocks).weight.sum())
    return int(measure.strikes(known, cause, total).values.value_at(0.5))


def over(means: Sequence[tuple[float, float]]) -> list[float | None]:
    """Each cause's part (0 to 1) of the time that some spans take longer than others.

    Of pairs of means. Causes of which the slow spans have less are no part of it: theirs is 0, and
    the others' parts add up to 1. None where no cause takes longer.
    """
    grown = [max(mean - base, 0.0) for mean, base in means]
    total = sum(grown)
    return [ns / total if total > 0 else None for ns in grown]
