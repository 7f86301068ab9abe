"""What a fix does to some rows of each time block, done to all rows.

Goal: the wall times of all spans, from those of the rows that were drawn, before and after.
Rejected: to put each drawn row's change in the place of those that it stands for. How many rows of
a kind are drawn is chance, and with a tail of queues that is more than the tail that a fix leaves.
Chosen: of how many rows the wall time before is what is known, so only what becomes of rows of one
wall time is taken from those drawn (post-stratification). Wall times that lie near each other in
the distribution are taken together.

The error is in what becomes of the rows that were drawn in a block beyond what becomes of such rows
in all blocks. That is added to each block: it sums to nothing, and an interval that resamples
blocks contains it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailscope.engines.grid import Bins
from tailscope.engines.timed import Counts, Timed, spread

#: Wall times are taken together in so many classes for each halving of the rows above them …
CLASSES = 8
#: … down to so many rows.
FEWEST = 40


def transferred(
    walls: Timed, lowest: int, block: NDArray[np.int64], before: Bins, after: Bins
) -> Timed:
    """The wall times of all rows, once all of them from a bin on change as those drawn do.

    For each drawn row the time block, and its bin before and after.
    """
    before = np.minimum(before, walls.last)
    chosen = before >= lowest
    block, before, after = block[chosen], before[chosen], after[chosen]
    change = after != before
    if not change.any():
        return walls
    walls = walls.reaching(int(after.min()))
    blocks, first, last = walls.blocks, walls.first, walls.last
    edges = classes(before, lowest)
    count = len(edges)
    group = np.searchsorted(edges, before, side="right") - 1
    drawn = np.bincount(group, minlength=count).astype(float)
    own = np.bincount(block * count + group, minlength=blocks * count).reshape(blocks, count)
    held = np.add.reduceat(walls.weight, edges - first, axis=1)
    scale = held.sum(axis=0) / drawn
    group, block, before, after = group[change], block[change], before[change], after[change]
    part = 1 / drawn[group]
    come = spread(Counts(group, after, part), count, first, last)
    gone = spread(Counts(group, before, part), count, first, last)
    stays = np.ones(last - first + 1)
    share = np.bincount(group, part, count)
    stays[edges[0] - first :] -= np.repeat(share, np.diff(np.append(edges, last + 1)))
    here = spread(Counts(block, after, scale[group]), blocks, first, last)
    here -= spread(Counts(block, before, scale[group]), blocks, first, last)
    usual = own * scale
    return Timed(first, walls.weight * stays + (held - usual) @ come + usual @ gone + here)


def classes(before: Bins, lowest: int) -> Bins:
    """The bins with which classes begin, such that rows were drawn from each."""
    ranked = np.sort(before)[::-1]
    above = len(ranked) * 2.0 ** (-np.arange(1, 64 * CLASSES) / CLASSES)
    places = np.unique(above[above >= FEWEST].astype(np.int64))
    return np.unique(np.append(ranked[places], lowest))
