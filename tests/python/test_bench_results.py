"""A measurement's result is one file of its machine, and tables and pages are made from it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import machine
import pytest
import render
from harness import RESULTS, Bar, Result, known, this_machine

KEYS = {"name", "title", "machine", "commit", "date", "command", "load", "summary", "bars"}
KEYS |= {"sections", "figures"}


def measured(**more: object) -> Result:
    """A result with a bar that is held, one that is not, and a section."""
    result = Result("span_cost", "What a span costs", **more)
    result.bars = [
        Bar("a span", "at most 40 ns", "10.1 ns", True),
        Bar("a row", "at most 24 bytes", "31 bytes", False, "on one disk"),
    ]
    result.sections = [("ns each", "| kind | ns |\n| --- | --- |\n| kept | 33.5 |")]
    result.figures = {"kept": 33.5}
    return result


@pytest.mark.parametrize(
    ("model", "cpus", "architecture", "release", "name"),
    [
        ("AMD EPYC", 2, "x86_64", "6.18.44-fc-v657", "amd-epyc-2cpu-x86_64-linux6.18"),
        ("AMD EPYC", 2, "x86_64", "6.18.45-fc-v669", "amd-epyc-2cpu-x86_64-linux6.18"),
        ("AMD EPYC 7R13 Processor", 4, "x86_64", "6.1", "amd-epyc-7r13-4cpu-x86_64-linux6.1"),
        (
            "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz",
            64,
            "x86_64",
            "6.12.0",
            "intel-xeon-platinum-8375c-64cpu-x86_64-linux6.12",
        ),
        ("", 8, "aarch64", "6.1.0-28-cloud-arm64", "8cpu-aarch64-linux6.1"),
    ],
)
def test_a_machine_keeps_its_folder_over_patches_of_its_kernel(
    model: str, cpus: int, architecture: str, release: str, name: str
) -> None:
    assert machine.slug(model, cpus, architecture, release) == name


def test_a_result_holds_everything_and_is_known_to_the_next_run(tmp_path: Path) -> None:
    result = measured()
    result.write(tmp_path)
    assert list(tmp_path.glob("*/*")) == [tmp_path / this_machine() / "span_cost.json"]
    stored = known("span_cost", tmp_path)
    assert set(stored) == KEYS
    assert stored["machine"] == machine.machine() and stored["commit"] == machine.commit()
    assert stored["figures"] == {"kept": 33.5} and len(stored["load"]) == 2
    assert known("another", tmp_path) == {}


def test_a_page_shows_bars_sections_and_where_the_figures_are_from() -> None:
    page = render.page(measured(command="bench/x.py --quick").stored())
    assert page.startswith("# What a span costs\n")
    assert "NO (on one disk)" in page and "| kept | 33.5 |" in page
    assert f"commit {machine.commit()}, " in page and "    bench/x.py --quick\n" in page


def test_a_table_of_each_machine_has_a_line_for_each_result() -> None:
    told = measured(summary="a span: 10.1 ns", commit="abcdef1", date="2026-01-31").stored()
    silent = measured(commit="abcdef2", date="2026-02-01").stored()
    text = f"before\n{render.START}\nold\n{render.END}\nafter\n"
    filled = render.filled(text, {"one": [told], "two": [silent]})
    assert filled.startswith("before\n") and filled.endswith("after\n") and "old" not in filled
    link = "[span_cost](results/{}/span_cost.json)"
    told_line = f"| {link.format('one')} | a span: 10.1 ns | 1 of 2 | abcdef1, 2026-01-31 |"
    figures = "a span: 10.1 ns; a row: 31 bytes"
    silent_line = f"| {link.format('two')} | {figures} | 1 of 2 | abcdef2, 2026-02-01 |"
    assert told_line in filled and silent_line in filled


def test_the_figures_of_many_goals_are_cut_to_a_cell() -> None:
    bars = [vars(Bar(f"figure {n} of many", "at most 3", "4", False)) for n in range(20)]
    text = render.summary(measured().stored() | {"bars": bars})
    assert text.startswith("figure 0 of many: 4; ") and text.endswith("; …")
    assert len(text) <= render.CELL


def test_every_goal_is_listed_with_its_figure() -> None:
    listed = render.all_goals({"one": [measured().stored()]})
    assert "## one" in listed and "at most 24 bytes" in listed and "31 bytes" in listed


def test_a_page_without_a_place_for_the_tables_is_refused() -> None:
    with pytest.raises(SystemExit, match="the tables have no place"):
        render.filled("a page\n", {})


def test_every_stored_result_is_complete_and_where_its_name_says() -> None:
    paths = sorted(path for path in RESULTS.rglob("*") if path.is_file())
    assert paths
    for path in paths:
        stored = json.loads(path.read_text())
        assert set(stored) == KEYS, path
        assert path == RESULTS / path.parent.name / f"{stored['name']}.json"
        assert stored["commit"] and stored["date"] and render.page(stored)


def test_a_commit_is_dirty_if_sources_changed_and_not_if_results_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        known_as = ("-c", "user.name=x", "-c", "user.email=x@localhost")
        subprocess.run(["git", *known_as, *words], cwd=tmp_path, check=True, capture_output=True)

    source, stored = tmp_path / "source", tmp_path / "bench" / "results" / "one.json"
    stored.parent.mkdir(parents=True)
    source.write_text("1")
    stored.write_text("{}")
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    assert machine.commit() == "unknown"
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "A tree")
    clean = machine.commit()
    assert len(clean) >= 7 and "-" not in clean
    stored.write_text('{"name": "one"}')
    assert machine.commit() == clean
    source.write_text("2")
    assert machine.commit() == f"{clean}-dirty"
