"""`tailscope explain`: arguments in, text, JSON or a report out, nothing else."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from tailscope import __version__
from tailscope.errors import TailscopeError
from tailscope.escaping import escaped_in_json
from tailscope.ledger.causes import MEANING
from tailscope.present.terminal import Terminal
from tailscope.statistics.blamed_part import Part
from tailscope.statistics.varmri import ORIGIN, PEARSON, VarMRI

EXAMPLES = """\
examples:
  tailscope explain LEDGER              the causes of p99, and what to do
  tailscope explain LEDGER -p p99.9     the same for p99.9
  tailscope explain SLOW -p p50 --baseline OK
                                        why all requests in SLOW take longer
                                        than in OK
  tailscope explain LEDGER --span get   the causes for spans named get
  tailscope explain PROXY --through BACKEND
                                        what the backend did while requests of
                                        the proxy waited for it
  tailscope explain LEDGER -v           all figures of each cause
  tailscope explain LEDGER --segment 10m
                                        compare time segments of 10 minutes
  tailscope explain LEDGER --without runqueue,preempted
                                        predict p99 with both causes fixed
  tailscope explain LEDGER --without "queue:GET /report"
                                        predict p99 without the queue behind
                                        GET /report
  tailscope explain LEDGER --html tail.html
                                        also write a page with charts
  tailscope explain LEDGER --firefox tail.json
                                        also write the stacks and slow spans
                                        for profiler.firefox.com
  tailscope explain db1/ db2/ --json    two ledgers together, as JSON
  tailscope explain s3://runs/today     a ledger in a bucket
                                        (pip install 'tailscope[s3]')
  tailscope explain LEDGER --engine sc://spark:15002
                                        let a Spark cluster read the rows

columns:
  saves      How much lower the percentile would be if the cause were never
             worse than its own median. The 95 % interval is next to it. The
             queue behind a cause is included if the ledger has every request
             and its ready time: requests are replayed in their thread's
             order. At and below the median, the limit is the least value in
             any span. With --baseline, the limit is the median there.
  of tail    The cause's share of the time by which spans at or above the
             percentile are longer than median spans. At and below the median,
             and with --baseline, the column is named "of it". It is then the
             share of the time that spans around the percentile take beyond
             the base.
with -v, also:
  fair       the cause's share of what all causes together save (Shapley);
             these shares add up
  without    the percentile minus what the cause saves
  impact     VarMRI's impact value: the fraction by which the percentile falls
             if the spans with much of the cause are left out
  spans      the share of the spans with any time of the cause

