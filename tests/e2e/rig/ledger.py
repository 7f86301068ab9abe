"""What a ledger holds, read by an engine that is not ours."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import duckdb

from rig import installed

CAUSES = (
    *("runqueue", "preempted", "throttled", "lock", "io", "network", "sleep"),
    *("irq", "softirq_net", "softirq_timer", "softirq_other", "fault", "steal", "queue"),
    *("stopped", "reclaim", "tcp", "accept", "unknown", "downstream"),
)
WAIT_FOR_CPU = frozenset({"runqueue", "preempted"})
INTERRUPTED = frozenset({"irq", "softirq_net", "softirq_timer", "softirq_other"})


def sum_of(causes: tuple[str, ...] | list[str] | frozenset[str]) -> str:
    """SQL for the time that these causes took together; what was not measured counts as 0."""
    return " + ".join(f"coalesce({cause}_ns, 0)" for cause in sorted(causes))


def query(ledger: Path, sql: str) -> list[tuple[Any, ...]]:
    """The answer to SQL over `spans`."""
    files = str(ledger / "**" / "*.parquet")
    with duckdb.connect() as engine:
        engine.read_parquet(files, hive_partitioning=False).create_view("spans")
        return engine.execute(sql).fetchall()


def count(ledger: Path, where: str = "true") -> int:
    """How many rows; 0 also where no file was sealed."""
    if not list(ledger.rglob("*.parquet")):
        return 0
    return query(ledger, f"SELECT count(*) FROM spans WHERE {where}")[0][0]


def percentile_ns(ledger: Path, share: float, which: str = "true") -> float:
    """A quantile of the wall times of the rows for which that holds."""
    return query(ledger, f"SELECT quantile_cont(wall_ns, {share}) FROM spans WHERE {which}")[0][0]


def count_by_span(ledger: Path) -> dict[str, int]:
    """How many rows each kind of span has."""
    return dict(query(ledger, "SELECT span, count(*) FROM spans GROUP BY span"))


def check_nested(ledger: Path, pairs: int) -> None:
    """The rows are those of the SDKs' program `nested`, each `inner` within its `outer`."""
    assert count_by_span(ledger) == {"outer": pairs, "scoped": pairs, "inner": pairs}
    ids = "SELECT span, count(DISTINCT id) FROM spans GROUP BY span"
    assert dict(query(ledger, ids)) == {"outer": pairs, "scoped": 0, "inner": pairs}
    apart = query(
        ledger,
        "SELECT * FROM spans AS o JOIN spans AS i USING (id) "
        "WHERE o.span = 'outer' AND i.span = 'inner' AND NOT (o.tid = i.tid "
        "AND i.start_ns >= o.start_ns - 1 "
        "AND i.start_ns + i.wall_ns <= o.start_ns + o.wall_ns + 1)",
    )
    assert not apart, apart[:3]
    check_books(ledger)


def check_books(ledger: Path) -> None:
    """No row may have lost more time to its causes than it took."""
    bad = query(
        ledger,
        f"SELECT * FROM spans WHERE wall_ns <= 0 OR {sum_of(CAUSES)} > wall_ns "
        f"OR least({', '.join(f'coalesce({cause}_ns, 0)' for cause in CAUSES)}) < 0 LIMIT 5",
    )
    assert not bad, f"the books don't balance: {bad}"


def explain(*ledgers: Path, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """What `tailscope explain --json` says."""
    done = subprocess.run(
        [installed.tailscope(), "explain", *ledgers, *options, "--json"],
        capture_output=True,
        text=True,
        timeout=600,  # of a million rows, on a machine with much else to do
    )
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def diff(base: Path, new: Path, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """What `tailscope diff --json` says."""
    done = subprocess.run(
        [installed.tailscope(), "diff", base, new, *options, "--json"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def culprits(explanation: dict[str, Any], causes: frozenset[str] | set[str]) -> list[str]:
    """Who is to blame for these causes in the tail, the one with most of their time first."""
    time: dict[str, float] = {}
    for cause in explanation["causes"]:
        if cause["name"] in causes:
            for culprit in (cause["blame"] or {"culprits": []})["culprits"]:
                ns = culprit["share"] * cause["tail_mean_ns"]
                time[culprit["name"]] = time.get(culprit["name"], 0) + ns
    return sorted(time, key=lambda name: time[name], reverse=True)


def ranking(explanation: dict[str, Any]) -> str:
    """The causes in their order, for a failure's message."""
    lines = [f"p50 {explanation['p50_ns']:.0f} target {explanation['target_ns']['ns']:.0f} ns"]
    lines += [
        f"{c['name']}: saves {c['saving_ns']:.0f} ns, {(c['share'] or 0):.0%} of the excess, "
        f"in {c['spans_share']:.2%} of the spans"
        for c in explanation["causes"]
    ]
    return "\n".join(lines)
