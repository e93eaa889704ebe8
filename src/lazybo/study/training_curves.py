"""Learning curves of the trials of a study, and forecasts of where those that did not complete would have ended.

=======  ==========================================================================  ======
symbol   meaning                                                                     shape
=======  ==========================================================================  ======
u, f     of trials that completed: the last reported value, and the final value      (m,)
=======  ==========================================================================  ======

The last value that a trial reports is usually its final value. If it is not (the final value may be the best one, or
come from another data set), a forecast of the last reported value is converted by a line, f ≈ α + β u with β ≥ 0,
fitted by least squares, whose variance is added.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from lazybo.core import Array
from lazybo.gp import CurveModel, Forecast
from lazybo.space import Space
from lazybo.study.feed import Feed
from lazybo.study.trial import TrialView, params_in, point_in

# Random configurations that represent a new trial.
RANDOM_POINTS = 32
# With fewer completed trials a line is not fitted.
MIN_POINTS = 4
# Few points may lie on a line by chance. So σ² has a prior: the variance of the ends, with the weight of this many
# points.
PRIOR_WEIGHT = 0.1
# The squares of very large values overflow.
MAX_VARIANCE = 1e300
# A paused training is resumed only if it beats the best finished one with this probability.
CHANCE = 0.5
# Final values that differ less from the last reported ones, in units of the largest, are the same.
SAME = 1e-9
# Rungs, at which the first trainings are compared: the last one as a share of a whole training, each has FACTOR times
# the steps of the one before, and one of FACTOR trainings continues. The first value of a training says little.
LAST_RUNG = 0.35
FACTOR = 3
MAX_RUNGS = 3
MIN_STEPS = 2


def rungs(steps: int) -> tuple[int, ...]:
    """The steps at which the first trainings are compared, for trainings of this many: (2, 6, 18) of 52."""
    found = {max(round(LAST_RUNG * steps / FACTOR**k), MIN_STEPS) for k in range(MAX_RUNGS)}
    return tuple(sorted(rung for rung in found if rung < steps))


class Final(NamedTuple):
    """The expected final value of a trial, and the variance of its error."""

    value: float
    variance: float


class Ending(NamedTuple):
    """A forecast of the last value of a curve: the median and the 95 % interval, in the study's units.

    Far outside the values seen so far the median is a bound, and the interval extends to the last reported value.
    """

    value: float
    low: float
    high: float


class TrainingCurves:
    """The learning curves of the trials of a study that have ended or are paused, and forecasts of their ends.

    ``objective`` is the position of the objective that trials report, ``direction`` its direction.
    """

    def __init__(
        self,
        space: Space,
        direction: Literal["minimize", "maximize"],
        *,
        objective: int = 0,
        max_step: int | None = None,
    ) -> None:
        self.space = space
        self._objective = objective
        self._sign = -1.0 if direction == "maximize" else 1.0
        self._model = CurveModel(space.points.columns, max_step=max_step)
        self.random_points = space.points.spread(np.random.default_rng(0), RANDOM_POINTS)
        self._random = space.points.as_rows(self.random_points)
        self._random_improvement = (0, 0.0, 0.0)  # number of curves, value, expected improvement of a random point
        self._numbers: list[int] = []  # of the trial of each curve
        self._last_steps: list[int] = []  # of each curve
        self._feed = Feed()
        self._finals: dict[int, tuple[float, float]] = {}  # u, f by number of the curve
        self._forecasts: dict[int, Final | None] = {}  # of final values, by number of the curve
        self._forecasts_at = 0  # `learned_at` of the model that made them; no curve was removed since
        self._paused: dict[int, int] = {}  # the last steps of paused trials, by number of the trial
        self.best: float | None = None  # the best last value of a completed, feasible trial; small is good

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def learned_at(self) -> int:
        """The number of curves when the model was last learned."""
        return self._model.learned_at

    @property
    def basis(self) -> str:
        """Identifies the curves that the model was last learned from, in their order. All forecasts depend on them."""
        learned_at = self.learned_at
        ends = [*zip(self._numbers, self._last_steps, strict=True)][:learned_at]
        return f"{learned_at}-{zlib.crc32(repr(ends).encode()):08x}"

    def add_new(self, trials: Sequence[FrozenTrial]) -> None:
        """Add the trials that have ended or were paused since the last call. Those that run again are removed.

        The order is that in which they ended or were paused, so it does not depend on when this is called.
        """
        news = self._feed.news(trials)
        for trial in news:
            if not TrialView(trial).is_paused:
                self.remove_paused(trial.number)
        for trial in sorted(news, key=lambda trial: TrialView(trial).handling.ended_at):
            if TrialView(trial).is_paused:
                self.add_paused(trial)
            elif trial.state.is_finished() and self._feed.settle(trial):
                self.add(trial)

    def add(self, trial: FrozenTrial) -> None:
        """Add a trial that has ended or is paused, unless it failed, has no curve or is from another space."""
        complete = trial.state == TrialState.COMPLETE
        ended = TrialView(trial).state in ("complete", "pruned", "paused")
        curve = self._curve(trial.params, trial.intermediate_values) if ended else None
        if curve is None:
            return
        if complete:
            last = curve[1][max(curve[1])]
            if trial.values is None or not math.isfinite(last):
                return
            self._finals[len(self)] = last, self._sign * trial.values[self._objective]
            if all(violation is None or violation <= 0.0 for violation in trial.constraints.values()):
                self.best = last if self.best is None else min(self.best, last)
        self._model.add(*curve, complete)
        self._numbers.append(trial.number)
        self._last_steps.append(max(curve[1]))

    def add_paused(self, trial: FrozenTrial) -> None:
        """Add a paused trial, with the values that it has reported since it was last paused."""
        step = trial.last_step
        if step is None or self._paused.get(trial.number) == step:
            return
        self.remove_paused(trial.number)
        before = len(self)
        self.add(trial)
        if len(self) > before:
            self._paused[trial.number] = step

    def remove_paused(self, number: int) -> None:
        """Remove a trial that was paused: it runs again."""
        if self._paused.pop(number, None) is None:
            return
        i = self._numbers.index(number)
        del self._numbers[i], self._last_steps[i]
        self._finals = {j - (j > i): final for j, final in self._finals.items()}
        self._model.remove(i)
        self._forecasts = {}
        self._random_improvement = (0, 0.0, 0.0)

    def forecasts(self) -> dict[int, Final]:
        """The final values of stopped and paused trials, by number; empty while too few have completed."""
        made, learned_at = self._model.forecasts(), self.learned_at
        if learned_at != self._forecasts_at:
            self._forecasts, self._forecasts_at = {}, learned_at
        for i in made.keys() - self._forecasts.keys():
            self._forecasts[i] = self._final(i, made[i])
        found = {self._numbers[i]: self._forecasts[i] for i in made}
        return {number: forecast for number, forecast in found.items() if forecast is not None}

    def noise(self) -> tuple[float, float] | None:
        """The range of the variance that noise may give to final values, by the curves.

        None if unknown: too few trials have completed, or the values that they report last are not the final ones.
        """
        return self._model.noise() if self._reports_finals(len(self)) else None

    def ending(self, trial: FrozenTrial) -> Ending | None:
        """The value that an incomplete trial will or would have reported last; None while too few have completed."""
        if trial.state == TrialState.PRUNED and trial.number in self._numbers:
            forecast = self._model.forecasts().get(self._numbers.index(trial.number))
        else:
            forecast = self.forecast(trial)
        if forecast is None:
            return None
        value, *ends = (self._sign * each for each in (forecast.value, *forecast.interval()))
        if forecast.is_beyond:
            ends.append(trial.intermediate_values[max(trial.intermediate_values)])
        return Ending(value, min(ends), max(ends))

    def forecast(self, trial: FrozenTrial) -> Forecast | None:
        """The value that a running or paused trial will report last; None while too few have completed."""
        if trial.number in self._paused and self._paused[trial.number] == trial.last_step:
            return self._model.forecasts().get(self._numbers.index(trial.number))
        curve = self._curve(trial.params, trial.intermediate_values)
        return None if curve is None else self._model.forecast(*curve)

    def of_configuration(self, params: Mapping[str, Any], value: float) -> float:
        """The expected improvement on a value by a configuration that was not evaluated."""
        x = self.space.points.as_rows(self.space.points.encode(self.space.plain(params, outside=True))[None])
        return float(self._model.improvements(x, value)[0])

    def final_forecast(self, params: Mapping[str, Any], values: Mapping[int, float]) -> Final | None:
        """The final value of a running trial that has reported these values; None while too few have completed."""
        curve = self._curve(params, values)
        forecast = None if curve is None else self._model.forecast(*curve)
        return None if forecast is None else self._final(len(self), forecast)

    def of_new(self, trial: FrozenTrial, value: float) -> float:
        """The expected improvement on a value by a new trial.

        A new trial is represented by this trial's own configuration before it reported, which shows what the sampler
        may find, or by a random one if more is expected of that: the sampler may sample at random.
        """
        curve = self._curve(trial.params, trial.intermediate_values)
        if self._random_improvement[:2] != (len(self), value):
            self._random_improvement = len(self), value, float(self._model.improvements(self._random, value).mean())
        own = 0.0 if curve is None else float(self._model.improvements(curve[0][None], value)[0])
        return max(own, self._random_improvement[2])

    def of_new_on(self, points: Array, values: Array) -> Array:
        """The expected improvements on values, (m, s), by new trials at some points, averaged over the values, (m,)."""
        return self._model.improvements_on(self.space.points.as_rows(points), values)

    def left(self, trial: FrozenTrial) -> float:
        """The share of its steps that a running trial still has to make."""
        return self._model.left(max(trial.intermediate_values))

    def best_to_resume(self, paused: Sequence[TrialView], proposal: Mapping[str, Any] | None) -> TrialView | None:
        """The paused trial with the highest expected improvement per remaining step, if above a new trial's.

        The new trial has the parameters of the proposal; None if there will be none, or if it is from another space.
        Trials that are more likely than not to end behind the best finished one stay paused.
        """
        if self.best is None:
            return None
        found, most = None, 0.0
        if proposal is not None and point_in(self.space, proposal) is not None:
            most = self.of_configuration(params_in(self.space.distributions, proposal), self.best)
        for trial in paused:
            forecast = self.forecast(trial.frozen)
            if forecast is None or forecast.below(self.best) < CHANCE:
                continue
            worth = forecast.improvement(self.best) / max(self.left(trial.frozen), 1e-9)
            if worth > most and worth > self.of_new(trial.frozen, self.best):
                found, most = trial, worth
        return found

    def _curve(self, params: Mapping[str, Any], reported: Mapping[int, float]) -> tuple[Array, dict[int, float]] | None:
        point = point_in(self.space, params) if reported else None
        if point is None:
            return None
        values = {step: self._sign * value for step, value in reported.items()}
        return self.space.points.as_rows(point[None])[0], values

    def _final(self, number: int, forecast: Forecast) -> Final | None:
        """The final value of a curve, given a forecast of its last reported value; None if there is no line yet.

        Like the forecast, it depends on the curves that the model was learned from and on those up to this one.
        """
        known = max(self.learned_at, number + 1)
        value, variance = forecast.value, forecast.variance
        if not self._reports_finals(known):
            u, f = self._ends(known)
            if len(u) < MIN_POINTS:
                return None
            value, slope, extra = _predicted(u, f, value)
            variance = slope * slope * variance + extra
        return Final(self._sign * value, min(variance, MAX_VARIANCE))

    def _ends(self, known: int) -> Array:
        """u and f of the completed trials among the first ``known`` curves, (2, m)."""
        return np.array([pair for i, pair in self._finals.items() if i < known]).reshape(-1, 2).T

    def _reports_finals(self, known: int) -> bool:
        """Whether the last reported values of the first ``known`` curves are also their final values."""
        u, f = self._ends(known)
        return not (np.abs(u - f) > SAME * np.abs(f).max(initial=0.0)).any()


def _predicted(u: Array, e: Array, value: float) -> tuple[float, float, float]:
    """Mean, slope and variance of the final value for ``value``, by a line through (u, e)."""
    # In units of the largest of them, so that squares do not overflow.
    unit_u, unit_e = max(float(np.abs(u).max()), abs(value)) or 1.0, float(np.abs(e).max()) or 1.0
    u, e, value, m = u / unit_u, e / unit_e, value / unit_u, len(u)
    mean_u, mean_e = float(u.mean()), float(e.mean())
    du, de = u - mean_u, e - mean_e
    spread_u, spread_e = float(du @ du), float(de @ de)
    slope = max(float(du @ de) / spread_u, 0.0) if spread_u > 0 else 0.0
    residuals = de - slope * du
    noise = (float(residuals @ residuals) + PRIOR_WEIGHT * spread_e / m) / (m - 2 + PRIOR_WEIGHT)
    distance = (value - mean_u) ** 2 / spread_u if spread_u > 0 else 0.0
    variance = noise * (1 + 1 / m + distance)
    mean = unit_e * (mean_e + slope * (value - mean_u))
    return mean, slope * (unit_e / unit_u), min(unit_e * variance * unit_e, MAX_VARIANCE)
