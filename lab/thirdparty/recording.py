"""What `tailscope record` says of the same requests."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
from proof.machine import ProofError, end, until

from thirdparty.client import quantile

#: Places that lose requests, of `lost` in ledger.json; the others lose time or names.
LOSE_REQUESTS = ("ring_full", "sockets", "unwritten", "incomplete", "forgotten")
#: Requests that were seen and are no rows, of `uncovered` in ledger.json. With the rows they are
#: all requests.
UNCOVERED = ("pipelined", "unanswered", "multiplexed")
#: How many lines of an output somebody reads for sure.
FIRST_LINES = 3
#: What such a line says of requests that are no rows, or whose rows say too little.
MISSING = (
    r"not covered|not recorded|not in (?:this|the) (?:recording|ledger)|missing|incomplete"
    r"|handed over|another thread|pipelined|unanswered|unknown|too short|left out|lost"
)
#: A line that names what is missing, with its share.
NOTICE = re.compile(rf"(?i)\d ?%.*({MISSING})|({MISSING}).*\d ?%")


@dataclass(frozen=True)
class Recorded:
    """A recording's figures, and what the first lines of its outputs are."""

    rows: int
    p50_ns: float
    p99_ns: float
    #: Requests of which the ledger says that they are no rows.
    losses: dict[str, int] = field(default_factory=dict)
    first_lines: tuple[str, ...] = ()

    @property
    def requests(self) -> int:
        """All that the ledger accounts for."""
        return self.rows + sum(self.losses.values())

    @property
    def notice(self) -> str:
        """The first line that says what is missing and how much; empty where none does."""
        return next((line for line in self.first_lines if NOTICE.search(line)), "")


@contextmanager
def recording(
    tailscope: Path, pids: Sequence[int], ledger: Path, *options: object
) -> Iterator[None]:
    """Records processes for as long as the block runs."""
    targets = [word for pid in pids for word in ("-p", str(pid))]
    command = [tailscope, "record", *targets, "-o", ledger, *options]
    said = ledger.with_suffix(".log")
    with said.open("w") as log:
        recorder = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Other recorders on this machine keep theirs.
            env=os.environ | {"TAILSCOPE_SOCKET": str(ledger.with_suffix(".sock"))},
        )
        try:
            ready = lambda: "recording " in said.read_text()  # noqa: E731
            until(lambda: ready() or recorder.poll() is not None, "the recorder records")
            yield
            # What was answered last is on its way through the rings.
            time.sleep(0.1)
        finally:
            end(recorder, signal.SIGINT)
    if recorder.returncode != 0:
        raise ProofError(f"the recorder failed: {said.read_text().strip()[-500:]}")


def read(tailscope: Path, ledger: Path) -> Recorded:
    """The figures of a ledger: quantiles by DuckDB alone, each row with its weight."""
    about = json.loads((ledger / "ledger.json").read_text())
    weights: dict[float, float] = {}
    if list(ledger.rglob("*.parquet")):
        with duckdb.connect() as engine:
            rows = engine.execute(
                "SELECT wall_ns, sum(weight) FROM read_parquet($files, hive_partitioning = false) "
                "GROUP BY wall_ns",
                {"files": str(ledger / "**" / "*.parquet")},
            ).fetchall()
        weights = dict(rows)
    lost = {key: about["lost"].get(key) or 0 for key in LOSE_REQUESTS}
    missing = {key: (about.get("uncovered") or {}).get(key) or 0 for key in UNCOVERED}
    return Recorded(
        rows=round(sum(weights.values())),
        p50_ns=quantile(weights, 0.5) if weights else 0.0,
        p99_ns=quantile(weights, 0.99) if weights else 0.0,
        losses={key: count for key, count in (lost | missing).items() if count},
        first_lines=explained(tailscope, ledger),
    )


def explained(tailscope: Path, ledger: Path) -> tuple[str, ...]:
    """The first lines of `tailscope explain`, or of its refusal."""
    done = subprocess.run(
        [str(tailscope), "explain", str(ledger)], capture_output=True, text=True, timeout=120
    )
    text = done.stdout if done.returncode == 0 else done.stderr
    return tuple(line.strip() for line in text.splitlines() if line.strip())[:FIRST_LINES]
