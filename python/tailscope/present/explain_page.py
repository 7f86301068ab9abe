"""`explain --html`: one self-contained page with the answer, the table of causes, four pictures and
the account. `present/pages/explain.py` says what is on it, and the template there how.
"""

from __future__ import annotations

from tailscope.present.output import write
from tailscope.present.pages import rendered
from tailscope.present.pages.explain import colours, context
from tailscope.statistics.explanation import Explanation


def save(explanation: Explanation, file: str) -> None:
    """Write the page; a page that is not complete never replaces one that is."""
    write(file, page(explanation))


def page(explanation: Explanation) -> str:
    """The whole document."""
    return rendered("explain", context(explanation), colours())
