"""The explanation for the terminal: as wide as that is, aligned, coloured only where asked."""

from __future__ import annotations

from collections.abc import Iterator

from tailscope.ledger.provenance import Measured
from tailscope.present import code_text, counters_text
from tailscope.present.account import intervals, losses
from tailscope.present.advice import advised
from tailscope.present.answer import answer
from tailscope.present.cause_table import (
    COLUMNS,
    Detail,
    cause_cells,
    heads,
    is_small,
    penalty_words,
    shown_columns,
)
from tailscope.present.terminal import ACCENT, BOLD, DIM, Terminal, noticed
from tailscope.quantity import count, duration, percent, span_of_time
from tailscope.statistics.blame import words
from tailscope.statistics.explanation import Explanation, Together

#: Parts of the percentile that are worth a word.
MATTERS = 0.02


def render(
    explanation: Explanation,
    terminal: Terminal = Terminal(),  # noqa: B008 (it is frozen)
    detail: Detail = Detail(),  # noqa: B008 (it is frozen)
) -> str:
    """The whole text, with a line end."""
    lines = [
        *noticed(explanation.notices, terminal),
        *terminal.wrapped(answer(explanation), BOLD),
        "",
        *summary(explanation, terminal),
        "",
        *table(explanation, terminal, detail),
        *to_do(explanation, terminal),
        *(fair(explanation, terminal) if detail.verbose else ()),
        *together(explanation, terminal, detail),
        *(left_out(explanation, terminal) if detail.impact else ()),
        *counters_text.render(explanation, terminal, detail.impact),
        *(methods(explanation, terminal) if detail.impact else ()),
        *segments(explanation, terminal, detail),
        *opened(explanation, terminal),
        *traces(explanation, terminal),
        *others(explanation, terminal),
        "",
        *measured(explanation, terminal),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def summary(explanation: Explanation, terminal: Terminal) -> Iterator[str]:
    """Counts and percentiles of the span name."""
    line = explanation.span
    target = explanation.target.name
    kept = f" (from {count(line.rows)} rows)" if round(line.spans) != line.rows else ""
    yield from terminal.wrapped(
        f"{line.name}: {count(line.spans)} spans{kept} in {explanation.seconds:,.4g} s", indent="  "
    )
    median = f"p50 {duration(line.p50_ns)}   " if target != "p50" else ""
    yield from terminal.wrapped(
        f"{median}{target} {duration(line.target_ns)} "
        f"({span_of_time(explanation.at_target)})   max {duration(line.max_ns)}",
        indent="  ",
    )
    if not explanation.base.is_median:
        yield from terminal.wrapped(base(explanation), indent="  ")


def base(explanation: Explanation) -> str:
    """What causes are held against."""
    return explanation.base.sentence(
        explanation.target, tuple(cause.name for cause in explanation.causes)
    )


def table(explanation: Explanation, terminal: Terminal, detail: Detail) -> Iterator[str]:
    """The causes that matter, the most valuable first."""
    columns = shown_columns(detail)
    shown = [cause for cause in explanation.causes if not is_small(cause, explanation)]
    rows = [
        heads(columns, explanation.base.is_median),
        *([cause_cells(cause)[name] for name in columns] for cause in shown),
    ]
    head, *lines = terminal.table(rows, [COLUMNS[name] for name in columns])
    before, after = terminal.paint(DIM)
    yield before + head + after
    for cause, line in zip(shown, lines, strict=True):
        before, after = terminal.paint(ACCENT, cause is explanation.causes[0])
        yield before + line + after
        if who := words(cause.name, cause.blame):
            yield from terminal.wrapped(f"  {who}", DIM, indent="    ")
        yield from code_text.functions(explanation, cause.name, terminal)
        if detail.verbose and (left := penalty_words(cause, explanation)):
            yield from terminal.wrapped(f"  {left}", DIM, indent="    ")
    if small := [cause.name for cause in explanation.causes if is_small(cause, explanation)]:
        yield from terminal.wrapped(f"negligible: {', '.join(small)}", indent="  ")
    if explanation.never:
        yield from terminal.wrapped(f"never seen: {', '.join(explanation.never)}", indent="  ")
    for why, names in explanation.provenance.reasons().items():
        yield from terminal.wrapped(f"not measured: {names} ({why})", indent="  ")


def to_do(explanation: Explanation, terminal: Terminal) -> Iterator[str]:
    """What to do about the causes that matter, a line each."""
    found = list(advised(explanation))
    if found:
        yield from ("", "what to do")
    for causes, text in found:
        yield from terminal.wrapped(f"  {causes}: {text}", indent="    ")


def fair(explanation: Explanation, terminal: Terminal) -> Iterator[str]:
    """What the fair shares add up to, and what they rest on."""
    shares = explanation.shares
    if shares is None or len(shares.shares) < 2:
        return
    rest = ""
    if shares.rows < shares.of_rows:
        rest = f", from {count(shares.rows)} of {count(shares.of_rows)} rows"
        rest += " drawn at random" if shares.is_sample else ", those with all causes"
    yield ""
    yield from terminal.wrapped(
        f"fair shares add up to {duration(shares.saving_ns)}, the saving of all "
        f"{len(shares.shares)} causes together{rest}",
        indent="  ",
    )


def left_out(explanation: Explanation, terminal: Terminal) -> Iterator[str]:
    """How many spans each impact value leaves out."""
    listed = [
        f"{cause.name} {percent(cause.high_share)}"
        for cause in explanation.causes
        if cause.impact is not None and not is_small(cause, explanation)
    ]
    if listed:
        yield ""
        text = f"spans left out for the impact value: {', '.join(listed)}"
        yield from terminal.wrapped(text, indent="  ")


def methods(explanation: Explanation, terminal: Terminal) -> Iterator[str]:
    """Where saving and impact differ and why, and which causes can't be told apart."""
    lines = list(explanation.disagreements)
    for cause in explanation.causes:
        if cause.follows:
            lines.append(
                f"{cause.name} is proportional to {cause.follows}: it has no impact of its own"
            )
    for pair in explanation.pairs:
        found = f"{pair.correlation:.2f}" if pair.correlation is not None else "unknown"
        lines.append(
            f"{pair.events[0]} and {pair.events[1]} occur together (correlation {found}, "
            f"{percent(pair.overlap)} of their spans in common); no rule says which leads"
        )
    if lines:
        yield ""
        yield "saving and impact:"
    for line in lines:
        yield from terminal.wrapped("  " + line, indent="    ")


def together(explanation: Explanation, terminal: Terminal, detail: Detail) -> Iterator[str]:
    """What fixing several causes at once would bring: what was asked for, and the best sets."""
    asked = (explanation.without,) if explanation.without else ()
    best = explanation.together if detail.verbose else ()
    steps = {step.causes: step for step in (*best, *asked)}.values()
    if steps:
        yield ""
    for step in steps:
        yield from terminal.wrapped(
            f"without {' + '.join(step.causes)}: {explanation.target.name} "
            f"{duration(step.predicted.ns)} ({span_of_time(step.predicted)}; in another recording "
            f"of this length {span_of_time(step.again)}){unusual(explanation, step)}",
            indent="  ",
        )


def unusual(explanation: Explanation, step: Together) -> str:
    """What comes of it where only what is unusual of some causes goes, if that matters."""
    more_ns = step.usual_ns or 0.0
    if more_ns <= MATTERS * explanation.at_target.ns:
        return ""
    kept = duration(step.predicted.ns + more_ns)
    return f"; {kept} if the usual variation of {' and '.join(step.usual_of)} stays"


def segments(explanation: Explanation, terminal: Terminal, detail: Detail) -> Iterator[str]:
    """The recording in pieces of time."""
    if explanation.segments is None:
        return
    # Loaded where it is asked for: it brings the charts and the comparison along.
    from tailscope.present import segments_text

    yield ""
    yield from segments_text.render(explanation.segments, explanation.target, terminal, detail)


def opened(explanation: Explanation, terminal: Terminal) -> Iterator[str]:
    """What other servers did in the time that requests waited for them."""
    if explanation.through is None:
        return
    from tailscope.present import chain_text

    yield ""
    yield from chain_text.render(explanation.through, explanation.target.name, terminal)


#: Slow spans whose traces are listed.
TRACES = 5


def traces(explanation: Explanation, terminal: Terminal) -> Iterator[str]:
    """The traces of the slowest spans, where these said to which they belong."""
    known = [span for span in explanation.worst if span.trace_id]
    if not known:
        return
    yield ""
    yield from terminal.wrapped("traces of the slowest spans:", indent="  ")
    for span in known[:TRACES]:
        yield f"  {duration(span.wall_ns):>10}  {span.trace_id}"


#: Other span names that are listed, and the least widths of their columns.
OTHERS = 10
OTHERS_WIDTHS = (34, 11, 9, 9, 9)


def others(explanation: Explanation, terminal: Terminal) -> Iterator[str]:
    """The ledger's other span names, a line each."""
    if not explanation.others:
        return
    yield ""
    target = explanation.target.name
    yield from terminal.wrapped(
        f"other spans (--span NAME explains them), with p50, {target} and max:", indent="  "
    )
    room = terminal.width - sum(OTHERS_WIDTHS[1:]) - len(OTHERS_WIDTHS) - 1
    rows = [
        (
            terminal.cut(line.name, max(room, 10)),
            count(line.spans),
            *(duration(ns) for ns in (line.p50_ns, line.target_ns, line.max_ns)),
        )
        for line in explanation.others[:OTHERS]
    ]
    yield from terminal.table(rows, OTHERS_WIDTHS, indent="  ")
    if len(explanation.others) > OTHERS:
        yield f"  and {len(explanation.others) - OTHERS} more"


def measured(explanation: Explanation, terminal: Terminal) -> Iterator[str]:
    """How it was measured, what was lost, and what to be careful about."""
    provenance = explanation.provenance
    yield from terminal.wrapped("how it was measured", DIM)
    for recording in provenance.recordings:
        for sentence in account(recording):
            yield from terminal.wrapped("  " + sentence, DIM, indent="    ")
    yield from terminal.wrapped(f"  {intervals(explanation)}", DIM, indent="    ")
    if told := code_text.sampling(explanation):
        yield from terminal.wrapped(f"  {told}", DIM, indent="    ")
    for sentence in (*provenance.warnings, *explanation.notes):
        yield from terminal.wrapped(f"  careful: {sentence}", ACCENT, indent="    ")


def account(recording: Measured) -> Iterator[str]:
    """One recording's account in sentences."""
    machine = [recording.host]
    if recording.kernel:
        machine.append(f"Linux {recording.kernel} {recording.arch or ''}".strip())
    if recording.cpus:
        machine.append(f"{recording.cpus} CPUs")
    yield ", ".join(machine) + f": {recording.path}"
    mechanisms: dict[str, list[str]] = {}
    for name, step in recording.ladder.items():
        if isinstance(step, dict) and step.get("rung"):
            why = f" ({step['why']})" if step.get("why") else ""
            mechanisms.setdefault(f"{step['rung']}{why}", []).append(name)
    if mechanisms:
        yield "; ".join(f"{', '.join(names)} by {how}" for how, names in mechanisms.items())
    yield losses(recording)
    if recording.recorder_cpu_ns is not None:
        cost = f"the recorder used {duration(recording.recorder_cpu_ns)} of CPU time"
        if recording.seconds:
            cost += f" ({percent(recording.recorder_cpu_ns / 1e9 / recording.seconds)} of one CPU)"
        yield cost
