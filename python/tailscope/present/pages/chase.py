"""The page of `tailscope chase`, from its JSON: when threads should move to their data.

docs/how-to/measure-migrations.md says what each figure means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tailscope.present.pages.charts.bars import COLOURS
from tailscope.present.pages.charts.frame import WIDE, Words, drawn
from tailscope.present.pages.charts.series import Chart, Point, Series
from tailscope.present.pages.parts import Fact, Panel, Table
from tailscope.present.pages.units import or_dash, unbroken, whole
from tailscope.quantity import duration

Report = Mapping[str, Any]

#: A calibration is doubtful if other programs had more of the CPUs than this share
#: (`crates/locality/src/chase/waiting.rs`).
OTHERS = 0.05
CACHES = (("L1d", "l1d"), ("L2", "l2"), ("L3", "l3"))
BEHAVE = {"two-cores": "two cores", "one-core": "threads of one core", "unknown": "not certain"}


def context(report: Report) -> dict[str, Any]:
    """What the template needs."""
    first, second = report["cpus"][:2]
    return {
        "title": f"chase: CPUs {first} and {second}",
        "cpus": ", ".join(map(str, report["cpus"])),
        "sessions": whole(report["sessions"]),
        "answer": unbroken(answer(report)),
        "careful": list(careful(report)),
        "facts": list(facts(report)),
        "modes": [of_mode(report, mode) for mode in others(report)],
        "latencies": latencies(report),
        "points": Table("Every combination", *rows(report)),
    }


def base(report: Report) -> str:
    """The mode with which the others are compared."""
    points = report["points"]
    return points[0]["speeds"][0]["mode"] if points else "sync"


def others(report: Report) -> list[str]:
    """The other modes."""
    points = report["points"]
    return [speed["mode"] for speed in points[0]["speeds"][1:]] if points else []


def ratios(report: Report, mode: str) -> Iterator[tuple[Report, Report]]:
    """Each combination, with the ratio of a mode's speed there."""
    for point in report["points"]:
        for speed in point["speeds"]:
            if speed["mode"] == mode and speed["ratio"] is not None:
                yield point, speed["ratio"]


def answer(report: Report) -> str:
    """Where the second mode gains most, or that nothing shows that it gains."""
    modes = others(report)
    if not modes:
        return "the CPUs and the caches, without a comparison of modes"
    mode = modes[-1]
    sure = [(p, r) for p, r in ratios(report, mode) if r["low"] > 1]
    if not sure:
        return f"nothing shows that {mode} is faster than {base(report)} here"
    point, ratio = max(sure, key=lambda pair: pair[1]["value"])
    return (
        f"{mode} is up to {ratio['value']:.2f} × as fast as {base(report)}: at "
        f"{size(point['working_set'])} with {updates(point)} writes"
    )


def careful(report: Report) -> Iterator[str]:
    """What makes the figures doubtful."""
    if (had := report["others"]) is None:
        yield "Whether other programs had these CPUs is not known"
    elif had > OTHERS:
        yield f"Other programs had these CPUs for {100 * had:.0f} % of the calibration"
    if report["pair"]["verdict"] != "two-cores" and not report["one_core_by_topology"]:
        yield (
            "The topology shows two cores. Whether they behave so: "
            + BEHAVE[report["pair"]["verdict"]]
        )
    if (measured := len(report["points"])) < report["planned"]:
        yield f"Interrupted: {measured} of {report['planned']} combinations were measured"
    dropped = sum(point["dropped"] for point in report["points"])
    if dropped:
        total = sum(point["segments"] for point in report["points"])
        yield f"{whole(dropped)} of {whole(total)} segments were dropped"


def facts(report: Report) -> Iterator[Fact]:
    """The figures in large letters."""
    costs, pair = report["costs"], report["pair"]
    for title, key, note in (
        ("migration there and back", "migration_ns", "both CPUs awake"),
        ("switch between fibres", "switch_ns", "on one kernel thread"),
    ):
        cost = costs[key]
        value = or_dash(cost and cost["value"], nanoseconds)
        yield Fact(title, unbroken(value), unbroken(between(cost) if cost else note))
    line = pair["line_ns"]
    spread = f"{line[1]:.0f} to {line[2]:.0f} ns" if line else "not known"
    yield Fact(
        "a cache line from one to the other",
        unbroken(or_dash(line and line[0], nanoseconds)),
        unbroken(spread),
    )
    yield Fact("the two CPUs behave as", BEHAVE[pair["verdict"]], beside(pair))


