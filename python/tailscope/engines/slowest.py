"""The slowest spans of one name, with their causes, by the recording that they are in."""

from __future__ import annotations

from dataclasses import replace

from tailscope.engines import measure
from tailscope.engines.connect import connect
from tailscope.engines.measure import Worst
from tailscope.engines.overview import look_over
from tailscope.engines.spans import spans_named
from tailscope.ledger.ledger import Ledger


def slowest(ledger: Ledger, span: str, floor_ns: int, most: int) -> list[tuple[int, Worst]]:
    """Spans of a name that took `floor_ns` or longer, the slowest first, each after the number of
    its recording."""
    found: list[tuple[int, Worst]] = []
    with connect(ledger) as engine:
        overview, table = look_over(engine, ledger)
        spans = spans_named(engine, table, overview, ledger, span)
        for number in range(len(ledger.recordings)):
            its = replace(spans, table=spans.table.filter(spans.table.ledger == number))
            found += [(number, one) for one in measure.worst(its, floor_ns, most)]
    found.sort(key=lambda one: -one[1].wall_ns)
    return found[:most]
