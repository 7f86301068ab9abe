"""Is what a recording says of its requests what their clients saw?

- **right**: the recorded p50 and p99 are within 10 % or 50 µs of the clients', less the network
  path, and rows and counted losses together are the clients' requests, within 0.5 %.
- **marked**: the counts are right, and one of the first lines of `tailscope explain` says what is
  not covered, with its share.
- **WRONG**: anything else.
"""

from __future__ import annotations

from dataclasses import dataclass

from thirdparty.client import Client
from thirdparty.recording import Recorded

#: How far a percentile may be off: the larger of the two.
SHARE, NS = 0.10, 50_000
#: How far a count may be off.
COUNT_SHARE = 0.005


@dataclass(frozen=True)
class Verdict:
    """One of right, marked and WRONG, with what is off."""

    word: str
    why: str = ""

    @property
    def holds(self) -> bool:
        """Whether nobody is misled."""
        return self.word != "WRONG"


def off_ns(recorded: float, client: float, path: float) -> float:
    """How far a recorded percentile is from the clients', of which the path is a part or not.

    How much of the path is on which side of the recorder is not known to the nanosecond, so all
    between the clients' figure and that less the path is no difference.
    """
    return max(recorded - client, client - path - recorded, 0.0)


def judge(client: Client, recorded: Recorded, path_ns: float) -> Verdict:
    """The verdict on one cell."""
    wrong = []
    missing = client.requests - recorded.requests
    counted = abs(missing) <= max(COUNT_SHARE * client.requests, 1)
    if not counted:
        wrong.append(f"{recorded.requests} of {client.requests} requests accounted for")
    for name, mine, theirs in (
        ("p50", recorded.p50_ns, client.p50_ns),
        ("p99", recorded.p99_ns, client.p99_ns),
    ):
        if off_ns(mine, theirs, path_ns) > max(SHARE * theirs, NS):
            wrong.append(f"{name} {text(mine)} for {text(theirs)}")
    if not wrong:
        return Verdict("right")
    if counted and recorded.notice:
        return Verdict("marked", "; ".join(wrong))
    return Verdict("WRONG", "; ".join(wrong))


def text(ns: float) -> str:
    """A time for a person, in three digits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"
