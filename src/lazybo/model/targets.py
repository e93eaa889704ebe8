"""What the Gaussian process sees of the observed values y.

The factor does not depend on y, so a transform costs no factorisation.

A transform is a function from all values y, (n,), to `Targets`. Predictions return to the units of y as mean · scale
+ shift.
"""

import math
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
    if deviation <= 8 * np.finfo(np.float64).eps or scale == 0:  # what is left is rounding
        return Targets(np.zeros_like(y), mean * unit, 1.0)
    return Targets((small - mean) / deviation, mean * unit, scale)


@dataclass(frozen=True, slots=True)
class Warping:
    """A monotone transform whose numbers are fixed: units of the spread around the median, bent, then standardised.

    Bent by Yeo and Johnson's power λ ≤ 1: long upper tails are pulled in, so that a diverged training (1e30) says
    "bad" and no more. ``middle`` and ``spread`` are in units of 2 to the ``exponent``, near the largest value: all
    doubles can be warped, also the smallest and the largest ones, and a power of two as a factor changes no bit.
    """

    exponent: int
    middle: float
    spread: float
    power: float
    shift: float
    scale: float

    def __post_init__(self) -> None:
        numbers = (self.middle, self.spread, self.power, self.shift, self.scale)
        if not (isinstance(self.exponent, int) and np.isfinite(numbers).all() and self.spread > 0 and self.scale > 0):
            raise ValueError(f"a warping needs finite numbers, spread and scale above 0, not {self}")

    @property
    def log_slope(self) -> float:
        """The logarithm of how much a small difference around the median grows."""
        return -math.log(2.0) * self.exponent - math.log(self.spread) - math.log(self.scale)

    def variances(self, known: Array) -> Array:
        """Known variances of values in units of the warped ones, at most what can be computed with, (n,)."""
        with np.errstate(over="ignore"):
            deviations = np.ldexp(np.sqrt(known), -self.exponent) / self.spread / self.scale
        return np.minimum(deviations, MAX_DEVIATION) ** 2

    def __call__(self, y: Array) -> Array:
        """Warped values, (n,)."""
        deviation = _deviation(y, self.exponent, self.middle, self.spread)
        return (_bend(deviation, self.power) - self.shift) / self.scale

    def inverse(self, warped: Array) -> Array:
        """The values that warp to these; the largest ones for what lies beyond the range of the warping, (n,)."""
        y = self.middle + self.spread * _unbend(warped * self.scale + self.shift, self.power)
        with np.errstate(over="ignore"):
            return np.clip(np.ldexp(y, self.exponent), -LARGEST, LARGEST)


# Powers to choose from; 1 is no bending at all.
POWERS = np.linspace(-3.0, 1.0, 17)
POWER_SPREAD = 0.6
MAX_DEVIATION = 1e25
LARGEST = float(np.finfo(np.float64).max)


def warping(y: Array) -> Warping:
    """The warping after which y looks most like a normal sample: maximum a posteriori over `POWERS`."""
    exponent = _exponent(y)
    if len(y) == 0:
        return Warping(exponent, 0.0, 1.0, 1.0, 0.0, 1.0)
    y = np.ldexp(y, -exponent)
    low, middle, high = (float(q) for q in np.quantile(y, (0.25, 0.5, 0.75)))
    spread = high - low or standardize(y).scale
    z = _deviation(y, 0, middle, spread)
    power = max(POWERS, key=lambda power: _log_likelihood(z, power)) if len(y) > 2 else 1.0
    _, shift, scale = standardize(_bend(z, power))
    return Warping(exponent, middle, spread, float(power), shift, scale)


def scaling(y: Array) -> Warping:
    """Mean 0 and standard deviation 1, unbent."""
    exponent = _exponent(y)
    _, shift, scale = standardize(np.ldexp(y, -exponent))
    return Warping(exponent, shift, scale, 1.0, 0.0, 1.0)


def centring(y: Array) -> Warping:
    """Mean 0 in the units of y: with a kernel of variance 1 the paper's experiments see their values so."""
    return Warping(0, standardize(y).shift, 1.0, 1.0, 0.0, 1.0)


# What the optimiser may do with its values, by name.
WARPINGS: dict[str, Callable[[Array], Warping]] = {"warped": warping, "scaled": scaling, "centred": centring}


def _exponent(y: Array) -> int:
    """The power of two next above the largest value; 0 for none, and for zeros."""
    return int(np.frexp(np.abs(y).max(initial=0.0))[1])


def _deviation(y: Array, exponent: int, middle: float, spread: float) -> Array:
    """(y / 2^exponent - middle) / spread, within what can be raised to a power and squared."""
    with np.errstate(over="ignore"):
        return np.clip((np.ldexp(y, -exponent) - middle) / spread, -MAX_DEVIATION, MAX_DEVIATION)


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
