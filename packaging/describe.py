"""Describes the commands that are in Python, as JSON, for `tailscope generate`.

usage: .venv/bin/python packaging/describe.py | tailscope generate FOLDER

Each script in python/data/scripts names the module of its command. That module has the command's
`parser()`. argparse has no public way to list a parser's arguments, so this reads its own lists.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[1] / "python" / "data" / "scripts"
PREFIX = "tailscope-"


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parsers of all commands in Python, by the commands' names."""
    found = {}
    for script in sorted(SCRIPTS.glob(f"{PREFIX}*")):
        module = re.search(r"^from (\S+) import main$", script.read_text(), re.MULTILINE)
        if not module:
            raise SystemExit(f"{script} does not import main from the command's module")
        found[script.name.removeprefix(PREFIX)] = importlib.import_module(module[1]).parser()
    return found


def described(name: str, parser: argparse.ArgumentParser) -> dict[str, Any]:
    """A command, as `tailscope generate` reads it."""
    usual = {"positional arguments", "options"}
    headings = {
        id(action): group.title
        for group in parser._action_groups
        if group.title not in usual
        for action in group._group_actions
    }
    return {
        "name": name,
        "about": (parser.description or "").rstrip("."),
        "after": parser.epilog or "",
        "arguments": [
            argument(action, parser.prog) | {"heading": headings.get(id(action))}
            for action in parser._actions
            # The generator adds --help by itself.
            if action.dest != "help" and action.help != argparse.SUPPRESS
        ],
    }


def argument(action: argparse.Action, prog: str) -> dict[str, Any]:
    """An option or a positional argument."""
    name = action.metavar or action.dest.upper()
    return {
        "id": action.dest,
        "flags": list(action.option_strings),
        "value": None if action.nargs == 0 else str(name),
        "choices": [str(choice) for choice in action.choices or ()],
        "help": (action.help or "") % (vars(action) | {"prog": prog}),
        "required": action.required,
        "many": action.nargs in ("*", "+"),
    }


if __name__ == "__main__":
    print(json.dumps([described(*command) for command in parsers().items()], indent=1))
