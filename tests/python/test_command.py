"""The command: what it prints, and one clear sentence for each thing that can be wrong."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import command
import duckdb
import numpy as np
import pytest
from command import Command, Run, flat, runner
from conftest import Make
from explain_synthetic import START_NS, World
from tailscope.cli import main

SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(main, capsys)


def sentence(found: Run, code: int = 2) -> str:
    """The one line of an error."""
    return command.sentence(found, "tailscope explain", code)


def parquet(path: Path, select: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    duckdb.execute(f"COPY ({select}) TO '{path}' (FORMAT parquet)")
    return path


def matches(name: str, found: str) -> None:
    """Compare with the stored output; UPDATE_SNAPSHOTS=1 stores it anew."""
    place = SNAPSHOTS / name
    if os.environ.get("UPDATE_SNAPSHOTS"):
        place.write_text(found, encoding="utf-8")
    assert found == place.read_text(encoding="utf-8")


@pytest.fixture
def beside(two_values: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The ledger's name seen from its folder, so that no path gets into a stored output."""
    monkeypatch.chdir(two_values.parent)
    return two_values.name


def test_text_is_as_stored_and_fits_80_columns(beside: str, run: Command) -> None:
    code, out, err = run(beside)
    assert (code, err) == (0, "")
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "\x1b" not in out
    matches("two_values.txt", out)


def test_all_figures_and_all_paragraphs_are_as_stored(beside: str, run: Command) -> None:
    code, out, _ = run(beside, "-v", "--impact")
    assert code == 0
    matches("two_values_verbose.txt", out)


def test_all_figures_and_all_paragraphs_fit_80_columns(
    planted: tuple[Path, World], run: Command
) -> None:
    out = run(planted[0], "-v", "--impact")[1]
    assert max(len(line) for line in out.splitlines()) <= 80


def test_two_figures_a_cause_by_default_and_the_others_where_asked(
    beside: str, run: Command
) -> None:
    def head(*options: str) -> list[str]:
        lines = run(beside, *options)[1].splitlines()
        return next(line.split() for line in lines if line.startswith("cause"))

    two = ["cause", "saves", "95", "%", "interval", "of", "tail"]
    assert head() == two
    assert head("--impact") == [*two, "impact"]
    assert set(head("-v")) == {*two, "fair", "without", "impact", "spans"}


def test_lines_follow_the_terminal_and_no_line_is_longer(
    beside: str, monkeypatch: pytest.MonkeyPatch, run: Command
) -> None:
    longest = {}
    for width in (50, 80, 132):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = run(beside)[1].splitlines()
        longest[width] = max(map(len, lines))
        assert longest[width] <= width
    assert longest[50] < longest[80] < longest[132]


@pytest.mark.parametrize("locale", ["C", "POSIX", "en_US.ISO-8859-1"])
def test_a_locale_without_unicode_gets_ascii_in_80_columns(
    beside: str, monkeypatch: pytest.MonkeyPatch, run: Command, locale: str
) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    code, out, _ = run(beside, "-v", "--impact")
    assert code == 0
    assert out.isascii()
    assert "900 us of it" in out
    assert max(len(line) for line in out.splitlines()) <= 80


def test_json_escapes_letters_that_the_locale_lacks(
    make: Make, monkeypatch: pytest.MonkeyPatch, run: Command
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    ledger = make(wall_ns=[1] * 5, world=replace(World(5, seconds=1), span="größe"))
    out = run(ledger, "--json")[1]
    assert out.isascii()
    assert json.loads(out)["span"]["name"] == "größe"


@pytest.mark.parametrize("module", ["tailscope.cli", "tailscope.diff_cli"])
@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LANG": "C"}, {}])
def test_a_process_under_the_c_locale_writes_ascii(module: str, locale: dict[str, str]) -> None:
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), **locale}
    found = subprocess.run(
        [sys.executable, "-m", module, "--help"], capture_output=True, env=environment, check=True
    )
    assert found.stdout.isascii()
    assert b"s3://..." in found.stdout
    assert max(map(len, found.stdout.splitlines())) <= 80


def test_json_is_as_stored(beside: str, run: Command) -> None:
    code, out, _ = run(beside, "--json")
    assert code == 0

    def rounded(value: object) -> object:
        return float(f"{value:.5g}") if isinstance(value, float) else value

    def walk(value: object) -> object:
        if isinstance(value, dict):
            return {key: walk(inner) for key, inner in value.items()}
        return [walk(inner) for inner in value] if isinstance(value, list) else rounded(value)

    found = json.dumps(walk(json.loads(out)), indent=1, ensure_ascii=False) + "\n"
    matches("two_values.json", found)


