"""`diff` from end to end: two ledgers in, what changed between them out.

Spans are matched by their kind, which is their name. Each kind's percentiles are compared, and what
its target percentile is made of (`contribution`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tailscope.engines.connect import connect
from tailscope.engines.engine import Engine
from tailscope.engines.overview import look_over
from tailscope.engines.spans import spans_named
from tailscope.errors import LedgerError
from tailscope.ledger import compatible, completeness
from tailscope.ledger.causes import CAUSES
from tailscope.ledger.ledger import Ledger
from tailscope.ledger.totals import Overview
from tailscope.quantity import percent
from tailscope.statistics.bootstrap import CONFIDENCE, REPLICATES
from tailscope.statistics.change import MEDIAN, Change, PercentileChange, change, change_dict
from tailscope.statistics.code_change import CodeChange, StackPair
from tailscope.statistics.contribution import Side
from tailscope.statistics.coverage import Coverage, covered
from tailscope.statistics.explanation import FEW
from tailscope.statistics.span_name import length_s, weights_by_name
from tailscope.statistics.storm import in_storms
from tailscope.statistics.target import Target

#: The percentiles that are always compared.
PERCENTILES = (MEDIAN, Target(90), Target(99), Target(99.9))
#: The kinds that are compared, at most: those with most spans.
KINDS = 50


class Verdict(Enum):
    """What `--fail-over` says of a kind: does its target percentile grow by more than the limit?"""

    #: Surely: the whole interval of the growth is above the limit.
    OVER = "over"
    #: Perhaps: the limit lies inside the interval.
    UNSURE = "unsure"
    #: Surely not: the whole interval is at or below the limit.
    WITHIN = "within"


@dataclass(frozen=True)
class Kind:
    """One kind of span that both ledgers have."""

    name: str
    change: Change
    verdict: Verdict | None
    #: The functions that changed; None where a ledger has no stacks.
    code: CodeChange | None = None


@dataclass(frozen=True)
class Diff:
    """Everything `diff` has to say; the kind with most spans first."""

    base: str
    new: str
    target: Target
    #: The growth that is still accepted, a fraction; None where nobody asked.
    fail_over: float | None
    kinds: tuple[Kind, ...]
    only_base: tuple[str, ...]
    only_new: tuple[str, ...]
    #: Causes that one ledger has and the other could not measure.
    unknown_base: tuple[str, ...]
    unknown_new: tuple[str, ...]
    #: What is not in the figures, or may be wrong in them: the first line of every output.
    notices: tuple[str, ...]
    warnings: tuple[str, ...]
    #: What the rows of BASE and of NEW do not cover.
    coverage: tuple[Coverage, Coverage]

    @property
    def is_over(self) -> bool:
        """Whether some kind has surely grown beyond the limit."""
        return any(kind.verdict is Verdict.OVER for kind in self.kinds)

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "notices": list(self.notices),
            "coverage": {
                side: found.to_dict()
                for side, found in zip(("base", "new"), self.coverage, strict=True)
            },
            "base": self.base,
            "new": self.new,
            "target": self.target.name,
            "fail_over": self.fail_over,
            "over": self.is_over if self.fail_over is not None else None,
            "kinds": [kind_dict(kind) for kind in self.kinds],
            "only_base": list(self.only_base),
            "only_new": list(self.only_new),
            "not_measured_in_base": list(self.unknown_base),
            "not_measured_in_new": list(self.unknown_new),
            "method": {"confidence": CONFIDENCE, "replicates": REPLICATES},
            "warnings": list(self.warnings),
        }


def kind_dict(kind: Kind) -> dict[str, Any]:
    """One kind, its intervals laid out."""
    found = kind.change
    return {
        "span": kind.name,
        "verdict": kind.verdict.value if kind.verdict else None,
        **change_dict(found),
        "code": kind.code.to_dict() if kind.code else None,
    }


def diff(
    base: Ledger,
    new: Ledger,
    target: Target,
    span: str | None = None,
    fail_over: float | None = None,
    seed: int = 1,
) -> Diff:
    """Compare two ledgers, kind by kind."""
    with (
        connect(base) as first,
        connect(new) as second,
        closing(StackPair(base, new)) as stacks,
    ):
        before = look_over(first, base)
        after = look_over(second, new)
        weights = weights_by_name(before[0]), weights_by_name(after[0])
        names = matched(weights, span)
        percentiles = (
            PERCENTILES
            if target in PERCENTILES
            else tuple(sorted((*PERCENTILES, target), key=lambda one: one.percent))
        )
        kinds = []
        for name in names[:KINDS]:
            # Different seeds: the same one would draw the same blocks of both.
            sides = (
                side(first, *before, base, name, target, 2 * seed),
                side(second, *after, new, name, target, 2 * seed + 1),
            )
            found = change(*in_storms(*sides, target, seed), target, percentiles)
            functions = stacks.compare(name, sides, found, target.quantile, seed)
            kinds.append(Kind(name, found, verdict(found.target, fail_over), functions))
        targets = [(kind.name, kind.change.target) for kind in kinds]
        of_stacks = tuple(stacks.warnings)
        coverage = (
            covered(first, before[1], before[0], base, [(n, t.base.ns) for n, t in targets]),
            covered(second, after[1], after[0], new, [(n, t.new.ns) for n, t in targets]),
        )
    unknown = [{cause for cause in CAUSES if ledger.is_null(cause)} for ledger in (base, new)]
    return Diff(
        base=", ".join(str(recording.path) for recording in base.recordings),
        new=", ".join(str(recording.path) for recording in new.recordings),
        target=target,
        fail_over=fail_over,
        kinds=tuple(kinds),
        only_base=only(weights[0], weights[1]),
        only_new=only(weights[1], weights[0]),
        unknown_base=tuple(cause for cause in CAUSES if cause in unknown[0] - unknown[1]),
        unknown_new=tuple(cause for cause in CAUSES if cause in unknown[1] - unknown[0]),
        notices=(*incomplete(base, new, before[0], after[0]), *uncovered(coverage)),
        warnings=(*careful(base, new, before[0], after[0], names, kinds, target), *of_stacks),
        coverage=coverage,
    )


def matched(weights: tuple[dict[str, float], dict[str, float]], span: str | None) -> list[str]:
    """The names that both ledgers have, those with most spans first, or the one asked for."""
    both = [name for name in weights[0] if name in weights[1]]
    listed = [", ".join(sorted(side)[:10]) for side in weights]
    if span is not None:
        for side, title, names in zip(weights, ("BASE", "NEW"), listed, strict=True):
            if span not in side:
                raise LedgerError(f"{title} has no span named '{span}'; it has: {names}")
        return [span]
    if not both:
        raise LedgerError(
            f"the ledgers have no kind of span in common: BASE has {listed[0]}, NEW has {listed[1]}"
        )
    return sorted(both, key=lambda name: (-weights[0][name] - weights[1][name], name))


def only(mine: dict[str, float], theirs: dict[str, float]) -> tuple[str, ...]:
    """The names that one ledger has and the other has not."""
    return tuple(sorted(set(mine) - set(theirs)))


def side(
    engine: Engine,
    overview: Overview,
    table: Any,  # noqa: ANN401 (an Ibis table)
    ledger: Ledger,
    name: str,
    target: Target,
    seed: int,
) -> Side:
    """One ledger's spans of a kind."""
    spans = spans_named(engine, table, overview, ledger, name)
    totals = [total for total in overview.totals if total.span == name]
    unknown = frozenset(cause for cause in CAUSES if ledger.is_null(cause))
    rows = sum(total.rows for total in totals)
    return Side.of(spans, rows, length_s(totals), unknown, target.quantile, seed)