The line below a cause names what to blame in spans at or above the
percentile: the thread that ran instead, the thread that released the lock, the
interrupt or softirq. A span's whole time of a cause counts for the blamed
thread with the largest part of it. "What to do" has a line for each cause that
matters, at most three.
"""


#: What can show stacks, and what it is good for.
PROGRAMS = {
    "speedscope": "speedscope.app: flame graphs of slow and of usual spans",
    "pprof": "go tool pprof: one profile with the values slow and usual",
    "firefox": "profiler.firefox.com: call trees and flame graphs of any part of the time, slow "
    "spans as markers",
    "perfetto": "ui.perfetto.dev: slow spans as slices, and below them the samples of their thread",
}


class Parser(argparse.ArgumentParser):
    """A parser whose help fits the terminal's letters."""

    def _print_message(self, message: str, file: TextIO | None = None) -> None:
        stream = file or sys.stderr
        super()._print_message(Terminal.of(stream).spell_lines(message), stream)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = Parser(
        prog="tailscope explain",
        description="Rank the causes of slow requests by the time that each adds to a percentile.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("ledger", nargs="+", help="folder that tailscope record wrote, or s3://…")
    found.add_argument(
        "-p",
        "--target",
        default="p99",
        metavar="PERCENTILE",
        help="what to explain, p1 to p99.99; default: p99",
    )
    found.add_argument(
        "--baseline",
        metavar="LEDGER",
        help="compare causes with their medians in this recording of a normal state",
    )
    found.add_argument(
        "--span", metavar="NAME", help="spans to explain; default: the most frequent name"
    )
    found.add_argument(
        "--through",
        metavar="LEDGER",
        help="open the time that requests waited for another server (downstream) into the causes "
        "of that server, which this is a recording of",
    )
    found.add_argument(
        "--segment",
        metavar="LENGTH",
        help="compare the typical, worst and best time segment of this length (30s, 10m, 1h)",
    )
    found.add_argument(
        "--without",
        type=causes,
        default=(),
        metavar="CAUSE[:NAME],…",
        help="also predict the percentile with all these causes fixed at once; with NAME, only "
        "what that one is to blame for; the interval also covers a fix that leaves their usual "
        "variation",
    )
    found.add_argument(
        "-v", "--verbose", action="store_true", help="show all figures of each cause"
    )
    found.add_argument(
        "--impact",
        action="store_true",
        help="show impact values, why they differ from savings, and which causes occur together",
    )
    found.add_argument("--json", action="store_true", help="print JSON; times in ns")
    found.add_argument("--html", metavar="FILE", help="also write a self-contained report")
    found.add_argument("--seed", type=int, default=1, help="seed of random samples; default: 1")
    found.add_argument(
        "--engine",
        default="duckdb",
        metavar="ENGINE",
        help="what reads the rows: duckdb (the default), spark://HOST:PORT, sc://HOST:PORT (Spark "
        "Connect), spark://local or clickhouse://HOST:PORT",
    )
    add_stacks(found)
    add_method(found)
    found.add_argument("-q", "--quiet", action="store_true", help="print no diagnostics on stderr")
    found.add_argument("--version", action="version", version=f"tailscope {__version__}")
    return found


def add_stacks(found: argparse.ArgumentParser) -> None:
    """The options of the files for other programs."""
    stacks = found.add_argument_group(
        "stacks for other programs (the ledger needs them: record --stacks)",
        "speedscope and pprof compare a mean slow span with a usual one. firefox and\n"
        "perfetto show when each sample was taken, on its thread, and slow spans as\n"
        "requests.",
    )
    for program, shows in PROGRAMS.items():
        stacks.add_argument(f"--{program}", metavar="FILE", help=f"also write a file for {shows}")


def add_method(found: argparse.ArgumentParser) -> None:
    """The options of the impact values."""
    usual = VarMRI()
    method = found.add_argument_group("impact values (the defaults are those of VarMRI)")
    method.add_argument(
        "--ranges",
        type=int,
        default=usual.ranges,
        help=f"number of ranges that divide a cause's CDF; default: {usual.ranges}",
    )
    method.add_argument(
        "--fit",
        type=float,
        default=usual.fit,
        metavar="R2",
        help=f"merge neighbouring ranges above this R²; default: {usual.fit}",
    )
    method.add_argument(
        "--proportion",
        type=float,
        default=usual.proportion,
        metavar="R2",
        help=f"drop a child proportional to its parent above this R²; default: {usual.proportion}",
    )
    method.add_argument(
        "--proportional",
        choices=(PEARSON, ORIGIN),
        default=usual.proportional,
        help="fit any straight line (pearson, the default), or one through the origin, as in the "
        "paper; through the origin, values that hardly vary are always proportional",
    )


def causes(text: str) -> tuple[str, ...]:
    """Causes by their names, or `CAUSE:NAME` of who is to blame, with commas between."""
    found: list[str] = []
    for part in text.split(","):
        cause = Part.of(part).cause
        if cause in MEANING:
            found.append(part)
        elif found and Part.of(found[-1]).blamed is not None:
            found[-1] += f",{part}"  # a name with a comma
        else:
            raise argparse.ArgumentTypeError(
                f"'{cause}' is not a cause; the causes are {', '.join(MEANING)}"
            )
    return tuple(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns 0 done, 2 wrong usage or ledger, 3 this machine can't."""
    return guarded("tailscope explain", run, parser().parse_args(arguments))


def guarded(
    name: str, command: Callable[[argparse.Namespace], int], chosen: argparse.Namespace
) -> int:
    """Run a command; what ends it becomes one line and an exit code."""
    try:
        return command(chosen)
    except TailscopeError as error:
        first, *rest = error.lines
        for line in (f"{name}: {first}", *rest):
            complain(line)
        return error.code
    except BrokenPipeError:
        # The reader of a pipe (head, less) has seen enough; Python must not complain at exit
        # either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def run(chosen: argparse.Namespace) -> int:
    """Explain and present."""
    from tailscope.ledger.ledger import open_ledger
    from tailscope.statistics import target
    from tailscope.statistics.explanation import explain
    from tailscope.statistics.segments import parse_length

    goal = target.parse(chosen.target)
    if chosen.seed < 0:
        raise TailscopeError("the seed must not be negative")
    method = VarMRI(chosen.ranges, chosen.fit, chosen.proportion, chosen.proportional)
    segment_ns = parse_length(chosen.segment) if chosen.segment else None
    ledger = open_ledger(chosen.ledger, chosen.engine)
    compared = open_ledger([chosen.baseline], chosen.engine) if chosen.baseline else None
    through = open_ledger([chosen.through], chosen.engine) if chosen.through else None
    if not chosen.quiet:
        read = [one for one in (ledger, compared, through) if one]
        for warning in (text for one in read for text in (*one.notices, *one.warnings)):
            complain(f"tailscope explain: warning: {warning}")

    explanation = explain(
        *(ledger, goal, chosen.span, chosen.seed, method, segment_ns, chosen.without),
        *(compared, through),
    )
    terminal = Terminal.of(sys.stdout)
    if chosen.json:
        write(as_json(explanation.to_dict(), terminal))
    else:
        from tailscope.present.text import Detail, render

        write(render(explanation, terminal, Detail(chosen.verbose, chosen.impact)))
    if chosen.html:
        from tailscope.present.pages.explain import save

        save(explanation, chosen.html)
        if not chosen.quiet:
            complain(f"tailscope explain: wrote {chosen.html}")
    files = {program: getattr(chosen, program) for program in PROGRAMS}
    if any(files.values()):
        from tailscope.present.exports import save as save_stacks

        wanted = {program: file for program, file in files.items() if file}
        for line in save_stacks(ledger, explanation, wanted):
            if not chosen.quiet:
                complain(f"tailscope explain: {line}")
    return 0


def as_json(found: dict[str, Any], terminal: Terminal) -> str:
    """JSON with a line end, the notices in its first line; without Unicode, letters are escaped."""
    ascii_only = not terminal.unicode
    notices = json.dumps({"notices": found["notices"]}, ensure_ascii=ascii_only)
    rest = {name: value for name, value in found.items() if name != "notices"}
    text = f"{notices[:-1]},\n{json.dumps(rest, indent=2, ensure_ascii=ascii_only)[2:]}\n"
    return escaped_in_json(text)


def write(text: str) -> None:
    """To stdout, in letters that its encoding has."""
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def complain(line: str) -> None:
    """One line to stderr."""
    line = Terminal.of(sys.stderr).spell(line)
    print(line.encode("utf-8", "replace").decode(), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
