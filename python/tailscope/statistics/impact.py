"""VarMRI's impact value: how far the target percentile falls when the spans with much of a cause
are left out.

From where on it is much, `threshold` says. Unlike the counterfactual this leaves whole spans out,
so it also blames a cause for what comes along with it; `rules` takes some of that back.
"""

from __future__ import annotations

import numpy as np

from tailscope.engines.grid import Distribution


def impact(walls: Distribution, high: Distribution, quantile: float) -> float | None:
    """The impact value, a fraction of the target percentile; None if no span would be left."""
    rest = walls.merge(high, sign=-1.0)
    if rest.total <= 1e-9 * walls.total:
        return None
    rest = Distribution(rest.bins, np.maximum(rest.weights, 0.0))
    before = walls.value_at(quantile)
    return (before - rest.value_at(quantile)) / before if before > 0 else None
