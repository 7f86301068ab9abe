"""The pictures of pages: where values lie, what is labelled, and what is left out."""

from __future__ import annotations

import math
import re

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from tailscope.present import svg
from tailscope.present.pages.charts import heat, interval
from tailscope.present.pages.charts.axis import Axis
from tailscope.present.pages.charts.curves import Distribution, course, runs
from tailscope.present.pages.charts.frame import Frame, Words
from tailscope.present.pages.joint import GROUPS, Groups, shares
from tailscope.present.pages.units import short

WORDS = Words("rates", "about them")


def labels(axis: Axis, most: int) -> list[str]:
    return [text for _, text in axis.ticks(most)]


def test_ticks_are_round_and_distinct() -> None:
    assert labels(Axis.linear(0, 4.4e6), 5) == ["0", "1 M", "2 M", "3 M", "4 M"]
    close = ["4.150 M", "4.155 M", "4.160 M", "4.165 M", "4.170 M"]
    assert labels(Axis.linear(4.149e6, 4.171e6), 5) == close
    wide = ["0", "100", "300", "1 k", "3 k", "10 k", "30 k"]
    assert labels(Axis.ratio(90, 3e4, True), 6) == wide
    assert labels(Axis.ratio(2100, 2900), 4) == ["2.2 k", "2.4 k", "2.6 k", "2.8 k"]


def test_a_distribution_gets_the_axis_that_shows_it() -> None:
    narrow = Axis.of([(4.1e6, 50), (4.2e6, 50)], 0.001)
    assert narrow and not narrow.holds(0) and narrow.holds(4.1e6) and narrow.holds(4.2e6)
    from_zero = Axis.of([(0.0, 5), (1e6, 50), (2e6, 45)], 0.001)
    assert from_zero and from_zero.holds(0) and from_zero.place(1e6) < 0.5
    wide = Axis.of([(0.0, 5), (1e3, 50), (1e6, 45)], 0.001)
    assert wide and wide.place(0) == 0 and wide.holds(0)
    assert wide.place(1e3) > 0 and 0.4 < wide.place(31_600) < 0.7
    assert Axis.of([(0.0, 5)], 0.001) is None and Axis.of([], 0.001) is None


@given(
    st.floats(1e-6, 1e9), st.floats(1, 1e6), st.booleans(), st.floats(0, 1e12), st.floats(0, 1e12)
)
def test_values_lie_inside_an_axis_and_in_order(
    low: float, times: float, zero: bool, first: float, second: float
) -> None:
    first, second = sorted((first, second))
    for axis in (Axis.linear(low, low * times), Axis.ratio(low, low * times, zero)):
        assert 0 <= axis.place(first) <= axis.place(second) <= 1
        ticks = axis.ticks(6)
        assert len(ticks) <= 9
        least, most = axis.low * (1 - 1e-9), axis.high * (1 + 1e-9)
        assert all(least <= tick <= most or (zero and tick == 0) for tick, _ in ticks)


def curve(
    cells: list[tuple[float, int]], behind: list[tuple[float, int]] | None = None
) -> Distribution:
    hidden = (behind, "all") if behind else None
    style = "s-one"
    return Distribution(WORDS, "counts a second", "% of them", style, cells, 0.0005, short, hidden)


def test_a_curve_ends_at_all_and_labels_its_quantiles() -> None:
    drawn = curve([(10.0, 1), (20.0, 3)], [(10.0, 2), (20.0, 2)]).draw(480)
    assert "p50 20" in drawn and "p99 20" in drawn
    assert drawn.count('class="curve') == 2
    # The top of the frame is 100 %.
    assert ' 36"><title>rates' in drawn
    assert curve([]).draw(480) == curve([(0.0, 7)]).draw(480) == ""


def test_a_quarter_of_the_values_is_drawn_at_a_quarter_of_the_height() -> None:
    drawn = curve([(0.5, 25), (1.5, 75)]).draw(480)
    found = re.search(r'<path class="curve s-one" d="M([^"]*)"', drawn)
    assert found
    heights = [float(point.split()[1]) for point in found[1].split("L")]
    low, high = heights[0], heights[-1]
    assert any(y == approx(low - (low - high) / 4, abs=0.6) for y in heights)


