"""Acquisitions of several outputs: one objective or several, and constraints. All are minimised.

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

from collections.abc import Sequence

import numpy as np
from scipy.special import log_ndtr, logsumexp

from lazybo.core.checks import Array
from lazybo.search.acquisition import MIN_STD, Acquisition, Judge, Judged, probability_of_improvement

# Nodes of the integral of the Chebyshev improvement, evenly spaced in the logarithm over so many decades.
NODES = 48
DECADES = 5.0
# The integral ends so many standard deviations beyond the means.
TAIL = 6.0


def improvement(acquisition: Acquisition, best: float) -> Judge:
    """An acquisition of one objective."""

    def judge(mean: Array, std: Array) -> Judged:
        value, by_mean, by_std = acquisition(mean[0], std[0], best)
        return Judged(value, by_mean[None], by_std[None])

    return judge


def feasibility(thresholds: Sequence[float]) -> Judge:
    """Σ log P(constraint ≤ t) of independent constraints."""

    def judge(mean: Array, std: Array) -> Judged:
        parts = [probability_of_improvement(*each) for each in zip(mean, std, thresholds, strict=True)]
        value = np.sum([part.value for part in parts], axis=0)
        return Judged(value, np.array([part.by_mean for part in parts]), np.array([part.by_std for part in parts]))

    return judge


def constrained(objectives: Judge, count: int, constraints: Judge, caution: float = 1.0) -> Judge:
    """The sum of a part of the first ``count`` outputs, and ``caution`` times a part of the others."""

    def judge(mean: Array, std: Array) -> Judged:
        first, second = objectives(mean[:count], std[:count]), constraints(mean[count:], std[count:])
        return Judged(
            first.value + caution * second.value,
            np.concatenate((first.by_mean, caution * second.by_mean)),
            np.concatenate((first.by_std, caution * second.by_std)),
        )

    return judge


def per_cost(others: Judge, weight: float) -> Judge:
    """An acquisition of all outputs but the last, minus ``weight`` times the mean of the last, the logarithm of cost.

    The uncertainty of the cost does not count.
    """

    def judge(mean: Array, std: Array) -> Judged:
        value, by_mean, by_std = others(mean[:-1], std[:-1])
        return Judged(
            value - weight * mean[-1],
            np.concatenate((by_mean, np.full_like(mean[-1:], -weight))),
            np.concatenate((by_std, np.zeros_like(std[-1:]))),
        )

    return judge


def widened(judge: Judge, factor: float) -> Judge:
    """The same with larger standard deviations: it explores more, for a model that is too sure."""

    def wide(mean: Array, std: Array) -> Judged:
        value, by_mean, by_std = judge(mean, factor * std)
        return Judged(value, by_mean, factor * by_std)

    return wide


class ChebyshevImprovement:
    """The logarithm of the expected improvement of maxⱼ wⱼ (yⱼ - idealⱼ), for any number of objectives: a `Judge`.

    The maximum of independent normal variables is below τ with the probability Πⱼ Φ(zⱼ(τ)), so its expected improvement
    on b is the integral of this product up to b. With τ = b - e^s it is smooth in s, and the trapezoidal rule is exact
    enough with few nodes.
    """

    def __init__(self, front: Array, weights: Array) -> None:
        self._ideal = front.min(axis=0)
        width = front.max(axis=0) - self._ideal
        self._weights = weights / np.where(width > 0, width, 1.0)
        self._best = float((self._weights * (front - self._ideal)).max(axis=1).min())

    def __call__(self, mean: Array, std: Array) -> Judged:
        """The value, (m,), and its derivatives by μ and σ, each (q, m)."""
        w = self._weights[:, None]
        center, spread = w * (mean - self._ideal[:, None]), w * np.maximum(std, MIN_STD)
        reach = np.maximum(self._best - center.max(axis=0), 0.0) + TAIL * spread.max(axis=0)
        shares = 10.0 ** np.linspace(-DECADES, 0.0, NODES)
        below = reach[:, None] * shares  # b - τ, (m, nodes)
        z = (self._best - below - center[:, :, None]) / spread[:, :, None]
        # dτ = (b - τ) ds; the constant step of s does not change the maxima.
        logs = log_ndtr(z).sum(axis=0) + np.log(below)
        value = logsumexp(logs, axis=1)
        share = np.exp(logs - value[:, None])
        # d log Φ(z) = φ/Φ dz
        ratio = np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
        by_center = -np.einsum("mk,jmk->jm", share, ratio) / spread
        by_spread = -np.einsum("mk,jmk->jm", share, ratio * z) / spread
        return Judged(value + np.log(np.log(10.0) * DECADES / (NODES - 1)), w * by_center, w * by_spread)
