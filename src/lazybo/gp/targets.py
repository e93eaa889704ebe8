"""Convert observed values y to the targets t of a Gaussian process, and back; what repeated targets say about noise.

The factor does not depend on y, so a transform needs no factorisation. A transform is a function from all values y,
(n,) or (n, q), to `Targets`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, polygamma

from lazybo.core import Array, checks
from lazybo.gp.kernels import Column, Matern52

# Targets outside of these limits are solved in units of a power of two, so that nothing overflows.
SMALL_TARGET, LARGE_TARGET = 1e-100, 1e100
# Known variances are limited to this, in units of the targets².
MAX_VARIANCE = 1e50
# Powers to choose from for a warping; 1 is linear. Their prior is normal around 1 with this spread.
POWERS = np.linspace(-3.0, 1.0, 17)
POWER_SPREAD = 0.6
MAX_DEVIATION = 1e25
# Doubles have exponents of two from -1073 to 1024.
MAX_EXPONENT = 1100
# Warped values are at most MAX_DEVIATION to the fifth. A state that was edited may hold anything else.
SMALLEST_SCALE, LARGEST_SHIFT = 1e-100, 1e150
LARGEST = float(np.finfo(np.float64).max)
# A warping is fitted to at most this many values. Points that are nearer than NEAR, as a share of the diagonal of the
# cube, count nearly as one.
MOST_WARPED = 1000
NEAR = 0.2
# This many equal repeats prove that there is no noise. If other points have equal values too, as an error rate over a
# few examples has, repeats may be equal by chance, and more are needed.
PROOF = 1
PROOF_IF_DISCRETE = 3


class Targets(NamedTuple):
    """Targets t = (y - shift) / scale; ``shift`` and ``scale`` are numbers, or (q,) for q outputs."""

    values: Array
    shift: Any
    scale: Any

    def mean(self, mean: Array) -> Array:
        """Convert a mean of the targets to a mean of the values."""
        return product(mean, self.scale) + self.shift

    def variance(self, variance: Array) -> Array:
        """Convert a variance or covariance of the targets of one output to the units of the values²."""
        return product(variance, self.scale, self.scale)

    @staticmethod
    def identity(y: Array) -> "Targets":
        """y unchanged."""
        return identity(y)

    @staticmethod
    def in_units(y: Array) -> "Targets":
        """y unchanged, or divided by a power of two if its squares would overflow or underflow."""
        unit = unit_of(y)
        return Targets(y / unit, *_one_for_each(y, 0.0, unit))

    @staticmethod
    def standardized(y: Array) -> "Targets":
        """Mean 0 and standard deviation 1 in each column; see `standardize`."""
        return standardize(y)


Transform: TypeAlias = Callable[[Array], Targets]


def identity(y: Array) -> Targets:
    """y unchanged."""
    return Targets(y, *_one_for_each(y, 0.0, 1.0))


def standardize(y: Array) -> Targets:
    """Mean 0 and standard deviation 1 in each column; constant values become 0. Safe up to the largest double."""
    if y.ndim == 2:
        columns = [standardize(column) for column in y.T]
        shift, scale = np.array([column[1:] for column in columns]).T
        return Targets(np.column_stack([column.values for column in columns]), shift, scale)
    if len(y) == 0:
        return Targets(y, 0.0, 1.0)
    # Divided before it is squared, so that 1e300 does not overflow and 1e-300 does not underflow.
    unit = float(np.abs(y).max()) or 1.0
    small = y / unit
    mean = float(small.mean())
    deviation = float(small.std())
    scale = deviation * unit
    if deviation <= 8 * np.finfo(np.float64).eps or scale == 0:  # only rounding errors are left
        return Targets(np.zeros_like(y), mean * unit, 1.0)
    return Targets((small - mean) / deviation, mean * unit, scale)


def _one_for_each(y: Array, *numbers: float) -> list[Any]:
    """Each number, once for each output."""
    return [*numbers] if y.ndim == 1 else [np.full(y.shape[1], number) for number in numbers]


def unit_of(targets: Array) -> float:
    """A power of two near the largest target if their squares would overflow or underflow; otherwise 1."""
    largest = float(np.abs(targets).max(initial=0.0))
    if largest == 0.0 or SMALL_TARGET <= largest <= LARGE_TARGET:
        return 1.0
    return math.ldexp(1.0, min(math.frexp(largest)[1], 1023))


def product(values: Array, *factors: float | Array) -> Array:
    """values · factors, multiplied one after the other; infinite where the product overflows."""
    with np.errstate(over="ignore"):
        for factor in factors:
            values = values * factor
    return values


def relative_variances(known: Array, scale: float) -> Array:
    """Known variances in units of the targets², at most `MAX_VARIANCE`."""
    with np.errstate(over="ignore"):
        return np.minimum(known / scale / scale, MAX_VARIANCE)


@dataclass(frozen=True, slots=True)
class Warping:
    """A monotone transform with fixed numbers: centered at the median, scaled, warped, then standardised.

    The warp is Yeo and Johnson's with the power λ ≤ 1. It shortens long upper tails, so that a diverged training (1e30)
    counts as bad, but does not dominate. ``width`` is the distance between the quartiles. ``middle`` and ``width`` are
    in units of 2 to the ``exponent``, near the largest value. So every double can be warped, and
    values that are multiplied by a power of two are warped to the same bits.
    """

    exponent: int
    middle: float
    width: float
    power: float
    shift: float
    scale: float

    # How values may be warped: to look like a normal sample, to mean 0 and deviation 1, to mean 0 in their own units.
    KINDS: ClassVar[tuple[str, ...]] = ("warped", "scaled", "centred")

    @staticmethod
    def fit(kind: str, y: Array, x: Array | None = None, columns: Sequence[Column] = ()) -> "Warping":
        """A warping of one of the `KINDS`, fitted to values, (n,).

        With their points, (n, w), crowded ones count less, and at most `MOST_WARPED` are used.
        """
        if x is None:
            return WARPINGS[kind](y, None)
        rows = subset(len(y), MOST_WARPED)
        return WARPINGS[kind](y[rows], _sparseness(x[rows], columns))

    def __post_init__(self) -> None:
        checks.whole("the exponent of a warping", self.exponent, -MAX_EXPONENT, MAX_EXPONENT)
        for name in ("middle", "width", "power", "shift", "scale"):
            checks.finite_number(f"{name} of a warping", getattr(self, name))
        if not (0 < self.width <= LARGEST_SHIFT and SMALLEST_SCALE <= self.scale <= LARGEST_SHIFT):
            raise ValueError(f"a warping needs a width and a scale above 0, not {self.width} and {self.scale}")
        if not (POWERS[0] <= self.power <= POWERS[-1] and abs(self.shift) <= LARGEST_SHIFT):
            raise ValueError(f"a warping cannot have the power {self.power} and the shift {self.shift}")

    @property
    def log_slope(self) -> float:
        """The logarithm of the slope at the median."""
        return -math.log(2.0) * self.exponent - math.log(self.width) - math.log(self.scale)

    def variances(self, known: Array) -> Array:
        """Known variances of values in units of the warped values, clipped so that they do not overflow, (n,)."""
        with np.errstate(over="ignore"):
            deviations = np.ldexp(np.sqrt(known), -self.exponent) / self.width / self.scale
        return np.minimum(deviations, MAX_DEVIATION) ** 2

    def __call__(self, y: Array) -> Array:
        """Warped values, (n,)."""
        deviation = _deviation(y, self.exponent, self.middle, self.width)
        return (_bend(deviation, self.power) - self.shift) / self.scale

    def inverse(self, warped: Array) -> Array:
        """The inverse of the warping, (n,); the largest double beyond its range."""
        y = self.middle + self.width * _unbend(warped * self.scale + self.shift, self.power)
        with np.errstate(over="ignore"):
            return np.clip(np.ldexp(y, self.exponent), -LARGEST, LARGEST)


def warping(y: Array, weights: Array | None = None) -> Warping:
    """The warping after which y looks most like a normal sample: maximum a posteriori over `POWERS`.

    A value counts as much as its weight, (n,). A search evaluates many points near the best ones. Without weights,
    these would determine the unit: their small differences would look large, and everything else hopeless.
    """
    exponent = _exponent(y)
    if len(y) == 0:
        return Warping(exponent, 0.0, 1.0, 1.0, 0.0, 1.0)
    y = np.ldexp(y, -exponent)
    shares = np.full(len(y), 1.0 / len(y)) if weights is None else weights / weights.sum()
    low, middle, high = _quantiles(y, shares, (0.25, 0.5, 0.75))
    width = high - low or standardize(y).scale
    z = _deviation(y, 0, middle, width)
    power = float(POWERS[np.argmax(_log_likelihoods(z, shares, POWERS))]) if len(y) > 2 else 1.0
    bent = _bend(z, power)
    shift = float(shares @ bent)
    scale = math.sqrt(float(shares @ (bent - shift) ** 2))
    if scale <= 8 * np.finfo(np.float64).eps * max(abs(shift), 1.0):  # only rounding errors are left
        scale = 1.0
    return Warping(exponent, middle, width, power, shift, scale)


def subset(n: int, size: int) -> NDArray[np.intp]:
    """The rows to learn from: all, or a random subset that depends only on n, so that runs are repeatable."""
    if n <= size:
        return np.arange(n)
    return np.sort(np.random.default_rng(n).choice(n, size, replace=False))


def _sparseness(x: Array, columns: Sequence[Column]) -> Array:
    """How much each of these points tells about the whole space, (n,): less, the more others are near it."""
    if not columns:
        return np.ones(len(x))
    near = Matern52(np.full(len(columns), NEAR * math.sqrt(len(columns))), columns=columns)
    return 1.0 / near(x).sum(axis=1)


def _quantiles(y: Array, shares: Array, levels: Sequence[float]) -> list[float]:
    """Quantiles of weighted values: a value is in the middle of its share of the distribution."""
    order = np.argsort(y, kind="stable")
    reached = np.cumsum(shares[order]) - 0.5 * shares[order]
    return np.interp(levels, reached, y[order]).tolist()


def scaling(y: Array, _: Array | None = None) -> Warping:
    """A linear warping to mean 0 and standard deviation 1."""
    exponent = _exponent(y)
    _, shift, scale = standardize(np.ldexp(y, -exponent))
    return Warping(exponent, shift, scale, 1.0, 0.0, 1.0)


def centring(y: Array, _: Array | None = None) -> Warping:
    """A linear warping to mean 0 in the units of y, as in the paper's experiments, whose kernel has variance 1."""
    return Warping(0, standardize(y).shift, 1.0, 1.0, 0.0, 1.0)


