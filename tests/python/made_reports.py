"""Reports made by hand, as Rust commands print them. docs/reference/observe.md has their keys."""

from __future__ import annotations

from typing import Any

#: A name that would be markup, if it were not escaped; and one that would end an attribute.
EVIL = "<script>alert(1)</script>"
QUOTED = "\"'><b onload=x>&"


def spread(cells: list[list[float]]) -> dict[str, Any]:
    """The figures of a distribution."""
    values = [value for value, count in cells for _ in range(int(count))] or [0.0]
    at = {"p1": 0.01, "p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
    found = {
        name: values[min(int(share * len(values)), len(values) - 1)] for name, share in at.items()
    }
    mean = sum(values) / len(values)
    return {"count": len(values), "mean": mean, "deviation": 1.0, **found, "max": values[-1]}


def counter(name: str, cells: list[list[float]]) -> dict[str, Any]:
    """A counter's rates."""
    of = spread(cells)
    rate = {"per_second": of["mean"], "per_cycle": of["mean"] / 2e9, "all_per_second": of["mean"]}
    return {"signal": name, "how": "a load", **rate, "kept": of, "all": of, "cells": cells}


def observation(name: str = "channel:7:served", tag: str = "channel:7:phase") -> dict[str, Any]:
    """What `tailscope observe --json` prints, of two counters and a tag."""
    fast, slow = [[1e6, 20], [2e6, 60], [4e6, 20]], [[5e5, 50], [1e6, 50]]
    periods = [[2300.0, 40], [2400.0, 940], [2500.0, 10], [40_000.0, 8], [90_000.0, 2]]
    reads = [[90.0, 500], [100.0, 499], [900.0, 1]]
    values = [(0, None, 0.5), (1, "one", 0.3), (2, EVIL, 0.15)]
    by_tag = {
        **{"signals": [tag], "distinct": 3, "changed": 5, "changed_share": 0.05},
        "values": [
            {
                **{"tags": [number], "names": [known], "share": share, "samples": 100},
                **{"per_second": [2e6, None], "deviation": [1e3, 0.0]},
            }
            for number, known, share in values
        ],
        **{"functions": None, "changed_grown": [0.05, 0.99]},
    }
    return {
        **{"kind": "observe", "cpu": 1, "observed_cpu": 0, "placement": "other core"},
        **{"clock_hz": 2_000_000_000, "seconds": 2.0, "end": "the time is up", "period": 2400},
        **{"samples": 101, "again": 0, "kept": 100, "disagreed": 3, "preempted": 1},
        **{"preemption_noticed": True, "kept_share": 0.96, "tolerance": 0.01, "clock_step": 1},
        "impossible": {"most": 0.001, "all": 4, "kept": 0},
        "rates": [counter(name, fast), counter("counter:7:cycles", slow)],
        "ratio": 2.1,
        "ratios": {
            "kept": spread([[1.0, 30], [2.0, 60]]),
            "without": 10,
            "cells": [[1.0, 30], [2.0, 60]],
        },
        "correlation": 0.25,
        "joint": [[0.0, 5e5, 10], [1e6, 5e5, 50], [2e6, 1e6, 40]],
        "by_tag": by_tag,
        "periods": spread(periods),
        "reads": spread(reads),
        "gaps": {"count": 10, "share": 0.2, "longest": 90_000.0},
        "series": [
            {"at": 0.0, "kept": 50, "dropped": 4, "per_second": [2e6, 7e5]},
            {"at": 1.0, "kept": 0, "dropped": 0, "per_second": None},
            {"at": 1.5, "kept": 50, "dropped": 0, "per_second": [2.2e6, 7.1e5]},
        ],
        **{"progress": name, "moves": [], "budget": 0.01},
        "effect": {"share": 0.018, "low": 0.012, "high": 0.024, "phases": 120},
        "raw": None,
        "notices": ["the clock is coarse"],
        "curves": {"all": [[*fast, [8e6, 4]], slow], "periods": periods, "reads": reads},
        "text": "101 samples in 2.0 s\n",
    }


def stories(name: str = "hog") -> dict[str, Any]:
    """What `tailscope timeline story --json` prints, of one request that waited for a CPU."""
    gaps = [
        (0, 4_000, "wire", "on the way from the client's device", 50),
        (4_000, 5_996_000, "waiting_for_cpu", f"waiting for CPU 1 behind {name}", 7),
        (6_000_000, 50_000, "running", "running", 7),
    ]
    story = {
        "sentence": f"6.00 ms of 6.05 ms: waiting for CPU 1 behind {name}",
        **{"begin_ns": 100_000, "latency_ns": 6_050_000, "tid": 7, "thread": "server"},
        **{"span": None, "socket": 2, "from_packet": True, "received_ns": 6_010_000},
        **{"sent_ns": 6_060_000, "left_ns": 6_050_000, "to_client": False, "causes": []},
        "jvms": [
            {
                **{"process": 42, "name": "java", "age_ns": 3_200_000_000},
                **{"classes_loaded": 0, "classes_initialized": 1, "methods_compiled": 210},
            }
        ],
        "gaps": [
            {"at_ns": at, "ns": ns, "stage": "work", "kind": kind, "name": text, "tid": tid}
            for at, ns, kind, text, tid in gaps
        ],
        **{"sent_again_ns": None, "losses": [f"3 events of {name}"]},
        "picture": {
            **{"from_ns": -100_000, "to_ns": 6_292_000, "threads": [7, 50]},
            "cpus": [
                {"cpu": 0, "threads": [[-80_000, 6_372_000, 50]], "on_top": [[1000, 5000, name]]},
                {
                    "cpu": 1,
                    "threads": [[-90_000, 6_090_000, 99], [6_000_000, 292_000, 7]],
                    "on_top": [],
                },
            ],
            "wake_ups": [[5000, 0, 6_000_000, 1]],
            "names": {"7": "server", "50": "client", "99": name},
            "left_out": 2,
        },
    }
    counts = {"requests": 1, "in_earlier_windows": 0, "sent_again": 0, "slow": 1, "events": 15}
    times = {"slower_ns": 1_000_000, "whole_from_ns": 0, "to_ns": 7_000_000}
    about = {"kind": "timeline", "kernel": "6.18", "losses": [], "pauses": []}
    return {**about, **counts, **times, "stories": [story]}
