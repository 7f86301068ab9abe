"""Man pages and completions: each command and each option is in all of them, and bash offers it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig.installed import ROOT, tailscope

SCRIPTS = ROOT / "python" / "data" / "scripts"
BASH = Path("bash-completion/completions/tailscope")
ZSH = Path("zsh/vendor-completions/_tailscope")
FISH = Path("fish/vendor_completions.d/tailscope.fish")

#: A command below `tailscope`: `()` itself, `("timeline", "story")`.
Words = tuple[str, ...]


def output(*command: str | Path, stdin: str | None = None) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    return done.stdout


def below(text: str) -> list[str]:
    """The commands that a help text lists."""
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.MULTILINE)
    names = re.findall(r"^  ([a-z]+)", listed[1], re.MULTILINE) if listed else []
    return [name for name in names if name != "help"]


def helps(path: Words = ()) -> Iterator[tuple[Words, str]]:
    """Each command with its help, as its own program prints it."""
    text = output(tailscope(), *path, "--help")
    yield path, text
    for name in below(text):
        yield from helps((*path, name))
    if not path:
        for script in sorted(SCRIPTS.glob("tailscope-*")):
            name = script.name.removeprefix("tailscope-")
            yield (name,), output(sys.executable, script, "--help")


def options(text: str) -> set[str]:
    """The long options that a help text lists: lines of descriptions are indented further."""
    return set(re.findall(r"^ {2,8}(?:-\w(?: [^ ,]+)?, )?(--[a-z][a-z-]*)", text, re.MULTILINE))


@pytest.fixture(scope="module")
def commands() -> dict[Words, set[str]]:
    """All commands and their options."""
    found = {path: options(text) for path, text in helps()}
    assert {("record",), ("timeline", "story"), ("explain",), ("diff",)} <= found.keys()
    assert all("--help" in listed for listed in found.values())
    assert {"--target", "--segment", "--proportional"} <= found[("explain",)]
    return found


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated files."""
    folder = tmp_path_factory.mktemp("share")
    described = output(sys.executable, ROOT / "packaging" / "describe.py")
    assert output(tailscope(), "generate", folder, stdin=described) == ""
    return folder


def test_each_command_has_a_page_that_names_its_options(
    commands: dict[Words, set[str]], share: Path
) -> None:
    pages = {path.name: path.read_text() for path in (share / "man" / "man1").iterdir()}
    names = {path: "-".join(("tailscope", *path)) for path in commands}
    assert pages.keys() == {f"{name}.1" for name in names.values()}
    for path, name in names.items():
        text = pages[f"{name}.1"].replace("\\-", "-")
        missing = [option for option in commands[path] if f"\\fB{option}\\fR" not in text]
        assert missing == [], name
        for other in commands:
            if other[:-1] == path and other:
                assert f"{name}-{other[-1]}(1)" in text


def test_bash_offers_each_command_and_each_option(
    commands: dict[Words, set[str]], share: Path
) -> None:
    for path, listed in commands.items():
        assert listed <= offered(share, *path, "-")
        children = {other[-1] for other in commands if other and other[:-1] == path}
        assert children <= offered(share, *path, "")


def offered(share: Path, *words: str) -> set[str]:
    """What bash would offer for the last word."""
    script = """source "$1"; shift
COMP_WORDS=(tailscope "$@") COMP_CWORD=$#
_tailscope tailscope "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
    return set(output("bash", "-c", script, "bash", share / BASH, *words).split())


def test_zsh_and_fish_know_each_command_and_each_option(
    commands: dict[Words, set[str]], share: Path
) -> None:
    zsh, fish = (share / ZSH).read_text(), (share / FISH).read_text()
    assert zsh.startswith("#compdef tailscope\n")
    for path, listed in commands.items():
        for name in path[-1:]:
            assert f"'{name}:" in zsh
            assert f'-a "{name}"' in fish
        for option in listed:
            assert re.search(rf"{option}[=\[]", zsh), option
            seen = " ".join(path[:1])
            assert re.search(rf'"[^"]*{seen}[^"]*".* -l {option[2:]}\b', fish), (path, option)


def test_no_page_has_a_mistake_that_man_reports(share: Path) -> None:
    if not shutil.which("man"):
        pytest.skip("man is missing: apt-get install man-db")
    environment = os.environ | {"MANWIDTH": "100", "LC_ALL": "C.UTF-8", "MANROFFOPT": ""}
    for page in sorted((share / "man" / "man1").iterdir()):
        done = subprocess.run(
            ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page],
            capture_output=True,
            text=True,
            env=environment,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, ""), page.name


def test_a_page_keeps_the_lines_of_examples(share: Path) -> None:
    if not shutil.which("man"):
        pytest.skip("man is missing: apt-get install man-db")
    page = share / "man" / "man1" / "tailscope-explain.1"
    environment = os.environ | {"MANWIDTH": "80", "LC_ALL": "C.UTF-8", "MANPAGER": "cat"}
    done = subprocess.run(
        ["man", "-l", page], capture_output=True, text=True, env=environment, timeout=60
    )
    lines = [re.sub(r".\x08|\x1b\[[0-9;]*m", "", line).strip() for line in done.stdout.splitlines()]
    assert "EXAMPLES" in lines
    assert "tailscope explain LEDGER -p p99.9     the same for p99.9" in lines


def test_generate_says_what_it_needs() -> None:
    for words, stdin, said in (
        (["generate"], "[]", "generate takes one folder"),
        (["generate", "/nowhere"], "{}", "stdin does not describe commands"),
    ):
        done = subprocess.run(
            [tailscope(), *words], input=stdin, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
