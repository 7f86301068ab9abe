"""`uncovered` of ledger.json: requests that are no rows, or whose rows say too little."""

from __future__ import annotations

from collections.abc import Mapping

#: Requests that are no rows, by their key in `uncovered`; the words finish "… of the requests are
#: not in this recording: …" for one reason, and stand after its share where there are several.
NO_ROW = {
    "pipelined": (
        "they were pipelined, and counted as one with another",
        "pipelined, and counted as one with another",
    ),
    "multiplexed": (
        "they came over HTTP/2 or QUIC, and could not be separated",
        "over HTTP/2 or QUIC, where they could not be separated",
    ),
    "unanswered": (
        "their client gave up, or their connection ended, before an answer",
        "without an answer before their client gave up or their connection ended",
    ),
}
#: Rows whose answer went on after a long pause: they are there, and end too early.
CONTINUED = "continued"
#: Rows of connections with TLS of which nothing more is known.
ENCRYPTED = "encrypted"
#: Messages of TLS that are no requests: known only where names were read inside of TLS.
HANDSHAKES = "handshakes"
#: Rows whose name is `(other)`, because too many names came.
UNNAMED = "unnamed"
#: Rows in which some time may be another request's.
AMBIGUOUS = "ambiguous"


def without_row(counts: Mapping[str, int]) -> str:
    """How many requests came and are no rows, and why; "" if none did."""
    found = {key: counts[key] for key in NO_ROW if counts.get(key, 0) > 0}
    if not found:
        return ""
    total = sum(found.values())
    first = f"{total:,} request{'s' if total > 1 else ''} came"
    if len(found) == 1:
        (key,) = found
        return f"{first}, and {NO_ROW[key][0]}" if total > 1 else f"{first}, {NO_ROW[key][1]}"
    return f"{first}: " + "; ".join(f"{count:,} {NO_ROW[key][1]}" for key, count in found.items())
