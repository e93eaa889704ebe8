"""What the model expects of configurations, in the units of the objective and without the noise of a measurement.

The processes know warped values. A warping is monotone, so it maps quantiles to quantiles: the ends of the 95 %
interval are the inverses of the quantiles of the mixture. The value in between is the inverse of its mean.

The *final check* finds out which evaluated configuration is the best, and which one to evaluate once more.

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

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from lazybo.core import Array, texts
from lazybo.gp import Posterior, Priors, Warping
from lazybo.search.acquisition import MIN_STD
from lazybo.search.records import Index
from lazybo.space import Space

# The ends of a 95 % interval, as quantiles and in standard deviations from the mean of a normal distribution.
INTERVAL = (0.025, 0.975)
HALF_WIDTH = 1.959964
# No kernel is quite right, and values that a search has chosen are no random sample. With standard deviations larger by
# this factor, the intervals contain the truth as often as they say (`python -m benchmarks.calibration`).
WIDENED = 1.5
# Posterior means that differ by less, in standard deviations of the targets, count as equal. Without noise the means
# near the optimum differ less than the model can know, and the value that was measured is the better judge.
EQUAL_MEANS = 1e-3
# The share of learned noise that is taken for real: a kernel is too smooth for a rugged objective, and takes what it
# cannot follow for noise. With 0, the recommended configuration was often worse than the best one on such objectives
# (docs/notebook.md), and its interval too narrow. k measurements weigh as much as k values with this share of signal.
REAL_SHARE = 0.1
# Batch size: limits memory to this many columns of K.
BLOCK_POINTS = 512
# The leader's chance at which the check ends.
SURE = 0.95
# Smaller chances are negligible: such configurations are not listed.
NEGLIGIBLE = 0.01
# This many configurations with the best means are compared.
MOST = 128
DRAWS = 4096
# Less noise than this share of the targets' variance was learned from a surface that looks smooth. One repeat tests it.
UNTESTED_NOISE = 1e-3
# Variances of differences are raised to this, in units of the targets².
MIN_VARIANCE = 1e-18


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model expects (``value``) and the 95 % interval of the objective at a configuration.

    The interval is for the objective itself; a noisy measurement there scatters more.
    `python -m benchmarks.calibration` measures how often it contains the truth.
    """

    value: float
    low: float
    high: float

    def _repr_html_(self) -> str:
        return texts.table(f"Prediction {texts.interval(self.value, self.low, self.high)}", (), ())


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The configuration to use, and the objective there by the model: what it expects (``value``), the 95 % interval.

    ``measured`` is what was measured there, the mean if it was evaluated several times (``evaluations``). ``number`` is
    the number of its first evaluation: a suggestion or a trial. It is None if that was observed, not asked for.
    """

    params: dict[str, Any]
    value: float
    low: float
    high: float
    measured: float
    evaluations: int
    number: int | None

    def _repr_html_(self) -> str:
        expected = texts.interval(self.value, self.low, self.high)
        times = f", the mean of {self.evaluations}" if self.evaluations > 1 else ""
        note = f"Expected {expected}; measured {texts.shown(self.measured)}{times}."
        which = "" if self.number is None else f" {self.number}"
        return texts.table(f"Recommended{which}", ("", ""), self.params.items(), note)


class Evaluation(NamedTuple):
    """An evaluation that may be recommended; ``value`` is in the units of the objective."""

    params: Mapping[str, Any]
    point: Array
    value: float
    number: int | None


@dataclass(frozen=True, slots=True)
class Predictor:
    """A posterior with the way from points to it and back to values.

    ``sign`` is -1 if the objective is maximised: in the posterior and its
    warping small is good. ``forecasts`` are the rows whose value is a forecast, not a measurement. If the values are
    ``exact``, that is, have no noise, what was measured is the objective itself.
    """

    space: Space
    posterior: Posterior
    warping: Warping
    sign: float
    forecasts: Index = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    exact: bool = False

    def predictions(self, points: Array) -> list[Prediction]:
        """One prediction for each point, (m, d)."""
        blocks = (self.posterior.components(rows) for rows in self._blocks(points))
        return [prediction for found in blocks for prediction in self._in_values(*found.interval(INTERVAL, WIDENED))]

    def recommendation(self, evaluations: Sequence[Evaluation]) -> Recommendation:
        """Of these evaluations the configuration with the best posterior mean.

        What was measured there counts a little, too (`REAL_SHARE`). If means are equal (`EQUAL_MEANS`) the
        better value counts, then the earlier evaluation. Of exact values the best one is recommended.
        """
        configurations = by_configuration(evaluations)
        points = np.array([first.point for first, *_ in configurations])
        values = np.array([mean_value(repeated) for repeated in configurations])
        means = self.warping(self.sign * values) if self.exact else self.means(points)
        means = means + self._real(configurations) * (self.warping(self.sign * values) - means)
        equal = np.flatnonzero(means <= means.min() + self.equal)
        best = int(equal[np.argmin(self.sign * values[equal])])
        chosen = configurations[best]
        return Recommendation(**_described(chosen, self.evaluated([chosen])[0]))

    def evaluated(self, configurations: Sequence[Sequence[Evaluation]]) -> list[Prediction]:
        """One prediction for each of some evaluated configurations, given all evaluations of each.

        The intervals are at least as wide as those of `predictions`. A share of what a particle calls noise may be real
        (`REAL_SHARE`): then the objective is nearer to what was measured. If there may be no noise at all, the interval
        contains what was measured, also where the model would rather believe the neighbours.
        """
        points = np.array([first.point for first, *_ in configurations])
        values = np.array([mean_value(repeated) for repeated in configurations])
        found = self.predictions(points)
        if self.known_variances.any():
            return found
        ends = [found, self._partly_real(points, values, self._real(configurations))]
        quiet = [process.noise <= Priors.NOISY for process in self.posterior.processes]
        if self.posterior.weights @ quiet > INTERVAL[0]:
            ends.append([Prediction(value, value, value) for value in values.tolist()])
        return [
            replace(each, low=min(end.low for end in all_ends), high=max(end.high for end in all_ends))
            for each, all_ends in zip(found, zip(*ends, strict=True), strict=True)
        ]

    def _partly_real(self, points: Array, values: Array, real: Array) -> list[Prediction]:
        """Predictions where these values were measured, if a share of each particle's noise is signal."""
        parts = self.posterior.components(self.space.points.as_rows(points))
        noise = np.array([[process.noise] for process in self.posterior.processes])
        mean = parts.mean + real * (self.warping(self.sign * values) - parts.mean)
        std = np.sqrt(parts.std**2 + REAL_SHARE * noise * (1.0 - real))
        return self._in_values(*parts._replace(mean=mean, std=std).interval(INTERVAL, WIDENED))

    def _real(self, configurations: Sequence[Sequence[Evaluation]]) -> Array:
        """How much what was measured at each configuration counts beside the posterior mean, (m,)."""
        if self.known_variances.any():
            return np.zeros(len(configurations))
        repeats = np.array([len(repeated) for repeated in configurations])
        return repeats * REAL_SHARE / (1.0 - REAL_SHARE + repeats * REAL_SHARE)

    def _in_values(self, middle: Array, *ends: Array) -> list[Prediction]:
        """Predictions in the units of the objective, from targets and the ends of their intervals."""
        # Adding 0 makes 0 of -0.
        value, low, high = (self.sign * self.warping.inverse(each) + 0.0 for each in (middle, *ends[:: int(self.sign)]))
        # An inverse rounds, so the ends of a narrow interval may be on the wrong side by a rounding.
        low, high = np.minimum(low, value), np.maximum(high, value)
        return list(map(Prediction, value.tolist(), low.tolist(), high.tolist()))

    def below(self, points: Array, target: float) -> Array:
        """The probabilities that the objective is below a ``target``, in units of the targets, (m,)."""
        found = [self.posterior.components(rows).below(target, WIDENED) for rows in self._blocks(points)]
        return np.concatenate(found)

    @staticmethod
    def widths() -> dict[str, Any]:
        """How intervals follow from deviations, as plain data: their quantiles, a factor, the least deviation."""
        return {"interval": INTERVAL, "widened": WIDENED, "minDeviation": MIN_STD}

    def left_out(self, most: int) -> tuple[Array, Array, Array]:
        """Of at most this many targets: each, its mean given the others, and half the width of the interval there."""
        found = self.posterior.left_out(most)
        return self.posterior.targets[found.rows], found.mean, HALF_WIDTH * found.deviation

    def means(self, points: Array) -> Array:
        """The posterior means at these points, in units of the targets, (m,)."""
        return np.concatenate([self.posterior.mean(rows) for rows in self._blocks(points)])

    @property
    def known_variances(self) -> Array:
        """Known variances of the noise of all rows, 0 where none is known or nothing was measured, (n,)."""
        rows = self.posterior.leading.rows
        known = np.where(rows.informative, rows.known, 0.0)
        known[self.forecasts] = 0.0
        return known

    @property
    def equal(self) -> float:
        """Posterior means that differ by less count as equal, in units of the targets."""
        return EQUAL_MEANS * float(np.nanstd(self.posterior.targets))

    def _blocks(self, points: Array) -> Iterator[Array]:
        rows = self.space.points.as_rows(points)
        return (rows[start : start + BLOCK_POINTS] for start in range(0, len(rows), BLOCK_POINTS))


