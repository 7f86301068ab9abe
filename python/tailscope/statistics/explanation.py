"""`explain` from end to end: a ledger in, an `Explanation` out. `tailscope.present` only shows it.

Times are float or whole nanoseconds in fields that end in `_ns`; shares are fractions, 0 to 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from tailscope.engines import measure
from tailscope.engines.connect import connect
from tailscope.engines.draw import load_if_few
from tailscope.engines.grid import Distribution, last_quantile, lower_edge, tail_quantiles
from tailscope.engines.measure import Worst
from tailscope.engines.overview import look_over, walls_by_span
from tailscope.engines.spans import Spans, spans_named
from tailscope.ledger.ledger import Ledger
from tailscope.ledger.provenance import Provenance, provenance
from tailscope.quantity import Interval, duration, percent
from tailscope.statistics import blamed_part, bootstrap
from tailscope.statistics.base import Base, of_ledger
from tailscope.statistics.chain import Chain, open_chain
from tailscope.statistics.code import Code, code
from tailscope.statistics.composition import LatencyClass, TailBlock
from tailscope.statistics.counter_impact import CounterImpact, Frequency, frequency_dict
from tailscope.statistics.counterfactual import Baseline, Counterfactual, curve
from tailscope.statistics.coverage import Coverage, covered
from tailscope.statistics.disagreement import disagreements
from tailscope.statistics.ranking import Cause, Ranking, flat, rank_all, start
from tailscope.statistics.replay import Queued, with_queue
from tailscope.statistics.rules import Pair
from tailscope.statistics.segments import Segments, cut, segments_dict
from tailscope.statistics.shapley import Shares
from tailscope.statistics.slow_and_usual import apart
from tailscope.statistics.span_name import SpanName, choose, length_s, name_line
from tailscope.statistics.subset import with_subset, with_tail
from tailscope.statistics.target import Target
from tailscope.statistics.varmri import VarMRI

WORST = 20
#: The tail that most questions go to holds so many times the spans above the target: a fix that
#: brings the percentile below them costs passes over all spans.
TAIL = 5
#: Causes whose absence is drawn.
CURVES = 3
#: Below this many rows above the target, the percentile is one span's luck.
FEW = 10


@dataclass(frozen=True)
class Together:
    """The target percentile with several causes fixed at once."""

    causes: tuple[str, ...]
    predicted: Interval
    saving: Interval
    #: Where the percentile would lie in another recording, as long as this one.
    again: Interval
    #: The part of the saving that is the cache penalty of these causes.
    cold_ns: float = 0.0
    #: How much more is saved if all running goes with them that may be their penalty.
    perhaps_ns: float = 0.0
    #: How much less is saved if spans keep what is usual of some of these causes, and of which;
    #: None: that was not computed.
    usual_ns: float | None = None
    usual_of: tuple[str, ...] = ()

    @classmethod
    def of(cls, causes: Sequence[str], found: Counterfactual) -> Together:
        """What was found with these causes fixed."""
        intervals = found.predicted, found.saving, found.again
        parts = found.cold_ns, found.perhaps_ns, found.usual_ns, found.usual_of
        return cls(tuple(causes), *intervals, *parts)


@dataclass(frozen=True)
class Explanation:
    """Everything `explain` has to say about one span name."""

    target: Target
    span: SpanName
    p50_ns: float
    at_target: Interval
    #: The mean wall time of the spans at or above the target (or around one at or below the
    #: median), and of those that they are compared with.
    tail_mean_ns: float
    median_mean_ns: float
    #: What a cause is held against.
    base: Base
    causes: tuple[Cause, ...]
    together: tuple[Together, ...]
    #: With those fixed at once that were asked for.
    without: Together | None
    #: How what all causes together save is divided among them.
    shares: Shares | None
    counters: tuple[CounterImpact, ...]
    #: The average clock frequency; None where no cycles were counted.
    frequency: Frequency | None
    #: Causes and counters that go together and that no rule tells apart.
    pairs: tuple[Pair, ...]
    #: Why the two methods rank some causes differently, a sentence each.
    disagreements: tuple[str, ...]
    #: Causes that were measured and took no time in any span.
    never: tuple[str, ...]
    others: tuple[SpanName, ...]
    classes: tuple[LatencyClass, ...]
    timeline: tuple[TailBlock, ...]
    #: When the first span began, ns since the Unix epoch; and how long the recordings lasted.
    first_ns: int
    seconds: float
    blocks: int
    block_s: float
    run_length: int
    #: The part of the spans (0 to 1) that were replayed: savings contain the queue behind a cause,
    #: as it was in these. 0 where that is not known.
    replayed_share: float
    method: VarMRI
    worst: tuple[Worst, ...]
    #: The recording in pieces of time, where that was asked for.
    segments: Segments | None
    #: Distributions of wall time: as measured (key ""), and with the top causes fixed ("lock",
    #: "lock + io").
    curves: dict[str, Distribution]
    provenance: Provenance
    notes: tuple[str, ...]
    #: What the rows do not cover; its notices come before every figure.
    coverage: Coverage
    #: The functions behind the causes; None where the ledger has no stacks.
    code: Code | None
    #: What other servers did meanwhile, where their ledger was named.
    through: Chain | None = None

    @property
    def notices(self) -> tuple[str, ...]:
        """What the reader must know before the first figure: sentences without a full stop."""
        chain = self.through.notices if self.through else ()
        return (*self.provenance.notices, *self.coverage.notices, *chain)

    @property
    def excess_ns(self) -> float:
        """By how much the mean of the tail is above the mean of the median band, or of the base."""
        return self.tail_mean_ns - self.median_mean_ns

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints; the keys are the dataclasses' fields."""
        return {
            "notices": list(self.notices),
            "kind": "explain",
            "coverage": self.coverage.to_dict(),
            "target": self.target.name,
            "span": asdict(self.span),
            "p50_ns": self.p50_ns,
            "target_ns": asdict(self.at_target),
            "excess_ns": self.excess_ns,
            "base": self.base.to_dict(),
            "seconds": self.seconds,
            "causes": [flat(cause) for cause in self.causes],
            "together": [flat(step) for step in self.together],
            "without": flat(self.without) if self.without else None,
            "shapley": asdict(self.shares) if self.shares else None,
            "counters": [asdict(counter) for counter in self.counters],
            "frequency": frequency_dict(self.frequency),
            "pairs": [asdict(pair) for pair in self.pairs],
            "disagreements": list(self.disagreements),
            "never": list(self.never),
            "not_measured": self.provenance.not_measured,
            "others": [asdict(name) for name in self.others],
            "classes": [asdict(chosen) for chosen in self.classes],
            "code": self.code.to_dict() if self.code else None,
            "worst": [asdict(span) for span in self.worst],
            "segments": segments_dict(self.segments) if self.segments else None,
            "through": asdict(self.through) if self.through else None,
            "method": {
                "confidence": bootstrap.CONFIDENCE,
                "replicates": bootstrap.REPLICATES,
                "blocks": self.blocks,
                "block_s": self.block_s,
                "run_length": self.run_length,
                "replayed": self.replayed_share > 0,
                "replayed_share": self.replayed_share,
                **asdict(self.method),
            },
            "recordings": [asdict(recording) for recording in self.provenance.recordings],
            "rows": self.provenance.rows,
            "rows_left_out": self.provenance.rows_left_out,
            "warnings": list(self.provenance.warnings),
            "notes": list(self.notes),
            "pictures": self.pictures(),
        }

    def pictures(self) -> dict[str, Any]:
        """What only the pictures of the page show: the lines of the CDF, and the tail over time."""
        quantiles = tail_quantiles(last_quantile(self.curves[""]))
        sketches = {name: curve.sketch(quantiles) for name, curve in self.curves.items()}
        return {
            "first_ns": self.first_ns,
            "curves": {
                name: {"bins": curve.bins.tolist(), "weights": curve.weights.tolist()}
                for name, curve in sketches.items()
            },
            "timeline": [
                {name: ns for name, ns in block.causes_ns.items() if ns} for block in self.timeline
            ],
        }


