"""What of a ledger is not in the figures: damaged and missing files, rows that make no sense.

Each becomes a sentence for the first line of every output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tailscope.ledger.archive import shortened
from tailscope.quantity import percent


@dataclass
class Files:
    """The files of one recording, and what became of them."""

    path: str
    #: Those that lie there.
    found: int
    #: Those that ledger.json counts, and their rows; None where it does not say.
    sealed: int | None = None
    sealed_rows: int | None = None
    #: Those that are read, and their rows.
    used: int = 0
    rows: int = 0
    #: Why files are left out: reason → names.
    left_out: dict[str, list[str]] = field(default_factory=dict)
    #: Whether ledger.json was there and is damaged.
    json_damaged: bool = False
    #: Why damage in these files would not be seen; "" where it would.
    unchecked: str = ""

    @property
    def missing(self) -> int:
        """Files that ledger.json counts and that are not there."""
        return max(0, (self.sealed or 0) - self.found)

    def leave_out(self, why: str, file: str) -> None:
        """Note a file that is not read."""
        self.left_out.setdefault(why, []).append(file)


def notices(recordings: Sequence[Files]) -> Iterator[str]:
    """What a reader must know before any figure, the gravest first."""
    if left_out := incomplete(recordings):
        yield left_out
    for one in recordings:
        if one.json_damaged:
            yield (
                f"DAMAGED: the ledger.json of {one.path} can't be used, so losses, missing files "
                "and unmeasured causes are unknown"
            )
        if one.sealed is not None and one.found > one.sealed:
            yield (
                f"{one.path} has {one.found} files, and its ledger.json counts {one.sealed}: "
                "some are copies, or belong to another ledger"
            )
        if one.used == one.sealed and one.sealed_rows not in (None, one.rows):
            yield (
                f"{one.path} has {one.rows:,} of the {one.sealed_rows:,} rows that its "
                "ledger.json counts"
            )
    reasons = dict.fromkeys(one.unchecked for one in recordings if one.unchecked)
    for why in reasons:
        paths = [one.path for one in recordings if one.unchecked == why]
        yield f"not checked for damage: {shortened(paths)} ({why})"


def incomplete(recordings: Sequence[Files]) -> str | None:
    """Which share of the files and rows is left out and why; None if none is."""
    total = sum(one.found + one.missing for one in recordings)
    left = total - sum(one.used for one in recordings)
    if not left:
        return None
    share = percent(left / total)
    sealed_rows = [one.sealed_rows for one in recordings]
    if all(sealed_rows):
        rows = sum(one.rows for one in recordings)
        share += f", with {percent(max(0.0, 1 - rows / sum(map(int, sealed_rows))))} of the rows"
    reasons: dict[str, list[str]] = {}
    for one in recordings:
        for why, names in one.left_out.items():
            reasons.setdefault(why, []).extend(names)
        if one.missing:
            reasons.setdefault("missing", []).append(f"{one.missing} of {one.path}")
    listed = "; ".join(f"{why}: {shortened(names)}" for why, names in reasons.items())
    verb = "is" if left == 1 else "are"
    return f"INCOMPLETE: {left} of {total} files ({share}) {verb} left out; {listed}"


def senseless(left_out: int, rows: int, whose: str = "") -> str:
    """Rows that are left out because they can't be measurements."""
    return (
        f"INCOMPLETE: {left_out:,} of {rows:,} rows{whose} have impossible values (negative, "
        f"null, not a number or too large) and are left out ({percent(left_out / rows)})"
    )
