"""LazyPruner: an Optuna pruner that forecasts where a training ends.

======  =============================================================================================  ==========
symbol  meaning                                                                                        shape
======  =============================================================================================  ==========
now     expected improvement on the best finished training by the end of this one                      scalar
new     the same for a new training, with this configuration or a random one                           scalar
left    the share of its steps that this training still has to make                                    scalar
n, q    completed and feasible trainings, the rivals; objectives                                       scalar
s       draws of the other objectives of a configuration, from the model                               scalar
u       the last reported values of the rivals                                                         (n,)
o       the other objectives of the rivals, warped                                                     (n, q - 1)
b       the best u of the rivals that are at least as good in all other objectives; ∞ without any      (m, s)
======  =============================================================================================  ==========

A training goes on while its expected improvement per remaining step, now / left, is at least a fifth of what a new
training is expected to add, new / 1. A fifth, because a wrong stop costs more than a late one (docs/curves.md), and no
model is quite right.

From a few curves the model forecasts nothing, or too little to stop anything. So the first trainings of a study are
also compared at rungs by their values at the same step, as in successive halving: a training goes on if it is among the
best third. Where trainings are paused, the first bracket does this (`lazybo.run.next_trial`).

With several objectives the rule is the same, but the improvement is measured against the rivals: the finished trainings
that are at least as good in all other objectives. A training with the other objectives o' and the end u' is dominated
by no rival exactly if u' < b(o'), apart from ties. The other objectives are known only when a training has ended;
before that the Gaussian processes of the study predict them, so b has a distribution, of which ``s`` values are drawn.
In all objectives small is good. A training that ends on the front with probability `LIKELY` is never stopped.

The pruner reads the curves from the study (`lazybo.study.training_curves`). Its model depends only on the trials, so it
is the one that LazySampler has of the same study. Any sampler may be used.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np
from optuna.pruners import BasePruner
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.core import Array, checks
from lazybo.gp import CurveModel, Forecast
from lazybo.study.definition import directions_of, infer_space, reporting_of, varying
from lazybo.study.feed import StudyReader, StudyReaders
from lazybo.study.model import model_of
from lazybo.study.store import Store
from lazybo.study.training_curves import FACTOR, TrainingCurves, rungs
from lazybo.study.trial import TrialView, feasible_of

# A training is stopped if its expected improvement is less than this share of a new one's.
SHARE = 0.2
# It is never stopped if it beats the best finished training with this probability, or before this many values.
LIKELY = 0.2
MIN_VALUES = 2
# s: the draws of the other objectives.
DRAWS = 32
# So many trainings that have ended with a curve are enough for the model. Those before are also compared at rungs.
HALVED = 12


class Rivals:
    """The rivals among trials that have ended. Raises a ValueError if none of them has completed."""

    def __init__(self, study: Study, ended: Sequence[FrozenTrial]) -> None:
        self.ended = len(ended)
        optimizer, reports = model_of(study, ended).optimizer, reporting_of(study)
        self.space = optimizer.space
        objectives = range(len(optimizer.directions))
        self._predictors = [optimizer.model.predictor(j) for j in objectives if j != reports]
        self._z = np.random.default_rng(0).standard_normal((DRAWS, len(self._predictors)))
        sign = -1.0 if optimizer.directions[reports] == "maximize" else 1.0
        rivals = [t for t in feasible_of(map(TrialView, ended)) if t.reported and math.isfinite(_last(t))]
        self.u = np.array([sign * _last(t) for t in rivals])
        others = [[t.values[j] for t in rivals] for j in objectives if j != reports]
        self._o = np.column_stack(
            [each.warping(each.sign * np.array(o)) for each, o in zip(self._predictors, others, strict=True)]
        )

    def needed(self, points: Array) -> Array:
        """b at some points, (m, d), for each draw of their other objectives, (m, s)."""
        posteriors = [each.posterior.posterior(self.space.points.as_rows(points)) for each in self._predictors]
        means = np.column_stack([each.mean for each in posteriors])[:, None]
        draws = means + np.sqrt(np.column_stack([each.variance for each in posteriors]))[:, None] * self._z
        as_good = (self._o <= draws[:, :, None]).all(axis=3)  # (m, s, n)
        b: Array = np.where(as_good, self.u, np.inf).min(axis=2, initial=np.inf)
        return b

    def chance(self, forecast: Forecast, needed: Array) -> float:
        """The probability that no rival dominates the end of a training, given its b, (s,)."""
        return float(np.mean([forecast.below(b) if math.isfinite(b) else 1.0 for b in needed]))

    def improvement(self, forecast: Forecast, needed: Array) -> float:
        """The expected improvement of a training on its b, (s,), in units of the warped values."""
        return float(np.mean([forecast.improvement(b) for b in self.bounded(needed)]))

    def bounded(self, needed: Array) -> Array:
        """b where it is finite, elsewhere the worst u: an improvement on ∞ would be infinite."""
        return np.minimum(needed, self.u.max())


@dataclass
class _Known:
    """What the pruner has made of the trials of a study."""

    curves: TrainingCurves | None = None
    rivals: Rivals | None = None


class LazyPruner(BasePruner):
    """Stop a training when a new one is worth more, by a model of all learning curves of the study.

    The model forecasts where a training ends, from its own values and from the curves of other configurations. It
    learns from finished and from stopped trainings, whichever pruner stopped them. The first twelve trainings are also
    compared by their values at the same step; the very first is always finished. A value that is not finite stops a
    training at once.

    In a study with several objectives, as `optimize()` makes it, one of them is reported. A training goes on if it may
    end on the front, given the model's predictions of the other objectives.

    ``max_step`` is the last step of a training (default: the largest step seen). Steps may start anywhere and have any
    distance, but report them regularly. ``reports`` is the name or the position of the objective that trials report
    (default: the first); `optimize()` stores it with the study.
    """

    FACTOR = FACTOR  # one of so many trainings continues at each rung
    rungs = staticmethod(rungs)
    BY_VALUES = True  # it reads the values of the trial that it judges, and other trials only if they have ended

    @checks.hinting(
        {"max_steps": "use max_step=, the last step", "n_startup_trials": "leave it out: the model decides"}
    )
    def __init__(self, max_step: int | None = None, reports: str | int | None = None) -> None:
        self.max_step = None if max_step is None else checks.whole("max_step", max_step, 1)
        self.reports = reports if isinstance(reports, str | None) else checks.whole("reports", reports, 0)
        self._readers = StudyReaders(_Known)

    def __getstate__(self) -> dict[str, Any]:
        """Without the readers: a copy reads the study itself."""
        return {**self.__dict__, "_readers": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._readers = StudyReaders(_Known)

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether to stop a trial, judging by the values it has reported so far."""
        step = trial.last_step
        if step is None:
            return False
        if not math.isfinite(trial.intermediate_values[step]):
            return True
        if not is_asked(len(trial.intermediate_values)):
            return False
        reader = self._readers.of(study)
        with reader.lock:
            reader.read(study, trial.number)
            if not reader.distributions and not trial.distributions:
                return False  # without parameters there is nothing to compare
            if len(study.directions) > 1:
                return self._is_dominated(reader, study, trial)
            if is_behind(reader.trials, trial, directions_of(study)[0]):
                return True
            return is_hopeless(self._curves(reader, study, trial), trial)

    def curves(self, study: Study, trial: FrozenTrial) -> TrainingCurves | None:
        """The curves by which `prune` judges a trial of a study with one objective; None without parameters."""
        reader = self._readers.of(study)
        with reader.lock:
            reader.read(study, trial.number)
            return self._curves(reader, study, trial) if reader.distributions or trial.distributions else None

    def _is_dominated(self, reader: StudyReader[_Known], study: Study, trial: FrozenTrial) -> bool:
        """Whether a new training is worth more than the rest of this one, if there are several objectives."""
        ended, known = [each for each in reader.trials if each.state.is_finished()], reader.state
        if sum(each.state == TrialState.COMPLETE for each in ended) < CurveModel.least:
            return False
        if known.rivals is None or known.rivals.ended != len(ended):
            known.rivals = Rivals(study, ended)
        space = known.rivals.space
        if known.curves is None or known.curves.space.distributions != space.distributions:
            reports = reporting_of(study)
            direction = directions_of(study)[reports]
            known.curves = TrainingCurves(space, direction, objective=reports, max_step=self.max_step)
        known.curves.add_new(reader.trials)
        return is_dominated(known.curves, known.rivals, trial)

    def _curves(self, reader: StudyReader[_Known], study: Study, trial: FrozenTrial) -> TrainingCurves:
        """The curves of all trials that have ended; read again if this trial has shown another space."""
        seen = {**reader.distributions, **trial.distributions}
        space = varying(seen)
        curves = reader.state.curves
        if curves is None or curves.space.distributions != space:
            inferred = infer_space(space, reader.trials, kinds=Store(study).kinds())
            curves = TrainingCurves(inferred, directions_of(study)[0], max_step=self.max_step)
            reader.state.curves = curves
        curves.add_new(reader.trials)
        return curves


