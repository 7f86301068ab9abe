"""The page of `tailscope explain`: the answer, the causes, four pictures and the account."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from markupsafe import Markup

from tailscope.ledger.causes import MEANING
from tailscope.ledger.provenance import Measured
from tailscope.present import chain_text, code_text, figures
from tailscope.present.account import intervals, losses
from tailscope.present.advice import advised
from tailscope.present.answer import answer
from tailscope.present.cause_table import is_small, penalty_words
from tailscope.present.output import write
from tailscope.present.pages.charts import explanation as charts
from tailscope.present.pages.charts import flame
from tailscope.present.pages.charts.frame import HALF, WIDE, drawn
from tailscope.present.pages.parts import Fact, Panel, Table
from tailscope.present.pages.rendering import rendered
from tailscope.present.pages.units import unbroken
from tailscope.quantity import count, duration, percent, ratio, span_of_time
from tailscope.statistics.blame import words
from tailscope.statistics.chain import words as chain_words
from tailscope.statistics.explanation import Cause, Explanation

#: Other span names in the table.
OTHERS = 30
#: The slowest spans in the picture.
WORST = 15


def save(explanation: Explanation, file: str) -> None:
    """Write the page; a page that is not complete never replaces one that is."""
    write(file, page(explanation))


def page(explanation: Explanation) -> str:
    """The whole document."""
    return rendered("explain", context(explanation), colours())


def context(explanation: Explanation) -> dict[str, Any]:
    """What the template needs."""
    line, target = explanation.span, explanation.target.name
    first, _, rest = answer(explanation).partition("; ")
    return {
        "title": f"{target} of {line.name}",
        "notices": explanation.notices,
        "target": target,
        "name": line.name,
        "hosts": ", ".join(dict.fromkeys(r.host for r in explanation.provenance.recordings)),
        "answer": unbroken(first),
        "because": unbroken(rest),
        "facts": facts(explanation),
        "careful": (*explanation.provenance.warnings, *explanation.notes),
        **causes(explanation),
        "through": through(explanation),
        "flames": flames(explanation),
        "distribution": distribution(explanation),
        "composition": composition(explanation),
        "timeline": timeline(explanation),
        "segments": segments(explanation),
        "worst": worst(explanation),
        "others": others(explanation),
        "recordings": [account(recording) for recording in explanation.provenance.recordings],
        "stacks": code_text.sampling(explanation).capitalize(),
        "intervals": intervals(explanation).capitalize(),
    }


def colours() -> str:
    """A fill, a stroke and a background of each cause's colour."""
    rules = (
        f".f-{name}{{fill:var(--{name})}}.s-{name}{{stroke:var(--{name})}}"
        f".b-{name}{{background:var(--{name});border-color:var(--{name})}}\n"
        for name in MEANING
    )
    return "".join(rules)


def facts(explanation: Explanation) -> list[Fact]:
    """The four figures behind the answer."""
    line = explanation.span
    inside = f"95 %: {span_of_time(explanation.at_target)}"
    return [
        Fact("median (p50)", duration(line.p50_ns), "half are faster"),
        Fact(explanation.target.name, duration(line.target_ns), inside, is_goal=True),
        Fact("slowest", duration(line.max_ns), "the longest of all"),
        Fact("spans", count(line.spans), f"in {charts.clock(explanation.seconds)}"),
    ]


def causes(explanation: Explanation) -> dict[str, Any]:
    """The table of causes, and what is said below it."""
    shown = [cause for cause in explanation.causes if not is_small(cause, explanation)]
    most = max((cause.saving.ns for cause in shown), default=0.0)
    small = [cause.name for cause in explanation.causes if is_small(cause, explanation)]
    is_median = explanation.base.is_median
    target = explanation.target.name
    return {
        "usual": "usual" if is_median else explanation.base.words(),
        "of_what": "of the tail" if is_median else "of it",
        "longer": f"spans beyond {target} take longer than median ones"
        if is_median
        else f"spans around {target} take beyond that",
        "causes": [row(cause, most, said(cause, explanation)) for cause in shown],
        "advice": list(advised(explanation)),
        "together": [
            {
                "causes": " + ".join(step.causes),
                "predicted": duration(step.predicted.ns),
                "interval": span_of_time(step.predicted),
                "again": span_of_time(step.again),
            }
            for step in explanation.together
        ],
        "disagreements": [
            sentence[:1].upper() + sentence[1:].rstrip(".")
            for sentence in explanation.disagreements
        ],
        "small": ", ".join(small),
        "never": ", ".join(explanation.never),
        "not_measured": explanation.provenance.reasons(),
    }


def said(cause: Cause, explanation: Explanation) -> list[str]:
    """Who is to blame, which functions take longer, and what running the cause leaves cold."""
    functions = explanation.code.functions(cause.name) if explanation.code else ()
    found = [words(cause.name, cause.blame), *(code_text.line(one) for one in functions)]
    return [one for one in (*found, penalty_words(cause, explanation)) if one]


def row(cause: Cause, most: float, told: list[str]) -> dict[str, Any]:
    """One cause, with the lines about its functions."""
    part = max(cause.saving.ns, 0.0) / most if most > 0 else 0.0
    return {
        "name": cause.name,
        "meaning": cause.meaning,
        "said": told,
        "saves": duration(cause.saving.ns),
        "interval": span_of_time(cause.saving),
        "bar": f"{100 * part:.1f}",
        "without": duration(cause.predicted.ns),
        "fair": duration(cause.fair_ns) if cause.fair_ns is not None else "–",
        "share": percent(cause.share),
        "impact": ratio(cause.impact),
        "spans": percent(cause.spans_share),
        "events": count(cause.events) if cause.events is not None else None,
    }