def test_json_has_no_number_that_is_none(planted: tuple[Path, World], run: Command) -> None:
    code, out, _ = run(planted[0], "--json", "-p", "p99.9")

    def refuse(name: str) -> None:
        raise AssertionError(name)

    found = json.loads(out, parse_constant=refuse)
    assert code == 0
    assert found["target"] == "p99.9"
    first = found["causes"][0]
    assert first["predicted_lo_ns"] <= first["predicted_ns"] <= first["predicted_hi_ns"]


def test_the_first_line_says_the_answer(planted: tuple[Path, World], run: Command) -> None:
    _, out, _ = run(planted[0])
    first = " ".join(out.split("\n\n")[0].split())
    assert re.fullmatch(
        r"p99 of recv..send is \S+ ms; \S+ ms of it is runqueue: "
        r"waiting for a CPU that other threads had.",
        first,
    )


def test_the_same_seed_says_the_same(planted: tuple[Path, World], run: Command) -> None:
    assert run(planted[0], "--seed", "4") == run(planted[0], "--seed", "4")


def test_the_installed_command_ends_quietly_when_its_reader_leaves(two_values: Path) -> None:
    command = f"{sys.executable} -m tailscope.cli {two_values} --json | head -c 1"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, env=environment, check=False
    )
    assert found.stderr == b""


def test_a_terminal_without_unicode_gets_plain_letters(two_values: Path) -> None:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONIOENCODING": "ascii",
    }
    found = subprocess.run(
        [sys.executable, "-m", "tailscope.cli", str(two_values)],
        capture_output=True,
        env=environment,
        check=True,
    )
    assert b"900 us of it" in found.stdout


def test_help_has_examples(run: Command) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert "tailscope explain LEDGER -p p99.9" in out


def test_no_ledger_there(tmp_path: Path, run: Command) -> None:
    assert "there is no ledger at" in sentence(run(tmp_path / "nowhere"))
    (tmp_path / "folder").mkdir()
    assert "no ledger.json and no Parquet file" in sentence(run(tmp_path / "folder"))


def test_a_ledger_without_a_sealed_file(tmp_path: Path, run: Command) -> None:
    (tmp_path / "ledger.json").write_text('{"schema": 1, "state": "recording"}')
    assert "was cut off before its first file was sealed" in sentence(run(tmp_path))
    # As a recorder does while it writes.
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_SH)
    assert "still runs, and no file has been sealed yet" in sentence(run(tmp_path))
    os.close(folder)
    (tmp_path / "ledger.json").write_text('{"schema": 1, "state": "done", "files": 0}')
    assert "no span ended while it was recorded" in sentence(run(tmp_path))


def test_a_ledger_without_rows(make: Make, run: Command) -> None:
    assert "the ledger is empty: no span was recorded" in sentence(run(make(wall_ns=[])))


def test_a_truncated_file_is_named_and_the_others_are_read(two_values: Path, run: Command) -> None:
    whole = next(two_values.rglob("*.parquet"))
    torn = whole.with_name("000001.parquet")
    torn.write_bytes(whole.read_bytes()[:-200])
    code, out, err = run(two_values)
    assert code == 0
    assert f"{torn} is truncated" in err
    assert flat(out).startswith("INCOMPLETE: 1 of 2 files (50 %, with 0 % of the rows) is left out")
    quiet = run(two_values, "-q")
    assert quiet[2] == ""
    whole.unlink()
    assert f"{torn} is truncated" in sentence(run(two_values))