@dataclass(frozen=True, slots=True)
class Limit:
    """An output that must be at most a ``threshold``, in units of the targets of its processes.

    With the posterior mean μ and deviation σ of a particle at a point, the chance of that is Φ((threshold - μ) / σ).
    """

    posterior: Posterior
    threshold: float


def by_configuration(evaluations: Sequence[Evaluation]) -> list[list[Evaluation]]:
    """The evaluations of each configuration, in the order of the first ones."""
    repeats: dict[bytes, list[Evaluation]] = {}
    for evaluation in evaluations:
        repeats.setdefault(evaluation.point.tobytes(), []).append(evaluation)
    return list(repeats.values())


def mean_value(evaluations: Sequence[Evaluation]) -> float:
    """The mean of finite values, also of the largest ones, whose sum is not finite."""
    values = [each.value for each in evaluations]
    exponent = math.frexp(max(map(abs, values)))[1]
    return math.ldexp(fmean(math.ldexp(value, -exponent) for value in values), exponent)


def _described(repeated: Sequence[Evaluation], expected: Prediction) -> dict[str, Any]:
    """What a recommendation says of a configuration: its evaluations, and what the model expects."""
    return {
        "params": dict(repeated[0].params),
        "value": expected.value,
        "low": expected.low,
        "high": expected.high,
        "measured": mean_value(repeated),
        "evaluations": len(repeated),
        "number": repeated[0].number,
    }


