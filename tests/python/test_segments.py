"""`--segment`: typical, worst and best piece of a recording, and why they are so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tailscope
from command import Command, flat, runner, sentence
from conftest import Make
from explain_synthetic import START_NS
from tailscope.cli import main
from tailscope.errors import TailscopeError
from tailscope.statistics.explanation import Explanation, explain
from tailscope.statistics.segments import parse_length
from tailscope.statistics.target import Target

#: A span each millisecond: five segments of one second.
ROWS = 5_000
SECOND = np.arange(ROWS) // 1_000
SLOW = np.arange(ROWS) % 25 == 3


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(main, capsys)


@pytest.fixture
def five(make: Make) -> Path:
    """4 % of the spans wait for a lock, 400 µs and a little more each second; in the fourth second
    they also wait for I/O."""
    lock = np.where(SLOW, 400_000 + 1_000 * SECOND, 0)
    io = np.where(SLOW & (SECOND == 3), 2_000_000, 0)
    return make(wall_ns=100_000 + lock + io, lock_ns=lock, io_ns=io)


def cut(ledger: Path, length: str, target: float = 99) -> Explanation:
    return explain(tailscope.open(ledger), Target(target), None, 1, segment_ns=parse_length(length))


def test_typical_worst_and_best_by_hand(five: Path) -> None:
    found = cut(five, "1s").segments
    assert found is not None
    latencies = [500_000, 501_000, 502_000, 2_503_000, 504_000]
    assert [one.target_ns for one in found.segments] == pytest.approx(latencies, rel=0.001)
    assert [one.rows for one in found.segments] == [1_000] * 5
    assert [one.start_ns for one in found.segments] == [START_NS + i * 10**9 for i in range(5)]
    assert (found.best.start_s, found.typical.start_s, found.worst.start_s) == (0, 2, 3)
    expected = np.std(latencies) / np.mean(latencies)
    assert found.variation == pytest.approx(expected, rel=0.001)


def test_within_the_typical_segment_only_its_own_causes_count(five: Path) -> None:
    found = cut(five, "1s").segments
    assert found is not None
    within = {cause.name: cause for cause in found.within}
    assert within["lock"].saving.ns == pytest.approx(402_000, rel=0.001)
    assert within["lock"].impact == pytest.approx(402 / 502, abs=0.001)
    assert "io" not in within


def test_what_differs_in_the_worst_segment_carries_it(five: Path) -> None:
    found = cut(five, "1s").segments
    assert found is not None
    assert found.across is not None
    first = found.across.causes[0]
    assert first.name == "io"
    assert (first.base_ns, first.new_ns) == (0, pytest.approx(2_000_000))
    assert first.carries == pytest.approx(1.0, abs=0.01)
    assert found.across.target.is_sure


def test_text_and_json_show_them(five: Path, run: Command) -> None:
    code, out, _ = run(five, "--segment", "1s")
    assert code == 0
    assert max(len(line) for line in out.splitlines()) <= 80
    text = flat(out)
    assert "5 segments of 1 s: their p99 varies by 89 % (standard deviation over mean)" in text
    assert "within the typical segment p99 is 402 µs above the median:" in text
    assert "in the worst segment p99 is 2.00 ms above the typical:" in text
    found = json.loads(run(five, "--segment", "1s", "--json")[1])["segments"]
    assert len(found["segments"]) == 5
    assert found["worst"]["start_s"] == 3
    assert found["within_typical"][0]["name"] == "lock"
    assert found["typical_to_worst"]["causes"][0]["name"] == "io"
    assert json.loads(run(five, "--json")[1])["segments"] is None


def test_segments_that_are_alike_do_not_vary(make: Make, run: Command) -> None:
    code, out, _ = run(make(wall_ns=[5_000] * ROWS), "--segment", "500ms")
    assert code == 0
    assert "their p99 varies by 0 %" in flat(out)
    assert "no cause stands out" in flat(out)


def test_gaps_and_thin_segments_are_left_out(make: Make) -> None:
    start = np.concatenate([np.arange(300), 10_000 + np.arange(300), 20_000 + np.arange(5)])
    ledger = make(wall_ns=np.arange(605) + 1_000, start_ns=START_NS + start * 1_000_000)
    found = cut(ledger, "1s").segments
    assert found is not None
    assert [one.start_s for one in found.segments] == [0, 10]
    assert found.too_few == 1


def test_weights_count_in_each_segment(make: Make) -> None:
    wall = np.where(np.arange(2_000) % 100 < 10, 9_000, 1_000)
    weight = np.where((wall == 9_000) & (np.arange(2_000) < 1_000), 0.05, 1.0)
    found = cut(make(wall_ns=wall, weight=weight), "1s", 95).segments
    assert found is not None
    assert [one.target_ns for one in found.segments] == pytest.approx([1_000, 9_000], rel=0.001)


def test_lengths_that_make_no_segments_are_refused(five: Path, run: Command) -> None:
    def said(length: str) -> str:
        return sentence(run(five, "--segment", length), "tailscope explain")

    assert "'soon' is not a length of segments; write 30s, 10m or 1h" in said("soon")
    assert "'0s' is not a length" in said("0s")
    assert "this recording of 4.999 s has 1," in said("1h")
    assert "at most 500 are possible; use at least 0.01 s" in said("1ms")


@pytest.mark.parametrize(
    ("text", "ns"), [("30s", 30e9), ("10m", 600e9), ("1.5h", 5400e9), ("500 ms", 5e8)]
)
def test_lengths_as_people_write_them(text: str, ns: float) -> None:
    assert parse_length(text) == ns


def test_a_length_without_a_unit_is_no_length() -> None:
    with pytest.raises(TailscopeError):
        parse_length("10")
