"""The proof's own arithmetic: what clients saw, and whether a recording agrees."""

from __future__ import annotations

import pytest
from proof.machine import ProofError
from thirdparty.client import Client, merged, quantile, sum_up
from thirdparty.recording import Recorded
from thirdparty.verdict import judge

CLIENT = Client(requests=1000, p50_ns=1e6, p99_ns=40e6, least_ns=5e5)
PATH_NS = 20_000.0


def recorded(rows: int = 1000, p50: float = 1e6, p99: float = 40e6, **more: object) -> Recorded:
    return Recorded(rows, p50, p99, **more)


def test_quantiles_are_of_the_weights_and_need_some() -> None:
    assert quantile({1.0: 98, 5.0: 1, 9.0: 1}, 0.5) == 1.0
    assert quantile({1.0: 98, 5.0: 1, 9.0: 1}, 0.99) == 5.0
    assert quantile({1.0: 1, 2.0: 1}, 1.0) == 2.0
    assert merged([[(1, 2), (3, 1)], [(1, 1)]]) == {1: 3, 3: 1}
    with pytest.raises(ProofError):
        quantile({}, 0.5)


def test_loads_of_several_kinds_are_one_client() -> None:
    fast = {"errors": 0, "unanswered": 0, "count": 3, "served_buckets": [(2, 3)], "lag_ns": None}
    slow = fast | {"count": 1, "served_buckets": [(20, 1)], "lag_ns": {"p99": 7}}
    seen = sum_up({"fast": fast, "slow": slow})
    assert (seen.requests, seen.p50_ns, seen.p99_ns, seen.lag_ns) == (4, 2, 20, 7)
    assert seen.kinds == {"fast": (2, 2), "slow": (20, 20)}
    with pytest.raises(ProofError, match="1 requests of slow with an error"):
        sum_up({"slow": slow | {"errors": 1}})


@pytest.mark.parametrize(
    ("what", "word"),
    [
        (recorded(), "right"),
        (recorded(p50=1e6 - 70_000), "right"),  # the path, and 50 µs
        (recorded(p50=1e6 - 121_000), "WRONG"),  # the path, and more than a tenth
        (recorded(p99=44e6), "right"),
        (recorded(p99=44.1e6), "WRONG"),
        (recorded(rows=995), "right"),
        (recorded(rows=994), "WRONG"),
        (recorded(rows=2000), "WRONG"),
        (recorded(rows=500, losses={"multiplexed": 500}), "right"),
        (recorded(p99=4e6, first_lines=("12 % of the requests are not recorded",)), "marked"),
        (recorded(p99=4e6, first_lines=("1,000 spans of 1 process",)), "WRONG"),
        (recorded(rows=900, first_lines=("10 % of the requests are not recorded",)), "WRONG"),
    ],
)
def test_a_recording_is_right_marked_or_wrong(what: Recorded, word: str) -> None:
    verdict = judge(CLIENT, what, PATH_NS)
    assert (verdict.word, verdict.holds) == (word, word != "WRONG"), verdict
    assert bool(verdict.why) == (word != "right")