# ------------------------------------------------------------------- final check


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender(Recommendation):
    """An evaluated configuration that may be the best one.

    ``chance`` is the probability, by the model, that no other evaluated configuration is better by more than a
    thousandth of the spread of the values. So the chances of equally good ones add up to more than 1.
    """

    chance: float


def chances(mean: Array, covariance: Array, equal: float, rng: np.random.Generator) -> Array:
    """The chance of each contender, (m,)."""
    draws = mean + rng.standard_normal((DRAWS, len(mean))) @ Posterior.root_of(covariance).T
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


class FinalCheck:
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
        self._at = predictor.space.points.as_rows(self._points)
        size = len(best)
        covariance = np.zeros((size, size)) if predictor.exact else predictor.posterior.told_covariance(self._at)
        self._chances = chances(self._mean, covariance, predictor.equal, np.random.default_rng((seed, 2)))

    def contenders(self) -> list[Contender]:
        """Those whose chance is not negligible, the largest first."""
        order = np.argsort(-self._chances, kind="stable")
        kept = [i for i in order if self._chances[i] >= NEGLIGIBLE]
        predictions = self._predictor.evaluated([self._configurations[i] for i in kept])
        return [
            Contender(chance=float(self._chances[i]), **_described(self._configurations[i], expected))
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
        if self._chances[0] >= SURE:
            return None
        among = np.flatnonzero(self._chances >= NEGLIGIBLE)
        _, covariance = self._predictor.posterior.posterior_covariance(self._at[among])
        return self._configurations[among[next_repeat(self._mean[among], covariance, self._noise()[among])]][0]

    def _is_untested(self) -> bool:
        posterior = self._predictor.posterior
        pending = {row.tobytes() for row in posterior.X[np.isnan(posterior.targets)]}
        repeated = self._any_repeated or any(row.tobytes() in pending for row in self._at)
        unknown = self._noise()[0] < UNTESTED_NOISE * float(np.nanvar(posterior.targets))
        return unknown and not repeated

    def _noise(self) -> Array:
        """s²: the shared noise, and the mean of the known variances at each contender, (m,)."""
        posterior = self._predictor.posterior
        known = {row.tobytes(): i for i, row in enumerate(self._at)}
        total, count = np.zeros(len(self._at)), np.zeros(len(self._at))
        for row, variance in zip(posterior.X, self._predictor.known_variances, strict=True):
            i = known.get(row.tobytes())
            if i is not None:
                total[i] += variance
                count[i] += 1
        return posterior.noise + total / np.maximum(count, 1)
