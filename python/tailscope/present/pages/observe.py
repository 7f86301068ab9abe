"""The page of `tailscope observe`, from its JSON: the answer, then a card for each question.

docs/reference/observe.md says what each key of the JSON means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailscope.present.pages.charts import heat, interval
from tailscope.present.pages.charts.axis import Cells
from tailscope.present.pages.charts.bars import COLOURS
from tailscope.present.pages.charts.curves import Distribution, course
from tailscope.present.pages.charts.frame import HALF, WIDE, Words, drawn
from tailscope.present.pages.joint import shares
from tailscope.present.pages.observe_tags import cards as by_tag
from tailscope.present.pages.observe_timing import evenness
from tailscope.present.pages.parts import Fact, Panel, Table
from tailscope.present.pages.units import (
    brief_rate,
    octets,
    or_dash,
    rate,
    share,
    short,
    unbroken,
    whole,
)

Report = Mapping[str, Any]

#: The share of the values that may lie beyond each end of a picture.
OUTSIDE = 0.0005
#: If this share of the pairs saw no growth, the picture shows the others.
IDLE = 0.5
#: The width of the map of two rates (px).
MAP = 640.0
#: What the ratio of two hardware events is called, and its unit.
RATIOS = {
    ("instructions", "cycles"): ("IPC", "instructions a cycle"),
    ("cycles", "instructions"): ("CPI", "cycles an instruction"),
}


def context(report: Report) -> dict[str, Any]:
    """What the template needs."""
    rates = report["rates"]
    return {
        "title": rates[0]["signal"] if rates else "observation",
        "kicker": placed(report),
        "grew": unbroken(growth(rates)),
        "cost": unbroken(cost_in_words(report["effect"])),
        "facts": facts(report),
        "careful": careful(report),
        "rates": [of_counter(report, number) for number in range(len(rates))],
        "ratio": ratio(report),
        "tags": by_tag(report),
        "joint": joint(report),
        "effect": effect(report),
        "evenness": evenness(report),
        "account": account(report),
        "text": report["text"],
    }


def placed(report: Report) -> str:
    """Where the observer ran: on the same core as the application, or on another one."""
    where = f"from CPU {report['cpu']}"
    if (observed := report["observed_cpu"]) is not None:
        same = report["placement"] == "same core"
        where += (
            f" (the same core as CPU {observed})"
            if same
            else f" (another core than CPU {observed})"
        )
    return f"{where}, {report['seconds']:.1f} s"


def growth(rates: Sequence[Report]) -> str:
    """The first counter's rate."""
    if not rates:
        return "nothing was observed"
    name, per_second = rates[0]["signal"], rates[0]["per_second"]
    if per_second is None:
        return f"the rate of {name} is unknown"
    return f"{name} grew by {brief_rate(per_second)}"


def cost_in_words(effect: Report | None) -> str:
    """What observing took. If the interval includes nothing at all, its upper end is the answer."""
    if effect is None:
        return "what observing cost is unknown"
    if effect["low"] > 0:
        return f"observing took {share(effect['share'])} of its speed"
    if effect["high"] < 0:
        return f"it was {share(-effect['share'])} faster while observed"
    return f"observing took at most {share(effect['high'])} of its speed"


def between(effect: Report) -> str:
    """The effect's interval."""
    return f"95 %: {share(effect['low'])} to {share(effect['high'])}"


def facts(report: Report) -> list[Fact]:
    """The figures behind the answer."""
    found = []
    for first in report["rates"][:1]:
        kept, each = first["kept"], first["per_cycle"]
        spread = f"{or_dash(kept['p1'], brief_rate)} to {or_dash(kept['p99'], brief_rate)}"
        one_in = "–" if not each else f"{in_cycles(1 / each)} cycles"
        found.append(Fact("one count in", one_in, f"{spread} (p1 to p99)"))
    period = or_dash(report["periods"]["p50"], whole)
    found.append(Fact("samples", short(report["samples"]), f"median period: {period} cycles"))
    dropped = whole(report["disagreed"] + report["preempted"])
    found.append(
        Fact("pairs of samples kept", or_dash(report["kept_share"], share), f"{dropped} dropped")
    )
    effect = report["effect"]
    took = share(effect["share"]) if effect else "–"
    found.append(Fact("observing took", took, between(effect) if effect else "unknown"))
    return [Fact(fact.title, unbroken(fact.value), unbroken(fact.note)) for fact in found]


def in_cycles(cycles: float) -> str:
    """A number of cycles in whole ones where these are few digits."""
    return whole(cycles) if 1e3 <= cycles < 1e5 else short(cycles)


def careful(report: Report) -> list[str]:
    """What the reader must know before the figures."""
    found = list(report["notices"])
    if raw := report["raw"]:
        if raw["error"]:
            found.append(f"raw samples are missing: {raw['error']}")
        if raw["lost"]:
            found.append(f"{whole(raw['lost'])} raw samples were lost: the disk was too slow")
    return found


