"""Running a command in this process, as a user would see it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Run = tuple[int, str, str]
Command = Callable[..., Run]


def runner(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> Command:
    """A function that runs `main` and returns exit code, stdout and stderr."""

    def command(*arguments: str | Path) -> Run:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as left:
            code = int(left.code or 0)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    return command


def sentence(found: Run, name: str, code: int = 2) -> str:
    """The one line of an error."""
    assert (found[0], found[1]) == (code, "")
    lines = found[2].strip().splitlines()
    assert lines[-1].startswith(f"{name}: ")
    return lines[-1]


def flat(text: str) -> str:
    """Text with its line breaks gone."""
    return " ".join(text.split())
