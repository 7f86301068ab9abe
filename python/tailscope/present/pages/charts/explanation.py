"""The pictures of the report, each drawn for a width: one for a desk, one for a phone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tailscope.engines.grid import Distribution, last_quantile, middle, stretch, tail_quantiles
from tailscope.ledger.causes import CAUSES, RUNNING
from tailscope.present.svg import box, dot, label, line, path, picture
from tailscope.quantity import duration, percent
from tailscope.statistics.composition import LatencyClass
from tailscope.statistics.explanation import Explanation

#: Stacking order: the span's own work first, then the causes as in the schema.
ORDER = (RUNNING, *CAUSES)
#: A part of a bar narrower than this (px) can't be seen and is not drawn.
VISIBLE = 0.15
DECADES = "123456789"


def latency_ticks(low: float, high: float, most: int) -> list[float]:
    """Round values between two latencies: powers of ten, with 2 and 5 between if there is room."""
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [
            step * 10.0**power
            for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            for step in steps
            if low <= step * 10.0**power <= high
        ]
        if len(ticks) <= most:
            return ticks
    return ticks[:: math.ceil(len(ticks) / most)]


def round_ticks(high: float, most: int) -> list[float]:
    """Round values from 0 up to a value, on a linear axis."""
    if high <= 0:
        return [0.0]
    rough = high / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough)
    return [step * number for number in range(int(high / step + 1e-9) + 1)]


def clock_ticks(seconds: float, most: int) -> list[float]:
    """Round times from 0 up to a length: minutes and hours where there are some."""
    if seconds < 100:
        return round_ticks(seconds, most)
    steps = [10.0, 15.0, 20.0, 30.0]
    steps += [60.0 * m for m in (1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 720)]
    steps += [86_400.0 * days for days in (1, 2, 5, 10, 20, 50, 100, 200, 500)]
    step = next((size for size in steps if size * most >= seconds), seconds)
    return [step * number for number in range(int(seconds / step + 1e-9) + 1)]


def plain(ns: float) -> str:
    """A tick's latency: 50 µs, 1 ms."""
    return duration(ns).replace(".0 ", " ").replace(".00 ", " ")


def shown_curves(explanation: Explanation) -> list[str]:
    """The causes whose absence is worth a line."""
    floor = 0.01 * explanation.at_target.ns
    drawn = explanation.curves
    return [c.name for c in explanation.causes if c.name in drawn and c.saving.ns > floor]


def joint_curve(explanation: Explanation) -> str | None:
    """The largest set of causes fixed at once, where the first of them alone leaves much of it."""
    if not explanation.together:
        return None
    last = explanation.together[-1]
    alone = max(cause.saving.ns for cause in explanation.causes)
    return " + ".join(last.causes) if last.saving.ns > 1.1 * alone else None


