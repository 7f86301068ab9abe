"""What attacks by a local user take from a production program, and from the recorder.

A production program runs spans at a set rate through short phases with and without an attack. In
each phase another one starts, whose longest span holds its wait for the recorder. Both go before
all others on their CPU: what makes spans longer is the recorder, and not that attackers compute.
Attackers run as the user nobody, and the recorder watches them unless an attack is by a stranger.

    .venv/bin/python bench/hostile.py                          about 20 minutes
    .venv/bin/python bench/hostile.py --only flood --rounds 2 --seconds 2
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from harness import ROOT, Bar, Bench, Result, Spread, at_most, bench, cpu_ns, spread, table
from hostile_rig import KINDS, Attackers, Production, Subject, peak_mib, reset_peak

sys.path.insert(0, str(ROOT / "lab"))
from attacks.forged import broken_program

#: What the recorder may take more than without the attack, and how long it may take to end.
CPU_PERCENT, MEMORY_MIB, END_S, SPAN_MS = 5.0, 64.0, 1.0, 1.0


@dataclass(frozen=True)
class Attack:
    """Programs that run during an attack."""

    name: str
    #: Of programs in lab/attacks with their arguments; {} is the bench's folder.
    commands: tuple[tuple[str, ...], ...]
    #: Whether the recorder watches them.
    watched: bool = True
    kinds: tuple[str, ...] = KINDS


FLOOD = ("connects", "{}/sdk.sock", "0", "{}")
ATTACKS = (
    Attack("none, for comparison", ()),
    Attack("FIFO in place of code", (("in_the_way", "fifo"),)),
    Attack("device in place of code", (("in_the_way", "device"),)),
    Attack("1 TB file in place of code", (("in_the_way", "sparse"),)),
    Attack("broken notes, ever new", (("ever_new", "{}/broken"),) * 4),
    Attack("flood of connections by a stranger", (FLOOD,) * 4, watched=False),
    Attack("flood of connections by a watched process", (FLOOD,) * 4),
    Attack("processes that come and go", (("comes_and_goes", "0", "{}", "/bin/true"),)),
    Attack("ever new names and forged rows", (("comes_and_goes", "0", "{}", "{}/forging", "0"),)),
    Attack("ever new files with the SDK", (("new_files", "0", "{}", "{}/forging"),)),
    Attack("broken notes and a flood", (("ever_new", "{}/broken"), FLOOD, FLOOD)),
    Attack("flood of scrapes", (("scrapes", "{}/port"),) * 4, watched=False, kinds=("agent",)),
    Attack("half-open scrapes", (("half_open", "{}/port"),), watched=False, kinds=("agent",)),
)


@dataclass
class Phase:
    """What was seen in one phase."""

    cpu_percent: float
    peak_mib: float
    longest_ms: float
    start_ms: float


@dataclass
class Seen:
    """All phases of one attack against one kind of recorder."""

    without: list[Phase] = field(default_factory=list)
    during: list[Phase] = field(default_factory=list)
    #: What each production process says of its spans.
    programs: list[dict[str, int]] = field(default_factory=list)
    end_s: float = 0
    lost: int = 0
    missing: int | None = None
    log_lines: int = 0

    def more(self, figure: str) -> Spread:
        """By how much a phase with the attack has more than the one before it."""
        pairs = zip(self.during, self.without, strict=True)
        return spread([getattr(a, figure) - getattr(b, figure) for a, b in pairs])

    def phase(self, subject: Subject, production: Production, seconds: float) -> Phase:
        """One phase."""
        reset_peak(subject.pid)
        production.ask()
        before, begin = cpu_ns(subject.pid), time.monotonic()
        self.programs.append(started := production.another())
        time.sleep(max(0, begin + seconds - time.monotonic()))
        took = time.monotonic() - begin
        return Phase(
            cpu_percent=(cpu_ns(subject.pid) - before) / took / 1e7,
            peak_mib=peak_mib(subject.pid),
            longest_ms=production.ask()["longest_ns"] / 1e6,
            start_ms=started["longest_ns"] / 1e6,
        )


def measure(place: Bench, attack: Attack, kind: str, rounds: int, seconds: float) -> Seen:
    """One attack against one kind of recorder."""
    seen = Seen()
    production = Production(place)
    attackers = Attackers(place)
    subject = Subject(place, kind, production, attackers)
    try:
        production.begin()
        for _ in range(rounds):
            seen.without.append(seen.phase(subject, production, seconds))
            attackers.start(attack.commands, watched=attack.watched)
            seen.during.append(seen.phase(subject, production, seconds))
            attackers.stop()
        seen.programs.append(production.end())
        attackers.start(attack.commands, watched=attack.watched)
        seen.end_s = subject.stop()
    finally:
        attackers.close()
        production.close()
        subject.kill()
    seen.log_lines = subject.log_lines()
    if kind != "timeline":
        rows, seen.lost = subject.rows(), subject.lost()
        seen.missing = sum(one["spans"] - rows.get(one["pid"], 0) for one in seen.programs)
    return seen


def bars(attack: Attack, kind: str, seen: Seen) -> Iterator[Bar]:
    """What has to hold, and what does."""
    what = f"{kind}: {attack.name}"
    yield at_most(f"{what}: CPU more", CPU_PERCENT, seen.more("cpu_percent"), "%")
    yield at_most(f"{what}: memory more", MEMORY_MIB, seen.more("peak_mib"), "MiB")
    yield at_most(f"{what}: end after SIGTERM", END_S, seen.end_s, "s", 2)
    yield at_most(f"{what}: longest span longer", SPAN_MS, seen.more("longest_ms"), "ms", 2)
    yield at_most(f"{what}: start waits longer", SPAN_MS, seen.more("start_ms"), "ms", 2)
    if seen.missing is not None:
        uncounted = max(0, seen.missing - seen.lost)
        yield at_most(f"{what}: rows lost and not counted", 0, uncounted, "", 0)


def row(attack: str, kind: str, seen: Seen) -> list[str]:
    """The table's line: medians without the attack, and during it."""

    def both(figure: str, digits: int = 1) -> str:
        values = ([getattr(p, figure) for p in ps] for ps in (seen.without, seen.during))
        return " → ".join(f"{statistics.median(v):.{digits}f}" for v in values)

    missing = "" if seen.missing is None else f"{seen.missing} / {seen.lost}"
    return [
        attack,
        kind,
        both("cpu_percent"),
        both("peak_mib"),
        f"{seen.end_s:.2f}",
        both("longest_ms", 2),
        both("start_ms", 2),
        missing,
        str(seen.log_lines),
    ]


