"""What the model expects of configurations, in the units of the objective and without the noise of a measurement.

The process knows warped values. A warping is monotone, so it maps quantiles to quantiles: the inverse of the mean is
the median, the inverses of the mean ± 1.96 standard deviations are the ends of the 95 % interval.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazybo.core import text
from lazybo.core.checks import Array
from lazybo.gp.posterior import NO_VALUE
from lazybo.gp.process import Process
from lazybo.gp.targets import Warping
from lazybo.space.space import Space

# Half the width of a 95 % interval, in standard deviations.
HALF_WIDTH = 1.959964
# Posterior means that differ by less, in standard deviations of the targets, count as equal. Without noise the means
# near the optimum differ less than the model can know, and the value that was measured is the better judge.
EQUAL_MEANS = 1e-3
# The share of learned noise that is taken for real: a kernel is too smooth for a rugged objective, and takes what it
# cannot follow for noise. With 0, the recommended configuration was often worse than the best one on such objectives
# (docs/tuning.md). The weight of k measurements is that of k values with this share of signal.
REAL_SHARE = 0.05
# Points at a time: bounds the work space to this many columns of K.
BLOCK_POINTS = 512


@dataclass(frozen=True, slots=True)
class Prediction:
    """The median (``value``) and the 95 % interval of the objective at a configuration.

    The interval is that of the objective itself; a noisy measurement there scatters more. It is the model's own: under
    noise it is too narrow (`python -m benchmarks.recommend`).
    """

    value: float
    low: float
    high: float

    def _repr_html_(self) -> str:
        return text.table(f"Prediction {text.interval(self.value, self.low, self.high)}", (), ())


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The configuration to use, and the objective there by the model: the median (``value``) and the 95 % interval.

    ``measured`` is what was measured there, the mean if it was evaluated several times (``evaluations``). ``number`` is
    that of its first evaluation: a suggestion or a trial. It is None if that was observed rather than asked for.
    """

    params: dict[str, Any]
    value: float
    low: float
    high: float
    measured: float
    evaluations: int
    number: int | None

    def _repr_html_(self) -> str:
        expected = text.interval(self.value, self.low, self.high)
        times = f", the mean of {self.evaluations}" if self.evaluations > 1 else ""
        note = f"Expected {expected}; measured {text.shown(self.measured)}{times}."
        which = "" if self.number is None else f" {self.number}"
        return text.table(f"Recommended{which}", ("", ""), self.params.items(), note)


class Evaluation(NamedTuple):
    """An evaluation that may be recommended; ``value`` is in the units of the objective."""

    params: Mapping[str, Any]
    point: Array
    value: float
    number: int | None


@dataclass(frozen=True, slots=True)
class Predictor:
    """A process with the way from points to it and back to values.

    ``sign`` is -1 if the objective is maximised: in the process and its warping small is good. ``forecasts`` are the
    rows of the process whose value is a forecast, not a measurement. If the values are ``exact``, that is, have no
    noise, what was measured is the objective itself.
    """

    space: Space
    process: Process
    warping: Warping
    sign: float
    forecasts: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    exact: bool = False

    def predictions(self, points: Array) -> list[Prediction]:
        """One prediction for each point, (m, d)."""
        found: list[Prediction] = []
        for rows in self._blocks(points):
            posterior = self.process.posterior(rows)
            half_width = self.sign * HALF_WIDTH * np.sqrt(posterior.variance)
            quantiles = (posterior.mean, posterior.mean - half_width, posterior.mean + half_width)
            # Adding 0 makes 0 of -0.
            median, low, high = (self.sign * self.warping.inverse(quantile) + 0.0 for quantile in quantiles)
            # An inverse rounds, so the ends of a narrow interval may be on the wrong side by a rounding.
            low, high = np.minimum(low, median), np.maximum(high, median)
            found += map(Prediction, median.tolist(), low.tolist(), high.tolist())
        return found

    def recommendation(self, evaluations: Sequence[Evaluation]) -> Recommendation:
        """Of these evaluations the configuration with the best posterior mean.

        What was measured there counts a little beside the mean (`REAL_SHARE`). If means are equal (`EQUAL_MEANS`) the
        better value counts, then the earlier evaluation. Of exact values the best one is recommended.
        """
        configurations = by_configuration(evaluations)
        points = np.array([first.point for first, *_ in configurations])
        values = np.array([mean_value(repeated) for repeated in configurations])
        means = self.warping(self.sign * values) if self.exact else self.means(points)
        if not self.known_variances.any():
            repeats = np.array([len(repeated) for repeated in configurations])
            weights = repeats * REAL_SHARE / (1.0 - REAL_SHARE + repeats * REAL_SHARE)
            means = means + weights * (self.warping(self.sign * values) - means)
        equal = np.flatnonzero(means <= means.min() + self.equal)
        best = int(equal[np.argmin(self.sign * values[equal])])
        chosen, (prediction,) = configurations[best], self.predictions(points[best : best + 1])
        return Recommendation(
            params=dict(chosen[0].params),
            value=prediction.value,
            low=prediction.low,
            high=prediction.high,
            measured=float(values[best]),
            evaluations=len(chosen),
            number=chosen[0].number,
        )

    def means(self, points: Array) -> Array:
        """The posterior means at these points, in units of the targets, (m,)."""
        return np.concatenate([self.process.mean(rows) for rows in self._blocks(points)])

    @property
    def known_variances(self) -> Array:
        """Known variances of the noise of all rows, 0 where none is known or nothing was measured, (n,)."""
        known = np.where(self.process.known_variances < NO_VALUE, self.process.known_variances, 0.0)
        known[self.forecasts] = 0.0
        return known

    @property
    def equal(self) -> float:
        """Posterior means that differ by less count as equal, in units of the targets."""
        return EQUAL_MEANS * float(np.nanstd(self.process.targets))

    def _blocks(self, points: Array) -> Iterator[Array]:
        rows = self.space.as_rows(points)
        return (rows[start : start + BLOCK_POINTS] for start in range(0, len(rows), BLOCK_POINTS))


@dataclass(frozen=True, slots=True)
class Limit:
    """An output that must be at most a ``threshold``, in units of the targets of its process.

    With the posterior mean μ and deviation σ at a point, the chance of that is Φ((threshold - μ) / σ).
    """

    process: Process
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
