"""Forecasts of the final value of a pruned trial, made from the trials that completed.

=======  ========================================================================  ======
symbol   meaning                                                                   shape
=======  ========================================================================  ======
s, v     the last step of a pruned trial, and its value there                      scalar
u, e     of trials that completed: their values at step s, and at the end          (m,)
=======  ========================================================================  ======

e ≈ a + b u by least squares with b ≥ 0, over the m completed trials whose u is nearest to v. The forecast is a + b v
with the variance of a prediction, σ² (1 + 1/m + (v - ū)² / Σ(u - ū)²): it grows with the distance from the data.

A forecast is never better than the median of the completed trials, since a pruner stops the worse ones.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lazybo.checks import Array

# With fewer completed trials there is no forecast.
MIN_CURVES = 4
# Completed trials that a forecast is made from.
NEIGHBOURS = 20
# Few points may lie on a line by chance. So σ² has a prior: the variance of the ends, weighted as so many points.
PRIOR_WEIGHT = 0.1
# The squares of very large values overflow.
MAX_VARIANCE = 1e300


class Forecast(NamedTuple):
    """The expected final value of a trial, and the variance of its error."""

    value: float
    variance: float


@dataclass
class Curves:
    """The completed trials of a study: intermediate values by step, and the final value."""

    maximize: bool
    _curves: list[tuple[Mapping[int, float], float]] = field(default_factory=list)

    def add(self, intermediate: Mapping[int, float], end: float) -> None:
        """Add a trial that completed."""
        self._curves.append(({step: v for step, v in intermediate.items() if math.isfinite(v)}, end))

    def forecast(self, step: int, value: float) -> Forecast | None:
        """The final value of a trial with this value at this step; None if too few trials have completed."""
        pairs = [(at, end) for curve, end in self._curves if (at := _value_at(curve, step)) is not None]
        if len(pairs) < MIN_CURVES:
            return None
        pairs.sort(key=lambda pair: abs(pair[0] - value))
        u, e = np.array(pairs[:NEIGHBOURS]).T
        mean, variance = _predicted(u, e, value)
        ends = sorted(end for _, end in self._curves)
        median = ends[len(ends) // 2]
        if self.maximize:
            return Forecast(min(max(mean, min(value, *e)), median), variance)
        return Forecast(max(min(mean, max(value, *e)), median), variance)


def _value_at(curve: Mapping[int, float], step: int) -> float | None:
    """The value at this step, or at the last one before it."""
    before = [at for at in curve if at <= step]
    return curve[max(before)] if before else None


def _predicted(u: Array, e: Array, value: float) -> tuple[float, float]:
    """Mean and variance of the final value for ``value``, by a line through (u, e)."""
    # In units of the largest of them, so that squares do not overflow.
    unit_u, unit_e = max(float(np.abs(u).max()), abs(value)) or 1.0, float(np.abs(e).max()) or 1.0
    u, e, value, m = u / unit_u, e / unit_e, value / unit_u, len(u)
    mean_u, mean_e = float(u.mean()), float(e.mean())
    du, de = u - mean_u, e - mean_e
    spread_u, spread_e = float(du @ du), float(de @ de)
    slope = max(float(du @ de) / spread_u, 0.0) if spread_u > 0 else 0.0
    residuals = de - slope * du
    noise = (float(residuals @ residuals) + PRIOR_WEIGHT * spread_e / m) / (m - 2 + PRIOR_WEIGHT)
    distance = (value - mean_u) ** 2 / spread_u if spread_u > 0 else 0.0
    variance = noise * (1 + 1 / m + distance)
    return unit_e * (mean_e + slope * (value - mean_u)), min(unit_e * variance * unit_e, MAX_VARIANCE)
