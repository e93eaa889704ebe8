"""What the Gaussian process sees of the observed values y.

The factor does not depend on y, so a transform costs no factorisation.

A transform is a function from all values y, (n,), to `Targets`. Predictions return to the units of y as mean · scale
+ shift.
"""

from collections.abc import Callable
from dataclasses import dataclass
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
    scale = deviation * unit
    if deviation <= 8 * np.finfo(np.float64).eps or scale < np.finfo(np.float64).tiny:  # what is left is rounding
        return Targets(np.zeros_like(y), mean * unit, 1.0)
    return Targets((small - mean) / deviation, mean * unit, scale)


@dataclass(frozen=True, slots=True)
class Scaling:
    """A transform whose numbers are fixed: values above ``fence`` are pulled in to it, then shifted and scaled."""

    shift: float
    scale: float
    fence: float

    def __call__(self, y: Array) -> Array:
        """Scaled values, (n,)."""
        return (np.minimum(y, self.fence) - self.shift) / self.scale


def robust_scaling(y: Array) -> Scaling:
    """Standardisation for a search for small values, that large ones do not disturb.

    Values beyond the fence, five interquartile ranges above the median, say no more than "bad".
    """
    if len(y) == 0:
        return Scaling(0.0, 1.0, np.inf)
    low, middle, high = np.quantile(y / 2, (0.25, 0.5, 0.75)) * 2
    fence = float(middle + 5.0 * (high - low)) if high > low else float(np.max(y))
    _, shift, scale = standardize(np.minimum(y, fence))
    return Scaling(shift, scale, fence)