HEAD = (
    "attack",
    "recorder",
    "CPU, %",
    "memory, MiB",
    "end, s",
    "longest span, ms",
    "first span, ms",
    "rows missing / counted",
    "log lines",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="pairs of phases [default: 5]")
    parser.add_argument("--seconds", type=float, default=4, help="of a phase [default: 4]")
    parser.add_argument("--only", default="", help="attacks with this in their names")
    parser.add_argument("--kind", choices=KINDS, help="this recorder alone")
    arguments = parser.parse_args()
    result = Result("hostile", "Attacks by a local user: what they take from others")
    rows = []
    with bench() as place:
        place.folder.chmod(0o755)
        (place.folder / "broken").write_bytes(broken_program())
        for attack in ATTACKS:
            kinds = [k for k in attack.kinds if arguments.kind in (None, k)]
            for kind in kinds if arguments.only in attack.name else []:
                seen = measure(place, attack, kind, arguments.rounds, arguments.seconds)
                rows.append(row(attack.name, kind, seen))
                print(" | ".join(rows[-1]), flush=True)
                result.bars += bars(attack, kind, seen)
    result.say("Without the attack → during it, medians of phases", table(HEAD, rows))
    if not (arguments.only or arguments.kind):
        result.write()
    missed = [bar for bar in result.bars if not bar.held]
    for bar in missed:
        print(f"MISSED {bar.what}: {bar.figure}, the bar is {bar.bar}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
