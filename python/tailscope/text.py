"""The explanation for the terminal: 80 columns, aligned, coloured only where asked."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from tailscope.answer import answer
from tailscope.blame import words
from tailscope.counting import CounterImpact
from tailscope.explanation import Cause, Explanation
from tailscope.provenance import Measured
from tailscope.quantity import count, duration, percent, ratio, span_of_time
from tailscope.spans import DOSED

WIDTH = 80
BOLD, DIM, ACCENT, RESET = "\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[0m"
#: Causes below this share of the tail and of the target are summed up in one line. The grid's bins
#: are 0.1 % wide: what is smaller than a few of them is mostly the grid.
SMALL = 0.005


def render(explanation: Explanation, coloured: bool) -> str:
    """The whole text, with a line end."""
    lines = [
        *wrapped(answer(explanation), paint(BOLD, coloured)),
        "",
        *summary(explanation),
        "",
        *table(explanation, coloured),
        *fair(explanation),
        *together(explanation),
        *left_out(explanation),
        *counters(explanation),
        *methods(explanation),
        *segments(explanation, coloured),
        *others(explanation),
        "",
        *measured(explanation, coloured),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def paint(style: str, coloured: bool) -> tuple[str, str]:
    """What to put before and after a line."""
    return (style, RESET) if coloured else ("", "")


def wrapped(
    text: str, style: tuple[str, str] = ("", ""), indent: str = "", width: int = WIDTH
) -> list[str]:
    """A paragraph in lines."""
    lines = textwrap.wrap(
        text, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
    return [style[0] + line + style[1] for line in lines]


def summary(explanation: Explanation) -> Iterator[str]:
    """Counts and percentiles of the span name."""
    line = explanation.span
    target = explanation.target.name
    kept = f" (from {count(line.rows)} rows)" if round(line.spans) != line.rows else ""
    yield f"{line.name}: {count(line.spans)} spans{kept} in {explanation.seconds:,.4g} s"
    median = f"p50 {duration(line.p50_ns)}   " if target != "p50" else ""
    yield (
        f"{median}{target} {duration(line.target_ns)} "
        f"({span_of_time(explanation.at_target)})   max {duration(line.max_ns)}"
    )
    if not explanation.base.is_median:
        yield from wrapped(base(explanation), indent="  ")


def base(explanation: Explanation) -> str:
    """What causes are held against."""
    return explanation.base.sentence(
        explanation.target, tuple(cause.name for cause in explanation.causes)
    )


def table(explanation: Explanation, coloured: bool) -> Iterator[str]:
    """The causes that matter, the most valuable first."""
    part = "of tail" if explanation.base.is_median else "of it"
    header = ("cause", "saves", "95 % interval", "fair", "without", part, "impact", "spans")
    widths = (13, 8, 15, 8, 8, 7, 6, 6)
    start, end = paint(DIM, coloured)
    yield start + aligned(header, widths) + end
    small: list[Cause] = []
    for cause in explanation.causes:
        if is_small(cause, explanation):
            small.append(cause)
            continue
        cells = (
            cause.name,
            duration(cause.saving.ns),
            span_of_time(cause.saving),
            duration(cause.fair_ns) if cause.fair_ns is not None else "–",
            duration(cause.predicted.ns),
            percent(cause.share),
            ratio(cause.ranked_impact),
            percent(cause.spans_share),
        )
        before, after = paint(ACCENT, coloured and cause is explanation.causes[0])
        yield before + aligned(cells, widths) + after
        if who := words(cause.name, cause.blame):
            yield from wrapped(f"  {who}", (start, end), indent="    ")
        if left := left_cold(cause, explanation):
            yield from wrapped(f"  {left}", (start, end), indent="    ")
    if small:
        names = ", ".join(cause.name for cause in small)
        yield from wrapped(f"next to nothing: {names}", indent="  ")
    if explanation.never:
        yield from wrapped(f"never seen: {', '.join(explanation.never)}", indent="  ")
    for name, why in explanation.provenance.not_measured.items():
        yield from wrapped(f"not measured: {name} ({why})", indent="  ")


def is_small(cause: Cause, explanation: Explanation) -> bool:
    """Whether a cause plays no part in this tail."""
    return (
        cause.saving.hi <= SMALL * explanation.at_target.ns
        and abs(cause.share or 0.0) < SMALL
        and abs(cause.impact or 0.0) < 0.02
    )


def left_cold(cause: Cause, explanation: Explanation) -> str:
    """What of a cause's saving is running that it left longer, in words; "" if next to nothing."""
    if cause.cold_ns <= SMALL * explanation.at_target.ns:
        return ""
    if cause.name in DOSED:
        return f"{duration(cause.cold_ns)} of that it costs outside its handlers (cold caches too)"
    return f"{duration(cause.cold_ns)} of that is running that it leaves cold"


