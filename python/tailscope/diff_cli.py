"""`tailscope diff`: arguments in, text or JSON and an exit code out, nothing else."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence

from tailscope import __version__
from tailscope.cli import Parser, as_json, complain, guarded, write
from tailscope.errors import TailscopeError
from tailscope.present.terminal import Terminal

EXAMPLES = """\
examples:
  tailscope diff before/ after/                 what changed, and which causes
                                                explain it
  tailscope diff before/ after/ -p p99.9        explain the change of p99.9
  tailscope diff before/ after/ -p p50          why all requests are slower
  tailscope diff before/ after/ --span get      compare spans named get
  tailscope diff main/ branch/ --fail-over 5%   exit 1 if p99 grew significantly
                                                by more than 5 %
  tailscope diff before/ after/ --json          print JSON; times in ns

Spans are matched by their kind, which is their name. A cause's figure is its
mean in the spans around the percentile, so the figures add up to about the
percentile. `carries` is the cause's share of the change, among all causes that
changed in the same direction. If the median changed too, its causes follow.

--fail-over allows for noise. Each change has a 95 % interval, from resampling
both recordings. A kind is over the limit only if the whole interval is. So at a
growth of exactly the limit, about one run in 40 is over it. If the limit is
inside the interval, the answer is "may have grown" and the exit code is 0;
record longer for a clear answer. --fail-over judges every kind of span; with
--span NAME, it judges one.

exit codes: 0 done, 1 over the limit, 2 wrong usage or ledger,
            3 not possible on this machine
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = Parser(
        prog="tailscope diff",
        description="Compare two ledgers: percentiles, and the causes that explain the change.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "base", metavar="BASE", help="ledger before the change (a folder, or s3://…)"
    )
    found.add_argument("new", metavar="NEW", help="ledger after the change")
    found.add_argument(
        "-p",
        "--target",
        default="p99",
        metavar="PERCENTILE",
        help="what to compare, p1 to p99.99; default: p99",
    )
    found.add_argument(
        "--span", metavar="NAME", help="spans to compare; default: all kinds in both ledgers"
    )
    found.add_argument(
        "--fail-over",
        metavar="LIMIT",
        help="exit 1 if the percentile grew significantly by more than this: 5%%, 0.5%%",
    )
    found.add_argument("--json", action="store_true", help="print JSON; times in ns")
    found.add_argument("--seed", type=int, default=1, help="seed of the intervals; default: 1")
    found.add_argument(
        "--engine",
        default="duckdb",
        metavar="ENGINE",
        help="what reads the rows, as for tailscope explain; default: duckdb",
    )
    found.add_argument("-q", "--quiet", action="store_true", help="print no diagnostics on stderr")
    found.add_argument("--version", action="version", version=f"tailscope {__version__}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns 0 done, 1 over the limit, 2 wrong usage or ledger, 3 can't."""
    return guarded("tailscope diff", run, parser().parse_args(arguments))


def run(chosen: argparse.Namespace) -> int:
    """Compare and present."""
    from tailscope.ledger.ledger import open_ledger
    from tailscope.statistics import target

    goal = target.parse(chosen.target)
    limit = None if chosen.fail_over is None else parse_limit(chosen.fail_over)
    if chosen.seed < 0:
        raise TailscopeError("the seed must not be negative")
    base, new = (open_ledger([path], chosen.engine) for path in (chosen.base, chosen.new))
    if not chosen.quiet:
        for warning in (*base.notices, *new.notices, *base.warnings, *new.warnings):
            complain(f"tailscope diff: warning: {warning}")
    from tailscope.statistics.diff import diff

    found = diff(base, new, goal, chosen.span, limit, chosen.seed)
    terminal = Terminal.of(sys.stdout)
    if chosen.json:
        write(as_json(found.to_dict(), terminal))
    else:
        from tailscope.present.diff_text import render

        write(render(found, terminal))
    return 1 if found.is_over else 0


def parse_limit(text: str) -> float:
    """A growth as a fraction: `5%` and `5` are 0.05."""
    found = re.fullmatch(r"\+?(\d+(?:\.\d+)?)\s*%?", text.strip())
    value = float(found[1]) / 100 if found else math.inf
    if not math.isfinite(value):
        raise TailscopeError(f"'{text}' is not a limit; write 5% or 0.5%")
    return value


if __name__ == "__main__":
    sys.exit(main())
