"""`tailscope requests`: the requests of a ledger as JSON, for simulators."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tailscope import __version__
from tailscope.cli import Parser, guarded, write
from tailscope.errors import TailscopeError

EXAMPLES = """\
example:
  tailscope requests LEDGER > requests.json

The object has `threads`. Each has two lists: `arrival_ns`, sorted, and
`work_ns`. Work is the wall time less the waits for a CPU and for other
requests. `tailscope borrow --simulate LEDGER` reads it.

exit codes: 0 done, 2 wrong usage or ledger, 3 this machine can't
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = Parser(
        prog="tailscope requests",
        description="Print when each request of a ledger came, and how long it takes alone.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("ledger", metavar="LEDGER", help="ledger (a folder, or s3://…)")
    found.add_argument("--version", action="version", version=f"tailscope {__version__}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns 0 done, 2 wrong usage or ledger, 3 this machine can't."""
    return guarded("tailscope requests", run, parser().parse_args(arguments))


def run(chosen: argparse.Namespace) -> int:
    """Read and print."""
    from tailscope.ledger.ledger import open_ledger

    if not chosen.ledger:
        raise TailscopeError("the name of the ledger is empty")
    write(json.dumps(requests(open_ledger([chosen.ledger]))) + "\n")
    return 0


def requests(ledger: Any) -> dict[str, Any]:  # noqa: ANN401
    """The object that is printed."""
    from tailscope.engines.service import service

    found = service(ledger)
    quantiles = {
        name: quantile(found.wall_ns, q)
        for name, q in (("p50_ns", 0.5), ("p99_ns", 0.99), ("p999_ns", 0.999))
    }
    notes = [*ledger.warnings]
    if found.rows > len(found.wall_ns):
        notes.append(f"only the first {len(found.wall_ns):,} of {found.rows:,} requests are played")
    first = int(found.arrival_ns.min())
    starts = np.flatnonzero(np.diff(found.thread, prepend=-1))
    pieces = zip(
        np.split(found.arrival_ns - first, starts[1:]),
        np.split(found.work_ns, starts[1:]),
        strict=True,
    )
    threads = [{"arrival_ns": a.tolist(), "work_ns": w.tolist()} for a, w in pieces]
    return {"threads": threads, **quantiles, "notes": notes}


def quantile(values: np.ndarray, q: float) -> int | None:
    """None where fewer than ten values lie beyond it."""
    if len(values) * (1 - q) < 10 - 1e-6:
        return None
    return int(np.quantile(values, q, method="inverted_cdf"))


if __name__ == "__main__":
    sys.exit(main())