def aligned(cells: Iterable[str], widths: Iterable[int]) -> str:
    """The first cell to the left, the others to the right, a blank between."""
    parts = [
        cell.ljust(width) if number == 0 else cell.rjust(width)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return " ".join(parts)


def fair(explanation: Explanation) -> Iterator[str]:
    """What the fair shares add up to, and what they rest on."""
    shares = explanation.shares
    if shares is None or len(shares.shares) < 2:
        return
    rest = ""
    if shares.rows < shares.of_rows:
        rest = f", from {count(shares.rows)} of {count(shares.of_rows)} rows"
        rest += " drawn at random" if shares.is_sample else ": those that know all of them"
    yield ""
    yield from wrapped(
        f"fair shares add up to {duration(shares.saving_ns)}, what all {len(shares.shares)} "
        f"causes together save{rest}",
        indent="  ",
    )


def counters(explanation: Explanation) -> Iterator[str]:
    """The hardware counters' impact values, the largest first."""
    ranked = [one for one in explanation.counters if one.ranked_impact is not None]
    if not explanation.counters:
        return
    yield ""
    yield "hardware counters, by impact:"
    for one in sorted(ranked, key=lambda one: one.ranked_impact or 0.0, reverse=True):
        line = f"{one.name} {ratio(one.ranked_impact)} ({one.group}"
        if one.cut_by and round(one.impact or 0.0, 2) > round(one.ranked_impact or 0.0, 2):
            line += f"; {ratio(one.impact)} before {one.cut_by}'s part was taken"
        line += f"; in {percent(one.measured_share)} of the spans"
        if one.high_from is not None:
            line += f", {percent(one.high_share)} of them left out"
        yield from wrapped(f"  {line}{typical(one, explanation)})", indent="    ")
    if explanation.frequency:
        yield from wrapped(f"  {frequency(explanation)}", indent="    ")
    dropped = [f"{one.name} (as {one.follows})" for one in explanation.counters if one.follows]
    if dropped:
        yield from wrapped(f"  in proportion to another: {', '.join(dropped)}", indent="    ")


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
    without = "" if found.with_kernel else ", time in the kernel without its cycles"
    return (
        f"average frequency {found.target_ghz:.2f} GHz around {explanation.target.name}, "
        f"{found.median_ghz:.2f} GHz around the median{without}"
    )


def left_out(explanation: Explanation) -> Iterator[str]:
    """How many spans each impact value leaves out."""
    listed = [
        f"{cause.name} {percent(cause.high_share)}"
        for cause in explanation.causes
        if cause.impact is not None and not is_small(cause, explanation)
    ]
    if listed:
        yield ""
        yield from wrapped(f"spans that the impact leaves out: {', '.join(listed)}", indent="  ")


def methods(explanation: Explanation) -> Iterator[str]:
    """Where saving and impact differ and why, and which causes can't be told apart."""
    lines = list(explanation.disagreements)
    for cause in explanation.causes:
        if cause.follows:
            lines.append(
                f"{cause.name} goes in proportion to {cause.follows}: no impact of its own"
            )
    for pair in explanation.pairs:
        found = f"{pair.correlation:.2f}" if pair.correlation is not None else "unknown"
        lines.append(
            f"{pair.events[0]} and {pair.events[1]} go together (correlation {found}, "
            f"{percent(pair.overlap)} of their spans in common), and no rule says which leads"
        )
    if lines:
        yield ""
        yield "saving and impact:"
    for line in lines:
        yield from wrapped("  " + line, indent="    ")


def together(explanation: Explanation) -> Iterator[str]:
    """What fixing several causes at once would bring."""
    asked = (explanation.without,) if explanation.without else ()
    steps = list(dict.fromkeys((*explanation.together, *asked)))
    if steps:
        yield ""
    for step in steps:
        yield from wrapped(
            f"without {' + '.join(step.causes)}: {explanation.target.name} "
            f"{duration(step.predicted.ns)} ({span_of_time(step.predicted)}; measured anew for as "
            f"long {span_of_time(step.again)})",
            indent="  ",
        )


def segments(explanation: Explanation, coloured: bool) -> Iterator[str]:
    """The recording in pieces of time."""
    if explanation.segments is None:
        return
    # It builds on this module.
    from tailscope import segments_text

    yield ""
    yield from segments_text.render(explanation.segments, explanation.target, coloured)


def others(explanation: Explanation) -> Iterator[str]:
    """The ledger's other span names, a line each."""
    if not explanation.others:
        return
    yield ""
    yield f"other spans (--span NAME explains them), with p50, {explanation.target.name} and max:"
    for line in explanation.others[:10]:
        name = line.name if len(line.name) <= 34 else line.name[:33] + "…"
        yield (
            f"  {name:<34} {count(line.spans):>11} {duration(line.p50_ns):>9} "
            f"{duration(line.target_ns):>9} {duration(line.max_ns):>9}"
        )
    if len(explanation.others) > 10:
        yield f"  and {len(explanation.others) - 10} more"


def measured(explanation: Explanation, coloured: bool) -> Iterator[str]:
    """How it was measured, what was lost, and what to be careful about."""
    style = paint(DIM, coloured)
    provenance = explanation.provenance
    yield from wrapped("how it was measured", style)
    for recording in provenance.recordings:
        for sentence in account(recording):
            yield from wrapped("  " + sentence, style, indent="    ")
    yield from wrapped(f"  {intervals(explanation)}", style, indent="    ")
    for sentence in (*provenance.warnings, *explanation.notes):
        yield from wrapped(f"  careful: {sentence}", paint(ACCENT, coloured), indent="    ")


def account(recording: Measured) -> Iterator[str]:
    """One recording's account in sentences."""
    machine = [recording.host]
    if recording.kernel:
        machine.append(f"Linux {recording.kernel} {recording.arch or ''}".strip())
    if recording.cpus:
        machine.append(f"{recording.cpus} CPUs")
    yield ", ".join(machine) + f": {recording.path}"
    rungs: dict[str, list[str]] = {}
    for name, step in recording.ladder.items():
        if isinstance(step, dict) and step.get("rung"):
            why = f" ({step['why']})" if step.get("why") else ""
            rungs.setdefault(f"{step['rung']}{why}", []).append(name)
    if rungs:
        yield "; ".join(f"{', '.join(names)} by {rung}" for rung, names in rungs.items())
    yield losses(recording)
    if recording.recorder_cpu_ns is not None:
        cost = f"the recorder used {duration(recording.recorder_cpu_ns)} of CPU"
        if recording.seconds:
            cost += f" ({percent(recording.recorder_cpu_ns / 1e9 / recording.seconds)} of one CPU)"
        yield cost


def kept(recording: Measured) -> str:
    """Which spans were written."""
    some = percent(recording.keep or 1)
    if recording.tail is None:
        return f"{some} of the spans, drawn at random"
    return f"the spans above p{100 * recording.tail:g} of their kind and {some} of the others"


def losses(recording: Measured) -> str:
    """What was recorded, kept and lost."""
    words = []
    if recording.sample is not None and recording.sample < 1:
        words.append(f"{percent(recording.sample)} of requests were sampled")
    if recording.budget is not None:
        words.append(f"kept: what {recording.budget / 1000:g} kB/s allow, half of it the tail")
    elif recording.keep is not None and recording.keep < 1:
        words.append(f"kept: {kept(recording)}")
    if recording.seen is not None:
        words.append(f"{count(recording.seen)} spans seen")
    lost = {name: number for name, number in recording.lost.items() if number}
    if lost:
        listed = ", ".join(f"{number:,} ({name})" for name, number in lost.items())
        part = f", {percent(sum(lost.values()) / recording.seen)}" if recording.seen else ""
        words.append(f"lost: {listed}{part}")
    elif recording.lost:
        words.append("nothing lost")
    else:
        words.append("what was lost is not known")
    return "; ".join(words)


def intervals(explanation: Explanation) -> str:
    """How the intervals were made."""
    return (
        f"intervals: 95 %, from resampling the recording in {explanation.blocks} pieces of "
        f"{explanation.block_s:.3g} s, {explanation.run_length} at a time"
    )
