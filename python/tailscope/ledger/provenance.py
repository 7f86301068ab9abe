"""How a ledger was measured, what it lost and what measuring cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tailscope.ledger import compatible, completeness
from tailscope.ledger.causes import CAUSES
from tailscope.ledger.ledger import Ledger, Recording, number, part
from tailscope.ledger.totals import Overview

#: What `adjusted` of ledger.json counts.
MENDED = ("overdrawn", "switches")


@dataclass(frozen=True)
class Measured:
    """One recording's own account; None where ledger.json does not say."""

    path: str
    host: str
    kernel: str | None
    arch: str | None
    cpus: int | None
    tailscope: str | None
    seconds: float | None
    sample: float | None
    keep: float | None
    tail: float | None
    budget: int | None
    seen: int | None
    rows: int | None
    #: measurement → how it was taken (`rung`, null: not at all) and `why`.
    ladder: dict[str, Any]
    #: place → how many rows or events it lost.
    lost: dict[str, int]
    #: what was wrong → how many rows or waits were mended. They are in the ledger.
    adjusted: dict[str, int]
    recorder_cpu_ns: int | None
    recorder_rss_bytes: int | None
    #: How a budget of overhead was held, as ledger.json has it; empty: there was none.
    overhead: dict[str, Any]


@dataclass(frozen=True)
class Provenance:
    """All recordings, with what is missing from them."""

    recordings: tuple[Measured, ...]
    #: cause → why it was not measured; these are never shown as 0.
    not_measured: dict[str, str]
    rows: int
    rows_left_out: int
    #: What is not in the figures, or may be wrong in them: the first line of every output.
    notices: tuple[str, ...]
    warnings: tuple[str, ...]

    def reasons(self) -> dict[str, str]:
        """Why causes were not measured → their names, as "stopped, tcp"."""
        found: dict[str, list[str]] = {}
        for name, why in self.not_measured.items():
            found.setdefault(why, []).append(name)
        return {why: ", ".join(names) for why, names in found.items()}


def provenance(ledger: Ledger, overview: Overview) -> Provenance:
    """The account of a ledger whose rows have been seen."""
    measured = tuple(account(recording) for recording in ledger.recordings)
    rows = sum(total.rows for total in overview.totals)
    warnings = [
        *ledger.warnings,
        *compatible.differences(ledger.recordings),
        *compatible.clocks(ledger.recordings, overview.totals),
    ]
    absent: dict[str, str] = {}
    contents = ledger.contents
    for cause in CAUSES:
        extent = contents.extents.get(f"{cause}_ns")
        if ledger.is_null(cause):
            absent[cause] = reason(measured, cause, extent is not None)
        elif extent and extent.nulls:
            warnings.append(
                f"{cause} was measured in {1 - extent.nulls / contents.rows:.0%} of the rows only; "
                "its figures assume that the other rows are like them"
            )
    notices = list(ledger.notices)
    if overview.left_out:
        notices.append(completeness.senseless(overview.left_out, overview.rows))
    return Provenance(measured, absent, rows, overview.left_out, tuple(notices), tuple(warnings))


def reason(recordings: tuple[Measured, ...], cause: str, stored: bool) -> str:
    """Why a cause is null, from the mechanisms."""
    for recording in recordings:
        for name in (cause, cause.split("_")[0]):
            step = recording.ladder.get(name)
            if isinstance(step, dict) and step.get("rung") is None and step.get("why"):
                return str(step["why"])
    return "the ledger does not say why" if stored else "this ledger has no such column"


def account(recording: Recording) -> Measured:
    """ledger.json in the report's words."""
    about = recording.about
    machine = part(about, "machine")
    started, ended = number(about, "started_ns"), number(about, "ended_ns")
    lost, adjusted = part(about, "lost"), part(about, "adjusted")
    # In ledgers of older recorders these are among the losses.
    mended = {name: lost[name] for name in MENDED if name in lost} | adjusted
    cost = part(about, "cost")
    return Measured(
        path=str(recording.path),
        host=recording.host,
        kernel=text(machine, "kernel"),
        arch=text(machine, "arch"),
        cpus=number(machine, "cpus"),
        tailscope=text(about, "tailscope"),
        seconds=(ended - started) / 1e9 if started is not None and ended is not None else None,
        sample=fraction(about, "sample"),
        keep=fraction(about, "keep"),
        tail=fraction(about, "tail"),
        budget=number(about, "budget"),
        seen=number(about, "seen"),
        rows=number(about, "rows"),
        ladder=part(about, "ladder"),
        lost={name: count for name, count in counts(lost).items() if name not in MENDED},
        adjusted=counts(mended),
        recorder_cpu_ns=number(cost, "cpu_ns"),
        recorder_rss_bytes=number(cost, "max_rss_bytes"),
        overhead=part(about, "overhead"),
    )


def counts(of: dict[str, Any]) -> dict[str, int]:
    """The numbers of an object, by name."""
    return {name: count for name in sorted(of) if (count := number(of, name)) is not None}


def text(about: dict[str, Any], key: str) -> str | None:
    """A string of ledger.json; None where it is missing."""
    value = about.get(key)
    return value if isinstance(value, str) else None


def fraction(about: dict[str, Any], key: str) -> float | None:
    """A probability of ledger.json; None where it is missing."""
    value = about.get(key)
    return float(value) if isinstance(value, int | float) else None
