"""`explain` from end to end: a ledger in, an `Explanation` out, which text, JSON and the report
only present.

Times are float or whole nanoseconds in fields that end in `_ns`; shares are fractions, 0 to 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tailscope import bootstrap, counterfactual, measure, rules, shapley
from tailscope.bootstrap import Interval
from tailscope.cause import MEANING, RUNNING
from tailscope.composition import Composition, LatencyClass, TailBlock
from tailscope.counter import COUNTERS
from tailscope.counterfactual import Baseline, Counterfactual, curve
from tailscope.disagreement import disagreements
from tailscope.engine import Engine
from tailscope.grid import Distribution, lower_edge
from tailscope.ledger import Ledger
from tailscope.measure import Spans, Worst
from tailscope.provenance import Provenance, provenance
from tailscope.rules import Event, Pair, Verdict
from tailscope.sample import sample
from tailscope.shapley import Shares
from tailscope.span_name import SpanName, choose, length_s, name_line
from tailscope.strike import Strike, much, strike
from tailscope.target import Target
from tailscope.timed import Timed
from tailscope.varmri import VarMRI

if TYPE_CHECKING:
    import pandas

#: How many causes at most are fixed at once.
TOGETHER = 3
WORST = 20
#: The tail that most questions go to holds so many times the spans above the target: a fix that
#: brings the percentile below them costs passes over all spans.
TAIL = 5
#: Causes whose absence is drawn.
CURVES = 3
#: Below this many rows above the target, the percentile is one span's luck.
FEW = 10


@dataclass(frozen=True)
class Cause:
    """One row of the table: what a cause has to do with the tail."""

    name: str
    meaning: str
    #: Its part of the tail's excess over the median: mean ns in spans at or above the target less
    #: the mean in the median band, over the same difference of wall time. None where the tail has
    #: no excess.
    share: float | None
    tail_mean_ns: float
    median_mean_ns: float
    #: The cause's own median over all spans: what the counterfactual brings it down to.
    median_ns: float
    #: The target percentile with the cause fixed, and how much lower that is.
    predicted: Interval
    saving: Interval
    #: Its part of what all causes together save, by Shapley; None where it took no part in that.
    fair_ns: float | None
    #: VarMRI's impact value, a fraction of the target; and from how many ns a span was left out.
    impact: float | None
    high_from_ns: int | None
    #: What the rules leave of the impact: None where the cause only goes in proportion to another,
    #: which is `follows`.
    ranked_impact: float | None
    follows: str | None
    #: The part of the rows (0 to 1, weighted) in which it was measured: those judge it.
    measured_share: float
    #: Spans with the cause (weighted), their part of all spans, and the cause's events.
    spans: float
    spans_share: float
    events: float | None


class Causes(tuple[Cause, ...]):
    """The causes of one percentile, the most valuable first."""

    __slots__ = ()

    def to_pandas(self) -> pandas.DataFrame:
        """As a data frame, a cause a row. Needs pandas, which tailscope does not install."""
        import pandas

        return pandas.DataFrame([flat(cause) for cause in self])


@dataclass(frozen=True)
class CounterImpact:
    """A hardware counter's impact value, and what the rules leave of it."""

    name: str
    group: str
    impact: float | None
    high_from: int | None
    ranked_impact: float | None
    cut_by: str | None
    follows: str | None
    measured_share: float


@dataclass(frozen=True)
class Together:
    """The target percentile with several causes fixed at once."""

    causes: tuple[str, ...]
    predicted: Interval
    saving: Interval


@dataclass(frozen=True)
class Explanation:
    """Everything `explain` has to say about one span name."""

    target: Target
    span: SpanName
    p50_ns: float
    at_target: Interval
    tail_mean_ns: float
    median_mean_ns: float
    causes: Causes
    together: tuple[Together, ...]
    #: How what all causes together save is divided among them.
    shares: Shares | None
    counters: tuple[CounterImpact, ...]
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
    method: VarMRI
    worst: tuple[Worst, ...]
    #: Distributions of wall time: as measured (key ""), and with the top causes fixed ("lock",
    #: "lock + io").
    curves: dict[str, Distribution]
    provenance: Provenance
    notes: tuple[str, ...]

    @property
    def excess_ns(self) -> float:
        """By how much the mean of the tail is above the mean of the median band."""
        return self.tail_mean_ns - self.median_mean_ns

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints; the keys are the dataclasses' fields."""
        return {
            "target": self.target.name,
            "span": asdict(self.span),
            "p50_ns": self.p50_ns,
            "target_ns": asdict(self.at_target),
            "excess_ns": self.excess_ns,
            "seconds": self.seconds,
            "causes": [flat(cause) for cause in self.causes],
            "together": [flat(step) for step in self.together],
            "shapley": asdict(self.shares) if self.shares else None,
            "counters": [asdict(counter) for counter in self.counters],
            "pairs": [asdict(pair) for pair in self.pairs],
            "disagreements": list(self.disagreements),
            "never": list(self.never),
            "not_measured": self.provenance.not_measured,
            "others": [asdict(name) for name in self.others],
            "classes": [asdict(chosen) for chosen in self.classes],
            "worst": [asdict(span) for span in self.worst],
            "method": {
                "confidence": bootstrap.CONFIDENCE,
                "replicates": bootstrap.REPLICATES,
                "blocks": self.blocks,
                "block_s": self.block_s,
                "run_length": self.run_length,
                **asdict(self.method),
            },
            "recordings": [asdict(recording) for recording in self.provenance.recordings],
            "rows": self.provenance.rows,
            "rows_left_out": self.provenance.rows_left_out,
            "warnings": list(self.provenance.warnings),
            "notes": list(self.notes),
        }


