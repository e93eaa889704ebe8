"""Acquisition functions, which are maximised; the objective is minimised.

Functions of one output:

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
point. An `Acquisition` is the logarithm of such a function, or one with the same maxima: it can be averaged over
particles and added to other logarithms.

Functions of several outputs:

======  =====================================================================  ======
symbol  meaning                                                                shape
======  =====================================================================  ======
p, m    outputs: q objectives, then constraints; candidates                    scalar
μ, σ    posterior mean and standard deviation of each output                   (p, m)
t       the threshold of a constraint: feasible where its output is below      scalar
w       weights of the objectives                                              (q,)
α       the weight of the logarithm of the cost                                scalar
b       the best Chebyshev value of a front                                    scalar
======  =====================================================================  ======

A joint acquisition is log a(objectives) + c Σ log P(constraint ≤ t), a sum of one part for the objectives and one for
the constraints. While nothing is feasible, only the second part counts. With c = 1 it is the expected improvement among
feasible points, and about half of the points that it suggests near an active constraint violate it. If the cost of an
evaluation counts, α times the expected logarithm of the cost is subtracted.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from scipy.special import erfcx, expit, log_ndtr, ndtr

from lazybo.core import Array, checks

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
# The factor of the standard deviations for a model that may be too sure.
WIDENING = 2.0
SQRT_2PI, LOG_SQRT_2PI, SQRT_HALF = math.sqrt(2 * math.pi), 0.5 * math.log(2 * math.pi), math.sqrt(0.5)
# Nodes of the integral of the Chebyshev improvement, evenly spaced in the logarithm over this many decades.
NODES = 48
DECADES = 5.0
# At most this many combinations of the particles of several outputs are averaged over.
COMBINATIONS = 64
# The integral ends this many standard deviations beyond the means.
TAIL = 6.0


class Acquired(NamedTuple):
    """Values of an acquisition, (m,), and its partial derivatives by the means and standard deviations.

    The derivatives are (m,) for one output and (p, m) for several.
    """

    value: Array
    by_mean: Array
    by_std: Array


# An acquisition of one output: a function of its mean and standard deviation, each (m,), and the incumbent.
Function: TypeAlias = Callable[[Array, Array, float], Acquired]
# An acquisition of several outputs: a function of their means and standard deviations, each (p, m).
Joint: TypeAlias = Callable[[Array, Array], Acquired]
F = TypeVar("F", bound=Callable[..., Acquired])


@dataclass(frozen=True)
class Acquisition:
    """A ``function`` to maximise, which counts as a logarithm: its exponential is averaged over particles.

    Where the most probable kernel is a noisy one, the acquisition ``if_noisy`` is used instead. Now and then
    ``in_doubt`` is used, for a model that may be too sure.
    """

    function: Function
    if_noisy: "Acquisition | None" = None
    in_doubt: "Acquisition | None" = None


def log_expected_improvement(mean: Array, std: Array, best: float, xi: float = 0.0) -> Acquired:
    """log EI = log σ + log(φ(z) + z Φ(z)) (paper, section 2.2.1), without underflow however far z is in the tail.

    With r = Φ/φ the second term is log φ + log(1 + z r); its derivative by z is s = r / (1 + z r). As ∂z/∂μ = -1/σ and
    ∂z/∂σ = -z/σ, the derivatives are -s/σ by μ and (1 - z s)/σ by σ.
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


def log_confidence_bound(mean: Array, std: Array, best: float, kappa: float = 2.0) -> Acquired:
    """log softplus((f' - μ + κ σ) / τ): the maxima of the confidence bound κ σ - μ, as the logarithm of an improvement.

    Where f' - μ + κ σ, the most that can be hoped for, is well above τ, this is its logarithm up to a constant.
    """
    u = (best - mean + kappa * std) / SOFTNESS
    soft = np.logaddexp(0.0, u)
    small = u < SMALLEST_LOG  # softplus(u) = exp(u), which soon underflows
    value = np.where(small, u, np.log(np.where(small, 1.0, soft)))
    slope = np.where(small, 1.0, expit(u) / np.where(small, 1.0, soft)) / SOFTNESS
    return Acquired(value, -slope, kappa * slope)


def widened(function: F, factor: float = WIDENING) -> F:
    """The same with larger standard deviations: it explores more, for a model that may be too sure."""

    def wide(mean: Array, std: Array, *best: float) -> Acquired:
        value, by_mean, by_std = function(mean, factor * std, *best)
        return Acquired(value, by_mean, factor * by_std)

    return wide  # type: ignore[return-value]


