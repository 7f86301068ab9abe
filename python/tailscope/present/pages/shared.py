"""What the pages share with `explain`'s report. Other modules of `pages` import it from here."""

from __future__ import annotations

from importlib.resources import files

from tailscope import __version__
from tailscope.present import svg
from tailscope.cli import Parser, complain, guarded
from tailscope.errors import MachineError, TailscopeError
from tailscope.quantity import duration
from tailscope.escaping import escaped
from tailscope.present.terminal import Terminal

__all__ = [
    "MachineError",
    "Parser",
    "TailscopeError",
    "Terminal",
    "__version__",
    "complain",
    "duration",
    "escaped",
    "guarded",
    "style",
    "svg",
]


def style() -> str:
    """The style sheet of all pages."""
    return files("tailscope.present").joinpath("page.css").read_text(encoding="utf-8")