def explain(
    ledger: Ledger,
    target: Target,
    span: str | None,
    seed: int,
    method: VarMRI = VarMRI(),  # noqa: B008 (it is frozen)
    segment_ns: int | None = None,
    without: Sequence[str] = (),
    compared: Ledger | None = None,
    through: Ledger | None = None,
) -> Explanation:
    """Explain the target percentile of one span name (default: the one with most spans).

    `segment_ns`: the recording is also cut into segments of this length. `without`: what is fixed
    at once, for a prediction (see `blamed_part`). `compared`: a baseline ledger to hold the causes
    against. `through`: the ledger of a server that the requests asked, for `downstream`.
    """
    with connect(ledger) as engine:
        overview, table = look_over(engine, ledger)
        chosen = choose(overview, span)
        totals = [total for total in overview.totals if total.span == chosen]
        spans = spans_named(engine, table, overview, ledger, chosen)
        rows = sum(total.rows for total in totals)
        spans, baseline = prepared(spans, rows, target, seed)
        by_span = {chosen: baseline.whole}
        if len({total.span for total in overview.totals}) > 1:
            by_span |= walls_by_span(engine, table)
        base = of_ledger(compared, chosen, target, seed) if compared else Base.for_target(target)
        ranking = rank_all(spans, baseline, target, seed, method, base)
        fixed = blamed_part.without(spans, baseline, ranking.remedies, without) if without else None
        curves = distributions(spans, baseline, ranking)
        worst = slowest(spans, baseline.whole)
        tail_mean, band_mean = means(ranking, base)
        groups, excess = partial(apart, spans, baseline), tail_mean - band_mean
        has_usual = target.has_tail and base.is_median
        functions = code(ledger, chosen, groups, excess, seed) if has_usual else None
        coverage = covered(engine, table, overview, ledger, [(chosen, baseline.target.ns)])
        chain = open_chain(spans, baseline.target.ns, ledger, through) if through else None
        segments = (
            cut(spans, ledger, totals, segment_ns, target, seed, method) if segment_ns else None
        )
    names = [name_line(overview, name, walls, target) for name, walls in by_span.items()]
    names.sort(key=lambda line: line.spans, reverse=True)
    mine = next(line for line in names if line.name == chosen)
    return Explanation(
        target=target,
        span=mine,
        p50_ns=mine.p50_ns,
        at_target=baseline.target,
        tail_mean_ns=tail_mean,
        median_mean_ns=band_mean,
        base=base,
        causes=ranking.causes,
        together=tuple(Together.of(names, one) for names, one in ranking.together),
        without=Together.of(without, fixed) if fixed else None,
        shares=ranking.shares,
        counters=ranking.counters,
        frequency=ranking.frequency,
        pairs=ranking.pairs,
        disagreements=disagreements(list(ranking.causes), ranking.pairs, baseline.target.ns),
        never=never_seen(ledger, spans),
        others=tuple(line for line in names if line.name != chosen),
        classes=ranking.composition.classes(),
        timeline=ranking.composition.timeline(),
        first_ns=min(total.first_ns for total in totals),
        seconds=length_s(totals),
        blocks=spans.blocks,
        block_s=spans.block_s,
        run_length=baseline.draws.run,
        replayed_share=spans.queued.share if isinstance(spans.queued, Queued) else 0.0,
        method=method,
        worst=worst,
        segments=segments,
        curves=curves,
        provenance=provenance(ledger, overview),
        notes=(*remarks(mine, target, baseline), *on_queues(spans)),
        coverage=coverage,
        through=chain,
        code=functions,
    )


