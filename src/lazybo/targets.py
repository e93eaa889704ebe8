"""What the Gaussian process sees of the observed values y.

The factor does not depend on y, so a transform costs no factorisation.

A transform is a function from all values y, (n,), to `Targets`. Predictions return to the units of y as mean · scale
+ shift.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from lazybo.checks import Array


class Targets(NamedTuple):
    """Transformed values, and the way back to the units of y."""

    values: Array
    shift: float
    scale: float


Transform: TypeAlias = Callable[[Array], Targets]


def identity(y: Array) -> Targets:
    """y as it is."""
    return Targets(y, 0.0, 1.0)


def standardize(y: Array) -> Targets:
    """Mean 0 and standard deviation 1; constant values become 0. Safe for values up to the largest double."""
    if len(y) == 0:
        return Targets(y, 0.0, 1.0)
    # Dividing before the square keeps 1e300 from overflowing and 1e-300 from vanishing.
    unit = float(np.abs(y).max()) or 1.0
    small = y / unit
    mean = float(small.mean())
    deviation = float(small.std())
    if deviation <= 8 * np.finfo(np.float64).eps:  # what is left is rounding
        return Targets(np.zeros_like(y), mean * unit, 1.0)
    return Targets((small - mean) / deviation, mean * unit, deviation * unit)