WARPINGS: dict[str, Callable[[Array, Array | None], Warping]] = {
    "warped": warping,
    "scaled": scaling,
    "centred": centring,
}


def _exponent(y: Array) -> int:
    """The exponent of the power of two above the largest value; 0 if there are only zeros or no values."""
    return int(np.frexp(np.abs(y).max(initial=0.0))[1])


def _deviation(y: Array, exponent: int, middle: float, width: float) -> Array:
    """(y / 2^exponent - middle) / width, clipped so that its powers and squares do not overflow."""
    with np.errstate(over="ignore"):
        return np.clip((np.ldexp(y, -exponent) - middle) / width, -MAX_DEVIATION, MAX_DEVIATION)


def _bend(z: Array, power: float) -> Array:
    """Yeo and Johnson's transform: ((1 + z)^λ - 1)/λ above 0, its mirror image with 2 - λ below."""
    up, down = np.log1p(np.maximum(z, 0.0)), np.log1p(np.maximum(-z, 0.0))
    above = np.expm1(power * up) / power if power else up
    return np.where(z >= 0, above, -np.expm1((2.0 - power) * down) / (2.0 - power))


def _unbend(bent: Array, power: float) -> Array:
    """The inverse of `_bend`. For λ < 0 its range ends at -1/λ; beyond that it is the largest deviation."""
    up, down = np.maximum(bent, 0.0), np.maximum(-bent, 0.0)
    most = np.log1p(MAX_DEVIATION)
    with np.errstate(divide="ignore", invalid="ignore"):
        above = np.log1p(np.maximum(power * up, -1.0)) / power if power else up
    below = np.log1p((2.0 - power) * down) / (2.0 - power)
    return np.where(bent >= 0, np.expm1(np.minimum(above, most)), -np.expm1(np.minimum(below, most)))


