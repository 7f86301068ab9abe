"""Ledgers that somebody made to harm who explains them: names, pipes, depth, and equal rows."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest
import tailscope
from command import Command, flat, runner, sentence
from conftest import Make, edit
from explain_synthetic import START_NS, seal
from tailscope import diff_cli
from tailscope.cli import main
from tailscope.errors import LedgerError
from tailscope.escaping import OBEYED, escaped
from tailscope.ledger import storage
from tailscope.present.terminal import Terminal

#: A title, a cleared screen in both spellings, other directions, a line of its own.
EVIL = "get\x1b]0;owned\x07\x9b2J\x1b[2J\u202etxt\u2066\r\u2028\nwarning: all is well"
SHOWN = r"get\x1b]0;owned\x07\x9b2J\x1b[2J\u202etxt\u2066\r\u2028\nwarning: all is well"
#: Colours are the output's own.
OWN = re.compile(r"\x1b\[(?:0|1|2|33)m")
#: What a child may take in all; numpy, DuckDB and its threads reserve much more than they use.
MEMORY = 6 << 30


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(main, capsys)


@pytest.fixture
def run_diff(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(diff_cli.main, capsys)


def harmless(text: str) -> bool:
    return not OBEYED.search(text.replace("\n", ""))


@pytest.fixture
def evil(make: Make) -> Path:
    """1,000 spans of two evil names, a culprit with one, in a folder with one."""
    slow = np.arange(1000) % 50 == 49
    ledger = make(
        name="folder\x1b[2J\u202e",
        wall_ns=np.where(slow, 1_000_000, 100_000),
        lock_ns=np.where(slow, 900_000, 0),
        lock_n=np.where(slow, 2, 0),
    )
    name = "'" + EVIL.replace("'", "''") + "'"
    changed = f"SELECT * REPLACE (CASE WHEN row % 7 = 0 THEN {name} || 'b' ELSE {name} END AS span)"
    room = "KV_METADATA {'tailscope.crc32': '00000000'}"
    for file in sorted(ledger.rglob("*.parquet")):
        rows = f"(SELECT *, row_number() OVER () - 1 AS row FROM '{file}')"
        by = f"SELECT * EXCLUDE (row), {name} AS lock_by FROM ({changed} FROM {rows})"
        has = duckdb.execute(f"SELECT * FROM '{file}' LIMIT 0").description or []
        if any(column[0] == "lock_by" for column in has):
            by = by.replace("EXCLUDE (row)", "EXCLUDE (row, lock_by)")
        duckdb.execute(f"COPY ({by}) TO '{file}.new' (FORMAT parquet, {room})")
        seal(Path(f"{file}.new")).replace(file)
    return edit(ledger, machine={"host": EVIL, "kernel": EVIL})


def test_no_name_reaches_the_terminal_as_it_is(evil: Path, run: Command, run_diff: Command) -> None:
    found = [
        run(evil, "-v"),
        run(evil, "--impact", "--segment", "200ms"),
        run(evil, "--span", "no\x1b[2Jne"),
        run(evil, "--engine", "no\x1b[2Jne"),
        run_diff(evil, evil),
        run(evil.parent, "-v"),
    ]
    for _, out, err in found:
        assert harmless(out)
        assert harmless(err)
        assert "\nwarning: all is well" not in out + err
    assert flat(SHOWN) in flat(found[0][1])
    assert r"no\x1b[2Jne" in found[2][2]


def test_json_has_the_same_names_and_nothing_to_obey(evil: Path, run: Command) -> None:
    code, out, _ = run(evil, "--json")
    assert code == 0
    assert harmless(out)
    assert json.loads(out)["span"]["name"] == EVIL


def test_a_coloured_terminal_gets_colours_alone() -> None:
    terminal = Terminal(coloured=True)
    before, after = terminal.paint("\x1b[1m")
    for line in (*terminal.wrapped(EVIL, "\x1b[1m"), before + terminal.cut(EVIL, 40) + after):
        assert harmless(OWN.sub("", line))
    assert escaped(EVIL) == SHOWN
    assert escaped("größe 名 e\u0301") == "größe 名 e\u0301"


def in_a_child(ledger: Path, memory: int = MEMORY) -> subprocess.CompletedProcess[str]:
    """`explain` in a process of its own; a hang ends the test."""
    return subprocess.run(
        [sys.executable, "-m", "tailscope.cli", str(ledger)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)),
        check=False,
    )


def test_a_pipe_in_the_place_of_ledger_json_is_not_waited_for(two_values: Path) -> None:
    place = two_values / "ledger.json"
    place.unlink()
    os.mkfifo(place)
    found = in_a_child(two_values)
    assert found.returncode == 0
    assert "it is not a regular file" in found.stderr
    assert "Traceback" not in found.stderr
    with pytest.raises(OSError, match="not a regular file"):
        storage.read_bytes(str(place))
    for other in ("/dev/zero", "/proc/self"):
        with pytest.raises(OSError, match="not a regular file"):
            storage.read_bytes(other)


def test_pipes_among_the_files_are_not_waited_for(two_values: Path, tmp_path: Path) -> None:
    file = next(two_values.rglob("*.parquet"))
    os.mkfifo(file.with_name("pipe.parquet"))
    assert in_a_child(two_values).returncode == 0
    # One that was a file when the folder was listed.
    with pytest.raises(OSError, match="not a regular file"):
        storage.open_file(str(file.with_name("pipe.parquet")))
    archive = tmp_path / "archive"
    for name in ("a", "b"):
        (archive / name).mkdir(parents=True)
        os.mkfifo(archive / name / "ledger.json")
    found = in_a_child(archive)
    assert found.returncode == 2
    assert len(found.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1_000_000,
        '{"a":' * 1_000_000,
        '{"schema": 1, "rows": 1e999, "files": -Infinity, "seen": NaN}',
        '{"rows": ' + "9" * 5_000 + "}",
        "[" + "[]," * 10_000_000 + "[]]",
    ],
    ids=["deep lists", "deep objects", "endless numbers", "long number", "large"],
)
def test_a_ledger_json_of_any_shape_ends_in_words(two_values: Path, text: str) -> None:
    (two_values / "ledger.json").write_text(text)
    found = in_a_child(two_values)
    assert found.returncode == 0
    assert "Traceback" not in found.stderr
    assert "ledger.json" in found.stderr + found.stdout
    other = two_values.parent / "archive" / "one"
    other.mkdir(parents=True)
    (other / "ledger.json").write_text(text)
    listed = in_a_child(other.parent)
    assert (listed.returncode, "Traceback" in listed.stderr) == (2, False)


def equal_rows(folder: Path, rows: int, others: int = 0) -> Path:
    """A ledger of so many equal rows, and as many others, a second apart."""
    folder.mkdir()
    start = f"{START_NS} + CASE WHEN i < {rows} THEN 0 ELSE 1000000000 * (i - {rows} + 1) END"
    duckdb.execute("SET preserve_insertion_order = false")
    duckdb.execute(
        f"COPY (SELECT ({start})::BIGINT AS start_ns, 'get' AS span, 1000::BIGINT AS wall_ns, "
        "1.0::DOUBLE AS weight, 100::BIGINT AS lock_ns, 1::BIGINT AS lock_n "
        f"FROM range({rows + others}) AS of(i)) TO '{folder}/rows.parquet' "
        "(FORMAT parquet, ROW_GROUP_SIZE 1000000)"
    )
    return folder


@pytest.mark.parametrize("others", [0, 1], ids=["all", "all but one"])
def test_equal_rows_end_in_one_sentence(tmp_path: Path, run: Command, others: int) -> None:
    said = sentence(run(equal_rows(tmp_path / "ledger", 2_000_000, others)), "tailscope explain")
    assert "no recorder w" in said


@pytest.mark.more
@pytest.mark.parametrize("others", [0, 1], ids=["all", "all but one"])
def test_sixty_million_equal_rows_take_bounded_memory(tmp_path: Path, others: int) -> None:
    found = in_a_child(equal_rows(tmp_path / "ledger", 60_000_000, others))
    assert found.returncode == 2
    assert "no recorder w" in found.stderr.splitlines()[-1]
    assert "Traceback" not in found.stderr


def test_a_footer_that_claims_to_be_huge_is_not_read(two_values: Path) -> None:
    file = next(two_values.rglob("*.parquet"))
    with file.open("r+b") as opened:
        opened.truncate(8 << 30)
        opened.seek((8 << 30) - 8)
        opened.write((0xFFFFFFF0).to_bytes(4, "little") + b"PAR1")
    # As much as a footer of 4 GiB would have taken.
    found = in_a_child(two_values, memory=3 << 30)
    assert "Traceback" not in found.stderr
    assert "truncated or not a Parquet file" in found.stderr
    with pytest.raises(LedgerError):
        tailscope.open(two_values)