def beside(pair: Report) -> str:
    """How fast one CPU is while the other one works."""
    ratio = pair["beside"]
    return unbroken(f"{100 * ratio['value']:.0f} % of full speed" if ratio else "not measured")


def of_mode(report: Report, mode: str) -> Panel:
    """The ratio of a mode's speed over the working sets, a line for each share of writes."""
    found: dict[float, list[Point]] = {}
    for point, ratio in ratios(report, mode):
        place = Point(point["working_set"], ratio["value"], ratio["low"], ratio["high"])
        found.setdefault(nearly(point["updates"]), []).append(place)
    series = [
        Series(f"{share:g} % writes", COLOURS[number % len(COLOURS)], by_size(points))
        for number, (share, points) in enumerate(sorted(found.items()))
    ]
    words = Words(
        f"speed of {mode} over {base(report)}",
        "A line for each share of writes, over the working set, with 95 % intervals.",
    )
    chart = Chart(
        words,
        across="working set of a session",
        up=f"speed of {mode} ÷ {base(report)}",
        series=series,
        marks=caches(report),
        level=(1.0, "equally fast"),
        written=size,
    )
    legend = [(f"b-{one.colour}", one.name) for one in series]
    return Panel(f"{mode} over {base(report)}", drawn(chart.draw, WIDE), legend=legend)


def nearly(share: float) -> float:
    """A share of writes in round percent: with a whole number of writes, 1 % becomes 0.93 %."""
    percent = 100 * share
    return float(round(percent)) if percent >= 0.5 else float(f"{percent:.1g}")


def by_size(points: Sequence[Point]) -> list[Point]:
    """The points from left to right."""
    return sorted(points, key=lambda point: point.at)


def caches(report: Report) -> list[tuple[float, str]]:
    """The sizes of the caches, as the kernel says them."""
    known = ((report["caches"][key], name) for name, key in CACHES)
    return [(at, name) for at, name in known if at is not None]


def latencies(report: Report) -> Panel | None:
    """How long a dependent load takes, over the working set."""
    if not report["latencies"]:
        return None
    points = [Point(one["bytes"], one["ns"]) for one in report["latencies"]]
    words = Words("latency of a load", "ns of one dependent load, over the working set.")
    chart = Chart(
        words,
        across="working set",
        up="ns a load",
        series=[Series("latency", COLOURS[0], points)],
        marks=caches(report),
        written=size,
    )
    rises = ", ".join(size(knee) for knee in report["knees"])
    note = f"The latency rises at {rises}." if rises else "The latency does not rise."
    return Panel("", drawn(chart.draw, WIDE), notes=[unbroken(note)])


def rows(report: Report) -> tuple[list[str], list[list[str]]]:
    """The head of the table of all combinations, and its rows."""
    first, modes = base(report), others(report)
    head = ["working set", "writes", f"{first}, M accesses/s"]
    for mode in modes:
        head += [f"{mode} ÷ {first}", "95 % interval"]
    found = []
    for point in report["points"]:
        row = [size(point["working_set"]), updates(point), millions(point["speeds"][0])]
        for speed in point["speeds"][1:]:
            ratio = speed["ratio"]
            row.append(or_dash(ratio and ratio["value"], lambda value: f"{value:.2f}"))
            row.append(f"{ratio['low']:.2f} to {ratio['high']:.2f}" if ratio else "–")
        found.append([*map(unbroken, row)])
    return head, found


def millions(speed: Report) -> str:
    return f"{speed['per_second'] / 1e6:.1f}"


def updates(point: Report) -> str:
    return f"{100 * point['updates']:.3g} %"


def nanoseconds(value: float) -> str:
    return duration(value)


def between(cost: Report) -> str:
    """A cost's interval."""
    return f"95 %: {duration(cost['low'])} to {duration(cost['high'])}"


def size(count: float) -> str:
    """Bytes in powers of two: `48 KiB`."""
    for scale, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"
