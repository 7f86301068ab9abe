"""Load generators that nobody here wrote, in the place of the lab's own.

They say what a user's own client would: each latency has the generator's own delays in it. So
their load is light, and they go before all ordinary threads.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from proof.machine import ProofError, folder

from thirdparty import built
from thirdparty.case import FRESH, KEPT, Case
from thirdparty.client import BEFORE_OTHERS, Client, merged, outputs, summed

Latencies = Iterable[tuple[float, float]]


class Generator(ABC):
    """A program that asks a server for one path."""

    modes: ClassVar[tuple[str, ...]] = (KEPT, FRESH)

    @abstractmethod
    def command(self, case: Case, path: str, mode: str, seconds: float, out: Path) -> list[object]:
        """What offers a case's requests for that path; `out` is a file for its use."""

    @abstractmethod
    def latencies(self, said: str, out: Path) -> Latencies:
        """Of each request, or of some with their number: ns and weight. Raises `ProofError`."""

    def load(self, case: Case, mode: str, seconds: float) -> Client:
        """Offers requests for all paths at once and returns what the generators saw."""
        with folder() as temporary:
            outs = {path: temporary / str(number) for number, path in enumerate(case.rates)}
            commands = {
                path: [str(word) for word in self.command(case, path, mode, seconds, out)]
                for path, out in outs.items()
            }
            said = outputs(commands, seconds)
            found = {path: merged([self.latencies(said[path], out)]) for path, out in outs.items()}
        return summed(found)


class H2Load(Generator):
    """nghttp2's, over HTTP/1.1: each connection asks at a set rate, whenever the answer came."""

    modes: ClassVar = (KEPT,)

    def command(self, case: Case, path: str, mode: str, seconds: float, out: Path) -> list[object]:
        rate = case.rates[path]
        requests = max(int(rate * seconds), case.connections)
        options = ("--h1", "-n", requests, "-c", case.connections, "--log-file", out)
        pace = ("--rps", f"{rate / case.connections:.2f}")
        return [*BEFORE_OTHERS, built.path("h2load"), *options, *pace, url(case, path)]

    def latencies(self, said: str, out: Path) -> Latencies:
        for line in out.read_text().splitlines():
            _, status, took = line.split()[:3]
            if status != "200":
                raise ProofError(f"an answer had the status {status}")
            yield float(took) * 1000, 1


class Wrk(Generator):
    """wrk: each connection asks again some time after it has its answer."""

    #: Rests between requests, in ms, and prints all that wrk knows, as JSON: the latencies in µs.
    SCRIPT: ClassVar = """
        delay = function() return math.random(0, {longest}) end
        done = function(summary, latency, requests)
            local wrong, cells = summary.errors, {{}}
            -- Where a server closes a connection after an answer and has not said so, wrk has an
            -- error of reading, and no request without an answer.
            local errors = wrong.connect + wrong.status + wrong.timeout
            for place = 1, #latency do
                cells[place] = string.format("[%d,%d]", latency(place))
            end
            local form = '{{"errors":%d,"requests":%d,"us":%d,"connections":{connections},'
            print(string.format(form .. '"latencies":[%s]}}', errors, summary.requests,
                                summary.duration, table.concat(cells, ",")))
        end
    """

    def command(self, case: Case, path: str, mode: str, seconds: float, out: Path) -> list[object]:
        longest = round(2000 * case.connections / case.rates[path])
        out.write_text(self.SCRIPT.format(longest=longest, connections=case.connections))
        fresh = ("-H", "Connection: close") if mode == FRESH else ()
        options = ("-t", 1, "-c", case.connections, "-d", f"{seconds:.0f}s", "-s", out)
        return [*BEFORE_OTHERS, built.path("wrk"), *options, *fresh, url(case, path)]

    def latencies(self, said: str, out: Path) -> Latencies:
        report = json.loads(said.splitlines()[-1])
        if report["errors"]:
            raise ProofError(f"{report['errors']} requests failed")
        interval = report["us"] // max(report["requests"] // report["connections"], 1)
        measured = without_made_up(dict(report["latencies"]), interval)
        if sum(measured.values()) != report["requests"]:
            raise ProofError(f"{sum(measured.values())} latencies of {report['requests']} requests")
        return [(took * 1000, count) for took, count in measured.items()]


def without_made_up(latencies: dict[int, int], interval: int) -> dict[int, int]:
    """What wrk measured, of what it prints.

    For each request of two intervals or more, wrk adds those that would have been sent then.
    Each is one interval shorter, down to one interval (`stats_correct` in its `stats.c`). None of
    them was sent. The longest latency is measured for sure, and then the next shorter one is known.
    """
    left = dict(latencies)
    for took in sorted(latencies, reverse=True):
        for made_up in range(took - interval, interval, -interval) if took >= 2 * interval else ():
            left[made_up] = left.get(made_up, 0) - left[took]
    return {took: count for took, count in left.items() if count}


GENERATORS: dict[str, type[Generator]] = {"h2load": H2Load, "wrk": Wrk}


def url(case: Case, path: str) -> str:
    """What is asked for."""
    return f"http://127.0.0.1:{case.port}{path}"
