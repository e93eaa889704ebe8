"""The evaluations of a study that may be recommended or repeated: completed trials of its present space."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from optuna.trial import FrozenTrial

from lazybo.core.checks import Array
from lazybo.search.predictions import Evaluation
from lazybo.space.space import Space
from lazybo.study.feasible import feasible_trials


def evaluations_of(trials: Sequence[FrozenTrial], space: Space) -> list[Evaluation]:
    """The completed trials that satisfy their constraints and are in the space, with their numbers."""
    points = [(trial, point_of(trial, space)) for trial in feasible_trials(trials)]
    return [
        Evaluation(trial.params, point, float(trial.value or 0.0), trial.number)
        for trial, point in points
        if point is not None
    ]


def most_promising(trials: Sequence[FrozenTrial], *, maximize: bool, most: int) -> list[FrozenTrial]:
    """All feasible trials of the ``most`` configurations with the best values, by number.

    To predict tens of thousands of configurations takes long, and the best one is not among those with bad values.
    """
    counted = feasible_trials(trials)
    if len(counted) <= most:
        return counted
    keys = [_key(trial.params) for trial in counted]
    by_value = sorted(zip(counted, keys, strict=True), key=lambda each: each[0].value or 0.0, reverse=maximize)
    kept = set(list(dict.fromkeys(key for _, key in by_value))[:most])
    return [trial for trial, key in zip(counted, keys, strict=True) if key in kept]


def _key(params: Mapping[str, Any]) -> Hashable:
    """Something that is equal for equal parameters."""
    try:
        return frozenset(params.items())
    except TypeError:  # a choice is a list
        return repr(sorted(params.items()))


def point_of(trial: FrozenTrial, space: Space) -> Array | None:
    """The point of a trial; None if it is from another space. Parameters that the model does not have are left out."""
    known = {name: value for name, value in trial.params.items() if name in space.distributions}
    try:
        return space.encode(space.plain(known, outside=True))
    except ValueError:
        return None