def wide_log_expected_improvement(mean: Array, std: Array, best: float) -> Acquired:
    """`widened` log EI, as a function that can be pickled."""
    return widened(log_expected_improvement)(mean, std, best)


LOG_EI = Acquisition(log_expected_improvement)
WIDE_EI = Acquisition(wide_log_expected_improvement)
UCB = Acquisition(log_confidence_bound)
ACQUISITIONS = {
    # Under noise the improvements that can be expected near the incumbent are soon too small to be measured, and
    # expected improvement stays there. The confidence bound goes on exploring (docs/notebook.md). Without noise, a
    # model that is too sure may refine a local optimum for a hundred evaluations.
    "auto": replace(LOG_EI, if_noisy=UCB, in_doubt=WIDE_EI),
    "logei": LOG_EI,
    "ei": LOG_EI,
    "pi": Acquisition(probability_of_improvement),
    "ucb": UCB,
}


def check_acquisition(given: object) -> Acquisition:
    """The acquisition of this name, or the one that was given. A plain function counts as a logarithm."""
    if isinstance(given, Acquisition):
        _try(given.function)
        return given
    if callable(given):
        _try(given)
        return Acquisition(given)
    return ACQUISITIONS[checks.one_of("acquisition", given, tuple(ACQUISITIONS))]


def _try(function: Function) -> None:
    """Raise a ValueError if a function does not work on two points: its first real use may be hours later."""
    expected = "acquisition(mean, std, best) must return three arrays like mean: its value, ∂/∂mean and ∂/∂std"
    try:
        found = function(np.array([0.0, 1.0]), np.array([1.0, 0.5]), 0.5)
    except Exception as error:  # the function is the user's: anything can go wrong in it
        raise ValueError(f"{expected}, but raised {type(error).__name__}: {error}") from error
    if not isinstance(found, tuple) or [np.shape(part) for part in found] != [(2,)] * 3:
        raise ValueError(f"{expected}, not {checks.shortened(found)}")


def _density(z: Array) -> Array:
    return np.exp(-0.5 * z * z) * (1.0 / SQRT_2PI)


def _ratio(z: Array) -> Array:
    """Φ(z)/φ(z) = √(π/2) erfcx(-z/√2), without underflow in the tail."""
    ratio: Array = erfcx(z * -SQRT_HALF)
    ratio *= 0.5 * SQRT_2PI
    return ratio


def _log_h(z: Array) -> tuple[Array, Array]:
    """log(φ(z) + z Φ(z)) and its derivative Φ(z) / (φ(z) + z Φ(z)). Branches that no entry needs are not computed."""
    inner = ((z > FAR_TAIL) & (z < LARGE)).all()
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


# ---------------------------------------------------------------- several outputs


def improvement(function: Function, best: float) -> Joint:
    """An acquisition of one objective."""

    def joint(mean: Array, std: Array) -> Acquired:
        value, by_mean, by_std = function(mean[0], std[0], best)
        return Acquired(value, by_mean[None], by_std[None])

    return joint


def averaged(joint: Joint, outputs: Sequence[tuple[Array, Array, Array]]) -> Array:
    """log Σ w exp(a): the logarithm of the mean of an acquisition, a logarithm itself, over all particles, (m,).

    Each output has the logarithms of its particles' weights, (s,), and their means and deviations, (s, m). The
    particles of different outputs are independent, so the mean is over all combinations of them. Where these would be
    too many, only the heaviest particles of each output count.
    """
    weights, means, stds = zip(*outputs, strict=True)
    several = sum(len(each) > 1 for each in weights)
    most = int(COMBINATIONS ** (1.0 / max(several, 1)) + 1e-9)
    kept = [np.argsort(-each, kind="stable")[:most] for each in weights]
    # One row of particles for each output, one column for each combination.
    places = np.unravel_index(np.arange(math.prod(map(len, kept))), [len(each) for each in kept])
    which = [rows[place] for rows, place in zip(kept, places, strict=True)]
    mean, std = (np.array([each[rows] for each, rows in zip(part, which, strict=True)]) for part in (means, stds))
    values = joint(mean.reshape(len(outputs), -1), std.reshape(len(outputs), -1)).value.reshape(mean.shape[1:])
    if len(values) == 1:
        return np.asarray(values[0])
    logs = np.add.reduce([each[rows] for each, rows in zip(weights, which, strict=True)])
    return log_sum_exp(values + (logs - log_sum_exp(logs))[:, None])


