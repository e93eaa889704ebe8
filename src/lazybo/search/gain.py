"""How much the next evaluations are expected to improve the best value, by the model.

======  ====================================================================  ==========
symbol  meaning                                                               shape
======  ====================================================================  ==========
s, m    futures that are played; candidates                                   scalar
μ, σ²   posterior mean and variance of the candidates in each future          (s, m)
Σ       their joint covariance before any future evaluation                   (m, m)
V       one row for each future evaluation, as V of the pool                  (s, h, m)
z       standard normal draws: what each evaluation will show                 (s, h)
σₙ²     variance of the noise                                                 scalar
======  ====================================================================  ==========

A future is played as the search would go on if the model is right: evaluate the candidate i with the largest expected
improvement, draw its value from the posterior, update the posterior, and so on. With p = √(σ²_i + σₙ²) an evaluation
has the row v = (Σ_i - Vᵢᵀ V) / p; then μ += v z and σ² -= v². The best value is the best posterior mean of what was
evaluated, so a lucky value counts as little as it should. The gain of a future is how much that mean has improved,
in the units of the objective; the mean over the futures is what the model expects. The candidates are fixed points: the
incumbents, the maxima of the acquisition, points around both, and the pool.

A model does not know that an objective has a bound (no error is below 0), and the search goes where it is most
optimistic: it expects two to ten times too much (docs/benchmarks-noise.md). What the last evaluations gained is
not biased, but often 0. The geometric mean of both is nearer to the truth than either.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lazybo.core import Array
from lazybo.gp import Posterior, Process, Warping
from lazybo.search.acquisition import log_expected_improvement

LARGEST = float(np.finfo(np.float64).max)
FUTURES = 32
# Earlier gains count as at least this share of what the model expects: no gain for a while does not mean none for ever.
LEAST_SHARE = 0.02


def play(
    posterior: Posterior, points: Array, evaluated: int, horizon: int, rng: np.random.Generator, futures: int = FUTURES
) -> Array:
    """The best mean of each future before and after each of ``horizon`` evaluations, (s, h + 1).

    The first ``evaluated`` points were evaluated already. Each future has the kernel of one particle, and the particles
    have as many futures as their weights say.
    """
    ends = np.rint(futures * np.cumsum(posterior.weights)).astype(int)
    counts = np.diff(ends, prepend=0).tolist()
    # Each has its own draws, so that a longer horizon changes none of the steps before.
    played = zip(posterior.processes, counts, rng.spawn(len(counts)), strict=True)
    return np.vstack(
        [_play(process, points, evaluated, horizon, own, count) for process, count, own in played if count]
    )


def _play(
    process: Process, points: Array, evaluated: int, horizon: int, rng: np.random.Generator, futures: int
) -> Array:
    """The futures of one particle."""
    mean, covariance = process.posterior_covariance(points)
    steps = min(horizon, len(points) - evaluated)
    mean, variance = np.tile(mean, (futures, 1)), np.tile(np.maximum(np.diag(covariance), 0.0), (futures, 1))
    seen = np.zeros(mean.shape, dtype=bool)
    seen[:, :evaluated] = True
    rows, each = np.zeros((futures, steps, mean.shape[1])), np.arange(futures)
    best = np.full((futures, horizon + 1), mean[0, :evaluated].min())
    for step in range(steps):
        acquired = log_expected_improvement(mean - best[:, step, None], np.sqrt(variance), 0.0).value
        chosen = np.argmax(np.where(seen, -np.inf, acquired), axis=1)
        pivot = np.sqrt(variance[each, chosen] + process.noise)
        before = rows[:, :step]
        row = covariance[chosen] - np.einsum("st,stm->sm", before[each, :, chosen], before)
        row /= pivot[:, None]
        rows[:, step] = row
        mean += row * rng.standard_normal(futures)[:, None]
        variance = np.maximum(variance - row**2, 0.0)
        seen[each, chosen] = True
        best[:, step + 1 :] = np.where(seen, mean, np.inf).min(axis=1)[:, None]
    return best


def played_gains(best: Array, warping: Warping, horizons: Sequence[int]) -> Array:
    """The mean gain of the futures after this many evaluations, in the units of the objective, for each horizon."""
    values = warping.inverse(best.ravel()).reshape(best.shape)
    # Divided before they are added, since the sum may overflow.
    gains = (_difference(values[:, :1], values) / len(best)).sum(axis=0)
    # More evaluations never expect less. A mean over few futures may: under noise a best mean also becomes worse.
    return np.asarray(np.maximum.accumulate(gains)[list(horizons)])


def earlier_gains(means: Array, warping: Warping, horizons: Sequence[int]) -> Array:
    """What the last evaluations gained: over the last equally long stretch in log n, from n²/(n + h) to n.

    ``means`` are the posterior means of the evaluations in their order, (n,).
    """
    best, n = warping.inverse(np.minimum.accumulate(means)), len(means)
    before = [max(round(n * n / (n + horizon)), 1) - 1 for horizon in horizons]
    return np.asarray(_difference(best[before], best[-1]))


class GainParts(NamedTuple):
    """What the model expects and what was gained earlier, for each horizon."""

    played: Array
    earlier: Array

    def expected(self) -> list[float]:
        """The expected gains: the geometric means of both."""
        # Roots first, since the product of two doubles may overflow.
        least = LEAST_SHARE * self.played
        return [float(gain) for gain in np.sqrt(self.played) * np.sqrt(np.maximum(self.earlier, least))]


def _difference(one: Array | float, other: Array) -> Array:
    """How much smaller the second value is; the largest double if the difference would overflow."""
    halves = np.asarray(one) / 2 - other / 2
    return np.asarray(2 * np.clip(halves, -LARGEST / 2, LARGEST / 2))
