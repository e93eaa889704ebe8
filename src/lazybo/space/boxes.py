"""Boxes: parts of a space around a point, for local models."""

import numpy as np

from lazybo.core import Array
from lazybo.space.space import Space

# Batch size of distances: limits memory.
CHUNK = 10_000


def box(space: Space, center: Array, side: float) -> Space:
    """The part of the space around a point, (d,), as wide as ``side`` in each number.

    Choices, and parameters that others depend on, keep all values.
    """
    half = np.where(space.numeric, side / 2.0, np.inf)
    around = np.nan_to_num(center, nan=0.5)
    low = np.where(np.isnan(center), 0.0, np.clip(around - half, 0.0, 1.0))
    high = np.where(np.isnan(center), 1.0, np.clip(around + half, 0.0, 1.0))
    parents = {condition.parent for condition in space.conditions.values()}
    narrow = {
        name: axis.narrowed(low[space.slices[name]], high[space.slices[name]])
        for name, axis in space.axes.items()
        if name not in parents
    }
    return space.changed(parameters={**space.parameters, **narrow}, beliefs={})  # a local model refines what was found


def distances(space: Space, points: Array, center: Array) -> Array:
    """The largest difference between numbers, plus the distances of other kinds of parameters, (m,)."""
    found = np.zeros(len(points))
    for start in range(0, len(points), CHUNK):
        part = points[start : start + CHUNK]
        largest, others = np.zeros(len(part)), np.zeros(len(part))
        for name, axis in space.axes.items():
            x, middle = part[:, space.slices[name]], center[space.slices[name]]
            gaps = axis.distances(x, middle)
            gaps[np.isnan(x[:, 0]) & np.isnan(middle[0])] = 0.0
            gaps[np.isnan(gaps)] = 1.0
            if axis.numeric.all():
                largest = np.maximum(largest, gaps)
            else:
                others += gaps
        found[start : start + CHUNK] = largest + others
    return found
