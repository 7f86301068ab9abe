"""Names of spans, threads and files come from those who were recorded, or who wrote the ledger.

They are spelled out here, so that none of them commands the terminal on which it is shown.
"""

from __future__ import annotations

import re

#: What a terminal obeys, or what makes it show other letters in another order: the control
#: characters of ASCII and of Latin 1, Unicode's line ends and its marks of direction.
OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
#: How the usual ones are spelled.
SPELLED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escaped(text: str, but: str = "") -> str:
    """The text with what a terminal obeys spelled out, `\\x1b`, `\\u202e`; `but` stays."""

    def spelled(found: re.Match[str]) -> str:
        letter = found[0]
        if letter in but:
            return letter
        code = ord(letter)
        return SPELLED.get(letter, f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")

    return OBEYED.sub(spelled, text)


def escaped_in_json(text: str) -> str:
    """The same in JSON, which means the same: its strings have these as `\\u009b`."""
    return OBEYED.sub(
        lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text
    )
