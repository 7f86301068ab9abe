"""`explain`'s page from its JSON is the page that `explain --html` writes."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tailscope
from conftest import Make
from explain_synthetic import World
from hypothesis import given
from hypothesis import strategies as st
from made_reports import EVIL
from tailscope.cli import main
from tailscope.engines.grid import STEPS, Distribution, last_quantile, tail_quantiles
from tailscope.errors import TailscopeError
from tailscope.present.pages import draw
from tailscope.present.pages.charts.explanation import points
from tailscope.present.pages.explain import page
from tailscope.statistics.chain import Chain, Opened
from tailscope.statistics.explanation import Explanation


def told(explanation: Explanation) -> dict:
    return json.loads(json.dumps(explanation.to_dict()))


@pytest.mark.parametrize("target", ["p99", "p50"])
def test_both_pages_are_the_same(planted: tuple[Path, World], target: str) -> None:
    explanation = tailscope.open(planted[0]).explain(target)
    assert draw(told(explanation)) == page(explanation)


def test_so_they_are_with_segments_and_a_baseline(
    planted: tuple[Path, World], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html, ledger = tmp_path / "page.html", str(planted[0])
    for more in (["--segment", "100s"], ["-p", "p50", "--baseline", ledger]):
        assert main([ledger, "--json", "-q", "--html", str(html), *more]) == 0
        assert draw(json.loads(capsys.readouterr().out)) == html.read_text()


@pytest.mark.parametrize("asked", [0.0, 40.0])
def test_so_they_are_with_what_another_server_did(
    planted: tuple[Path, World], asked: float
) -> None:
    """Its causes are in the page, and notices are there once."""
    opened = Opened(50.0, asked, asked / 2, 9e6, {"sleep": 4e6}, 1e6, 4e6, {EVIL: 4e6})
    chain = Chain(("backend",), opened, opened, 70_000.0 if asked else None, ("a", "b"))
    explanation = replace(tailscope.open(planted[0]).explain("p99"), through=chain)
    text = page(explanation)
    assert draw(told(explanation)) == text
    assert ("the way there and back" in text) == bool(asked)
    assert len(chain.notices) == 2
    assert all(text.count(notice) == 1 for notice in chain.notices), chain.notices
    assert "<script" not in text


def test_the_json_of_a_long_ledger_is_bounded(planted: tuple[Path, World]) -> None:
    explanation = tailscope.open(planted[0]).explain("p99")
    found = explanation.pictures()
    assert len(explanation.curves[""].bins) > STEPS
    assert all(len(curve["bins"]) <= STEPS for curve in found["curves"].values())
    assert len(json.dumps(found)) < 500_000


@given(
    st.dictionaries(st.integers(0, 50_000), st.floats(1e-3, 1e6), min_size=1, max_size=2000),
)
def test_a_sketch_gives_the_points_of_the_whole_curve(weights: dict[int, float]) -> None:
    bins = sorted(weights)
    whole = Distribution(np.array(bins), np.array([weights[number] for number in bins]))
    last = last_quantile(whole)
    sketch = whole.sketch(tail_quantiles(last))
    assert sketch.total == pytest.approx(whole.total, rel=1e-9)
    # Where weights differ by 1e9, a sum's rounding may move a point by a bin.
    same = points(whole, last)[1] == points(sketch, last)[1]
    assert same.mean() > 0.99


def test_names_in_the_json_are_only_text_and_causes_are_only_causes(make: Make) -> None:
    found = told(tailscope.open(make(wall_ns=[1000] * 190 + [9000] * 10)).explain("p99"))
    found["span"]["name"], found["notes"] = EVIL, [EVIL]
    found["recordings"][0] |= {"cpus": EVIL, "host": EVIL, "ladder": {EVIL: {"rung": EVIL}}}
    assert "<script" not in draw(found)
    found["causes"][0]["name"] = EVIL
    with pytest.raises(TailscopeError, match="not a complete explain report"):
        draw(found)


@pytest.fixture(scope="module")
def whole(planted: tuple[Path, World]) -> dict:
    return told(tailscope.open(planted[0]).explain("p99"))


@given(
    st.integers(0),
    st.recursive(st.none() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5),
)
def test_any_value_in_the_place_of_another_makes_a_page_or_an_error(
    whole: dict, number: int, value: object
) -> None:
    key = list(whole)[number % len(whole)]
    with suppress(TailscopeError):
        assert "<script" not in draw(whole | {key: value})
