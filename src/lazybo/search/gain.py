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
in the units of the objective; the expected gain is the mean over the futures.

The candidates are fixed points: the incumbents, the maxima of the acquisition, points around both, and the pool. A real
search finds better points in between, a real objective is less regular than the model: `python -m benchmarks.gain`
prints how far predictions are from what happened.
"""

from collections.abc import Sequence

import numpy as np

from lazybo.checks import Array
from lazybo.model.process import Process
from lazybo.model.targets import Warping
from lazybo.search.acquisition import log_expected_improvement

FUTURES = 32


def play(
    process: Process, points: Array, evaluated: int, horizon: int, rng: np.random.Generator, futures: int = FUTURES
) -> Array:
    """The best mean of each future before and after each of ``horizon`` evaluations, (s, h + 1).

    The first ``evaluated`` points were evaluated already.
    """
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


def gains(best: Array, warping: Warping, horizons: Sequence[int]) -> list[float]:
    """The expected gain of the first so many evaluations, in the units of the objective, for each of the horizons."""
    start = warping.inverse(best[:1, 0])[0]
    # Halves, since the difference of two doubles may overflow.
    improved = start / 2 - warping.inverse(best[:, list(horizons)].ravel()).reshape(len(best), -1) / 2
    return [float(2 * max(gain, 0.0)) for gain in improved.mean(axis=0)]