def cdf(explanation: Explanation, width: float) -> str:
    """How many spans are faster than a latency, measured and without each of the top causes."""
    height = 380.0 if width > 500 else 330.0
    left, right, top, bottom = 64.0, 16.0, 14.0, 34.0
    whole = explanation.curves[""]
    last = last_quantile(whole)
    names = shown_curves(explanation)
    joint = joint_curve(explanation)
    keys = ("", *names) if joint is None else ("", *names, joint)
    curves = {name: points(explanation.curves[name], last) for name in keys}
    low = min(float(values[0]) for _, values in curves.values())
    high = max(float(values[-1]) for _, values in curves.values())
    low, high = max(low, 1.0) / 1.05, max(high, 2.0) * 1.05
    tall = stretch(last)

    def x(ns: float) -> float:
        share = math.log(max(ns, low) / low) / math.log(high / low)
        return left + share * (width - left - right)

    def y(quantile: float) -> float:
        return height - bottom - stretch(quantile) / tall * (height - top - bottom)

    parts = []
    for tick in latency_ticks(low, high, 10 if width > 500 else 5):
        parts.append(line(x(tick), top, x(tick), height - bottom, "grid"))
        parts.append(label(x(tick), height - bottom + 18, plain(tick), "tick", "middle"))
    for quantile in (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999):
        if quantile <= last + 1e-12:
            parts.append(line(left, y(quantile), width - right, y(quantile), "grid"))
            parts.append(label(left - 8, y(quantile) + 4, f"p{100 * quantile:.6g}", "tick", "end"))
    goal = explanation.target.quantile
    parts.append(line(left, y(goal), width - right, y(goal), "goal"))
    for name in reversed(keys):
        quantiles, values = curves[name]
        style = "dashed" if name == joint else f"s-{name}" if name else "measured"
        tip = f"without {name}" if name else "as measured"
        parts.append(
            path(
                [(x(v), y(q)) for q, v in zip(quantiles, values, strict=True)],
                f"curve {style}",
                tip,
            )
        )
    parts += crossings(explanation, names, x, y(goal), width - right)
    words = (
        f"Distribution of latency: {explanation.target.name} is "
        f"{duration(explanation.at_target.ns)}, the median {duration(explanation.p50_ns)}"
    )
    return picture(width, height, words, parts)


def crossings(explanation, names, x, y, edge) -> list[str]:  # noqa: ANN001
    """Dots where the curves cross the target, and what the first cause is worth between them."""
    parts = []
    at = x(explanation.at_target.ns)
    named = False
    if names:
        first = next(c for c in explanation.causes if c.name == names[0])
        to = x(max(first.predicted.ns, 1.0))
        parts.append(line(to, y, at, y, f"arrow s-{first.name}"))
        if named := at - to > 190:
            text = f"{duration(first.saving.ns)} {first.name}"
            parts.append(label((at + to) / 2, y - 8, text, "worth", "middle"))
        parts.append(dot(to, y, f"f-{first.name}"))
        parts.append(label(to - 8, y - 8, duration(first.predicted.ns), "value", "end"))
    parts.append(dot(at, y, "ink"))
    anchor = "end" if at > edge - 70 else "start"
    shift = -8 if anchor == "end" else 8
    # To the left below it is the curve itself.
    drop = -8 if anchor == "end" and not named else 18
    parts.append(label(at + shift, y + drop, duration(explanation.at_target.ns), "value", anchor))
    return parts


def points(curve: Distribution, last: float) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles evenly spread on the stretched axis, and their values in ns."""
    quantiles = tail_quantiles(last)
    return quantiles, np.maximum(middle(curve.bins)[curve.places(quantiles)], 1.0)


def rounded(percentile: float) -> str:
    """A class' edge: 45, 99.5, 99.99."""
    digits = 0 if percentile < 90 else 1 if percentile < 99.05 else 2
    text = f"{percentile:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def stack(
    values: dict[str, float], x: float, y: float, width: float, height: float, whole: float
) -> list[str]:
    """A bar of causes from left to right; `whole` ns are `width` wide."""
    parts = []
    for name in ORDER:
        ns = values.get(name, 0.0)
        size = width * ns / whole if whole > 0 else 0.0
        if size >= VISIBLE:
            tip = f"{name}: {duration(ns)} ({percent(ns / max(sum(values.values()), 1e-9))})"
            parts.append(box(x, y, size, height, f"f-{name}", tip))
            x += size
    return parts


def composition(explanation: Explanation, width: float) -> str:
    """What a span's time is made of, from the fastest class of spans to the slowest."""
    step, bar, left, right = 27.0, 19.0, 92.0, 74.0
    classes = explanation.classes
    parts = [label(width, 12, "mean", "tick", "end")]
    for number, chosen in enumerate(reversed(classes)):
        y = 20 + number * step
        parts.append(label(left - 10, y + 14, class_name(chosen), "row", "end"))
        room = width - left - right
        parts += stack(chosen.causes_ns, left, y, room, bar, sum(chosen.causes_ns.values()))
        parts.append(label(width, y + 14, duration(chosen.mean_ns), "value", "end"))
    words = "What the time of spans is made of, by how slow they are"
    return picture(width, 24 + len(classes) * step, words, parts)