def _log_likelihoods(z: Array, shares: Array, powers: Array) -> Array:
    """Log posterior of each power, up to a constant, if the warped values are a normal sample, (p,).

    The Jacobian is (λ - 1) sign(z) log(1 + |z|). The prior of λ is normal around 1: a few values are not enough
    evidence for a warp. Values with unequal shares are worth as much as 1 / Σ shares² equal ones.
    """
    signed = np.copysign(np.log1p(np.abs(z)), z)
    # As in `_bend`: above 0 the power is λ, below 2 - λ, and the limit for a power of 0 is the logarithm itself.
    exponents = np.where(signed >= 0, powers[:, None], powers[:, None] - 2.0)
    bent = np.expm1(exponents * signed)
    bent = np.divide(bent, exponents, out=np.broadcast_to(signed, bent.shape).copy(), where=exponents != 0.0)
    means = bent @ shares
    variances = (bent - means[:, None]) ** 2 @ shares
    usable = np.isfinite(variances) & (variances > 0)
    logarithms = np.log(variances, out=np.full(len(powers), np.inf), where=usable)
    count = 1.0 / float(shares @ shares)
    return count * ((powers - 1.0) * (shares @ signed) - 0.5 * logarithms) - 0.5 * ((powers - 1.0) / POWER_SPREAD) ** 2


