"""Which trials of a study are feasible, and which are its best ones.

Optuna keeps the constraints of a trial as attributes of it; each is satisfied if it is at most 0. A trial that has not
measured a constraint that other trials have is not known to be feasible, and does not count.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from lazybo.core.checks import as_number, is_number
from lazybo.search.hypervolume import non_dominated
from lazybo.study.attributes import CONSTRAINT_KEY

# What a constraint without a name is called.
NO_NAME = "(no name)"


def measured_constraints(trial: FrozenTrial) -> dict[str, float]:
    """The constraints that a trial has measured, by name. What is not a number was not measured.

    Optuna and earlier versions accept empty names.
    """
    written: Mapping[str, object] = trial.constraints
    found = {name: as_number(name, value) for name, value in written.items() if is_number(value)}
    return {name if name.strip() else NO_NAME: value for name, value in found.items() if not math.isnan(value)}


def as_attributes(constraints: Mapping[str, float]) -> dict[str, float]:
    """Measured constraints as the attributes of a trial that Optuna reads."""
    return {f"{CONSTRAINT_KEY}:{name}": value for name, value in constraints.items()}


def violates(constraints: Mapping[str, float]) -> bool:
    """Whether any of these constraints is violated."""
    return any(value > 0.0 for value in constraints.values())


def constraints_of(trials: Sequence[FrozenTrial]) -> list[str]:
    """The names of all constraints that any trial has measured, in alphabetical order."""
    return sorted({name for trial in trials for name in measured_constraints(trial)})


def complete_trials(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials with finite values."""
    return [
        trial
        for trial in trials
        if trial.state == TrialState.COMPLETE and trial.values and all(map(math.isfinite, trial.values))
    ]


def feasible_trials(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials with finite values that have measured and satisfied all constraints."""
    names = constraints_of(trials)
    if not names:
        return complete_trials(trials)
    found = []
    for trial in complete_trials(trials):
        measured = measured_constraints(trial)
        if all(measured.get(name, math.inf) <= 0.0 for name in names):
            found.append(trial)
    return found


def front_of(study: Study, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The feasible trials that no other dominates, by number. With one objective these are the best ones."""
    counted = feasible_trials(trials)
    if not counted:
        return []
    signs = np.array([-1.0 if each == StudyDirection.MAXIMIZE else 1.0 for each in study.directions])
    kept = non_dominated(np.array([trial.values for trial in counted]) * signs)
    return [trial for trial, on_front in zip(counted, kept, strict=True) if on_front]


def best_trial(study: Study, trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """The first of the best feasible trials of a study with one objective; None if there is none."""
    return next(iter(front_of(study, trials)), None)


def names_of(study: Study) -> list[str]:
    """The names of the objectives: those that were given, or ``value``, or ``value 0`` and so on for several."""
    if study.metric_names:
        return list(study.metric_names)
    count = len(study.directions)
    return ["value"] if count == 1 else [f"value {i}" for i in range(count)]
