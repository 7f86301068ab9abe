"""In a notebook: tables with nothing else installed, data frames and charts with the extra."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import tailscope
from tailscope import frames
from tailscope.errors import MachineError
from tailscope.explanation import Explanation


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


def test_charts_hold_the_causes_and_the_curves(explanation: Explanation) -> None:
    pytest.importorskip("altair", reason="altair is not installed (requirements-extras.lock)")
    bars = explanation.causes.chart().to_dict()
    assert [layer["mark"]["type"] for layer in bars["layer"]] == ["bar", "rule"]
    text = str(explanation.chart().to_dict())
    assert "without lock" in text
    assert "as measured" in text
