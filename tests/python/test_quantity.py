"""Numbers as people read them."""

from __future__ import annotations

import pytest
from tailscope.quantity import Interval, count, duration, percent, ratio, span_of_time


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"), (7, "7 ns"), (999, "999 ns"), (1_000, "1.00 µs"), (41_234, "41.2 µs"),
        (999_700, "1.00 ms"), (3_640_000, "3.64 ms"), (12_345_678_900, "12.3 s"),
        (-2_500, "-2.50 µs"), (99_980, "100 µs"), (9_998, "10.0 µs"),
    ],
)  # fmt: skip
def test_a_time_has_three_figures_and_a_unit(ns: float, text: str) -> None:
    assert duration(ns) == text


def test_an_interval_has_one_unit() -> None:
    assert span_of_time(Interval(1, 890_000, 1_160_000)) == "0.89–1.16 ms"
    assert span_of_time(Interval(1, -30, 3_130)) == "-0.03…3.13 µs"
    assert span_of_time(Interval(0, 0, 0)) == "0 ns"


def test_what_is_there_but_tiny_is_not_nothing() -> None:
    assert [percent(share) for share in (None, 0, 0.0002, 0.02, 0.631, 1)] == [
        "–", "0 %", "<0.1 %", "2.0 %", "63 %", "100 %",
    ]  # fmt: skip
    assert [ratio(value) for value in (None, -0.0006, 0.98)] == ["–", "0", "0.98"]
    assert [count(value) for value in (None, 9_812_345, 12_300_000)] == ["–", "9,812,345", "12.3 M"]
