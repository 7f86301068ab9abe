"""What an observer takes from a program, by how far their CPUs are apart meanwhile.

The host of a virtual machine moves its CPUs between cores within seconds, and does not say so: a
cache line that takes 100 cycles from one to the other takes 600 a moment later. What reading a line
takes from whoever writes it follows that. So each observation is short, the line's way is measured
before and after it (bench/c/line.c), and figures are told apart by it.
"""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness import SERVER_CPU, SPARE_CPU, Bar, Bench, at_most, spread

#: Cycles of the clock that a line takes at most between CPUs that share a cache; well between those
#: that were met: 80 to 130, and 580 and more.
NEAR_CYCLES = 250
NEAR, FAR = "near", "far"
WORDS = f"{NEAR}: a line takes up to {NEAR_CYCLES} cycles from CPU to CPU"


@dataclass(frozen=True)
class Taken:
    """One observation: what it took, in percent; the line's way before and after, in cycles."""

    share: float
    period: float  # the mean one, in cycles
    before: float
    after: float

    @property
    def where(self) -> str | None:
        """How far apart the CPUs were; none: that changed meanwhile."""
        near = {way <= NEAR_CYCLES for way in (self.before, self.after)}
        return None if len(near) > 1 else NEAR if near == {True} else FAR


class Apart:
    """Measures the way between the program's CPU and the observer's."""

    def __init__(self, bench: Bench) -> None:
        self.program = bench.compile("line.c")

    def cycles(self) -> float:
        """One way of a line. Nobody else is to use the CPUs meanwhile."""
        command = [self.program, str(SERVER_CPU), str(SPARE_CPU)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return float(done.stdout)

    def taken(self, observe: Callable[[], Mapping[str, Any]]) -> Taken:
        """What an observation took, by its report."""
        before = self.cycles()
        report = observe()
        share, period = 100 * report["effect"]["share"], report["periods"]["mean"]
        return Taken(share, period, before, self.cycles())


def cell(found: Sequence[Taken], where: str) -> str:
    """The median of those made there, with its quartiles, and how many they were."""
    shares = [one.share for one in found if one.where == where]
    return f"{spread(shares).text(2)} % of {len(shares)}" if shares else "not met"


def ways(rounds: Iterable[Sequence[Taken]]) -> str:
    """From the shortest way of a line to the longest."""
    return _range([way for found in rounds for one in found for way in (one.before, one.after)])


def periods(found: Sequence[Taken]) -> str:
    """From the shortest mean period to the longest."""
    return _range([one.period for one in found])


def _range(values: Sequence[float]) -> str:
    return f"{min(values):,.0f} to {max(values):,.0f}"


def bars(what: str, limit: float, programs: Sequence[Sequence[Taken]]) -> list[Bar]:
    """The mean of the programs' medians, near and far; where not all of them were met, that."""
    made = []
    for where in (NEAR, FAR):
        shares = [[one.share for one in found if one.where == where] for found in programs]
        name = f"{what}, {where}"
        if all(shares):
            mean = statistics.mean(statistics.median(each) for each in shares)
            made.append(at_most(name, limit, mean, "%", 2))
        else:
            met = f"none: {where} for {sum(map(bool, shares))} of {len(shares)} programs"
            made.append(Bar(name, f"at most {limit:g} %", met, False))
    return made


def figures(found: Sequence[Taken]) -> list[dict[str, float]]:
    """For the results in JSON."""
    return [asdict(one) for one in found]
