"""What recording every query costs PostgreSQL under pgbench: phases without a recorder, with empty
programs on its two probes of a query, with a recorder there, and with one that takes a query to be
from its receive to its answer and needs no probe, alternating in one run.

Clusters of its own, and for each load one pgbench over a unix socket from begin to end. The first
is what pgbench does unasked on a cluster as it is installed: TPC-B-like (a transaction is seven
queries), each commit waiting for the disk. In the others nothing waits for one (fsync is off), so
a query is as cheap as it can be and recording weighs most: TPC-B-like, and select-only (a
transaction is one query). A round is one phase of each kind next to each other, in an order that
changes. Transactions are counted from pgbench's own log, by when each ended. Backends, pgbench and
the recorder share all CPUs.

    .venv/bin/python bench/postgres_cost.py
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import Bench, Recording, Result, at_least, bench, cpu_ns, lost, spread, table
from places import probe_offsets
from probe_cost import EMPTY, Listener

PROBES = "query=usdt:postgres:postgresql:query__start..query__done"
SOCKETS = "syscall:recv..send"
BAR = 0.98
SETTLE = 0.2  # seconds after a change, before a phase is measured
#: What a cluster is told beyond its defaults.
INSTALLED: tuple[str, ...] = ()
NO_DISK = ("fsync=off", "autovacuum=off", "shared_buffers=128MB")


@dataclass(frozen=True)
class Kind:
    """What is run on what."""

    script: str  # pgbench's name for it
    queries: int  # of a transaction
    settings: tuple[str, ...]  # the cluster's

    @property
    def name(self) -> str:
        return f"{self.script}, {'no disk' if self.settings else 'as installed'}"


LOADS = (
    Kind("tpcb-like", 7, INSTALLED),
    Kind("tpcb-like", 7, NO_DISK),
    Kind("select-only", 1, NO_DISK),
)


def programs() -> Path:
    """Where Debian keeps the newest version's programs."""
    found = list(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        sys.exit("PostgreSQL is not installed: scripts/setup installs it")
    return max(found, key=lambda path: int(re.sub(r"\D", "", path.parts[-3]) or 0)).parent


class Cluster:
    """A server of the bench's own."""

    def __init__(self, b: Bench, scale: int, settings: tuple[str, ...]) -> None:
        self.bench, self.bin = b, programs()
        b.folder.chmod(0o755)
        self.folder = Path(tempfile.mkdtemp(prefix="cluster-", dir=b.folder))
        shutil.chown(self.folder, "nobody")
        data = self.folder / "data"
        self.run("initdb", "-D", data, "-A", "trust", "-U", "bench", "--no-sync", "-E", "UTF8")
        options = [word for setting in settings for word in ("-c", setting)]
        where = ["-c", "listen_addresses=", "-k", self.folder, "-D", data]
        with (self.folder / "log").open("w") as log:
            self.server = b.start(self.command("postgres", *options, *where), stderr=log.fileno())
        deadline = time.monotonic() + 60
        while subprocess.run(self.command("pg_isready", "-q", "-h", self.folder)).returncode:
            if self.server.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"PostgreSQL does not serve: {(self.folder / 'log').read_text()}")
            time.sleep(0.1)
        self.run("pgbench", *self.address(), "-i", "-q", "-s", scale, "postgres")

    def address(self) -> list[object]:
        """How clients find it."""
        return ["-h", self.folder, "-U", "bench"]

    def command(self, program: str, *arguments: object) -> list[str]:
        """PostgreSQL refuses to run as root."""
        other = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        own = other if os.geteuid() == 0 else []
        return [str(word) for word in (*own, self.bin / program, *arguments)]

    def run(self, program: str, *arguments: object) -> None:
        """Runs to its end, or the bench ends."""
        done = subprocess.run(
            self.command(program, *arguments), capture_output=True, text=True, cwd=self.folder
        )
        if done.returncode:
            sys.exit(f"{program} failed: {done.stderr}")

    def backends(self) -> list[int]:
        """Who serves clients."""
        pid = self.server.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        command = {int(child): Path(f"/proc/{child}/cmdline").read_text() for child in children}
        return [child for child, text in command.items() if text.startswith("postgres: bench")]


