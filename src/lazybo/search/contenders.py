"""The final check: which evaluated configuration is the best, and which one to evaluate once more.

======  ===================================================================  ======
symbol  meaning                                                              shape
======  ===================================================================  ======
μ, Σ    posterior mean and joint covariance of the contenders                (m,), (m, m)
Σᵖ      the covariance when the pending evaluations will have been told      (m, m)
s²      variance of the noise in one more evaluation of each contender       (m,)
δ       differences up to this do not matter                                 scalar
l, c    the leader, with the best mean; its closest challenger               index
======  ===================================================================  ======

The *chance* of a contender is the probability that no other is better by more than δ, by joint draws from N(μ, Σ).
Values are minimised. The check ends when the chance of the leader is `SURE`.

Otherwise the next repeat is the one that tells most about the closest race. The challenger c is the contender whose
difference to the leader is smallest in units of its standard deviation. One more evaluation of i reduces the variance
of f_c - f_l by (Σᵖ_ic - Σᵖ_il)² / (Σᵖ_ii + s²_i), and the largest reduction is chosen. Since the closest race is served
each time, no challenger falls behind. Pending repeats are in Σᵖ, so several workers share the races.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lazybo.core.checks import Array
from lazybo.gp.posterior import root_of
from lazybo.search.prediction import Evaluation, Predictor, by_configuration, mean_value

# The leader's chance at which the check ends.
SURE = 0.95
# Smaller chances are negligible: such configurations are not listed.
NEGLIGIBLE = 0.01
# So many configurations with the best means are compared.
MOST = 128
DRAWS = 4096
# Less noise than this share of the targets' variance was learned from a surface that looks smooth. One repeat tests it.
UNTESTED_NOISE = 1e-3
# Variances of differences are raised to this, in units of the targets².
MIN_VARIANCE = 1e-18


@dataclass(frozen=True, slots=True)
class Contender:
    """An evaluated configuration that may be the best one.

    ``chance`` is the probability, by the model, that no other evaluated configuration is better by more than a
    thousandth of the spread of the values. So the chances of equally good ones add up to more than 1. The other
    entries are those of `Recommendation`.
    """

    params: dict[str, Any]
    chance: float
    value: float
    low: float
    high: float
    measured: float
    evaluations: int
    number: int | None


def chances(mean: Array, covariance: Array, equal: float, rng: np.random.Generator) -> Array:
    """The chance of each contender, (m,)."""
    draws = mean + rng.standard_normal((DRAWS, len(mean))) @ root_of(covariance).T
    return np.asarray((draws <= draws.min(axis=1, keepdims=True) + equal).mean(axis=0))


def next_repeat(mean: Array, covariance: Array, noise: Array) -> int:
    """The contender to evaluate once more: μ, Σᵖ and s² -> its index."""
    leader, variance = int(np.argmin(mean)), np.diag(covariance)
    of_difference = np.maximum(variance + variance[leader] - 2 * covariance[leader], MIN_VARIANCE)
    distance = (mean - mean[leader]) / np.sqrt(of_difference)
    distance[leader] = np.inf
    challenger = int(np.argmin(distance))
    told = (covariance[challenger] - covariance[leader]) ** 2 / np.maximum(variance + noise, MIN_VARIANCE)
    return int(np.argmax(told))


class Race:
    """The contenders among some evaluations, by the model; ``seed`` is for the draws."""

    def __init__(self, predictor: Predictor, evaluations: Sequence[Evaluation], seed: int) -> None:
        self._predictor = predictor
        every = by_configuration(evaluations)
        self._any_repeated = any(len(repeated) > 1 for repeated in every)
        if predictor.exact:
            means = predictor.warping(predictor.sign * np.array([mean_value(repeated) for repeated in every]))
        else:
            means = predictor.means(np.array([first.point for first, *_ in every]))
        best = np.argsort(means, kind="stable")[:MOST]
        self._configurations = [every[i] for i in best]
        self._points = np.array([every[i][0].point for i in best])
        self._mean = means[best]
        self._at = predictor.space.as_rows(self._points)
        size = len(best)
        covariance = np.zeros((size, size)) if predictor.exact else predictor.process.told_covariance(self._at)
        self._chances = chances(self._mean, covariance, predictor.equal, np.random.default_rng((seed, 2)))

    @property
    def is_decided(self) -> bool:
        """Whether the leader is sure enough."""
        return bool(self._chances[0] >= SURE)

    def contenders(self) -> list[Contender]:
        """Those whose chance is not negligible, the largest first."""
        order = np.argsort(-self._chances, kind="stable")
        kept = [i for i in order if self._chances[i] >= NEGLIGIBLE]
        predictions = self._predictor.predictions(self._points[kept])
        return [
            Contender(
                params=dict(self._configurations[i][0].params),
                chance=float(self._chances[i]),
                value=expected.value,
                low=expected.low,
                high=expected.high,
                measured=mean_value(self._configurations[i]),
                evaluations=len(self._configurations[i]),
                number=self._configurations[i][0].number,
            )
            for i, expected in zip(kept, predictions, strict=True)
        ]

    def to_repeat(self, *, learns: bool) -> Evaluation | None:
        """The first evaluation of the configuration to repeat next; None if the leader is sure enough, or exact.

        If the model ``learns`` and knows of hardly any noise, but no repeat has shown that, the leader is repeated
        once: another value would teach the model its noise.
        """
        if self._predictor.exact:
            return None
        if learns and self._is_untested():
            return self._configurations[0][0]
        if self.is_decided:
            return None
        among = np.flatnonzero(self._chances >= NEGLIGIBLE)
        _, covariance = self._predictor.process.posterior_covariance(self._at[among])
        return self._configurations[among[next_repeat(self._mean[among], covariance, self._noise()[among])]][0]

    def _is_untested(self) -> bool:
        process = self._predictor.process
        pending = {row.tobytes() for row in process.X[np.isnan(process.targets)]}
        repeated = self._any_repeated or any(row.tobytes() in pending for row in self._at)
        unknown = self._noise()[0] < UNTESTED_NOISE * float(np.nanvar(process.targets))
        return unknown and not repeated

    def _noise(self) -> Array:
        """s²: the shared noise, and the mean of the known variances at each contender, (m,)."""
        process = self._predictor.process
        known = {row.tobytes(): i for i, row in enumerate(self._at)}
        total, count = np.zeros(len(self._at)), np.zeros(len(self._at))
        for row, variance in zip(process.X, self._predictor.known_variances, strict=True):
            i = known.get(row.tobytes())
            if i is not None:
                total[i] += variance
                count[i] += 1
        return process.noise + total / np.maximum(count, 1)