def flat(item: Cause | Together) -> dict[str, Any]:
    """A dataclass with its intervals laid out as `saving_ns`, `saving_lo_ns`, `saving_hi_ns`."""
    found: dict[str, Any] = {}
    for name, value in asdict(item).items():
        if name in ("predicted", "saving"):
            found |= {
                f"{name}_ns": value["ns"],
                f"{name}_lo_ns": value["lo"],
                f"{name}_hi_ns": value["hi"],
            }
        else:
            found[name] = value
    return found


def explain(
    ledger: Ledger,
    target: Target,
    span: str | None,
    seed: int,
    method: VarMRI = VarMRI(),  # noqa: B008 (it is frozen)
) -> Explanation:
    """Explain the target percentile of one span name (default: the one with most spans)."""
    with Engine(ledger) as engine:
        overview, table = measure.overview(engine, ledger)
        chosen = choose(overview, span)
        spans = measure.spans_named(engine, table, overview, ledger, chosen)
        baseline = start(spans, target, seed)
        whole = baseline.whole
        floor = whole.bin_at(max(0.0, 1 - TAIL * (1 - target.quantile)))
        spans = measure.with_tail(spans, floor)
        by_span = {chosen: whole}
        if len({total.span for total in overview.totals}) > 1:
            by_span |= measure.walls_by_span(engine, table)
        struck, composition = strike_all(spans, baseline, target, method)
        events, known_shares = count_events(spans, baseline, method)
        found = [weigh(name, one, composition) for name, one in struck.items()]
        found.sort(key=lambda cause: (cause.saving.ns, cause.share or 0.0), reverse=True)
        medians = {name: one.median_ns for name, one in struck.items()}
        together = counterfactual.together(spans, baseline, medians, worth_fixing(found))
        drawn = sample(spans, whole, target.quantile, seed)
        shares = shapley.shapley(drawn, medians, worth_sharing(found), target.quantile)
        causes = [Event(cause.name, cause.impact, cause.high_from_ns) for cause in found]
        verdicts, pairs = rules.judge([*causes, *events], drawn, method)
        found = [ruled(cause, verdicts[cause.name], shares) for cause in found]
        curves = {"": whole} | {
            " + ".join(names): curve(spans, baseline, {name: medians[name] for name in names})
            for names in worth_drawing(found, together)
        }
        floor = whole.bin_at(max(0.0, 1 - 2 * WORST / max(whole.total, 1.0)))
        worst = measure.worst(spans, int(lower_edge(floor)), WORST)
    names = [name_line(overview, name, walls, target) for name, walls in by_span.items()]
    names.sort(key=lambda line: line.spans, reverse=True)
    mine = next(line for line in names if line.name == chosen)
    tail_mean, band_mean = composition.means(composition.wall)
    totals = [total for total in overview.totals if total.span == chosen]
    return Explanation(
        target=target,
        span=mine,
        p50_ns=mine.p50_ns,
        at_target=baseline.target,
        tail_mean_ns=tail_mean,
        median_mean_ns=band_mean,
        causes=Causes(found),
        together=tuple(Together(names, one.predicted, one.saving) for names, one in together),
        shares=shares,
        counters=tuple(
            counter_line(event, verdicts[event.name], known_shares[event.name]) for event in events
        ),
        pairs=pairs,
        disagreements=disagreements(found, pairs, baseline.target.ns),
        never=tuple(
            name
            for name in ledger.stored_causes
            if name not in spans.active and not ledger.is_null(name)
        ),
        others=tuple(line for line in names if line.name != chosen),
        classes=composition.classes(),
        timeline=composition.timeline(),
        first_ns=min(total.first_ns for total in totals),
        seconds=length_s(totals),
        blocks=spans.blocks,
        block_s=spans.block_s,
        run_length=baseline.draws.run,
        method=method,
        worst=worst,
        curves=curves,
        provenance=provenance(ledger, overview),
        notes=tuple(remarks(mine, target, baseline)),
    )


def start(spans: Spans, target: Target, seed: int) -> Baseline:
    """The target percentile as it is, with the draws that all intervals share."""
    walls = Timed.of(measure.walls(spans), spans.blocks)
    tail_bin = walls.distribution().bin_at(target.quantile)
    memory = bootstrap.memory(bootstrap.surplus(walls, tail_bin))
    return Baseline.of(walls, target.quantile, bootstrap.draw(spans.blocks, memory, seed))


