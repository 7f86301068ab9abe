"""The comparison of two ledgers for the terminal: as wide as that is, coloured where asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailscope.present.code_text import calls_matter, path
from tailscope.present.terminal import ACCENT, BOLD, DIM, Terminal, noticed
from tailscope.quantity import Interval, count, duration, figures, growth, percent, scale, signed
from tailscope.statistics.change import MEDIAN, CauseChange, Change, PercentileChange
from tailscope.statistics.code_change import FunctionChange
from tailscope.statistics.diff import Diff, Kind, Verdict

#: So many kinds are shown whole; the others get a line each.
WHOLE = 3
#: Causes that changed by less than this part of the target percentile are summed up in one line.
SMALL = 0.005
PERCENTILE_WIDTHS = (10, 9, 9, 10, 19, 9)
CAUSE_WIDTHS = (13, 9, 9, 10, 19, 8)
OTHERS_WIDTHS = (30, 9, 9, 9, 9)


def render(
    diff: Diff,
    terminal: Terminal = Terminal(),  # noqa: B008 (it is frozen)
) -> str:
    """The whole text, with a line end."""
    lines = [*noticed(diff.notices, terminal)]
    for kind in diff.kinds[:WHOLE]:
        lines += [*terminal.wrapped(sentence(kind, diff), BOLD), ""]
        lines += [*percentiles(kind, terminal), ""]
        lines += [*causes(kind.change, terminal), *functions(kind, diff, terminal), ""]
        lines += of_median(kind.change, terminal)
    lines += others(diff, terminal)
    lines += asked(diff, terminal)
    lines += unmatched(diff, terminal)
    for warning in diff.warnings:
        lines += terminal.wrapped(f"careful: {warning}", ACCENT, indent="  ")
    lines += terminal.wrapped(
        "intervals: 95 %, from resampling blocks of each recording separately", DIM
    )
    return "\n".join(line.rstrip() for line in lines) + "\n"


def sentence(kind: Kind, diff: Diff) -> str:
    """What became of the target percentile, and which cause carries it."""
    target = kind.change.target
    name = f"{diff.target.name} of {kind.name}"
    if not target.is_sure:
        return (
            f"{name} has not changed significantly: {duration(target.base.ns)}, "
            f"then {duration(target.new.ns)} ({relative(target)})."
        )
    verb = "grew" if target.change.ns > 0 else "fell"
    text = (
        f"{name} {verb} from {duration(target.base.ns)} to {duration(target.new.ns)} "
        f"({relative(target)})"
    )
    carriers = [cause for cause in kind.change.causes if (cause.carries or 0.0) >= 0.1]
    carriers.sort(key=lambda cause: cause.carries or 0.0, reverse=True)
    if not carriers:
        return f"{text}; no single cause carries it."
    listed = [f"{percent(cause.carries)} {cause.name}" for cause in carriers[:3]]
    words = f"{', '.join(listed[:-1])} and {listed[-1]}" if len(listed) > 1 else listed[0]
    more = f": {carriers[0].meaning}" if len(listed) == 1 else ""
    return f"{text}; {words}{more}."


def relative(one: PercentileChange) -> str:
    """The relative change with its interval."""
    if one.relative is None:
        return "from 0"
    lo, hi = growth(one.relative.lo), growth(one.relative.hi)
    return f"{growth(one.relative.ns)}, 95 %: {lo} to {hi}"


def signed_span(interval: Interval) -> str:
    """An interval of a change in the unit of its larger end: -1.20…+3.40 ms."""
    lo, hi = interval.lo, interval.hi
    size, unit = scale(max(abs(lo), abs(hi)))
    digits = 3 if size > 1 else 0
    ends = (f"{'+' if ns > 0 else ''}{figures(ns / size, digits)}" for ns in (lo, hi))
    return f"{'…'.join(ends)} {unit}"


def percentiles(kind: Kind, terminal: Terminal) -> Iterator[str]:
    """The table of percentiles."""
    found = kind.change
    yield from terminal.wrapped(
        f"{kind.name}: {count(found.base_spans)} spans in {found.base_seconds:,.4g} s, "
        f"then {count(found.new_spans)} in {found.new_seconds:,.4g} s",
        indent="  ",
    )
    rows = [("percentile", "BASE", "NEW", "change", "95 % interval", "relative")]
    for one in found.percentiles:
        rows.append(
            (
                one.name + ("*" if one.too_few else ""),
                duration(one.base.ns),
                duration(one.new.ns),
                signed(one.change.ns),
                signed_span(one.change),
                growth(one.relative.ns) if one.relative else "–",
            )
        )
    head, *lines = terminal.table(rows, PERCENTILE_WIDTHS)
    before, after = terminal.paint(DIM)
    yield before + head + after
    for one, line in zip(found.percentiles, lines, strict=True):
        before, after = terminal.paint(ACCENT, one.is_sure)
        yield before + line + after
    if any(one.too_few for one in found.percentiles):
        text = "  * too few spans in one recording: there it is the slowest span"
        yield from terminal.wrapped(text, indent="    ")


def causes(
    found: Change, terminal: Terminal, sides: tuple[str, str] = ("BASE", "NEW")
) -> Iterator[str]:
    """What the target percentile is made of, on both sides."""
    return parts(found.target, found.causes, terminal, sides)


def functions(kind: Kind, diff: Diff, terminal: Terminal) -> Iterator[str]:
    """The functions that changed, under their causes; where none did, that is said."""
    if kind.code is None:
        return
    named = [one for one in kind.code.causes if one.functions]
    if not named:
        text = "stacks: no function's time in slow spans changed beyond doubt"
        yield from terminal.wrapped(text, DIM, indent="  ")
        return
    text = f"functions, by their mean time in a span at or above {diff.target.name}:"
    yield from terminal.wrapped(text, indent="  ")
    for cause in named:
        for one in cause.functions:
            line = f"  {cause.cause}: {function_line(one)}"
            yield from terminal.wrapped(line, DIM, indent="      ")


def function_line(one: FunctionChange) -> str:
    """`+3.01 ms (+2.90…+3.10 ms) in planted_lock ← handle; 0 ns, then 3.01 ms`."""
    text = f"{signed(one.change.ns)} ({signed_span(one.change)}) in {path(one)}"
    if calls_matter(one.with_calls, one.change):
        text += f", {signed(one.with_calls.ns)} with its calls"
    return f"{text}; {duration(one.base_ns)}, then {duration(one.new_ns)}"


def of_median(found: Change, terminal: Terminal) -> Iterator[str]:
    """The same of the median, where that has surely changed and was not asked for."""
    median = next((one for one in found.percentiles if one.name == MEDIAN.name), None)
    if median and median.is_sure and found.target.name != median.name:
        yield from parts(median, found.median_causes, terminal, ("BASE", "NEW"))
        yield ""


def parts(
    percentile: PercentileChange,
    changes: Sequence[CauseChange],
    terminal: Terminal,
    sides: tuple[str, str],
) -> Iterator[str]:
    """What a percentile is made of, on both sides."""
    floor = SMALL * max(percentile.base.ns, percentile.new.ns)
    small: list[str] = []
    rows = [(f"in {percentile.name}", *sides, "change", "95 % interval", "carries")]
    for cause in changes:
        if cause.change is not None and abs(cause.change.ns) < floor:
            small.append(cause.name)
        else:
            rows.append(cause_cells(cause))
    head, *lines = terminal.table(rows, CAUSE_WIDTHS)
    before, after = terminal.paint(DIM)
    yield before + head + after
    yield from lines
    if small:
        yield from terminal.wrapped(f"hardly changed: {', '.join(small)}", indent="  ")


def cause_cells(cause: CauseChange) -> tuple[str, ...]:
    """One cause's row."""
    return (
        cause.name,
        duration(cause.base_ns) if cause.base_ns is not None else "unknown",
        duration(cause.new_ns) if cause.new_ns is not None else "unknown",
        signed(cause.change.ns) if cause.change else "–",
        signed_span(cause.change) if cause.change else "–",
        percent(cause.carries),
    )


