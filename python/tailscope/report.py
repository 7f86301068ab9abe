"""`--html`: one self-contained page with the answer, the table of causes, four pictures and the
account.

No script, no font and no picture is fetched: the file can be mailed, archived and read offline.
Light or dark follows the reader's system; every picture is drawn twice, for a desk and for a phone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

from tailscope import __version__, charts, figures
from tailscope.advice import advised
from tailscope.answer import answer
from tailscope.blame import words
from tailscope.cause import MEANING
from tailscope.explanation import Cause, Explanation
from tailscope.present.output import write
from tailscope.present.pages.shared import style
from tailscope.provenance import Measured
from tailscope.quantity import count, duration, percent, ratio, span_of_time
from tailscope.text import intervals, is_small, left_cold, losses

WIDE, HALF, NARROW = 1000, 480, 346


def save(explanation: Explanation, file: str) -> None:
    """Write the page; a page that is not complete never replaces one that is."""
    write(file, page(explanation))


def page(explanation: Explanation) -> str:
    """The whole document."""
    name, target = explanation.span.name, explanation.target.name
    body = [
        *head(explanation),
        *causes(explanation),
        *distribution(explanation),
        '<div class="pair">',
        *composition(explanation),
        *timeline(explanation),
        "</div>",
        *segments(explanation),
        *worst(explanation),
        *others(explanation),
        *how(explanation),
        f"<footer>Tailscope {__version__}. Times are wall-clock; percentiles are exact to 0.1 %."
        "</footer>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(target)} of {escape(name)} · Tailscope</title>"
        f'<style>\n{style()}{colours()}</style></head>\n<body class="explain"><main>\n'
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def colours() -> str:
    """A fill, a stroke and a background of each cause's colour."""
    return "".join(
        f".f-{name}{{fill:var(--{name})}}.s-{name}{{stroke:var(--{name})}}"
        f".b-{name}{{background:var(--{name});border-color:var(--{name})}}\n"
        for name in MEANING
    )


def head(explanation: Explanation) -> Iterator[str]:
    """The answer in words, and the four figures behind it."""
    line, target = explanation.span, explanation.target.name
    yield from noticed(explanation.notices)
    hosts = ", ".join(dict.fromkeys(r.host for r in explanation.provenance.recordings))
    yield (
        f'<div class="kicker">Why is <strong>{escape(target)}</strong> of '
        f"<strong>{escape(line.name)}</strong> what it is? · host {escape(hosts)}</div>"
    )
    first, _, rest = answer(explanation).partition("; ")
    words = f"{escape(first)}{f'; <b>{escape(rest)}</b>' if rest else ''}"
    # A number stays with its unit.
    yield "<h1>" + re.sub(r"(\d) (ns|µs|ms|s|%)(?![a-z])", "\\1\u00a0\\2", words) + "</h1>"
    facts = [
        ("median (p50)", duration(line.p50_ns), "half are faster"),
        (target, duration(line.target_ns), f"95 %: {span_of_time(explanation.at_target)}"),
        ("slowest", duration(line.max_ns), "the longest of all"),
        ("spans", count(line.spans), f"in {charts.clock(explanation.seconds)}"),
    ]
    yield '<div class="facts">'
    for number, (title, value, note) in enumerate(facts):
        goal = ' class="goal-fact"' if number == 1 else ""
        yield (
            f"<div{goal}><span>{escape(title)}</span><b>{escape(value)}</b>"
            f"<span>{escape(note)}</span></div>"
        )
    yield "</div>"
    yield from careful((*explanation.provenance.warnings, *explanation.notes))


def careful(sentences: Sequence[str]) -> Iterator[str]:
    """What the reader must know, in a box."""
    if sentences:
        said = "".join(f"<p>{escape(sentence)}.</p>" for sentence in sentences)
        yield f'<div class="careful">{said}</div>'


def noticed(notices: Iterable[str]) -> Iterator[str]:
    """What a reader must know before any figure: the first thing on the page."""
    if said := "".join(f"<p>{escape(sentence)}.</p>" for sentence in notices):
        yield f'<div class="careful notices" role="alert">{said}</div>'