@dataclass(frozen=True)
class Span:
    """A phase: when it began and ended (Unix ns), and the CPU time of all backends meanwhile."""

    begin: int
    end: int
    backends_ns: int


@dataclass(frozen=True)
class Phase:
    """What one phase measured."""

    rate: float  # transactions per second
    cpu: float  # ns of the backends, of a transaction


class Load:
    """pgbench, one script, which logs when each transaction ended."""

    def __init__(self, cluster: Cluster, script: str, clients: int) -> None:
        self.cluster, self.prefix = cluster, cluster.folder / script
        options = ["-b", script, "-c", clients, "-n", "-T", 86400, "-l", "--log-prefix"]
        command = cluster.command("pgbench", *cluster.address(), *options, self.prefix, "postgres")
        self.process = cluster.bench.start(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 20
        while len(cluster.backends()) < clients:
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit("pgbench does not run")
            time.sleep(0.05)
        time.sleep(1)
        self.backends = cluster.backends()

    def measure(self, seconds: float) -> Span:
        """One phase."""
        moments, used = [], []
        for wait in (seconds, 0):
            moments.append(time.time_ns())
            used.append(sum(cpu_ns(pid) for pid in self.backends))
            time.sleep(wait)
        return Span(moments[0], moments[1], used[1] - used[0])

    def ended(self) -> list[int]:
        """Ends it; when each transaction ended, in order. The alarm that ends a run after its time
        is what makes pgbench write out all of its log."""
        if self.cluster.bench.end(self.process, signal.SIGALRM) != 0:
            sys.exit("pgbench failed")
        moments = []
        for log in self.cluster.folder.glob(f"{self.prefix.name}.*"):
            for line in log.read_text().splitlines():
                words = line.split()  # client, transaction, its time, script, second, us
                moments.append((int(words[4]) * 1_000_000 + int(words[5])) * 1000)
        return sorted(moments)


#: What recordings say of themselves, by the state of the phase that they were in.
Ledgers = dict[str, list[dict[str, Any]]]


@contextlib.contextmanager
def recorded(b: Bench, load: Load, source: str, ledgers: list[dict[str, Any]]) -> Iterator[None]:
    """Every query of all backends recorded."""
    first, *others = load.backends
    options = [word for pid in others for word in ("-p", str(pid))]
    recording = Recording(b, first, [*options, "--span", source])
    yield
    ledgers.append(recording.stop())


@contextlib.contextmanager
def hooked(b: Bench, places: list[int]) -> Iterator[None]:
    """Empty programs on the two probes."""
    listener = Listener(b, [EMPTY, programs() / "postgres", *map(str, places)], "ready")
    yield
    listener.stop()


def compare(
    b: Bench, cluster: Cluster, kind: Kind, args: argparse.Namespace
) -> tuple[list[dict[str, Phase]], Ledgers]:
    """Rounds of phases by their kind, and what each recording says of itself."""
    offsets = probe_offsets(programs() / "postgres", "postgresql")
    places = [place for name in ("query__start", "query__done") for place in offsets[name]]
    rounds: list[dict[str, Span]] = []
    ledgers: Ledgers = {"recorded": [], "sockets": []}
    load = Load(cluster, kind.script, args.clients)
    states = {
        "without": contextlib.nullcontext,
        "hooked": lambda: hooked(b, places),
        "recorded": lambda: recorded(b, load, PROBES, ledgers["recorded"]),
        "sockets": lambda: recorded(b, load, SOCKETS, ledgers["sockets"]),
    }
    for i in range(args.rounds):
        first = i % len(states)
        order = [*list(states)[first:], *list(states)[:first]]
        spans = {}
        for state in order[::-1] if i % 2 else order:
            with states[state]():
                time.sleep(SETTLE)
                spans[state] = load.measure(args.phase)
        rounds.append(spans)
    ended = load.ended()

    def phase(span: Span) -> Phase:
        count = bisect_right(ended, span.end) - bisect_right(ended, span.begin)
        return Phase(count / (span.end - span.begin) * 1e9, span.backends_ns / max(1, count))

    return [{state: phase(s) for state, s in spans.items()} for spans in rounds], ledgers


def report(result: Result, kind: Kind, rounds: list[dict[str, Phase]], ledgers: Ledgers) -> None:
    """One load's table and bar."""
    names = {
        "without": "no recorder",
        "hooked": "empty programs on the two probes",
        "recorded": "recorded by the probes",
        "sockets": "recorded by its socket",
    }
    share = {s: spread([r[s].rate / r["without"].rate for r in rounds]) for s in names}
    added = {s: spread([r[s].cpu - r["without"].cpu for r in rounds]) for s in names}
    lines = [
        (
            name,
            spread([r[state].rate for r in rounds]).text(0),
            share[state].text(3),
            share[state].interval(3),
            spread([r[state].cpu / 1000 for r in rounds]).text(1),
            added[state].text(0),
        )
        for state, name in names.items()
    ]
    columns = (
        "phases",
        "transactions/s",
        "÷ without",
        "95 % of the median",
        "us of the backends' CPUs a transaction",
        "ns added",
    )
    rows = {state: sum(told["rows"] for told in of) for state, of in ledgers.items()}
    gone = {state: sum(map(lost, of)) for state, of in ledgers.items()}
    text = [
        table(columns, lines),
        "",
        f"- {len(rounds)} rounds; a transaction is {kind.queries} queries",
        f"- by the probes {rows['recorded']} rows, {gone['recorded']} lost; by the socket "
        f"{rows['sockets']} rows, {gone['sockets']} lost",
    ]
    result.say(f"pgbench, {kind.name}", "\n".join(text))
    bar = at_least(
        f"PostgreSQL's transactions, every query, {kind.name}",
        BAR,
        share["recorded"],
        "of that without a recorder",
        3,
    )
    rows_lost = sum(gone.values())
    bar.held &= not rows_lost
    beside = (("with empty programs", "hooked"), ("by its socket", "sockets"))
    by = ", ".join(f"{what} {share[state].median:.3f}" for what, state in beside)
    notes = [bar.note, by, f"{rows_lost} rows lost" if rows_lost else ""]
    bar.note = "; ".join(note for note in notes if note)
    result.bars.append(bar)
    result.summary = (
        f"{kind.name}, CPU time a transaction, ns: by probes {added['recorded'].median:+,.0f}, by "
        f"socket {added['sockets'].median:+,.0f}; empty programs {added['hooked'].median:+,.0f}"
    )
    result.figures[kind.name] = {
        "share": {state: vars(s) for state, s in share.items()},
        "added_ns": {state: vars(s) for state, s in added.items()},
        "rows": rows,
        "lost": gone,
        "rounds": [{state: asdict(phase) for state, phase in r.items()} for r in rounds],
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=24, help="of phases, for each load")
    parser.add_argument("--phase", type=float, default=1.0, help="length in seconds")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--scale", type=int, default=10, help="of the tables, as pgbench has it")
    parser.add_argument("--quick", action="store_true", help="4 rounds, nothing written")
    args = parser.parse_args()
    if args.quick:
        args.rounds = 4
    if not EMPTY.exists():
        sys.exit("run first: cargo build --release -p tailscope-kernel --example empty_uprobes")
    result = Result("postgres_cost", "What recording every query costs PostgreSQL")
    with bench() as b:
        for kind in LOADS:
            cluster = Cluster(b, args.scale, kind.settings)
            report(result, kind, *compare(b, cluster, kind, args))
            b.end(cluster.server, signal.SIGINT)
    if not args.quick:
        result.write()


if __name__ == "__main__":
    main()