def is_asked(values: int) -> bool:
    """Whether a training is judged after this number of values: after each of the first 20, then ever more rarely.

    A training of 1,000 epochs is judged about 130 times.
    """
    return values >= MIN_VALUES and values % max(values // 10, 1) == 0


def is_behind(trials: Sequence[FrozenTrial], trial: FrozenTrial, direction: str) -> bool:
    """Whether a training is one of the first, is at a rung, and is not among the best third of those that got there.

    Only trainings that have ended are compared. Where trainings are paused, this is not for the pruner to say.
    """
    views = [TrialView(each) for each in trials]
    first = list(islice((each for each in views if each.state in ("complete", "pruned") and each.reported), HALVED))
    if len(first) == HALVED or any(each.is_paused for each in views):
        return False
    longest = max((len(each.reported) for each in first), default=1)
    # It is asked at the first number of values from a rung on after which trainings are judged.
    if not any(next(filter(is_asked, count(rung))) == len(trial.intermediate_values) for rung in rungs(longest)):
        return False
    return _is_beaten(trial, first, -1.0 if direction == "maximize" else 1.0)


def _is_beaten(trial: FrozenTrial, others: Sequence[TrialView], sign: float) -> bool:
    """Whether a training is not among the best third of those that got to its step; small is good with the sign."""
    step, counted = max(trial.intermediate_values), {each.number for each in feasible_of(others)}
    rivals = [each for each in others if each.state == "pruned" or each.number in counted]
    values = [sign * each.reported[step] for each in rivals if step in each.reported]
    better = sum(value < sign * trial.intermediate_values[step] for value in values)
    return better >= max((len(values) + 1) // FACTOR, 1)


def _last(trial: TrialView) -> float:
    """The value that a trial has reported last."""
    return trial.reported[max(trial.reported)]


def is_hopeless(curves: TrainingCurves, trial: FrozenTrial) -> bool:
    """Whether a new training is worth more than the rest of this one."""
    forecast, best = curves.forecast(trial), curves.best
    if forecast is None or best is None or forecast.below(best) >= LIKELY:
        return False
    return forecast.improvement(best) < SHARE * curves.of_new(trial, best) * curves.left(trial)


def is_dominated(curves: TrainingCurves, rivals: Rivals, trial: FrozenTrial) -> bool:
    """`is_hopeless` for several objectives."""
    forecast, point = curves.forecast(trial), TrialView(trial).point_in(rivals.space)
    if forecast is None or point is None or not len(rivals.u):
        return False
    own = rivals.needed(point[None])
    if rivals.chance(forecast, own[0]) >= LIKELY:
        return False
    points = np.vstack((point[None], curves.random_points))
    needed = rivals.bounded(np.vstack((own, rivals.needed(curves.random_points))))
    new = curves.of_new_on(points, needed)
    return rivals.improvement(forecast, own[0]) < SHARE * max(new[0], new[1:].mean()) * curves.left(trial)