def causes(explanation: Explanation) -> Iterator[str]:
    """The table of causes."""
    target = explanation.target.name
    yield "<section><h2>What each cause is worth</h2>"
    yield (
        f'<p class="say">“Saves” is how much lower {escape(target)} would be had the cause never '
        f"been worse than {escape(usual(explanation))}, everything else the same. "
        f"“{of_what(explanation).capitalize()}” is the cause's part of the time that "
        f"{longer(explanation)}. “Fair share” "
        "divides what all causes together save among them.</p>"
    )
    shown = [cause for cause in explanation.causes if not is_small(cause, explanation)]
    if shown:
        yield '<table class="causes"><thead><tr>'
        yield "".join(
            f'<th class="{style}">{escape(title)}</th>'
            for title, style in (
                ("cause", ""),
                ("saves (95 % interval)", "saves"),
                (f"{target} without it", ""),
                ("fair share", ""),
                (of_what(explanation), ""),
                ("impact value", ""),
                ("spans with it", ""),
            )
        )
        yield "</tr></thead><tbody>"
        most = max((cause.saving.ns for cause in shown), default=0.0)
        for cause in shown:
            yield row(cause, target, most, left_cold(cause, explanation))
        yield "</tbody></table>"
    if lines := list(advised(explanation)):
        yield '<h3>What to do</h3><dl class="how">'
        yield "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in lines)
        yield "</dl>"
    small = [cause.name for cause in explanation.causes if is_small(cause, explanation)]
    steps = [
        f"Without <b>{escape(' + '.join(step.causes))}</b> together, {escape(target)} would be "
        f"<b>{duration(step.predicted.ns)}</b> ({span_of_time(step.predicted)}); "
        f"measured anew for as long, {span_of_time(step.again)}."
        for step in explanation.together
    ]
    if steps:
        yield f'<p class="rest">{" ".join(steps)}</p>'
    for sentence in explanation.disagreements:
        yield f'<p class="rest">{escape(sentence[:1].upper() + sentence[1:].rstrip("."))}.</p>'
    if small:
        yield f'<p class="rest">Next to nothing here: {escape(", ".join(small))}.</p>'
    if explanation.never:
        never = ", ".join(explanation.never)
        yield f'<p class="rest">Measured and never seen: {escape(never)}.</p>'
    for why, names in explanation.provenance.reasons().items():
        yield f'<p class="rest">Not measured: <b>{escape(names)}</b> ({escape(why)}).</p>'
    yield "</section>"


def usual(explanation: Explanation) -> str:
    """What a cause is held against."""
    return "usual" if explanation.base.is_median else explanation.base.words()


def of_what(explanation: Explanation) -> str:
    """The heading of the causes' parts."""
    return "of the tail" if explanation.base.is_median else "of it"


def longer(explanation: Explanation) -> str:
    """Of which time these are parts."""
    target = escape(explanation.target.name)
    if explanation.base.is_median:
        return f"spans beyond {target} take longer than median ones"
    return f"spans around {target} take beyond that"


def row(cause: Cause, target: str, most: float, cold: str) -> str:
    """One cause, with what is said of the running that it leaves cold."""
    share = max(cause.saving.ns, 0.0) / most if most > 0 else 0.0
    fair = duration(cause.fair_ns) if cause.fair_ns is not None else "–"
    events = (
        f'<small class="also">{count(cause.events)} times</small>'
        if cause.events is not None
        else ""
    )
    who = words(cause.name, cause.blame)
    blamed = "".join(f'<small class="by">{escape(said)}</small>' for said in (who, cold) if said)
    return (
        f'<tr><td class="cause"><span class="key b-{cause.name}"></span>'
        f'<span class="name">{cause.name}</span><small>{escape(cause.meaning)}</small>{blamed}</td>'
        f'<td class="saves"><b>{duration(cause.saving.ns)}</b>'
        f"<small>{span_of_time(cause.saving)}</small>"
        f'<span class="bar"><i class="b-{cause.name}" style="width:{100 * share:.1f}%"></i></span>'
        "</td>"
        f'<td data-of="{escape(target)} without">{duration(cause.predicted.ns)}</td>'
        f'<td data-of="fair share">{fair}</td>'
        f'<td data-of="of the tail">{percent(cause.share)}</td>'
        f'<td data-of="impact">{ratio(cause.impact)}</td>'
        f'<td data-of="spans">{percent(cause.spans_share)}{events}</td></tr>'
    )


def drawn(draw: Callable[[float], str], wide: float) -> str:
    """A picture twice: for a desk and for a phone."""
    return f'<div class="wide">{draw(wide)}</div><div class="narrow">{draw(NARROW)}</div>'


def legend(names: Iterable[str]) -> str:
    """The colours of a picture."""
    keys = (f'<span><i class="key b-{name}"></i>{name}</span>' for name in names)
    return f'<div class="legend">{"".join(keys)}</div>'


def distribution(explanation: Explanation) -> Iterator[str]:
    """The CDF picture."""
    names = charts.shown_curves(explanation)
    yield "<section><h2>All latencies, as measured and without the top causes</h2>"
    yield (
        '<p class="say">A point says how many spans (up) were at most that slow (across). Every '
        "nine has the same height, so the tail gets the room. A coloured line is what would be "
        "left if that cause had not struck.</p>"
    )
    keys = ['<span><i class="key stroke" style="background:var(--ink)"></i>as measured</span>']
    keys += [f'<span><i class="key stroke b-{name}"></i>without {name}</span>' for name in names]
    if joint := charts.joint_curve(explanation):
        keys.append(f'<span><i class="key stroke dashed"></i>without {joint}</span>')
    yield f'<div class="legend">{"".join(keys)}</div>'
    yield drawn(lambda width: charts.cdf(explanation, width), WIDE)
    yield "</section>"


def composition(explanation: Explanation) -> Iterator[str]:
    """What spans are made of, from fast to slow."""
    yield "<section><h2>What a span's time is made of</h2>"
    yield '<p class="say">The slowest spans on top, the fastest below; each bar is 100 %.</p>'
    bars = [chosen.causes_ns for chosen in explanation.classes]
    yield legend(charts.seen_causes(bars, 0.01))
    yield drawn(lambda width: charts.composition(explanation, width), HALF)
    yield from figures.classes(explanation)
    yield "</section>"