def strike_all(
    spans: Spans, baseline: Baseline, target: Target, method: VarMRI
) -> tuple[dict[str, Strike], Composition]:
    """Each cause's strikes, `running` last, and what spans are made of."""
    composition = Composition.of(spans, baseline.whole, target, spans.active)
    struck = {}
    for name in spans.active:
        found = struck[name] = strike(spans, baseline, name, method)
        if found.baseline is not baseline:
            composition = composition.scaled_up(name, found.baseline.whole)
    struck[RUNNING] = strike(spans, baseline, RUNNING, method)
    return struck, composition.with_rest()


def count_events(
    spans: Spans, baseline: Baseline, method: VarMRI
) -> tuple[list[Event], dict[str, float]]:
    """The hardware counters' impact values, and in what part of the spans each was measured."""
    events, shares = [], {}
    for name in spans.counters:
        measured = counterfactual.among(spans, baseline, (name,))
        if measured is None:
            continue
        known, base = measured
        found = measure.strikes(known, name, base.whole.total)
        high_from, value = much(known, base, found, name, method)
        events.append(Event(name, value, high_from))
        shares[name] = base.known_share
    return events, shares


def counter_line(event: Event, verdict: Verdict, known_share: float) -> CounterImpact:
    """One counter's row."""
    return CounterImpact(
        name=event.name,
        group=COUNTERS[event.name].group.name,
        impact=event.impact,
        high_from=event.high_from,
        ranked_impact=verdict.impact,
        cut_by=verdict.cut_by,
        follows=verdict.follows,
        measured_share=known_share,
    )


def weigh(name: str, found: Strike, composition: Composition) -> Cause:
    """One cause's row in the table, before the rules and the fair shares."""
    tail, band = composition.means(composition.causes[name])
    tail_wall, band_wall = composition.means(composition.wall)
    excess = tail_wall - band_wall
    known = found.baseline.known_share
    events = found.found.events
    return Cause(
        name=name,
        meaning=MEANING[name],
        share=(tail - band) / excess if excess > 0 else None,
        tail_mean_ns=tail,
        median_mean_ns=band,
        median_ns=found.median_ns,
        predicted=found.without.predicted,
        saving=found.without.saving,
        fair_ns=None,
        impact=found.impact,
        high_from_ns=found.high_ns,
        ranked_impact=found.impact,
        follows=None,
        measured_share=known,
        spans=found.found.spans / known,
        spans_share=found.found.spans / found.baseline.whole.total,
        events=events / known if events is not None else None,
    )


def ruled(cause: Cause, verdict: Verdict, shares: Shares | None) -> Cause:
    """A cause with what needs the other causes: the rules, and its fair share."""
    fair = shares.shares.get(cause.name) if shares else None
    return replace(cause, ranked_impact=verdict.impact, follows=verdict.follows, fair_ns=fair)


def worth_sharing(found: list[Cause]) -> list[str]:
    """The causes in the order in which they get fair shares, `running` among them."""
    weight = {
        cause.name: max(cause.saving.ns, cause.tail_mean_ns - cause.median_mean_ns)
        for cause in found
    }
    names = [name for name, ns in weight.items() if ns > 0]
    return sorted(names, key=lambda name: weight[name], reverse=True)


def worth_fixing(found: list[Cause]) -> list[str]:
    """The causes to fix together: the largest parts of the tail's excess, running apart."""
    candidates = [c for c in found if c.name != RUNNING and (c.share or 0.0) >= 0.02]
    candidates.sort(key=lambda cause: cause.share or 0.0, reverse=True)
    return [cause.name for cause in candidates[:TOGETHER]]


def worth_drawing(
    found: list[Cause], together: list[tuple[tuple[str, ...], Counterfactual]]
) -> list[tuple[str, ...]]:
    """The top causes and the largest set of them: what would be left gets a curve."""
    top = [(cause.name,) for cause in found[:CURVES] if cause.saving.ns > 0]
    return [*top, *(names for names, _ in together[-1:])]


def remarks(line: SpanName, target: Target, baseline: Baseline) -> Iterator[str]:
    """What the reader should know before trusting the figures."""
    above = line.rows * (1 - target.quantile)
    if line.rows == 1:
        yield "there is one span only: it is its own median, percentile and maximum"
    elif above < 1:
        yield (
            f"{line.rows:,} spans are too few for {target.name}: it is the slowest of them; "
            f"{target.name} takes at least {round(1 / (1 - target.quantile)):,}"
        )
    elif above < FEW:
        yield f"{target.name} rests on about {above:.0f} spans: record longer to trust it"
    if line.rows > 1 and baseline.draws.too_few:
        yield (
            "the tail comes in few long bursts: the true interval is wider than shown; "
            "a longer recording would tell"
        )
