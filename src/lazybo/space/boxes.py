"""Boxes: parts of a space around a point, for local models."""

import numpy as np
from optuna.distributions import BaseDistribution

from lazybo.core import Array
from lazybo.space.kinds import Structured
from lazybo.space.points import Points

# Batch size of distances: limits memory.
CHUNK = 10_000


def narrowed(points: Points, center: Array, side: float) -> dict[str, BaseDistribution | Structured]:
    """The parameters of a box around a point, (d,), as wide as ``side`` in each number. Choices keep all values."""
    half = np.where(points.numeric, side / 2.0, np.inf)
    around = np.nan_to_num(center, nan=0.5)
    low = np.where(np.isnan(center), 0.0, np.clip(around - half, 0.0, 1.0))
    high = np.where(np.isnan(center), 1.0, np.clip(around + half, 0.0, 1.0))
    return {
        name: axis.narrowed(low[points.slices[name]], high[points.slices[name]]) for name, axis in points.axes.items()
    }


def distances(points: Points, x: Array, center: Array) -> Array:
    """The largest difference between numbers, plus the distances of other kinds of parameters, (m,)."""
    found = np.zeros(len(x))
    for start in range(0, len(x), CHUNK):
        part = x[start : start + CHUNK]
        largest, others = np.zeros(len(part)), np.zeros(len(part))
        for name, axis in points.axes.items():
            place, middle = part[:, points.slices[name]], center[points.slices[name]]
            gaps = axis.distances(place, middle)
            gaps[np.isnan(place[:, 0]) & np.isnan(middle[0])] = 0.0
            gaps[np.isnan(gaps)] = 1.0
            if axis.numeric.all():
                largest = np.maximum(largest, gaps)
            else:
                others += gaps
        found[start : start + CHUNK] = largest + others
    return found