def log_sum_exp(logs: Array, axis: int = 0) -> Array:
    """log Σ exp(a) along an axis. The largest terms are counted apart, for precision, as SciPy does in more time."""
    largest = logs.max(axis=axis, keepdims=True)
    apart = logs == largest
    rest = np.subtract(logs, largest, out=np.full_like(logs, -np.inf), where=~apart)
    count = np.add.reduce(apart, axis=axis, keepdims=True, dtype=np.float64)
    total = np.add.reduce(np.exp(rest), axis=axis, keepdims=True)
    found = np.log1p(total / count) + np.log(count) + largest
    return np.asarray(found.squeeze(axis=axis))


def feasibility(thresholds: Sequence[float]) -> Joint:
    """Σ log P(constraint ≤ t) of independent constraints."""

    def joint(mean: Array, std: Array) -> Acquired:
        parts = [probability_of_improvement(*each) for each in zip(mean, std, thresholds, strict=True)]
        value = np.sum([part.value for part in parts], axis=0)
        return Acquired(value, np.array([part.by_mean for part in parts]), np.array([part.by_std for part in parts]))

    return joint


def constrained(objectives: Joint, count: int, constraints: Joint, caution: float = 1.0) -> Joint:
    """The sum of a part of the first ``count`` outputs, and ``caution`` times a part of the others."""

    def joint(mean: Array, std: Array) -> Acquired:
        first, second = objectives(mean[:count], std[:count]), constraints(mean[count:], std[count:])
        return Acquired(
            first.value + caution * second.value,
            np.concatenate((first.by_mean, caution * second.by_mean)),
            np.concatenate((first.by_std, caution * second.by_std)),
        )

    return joint


def per_cost(others: Joint, weight: float) -> Joint:
    """An acquisition of all outputs but the last, minus ``weight`` times the mean of the last, the logarithm of cost.

    The uncertainty of the cost does not count.
    """

    def joint(mean: Array, std: Array) -> Acquired:
        value, by_mean, by_std = others(mean[:-1], std[:-1])
        return Acquired(
            value - weight * mean[-1],
            np.concatenate((by_mean, np.full_like(mean[-1:], -weight))),
            np.concatenate((by_std, np.zeros_like(std[-1:]))),
        )

    return joint


class ChebyshevImprovement:
    """The logarithm of the expected improvement of maxⱼ wⱼ (yⱼ - idealⱼ), for any number of objectives.

    The maximum of independent normal variables is below τ with the probability Πⱼ Φ(zⱼ(τ)), so its expected improvement
    on b is the integral of this product up to b. With τ = b - e^s it is smooth in s, and the trapezoidal rule is exact
    enough with few nodes.
    """

    def __init__(self, front: Array, weights: Array) -> None:
        self._ideal = front.min(axis=0)
        width = front.max(axis=0) - self._ideal
        self._weights = weights / np.where(width > 0, width, 1.0)
        self._best = float((self._weights * (front - self._ideal)).max(axis=1).min())

    def __call__(self, mean: Array, std: Array) -> Acquired:
        """The value, (m,), and its derivatives by μ and σ, each (q, m)."""
        w = self._weights[:, None]
        center, spread = w * (mean - self._ideal[:, None]), w * np.maximum(std, MIN_STD)
        reach = np.maximum(self._best - center.max(axis=0), 0.0) + TAIL * spread.max(axis=0)
        shares = 10.0 ** np.linspace(-DECADES, 0.0, NODES)
        below = reach[:, None] * shares  # b - τ, (m, nodes)
        z = (self._best - below - center[:, :, None]) / spread[:, :, None]
        # dτ = (b - τ) ds; the constant step of s does not change the maxima.
        logs = log_ndtr(z).sum(axis=0) + np.log(below)
        value = log_sum_exp(logs, axis=1)
        share = np.exp(logs - value[:, None])
        # d log Φ(z) = φ/Φ dz
        ratio = np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
        by_center = -np.einsum("mk,jmk->jm", share, ratio) / spread
        by_spread = -np.einsum("mk,jmk->jm", share, ratio * z) / spread
        return Acquired(value + np.log(np.log(10.0) * DECADES / (NODES - 1)), w * by_center, w * by_spread)
