"""Shows stored results, and writes the tables of bench/README.md from them.

Every result is bench/results/MACHINE/NAME.json. Nothing is measured here.

    bench/render                    writes the tables of bench/README.md
    bench/render server_cost        prints a result, of every machine that has it
    bench/render --goals            prints every goal with its figure
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness import RESULTS, ROOT, Bar, bars_table

PAGE = ROOT / "bench" / "README.md"
START = "<!-- The tables up to the end mark are written by bench/render. -->"
END = "<!-- End of the tables. -->"
#: Characters in a table's cell, as scripts/check-docs allows them.
CELL = 160

Stored = dict[str, Any]


def results(folder: Path = RESULTS) -> dict[str, list[Stored]]:
    """All results by machine, both in alphabetical order."""
    found: dict[str, list[Stored]] = {}
    for path in sorted(folder.glob("*/*.json")):
        found.setdefault(path.parent.name, []).append(json.loads(path.read_text()))
    return found


# --- one result -----------------------------------------------------------------------------------


def page(stored: Stored) -> str:
    """A result as Markdown."""
    parts = [f"# {stored['title']}", about(stored), f"    {stored['command']}"]
    if stored["bars"]:
        parts.append(bars_table([Bar(**bar) for bar in stored["bars"]]))
    for heading, text in stored["sections"]:
        parts += [f"## {heading}", text]
    return "\n\n".join(parts) + "\n"


def about(stored: Stored) -> str:
    """Where, when, and of which sources."""
    load = stored["load"]
    before = f"; load average {load[0]:.1f} before" if load else ""
    after = f", {load[-1]:.1f} after" if len(load) > 1 else ""
    return f"{stored['machine']}; commit {stored['commit']}, {stored['date']}{before}{after}."


# --- all results ----------------------------------------------------------------------------------


def tables(found: dict[str, list[Stored]]) -> str:
    """A table for each machine."""
    return "\n\n".join("\n".join(lines(machine, some)) for machine, some in found.items())


def lines(machine: str, found: Sequence[Stored]) -> Iterator[str]:
    """One machine's table: a line for each result."""
    yield f"| {machine} | figures | goals reached | commit, date |"
    yield "| --- | --- | --- | --- |"
    for one in found:
        link = f"[{one['name']}](results/{machine}/{one['name']}.json)"
        figures = summary(one).replace("|", "\\|")
        yield f"| {link} | {figures} | {goals(one)} | {one['commit']}, {one['date']} |"


def summary(stored: Stored) -> str:
    """A result's figures in one cell: its own summary, or as many of the goals' as fit."""
    if stored["summary"]:
        return stored["summary"]
    told = [f"{bar['what']}: {bar['figure']}" for bar in stored["bars"]] or [stored["title"]]
    fitting = told[:1]
    for one in told[1:]:
        if len("; ".join([*fitting, one, "…"])) > CELL:
            return "; ".join([*fitting, "…"])
        fitting.append(one)
    return "; ".join(fitting)


def goals(stored: Stored) -> str:
    """How many goals were reached."""
    reached = [bar["held"] for bar in stored["bars"]]
    return f"{sum(reached)} of {len(reached)}" if reached else "–"


def all_goals(found: dict[str, list[Stored]]) -> str:
    """Every goal with its figure, by machine."""
    parts = []
    for machine, some in found.items():
        bars = [Bar(**bar) for one in some for bar in one["bars"]]
        parts += [f"## {machine}", bars_table(bars)] if bars else []
    return "\n\n".join(parts)


# --- bench/README.md ------------------------------------------------------------------------------


def filled(text: str, found: dict[str, list[Stored]]) -> str:
    """The page with its tables as the results have them."""
    if text.count(START) != 1 or text.count(END) != 1:
        sys.exit(f"the tables have no place: put these two lines into {PAGE}:\n{START}\n{END}")
    head, _, rest = text.partition(START)
    _, _, tail = rest.partition(END)
    return f"{head}{START}\n{tables(found)}\n{END}{tail}"


def write_tables() -> None:
    """Writes the tables of bench/README.md."""
    PAGE.write_text(filled(PAGE.read_text(), results()))


def main() -> None:
    """Writes or checks the tables, or prints what was asked for."""
    parser = argparse.ArgumentParser(
        prog="bench/render",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("name", nargs="?", help="print this result instead")
    what.add_argument("--goals", action="store_true", help="print all goals instead")
    what.add_argument("--check", action="store_true", help="exit 1 if the tables are out of date")
    parser.add_argument("--machine", help="of this machine only, a folder of bench/results")
    args = parser.parse_args()
    found = results()
    if args.machine and args.machine not in found:
        parser.error(f"no results of {args.machine}; there are: {', '.join(found)}")
    shown = {m: some for m, some in found.items() if args.machine in (None, m)}
    if args.name:
        pages = [page(one) for some in shown.values() for one in some if one["name"] == args.name]
        if not pages:
            names = sorted({one["name"] for some in shown.values() for one in some})
            parser.error(f"no result {args.name}; there are: {', '.join(names)}")
        print("\n".join(pages), end="")
    elif args.goals:
        print(all_goals(shown))
    elif args.check:
        if filled(PAGE.read_text(), found) != PAGE.read_text():
            sys.exit("the tables of bench/README.md are out of date: run bench/render")
    else:
        write_tables()
        print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
