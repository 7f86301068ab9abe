"""The page of `tailscope locality`, from its JSON: which lines of memory threads share.

docs/how-to/find-shared-lines.md says what each figure means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tailscope.present.pages.charts import strips
from tailscope.present.pages.charts.bars import COLOURS
from tailscope.present.pages.charts.frame import WIDE, Words, drawn
from tailscope.present.pages.parts import Fact, Panel, Table
from tailscope.present.pages.units import octets, unbroken, whole
from tailscope.quantity import duration

Report = Mapping[str, Any]

LINE = 64
#: Threads of a line that have a strip, and lines in the picture.
MOST_USERS, MOST_LINES = 4, 12
#: Below this probability that the next sampled line is a known one, much was not seen.
COVERED = 0.9
VERDICTS = {
    "private": "one thread",
    "read-only": "shared, never written",
    "true": "true sharing: the same bytes",
    "false": "false sharing: different bytes",
    "unclear": "shared and written; too few samples to say more",
}


def context(report: Report) -> dict[str, Any]:
    """What the template needs."""
    phase = report["phase"]
    return {
        "title": f"memory of process {report['pid']}",
        "kicker": f"process {report['pid']}" + (f", in {phase} and outside" if phase else ""),
        "answer": unbroken(answer(report)),
        "careful": list(careful(report)),
        "facts": list(facts(report)),
        "picture": picture(report["contended"]),
        "tables": [table for table in tables(report) if table.rows],
    }


def answer(report: Report) -> str:
    """What sharing costs, if any was seen."""
    for kind, words in (("false", "falsely shared"), ("true", "written by several threads")):
        lines = [line for line in report["contended"] if line["sharing"] == kind]
        if lines:
            took = percent(sum(line["time"]["value"] for line in lines))
            number = "1 line is" if len(lines) == 1 else f"{len(lines)} lines are"
            return f"{number} {words}: {took} of the CPU time near accesses"
    return "no line was seen that several threads use and one of them writes"


def careful(report: Report) -> Iterator[str]:
    """What was not seen."""
    counts, watch = report["counts"], report["watch"]
    samples = max(counts["samples"], 1)
    in_kernel = counts["in_kernel"] / samples
    if in_kernel > 0.2:
        yield f"{percent(in_kernel)} of the samples were in the kernel, where no access is seen"
    in_user = max(samples - counts["in_kernel"], 1)
    known = counts["resolved"] / in_user
    if known < 0.5:
        yield f"only {percent(known)} of the samples in user space have an access that is known"
    if report["lines"]["coverage"] < COVERED:
        chance = percent(report["lines"]["coverage"])
        yield f"the next sampled line would be a known one with probability {chance}: sample longer"
    if lost := counts["lost"] + counts["dropped"]:
        yield f"{whole(lost)} samples or accesses found no room"
    if left_out := counts["threads_left_out"]:
        yield f"{whole(left_out)} threads were not sampled"
    if not report["members_complete"]:
        yield "to look for members of variables and types took too long: some are not named"
    if watch["stopped"]:
        yield f"no word is watched: {watch['stopped']}"


def facts(report: Report) -> Iterator[Fact]:
    """The figures in large letters."""
    counts, lines = report["counts"], report["lines"]
    length = duration(1e9 * report["seconds"])
    yield Fact("samples", whole(counts["samples"]), f"in {length}")
    yield Fact("accesses", whole(counts["accesses"]), "with a known address")
    size = octets(LINE * round(lines["estimate"]))
    yield Fact("memory in use", unbroken(size), f"at least {whole(lines['estimate'])} lines")
    yield Fact("threads", whole(len(report["threads"])), "had a sample")


def picture(lines: Sequence[Report]) -> Panel | None:
    """Each line with the bytes that its threads access; `None`: there is none."""
    if not lines:
        return None
    colours = threads(lines)
    shown = [strip(line, colours) for line in lines[:MOST_LINES]]
    words = Words(
        "Which bytes of each line threads access",
        "Each strip is the 64 bytes of a line, for one thread.",
    )
    more = len(lines) - len(shown)
    return Panel(
        "",
        drawn(lambda width: strips.draw(shown, words, width), WIDE),
        [f"{more} more lines are in the table."] if more > 0 else [],
    )


def threads(lines: Sequence[Report]) -> dict[int, str]:
    """A colour for each thread. With many threads, several have the same."""
    tids = dict.fromkeys(user["tid"] for line in lines for user in line["users"])
    return {tid: COLOURS[place % len(COLOURS)] for place, tid in enumerate(tids)}


def strip(line: Report, colours: Mapping[int, str]) -> strips.Strip:
    """A line as the picture has it."""
    verdict = VERDICTS[line["sharing"]].partition(":")[0].partition(";")[0]
    title = f"{line['what']}, {percent(line['time']['value'])}: {verdict}"
    users = [
        strips.User(
            f"{user['name']} ({user['tid']})", colours[user["tid"]], pieces(user), members(user)
        )
        for user in sorted(line["users"][:MOST_USERS], key=lambda user: user["bytes"])
    ]
    return strips.Strip(title, users)


def pieces(user: Report) -> list[strips.Piece]:
    """The bytes that a thread accesses: member by member, where these are known."""
    all_of_it = f"{whole(user['reads'])} loads, {whole(user['writes'])} stores"
    if not user["fields"]:
        return [strips.Piece(*user["bytes"], all_of_it)]
    return [
        strips.Piece(*field["bytes"], f"{named(field)}: {whole(field['accesses'])} accesses")
        for field in user["fields"]
    ]


def members(user: Report) -> str:
    """What a thread accesses, the most frequent member first."""
    fields = sorted(user["fields"], key=lambda field: -field["accesses"])
    return ", ".join(map(named, fields))


def named(field: Report) -> str:
    """A member with its type: `stats.hits (long int)`."""
    same = field["name"] == field["type"]
    return field["name"] if same else f"{field['name']} ({field['type']})"


def tables(report: Report) -> Iterator[Table]:
    """The figures of the report as text."""
    for title, lines in (
        ("Lines that several threads use and at least one writes", report["contended"]),
        ("Hot lines", report["hot"]),
    ):
        yield Table(title, ("line", "CPU time", "sharing", "in"), list(map(line_row, lines)))
    rows = [
        [group_name(group), *map(with_interval, (group["lines"], group["time"], group["updates"]))]
        for group in report["groups"]
    ]
    yield Table("Groups of lines", ("group", "lines", "CPU time", "updates"), rows)
    head = ("lines", "loads", "stores", "updates")
    for title, parts in (("Functions", report["functions"]), ("Threads", report["threads"])):
        yield Table(title, (title[:-1].lower(), "CPU time", *head), list(map(part_row, parts)))


def line_row(line: Report) -> list[str]:
    """A line, by what it holds."""
    held = sorted({named(field) for user in line["users"] for field in user["fields"]})
    what = f"{line['what']}: {', '.join(held)}" if held else line["what"]
    took = with_interval(line["time"])
    return [what, took, VERDICTS[line["sharing"]], ", ".join(line["functions"])]


def part_row(part: Report) -> list[str]:
    """A function or a thread."""
    name = part["name"] if part.get("tid") is None else f"{part['name']} ({part['tid']})"
    counts = [whole(part[key]) for key in ("lines", "reads", "writes")]
    return [name, with_interval(part["time"]), *counts, with_interval(part["updates"])]


def group_name(group: Report) -> str:
    """Which lines these are."""
    users = "one thread" if group["session"] == "local" else "several threads"
    phases = {"phase": "in the phase only, ", "global": "in both, ", "rest": ""}
    return f"{phases[group['phase']]}{users}"


def with_interval(share: Report | None) -> str:
    """`12.3 % (±1.2)`, as in the text; a dash where it is not known."""
    if share is None:
        return "–"
    value = percent(share["value"])
    if share["low"] is None or share["high"] is None:
        return unbroken(value)
    return unbroken(f"{value} (±{50 * (share['high'] - share['low']):.1f})")


def percent(value: float) -> str:
    """A share with one decimal."""
    return f"{100 * value:.1f} %"
