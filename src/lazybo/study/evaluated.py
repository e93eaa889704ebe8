"""The evaluations of a study that may be recommended or repeated: completed trials of its present space."""

from collections.abc import Sequence

from optuna.trial import FrozenTrial

from lazybo.checks import Array
from lazybo.search.prediction import Evaluation
from lazybo.search.space import Space
from lazybo.study.feasible import feasible_trials


def evaluations_of(trials: Sequence[FrozenTrial], space: Space) -> list[Evaluation]:
    """The completed trials that satisfy their constraints and are in the space, with their numbers."""
    points = [(trial, point_of(trial, space)) for trial in feasible_trials(trials)]
    return [
        Evaluation(trial.params, point, float(trial.value or 0.0), trial.number)
        for trial, point in points
        if point is not None
    ]


def point_of(trial: FrozenTrial, space: Space) -> Array | None:
    """The point of a trial; None if it is from another space. Parameters that the model does not have are left out."""
    known = {name: value for name, value in trial.params.items() if name in space.distributions}
    try:
        return space.encode(space.plain(known, outside=True))
    except ValueError:
        return None