def timeline(explanation: Explanation) -> Iterator[str]:
    """When the tail happened."""
    yield "<section><h2>When it happened</h2>"
    yield (
        f'<p class="say">Time that spans at or beyond {escape(explanation.target.name)} spent on '
        "each cause, in each second of the recording.</p>"
    )
    yield legend(charts.seen_causes([block.causes_ns for block in explanation.timeline], 0.05))
    yield drawn(lambda width: charts.timeline(explanation, width), HALF)
    yield "</section>"


def segments(explanation: Explanation) -> Iterator[str]:
    """The recording's pieces, where it was cut into some."""
    found = explanation.segments
    if found is None:
        return
    target = escape(explanation.target.name)
    yield "<section><h2>Is it always so?</h2>"
    yield (
        f'<p class="say">The recording in {len(found.segments)} pieces of '
        f"{duration(1e9 * found.length_s)}. From piece to piece {target} varies by "
        f"{percent(found.variation)} of its mean (coefficient of variation).</p>"
    )
    yield from figures.segments(found, explanation.target.name)
    top = [cause for cause in found.within[:3] if cause.saving.ns > 0]
    if top:
        worth = ", ".join(f"{duration(cause.saving.ns)} {cause.name}" for cause in top)
        yield f'<p class="rest">Worth fixing in the typical piece: {escape(worth)}.</p>'
    yield "</section>"


def worst(explanation: Explanation) -> Iterator[str]:
    """The slowest spans one by one."""
    yield "<section><h2>The slowest spans</h2>"
    yield '<p class="say">When each began, counted from the first span, and what it waited for.</p>'
    bars = [{name: float(ns) for name, ns in span.causes.items()} for span in explanation.worst]
    yield legend(charts.seen_causes(bars, 0.01))
    yield drawn(lambda width: charts.worst(explanation, width, 15), WIDE)
    yield from figures.slowest(explanation)
    yield "</section>"


def others(explanation: Explanation) -> Iterator[str]:
    """The ledger's other span names."""
    if not explanation.others:
        return
    yield "<section><h2>Other spans in this ledger</h2>"
    yield '<p class="say"><code>--span NAME</code> explains one of them.</p>'
    yield '<div class="scroll" tabindex="0" role="region" aria-label="other spans">'
    yield "<table><tr><th>name</th><th>spans</th><th>p50</th>"
    yield f"<th>{escape(explanation.target.name)}</th><th>max</th></tr>"
    for line in explanation.others[:30]:
        yield (
            f'<tr><td class="long">{escape(line.name)}</td>'
            f"<td>{count(line.spans)}</td>"
            f"<td>{duration(line.p50_ns)}</td><td>{duration(line.target_ns)}</td>"
            f"<td>{duration(line.max_ns)}</td></tr>"
        )
    yield "</table></div></section>"


def how(explanation: Explanation) -> Iterator[str]:
    """How it was measured, what was lost and what it cost."""
    yield "<section><h2>How it was measured, and what was lost</h2>"
    for recording in explanation.provenance.recordings:
        yield '<dl class="how">'
        for title, text in account(recording):
            yield f"<dt>{title}</dt><dd>{text}</dd>"
        yield "</dl>"
    yield f'<p class="rest">{escape(intervals(explanation).capitalize())}. '
    yield (
        "Where a cause is not measured on this machine its time is inside "
        "<b>running</b>, never shown as 0.</p></section>"
    )


def account(recording: Measured) -> Iterator[tuple[str, str]]:
    """One recording's account as pairs of title and HTML."""
    machine = [f"<b>{escape(recording.host)}</b>"]
    if recording.kernel:
        machine.append(escape(f"Linux {recording.kernel} {recording.arch or ''}".strip()))
    if recording.cpus:
        machine.append(f"{recording.cpus} CPUs")
    yield "machine", ", ".join(machine)
    yield "ledger", escape(recording.path)
    lost = escape(losses(recording))
    yield "spans", f'<span class="lost">{lost}</span>' if any(recording.lost.values()) else lost
    if recording.recorder_cpu_ns is not None:
        cost = f"{duration(recording.recorder_cpu_ns)} of CPU"
        if recording.seconds:
            cost += f", {percent(recording.recorder_cpu_ns / 1e9 / recording.seconds)} of one CPU"
        if recording.recorder_rss_bytes is not None:
            cost += f"; {recording.recorder_rss_bytes / (1 << 20):.0f} MiB of memory"
        yield "recorder", cost
    rungs: dict[str, list[str]] = {}
    for name, step in recording.ladder.items():
        if isinstance(step, dict):
            rung = step.get("rung") or "not measured"
            why = f" <small>({escape(str(step['why']))})</small>" if step.get("why") else ""
            rungs.setdefault(f"{escape(str(rung))}{why}", []).append(name)
    if rungs:
        lines = (f"<div><b>{rung}</b>: {escape(', '.join(n))}</div>" for rung, n in rungs.items())
        yield "measured by", "".join(lines)
