"""What spans' time is made of: by how slow they are, and over the recording.

Spans are cut into latency classes at a few percentiles, around the median band, and at the target
(around one at or below the median); over each class and time block the causes' times are summed.
`running` is what the sums leave of the wall time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailscope.engines import measure
from tailscope.engines.grid import Distribution, lower_edge
from tailscope.engines.spans import Spans
from tailscope.ledger.causes import RUNNING
from tailscope.statistics.contribution import half_width
from tailscope.statistics.target import Target

#: The spans that stand for the median: from p45 to p55.
MEDIAN_BAND = (0.45, 0.55)
#: The latency classes of the report; the median band and the target are added.
CLASS_EDGES = (0.1, 0.25, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999)

Sums = NDArray[np.float64]


@dataclass(frozen=True)
class LatencyClass:
    """The spans between two percentiles: their mean wall time and what it is made of."""

    from_percentile: float
    to_percentile: float
    spans: float
    mean_ns: float
    causes_ns: dict[str, float]


@dataclass(frozen=True)
class TailBlock:
    """What the target's spans lost to each cause in one piece of the recording."""

    block: int
    spans: float
    causes_ns: dict[str, float]


@dataclass(frozen=True)
class Composition:
    """Sums by time block (row) and latency class (column): spans, wall time, causes (ns)."""

    edges: tuple[int, ...]
    band: tuple[int, int]
    #: The bins of the spans that are explained: from the target up, or around one without a tail.
    explained: tuple[int, int]
    whole: Distribution
    spans: Sums
    wall: Sums
    causes: dict[str, Sums]

    @classmethod
    def of(
        cls, spans: Spans, whole: Distribution, target: Target, causes: Sequence[str]
    ) -> Composition:
        """Cut the classes, and sum some causes over them."""
        band = (whole.bin_at(MEDIAN_BAND[0]), whole.bin_at(MEDIAN_BAND[1]) + 1)
        half = half_width(target.quantile)
        explained = (
            (whole.bin_at(target.quantile), int(whole.bins[-1]) + 1)
            if target.has_tail
            else (
                whole.bin_at(target.quantile - half),
                whole.bin_at(target.quantile + half) + 1,
            )
        )
        edges = {whole.bin_at(edge) for edge in CLASS_EDGES} | {*band, *explained}
        edges = tuple(sorted(edge for edge in edges if edge <= whole.bins[-1]))
        sums = measure.class_sums(spans, lower_edge(np.array(edges)).tolist(), causes)
        return cls(edges, band, explained, whole, sums.pop("weight"), sums.pop("wall"), sums)

    def scaled_up(self, cause: str, known: Distribution) -> Composition:
        """With a cause's sums, which are over the spans in which it was measured, for all spans.

        `known` has those spans' wall times. Each class's mean is theirs.
        """
        number = np.searchsorted(self.edges, known.bins, side="right")
        measured = np.bincount(number, known.weights, self.spans.shape[1])
        everyone = self.spans.sum(axis=0)
        factor = np.divide(everyone, measured, out=np.zeros_like(everyone), where=measured > 0)
        return self.with_sums(cause, self.causes[cause] * factor)

    def with_sums(self, cause: str, sums: Sums) -> Composition:
        """With a cause's sums added."""
        return Composition(
            self.edges,
            self.band,
            self.explained,
            self.whole,
            self.spans,
            self.wall,
            {**self.causes, cause: sums},
        )

    def with_rest(self) -> Composition:
        """With `running`: what the causes leave of the wall time."""
        return self.with_sums(RUNNING, np.maximum(self.wall - sum(self.causes.values()), 0.0))

    def starts(self) -> NDArray[np.int64]:
        """Each class' lowest bin; the lowest class begins at 0."""
        return np.array([0, *self.edges])

    def mean(self, sums: Sums, classes: NDArray[np.bool_]) -> float:
        """The mean over the spans of some classes."""
        spans = self.spans[:, classes].sum()
        return float(sums[:, classes].sum() / spans) if spans else 0.0

    def means(self, sums: Sums) -> tuple[float, float]:
        """The mean in the spans that are explained and in the median band."""
        start = self.starts()
        inside = (start >= self.band[0]) & (start < self.band[1])
        return self.mean(sums, self.is_explained()), self.mean(sums, inside)

    def is_explained(self) -> NDArray[np.bool_]:
        """Which classes are those of the target."""
        start = self.starts()
        return (start >= self.explained[0]) & (start < self.explained[1])

    def classes(self) -> tuple[LatencyClass, ...]:
        """The classes from fast to slow; empty ones are left out."""
        cumulated = np.concatenate([[0.0], np.cumsum(self.whole.weights) / self.whole.total])
        below = cumulated[np.searchsorted(self.whole.bins, self.starts())]
        upto = np.append(below[1:], 1.0)
        lines = []
        for number in range(len(below)):
            chosen = np.arange(len(below)) == number
            if self.spans[:, chosen].any():
                lines.append(
                    LatencyClass(
                        from_percentile=100 * float(below[number]),
                        to_percentile=100 * float(upto[number]),
                        spans=float(self.spans[:, chosen].sum()),
                        mean_ns=self.mean(self.wall, chosen),
                        causes_ns={n: self.mean(sums, chosen) for n, sums in self.causes.items()},
                    )
                )
        return tuple(lines)

    def timeline(self) -> tuple[TailBlock, ...]:
        """What the spans that are explained lost in each block of time."""
        tail = self.is_explained()
        spans = self.spans[:, tail].sum(axis=1)
        causes = {name: sums[:, tail].sum(axis=1) for name, sums in self.causes.items()}
        return tuple(
            TailBlock(i, float(spans[i]), {name: float(ns[i]) for name, ns in causes.items()})
            for i in range(len(spans))
        )
