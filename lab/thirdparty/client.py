"""What clients see: how many requests, and how long each took without the client's own delays."""

from __future__ import annotations

import json
import subprocess
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from proof.machine import LAB, ProofError


def before_others() -> tuple[str, ...]:
    """A prefix that lets no ordinary thread keep a program from its CPU, where that is allowed."""
    prefix = ("chrt", "--fifo", "50")
    allowed = subprocess.run([*prefix, "true"], capture_output=True).returncode == 0
    return prefix if allowed else ()


BEFORE_OTHERS = before_others()


@dataclass(frozen=True)
class Client:
    """All requests of a run.

    Latencies are from the moment when a request was sent (or when its connection was asked for) to
    the moment when the client's kernel had the last byte of its answer.
    """

    requests: int
    p50_ns: float
    p99_ns: float
    #: What the quickest twentieth takes at most.
    least_ns: float
    #: The p50 and p99 of each kind of request, where there are several.
    kinds: dict[str, tuple[float, float]] = field(default_factory=dict)
    #: How late the client sent at p99: no part of its latencies.
    lag_ns: float = 0.0


def quantile(weights: Mapping[float, float], share: float) -> float:
    """The least value at or below which at least that share of the weight is."""
    values = sorted(weights)
    sums = list(accumulate(weights[value] for value in values))
    if not sums:
        raise ProofError("nothing was measured of which there could be a quantile")
    return values[min(bisect_left(sums, share * sums[-1] * (1 - 1e-12)), len(values) - 1)]


def offer(kind: str, target: str, seconds: float, *options: object) -> list[str]:
    """The lab's load generator, before all ordinary threads of this machine."""
    length = ("--duration", f"{seconds:g}s", "--warmup", "0s", "--json")
    words = [LAB, "load", f"--{kind}", target, *length, *options]
    return [*BEFORE_OTHERS, *(str(word) for word in words)]


def run(loads: Mapping[str, Sequence[str]], seconds: float) -> Client:
    """Runs one load for each kind of request, all at once, and sums up what they saw."""
    said = outputs(loads, seconds)
    return sum_up({kind: json.loads(out.splitlines()[-1]) for kind, out in said.items()})


def outputs(loads: Mapping[str, Sequence[str]], seconds: float) -> dict[str, str]:
    """Runs one load for each kind of request, all at once, and returns what each said."""
    started = {
        kind: subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for kind, command in loads.items()
    }
    said = {}
    try:
        for kind, process in started.items():
            said[kind], err = process.communicate(timeout=seconds + 60)
            if process.returncode != 0:
                raise ProofError(f"the load on {kind} failed: {err.strip()[-500:]}")
    finally:
        for process in started.values():
            if process.poll() is None:
                process.kill()
                process.wait()
    return said


def sum_up(reports: Mapping[str, dict]) -> Client:
    """What reports of the lab's load say together."""
    for kind, report in reports.items():
        if report["errors"] or report["unanswered"]:
            raise ProofError(
                f"the server answered {report['errors']} requests of {kind} with an error, "
                f"and {report['unanswered']} not at all"
            )
    own = {kind: merged([report["served_buckets"]]) for kind, report in reports.items()}
    lag = max((report["lag_ns"] or {"p99": 0})["p99"] for report in reports.values())
    return summed(own, lag)


def summed(latencies: Mapping[str, Mapping[float, float]], lag_ns: float = 0.0) -> Client:
    """What clients saw, from the histogram of each kind of request."""
    whole = merged(of.items() for of in latencies.values())
    several = latencies if len(latencies) > 1 else {}
    return Client(
        requests=round(sum(whole.values())),
        p50_ns=quantile(whole, 0.5),
        p99_ns=quantile(whole, 0.99),
        least_ns=quantile(whole, 0.05),
        kinds={kind: (quantile(of, 0.5), quantile(of, 0.99)) for kind, of in several.items()},
        lag_ns=lag_ns,
    )


def merged(histograms: Iterable[Iterable[tuple[float, float]]]) -> dict[float, float]:
    """Several histograms as one."""
    whole: dict[float, float] = {}
    for buckets in histograms:
        for value, count in buckets:
            whole[value] = whole.get(value, 0) + count
    return whole