def of_counter(report: Report, number: int) -> dict[str, Any]:
    """A counter's card: its rate, how it is distributed, and over time."""
    counter = report["rates"][number]
    each = counter["per_cycle"]
    return {
        "name": counter["signal"],
        "colour": COLOURS[number % len(COLOURS)],
        "average": or_dash(counter["per_second"], rate),
        "each": f"{1 / each:.1f}" if each else None,
        "how": counter["how"],
        "panels": [distribution(report, number), over_time(report, number)],
        "table": Table(
            "The figures: the rate by pair of samples",
            ("", "pairs kept", "all pairs"),
            [
                (name, kept, every)
                for (name, kept), (_, every) in zip(
                    summary(counter["kept"], rate), summary(counter["all"], rate), strict=True
                )
            ],
        ),
    }


def summary(of: Report, shown: Any) -> list[tuple[str, str]]:  # noqa: ANN401 (a formatter)
    """A distribution in figures."""
    keys = ("mean", "deviation", "p1", "p10", "p50", "p90", "p99", "p999", "max")
    names = {"deviation": "standard deviation", "p999": "p99.9", "max": "largest"}
    rows = [(names.get(key, key), or_dash(of[key], shown)) for key in keys]
    return [("pairs", whole(of["count"])), *rows]


def spread_in_words(of: Report, shown: Any) -> str:  # noqa: ANN401 (a formatter)
    """A distribution in a sentence."""
    p1, p50, p99 = (or_dash(of[key], shown) for key in ("p1", "p50", "p99"))
    return (
        f"Of {whole(of['count'])} pairs of samples, 1 % are at or below {p1}, half at or below "
        f"{p50}, 99 % at or below {p99}."
    )


def grown(cells: Cells, without_idle: bool) -> Cells:
    """The pairs to draw: all, or only those that saw growth."""
    return cells[1:] if without_idle and cells and cells[0][0] <= 0 else cells


def distribution(report: Report, number: int) -> Panel:
    """How a counter's rate is distributed."""
    counter, title = report["rates"][number], "How fast, from one sample to the next"
    cells, kept = counter["cells"], counter["kept"]
    idle = cells[0][1] / max(kept["count"], 1) if cells and cells[0][0] <= 0 else 0.0
    without_idle = idle > IDLE
    dropped = report["disagreed"] + report["preempted"] > 0
    every = grown(report["curves"]["all"][number], without_idle)
    colour = COLOURS[number % len(COLOURS)]
    curve = Distribution(
        Words(f"Distribution of the rate of {counter['signal']}", spread_in_words(kept, rate)),
        "counts a second",
        "% of the pairs that saw growth, at most so fast"
        if without_idle
        else "% of the pairs of samples that are at most so fast",
        f"s-{colour}",
        grown(cells, without_idle),
        OUTSIDE,
        brief_rate,
        behind=(every, "all pairs, including those dropped") if dropped and every else None,
    )
    if curve.axis is None:
        return Panel(title, None, ["No pair of samples saw it grow."])
    notes = []
    if without_idle:
        notes.append(f"Not drawn: {share(idle)} of the pairs. They saw no growth.")
    notes += beyond(curve, kept, rate)
    keys = [(f"stroke b-{colour}", "pairs kept"), ("stroke dashed", "all pairs, dropped ones too")]
    return Panel(title, drawn(curve.draw, HALF), notes, keys if curve.behind else ())


def beyond(curve: Distribution, kept: Report, shown: Any) -> list[str]:  # noqa: ANN401
    """How much of a distribution the picture leaves out at the right."""
    if not (out := curve.beyond):
        return []
    most = shown(kept["max"])
    return [f"Beyond the right edge: {whole(out)} of {whole(kept['count'])} pairs, up to {most}."]


def over_time(report: Report, number: int) -> Panel:
    """A counter's rate in each slice of time."""
    name = report["rates"][number]["signal"]
    slices = [
        (piece["at"], piece["per_second"][number] if piece["per_second"] else None)
        for piece in report["series"]
    ]
    known = [value for _, value in slices if value is not None]
    if not known:
        return Panel("Over time", None, ["No slice of time has a pair that was kept."])
    words = Words(
        f"Rate of {name} over time",
        f"In {report['seconds']:.1f} s, in slices, between {rate(min(known))} and "
        f"{rate(max(known))}.",
    )
    style = f"s-{COLOURS[number % len(COLOURS)]}"
    picture = drawn(
        lambda width: course(words, "counts a second", style, slices, report["seconds"], 0, width),
        HALF,
    )
    return Panel("Over time", picture)


def event(signal: str) -> str:
    """The hardware event that a signal counts; "" if it is something else."""
    kind, _, rest = signal.partition(":")
    name = rest.rpartition(":")[2] if kind in ("counter", "core") else ""
    return "cycles" if name == "cpu-cycles" else name


