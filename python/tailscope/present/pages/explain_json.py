"""An `Explanation` from what `tailscope explain --json` printed, as far as its page shows it.

The JSON may come from anybody. Names of causes become names of colours in the page, so a name that
is not a cause's is refused; all other texts are escaped where the page is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from tailscope.base import Base, Kind
from tailscope.blame import Blame, Culprit
from tailscope.bootstrap import Interval
from tailscope.cause import MEANING
from tailscope.composition import LatencyClass, TailBlock
from tailscope.coverage import Coverage
from tailscope.explanation import Causes, Explanation, Together
from tailscope.grid import Distribution
from tailscope.measure import Worst
from tailscope.provenance import Measured, Provenance
from tailscope.segments import Segment, Segments
from tailscope.span_name import SpanName
from tailscope.target import parse
from tailscope.varmri import VarMRI
from tailscope.weighing import Cause

Told = Mapping[str, Any]


def explanation(told: Told) -> Explanation:
    """The explanation; its page has the same content as that of the original."""
    method, pictures = told["method"], told["pictures"]
    return Explanation(
        target=parse(told["target"]),
        span=SpanName(**told["span"]),
        p50_ns=told["p50_ns"],
        at_target=Interval(**told["target_ns"]),
        base=base(told["base"]),
        causes=Causes(map(cause, told["causes"])),
        together=tuple(map(together, told["together"])),
        disagreements=tuple(told["disagreements"]),
        never=tuple(told["never"]),
        others=tuple(SpanName(**other) for other in told["others"]),
        classes=tuple(LatencyClass(**chosen) for chosen in told["classes"]),
        timeline=tuple(
            TailBlock(number, 0.0, causes_ns) for number, causes_ns in enumerate(pictures["timeline"])
        ),
        first_ns=pictures["first_ns"],
        seconds=told["seconds"],
        blocks=method["blocks"],
        block_s=method["block_s"],
        run_length=method["run_length"],
        worst=tuple(Worst(**span) for span in told["worst"]),
        segments=segments(told["segments"]),
        curves={name: curve(one) for name, one in pictures["curves"].items()},
        provenance=provenance(told),
        notes=tuple(told["notes"]),
        # What the page does not show.
        **{"tail_mean_ns": 0.0, "median_mean_ns": 0.0, "replayed_share": 0.0, "method": VarMRI()},
        **{"without": None, "shares": None, "counters": (), "frequency": None, "pairs": ()},
        # Its notices are among the provenance's.
        coverage=Coverage(0.0, {}),
    )


def known(names: Iterable[str]) -> tuple[str, ...]:
    """Names of causes."""
    found = tuple(names)
    for name in found:
        if name not in MEANING:
            raise ValueError(f"there is no cause '{name}'")
    return found


def interval(told: Told, name: str) -> Interval:
    """One of the intervals that `flat` laid out."""
    return Interval(told[f"{name}_ns"], told[f"{name}_lo_ns"], told[f"{name}_hi_ns"])


def without(told: Told, *names: str) -> dict[str, Any]:
    """The other keys."""
    parts = {f"{name}{end}" for name in names for end in ("_ns", "_lo_ns", "_hi_ns")}
    return {key: value for key, value in told.items() if key not in parts}


def cause(told: Told) -> Cause:
    """A cause, from its flat form."""
    known([told["name"]])
    blame = told["blame"]
    if blame is not None:
        blame = Blame(**blame | {"culprits": tuple(Culprit(**one) for one in blame["culprits"])})
    intervals = {name: interval(told, name) for name in ("predicted", "saving")}
    return Cause(**without(told, *intervals) | intervals | {"blame": blame})


def together(told: Told) -> Together:
    """Some causes fixed at once."""
    intervals = {name: interval(told, name) for name in ("predicted", "saving", "again")}
    causes = known(told["causes"])
    return Together(**without(told, *intervals) | intervals | {"causes": causes})


def base(told: Told) -> Base:
    """What causes are held against."""
    target = Interval(**told["target_ns"]) if told["target_ns"] is not None else None
    return Base(Kind(told["kind"]), told["ledger"], target, told["p50_ns"], told["rows"])


def segments(told: Told | None) -> Segments | None:
    """The recording in pieces."""
    if told is None:
        return None
    return Segments(
        length_s=told["length_s"],
        segments=tuple(Segment(**one) for one in told["segments"]),
        too_few=told["too_few"],
        variation=told["variation"],
        **{name: Segment(**told[name]) for name in ("best", "typical", "worst")},
        within=tuple(map(cause, told["within_typical"])),
        across=None,
    )


def curve(told: Told) -> Distribution:
    """A line of the CDF."""
    found = Distribution(np.array(told["bins"], np.int64), np.array(told["weights"], float))
    if len(found.bins) != len(found.weights) or not found.total > 0:
        raise ValueError("a curve without spans")
    return found


def provenance(told: Told) -> Provenance:
    """How it was measured."""
    return Provenance(
        recordings=tuple(Measured(**recording) for recording in told["recordings"]),
        not_measured=told["not_measured"],
        rows=told["rows"],
        rows_left_out=told["rows_left_out"],
        notices=tuple(told["notices"]),
        warnings=tuple(told["warnings"]),
    )
