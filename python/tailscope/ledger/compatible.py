"""Whether recordings that are put together or compared measured the same thing in the same way.

What differs does not forbid the comparison, but who reads the figures must know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tailscope.ledger.ledger import Recording, number, part
from tailscope.ledger.totals import Total

#: A recording's spans may begin so much before its own begin and after its end, in s: the recorder
#: writes both down when it gets to it.
SLACK_NS = 60 * 10**9


def differences(recordings: Sequence[Recording]) -> Iterator[str]:
    """A sentence for each thing in which recordings differ that should be alike."""
    yield from differing(
        recordings,
        lambda about: number(about, "schema"),
        "were written in different versions of the schema",
        "what the older version lacks is unknown there",
    )
    yield from differing(
        recordings,
        lambda about: about.get("tailscope"),
        "were recorded by different versions of tailscope",
        "a difference may come from the recorder",
    )
    yield from differing(
        recordings,
        lambda about: ", ".join(map(str, found)) if (found := about.get("spans")) else None,
        "have different kinds of spans",
        "their latencies measure different things",
    )
    yield from differing(
        recordings,
        lambda about: part(about, "clock").get("source"),
        "were timed by different clocks",
        "ignore differences of a few ns",
    )


def differing(
    recordings: Sequence[Recording], what: Callable[[dict[str, Any]], Any], how: str, so: str
) -> Iterator[str]:
    """A sentence if the recordings that say something do not all say the same."""
    said: dict[str, str] = {}
    for recording in recordings:
        value = what(recording.about)
        if value is not None:
            said.setdefault(str(value), str(recording.path))
    if len(said) > 1:
        listed = ", ".join(f"{value} in {path}" for value, path in said.items())
        yield f"the recordings {how} ({listed}): {so}"


def mechanisms(base: Sequence[Recording], new: Sequence[Recording]) -> Iterator[str]:
    """A sentence for each measurement that two ledgers took by different mechanisms."""
    first, second = (by_measurement(side) for side in (base, new))
    for name in first.keys() & second.keys():
        if first[name] != second[name]:
            yield (
                f"{name} was measured by {first[name]} in BASE and by {second[name]} in NEW: "
                "part of its change may come from that"
            )


def by_measurement(recordings: Sequence[Recording]) -> dict[str, str]:
    """measurement → mechanism, where one was found."""
    return {
        name: str(step["rung"])
        for recording in recordings
        for name, step in part(recording.about, "ladder").items()
        if isinstance(step, dict) and step.get("rung")
    }


def clocks(recordings: Sequence[Recording], totals: Sequence[Total]) -> Iterator[str]:
    """A sentence for each recording whose rows lie outside its own time."""
    for place, recording in enumerate(recordings):
        started, ended = number(recording.about, "started_ns"), number(recording.about, "ended_ns")
        mine = [total for total in totals if total.ledger == place]
        if started is None or ended is None or not mine:
            continue
        first = min(total.first_ns for total in mine)
        last = max(total.last_ns for total in mine)
        if last < started - SLACK_NS or first > ended + SLACK_NS:
            yield (
                f"the rows of {recording.path} lie outside the time of its recording: they have "
                "another clock than Unix time, or belong to another recording"
            )