def called(first: str, second: str) -> tuple[str, str]:
    """What the ratio of two signals is called, and its unit."""
    other = ("One by the other", "the first counter by the second")
    return RATIOS.get((event(first), event(second)), other)


def ratio(report: Report) -> dict[str, Any] | None:
    """The first counter by the second, by pair of samples."""
    ratios = report["ratios"]
    if ratios is None:
        return None
    names = [counter["signal"] for counter in report["rates"][:2]]
    title, unit = called(*names)
    kept, without = ratios["kept"], ratios["without"]
    curve = Distribution(
        Words(f"Distribution of {names[0]} by {names[1]}", spread_in_words(kept, short)),
        unit,
        "% of the pairs of samples that are at most that",
        "s-one",
        ratios["cells"],
        OUTSIDE,
        short,
    )
    notes = beyond(curve, kept, short)
    if curve.axis is None:
        notes.append("In no pair of samples did both grow.")
    if without:
        part = share(without / (without + kept["count"]))
        notes.append(f"Not drawn: {part} of the pairs. The second did not grow in them.")
    first, *others = summary(kept, short)
    rows = [first, ("pairs without a ratio", whole(without)), *others]
    return {
        "title": title,
        "names": names,
        "average": or_dash(report["ratio"], lambda value: f"{value:.4f}"),
        "panel": Panel("", drawn(curve.draw, HALF) if curve.axis else None, notes),
        "table": Table(
            "The figures: the ratio by pair of samples, each with the same weight",
            ("", "pairs kept"),
            rows,
        ),
    }


def joint(report: Report) -> dict[str, Any] | None:
    """The first two counters' rates together."""
    cells = report["joint"]
    if cells is None:
        return None
    names = [counter["signal"] for counter in report["rates"][:2]]
    together = or_dash(report["correlation"], lambda value: f"{value:.3f}")
    by = or_dash(report["ratio"], lambda value: f"{value:.4f}")
    words = Words(
        f"The rates of {names[0]} and {names[1]} together",
        f"The first by the second is {by}; their rates correlate by {together}.",
    )
    out = heat.outside(cells)
    picture = None
    if heat.axes(cells):
        picture = drawn(lambda width: heat.draw(names, cells, words, width), MAP)
    head, rows = shares(cells)
    title = f"The figures: % of the pairs, by {names[0]} (across) and {names[1]} (down)"
    return {
        "names": names,
        "ratio": by,
        "correlation": together,
        "panel": Panel("", picture, [f"{whole(out)} pairs lie beyond the edges."] if out else []),
        "table": Table(title, head, rows),
    }


def effect(report: Report) -> dict[str, Any]:
    """What observing took from the application's speed."""
    found, budget = report["effect"], report["budget"]
    if found is None:
        return {"progress": report["progress"], "picture": None}
    words = Words(
        "What observing took from the application's speed",
        f"{share(found['share'])}, {between(found)}",
    )
    verdict = None
    if budget is not None:
        within = "within" if found["high"] <= budget else "above"
        within = "about at" if found["low"] <= budget < found["high"] else within
        verdict = f"That is {within} the budget of {share(budget)}."
    figures = found["share"], found["low"], found["high"]
    return {
        "progress": report["progress"],
        "pauses": whole(found["phases"]),
        "verdict": verdict,
        "picture": drawn(lambda width: interval.draw(*figures, budget, words, width), WIDE),
    }


def account(report: Report) -> list[tuple[str, str]]:
    """How it was observed, and what was lost."""
    period = report["period"]
    every = f"every {whole(period)} cycles" if period else "as fast as possible"
    lost = (
        f"{whole(report['preempted'])} across a preemption of the observer"
        if report["preemption_noticed"]
        else "preemptions can't be detected here"
    )
    found = [
        ("observer", f"{placed(report)}; {every}; {whole(report['samples'])} samples"),
        ("ended", report["end"]),
        (
            "pairs of samples",
            f"{whole(report['kept'])} kept; dropped: {whole(report['disagreed'])} whose two "
            f"readings of the clock disagreed by more than {share(report['tolerance'])} (Shim's "
            f"double-time error correction), {lost}",
        ),
    ]
    if wrong := report["impossible"]:
        text = (
            f"{whole(wrong['all'])} of all pairs grew by more than {wrong['most']:g} a cycle, "
            f"{whole(wrong['kept'])} of those kept"
        )
        found.append(("impossible rates", text))
    found += [("counter", f"{counter['signal']}: {counter['how']}") for counter in report["rates"]]
    found += [("tag", name) for name in (report["by_tag"] or {"signals": []})["signals"]]
    found.append(("progress", f"{report['progress']} shows the application's speed"))
    if raw := report["raw"]:
        text = (
            f"{whole(raw['samples'])} written ({octets(raw['bytes'])}, {raw['files']} files), "
            f"{whole(raw['lost'])} lost: {raw['folder']}"
        )
        found.append(("raw samples", text))
    return found
