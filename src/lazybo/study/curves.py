"""Learning curves of the trials of a study, and forecasts of where those that did not complete would have ended.

=======  ==========================================================================  ======
symbol   meaning                                                                     shape
=======  ==========================================================================  ======
u, f     of trials that completed: the last reported value, and the final value      (m,)
=======  ==========================================================================  ======

A trial reports values, and the last one is usually its final value, too. If it is not (the final value may be the best
one, or that of another data set), a forecast of what a trial would report last is converted by a line, f ≈ α + β u
with β ≥ 0, fitted by least squares; its variance is added.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from lazybo.core.checks import Array
from lazybo.search import curve_forecasts as curves
from lazybo.search.curve_forecasts import Curve, CurveModel
from lazybo.space.space import Space
from lazybo.study.paused import is_paused
from lazybo.study.structure import as_given
from lazybo.study.unsettled import Unsettled

# Random configurations that stand for what a new trial may be.
RANDOM_POINTS = 32
# With fewer completed trials a line is not fitted.
MIN_POINTS = 4
# Few points may lie on a line by chance. So σ² has a prior: the variance of the ends, weighted as so many points.
PRIOR_WEIGHT = 0.1
# The squares of very large values overflow.
MAX_VARIANCE = 1e300
# A paused training is resumed only if it beats the best finished one with this probability.
CHANCE = 0.5
# Final values that differ less from the last reported ones, in units of the largest, are the same.
SAME = 1e-9


class Forecast(NamedTuple):
    """The expected final value of a trial, and the variance of its error."""

    value: float
    variance: float


class Ending(NamedTuple):
    """The last value of a curve that did not complete: the median and the 95 % interval, in the study's units.

    Far outside of what was seen the median is a bound, and the interval goes to the value that was reported last.
    """

    value: float
    low: float
    high: float


class StudyCurves:
    """The curves of the trials of a study that have ended. Of several objectives they are those of one of them.

    ``direction`` is that of the objective that is reported, ``objective`` its position.
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
        self._model = CurveModel(space.columns, max_step=max_step)
        self.random_points = space.spread(np.random.default_rng(0), RANDOM_POINTS)
        self._random = space.as_rows(self.random_points)
        self._random_improvement = (0, 0.0, 0.0)  # number of curves, value, expected improvement of a random point
        self._numbers: list[int] = []  # of the trial of each curve
        self._unsettled = Unsettled()
        self._finals: dict[int, tuple[float, float]] = {}  # u, f by number of the curve
        self._forecasts: dict[int, Forecast | None] = {}  # of final values, by number of the curve
        self._forecasts_at = 0  # when the model had been learned that made them
        self._paused: dict[int, int] = {}  # the last steps of paused trials, by number of the trial
        self.best: float | None = None  # the best last value of a completed, feasible trial; small is good

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def learned_at(self) -> int:
        """The number of curves when the model was last learned: forecasts change when this changes."""
        return curves.learn_point(len(self._model))

    def add_new(self, trials: Sequence[FrozenTrial]) -> None:
        """Add the trials that have ended, or are paused, since the last call. Those that run again are removed."""
        for trial in self._unsettled.among(trials):
            if is_paused(trial):
                self.add_paused(trial)
            elif trial.number in self._paused:
                self.remove_paused(trial.number)
            if trial.state.is_finished():
                self.add(trial)
        self._unsettled.note(trials)

    def add(self, trial: FrozenTrial) -> None:
        """Add a trial that has ended or is paused. One that failed, has no curve or another space is left out."""
        complete = trial.state == TrialState.COMPLETE
        ended = complete or trial.state == TrialState.PRUNED or is_paused(trial)
        curve = self._curve(trial, complete) if ended else None
        if curve is None:
            return
        if complete:
            last = curve.values[max(curve.values)]
            if trial.values is None or not math.isfinite(last):
                return
            self._finals[len(self)] = last, self._sign * trial.values[self._objective]
            if all(violation is None or violation <= 0.0 for violation in trial.constraints.values()):
                self.best = last if self.best is None else min(self.best, last)
        self._model.add(curve)
        self._numbers.append(trial.number)

    def add_paused(self, trial: FrozenTrial) -> None:
        """Add a paused trial, or what it has reported since it was last paused."""
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
        del self._numbers[i]
        self._finals = {j - (j > i): final for j, final in self._finals.items()}
        self._model.remove(i)
        self._forecasts = {}
        self._random_improvement = (0, 0.0, 0.0)

    def forecasts(self) -> dict[int, Forecast]:
        """By trial number, the final values of the pruned and paused trials; empty while too few completed."""
        made, learned_at = self._model.forecasts(), self.learned_at
        if learned_at != self._forecasts_at:
            self._forecasts, self._forecasts_at = {}, learned_at
        for i in made.keys() - self._forecasts.keys():
            self._forecasts[i] = self._final(i, made[i])
        found = {self._numbers[i]: self._forecasts[i] for i in made}
        return {number: forecast for number, forecast in found.items() if forecast is not None}

    def noise(self) -> tuple[float, float] | None:
        """The least and the most variance that noise may give to final values, by the curves.

        None if that cannot be said: too few trials have completed, or what they report last is not the final value.
        """
        return self._model.noise() if self._reports_finals(len(self)) else None

    def ending(self, trial: FrozenTrial) -> Ending | None:
        """What a trial that did not complete will report last, or would have; None while too few have completed."""
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

    def forecast(self, trial: FrozenTrial) -> curves.Forecast | None:
        """What a running or paused trial will report last; None while too few have completed."""
        if trial.number in self._paused and self._paused[trial.number] == trial.last_step:
            return self._model.forecasts().get(self._numbers.index(trial.number))
        curve = self._curve(trial, complete=False)
        return None if curve is None else self._model.forecast(curve)

    def of_configuration(self, params: Mapping[str, Any], value: float) -> float:
        """The improvement on a value that is expected of a configuration that was not evaluated."""
        x = self.space.as_rows(self.space.encode(self.space.plain(params, outside=True))[None])
        return float(self._model.improvements(x, value)[0])

    def final_forecast(self, params: Mapping[str, Any], values: Mapping[int, float]) -> Forecast | None:
        """The final value of a running trial that has reported these values; None while too few have completed."""
        curve = self._curve_of(params, values, complete=False)
        forecast = None if curve is None else self._model.forecast(curve)
        return None if forecast is None else self._final(len(self), forecast)

    def of_new(self, trial: FrozenTrial, value: float) -> float:
        """The improvement on a value that is expected of a trial that has not begun.

        It is that of this trial's own configuration before it reported, or of a random one, if that is more: the own
        one shows what the sampler may find, unless it samples at random.
        """
        curve = self._curve(trial, complete=False)
        if self._random_improvement[:2] != (len(self), value):
            self._random_improvement = len(self), value, float(self._model.improvements(self._random, value).mean())
        own = 0.0 if curve is None else float(self._model.improvements(curve.x[None], value)[0])
        return max(own, self._random_improvement[2])

    def of_new_on(self, points: Array, values: Array) -> Array:
        """The improvements on values, (m, s), that are expected of trials at some points that have not begun, (m,).

        They are the means over the values of each point.
        """
        return self._model.improvements_on(self.space.as_rows(points), values)

    def left(self, trial: FrozenTrial) -> float:
        """The share of its steps that a running trial still has to make."""
        return self._model.left(max(trial.intermediate_values))

    def _curve(self, trial: FrozenTrial, complete: bool) -> Curve | None:
        return self._curve_of(trial.params, trial.intermediate_values, complete)

    def _curve_of(self, params: Mapping[str, Any], reported: Mapping[int, float], complete: bool) -> Curve | None:
        values = {step: self._sign * value for step, value in reported.items()}
        if not values:
            return None
        distributions = self.space.distributions
        known = {name: value for name, value in params.items() if name in distributions}
        try:
            configuration = self.space.plain(as_given(known, distributions), outside=True)
        except ValueError:
            return None
        return Curve(self.space.as_rows(self.space.encode(configuration)[None])[0], values, complete)

    def _final(self, number: int, forecast: curves.Forecast) -> Forecast | None:
        """The final value of a curve for a forecast of its last reported one; None if there is no line yet.

        As the forecast itself, it depends on the curves that the model was learned from and those up to this one.
        """
        known = max(self.learned_at, number + 1)
        value, variance = forecast.value, forecast.variance
        if not self._reports_finals(known):
            u, f = self._ends(known)
            if len(u) < MIN_POINTS:
                return None
            value, slope, extra = _predicted(u, f, value)
            variance = slope * slope * variance + extra
        return Forecast(self._sign * value, min(variance, MAX_VARIANCE))

    def _ends(self, known: int) -> Array:
        """u and f of the completed trials among the first ``known`` curves, (2, m)."""
        return np.array([pair for i, pair in self._finals.items() if i < known]).reshape(-1, 2).T

    def _reports_finals(self, known: int) -> bool:
        """Whether the last reported values of the first ``known`` curves are their final values, too."""
        u, f = self._ends(known)
        return not (np.abs(u - f) > SAME * np.abs(f).max(initial=0.0)).any()


def best_to_resume(
    curves: StudyCurves, paused: Sequence[FrozenTrial], proposal: Mapping[str, Any] | None
) -> FrozenTrial | None:
    """The paused trial of which most is expected for the steps that it still needs, if that is more than of a new one.

    A new one is the proposal, if there is one, or what stands for it while a trial runs (`StudyCurves.of_new`). Trials
    that are more likely than not to end behind the best finished one stay paused.
    """
    best = curves.best
    if best is None:
        return None
    found, most = None, 0.0 if proposal is None else curves.of_configuration(proposal, best)
    for trial in paused:
        forecast = curves.forecast(trial)
        if forecast is None or forecast.below(best) < CHANCE:
            continue
        worth = forecast.improvement(best) / max(curves.left(trial), 1e-9)
        if worth > most and worth > curves.of_new(trial, best):
            found, most = trial, worth
    return found


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