@dataclass(frozen=True, slots=True)
class Repeats:
    """Repeated evaluations: ν, their number beyond the first at each point, and Σ (t - mean at the point)².

    With few values a rugged and a noisy function look alike. Repeats tell them apart: equal values show that there is
    no noise, different ones measure it. ``proof`` is the number of equal ones that are proof.
    """

    count: int = 0
    square: float = 0.0
    proof: int = PROOF

    @property
    def differ(self) -> bool:
        """Whether any repeat gave another value: there is noise."""
        return self.square > 0.0

    @property
    def agree(self) -> bool:
        """Whether the repeats prove that there is no noise."""
        return not self.differ and self.count >= self.proof

    def log_variance(self) -> tuple[float, float]:
        """An unbiased estimate of log σₙ² from repeats that differ, and its variance.

        With s² = Σ (t - mean)² / ν, log s² - log σₙ² is distributed as log(χ²_ν / ν), whose mean is ψ(ν/2) - log(ν/2)
        and whose variance is ψ'(ν/2).
        """
        half = 0.5 * self.count
        bias = float(digamma(half)) - math.log(half)
        return math.log(self.square / self.count) - bias, float(polygamma(1, half))


def repeats_of(targets: Array, groups: Iterable[Sequence[int]]) -> Repeats:
    """The repeats among targets, (n,), NaN where there is no value; each group has the rows at one point."""
    count, square = 0, 0.0
    for group in groups:
        values = targets[list(group)]
        values = values[~np.isnan(values)]
        if len(values) > 1:
            count += len(values) - 1
            square += float(np.sum((values - values.mean()) ** 2)) if np.ptp(values) > 0 else 0.0
    if count == 0:
        return Repeats()
    known = targets[~np.isnan(targets)]
    equal = len(known) - len(np.unique(known))
    return Repeats(count, square, PROOF_IF_DISCRETE if square == 0.0 and equal > count else PROOF)
