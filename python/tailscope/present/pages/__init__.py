"""Pages: a report's JSON in, one self-contained file of HTML out.

    units, parts      figures in words, and what cards are made of
    charts            the pictures, as SVG
    observe…, joint   what the page of an observation says
    timeline          what the page of a slow request says
    templates         how they say it, in HTML (Jinja2)
    shared            what they share with `explain`'s report

A page has no script, font or picture from elsewhere. It can be mailed, archived and read offline.
It follows the reader's light or dark mode. Names come from measured processes, so the templates
escape every text (autoescape), and `svg` does so in pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tailscope.present.pages.shared import TailscopeError, __version__, escaped, style

#: Longer texts are cut in the middle; the report as text, at its end. No real name is that long.
LONGEST, LONGEST_TEXT = 500, 200_000

#: What a JSON object of an unexpected form leads to.
MALFORMED = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


def draw(told: object, number: int = 1) -> str:
    """The page of a report. `number` selects one of a timeline's stories."""
    if not isinstance(told, dict):
        raise TailscopeError("this is not a report: it is not a JSON object")
    kind = told.get("kind")
    context = CONTEXTS.get(kind) if isinstance(kind, str) else None
    if context is None:
        raise TailscopeError(unknown(told))
    try:
        return rendered(kind, context(harmless(told), number))
    except MALFORMED as error:
        # What a bug in here looks like, too: the text of the error is for whoever reports it.
        raise TailscopeError(
            f"this is not a complete {kind} report ({type(error).__name__}: {error}); another "
            f"version of tailscope may have written it: write it again with {__version__}"
        ) from error


def harmless(told: Any, key: str = "") -> Any:  # noqa: ANN401 (any JSON)
    """The same with texts of bounded length, and without letters that hide or reorder others."""
    if isinstance(told, dict):
        return {name: harmless(one, name) for name, one in told.items()}
    if isinstance(told, list):
        return [harmless(one) for one in told]
    if not isinstance(told, str):
        return told
    if key == "text":
        return escaped(told, but="\n")[:LONGEST_TEXT]
    text, half = escaped(told), LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:half]}…{text[-half:]}"


def unknown(told: Mapping[str, Any]) -> str:
    """Why there is no page for some JSON."""
    if {"target", "causes", "span"} <= told.keys():
        return (
            "this is the JSON of tailscope explain, which does not hold the pictures' data; "
            "tailscope explain LEDGER --html FILE draws the page"
        )
    if "rates" in told or "stories" in told:
        return "an older tailscope wrote this JSON: write it again with this version"
    return (
        "this JSON has no page: write it with tailscope observe --json or tailscope timeline "
        "story --json"
    )


def observe(told: Mapping[str, Any], _number: int) -> dict[str, Any]:
    from tailscope.present.pages.observe import context

    return context(told)


def timeline(told: Mapping[str, Any], number: int) -> dict[str, Any]:
    from tailscope.present.pages.timeline import context

    return context(told, number)


#: The kinds of reports: what each one's template needs.
CONTEXTS: dict[str, Callable[[Mapping[str, Any], int], dict[str, Any]]] = {
    "observe": observe,
    "timeline": timeline,
}


def rendered(kind: str, context: Mapping[str, Any]) -> str:
    """The page of a kind."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    templates = Environment(
        loader=PackageLoader("tailscope.present.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    frame = {"kind": kind, "style": Markup(style()), "version": __version__}
    return templates.get_template(f"{kind}.html.j2").render(**frame, **context) + "\n"
