"""Pages: a report's JSON in, one self-contained file of HTML out.

    units, parts      figures in words, and what cards are made of
    charts            the pictures, as SVG
    observe…, joint   what the page of an observation says
    timeline          what the page of a slow request says
    borrow            what the page of lent idle time says
    chase, cost       what the pages of the two benchmarks say
    locality          what the page of shared lines of memory says
    explain…          what the page of an explanation says, and how its JSON is read
    rendering         from what they say to the page
    templates         how they say it, in HTML (Jinja2)

A page has no script, font or picture from elsewhere. It can be mailed, archived and read offline.
It follows the reader's light or dark mode. Names come from measured processes, so the templates
escape every text (autoescape), and `svg` does so in pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tailscope import __version__
from tailscope.errors import TailscopeError
from tailscope.escaping import escaped
from tailscope.present.pages.rendering import rendered

#: Longer texts are cut in the middle; the report as text, at its end. No real name is that long.
LONGEST, LONGEST_TEXT = 500, 200_000

#: The commands whose JSON has a page (`PAGES`), in words.
DRAWN = "explain, observe, timeline story, borrow, locality, chase or cost"

#: What a JSON object of an unexpected form leads to.
MALFORMED = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


def draw(report: object, number: int = 1) -> str:
    """The page of a report. `number` selects one of a timeline's stories."""
    if not isinstance(report, dict):
        raise TailscopeError("this is not a report: it is not a JSON object")
    kind = report.get("kind")
    page = PAGES.get(kind) if isinstance(kind, str) else None
    if page is None:
        raise TailscopeError(unknown(report))
    try:
        return page(harmless(report), number)
    except MALFORMED as error:
        # What a bug in here looks like, too: the text of the error is for whoever reports it.
        raise TailscopeError(
            f"this is not a complete {kind} report ({type(error).__name__}: {error}); another "
            f"version of tailscope may have written it: write it again with {__version__}"
        ) from error


def harmless(value: Any, key: str = "") -> Any:  # noqa: ANN401 (any JSON)
    """The same with texts of bounded length, and without letters that hide or reorder others."""
    if isinstance(value, dict):
        return {escaped(name): harmless(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [harmless(one) for one in value]
    if not isinstance(value, str):
        return value
    if key == "text":
        return escaped(value, but="\n")[:LONGEST_TEXT]
    text, half = escaped(value), LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:half]}…{text[-half:]}"


def unknown(report: Mapping[str, Any]) -> str:
    """Why there is no page for some JSON."""
    if report.keys() & {"rates", "stories", "causes"}:
        return "an older tailscope wrote this JSON: write it again with this version"
    return f"this JSON has no page: write it with the option --json of tailscope {DRAWN}"


def explain(report: Mapping[str, Any], _number: int) -> str:
    from tailscope.present.pages.explain import page
    from tailscope.present.pages.explain_json import explanation

    return page(explanation(report))


def observe(report: Mapping[str, Any], _number: int) -> str:
    from tailscope.present.pages.observe import context

    return rendered("observe", context(report))


def timeline(report: Mapping[str, Any], number: int) -> str:
    from tailscope.present.pages.timeline import context

    return rendered("timeline", context(report, number))


def borrow(report: Mapping[str, Any], _number: int) -> str:
    from tailscope.present.pages.borrow import context

    return rendered("borrow", context(report))


def chase(report: Mapping[str, Any], _number: int) -> str:
    from tailscope.present.pages.chase import context

    return rendered("chase", context(report))


def locality(report: Mapping[str, Any], _number: int) -> str:
    from tailscope.present.pages.locality import context

    return rendered("locality", context(report))


def calibration(report: Mapping[str, Any], _number: int) -> str:
    from tailscope.present.pages.cost import calibration as context

    return rendered("cost", context(report))


def cost(report: Mapping[str, Any], _number: int) -> str:
    from tailscope.present.pages.cost import prediction as context

    return rendered("cost", context(report))


#: The page of each kind of report. `kind` in the JSON is the key.
PAGES: dict[str, Callable[[Mapping[str, Any], int], str]] = {
    "explain": explain,
    "borrow": borrow,
    "chase": chase,
    "cost-calibration": calibration,
    "cost-predict": cost,
    "cost-verify": cost,
    "locality": locality,
    "observe": observe,
    "timeline": timeline,
}
