"""The evaluations of a study that may be recommended or repeated: completed trials of its present space."""

import math
from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from lazybo.checks import Array
from lazybo.search.prediction import Evaluation
from lazybo.search.space import Space


def evaluations_of(trials: Sequence[FrozenTrial], space: Space) -> list[Evaluation]:
    """The completed trials that satisfy their constraints and are in the space, with their numbers."""
    feasible = [trial for trial in complete_trials(trials) if _is_feasible(trial)]
    points = [(trial, point_of(trial, space)) for trial in feasible]
    return [
        Evaluation(trial.params, point, float(trial.value or 0.0), trial.number)
        for trial, point in points
        if point is not None
    ]


def complete_trials(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials with a finite value."""
    return [t for t in trials if t.state == TrialState.COMPLETE and t.value is not None and math.isfinite(t.value)]


def point_of(trial: FrozenTrial, space: Space) -> Array | None:
    """The point of a trial; None if it is from another space. Parameters that the model does not have are left out."""
    known = {name: value for name, value in trial.params.items() if name in space.distributions}
    try:
        return space.encode(space.plain(known, outside=True))
    except ValueError:
        return None


def _is_feasible(trial: FrozenTrial) -> bool:
    """Whether a trial satisfies its constraints, as Optuna's best trial does."""
    return all(violation <= 0.0 for violation in trial.constraints.values())
