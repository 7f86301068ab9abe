"""An `Explanation` from what `tailscope explain --json` printed, as far as its page shows it.

The JSON may come from anybody. Names of causes become names of colours in the page, so a name that
is not a cause's is refused; all other texts are escaped where the page is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tailscope.engines.grid import Distribution
from tailscope.engines.measure import Worst
from tailscope.ledger.causes import MEANING
from tailscope.ledger.provenance import Measured, Provenance
from tailscope.ledger.stacks import Sampling
from tailscope.quantity import Interval
from tailscope.statistics.base import Base, Kind
from tailscope.statistics.blame import Blame, Blamed
from tailscope.statistics.chain import Chain, Opened
from tailscope.statistics.code import CauseCode, Code, FunctionDifference
from tailscope.statistics.composition import LatencyClass, TailBlock
from tailscope.statistics.coverage import Coverage
from tailscope.statistics.explanation import Explanation, Together
from tailscope.statistics.flame import DEEPEST, Call
from tailscope.statistics.ranking import Cause
from tailscope.statistics.segments import Segment, Segments
from tailscope.statistics.span_name import SpanName
from tailscope.statistics.target import parse
from tailscope.statistics.varmri import VarMRI

Given = Mapping[str, Any]


def explanation(given: Given) -> Explanation:
    """The explanation; its page has the same content as that of the original."""
    method, pictures = given["method"], given["pictures"]
    through = chain(given.get("through"))
    return Explanation(
        target=parse(given["target"]),
        span=SpanName(**given["span"]),
        p50_ns=given["p50_ns"],
        at_target=Interval(**given["target_ns"]),
        base=base(given["base"]),
        causes=tuple(map(cause, given["causes"])),
        together=tuple(map(together, given["together"])),
        disagreements=tuple(given["disagreements"]),
        never=tuple(given["never"]),
        others=tuple(SpanName(**other) for other in given["others"]),
        classes=tuple(LatencyClass(**chosen) for chosen in given["classes"]),
        timeline=tuple(
            TailBlock(number, 0.0, causes_ns)
            for number, causes_ns in enumerate(pictures["timeline"])
        ),
        first_ns=pictures["first_ns"],
        seconds=given["seconds"],
        blocks=method["blocks"],
        block_s=method["block_s"],
        run_length=method["run_length"],
        worst=tuple(Worst(**span) for span in given["worst"]),
        segments=segments(given["segments"]),
        curves={name: curve(one) for name, one in pictures["curves"].items()},
        provenance=provenance(given, through.notices if through else ()),
        notes=tuple(given["notes"]),
        # What the page does not show.
        **{"tail_mean_ns": 0.0, "median_mean_ns": 0.0, "replayed_share": 0.0, "method": VarMRI()},
        **{"without": None, "shares": None, "counters": (), "frequency": None, "pairs": ()},
        # Its notices are among the provenance's.
        coverage=Coverage(0.0, {}),
        code=code(given.get("code")),
        through=through,
    )


def known(names: Iterable[str]) -> tuple[str, ...]:
    """Names of causes."""
    found = tuple(names)
    for name in found:
        if name not in MEANING:
            raise ValueError(f"there is no cause '{name}'")
    return found


def interval(given: Given, name: str) -> Interval:
    """One of the intervals that `flat` laid out."""
    return Interval(given[f"{name}_ns"], given[f"{name}_lo_ns"], given[f"{name}_hi_ns"])


def without(given: Given, *names: str) -> dict[str, Any]:
    """The other keys."""
    parts = {f"{name}{end}" for name in names for end in ("_ns", "_lo_ns", "_hi_ns")}
    return {key: value for key, value in given.items() if key not in parts}


def cause(given: Given) -> Cause:
    """A cause, from its flat form."""
    known([given["name"]])
    blame = given["blame"]
    if blame is not None:
        blame = Blame(**blame | {"culprits": tuple(Blamed(**one) for one in blame["culprits"])})
    intervals = {name: interval(given, name) for name in ("predicted", "saving")}
    return Cause(**without(given, *intervals) | intervals | {"blame": blame})


def together(given: Given) -> Together:
    """Some causes fixed at once."""
    intervals = {name: interval(given, name) for name in ("predicted", "saving", "again")}
    lists = {"causes": known(given["causes"]), "usual_of": known(given.get("usual_of", ()))}
    return Together(**without(given, *intervals) | intervals | lists)


def base(given: Given) -> Base:
    """What causes are held against."""
    target = Interval(**given["target_ns"]) if given["target_ns"] is not None else None
    return Base(Kind(given["kind"]), given["ledger"], target, given["p50_ns"], given["rows"])


def segments(given: Given | None) -> Segments | None:
    """The recording in pieces."""
    if given is None:
        return None
    return Segments(
        length_s=given["length_s"],
        segments=tuple(Segment(**one) for one in given["segments"]),
        too_few=given["too_few"],
        variation=given["variation"],
        **{name: Segment(**given[name]) for name in ("best", "typical", "worst")},
        within=tuple(map(cause, given["within_typical"])),
        across=None,
    )


def code(given: Given | None) -> Code | None:
    """The functions behind the causes."""
    if given is None:
        return None
    sampling = Sampling(**given["sampling"] | {"warnings": tuple(given["sampling"]["warnings"])})
    causes = tuple(
        CauseCode(
            **one
            | {"functions": tuple(map(function, one["functions"])), "calls": call(one["calls"])}
        )
        for one in given["causes"]
    )
    usual_ns = tuple(given["usual_ns"])
    return Code(**given | {"sampling": sampling, "causes": causes, "usual_ns": usual_ns})


def call(given: Given | None, depth: int = 0) -> Call | None:
    """A call with those below it."""
    if given is None:
        return None
    if depth > DEEPEST:
        raise ValueError("calls nest too deeply")
    below = tuple(filter(None, (call(one, depth + 1) for one in given["calls"])))
    return Call(str(given["name"]), given["tail_ns"], given["usual_ns"], below)


def function(given: Given) -> FunctionDifference:
    """A function under a cause."""
    whole = given.get("with_calls")
    intervals = {
        "difference": Interval(**given["difference"]),
        "with_calls": Interval(**whole) if whole is not None else None,
    }
    return FunctionDifference(**given | intervals)


def curve(given: Given) -> Distribution:
    """A line of the CDF."""
    found = Distribution(np.array(given["bins"], np.int64), np.array(given["weights"], float))
    if len(found.bins) != len(found.weights) or not found.total > 0:
        raise ValueError("a curve without spans")
    return found


def chain(given: Given | None) -> Chain | None:
    """What another server did while requests waited for it."""
    if given is None:
        return None
    opened = {name: Opened(**given[name]) for name in ("tail", "every")}
    texts = {name: tuple(map(str, given[name])) for name in ("through", "hosts")}
    return Chain(**given | opened | texts)


def provenance(given: Given, others: Sequence[str]) -> Provenance:
    """How it was measured. Others have these notices."""
    return Provenance(
        recordings=tuple(Measured(**recording) for recording in given["recordings"]),
        not_measured=given["not_measured"],
        rows=given["rows"],
        rows_left_out=given["rows_left_out"],
        notices=tuple(notice for notice in given["notices"] if notice not in others),
        warnings=tuple(given["warnings"]),
    )
