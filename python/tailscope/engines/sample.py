"""Some of the spans row by row, in memory: for what group-bys can't say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tailscope.ledger.causes import RUNNING
from tailscope.ledger.counters import is_counter


@dataclass(frozen=True)
class Sample:
    """Rows with their weights (spans that they stand for) and causes, in order of time.

    `known` says for each cause that was not measured in all rows in which it was; values are 0
    elsewhere.
    """

    wall: NDArray[np.int64]
    weight: NDArray[np.float64]
    values: dict[str, NDArray[np.int64]]
    known: dict[str, NDArray[np.bool_]]
    #: Rows of the ledger that these were drawn from.
    rows: int
    #: Each row's block of time; nothing where only values were asked for.
    block: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    #: How many events each cause had, where that is known.
    events: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    #: The rows that waited for an idle CPU to wake up, and for no other thread; nothing: none.
    woke_idle: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @property
    def is_all(self) -> bool:
        """Whether these are all rows."""
        return len(self.wall) == self.rows

    @property
    def causes(self) -> list[str]:
        """The causes in it, `running` and counters apart."""
        return [name for name in self.values if name != RUNNING and not is_counter(name)]

    def resting_on(self, rest_known: Sequence[str]) -> Sample:
        """With `running` known only where these causes are."""
        if not rest_known:
            return self
        rest = np.logical_and.reduce([self.known[name] for name in rest_known])
        return replace(self, known=self.known | {RUNNING: rest})

    def where(self, chosen: NDArray[np.bool_]) -> Sample:
        """Some of these rows."""
        return replace(
            self,
            wall=self.wall[chosen],
            weight=self.weight[chosen],
            values={name: values[chosen] for name, values in self.values.items()},
            known={name: known[chosen] for name, known in self.known.items()},
            block=self.block[chosen],
            events={name: events[chosen] for name, events in self.events.items()},
            woke_idle=self.woke_idle[chosen] if len(self.woke_idle) else self.woke_idle,
        )

    def where_known(self, causes: Sequence[str]) -> NDArray[np.bool_]:
        """The rows in which all of some causes were measured."""
        known = np.ones(len(self.wall), dtype=bool)
        for cause in causes:
            if cause in self.known:
                known &= self.known[cause]
        return known
