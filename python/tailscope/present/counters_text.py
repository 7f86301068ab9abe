"""The hardware counters for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from tailscope.present.terminal import Terminal
from tailscope.quantity import count, percent, ratio
from tailscope.statistics.counter_impact import CounterImpact
from tailscope.statistics.explanation import Explanation


def render(explanation: Explanation, terminal: Terminal, impact: bool) -> Iterator[str]:
    """The hardware counters' impact values, the largest first; without `impact`, how many."""
    ranked = [one for one in explanation.counters if one.ranked_impact is not None]
    if not explanation.counters:
        return
    yield ""
    if not impact:
        counted = len(explanation.counters)
        events = "event" if counted == 1 else "events"
        yield f"hardware counters: {counted} {events}; --impact ranks them"
        return
    yield "hardware counters, by impact:"
    for one in sorted(ranked, key=lambda one: one.ranked_impact or 0.0, reverse=True):
        line = f"{one.name} {ratio(one.ranked_impact)} ({one.group}"
        if one.cut_by and round(one.impact or 0.0, 2) > round(one.ranked_impact or 0.0, 2):
            line += f"; {ratio(one.impact)} before the part of {one.cut_by} is subtracted"
        line += f"; in {percent(one.measured_share)} of the spans"
        if one.high_from is not None:
            line += f", {percent(one.high_share)} of them left out"
        yield from terminal.wrapped(f"  {line}{typical(one, explanation)})", indent="    ")
    if explanation.frequency:
        yield from terminal.wrapped(f"  {frequency(explanation)}", indent="    ")
    dropped = [f"{one.name} (as {one.follows})" for one in explanation.counters if one.follows]
    if dropped:
        text = f"  proportional to another: {', '.join(dropped)}"
        yield from terminal.wrapped(text, indent="    ")


def typical(one: CounterImpact, explanation: Explanation) -> str:
    """A counter's typical values, as the end of a sentence."""
    if one.target_mean is None or one.median_mean is None:
        return ""
    return (
        f"; on average {count(one.target_mean)} around {explanation.target.name}, "
        f"{count(one.median_mean)} around the median"
    )


def frequency(explanation: Explanation) -> str:
    """The average clock frequency around the target and around the median."""
    found = explanation.frequency
    if found is None or found.target_ghz is None or found.median_ghz is None:
        return "the average frequency is not known"
    without = "" if found.with_kernel else ", kernel time without its cycles"
    return (
        f"average frequency {found.target_ghz:.2f} GHz around {explanation.target.name}, "
        f"{found.median_ghz:.2f} GHz around the median{without}"
    )