def test_what_does_not_fit_is_counted() -> None:
    assert curve([(10.0, 99_990), (11.0, 9), (1e9, 1)]).beyond == 10
    assert curve([(10.0, 99_990)]).beyond == 0


def test_a_line_over_time_breaks_where_nothing_is_known() -> None:
    slices = [(0.0, 5.0), (1.0, None), (2.0, 6.0), (3.0, 6.5)]
    assert runs(slices, 3.5) == [[(0.0, 1.0, 5.0)], [(2.0, 3.0, 6.0), (3.0, 3.5, 6.5)]]
    assert course(WORDS, "", "s-one", slices, 3.5, 0, 480).count("<path") == 2
    assert course(WORDS, "", "s-one", slices[1:2], 3.5, 0, 480) == ""


def test_the_cell_of_a_rate_contains_it() -> None:
    for rate in (1.0, 1.0001, 1.99, 2.0, 4.17e6, 1e-3):
        for each in (8, 4, 1):
            low, high = heat.edges(rate, each)
            assert low <= rate < high <= low * (1 + 1.001 / each)
    assert heat.edges(0, 8) == (0, 0)


def test_every_pair_is_on_the_map_or_counted_beyond_it() -> None:
    cells = [(0.0, 5e6, 10), (1e6, 5e6, 30_000), (2e6, 4e6, 60_000), (1e12, 4e6, 1)]
    found = heat.axes(cells)
    assert found
    shown = sum(pairs for *_, pairs in heat.spots(cells, Frame(640, *found)))
    assert (shown, heat.outside(cells)) == (90_010, 1)
    cells += [(1e6 * 1.07 ** (i % 100), 1e3 * 1.07 ** (i / 90), 50) for i in range(9000)]
    found = heat.axes(cells)
    assert found
    assert len(heat.spots(cells, Frame(640, *found))) <= heat.MOST_CELLS
    assert heat.draw(["a", "b"], [(0.0, 0.0, 5)], WORDS, 640) == ""


def test_the_interval_and_the_budget_are_on_the_line() -> None:
    drawn = interval.draw(0.018, 0.012, 0.024, 0.01, WORDS, 1000)
    assert "1.80 % slower" in drawn and "budget" in drawn and "<desc>about them</desc>" in drawn


def test_a_table_of_two_rates_has_all_pairs() -> None:
    head, rows = shares([(0.0, 5e6, 10), (1e6, 5e6, 30), (2e6, 4e6, 60)])
    figures = [float(cell) for row in rows for cell in row[1:] if cell != "·"]
    assert len(head) == 4 and len(rows) == 2
    assert sum(figures) == approx(100, abs=0.1)
    assert shares([]) == ([""], [])


def test_many_rates_become_few_groups_and_each_keeps_its_own() -> None:
    values = [(1e3 * 1.09 ** (i % 100), 1) for i in range(500)]
    groups = Groups(values)
    assert (
        {groups.place(value) for value, _ in values}
        == set(range(GROUPS))
        == set(range(len(groups)))
    )
    assert Groups([(0.0, 7)]).names() == ["0"]
    assert len(Groups([(5.0, 7)])) == 1
    assert Groups([(5.0, 7)]).place(math.inf) == 0


def test_long_names_keep_both_ends() -> None:
    assert svg.fitted("short", 100) == "short"
    cut = svg.fitted("a_function_with_a_very_long_name.c:120", 20 * svg.LETTER)
    assert len(cut) == 20 and cut.startswith("a_function") and cut.endswith("c:120")


def test_texts_of_pictures_are_escaped() -> None:
    evil = "<b>\"'&"
    parts = [svg.label(0, 0, evil), svg.box(0, 0, 1, 1, "x", evil), svg.path([(0, 0)], "x", evil)]
    drawn = svg.picture(1, 1, evil, parts, evil)
    assert "<b>" not in drawn and drawn.count("&lt;b&gt;") == 5
