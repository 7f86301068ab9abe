"""`tailscope report`: files in, pages out, and one sentence for what can't be."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from command import Command, flat, runner, sentence
from made_reports import EVIL, observation, stories
from tailscope.present.output import write
from tailscope.report_cli import main


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(main, capsys)


def saved(folder: Path, told: object, name: str = "seen.json") -> Path:
    file = folder / name
    file.write_text(json.dumps(told))
    return file


def test_the_page_goes_beside_the_json_or_where_it_is_asked_for(
    tmp_path: Path, run: Command
) -> None:
    file = saved(tmp_path, observation())
    code, out, err = run(file)
    assert (code, out) == (0, "") and flat(err) == f"tailscope report: wrote {tmp_path}/seen.html"
    first = (tmp_path / "seen.html").read_text()
    assert first.startswith("<!doctype html>")
    assert run(file, "-o", tmp_path / "other.html", "-q") == (0, "", "")
    assert (tmp_path / "other.html").read_text() == first
    run(saved(tmp_path, stories(), "slow"))
    assert "waiting for CPU 1" in (tmp_path / "slow.html").read_text()


def test_stdin_and_stdout_are_dashes() -> None:
    command = [sys.executable, "-m", "tailscope.report_cli", "-"]
    done = subprocess.run(command, input=json.dumps(stories(EVIL)).encode(), capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"<!doctype html>") and b"<script" not in done.stdout


def test_another_story_is_chosen_by_its_number(tmp_path: Path, run: Command) -> None:
    told = stories()
    told["stories"].append(told["stories"][0] | {"sentence": "the second"})
    file = saved(tmp_path, told)
    assert run(file, "-n", "2", "-q")[0] == 0
    assert "<h1>the second</h1>" in (tmp_path / "seen.html").read_text()
    assert "there is no story 3: this file has 2" in sentence(
        run(file, "-n", "3"), "tailscope report"
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not JSON"),
        (b"PAR1", "is not JSON"),
        (b'{"kind": NaN}', "NaN is no number"),
        (b"[" * 100_000, "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"{}", "this JSON has no page"),
    ],
)
def test_what_is_no_report_is_named(
    tmp_path: Path, run: Command, content: bytes, words: str
) -> None:
    file = tmp_path / "seen.json"
    file.write_bytes(content)
    said = sentence(run(file), "tailscope report")
    assert words in said and str(file) in said
    assert list(tmp_path.iterdir()) == [file]


def test_files_that_are_not_there_or_can_not_be_written(tmp_path: Path, run: Command) -> None:
    assert "can't read" in sentence(run(tmp_path / "no.json"), "tailscope report")
    file = saved(tmp_path, observation())
    said = sentence(run(file, "-o", tmp_path / "no" / "page.html"), "tailscope report")
    assert "can't be written: No such file or directory" in said


def test_the_help_teaches_by_examples(run: Command) -> None:
    code, out, _ = run("--help")
    assert code == 0 and "tailscope observe --signal" in out and "tailscope report slow.json" in out


def test_a_page_replaces_a_link_and_never_follows_it(tmp_path: Path) -> None:
    victim, page = tmp_path / "victim", tmp_path / "page.html"
    victim.write_text("precious")
    page.symlink_to(victim)
    planted = tmp_path / f".page.html.{os.getpid()}.tmp"
    planted.symlink_to(victim)
    write(str(page), "<html>")
    assert victim.read_text() == "precious"
    assert page.read_text() == "<html>" and not page.is_symlink()
    assert sorted(tmp_path.iterdir()) == [page, victim]
    mode = stat.S_IMODE(page.stat().st_mode)
    assert mode == 0o600 if os.geteuid() == 0 else mode & 0o133 == 0


def test_a_pipe_by_its_name_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    write(str(pipe), "<html>")
    assert reader.communicate(timeout=60)[0] == b"<html>"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_terminal_obeys_nothing_in_a_page(
    tmp_path: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Shown(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    shown = Shown(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", shown)
    main([str(saved(tmp_path, stories("\x1b[2J"))), "-o", "-"])
    assert b"\x1b" not in shown.buffer.getvalue() and b"\\x1b[2J" in shown.buffer.getvalue()