def slowest(spans: Spans, walls: Distribution) -> tuple[Worst, ...]:
    """The slowest spans of all, whose times are in the histogram."""
    floor = walls.bin_at(max(0.0, 1 - 2 * WORST / max(walls.total, 1.0)))
    return measure.worst(spans, int(lower_edge(floor)), WORST)


def prepared(spans: Spans, rows: int, target: Target, seed: int) -> tuple[Spans, Baseline]:
    """The spans of one name, which are so many rows, with those kept apart that are asked for again
    and again; and the target percentile as it is."""
    spans = load_if_few(spans, rows)
    baseline = start(spans, target, seed)
    floor = baseline.whole.bin_at(max(0.0, float(1 - TAIL * target.beyond)))
    spans = with_subset(spans, rows, baseline, floor, seed)
    spans = with_queue(spans, baseline.walls, seed)
    return with_tail(spans, floor), baseline


def means(ranking: Ranking, base: Base) -> tuple[float, float]:
    """The mean wall time of the spans that are explained, and of those they are compared with."""
    tail, band = ranking.composition.means(ranking.composition.wall)
    if not base.is_median:
        band = sum(cause.median_mean_ns for cause in ranking.causes)
    return tail, band


def never_seen(ledger: Ledger, spans: Spans) -> tuple[str, ...]:
    """The causes that were measured and took no time in any span."""
    return tuple(
        name
        for name in ledger.stored_causes
        if name not in spans.active and not ledger.is_null(name)
    )


