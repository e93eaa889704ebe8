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
class Warping:
    """A monotone transform whose numbers are fixed: units of the spread around the median, bent, then standardised.

    Bent by Yeo and Johnson's power λ ≤ 1: long upper tails are pulled in, so that a diverged training (1e30) says
    "bad" and no more.
    """

    middle: float
    spread: float
    power: float
    shift: float
    scale: float

    @property
    def slope(self) -> float:
        """How much a small difference around the median grows: what known standard deviations are multiplied by."""
        return 1.0 / self.spread / self.scale

    def __call__(self, y: Array) -> Array:
        """Warped values, (n,)."""
        return (_bend(_deviation(y, self.middle, self.spread), self.power) - self.shift) / self.scale

    def inverse(self, warped: Array) -> Array:
        """The values that warp to these; the largest ones for what lies beyond the range of the warping, (n,)."""
        return self.middle + self.spread * _unbend(warped * self.scale + self.shift, self.power)


# Powers to choose from; 1 is no bending at all.
POWERS = np.linspace(-3.0, 1.0, 17)
POWER_SPREAD = 0.6
MAX_DEVIATION = 1e25


def warping(y: Array) -> Warping:
    """The warping after which y looks most like a normal sample: maximum a posteriori over `POWERS`."""
    if len(y) == 0:
        return Warping(0.0, 1.0, 1.0, 0.0, 1.0)
    # Halved, so that differences of the largest doubles do not overflow.
    low, middle, high = (2.0 * float(q) for q in np.quantile(y / 2, (0.25, 0.5, 0.75)))
    spread = high - low or standardize(y).scale
    z = _deviation(y, middle, spread)
    power = max(POWERS, key=lambda power: _log_likelihood(z, power)) if len(y) > 2 else 1.0
    _, shift, scale = standardize(_bend(z, power))
    return Warping(middle, spread, float(power), shift, scale)


def scaling(y: Array) -> Warping:
    """Mean 0 and standard deviation 1, unbent."""
    _, shift, scale = standardize(y)
    return Warping(shift, scale, 1.0, 0.0, 1.0)


def centring(y: Array) -> Warping:
    """Mean 0 in the units of y: with a kernel of variance 1 the paper's experiments see their values so."""
    return Warping(standardize(y).shift, 1.0, 1.0, 0.0, 1.0)


# What the optimiser may do with its values, by name.
WARPINGS: dict[str, Callable[[Array], Warping]] = {"warped": warping, "scaled": scaling, "centred": centring}


def _deviation(y: Array, middle: float, spread: float) -> Array:
    """(y - middle) / spread, within what can be raised to a power and squared."""
    with np.errstate(over="ignore"):
        return np.clip((y - middle) / spread, -MAX_DEVIATION, MAX_DEVIATION)


def _bend(z: Array, power: float) -> Array:
    """Yeo and Johnson's transform: ((1 + z)^λ - 1)/λ above 0, its mirror image with 2 - λ below."""
    up, down = np.log1p(np.maximum(z, 0.0)), np.log1p(np.maximum(-z, 0.0))
    above = np.expm1(power * up) / power if power else up
    return np.where(z >= 0, above, -np.expm1((2.0 - power) * down) / (2.0 - power))


def _unbend(bent: Array, power: float) -> Array:
    """The inverse of `_bend`; for λ < 0 that ends at -1/λ, beyond which the largest deviation stands."""
    up, down = np.maximum(bent, 0.0), np.maximum(-bent, 0.0)
    most = np.log1p(MAX_DEVIATION)
    with np.errstate(divide="ignore", invalid="ignore"):
        above = np.log1p(np.maximum(power * up, -1.0)) / power if power else up
    below = np.log1p((2.0 - power) * down) / (2.0 - power)
    return np.where(bent >= 0, np.expm1(np.minimum(above, most)), -np.expm1(np.minimum(below, most)))


def _log_likelihood(z: Array, power: float) -> float:
    """Of the bent values as a normal sample, and of the power, up to a constant.

    The Jacobian is (λ - 1) sign(z) log(1 + |z|). A few values are no reason to bend: the prior of λ is normal around 1.
    """
    variance = float(np.var(_bend(z, power)))
    if not (np.isfinite(variance) and variance > 0):
        return -np.inf
    jacobian = (power - 1.0) * float(np.sum(np.sign(z) * np.log1p(np.abs(z))))
    return -0.5 * len(z) * np.log(variance) + jacobian - 0.5 * ((power - 1.0) / POWER_SPREAD) ** 2
