"""What a cause costs a span beyond the cause's own time: it makes the span run longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from ibis.expr.types import IntegerValue
    from numpy.typing import NDArray

    from tailscope.engines.sample import Sample
    from tailscope.engines.spans import Spans


class Penalty(Protocol):
    """What one cause adds to the running of spans; the statistics estimate it."""

    @property
    def cause(self) -> str:
        """The cause."""

    @property
    def error(self) -> float:
        """The standard error of the running without the penalty, as a share of it."""

    def gain(self, spans: Spans) -> IntegerValue:
        """By how much (ns) a span would run shorter, as an expression; 0 without the cause."""

    def gain_in(self, rows: Sample) -> NDArray[np.int64]:
        """The same for rows in memory."""
