"""The answer in words: one sentence, the same in the terminal and in the report."""

from __future__ import annotations

from tailscope.ledger.causes import RUNNING
from tailscope.quantity import duration, percent
from tailscope.statistics.blame import mostly
from tailscope.statistics.explanation import Cause, Explanation
from tailscope.statistics.ranking import ALONE

#: Below this part of the median, the tail is not longer than the middle: nothing to explain.
FLAT = 0.01


def answer(explanation: Explanation) -> str:
    """What the target percentile is, and what it is made of."""
    name, target = explanation.span.name, explanation.target.name
    at_target, p50 = explanation.span.target_ns, explanation.p50_ns
    if explanation.span.rows == 1:
        return f"{name} has one span only, {duration(at_target)}: there is no tail to explain."
    if not explanation.base.is_median:
        return compared(explanation)
    if at_target - p50 <= FLAT * p50:
        return (
            f"{target} of {name} is {duration(at_target)}, like its median: "
            "there is no tail to explain."
        )
    first = f"{target} of {name} is {duration(at_target)}"
    top = explanation.causes[0]
    if top.saving.ns >= ALONE * (at_target - p50):
        who = mostly(top.name, top.blame)
        meaning = f"{top.meaning}, {who}" if who else top.meaning
        return f"{first}; {duration(top.saving.ns)} of it is {top.name}: {meaning}."
    return f"{first}; {several(explanation)}."


def compared(explanation: Explanation) -> str:
    """The same where causes are held against another base than their medians."""
    base, at_target = explanation.base, explanation.span.target_ns
    first = f"{explanation.target.name} of {explanation.span.name} is {duration(at_target)}"
    more = at_target
    if base.target is not None:
        first += f", and {duration(base.target.ns)} in the baseline"
        more = at_target - base.target.ns
        if more <= FLAT * base.target.ns:
            return f"{first}: it has not grown."
    top = explanation.causes[0]
    if top.saving.ns < ALONE * more:
        return f"{first}; {several(explanation)}."
    who = mostly(top.name, top.blame)
    meaning = f"{top.meaning}, {who}" if who else top.meaning
    if base.target is not None:
        return f"{first}; {duration(top.saving.ns)} of it is {top.name}: {meaning}."
    return f"{first}; up to {duration(top.saving.ns)} of it is {top.name}: {meaning}."


def several(explanation: Explanation) -> str:
    """A tail of several causes: fixing one leaves the others, so none saves much alone."""
    tail = "tail" if explanation.base.is_median else "time beyond the base"
    largest = sorted(explanation.causes, key=lambda cause: cause.share or 0.0, reverse=True)
    named = [cause for cause in largest[:3] if (cause.share or 0.0) >= 0.1]
    if not named:
        return "no cause stands out"
    if len(named) == 1:
        return (
            f"its {tail} is mostly {part(named[0])}, which saves little at "
            f"{explanation.target.name}"
        )
    listed = ", ".join(part(cause) for cause in named[:-1]) + f" and {part(named[-1])}"
    text = f"no single cause explains it: its {tail} is {listed}"
    fixable = tuple(cause.name for cause in named if cause.name != RUNNING)
    for step in explanation.together:
        if set(step.causes) == set(fixable):
            all_named = "both" if len(fixable) == 2 else "all three"
            removed = all_named if len(fixable) == len(named) else " and ".join(fixable)
            return f"{text}; without {removed} it would be {duration(step.predicted.ns)}"
    return text


def part(cause: Cause) -> str:
    """A cause with its share of the tail's excess."""
    return f"{percent(cause.share)} {cause.name}"