def picture(
    draw: Callable[[Explanation, float], str], explanation: Explanation, wide: float
) -> Markup:
    """One of `charts`' pictures."""
    return drawn(lambda width: draw(explanation, width), wide)


def keys(names: Iterable[str]) -> list[tuple[str, str]]:
    """The colours of some causes."""
    return [(f"b-{name}", name) for name in names]


def flames(explanation: Explanation) -> list[Panel]:
    """Who called whom under the causes of which functions are named."""
    causes = explanation.code.causes if explanation.code else ()
    return [
        Panel(one.cause, drawn(partial(flame.draw, one.calls), WIDE))
        for one in causes
        if one.calls is not None
    ]


def distribution(explanation: Explanation) -> Panel:
    """The CDF."""
    found = [("stroke ink", "as measured")]
    found += [(f"stroke b-{n}", f"without {n}") for n in charts.shown_curves(explanation)]
    if joint := charts.joint_curve(explanation):
        found.append(("stroke dashed", f"without {joint}"))
    return Panel("", picture(charts.cdf, explanation, WIDE), legend=found)


def composition(explanation: Explanation) -> tuple[Panel, Table]:
    """What spans are made of, from fast to slow."""
    found = charts.seen_causes([chosen.causes_ns for chosen in explanation.classes], 0.01)
    drawn_ = picture(charts.composition, explanation, HALF)
    return Panel("", drawn_, legend=keys(found)), figures.classes(explanation)


def timeline(explanation: Explanation) -> Panel:
    """When the tail happened."""
    found = charts.seen_causes([block.causes_ns for block in explanation.timeline], 0.05)
    return Panel("", picture(charts.timeline, explanation, HALF), legend=keys(found))


def through(explanation: Explanation) -> dict[str, Any] | None:
    """What another server did while requests waited for it; None without its ledger."""
    chain = explanation.through
    if chain is None:
        return None
    target = explanation.target.name
    opened = chain.every.asked > 0
    return {
        "sentences": [sentence[:1].upper() + sentence[1:] for sentence in chain_words(chain)],
        "table": Table("means", chain_text.header(target), chain_text.lines(chain))
        if opened
        else None,
        "by_request": chain_text.by_request(chain).capitalize() if opened else "",
    }


def segments(explanation: Explanation) -> dict[str, Any] | None:
    """The recording's pieces, where it was cut into some."""
    found = explanation.segments
    if found is None:
        return None
    top = [cause for cause in found.within[:3] if cause.saving.ns > 0]
    marked, every = figures.segments(found, explanation.target.name)
    return {
        "pieces": len(found.segments),
        "length": duration(1e9 * found.length_s),
        "variation": percent(found.variation),
        "marked": marked,
        "all": every,
        "worth": ", ".join(f"{duration(cause.saving.ns)} {cause.name}" for cause in top),
    }


def worst(explanation: Explanation) -> tuple[Panel, Table]:
    """The slowest spans one by one."""
    bars = [{name: float(ns) for name, ns in span.causes.items()} for span in explanation.worst]
    drawn_ = drawn(lambda width: charts.worst(explanation, width, WORST), WIDE)
    legend = keys(charts.seen_causes(bars, 0.01))
    return Panel("", drawn_, legend=legend), figures.slowest(explanation)


def others(explanation: Explanation) -> Table | None:
    """The ledger's other span names."""
    if not explanation.others:
        return None
    head = ("name", "spans", "p50", explanation.target.name, "max")
    rows = [
        (
            line.name,
            count(line.spans),
            *(duration(ns) for ns in (line.p50_ns, line.target_ns, line.max_ns)),
        )
        for line in explanation.others[:OTHERS]
    ]
    return Table("other spans", head, rows)


def account(recording: Measured) -> dict[str, Any]:
    """How one recording was measured, what was lost and what it cost."""
    return {
        "host": recording.host,
        "machine": list(machine(recording)),
        "ledger": recording.path,
        "spans": losses(recording),
        "is_lost": any(recording.lost.values()),
        "recorder": recorder(recording),
        "mechanisms": mechanisms(recording),
    }


def machine(recording: Measured) -> Iterator[str]:
    """Kernel and CPUs."""
    if recording.kernel:
        yield f"Linux {recording.kernel} {recording.arch or ''}".strip()
    if recording.cpus:
        yield f"{recording.cpus} CPUs"


def recorder(recording: Measured) -> str:
    """What recording cost; "" where that is not known."""
    if recording.recorder_cpu_ns is None:
        return ""
    cost = f"{duration(recording.recorder_cpu_ns)} of CPU"
    if recording.seconds:
        cost += f", {percent(recording.recorder_cpu_ns / 1e9 / recording.seconds)} of one CPU"
    if recording.recorder_rss_bytes is not None:
        cost += f"; {recording.recorder_rss_bytes / (1 << 20):.0f} MiB of memory"
    return cost


def mechanisms(recording: Measured) -> list[tuple[str, str, str]]:
    """By what was measured, why not by something better, and what was."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, step in recording.ladder.items():
        if isinstance(step, dict):
            why = f"({step['why']})" if step.get("why") else ""
            found.setdefault((str(step.get("rung") or "not measured"), why), []).append(name)
    return [(mechanism, why, ", ".join(names)) for (mechanism, why), names in found.items()]
