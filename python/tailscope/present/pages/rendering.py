"""From what a page says to the page: its template, and the style sheet of all pages."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from tailscope import __version__


def style() -> str:
    """The style sheet of all pages."""
    return files("tailscope.present").joinpath("page.css").read_text(encoding="utf-8")


def rendered(kind: str, context: Mapping[str, Any], more_style: str = "") -> str:
    """The page of a kind. `more_style` is for the end of the style sheet; it is not escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    templates = Environment(
        loader=PackageLoader("tailscope.present.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    frame = {"kind": kind, "style": Markup(style() + more_style), "version": __version__}
    return templates.get_template(f"{kind}.html.j2").render(**frame, **context) + "\n"
