"""The page of `tailscope borrow`, from its JSON: what was lent, and what it cost the server.

docs/how-to/lend-idle-time.md says what each figure means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tailscope.present.pages.parts import Fact, Table
from tailscope.present.pages.units import or_dash, share, unbroken, whole
from tailscope.quantity import duration

Report = Mapping[str, Any]


def context(report: Report) -> dict[str, Any]:
    """What the template needs."""
    return {
        "title": f"process {report['server']}: lent idle time",
        "server": report["server"],
        "command": " ".join(report["command"]),
        "answer": unbroken(answer(report)),
        "careful": report["notes"],
        "facts": list(facts(report)),
        "phases": Table("Phases", ("", "lending", "held back"), list(phases(report))),
        "tails": Table(
            "The server's latency",
            (
                "",
                "lending",
                "95 % interval",
                "held back",
                "95 % interval",
                "change",
                "95 % interval",
            ),
            [row(tail) for tail in report["tails"]],
        ),
        "account": list(account(report)),
    }


def signed(fraction: float) -> str:
    """A change in percent, with its sign."""
    return ("+" if fraction > 0 else "") + share(fraction)


def answer(report: Report) -> str:
    """What lending did to p99, in a sentence."""
    change = next(tail["change"] for tail in report["tails"] if tail["name"] == "p99")
    if change["value"] is None:
        return "what lending did to p99 is not known"
    sure = ""
    if change["low"] is not None and change["high"] is not None:
        sure = f" (95 %: {signed(change['low'])} to {signed(change['high'])})"
    return f"p99 with lending: {signed(change['value'])}{sure}"


def facts(report: Report) -> Iterator[Fact]:
    """The figures in large letters."""
    borrowed = f"in {duration(report['elapsed_ns'])}"
    yield Fact("borrowed CPU time", unbroken(duration(report["borrowed_ns"])), unbroken(borrowed))
    for name, side in (("lending", "lending"), ("held back", "held_back")):
        busy = unbroken(or_dash(report[side]["busy"], share))
        yield Fact(f"CPU busy, {name}", busy, f"CPU {', '.join(map(str, report['cpus']))}")
    if (slo := report["slo"]) is not None:
        known = slo["windows_held"] + slo["windows_broken"]
        held = f"{slo['windows_held']} of {known}"
        yield Fact(f"SLO {slo['slo']}", held, "windows of 10 s in which it was held", is_goal=True)


def phases(report: Report) -> Iterator[tuple[str, str, str]]:
    """The sums over both kinds of phases."""
    for name, key, shown in (
        ("time", "time_ns", duration),
        ("CPU busy", "busy", share),
        ("CPU time of the batch", "batch", share),
        ("requests", "requests", whole),
        ("wait of a request for a CPU, mean", "waited_ns", duration),
    ):
        cells = (or_dash(report[side][key], shown) for side in ("lending", "held_back"))
        lending, held_back = map(unbroken, cells)
        yield name, lending, held_back


def row(tail: Report) -> list[str]:
    """A percentile with its intervals."""
    cells = [tail["name"]]
    for key, shown in (("lending_ns", duration), ("held_back_ns", duration), ("change", signed)):
        estimate = tail[key]
        cells.append(unbroken(or_dash(estimate["value"], shown)))
        ends = [estimate["low"], estimate["high"]]
        cells.append("–" if None in ends else unbroken(" to ".join(map(shown, ends))))
    return cells


def account(report: Report) -> Iterator[tuple[str, str]]:
    """How it was done, and what was left out."""
    mechanism = report["mechanism"]
    group = mechanism["idle_group"]
    below = "SCHED_IDLE alone" if group is None else f"SCHED_IDLE and cpu.idle, cgroup v{group}"
    yield "Below the server by", below
    switch = or_dash(report["switch_p50_ns"], duration)
    yield "Held back by", f"{mechanism['held_back_by']}; a switch takes {switch} at the median"
    yield "Switches of phases", whole(report["switches"])
    yield "Requests that count for neither phase", whole(report["between"])
    yield "Requests that were lost", whole(report["lost"])
    for name, key in (
        ("Policies put back", "policies_put_back"),
        ("Affinities put back", "affinities_put_back"),
        ("Processes put back into cgroups", "groups_put_back"),
        ("Not put back", "not_put_back"),
    ):
        yield name, whole(report[key])