def test_a_file_that_is_damaged_inside(two_values: Path, run: Command) -> None:
    whole = next(two_values.rglob("*.parquet"))
    held = bytearray(whole.read_bytes())
    held[20 : len(held) // 2] = bytes(len(held) // 2 - 20)
    whole.write_bytes(held)
    assert "damaged" in sentence(run(two_values))


def test_files_that_are_gone_are_missed(make: Make, run: Command) -> None:
    ledger = make(wall_ns=[100] * 50, about={"files": 2, "rows": 100})
    code, _, err = run(ledger)
    assert code == 0
    notice = "1 of 2 files (50 %, with 50 % of the rows) is left out; missing: 1 of"
    assert f"INCOMPLETE: {notice}" in flat(err)


def test_a_recording_that_was_cut_off_is_read_with_a_warning(make: Make, run: Command) -> None:
    code, _, err = run(make(wall_ns=[100] * 50, about={"state": "recording"}))
    assert code == 0
    assert "was cut off, or is still being written" in err


@pytest.mark.parametrize("text", ["{", "[]", '{"machine": 3, "lost": [1], "ladder": {"irq": 7}}'])
def test_a_ledger_json_that_makes_no_sense_is_lived_without(
    two_values: Path,
    run: Command,
    text: str,
) -> None:
    (two_values / "ledger.json").write_text(text)
    code, out, err = run(two_values)
    assert code == 0
    assert "warning" in err
    assert "losses are not known" in out


def test_a_foreign_parquet_file(tmp_path: Path, run: Command) -> None:
    path = parquet(tmp_path / "x" / "a.parquet", "SELECT 1 AS apples")
    assert "no column start_ns, span, wall_ns, weight" in sentence(run(path))
    wrong = "SELECT 1 AS start_ns, 'a' AS span, 'long' AS wall_ns, 1.0::DOUBLE AS weight"
    path = parquet(tmp_path / "y" / "a.parquet", wrong)
    assert "its column wall_ns is VARCHAR and should be BIGINT" in sentence(run(path))


def test_a_ledger_of_a_newer_schema(make: Make, run: Command) -> None:
    assert "install a newer tailscope" in sentence(run(make(wall_ns=[1], about={"schema": 2})))


def test_one_span_only(make: Make, run: Command) -> None:
    code, out, _ = run(make(wall_ns=[5_000]))
    assert code == 0
    assert "has one span only, 5.00 µs: there is no tail to explain" in out


def test_all_latencies_equal(make: Make, run: Command) -> None:
    code, out, _ = run(make(wall_ns=[5_000] * 500, lock_ns=[1_000] * 500))
    assert code == 0
    assert "like its median: there is no tail to explain" in " ".join(out.split())


def test_no_span_above_the_target(make: Make, run: Command) -> None:
    wall = np.concatenate([np.full(90, 5_000), np.full(10, 9_000)])
    code, out, _ = run(make(wall_ns=wall), "-p", "p99.9")
    assert code == 0
    assert "too few for p99.9" in " ".join(out.split())


def test_rows_that_make_no_sense_are_counted_and_left_out(make: Make, run: Command) -> None:
    wall = np.array([100] * 90 + [900] * 10)
    wall[0] = -5
    weight = np.ones(100)
    weight[1:4] = [np.nan, np.inf, -1]
    lock = np.zeros(100, dtype=int)
    lock[4] = -3
    ledger = make(wall_ns=wall, weight=weight, lock_ns=lock)
    code, out, _ = run(ledger)
    assert code == 0
    assert "5 of 100 rows have impossible values" in " ".join(out.split())
    assert "95 spans" in out
    nothing = make("nothing", wall_ns=[-1, -2])
    assert "none of the ledger's 2 rows has valid values" in sentence(run(nothing))


def test_causes_that_exceed_their_span_leave_no_negative_running(make: Make, run: Command) -> None:
    ledger = make(wall_ns=[1_000] * 50 + [9_000] * 5, lock_ns=[2_000] * 50 + [8_000] * 5)
    code, out, _ = run(ledger, "--json")
    assert code == 0
    running = next(c for c in json.loads(out)["causes"] if c["name"] == "running")
    assert running["median_mean_ns"] == 0


def test_an_unknown_span_is_answered_with_those_there_are(make: Make, run: Command) -> None:
    world = World(5, seconds=1)
    make(wall_ns=[1] * 5, world=replace(world, span="get"))
    ledger = make(wall_ns=[1] * 5, number=1, world=replace(world, span="set"))
    said = sentence(run(ledger, "--span", "gte"))
    assert "no span is named 'gte'; the ledger has: get, set" in said


@pytest.mark.parametrize("target", ["p", "99%", "p0", "p100", "0.99", "p99.995", "nan", "-p99"])
def test_a_target_that_is_none(two_values: Path, run: Command, target: str) -> None:
    assert "percentile" in sentence(run(two_values, f"--target={target}")) or target in (
        "p0",
        "p100",
        "0.99",
        "p99.995",
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [("p999", "p99.9"), ("99.9", "p99.9"), ("P95", "p95"), ("p50", "p50"), ("2.5", "p2.5")],
)
def test_percentiles_as_people_write_them(
    two_values: Path, run: Command, text: str, name: str
) -> None:
    code, out, _ = run(two_values, "-p", text)
    assert code == 0
    assert out.startswith(f"{name} of ")


def test_a_report_that_cannot_be_written(two_values: Path, run: Command) -> None:
    code, _, err = run(two_values, "--html", two_values / "no" / "folder.html")
    assert code == 2
    assert "can't be written: No such file or directory" in err


def test_very_long_and_very_old_spans(make: Make, run: Command) -> None:
    day = 86_400 * 10**9
    ledger = make(wall_ns=[day] * 100 + [30 * day] * 3, start_ns=START_NS - np.arange(103) * day)
    code, out, _ = run(ledger)
    assert code == 0
    assert "2592000 s" in out or "2,592,000 s" in out


def test_a_prediction_without_chosen_causes_is_printed(beside: str, run: Command) -> None:
    code, out, _ = run(beside, "--without", "lock,steal")
    assert code == 0
    assert "without lock + steal: p99 " in " ".join(out.split())


def test_a_cause_that_is_none_is_refused_with_those_that_are(beside: str, run: Command) -> None:
    code, _, err = run(beside, "--without", "lock,dread")
    assert code == 2
    assert "'dread' is not a cause; the causes are runqueue, preempted" in err
