"""Ledgers and explanations in a notebook: what `tailscope.open` returns.

Each class adds tables, data frames and charts to what `tailscope.statistics` found.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from tailscope.ledger import ledger as ledgers
from tailscope.present import frames
from tailscope.present.answer import answer
from tailscope.statistics import explanation, segments
from tailscope.statistics.ranking import Cause
from tailscope.statistics.target import parse

if TYPE_CHECKING:
    import altair
    import pandas


class Causes(tuple[Cause, ...]):
    """The causes of one percentile, the most valuable first."""

    __slots__ = ()

    def __repr__(self) -> str:
        return frames.plain(self)

    def _repr_html_(self) -> str:
        return frames.html(self)

    def to_pandas(self) -> pandas.DataFrame:
        """As a data frame, a cause a row. Needs the extra `notebook`."""
        return frames.frame(self)

    def chart(self) -> altair.LayerChart:
        """What each cause is worth, as a chart. Needs the extra `notebook`."""
        return frames.savings(self)


class Segments(segments.Segments):
    """The segments of a recording, as a table."""

    def _repr_html_(self) -> str:
        return frames.segments_html(self)

    def to_pandas(self) -> pandas.DataFrame:
        """As a data frame, a segment a row. Needs the extra `notebook`."""
        return frames.segments(self)

    def chart(self) -> altair.LayerChart:
        """Each segment's median and target percentile. Needs the extra `notebook`."""
        return frames.course(self)


class Explanation(explanation.Explanation):
    """Everything `explain` has to say about one span name, as a table."""

    causes: Causes
    segments: Segments | None

    def _repr_html_(self) -> str:
        said = (*(f"{notice}." for notice in self.notices), answer(self))
        return "".join(f"<p>{escape(line)}</p>" for line in said) + frames.html(self.causes)

    def impacts(self) -> pandas.DataFrame:
        """VarMRI's impact values and what its rules leave of them; needs `notebook`."""
        return frames.impacts(self)

    def chart(self) -> altair.Chart:
        """The latency CDF, as measured and without each of the top causes; needs `notebook`."""
        return frames.distribution(self)


class Ledger(ledgers.Ledger):
    """One or several recordings, to be explained."""

    def explain(
        self,
        target: str = "p99",
        span: str | None = None,
        seed: int = 1,
        segment: str | None = None,
        baseline: ledgers.Ledger | None = None,
    ) -> Explanation:
        """Everything that `tailscope explain` says, as data; the options are the command's."""
        length_ns = segments.parse_length(segment) if segment else None
        found = explanation.explain(
            self, parse(target), span, seed, segment_ns=length_ns, compared=baseline
        )
        cut = Segments(**vars(found.segments)) if found.segments else None
        return Explanation(**vars(found) | {"causes": Causes(found.causes), "segments": cut})

    def causes(self, target: str = "p99", span: str | None = None, seed: int = 1) -> Causes:
        """The causes of the target percentile, the most valuable first."""
        return self.explain(target, span, seed).causes

    def segments(
        self, length: str, target: str = "p99", span: str | None = None, seed: int = 1
    ) -> Segments:
        """The recording in pieces of a length (30s, 10m, 1h): typical, worst, best, and why."""
        found = self.explain(target, span, seed, segment=length).segments
        assert found is not None, "a length was given"
        return found


def open_ledger(paths: Sequence[str | os.PathLike[str]], engine: str) -> Ledger:
    """The ledger at one or several paths, checked; `engine` will read the rows."""
    return Ledger(**vars(ledgers.open_ledger(paths, engine)))
