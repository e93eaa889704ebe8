"""LazyPruner: an Optuna pruner that forecasts where a training ends.

======  ======================================================================================
symbol  meaning
======  ======================================================================================
now     expected improvement of the end of this training on the best finished one
new     the same of a training that has not begun: of this configuration, or of a random one
left    the share of its steps that this training still has to make
======  ======================================================================================

A training goes on while what it is expected to add for the steps that it still needs, now / left, is at least a fifth
of what a new training is expected to add for all of its steps, new / 1. A fifth, because a wrong stop is paid for later
(docs/curves.md), and because a model is never quite right.

With several objectives the same rule holds. An improvement is then one on the rivals, which are the finished trainings
that are at least as good in all other objectives (`lazybo.study.rivals`), and a training is never stopped if it ends on
the front with the probability `LIKELY`.

The pruner reads the curves from the study (`lazybo.study.curves`). Its model depends only on the trials, so it is the
one that LazySampler has of the same study. Any sampler may be used.
"""

import math
from typing import Any

import numpy as np
from optuna.pruners import BasePruner
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.core.checks import whole
from lazybo.search.curves import MIN_COMPLETE
from lazybo.space.space import Space
from lazybo.study.curves import StudyCurves
from lazybo.study.evaluated import point_of
from lazybo.study.factory import directions_of, reporting_of
from lazybo.study.memory import Memories, Memory
from lazybo.study.rivals import Rivals
from lazybo.study.structure import infer_structure

# A training is stopped if it is expected to add less than this share of what a new one is expected to add.
SHARE = 0.2
# It is never stopped if it beats the best finished training with this probability, or before so many values.
LIKELY = 0.2
MIN_VALUES = 2


class LazyPruner(BasePruner):
    """Stop a training when a new one is worth more, by a model of all learning curves of the study.

    The model forecasts where a training ends, from its own values and from the curves of other configurations. It
    learns from finished and from stopped trainings, whichever pruner stopped them. Nothing is stopped before two
    trainings have finished. A value that is not finite stops a training at once.

    In a study with several objectives, as `optimize()` makes it, one of them is reported. A training goes on if it may
    end on the front, given what the model predicts of the other objectives.

    ``max_step`` is the last step of a training; None: the largest step seen. Steps may start anywhere and have any
    distance, but report them regularly.
    """

    def __init__(self, max_step: int | None = None) -> None:
        self._max_step = None if max_step is None else whole("max_step", max_step, 1)
        self._memories = Memories()

    def __getstate__(self) -> dict[str, Any]:
        """Without the memories: a copy reads what it needs from the study."""
        return {**self.__dict__, "_memories": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._memories = Memories()

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether to stop a trial, by the values it has reported so far."""
        step = trial.last_step
        if step is None:
            return False
        if not math.isfinite(trial.intermediate_values[step]):
            return True
        if not is_asked(len(trial.intermediate_values)):
            return False
        memory = self._memories.of(study)
        with memory.lock:
            memory.read(study, trial.number)
            if not memory.distributions and not trial.distributions:
                return False  # without parameters there is nothing to compare
            if len(study.directions) > 1:
                return self._is_dominated(memory, study, trial)
            curves = self._curves(memory, study, trial)
            return is_hopeless(curves, trial)

    def _is_dominated(self, memory: Memory, study: Study, trial: FrozenTrial) -> bool:
        """Whether a new training is worth more than the rest of this one, if there are several objectives."""
        ended = [each for each in memory.trials if each.state.is_finished()]
        if sum(each.state == TrialState.COMPLETE for each in ended) < MIN_COMPLETE:
            return False
        rivals = memory.rivals
        if rivals is None or rivals.ended != len(ended):
            rivals = memory.rivals = Rivals(study, ended)
        if memory.curves is None or memory.curves.space.distributions != rivals.space.distributions:
            reports = reporting_of(study)
            direction = directions_of(study)[reports]
            memory.curves = StudyCurves(rivals.space, direction, objective=reports, max_step=self._max_step)
        memory.curves.add_new(memory.trials)
        return is_dominated(memory.curves, rivals, trial)

    def _curves(self, memory: Memory, study: Study, trial: FrozenTrial) -> StudyCurves:
        """The curves of all trials that have ended; read again if this trial has shown another space."""
        seen = {**memory.distributions, **trial.distributions}
        space = {name: each for name, each in seen.items() if not each.single()} or seen
        curves = memory.curves
        if curves is None or curves.space.distributions != space:
            structure = infer_structure(space, memory.trials)
            checked = Space(structure.distributions, conditions=structure.conditions, optional=structure.optional)
            curves = memory.curves = StudyCurves(checked, directions_of(study)[0], max_step=self._max_step)
        curves.add_new(memory.trials)
        return curves


def is_asked(values: int) -> bool:
    """Whether a training is judged after so many values: after each up to 20, then ever more rarely.

    In a training of 1,000 epochs that is some 130 times.
    """
    return values >= MIN_VALUES and values % max(values // 10, 1) == 0


def is_hopeless(curves: StudyCurves, trial: FrozenTrial) -> bool:
    """Whether a new training is worth more than the rest of this one."""
    forecast, best = curves.forecast(trial), curves.best
    if forecast is None or best is None or forecast.below(best) >= LIKELY:
        return False
    return forecast.improvement(best) < SHARE * curves.of_new(trial, best) * curves.left(trial)


def is_dominated(curves: StudyCurves, rivals: Rivals, trial: FrozenTrial) -> bool:
    """`is_hopeless` for several objectives."""
    forecast, point = curves.forecast(trial), point_of(trial, rivals.space)
    if forecast is None or point is None or not len(rivals.u):
        return False
    own = rivals.needed(point[None])
    if rivals.chance(forecast, own[0]) >= LIKELY:
        return False
    points = np.vstack((point[None], curves.random_points))
    needed = rivals.bounded(np.vstack((own, rivals.needed(curves.random_points))))
    new = curves.of_new_on(points, needed)
    return rivals.improvement(forecast, own[0]) < SHARE * max(new[0], new[1:].mean()) * curves.left(trial)