def others(diff: Diff, terminal: Terminal) -> Iterator[str]:
    """The kinds that are not shown whole."""
    rest = diff.kinds[WHOLE:]
    if not rest:
        return
    text = f"other kinds (--span NAME shows one whole), with {diff.target.name}:"
    yield from terminal.wrapped(text, indent="  ")
    room = terminal.width - sum(OTHERS_WIDTHS[1:]) - len(OTHERS_WIDTHS) - 1
    rows = []
    for kind in rest:
        target = kind.change.target
        rows.append(
            (
                terminal.cut(kind.name, max(room, 10)),
                duration(target.base.ns),
                duration(target.new.ns),
                growth(target.relative.ns) if target.relative else "–",
                "" if target.is_sure else "not sure",
            )
        )
    yield from terminal.table(rows, OTHERS_WIDTHS, indent="  ")
    yield ""


def asked(diff: Diff, terminal: Terminal) -> Iterator[str]:
    """What `--fail-over` came to."""
    if diff.fail_over is None:
        return
    limit = percent(diff.fail_over)
    words = {
        Verdict.OVER: f"grew by more than {limit}: OVER the limit",
        Verdict.UNSURE: f"may have grown by more than {limit}: record longer for a clear answer",
        Verdict.WITHIN: f"did not grow by more than {limit}",
    }
    for verdict, text in words.items():
        names = [kind.name for kind in diff.kinds if kind.verdict is verdict]
        if names:
            yield from terminal.wrapped(
                f"{diff.target.name} of {', '.join(names)} {text}", indent="  "
            )
    yield ""


def unmatched(diff: Diff, terminal: Terminal) -> Iterator[str]:
    """What only one ledger has."""
    for title, names in (("BASE", diff.only_base), ("NEW", diff.only_new)):
        if names:
            more = f" and {len(names) - 10} more" if len(names) > 10 else ""
            yield from terminal.wrapped(
                f"only in {title}: {', '.join(names[:10])}{more}", indent="  "
            )
    for title, causes in (("BASE", diff.unknown_base), ("NEW", diff.unknown_new)):
        if causes:
            yield from terminal.wrapped(
                f"not measured in {title}: {', '.join(causes)}; there that time is part of running",
                indent="  ",
            )
