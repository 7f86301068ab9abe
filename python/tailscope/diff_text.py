"""The comparison of two ledgers for the terminal: 80 columns, aligned, coloured where asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailscope.bootstrap import Interval
from tailscope.change import MEDIAN, CauseChange, Change, PercentileChange
from tailscope.diff import Diff, Kind, Verdict
from tailscope.quantity import count, duration, figures, growth, percent, scale, signed
from tailscope.text import ACCENT, BOLD, DIM, aligned, paint, wrapped

#: So many kinds are shown whole; the others get a line each.
WHOLE = 3
#: Causes that changed by less than this part of the target percentile are summed up in one line.
SMALL = 0.005
PERCENTILE_WIDTHS = (10, 9, 9, 10, 19, 9)
CAUSE_WIDTHS = (13, 9, 9, 10, 19, 8)


def render(diff: Diff, coloured: bool) -> str:
    """The whole text, with a line end."""
    lines: list[str] = []
    for kind in diff.kinds[:WHOLE]:
        lines += [*wrapped(sentence(kind, diff), paint(BOLD, coloured)), ""]
        lines += [*percentiles(kind, coloured), ""]
        lines += [*causes(kind.change, coloured), ""]
        lines += of_median(kind.change, coloured)
    lines += others(diff)
    lines += asked(diff)
    lines += unmatched(diff)
    for warning in diff.warnings:
        lines += wrapped(f"careful: {warning}", paint(ACCENT, coloured), indent="  ")
    lines += wrapped(
        "intervals: 95 %, from resampling pieces of both recordings, each on its own",
        paint(DIM, coloured),
    )
    return "\n".join(line.rstrip() for line in lines) + "\n"


def sentence(kind: Kind, diff: Diff) -> str:
    """What became of the target percentile, and which cause carries it."""
    target = kind.change.target
    name = f"{diff.target.name} of {kind.name}"
    if not target.is_sure:
        return (
            f"{name} has not surely changed: {duration(target.base.ns)}, "
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
        return "from nothing"
    lo, hi = growth(one.relative.lo), growth(one.relative.hi)
    return f"{growth(one.relative.ns)}, 95 %: {lo} to {hi}"


def signed_span(interval: Interval) -> str:
    """An interval of a change in the unit of its larger end: -1.20…+3.40 ms."""
    lo, hi = interval.lo, interval.hi
    size, unit = scale(max(abs(lo), abs(hi)))
    digits = 3 if size > 1 else 0
    ends = (f"{'+' if ns > 0 else ''}{figures(ns / size, digits)}" for ns in (lo, hi))
    return f"{'…'.join(ends)} {unit}"


def percentiles(kind: Kind, coloured: bool) -> Iterator[str]:
    """The table of percentiles."""
    found = kind.change
    yield (
        f"{kind.name}: {count(found.base_spans)} spans in {found.base_seconds:,.4g} s, "
        f"then {count(found.new_spans)} in {found.new_seconds:,.4g} s"
    )
    header = ("percentile", "BASE", "NEW", "change", "95 % interval", "relative")
    start, end = paint(DIM, coloured)
    yield start + aligned(header, PERCENTILE_WIDTHS) + end
    for one in found.percentiles:
        before, after = paint(ACCENT, coloured and one.is_sure)
        cells = (
            one.name + ("*" if one.too_few else ""),
            duration(one.base.ns),
            duration(one.new.ns),
            signed(one.change.ns),
            signed_span(one.change),
            growth(one.relative.ns) if one.relative else "–",
        )
        yield before + aligned(cells, PERCENTILE_WIDTHS) + after
    if any(one.too_few for one in found.percentiles):
        yield "  * one side has too few spans for it: there it is its slowest span"


def causes(
    found: Change, coloured: bool, sides: tuple[str, str] = ("BASE", "NEW")
) -> Iterator[str]:
    """What the target percentile is made of, on both sides."""
    return parts(found.target, found.causes, coloured, sides)


def of_median(found: Change, coloured: bool) -> Iterator[str]:
    """The same of the median, where that has surely changed and was not asked for."""
    median = next((one for one in found.percentiles if one.name == MEDIAN.name), None)
    if median and median.is_sure and found.target.name != median.name:
        yield from parts(median, found.median_causes, coloured, ("BASE", "NEW"))
        yield ""


def parts(
    percentile: PercentileChange,
    changes: Sequence[CauseChange],
    coloured: bool,
    sides: tuple[str, str],
) -> Iterator[str]:
    """What a percentile is made of, on both sides."""
    header = (f"in {percentile.name}", *sides, "change", "95 % interval", "carries")
    start, end = paint(DIM, coloured)
    yield start + aligned(header, CAUSE_WIDTHS) + end
    floor = SMALL * max(percentile.base.ns, percentile.new.ns)
    small: list[str] = []
    for cause in changes:
        if cause.change is not None and abs(cause.change.ns) < floor:
            small.append(cause.name)
        else:
            yield aligned(cause_cells(cause), CAUSE_WIDTHS)
    if small:
        yield from wrapped(f"hardly changed: {', '.join(small)}", indent="  ")


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


def others(diff: Diff) -> Iterator[str]:
    """The kinds that are not shown whole."""
    rest = diff.kinds[WHOLE:]
    if not rest:
        return
    yield f"other kinds (--span NAME shows one whole), with {diff.target.name}:"
    for kind in rest:
        name = kind.name if len(kind.name) <= 30 else kind.name[:29] + "…"
        target = kind.change.target
        sure = "" if target.is_sure else "  not sure"
        change = growth(target.relative.ns) if target.relative else "–"
        yield (
            f"  {name:<30} {duration(target.base.ns):>9} {duration(target.new.ns):>9} "
            f"{change:>9}{sure}"
        )
    yield ""


def asked(diff: Diff) -> Iterator[str]:
    """What `--fail-over` came to."""
    if diff.fail_over is None:
        return
    limit = percent(diff.fail_over)
    words = {
        Verdict.OVER: f"grew by more than {limit}: OVER the limit",
        Verdict.UNSURE: f"may have grown by more than {limit} or not: record longer to tell",
        Verdict.WITHIN: f"did not grow by more than {limit}",
    }
    for verdict, text in words.items():
        names = [kind.name for kind in diff.kinds if kind.verdict is verdict]
        if names:
            yield from wrapped(f"{diff.target.name} of {', '.join(names)} {text}", indent="  ")
    yield ""


def unmatched(diff: Diff) -> Iterator[str]:
    """What only one ledger has."""
    for title, names in (("BASE", diff.only_base), ("NEW", diff.only_new)):
        if names:
            more = f" and {len(names) - 10} more" if len(names) > 10 else ""
            yield from wrapped(f"only in {title}: {', '.join(names[:10])}{more}", indent="  ")
    for title, causes in (("BASE", diff.unknown_base), ("NEW", diff.unknown_new)):
        if causes:
            yield from wrapped(
                f"not measured in {title}: {', '.join(causes)}; there that time is in running",
                indent="  ",
            )