def class_name(chosen: LatencyClass) -> str:
    """p99–99.5; the slowest class ends in the maximum."""
    if chosen.to_percentile >= 100:
        return f"p{rounded(chosen.from_percentile)}–max"
    return f"p{rounded(chosen.from_percentile)}–{rounded(chosen.to_percentile)}"


def timeline(explanation: Explanation, width: float) -> str:
    """What the tail's spans lost to each cause over the recording."""
    left, right, top, bottom = 58.0, 8.0, 12.0, 32.0
    height = 340.0 if width > 400 else 230.0
    blocks = explanation.timeline
    bars = min(len(blocks), 200 if width > 500 else 100)
    groups = np.array_split(np.arange(len(blocks)), max(bars, 1))
    seconds = explanation.block_s
    sums = [
        {
            name: sum(blocks[i].causes_ns.get(name, 0.0) for i in group) / (len(group) * seconds)
            for name in ORDER
        }
        for group in groups
    ]
    high = max((sum(values.values()) for values in sums), default=0.0) or 1.0
    parts = []
    for tick in round_ticks(high, 4):
        y = height - bottom - tick / high * (height - top - bottom)
        parts.append(line(left, y, width - right, y, "grid"))
        parts.append(label(left - 8, y + 4, plain(tick) if tick else "0", "tick", "end"))
    for tick in clock_ticks(explanation.seconds, 6 if width > 400 else 4):
        x = left + tick / (len(blocks) * seconds) * (width - left - right)
        parts.append(label(x, height - bottom + 18, clock(tick), "tick", "middle"))
    room = (width - left - right) / max(bars, 1)
    for number, values in enumerate(sums):
        y = height - bottom
        for name in ORDER:
            tall = values[name] / high * (height - top - bottom)
            if tall >= VISIBLE:
                y -= tall
                tip = f"{name}: {duration(values[name])} in each second"
                x = left + number * room
                parts.append(box(x, y, max(room - 0.5, 0.5), tall, f"f-{name}", tip))
    return picture(width, height, "What slow spans lost to each cause over time", parts)


def clock(seconds: float) -> str:
    """Time into the recording: 40 s, 2:30, 1:02:00."""
    if seconds < 1:
        return plain(seconds * 1e9) if seconds else "0"
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def worst(explanation: Explanation, width: float, rows: int) -> str:
    """The slowest spans, each as a bar of its causes."""
    step, bar, right = 24.0, 16.0, 74.0
    left = 178.0 if width > 500 else 74.0
    spans = explanation.worst[:rows]
    longest = max((span.wall_ns for span in spans), default=1) or 1
    parts = []
    for number, span in enumerate(spans):
        y = 4 + number * step
        when = f"{(span.start_ns - explanation.first_ns) / 1e9:.3f} s"
        who = f"{when} · tid {span.identity['tid']}" if "tid" in span.identity else when
        parts.append(label(left - 10, y + 13, who if width > 500 else when, "row", "end"))
        causes = {name: float(ns) for name, ns in span.causes.items()}
        parts += stack(causes, left, y, width - left - right, bar, float(longest))
        parts.append(label(width, y + 13, duration(span.wall_ns), "value", "end"))
    words = "The slowest spans and what their time went to"
    return picture(width, 8 + len(spans) * step, words, parts)


def seen_causes(values: Sequence[dict[str, float]], least: float) -> list[str]:
    """The causes that make up at least such a part of one of the bars, in stacking order."""
    return [
        name
        for name in ORDER
        if any(bar.get(name, 0.0) >= least * max(sum(bar.values()), 1e-9) > 0 for bar in values)
    ]
