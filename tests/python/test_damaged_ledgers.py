"""Damage is announced in the first line, whichever bytes it hit; what is intact is not accused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import damaged_ledgers
import numpy as np
import pytest
import tailscope
from command import Command, flat, runner, sentence
from conftest import Make, copied, edit
from explain_synthetic import START_NS, World
from tailscope import diff_cli
from tailscope.cli import main
from tailscope.ledger import checksum
from tailscope.ledger.checksum import State

FILES, ROWS = 4, 500


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(main, capsys)


@pytest.fixture
def run_diff(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(diff_cli.main, capsys)


@pytest.fixture
def ledger(make: Make) -> Path:
    """Four files of 500 rows; each of them has a tail of its own."""
    for number in range(FILES):
        slow = np.arange(ROWS) % 25 == 7
        made = make(
            number=number,
            world=World(ROWS, seconds=2.0),
            start_ns=START_NS + (np.arange(ROWS) + ROWS * number) * 1_000_000,
            wall_ns=np.where(slow, 900_000 + 100_000 * number, 100_000) + np.arange(ROWS),
            lock_ns=np.where(slow, 700_000 + 100_000 * number, 0),
        )
    return edit(made, files=FILES, rows=FILES * ROWS, seen=FILES * ROWS)


def flip(file: Path, place: int) -> None:
    """Change one bit of one byte."""
    held = bytearray(file.read_bytes())
    held[place] ^= 1
    file.write_bytes(held)


def seeds_are_announced(ledger: Path, tmp_path: Path, seeds: range) -> None:
    whole = tailscope.open(ledger)
    assert not whole.notices
    expected = damaged_ledgers.answer(whole)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    outcomes = {seed: damaged_ledgers.trial(ledger, expected, seed, scratch)[0] for seed in seeds}
    assert [seed for seed, outcome in outcomes.items() if outcome == "WRONG"] == []
    assert "announced" in outcomes.values()


def test_no_damage_gives_a_wrong_answer_without_a_notice(ledger: Path, tmp_path: Path) -> None:
    seeds_are_announced(ledger, tmp_path, range(60))


@pytest.mark.more
def test_no_damage_of_a_thousand_gives_a_wrong_answer(ledger: Path, tmp_path: Path) -> None:
    seeds_are_announced(ledger, tmp_path, range(1_000))


def test_a_changed_byte_is_found_wherever_it_is(ledger: Path) -> None:
    file = sorted(ledger.rglob("*.parquet"))[0]
    size = file.stat().st_size
    for place in (0, 3, 4, size // 2, *range(size - 700, size, 13), size - 8, size - 1):
        flip(file, place)
        assert checksum.check(str(file)).state in (State.DAMAGED, State.TRUNCATED), place
        flip(file, place)
    assert checksum.check(str(file)).state is State.WHOLE
    text = (ledger / "ledger.json").read_bytes()
    assert checksum.check_json(text) is State.WHOLE
    digit = text.index(b'"seen": ') + 8
    assert checksum.check_json(text[:digit] + b"9" + text[digit + 1 :]) is State.DAMAGED


def test_a_damaged_file_is_named_in_the_first_line_of_everything(
    ledger: Path, tmp_path: Path, run: Command, run_diff: Command
) -> None:
    intact = copied(ledger, tmp_path / "intact")
    file = sorted(ledger.rglob("*.parquet"))[2]
    flip(file, file.stat().st_size // 2)
    said = f"INCOMPLETE: 1 of 4 files (25 %, with 25 % of the rows) is left out; damaged: {file}"
    page = tmp_path / "page.html"
    code, out, err = run(ledger, "--html", page)
    assert code == 0
    assert out.startswith("INCOMPLETE: 1 of 4 files (25 %, with 25 % of the rows) is left out")
    assert flat(out).startswith(said)
    assert f"warning: {file} is damaged: it is left out" in err
    assert "1,500 spans" in out
    body = page.read_text().partition("<main>")[2].strip()
    assert body.startswith('<div class="careful notices" role="alert"><p>INCOMPLETE: 1 of 4 files')
    first = run(ledger, "--json")[1].splitlines()[0]
    assert first.startswith('{"notices": ["INCOMPLETE: 1 of 4 files (25 %')
    assert json.loads(run(ledger, "--json")[1])["notices"] == [said]
    assert run(intact, "--json")[1].startswith('{"notices": [],\n')

    code, out, _ = run_diff(intact, ledger)
    assert code == 0
    assert flat(out).startswith(f"NEW: {said}")
    assert json.loads(run_diff(ledger, intact, "--json")[1])["notices"] == [f"BASE: {said}"]
    with pytest.warns(UserWarning, match="INCOMPLETE: 1 of 4 files"):
        tailscope.open(ledger)


def test_a_flipped_digit_of_ledger_json_is_announced(ledger: Path, run: Command) -> None:
    place = ledger / "ledger.json"
    text = place.read_text()
    place.write_text(text.replace('"seen": 2000', '"seen": 3000'))
    code, out, _ = run(ledger)
    assert code == 0
    assert out.startswith("DAMAGED: ")
    assert f"DAMAGED: the ledger.json of {ledger} can't be used" in flat(out)
    assert "losses are not known" in out
    # Without its checksum it is not taken for an older one: the files have theirs.
    place.write_text(text.replace("crc32", "crc23"))
    assert run(ledger)[1].startswith("DAMAGED: ")


def test_a_file_that_lost_its_checksum_is_damaged(ledger: Path, run: Command) -> None:
    file = sorted(ledger.rglob("*.parquet"))[0]
    file.write_bytes(file.read_bytes().replace(b"tailscope.crc32", b"tailscope.crc23"))
    assert "1 of 4 files" in run(ledger)[1].splitlines()[0]


def test_a_ledger_without_checksums_is_read_and_said_not_to_be_checked(
    ledger: Path, run: Command
) -> None:
    for file in ledger.rglob("*.parquet"):
        held = file.read_bytes().replace(b"tailscope.crc32", b"something.else_")
        file.write_bytes(held.replace(b"with checksum", b"without check"))
    about = json.loads((ledger / "ledger.json").read_text())
    del about["crc32"]
    (ledger / "ledger.json").write_text(json.dumps(about))
    code, out, _ = run(ledger)
    assert code == 0
    assert flat(out).startswith(f"not checked for damage: {ledger} (no checksums: an older")
    assert "2,000 spans" in out


def test_all_files_damaged_is_refused(ledger: Path, run: Command) -> None:
    for file in ledger.rglob("*.parquet"):
        flip(file, 100)
    said = sentence(run(ledger), "tailscope explain")
    assert "INCOMPLETE: 4 of 4 files (100 %, with 100 % of the rows) are left out" in said


def test_a_copied_file_does_not_count_twice(ledger: Path, run: Command) -> None:
    file = sorted(ledger.rglob("*.parquet"))[0]
    shutil.copy(file, file.with_name("000000 (copy).parquet"))
    code, out, _ = run(ledger)
    assert code == 0
    assert "copied:" in flat(out).partition("p99 of")[0]
    assert "2,000 spans" in out


def test_a_ledger_named_twice_is_refused(
    ledger: Path, tmp_path: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link"
    link.symlink_to(ledger)
    monkeypatch.chdir(ledger)
    file = next(ledger.rglob("*.parquet"))
    copy = copied(ledger, tmp_path / "copy")
    for other in (ledger, f"{ledger}/.", ".", link, ledger / "ledger.json", file, copy):
        said = sentence(run(ledger, other), "tailscope explain")
        assert "hold the same spans, which would count twice; name the ledger once" in said


def test_a_folder_of_ledgers_is_listed_and_refused(
    ledger: Path, tmp_path: Path, make: Make, run: Command, run_diff: Command
) -> None:
    archive = tmp_path / "archive"
    copied(ledger, archive / "first")
    later = make("later", wall_ns=[5] * 7)
    edit(later, started_ns=START_NS + 3_600 * 10**9, ended_ns=START_NS + 7_505 * 10**9, seen=7)
    shutil.move(later, archive / "later")
    (archive / "cut off").mkdir()
    (archive / "cut off" / "ledger.json").write_text('{"schema": 1, "state": "recording"}')
    for found in (run(archive), run_diff(archive, ledger), run(archive, "--json")):
        code, out, err = found
        assert (code, out) == (2, "")
        assert f"{archive} is a folder of 3 ledgers." in err
        lines = [line.split() for line in err.splitlines()[1:]]
        assert lines == [
            ["ledger", "start", "(UTC)", "length", "spans"],
            ["cut", "off", "?", "not", "ended", "?"],
            ["first", "2026-11-18", "11:06:40", "2", "s", "2,000"],
            ["later", "2026-11-18", "12:06:40", "1:05:05", "h", "7"],
        ]
    # Those that are named are one table.
    code, out, _ = run(archive / "first", archive / "later")
    assert code == 0
    assert "2,007 spans" in out


def test_ledgers_below_a_ledger_are_not_part_of_it(ledger: Path, make: Make, run: Command) -> None:
    inner = make("inner", wall_ns=[5] * 7)
    shutil.move(inner, ledger / "older")
    code, out, err = run(ledger)
    assert code == 0
    assert "2,000 spans" in out
    assert "has other ledgers in it, which are not part of it: older" in err
    # A part of a ledger can still be named.
    code, out, _ = run(next(ledger.glob("host=*")))
    assert code == 0
    assert "2,000 spans" in out
