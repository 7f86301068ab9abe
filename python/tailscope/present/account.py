"""How a ledger was measured: what was kept and lost, and how the intervals were made."""

from __future__ import annotations

from tailscope.ledger.provenance import Measured, fraction
from tailscope.quantity import count, percent
from tailscope.statistics.explanation import Explanation


def kept(recording: Measured) -> str:
    """Which spans were written."""
    some = percent(recording.keep or 1)
    if recording.tail is None:
        return f"{some} of the spans, drawn at random"
    return f"the spans above p{100 * recording.tail:g} of their kind and {some} of the others"


#: The key in `lost` of samples of stacks.
STACKS = "stacks"
#: Entries of which requests are put together. How many of these went with them, nobody knows.
SLICES = "slices"
#: What was mended, by its key in `adjusted` of ledger.json.
ADJUSTED = {
    "overdrawn": "{:,} rows whose causes exceeded their wall time",
    "switches": "{:,} switches that the kernel did not report",
}


def phases(recording: Measured) -> str | None:
    """For how much of the time the recorder was attached, and what that cost; None: always."""
    overhead = recording.overhead
    attached, whole, budget = (fraction(overhead, k) for k in ("attached_ns", "whole_ns", "budget"))
    if attached is None or budget is None or not whole:
        return None
    share = percent(attached / whole)
    words = f"recorded for {share} of the time, to cost the program at most {percent(budget)}"
    for how in ("measured", "predicted"):
        if isinstance(found := overhead.get(how), list) and found:
            return f"{words}: {percent(found[0])} {how}"
    return words


def losses(recording: Measured) -> str:
    """What was recorded, kept and lost."""
    words = [part] if (part := phases(recording)) else []
    if recording.sample is not None and recording.sample < 1:
        words.append(f"{percent(recording.sample)} of requests were sampled")
    if recording.budget is not None:
        words.append(f"kept: up to {recording.budget / 1000:g} kB/s, half of it slow spans")
    elif recording.keep is not None and recording.keep < 1:
        words.append(f"kept: {kept(recording)}")
    if recording.seen is not None:
        words.append(f"{count(recording.seen)} spans seen")
    # Lost stacks cost no row; the line on stacks counts them.
    lost = {name: number for name, number in recording.lost.items() if number and name != STACKS}
    if lost:
        listed = ", ".join(f"{number:,} ({name})" for name, number in lost.items())
        known = recording.seen and SLICES not in lost
        part = f", {percent(sum(lost.values()) / recording.seen)}" if known else ""
        words.append(f"lost: {listed}{part}")
    elif recording.lost:
        words.append("nothing lost")
    else:
        words.append("losses are not known")
    mended = [
        ADJUSTED.get(name, f"{{:,}} ({name})").format(number)
        for name, number in recording.adjusted.items()
        if number
    ]
    if mended:
        words.append(f"adjusted, not lost: {', '.join(mended)}")
    return "; ".join(words)


def intervals(explanation: Explanation) -> str:
    """How the intervals were made."""
    return (
        f"intervals: 95 %, from resampling the recording in {explanation.blocks} blocks of "
        f"{explanation.block_s:.3g} s, {explanation.run_length} at a time"
    )
