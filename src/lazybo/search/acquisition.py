"""Acquisition functions, which are maximised; the objective is minimised.

======  =====================================================  =====
symbol  meaning                                                shape
======  =====================================================  =====
μ, σ    posterior mean and standard deviation                  (m,)
f'      the incumbent: the best (smallest) denoised value      scalar
ξ       exploration: the least improvement that counts         scalar
γ       f' - μ - ξ                                             (m,)
z       γ / σ                                                  (m,)
φ, Φ    density and distribution of the standard normal        (m,)
======  =====================================================  =====

Each function returns its value and its derivatives by μ and by σ, from which the chain rule gives the gradient at a
point.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import erfcx, expit, log_ndtr, ndtr

from lazybo.core.checks import Array, one_of, shortened

# Smaller σ are raised to this: expected improvement divides by σ.
MIN_STD = 1e-12
# Below this z the series of Φ/φ is more exact than the formula, which subtracts nearly equal numbers.
FAR_TAIL = -1e3
# From this z on, φ + z Φ is computed directly: Φ/φ grows as exp(z²/2).
LARGE = 10.0
# Above this z, φ/Φ is nothing, and Φ/φ would overflow.
LARGE_RATIO = 30.0
# τ of the logarithm of a confidence bound, in units of the targets, which have a standard deviation near 1.
SOFTNESS = 0.1
SMALLEST_LOG = -30.0
SQRT_2PI, LOG_SQRT_2PI, SQRT_HALF = math.sqrt(2 * math.pi), 0.5 * math.log(2 * math.pi), math.sqrt(0.5)


class Acquired(NamedTuple):
    """Values of an acquisition function and its partial derivatives, each (m,)."""

    value: Array
    by_mean: Array
    by_std: Array


Acquisition = Callable[[Array, Array, float], Acquired]


class Judged(NamedTuple):
    """Values of an acquisition of p outputs, (m,), and its partial derivatives by their means and stds, each (p, m)."""

    value: Array
    by_mean: Array
    by_std: Array


# An acquisition of several outputs: a function of their means and standard deviations, each (p, m).
Judge = Callable[[Array, Array], Judged]


def expected_improvement(mean: Array, std: Array, best: float, xi: float = 0.0) -> Acquired:
    """EI = γ Φ(z) + σ φ(z) (paper, section 2.2.1); ∂EI/∂μ = -Φ(z), ∂EI/∂σ = φ(z)."""
    std = np.maximum(std, MIN_STD)
    z = ((best - xi) - mean) / std
    density, distribution = _density(z), ndtr(z)
    return Acquired(np.maximum(std * (z * distribution + density), 0.0), -distribution, density)


def log_expected_improvement(mean: Array, std: Array, best: float, xi: float = 0.0) -> Acquired:
    """log EI = log σ + log(φ(z) + z Φ(z)), without underflow however far z is in the tail.

    With r = Φ/φ the second term is log φ + log(1 + z r); its derivative by z is r / (1 + z r).
    """
    std = np.maximum(std, MIN_STD)
    z = ((best - xi) - mean) / std
    log_h, slope = _log_h(z)
    log_h += np.log(std)
    return Acquired(log_h, -slope / std, (1.0 - z * slope) / std)


def probability_of_improvement(mean: Array, std: Array, best: float, xi: float = 0.0) -> Acquired:
    """log Φ(z): the same maxima as Φ(z), but with a gradient where Φ(z) underflows."""
    std = np.maximum(std, MIN_STD)
    z = ((best - xi) - mean) / std
    slope = 1.0 / _ratio(np.minimum(z, LARGE_RATIO))
    return Acquired(log_ndtr(z), -slope / std, -slope * z / std)


def confidence_bound(mean: Array, std: Array, best: float, kappa: float = 2.0) -> Acquired:
    """κ σ - μ: the upper confidence bound of -f. The incumbent is not used."""
    del best
    return Acquired(kappa * std - mean, np.full_like(mean, -1.0), np.full_like(std, kappa))


def log_confidence_bound(mean: Array, std: Array, best: float, kappa: float = 2.0) -> Acquired:
    """log softplus((f' - μ + κ σ) / τ): the maxima of the confidence bound, as the logarithm of an improvement.

    Where f' - μ + κ σ, the most that can be hoped for, is well above τ, this is its logarithm up to a constant.
    """
    u = (best - mean + kappa * std) / SOFTNESS
    soft = np.logaddexp(0.0, u)
    small = u < SMALLEST_LOG  # softplus(u) = exp(u), which soon underflows
    value = np.where(small, u, np.log(np.where(small, 1.0, soft)))
    slope = np.where(small, 1.0, expit(u) / np.where(small, 1.0, soft)) / SOFTNESS
    return Acquired(value, -slope, kappa * slope)


def automatic(mean: Array, std: Array, best: float) -> Acquired:
    """Log expected improvement. Where the model finds noise, the optimiser uses the confidence bound instead.

    Under noise the improvements that can be expected near the incumbent are soon too small to be measured, and expected
    improvement stays there. The confidence bound goes on exploring (docs/tuning.md).
    """
    return log_expected_improvement(mean, std, best)


ACQUISITIONS: dict[str, Acquisition] = {
    "auto": automatic,
    "logei": log_expected_improvement,
    "ei": expected_improvement,
    "pi": probability_of_improvement,
    "ucb": confidence_bound,
}


def check_acquisition(acquisition: str | Acquisition) -> Acquisition:
    """The function of this name, or the function itself."""
    if callable(acquisition):
        return _tried(acquisition)
    return ACQUISITIONS[one_of("acquisition", acquisition, tuple(ACQUISITIONS))]


def _tried(acquisition: Acquisition) -> Acquisition:
    """``acquisition`` itself if it works on two points: its first real use may be hours later."""
    expected = "acquisition(mean, std, best) must return lazybo.acquisition.Acquired of three arrays as long as mean"
    try:
        found = acquisition(np.array([0.0, 1.0]), np.array([1.0, 0.5]), 0.5)
    except Exception as error:  # the function is the user's: anything can go wrong in it
        raise ValueError(f"{expected}, but raised {type(error).__name__}: {error}") from error
    if not isinstance(found, Acquired) or [np.shape(part) for part in found] != [(2,)] * 3:
        raise ValueError(f"{expected}, not {shortened(found)}")
    return acquisition


def _density(z: Array) -> Array:
    return np.exp(-0.5 * z * z) * (1.0 / SQRT_2PI)


def _ratio(z: Array) -> Array:
    """Φ(z)/φ(z) = √(π/2) erfcx(-z/√2), without underflow in the tail."""
    ratio: Array = erfcx(z * -SQRT_HALF)
    ratio *= 0.5 * SQRT_2PI
    return ratio


def _log_h(z: Array) -> tuple[Array, Array]:
    """log(φ(z) + z Φ(z)) and its derivative Φ(z) / (φ(z) + z Φ(z)). Branches that no entry needs are not computed."""
    inner = np.count_nonzero((z > FAR_TAIL) & (z < LARGE)) == z.size
    # 1 + z r with r = Φ/φ. Below -1 it loses digits as 1/z², at most 6 of 16; for large z r overflows.
    middle = z if inner else np.clip(z, FAR_TAIL, LARGE)
    r = _ratio(middle)
    rest = middle * r
    rest += 1.0
    log_h, slope = np.log(rest), r / rest
    log_h -= 0.5 * z * z
    log_h -= LOG_SQRT_2PI
    if inner:
        return log_h, slope
    # z < FAR_TAIL: r = -1/z (1 - 1/z² + …), so 1 + z r = 1/z² and its slope -z.
    far = np.minimum(z, FAR_TAIL)
    log_h = np.where(z > FAR_TAIL, log_h, -0.5 * z * z - LOG_SQRT_2PI - 2 * np.log(-far))
    slope = np.where(z > FAR_TAIL, slope, -far)
    large = np.maximum(z, LARGE)
    h = _density(large) + large * ndtr(large)
    return np.where(z < LARGE, log_h, np.log(h)), np.where(z < LARGE, slope, ndtr(large) / h)
