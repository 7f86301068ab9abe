"""What outside load generators print is what they measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proof.machine import ProofError
from thirdparty.client import merged, summed
from thirdparty.outside import H2Load, Wrk, without_made_up

HISTOGRAMS = st.dictionaries(st.integers(0, 3000), st.integers(1, 5), min_size=1, max_size=30)


def corrected(latencies: dict[int, int], interval: int) -> dict[int, int]:
    """What wrk prints of its latencies: `stats_correct` in its `stats.c`."""
    printed = dict(latencies)
    for took, count in latencies.items():
        made_up = took - interval
        while took >= 2 * interval and made_up > interval:
            printed[made_up] = printed.get(made_up, 0) + count
            made_up -= interval
    return printed


@given(HISTOGRAMS, st.integers(1, 1000))
def test_what_wrk_made_up_is_taken_off(latencies: dict[int, int], interval: int) -> None:
    assert without_made_up(corrected(latencies, interval), interval) == latencies


def report(**changed: object) -> str:
    """What wrk's script prints of three requests on two connections in a second."""
    made = {"errors": 0, "requests": 3, "us": 1_000_000, "connections": 2}
    return "Running\n" + json.dumps(made | {"latencies": [[100, 2], [300, 1]]} | changed)


def test_a_report_of_wrk_is_read(tmp_path: Path) -> None:
    client = summed({"/": merged([Wrk().latencies(report(), tmp_path)])})
    assert (client.requests, client.p50_ns, client.p99_ns) == (3, 100_000, 300_000)


@pytest.mark.parametrize("changed", [{"errors": 1}, {"requests": 4}])
def test_a_report_of_wrk_that_is_not_whole_is_refused(changed: dict, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match=r"failed|latencies"):
        Wrk().latencies(report(**changed), tmp_path)


def test_a_log_of_h2load_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("1700000000000000\t200\t150\n1700000000000100\t200\t250\n")
    client = summed({"/": merged([H2Load().latencies("", log)])})
    assert (client.requests, client.p50_ns, client.p99_ns) == (2, 150_000, 250_000)
    log.write_text("1700000000000000\t503\t150\n")
    with pytest.raises(ProofError, match="503"):
        merged([H2Load().latencies("", log)])
