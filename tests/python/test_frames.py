"""In a notebook: tables with nothing else installed, data frames and charts with the extra."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tailscope
from conftest import Make
from tailscope import frames
from tailscope.errors import MachineError
from tailscope.present.notebook import Explanation


@pytest.fixture
def explanation(two_values: Path) -> Explanation:
    return tailscope.open(two_values).explain("p99")


def test_causes_are_a_table_as_text_and_as_html(explanation: Explanation) -> None:
    head, first, *_ = repr(explanation.causes).splitlines()
    assert head.split()[:2] == ["cause", "saves"]
    assert first.split()[:3] == ["lock", "900", "µs"]
    assert "<td>lock</td><td>900 µs</td>" in explanation.causes._repr_html_()
    assert explanation._repr_html_().startswith("<p>p99 of recv..send is 1.00 ms; 900 µs of it")


@pytest.mark.parametrize("module", ["pandas", "altair"])
def test_without_the_extra_the_sentence_says_what_to_install(
    explanation: Explanation, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    ask = {"pandas": explanation.causes.to_pandas, "altair": explanation.chart}[module]
    with pytest.raises(MachineError, match=rf"needs {module}: pip install 'tailscope\[notebook\]'"):
        ask()


def test_data_frames_have_the_figures(explanation: Explanation) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed (requirements-extras.lock)")
    causes = explanation.causes.to_pandas().set_index("name")
    assert causes.loc["lock", "saving_ns"] == explanation.causes[0].saving.ns
    curves = frames.curves(explanation)
    assert set(curves["curve"]) == {"as measured", "without lock"}
    measured = curves[curves["curve"] == "as measured"]
    slowest = measured.loc[measured["quantile"] > 0.981, "latency_ns"]
    assert slowest.to_numpy() == pytest.approx(1_000_000, rel=0.001)
    classes = frames.classes(explanation)
    assert classes["spans"].sum() == 1000
    assert classes["lock_ns"].max() == pytest.approx(900_000)


def test_segments_are_a_table_and_a_chart(two_values: Path) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed (requirements-extras.lock)")
    found = tailscope.open(two_values).segments("250ms")
    frame = found.to_pandas()
    assert frame["rows"].tolist() == [250] * 4
    assert set(frame["role"]) >= {"typical"}
    assert frame["target_ns"].to_numpy() == pytest.approx(1_000_000, rel=0.001)
    assert found._repr_html_().count("<tr>") >= 5
    marks = [layer["mark"]["type"] for layer in found.chart().to_dict()["layer"]]
    assert marks == ["line", "point"]


def test_impacts_are_a_data_frame_with_what_the_rules_say(make: Make) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed (requirements-extras.lock)")
    slow = np.arange(1000) % 50 == 49
    softirq = np.where(slow, 300_000, 0)
    explanation = tailscope.open(
        make(wall_ns=100_000 + 3 * softirq, irq_ns=2 * softirq, softirq_net_ns=softirq)
    ).explain("p99")
    impacts = explanation.impacts().set_index("event")
    assert impacts.loc["irq", "ranked_impact"] == pytest.approx(0.9, rel=0.01)
    assert impacts.loc["softirq_net", "impact"] == pytest.approx(0.9, rel=0.01)
    assert impacts.loc["softirq_net", "follows"] == "irq"
    assert list(frames.pairs(explanation).columns) == ["one", "other", "correlation", "overlap"]


def test_charts_hold_the_causes_and_the_curves(explanation: Explanation) -> None:
    pytest.importorskip("altair", reason="altair is not installed (requirements-extras.lock)")
    bars = explanation.causes.chart().to_dict()
    assert [layer["mark"]["type"] for layer in bars["layer"]] == ["bar", "rule"]
    text = str(explanation.chart().to_dict())
    assert "without lock" in text
    assert "as measured" in text