def verdict(target: PercentileChange, fail_over: float | None) -> Verdict | None:
    """Whether a kind has grown by more than the limit, as far as its interval tells."""
    if fail_over is None:
        return None
    # From nothing to something is more than any limit; a percentile of 0 ns can't be exceeded.
    if target.relative is None:
        return Verdict.OVER if target.change.lo > 0 else Verdict.UNSURE
    if target.relative.lo > fail_over:
        return Verdict.OVER
    return Verdict.WITHIN if target.relative.hi <= fail_over else Verdict.UNSURE


def uncovered(coverage: tuple[Coverage, Coverage]) -> Iterator[str]:
    """What the rows of either ledger do not cover."""
    for title, side in zip(("BASE", "NEW"), coverage, strict=True):
        yield from (f"{title}: {notice}" for notice in side.notices)


def incomplete(base: Ledger, new: Ledger, before: Overview, after: Overview) -> Iterator[str]:
    """What of either ledger is not in the figures."""
    for ledger, overview, title in ((base, before, "BASE"), (new, after, "NEW")):
        yield from (f"{title}: {notice}" for notice in ledger.notices)
        if overview.left_out:
            yield completeness.senseless(overview.left_out, overview.rows, f" of {title}")


def careful(
    base: Ledger,
    new: Ledger,
    before: Overview,
    after: Overview,
    names: Sequence[str],
    kinds: Sequence[Kind],
    target: Target,
) -> list[str]:
    """What the reader should know before trusting the figures."""
    found = [*base.warnings, *new.warnings]
    found += compatible.differences((*base.recordings, *new.recordings))
    found += sorted(compatible.mechanisms(base.recordings, new.recordings))
    for ledger, overview in ((base, before), (new, after)):
        found += compatible.clocks(ledger.recordings, overview.totals)
    if len(names) > KINDS:
        found.append(f"only the {KINDS} kinds with most spans are compared, of {len(names)}")
    for kind in kinds:
        rows = min(kind.change.base_rows, kind.change.new_rows)
        if rows * target.beyond < FEW:
            found.append(
                f"{target.name} of {kind.name} is based on "
                f"{percent(float(target.beyond))} of {rows:,} spans; record longer to trust it"
            )
    return found
