"""The page of one slow request, from the JSON of `tailscope timeline story`.

docs/reference/timeline.md says what each key of the JSON means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailscope.errors import TailscopeError
from tailscope.present.pages.charts import lanes
from tailscope.present.pages.charts.frame import Words, drawn
from tailscope.present.pages.units import milliseconds, whole
from tailscope.quantity import duration

#: The widths of the picture: a desk's; a phone's, which scrolls (px).
WIDE, NARROW = 1180.0, 760.0
#: Gaps in the table. The JSON has all.
LISTED = 2000
#: What a JVM did meanwhile: key, one of them, several.
JVM = (
    ("classes_loaded", "class loaded", "classes loaded"),
    ("classes_initialized", "class initialised", "classes initialised"),
    ("methods_compiled", "method compiled", "methods compiled"),
)
#: The colours, as classes and words.
LEGEND = (
    ("b-late", "held up"),
    ("b-own", "its own work"),
    ("b-net", "the network stack"),
    ("b-self", "its threads"),
    ("b-other", "other threads"),
    ("b-top", "interrupts and softirqs"),
)

Story = Mapping[str, Any]


def context(report: Mapping[str, Any], number: int) -> dict[str, Any]:
    """What the template needs for one of the stories; 1 is the slowest request."""
    stories = report["stories"]
    if not 1 <= number <= len(stories):
        raise TailscopeError(
            f"there is no story {number}: this file has {len(stories)}; "
            "tailscope timeline story -n COUNT --json writes more"
        )
    story = stories[number - 1]
    if story.get("picture") is None:
        raise TailscopeError(
            f"story {number} has no picture in this file; tailscope timeline page -n {number} "
            "WINDOW draws it"
        )
    words = Words(story["sentence"], f"{milliseconds(story['latency_ns'])} in total.")
    hidden = story["picture"]["left_out"]
    return {
        "title": story["sentence"],
        "thread": story["thread"],
        "tid": story["tid"],
        "span": story["span"],
        "events": whole(report["events"]),
        "machine": f"{report['host']}, " if report.get("host") else "",
        "kernel": report["kernel"],
        "remarks": remarks(story),
        "losses": losses(story),
        "picture": drawn(lambda width: lanes.draw(story, words, width), WIDE, NARROW),
        "hidden": f"{hidden:,} intervals are too short to be seen and not drawn." if hidden else "",
        "legend": LEGEND,
        **table(story["gaps"]),
    }


def remarks(story: Story) -> list[str]:
    """What else happened meanwhile and afterwards."""
    found = [f"Meanwhile in {jvm(one)}." for one in story["jvms"]]
    if (later := story["sent_again_ns"]) is not None:
        found.append(
            f"The server sent again {duration(later)} after this answer, without another request."
        )
    return found


def jvm(one: Mapping[str, Any]) -> str:
    """What a JVM did: `java (process 42), 3.2 s old: 210 methods compiled`."""
    age = one["age_ns"]
    old = "" if age is None else f", {age / 1e9:.1f} s old"
    counts = [(one[key], *words) for key, *words in JVM if one[key]]
    done = ", ".join(
        f"{count:,} {single if count == 1 else more}" for count, single, more in counts
    )
    return f"{one['name']} (process {one['process']}){old}: {done}"


def losses(story: Story) -> list[str]:
    """What the window does not have."""
    found = [f"Lost here: {loss}." for loss in story["losses"]]
    if not story["from_packet"] and story["span"] is None:
        found.insert(0, "The first packet is not in the window: for the client it began earlier.")
    return found


def table(gaps: Sequence[Story]) -> dict[str, Any]:
    """The gaps in their order; if there are too many, the longest ones."""
    shown, rest = gaps, ""
    if len(gaps) > LISTED:
        least = sorted((gap["ns"] for gap in gaps), reverse=True)[LISTED - 1]
        shown = [gap for gap in gaps if gap["ns"] >= least][:LISTED]
        time = sum(gap["ns"] for gap in gaps) - sum(gap["ns"] for gap in shown)
        rest = f"{len(gaps) - len(shown):,} shorter gaps take {milliseconds(time)} together."
    rows = [
        {
            "at": milliseconds(gap["at_ns"]),
            "long": milliseconds(gap["ns"]),
            "style": lanes.style(gap["kind"]),
            "name": gap.get("words", gap["name"]),
        }
        for gap in shown
    ]
    return {"gaps": rows, "rest": rest}