def distributions(spans: Spans, baseline: Baseline, ranking: Ranking) -> dict[str, Distribution]:
    """Of wall time: as measured (key ""), and with the top causes fixed ("lock", "lock + io")."""
    return {"": baseline.whole} | {
        " + ".join(names): curve(spans, baseline, ranking.remedies.fix(names))
        for names in worth_drawing(ranking.causes, ranking.together)
    }


def worth_drawing(
    found: Sequence[Cause], together: Sequence[tuple[tuple[str, ...], Counterfactual]]
) -> list[tuple[str, ...]]:
    """The top causes and the largest set of them: what would be left gets a curve."""
    top = [(cause.name,) for cause in found[:CURVES] if cause.saving.ns > 0]
    return [*top, *(names for names, _ in together[-1:])]


#: Where no time window is small enough.
TOO_MANY = (
    "too many spans start at once to replay the queue behind a cause: savings do not include "
    "the queue"
)
#: From which part of the spans that waited on it is said that their queue was cut.
WORTH_SAYING = 0.01


def on_queues(spans: Spans) -> Iterator[str]:
    """How far the queue behind a cause was replayed, where requests can be."""
    if isinstance(spans.queued, Queued):
        yield from drawn(spans.queued)
    elif spans.replayable:
        yield TOO_MANY


def drawn(queued: Queued) -> Iterator[str]:
    """How much of a long recording was replayed, and whether that was enough."""
    if queued.share == 1:
        return
    yield (
        f"the queue behind a cause is that of {percent(queued.share)} of the spans: requests were "
        f"replayed in {queued.windows:,} time windows of {duration(queued.length_ns)}, drawn at "
        "random; the intervals include the sampling error"
    )
    if queued.cut_share >= WORTH_SAYING:
        yield (
            f"{percent(queued.cut_share)} of the spans that waited in these windows waited since "
            "before the window's start: the queue behind a cause is longer than shown"
        )


def remarks(line: SpanName, target: Target, baseline: Baseline) -> Iterator[str]:
    """What the reader should know before trusting the figures."""
    above = float(line.rows * target.beyond)
    if line.rows == 1:
        yield "there is one span only: it is its own median, percentile and maximum"
    elif above < 1:
        yield (
            f"{line.rows:,} spans are too few for {target.name}: it is the slowest of them; "
            f"{target.name} needs at least {round(1 / target.beyond):,}"
        )
    elif above < FEW:
        yield f"{target.name} is based on about {above:.0f} spans; record longer to trust it"
    if line.rows > 1 and baseline.draws.too_few:
        yield (
            "the tail comes in a few long bursts, so the true interval is wider than shown; "
            "record longer"
        )
