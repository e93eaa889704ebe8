"""Reports of a study as small records of numbers: its history, its times, and its model.

The model is the one that the last run or sampler would continue with (`study.factory`). Its band is exact for the
warped values that it is trained on. In the units of the study, the band is the inverse of the mean and of the mean plus
and minus two standard deviations.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from lazybo.core.blas import one_thread
from lazybo.core.checks import Array
from lazybo.search.predictions import Predictor
from lazybo.space.space import Space
from lazybo.study import ledger
from lazybo.study.evaluated import point_of
from lazybo.study.factory import model_of
from lazybo.study.feasible import complete_trials, constraints_of, feasible_trials, front_of, names_of
from lazybo.study.model import StudyModel

# Points at which the importances are measured.
SAMPLE = 1024
# A slice has all levels of a parameter if there are at most so many, else a grid of so many points: fine enough for
# trials that are close together.
LEVELS = 101
GRID = 501
# Half the width of a band, in standard deviations.
BAND = 2.0


@dataclass(frozen=True)
class History:
    """Values by trial number, and the best so far after each of them: NaN before the first feasible trial.

    ``infeasible`` are the numbers of trials that violate a constraint: they are never the best.
    """

    numbers: list[int]
    values: list[float]
    best: list[float]
    pruned: list[int]
    failed: list[int]
    infeasible: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Front:
    """The trials of a study with several objectives: names, values (n, q), and which trials are on the front.

    ``infeasible`` trials violate a constraint, or have not measured it.
    """

    names: list[str]
    directions: list[str]
    numbers: list[int]
    values: list[list[float]]
    on_front: list[bool]
    infeasible: list[bool]


@dataclass(frozen=True)
class Times:
    """Seconds of each evaluation, and of the wait before it: from the last end of another trial to its own start.

    The wait is the time of the optimiser and the storage. A trial that started before any other had ended has none.
    """

    numbers: list[int]
    evaluation: list[float]
    waited_numbers: list[int]
    waits: list[float]


@dataclass(frozen=True)
class Slice:
    """The model along one parameter, the others as at the best trial.

    ``feasible`` is the probability at each place that all measured constraints hold, and ``infeasible`` says which of
    the trials seen violate one, or have not measured it. Both are empty if the study has no measured constraint.
    """

    name: str
    choice: bool
    log: bool
    places: list[Any]
    middle: list[float]
    low: list[float]
    high: list[float]
    seen: list[tuple[Any, float]]
    best: tuple[Any, float]
    feasible: list[float] = field(default_factory=list)
    infeasible: list[bool] = field(default_factory=list)


@dataclass(frozen=True)
class Coordinates:
    """Trials as lines over their parameters: positions in [0, 1], NaN where a parameter was not active."""

    names: list[str]
    distributions: list[BaseDistribution]
    lines: Array
    values: list[float]


def history(study: Study) -> History:
    """Values by trial number, and the best so far of the feasible ones."""
    _one_objective(study)
    trials = ledger.read(study)
    complete = complete_trials(trials)
    values = [_value(trial) for trial in complete]
    feasible = {trial.number for trial in feasible_trials(trials)}
    better = np.fmax if _maximizes(study) else np.fmin
    running = better.accumulate(
        [v if t.number in feasible else math.nan for t, v in zip(complete, values, strict=True)]
    )
    return History(
        [trial.number for trial in complete],
        values,
        [float(best) for best in running],
        [trial.number for trial in trials if trial.state == TrialState.PRUNED],
        [trial.number for trial in trials if trial.state == TrialState.FAIL],
        [trial.number for trial in complete if trial.number not in feasible],
    )


def front(study: Study) -> Front:
    """The complete trials of a study, and which of them no other feasible one dominates."""
    trials = ledger.read(study)
    complete = complete_trials(trials)
    best = {trial.number for trial in front_of(study, trials)}
    feasible = {trial.number for trial in feasible_trials(trials)}
    return Front(
        names_of(study),
        [each.name.lower() for each in study.directions],
        [trial.number for trial in complete],
        [list(trial.values) for trial in complete],
        [trial.number in best for trial in complete],
        [trial.number not in feasible for trial in complete],
    )


def times(study: Study) -> Times:
    """How long evaluations took, and the waits between them."""
    spans = sorted(
        (trial.datetime_start.timestamp(), trial.datetime_complete.timestamp(), trial.number)
        for trial in ledger.read(study)
        if trial.datetime_start is not None and trial.datetime_complete is not None
    )
    ends = np.sort([end for _, end, _ in spans])
    waited, waits = [], []
    for start, _, number in spans:
        earlier = int(np.searchsorted(ends, start, side="right"))
        if earlier:
            waited.append(number)
            waits.append(float(start - ends[earlier - 1]))
    return Times([number for *_, number in spans], [end - start for start, end, _ in spans], waited, waits)


@one_thread()
def predictor_of(study: Study) -> Predictor:
    """The model of a study for predictions. Reports that use the same model share it."""
    return model_for(study).optimizer.model.predictor()


@one_thread()
def importances(study: Study, predictor: Predictor | None = None) -> dict[str, float]:
    """The share of each parameter in the variation of the model's mean over the space, the largest first.

    These are Sobol's total effects, as shares of their sum. A total effect is half the expected squared change of the
    mean when only this parameter is resampled.
    """
    predictor = predictor or predictor_of(study)
    space, gp, rng = predictor.space, predictor.process, np.random.default_rng(0)
    if space.dim == 0:
        return {}
    x, other = space.sample(rng, SAMPLE), space.sample(rng, SAMPLE)
    mean = gp.mean(x)
    effects = {}
    for j, name in enumerate(space.names):
        moved = x.copy()
        moved[:, j] = other[:, j]
        effects[name] = float(np.mean((gp.mean(space.repair(moved, rng)) - mean) ** 2)) / 2
    total = sum(effects.values()) or 1.0
    return {name: effect / total for name, effect in sorted(effects.items(), key=lambda item: -item[1])}


@one_thread()
def slices(study: Study) -> list[Slice]:
    """The model through the best trial, along each parameter that is active there and can vary."""
    optimizer = model_for(study).optimizer
    if optimizer.space.dim == 0:
        return []
    gp, warping = optimizer.model.surrogate()
    sign = -1.0 if _maximizes(study) else 1.0
    space, every = optimizer.space, ledger.read(study)
    best, point = _center(study, every, space)
    center = space.clip(point[None])[0]
    trials, bounded = complete_trials(every), bool(constraints_of(every))
    kept = {trial.number for trial in feasible_trials(every)}
    found = []
    for j, name in enumerate(space.names):
        if math.isnan(center[j]):
            continue
        x = space.repair(_along(space, center, j))
        posterior = gp.posterior(x)
        spread = BAND * np.sqrt(posterior.variance)
        band = [sign * warping.inverse(posterior.mean + k * spread) for k in (-sign, 0.0, sign)]
        low, middle, high = (part.tolist() for part in band)
        configurations = [space.decode(row) for row in x]
        with_it = [trial for trial in trials if name in trial.params]
        log, choice = bool(getattr(space.distributions[name], "log", False)), bool(space.categorical[j])
        found.append(
            Slice(
                name,
                choice,
                log,
                [params[name] for params in configurations],
                middle,
                low,
                high,
                [(trial.params[name], _value(trial)) for trial in with_it],
                (best.params[name], _value(best)),
                optimizer.model.predict_feasible(configurations) if bounded else [],
                [trial.number not in kept for trial in with_it] if bounded else [],
            )
        )
    return found


def _center(study: Study, trials: Sequence[FrozenTrial], space: Space) -> tuple[FrozenTrial, Array]:
    """The best completed trial that is in the space, and its point; the study may have none that is feasible."""
    sign = -1.0 if _maximizes(study) else 1.0
    placed = [(trial, point_of(trial, space)) for trial in feasible_trials(trials)]
    found = [(trial, point) for trial, point in placed if point is not None]
    if found:
        return min(found, key=lambda pair: sign * _value(pair[0]))
    raise ValueError(
        f"no trial of the study {study.study_name!r} satisfies its constraints yet, so there is no best one"
    )


def _along(space: Space, center: Array, j: int) -> Array:
    """Points along one column: all its levels, or a grid from end to end that includes the center, (m, d)."""
    listed = space.levels[j] <= LEVELS
    x = np.repeat(center[None], int(space.levels[j]) if listed else GRID + 1, axis=0)
    if listed:
        shares = (np.arange(len(x)) + 0.5) / len(x)
        x[:, j] = space.from_uniform(np.repeat(shares[:, None], space.dim, axis=1))[:, j]
        return x
    x[1:, j] = np.linspace(0.0, 1.0, GRID)
    x[:, j] = space.snap(x)[:, j]
    return x[np.unique(x[:, j], return_index=True)[1]]


@one_thread()
def coordinates(study: Study) -> Coordinates:
    """Complete trials as lines over the parameters that can vary, the worst first."""
    space = model_for(study).optimizer.space
    trials = sorted(complete_trials(ledger.read(study)), key=_value, reverse=not _maximizes(study))
    lines = space.clip(np.array([space.encode(trial.params) for trial in trials]).reshape(len(trials), space.dim))
    scale = np.where(space.categorical, np.maximum(space.levels - 1, 1.0), 1.0)
    distributions = [space.distributions[name] for name in space.names]
    return Coordinates(list(space.names), distributions, lines / scale, [_value(trial) for trial in trials])


def place(distribution: BaseDistribution, value: Any) -> float:
    """The position of a value on an axis of `Coordinates`."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.to_internal_repr(value) / max(len(distribution.choices) - 1, 1)
    low, high, log = distribution.low, distribution.high, distribution.log  # type: ignore[attr-defined]
    if log:
        low, high, value = math.log(low), math.log(high), math.log(value)
    # Halves, since the difference of two doubles may overflow.
    return float((value / 2 - low / 2) / (high / 2 - low / 2))


def varies(study: Study) -> bool:
    """Whether any parameter of the study can have more than one value."""
    return any(not d.single() for trial in ledger.read(study) for d in trial.distributions.values())


def model_for(study: Study) -> StudyModel:
    """The model that the last run or sampler would continue with."""
    _one_objective(study)
    trials = ledger.read(study)
    if not complete_trials(trials):
        raise ValueError(f"the study {study.study_name!r} has no completed trial yet, so there is no model of it")
    if not any(trial.params for trial in trials):
        raise ValueError(f"the trials of the study {study.study_name!r} have no parameters, so there is no model of it")
    return model_of(study, trials)


def _one_objective(study: Study) -> None:
    if len(study.directions) > 1:
        raise ValueError(
            f"the study {study.study_name!r} has {len(study.directions)} objectives, and this needs one; "
            "study.best_trials has the front, `lazybo best` prints it and `lazybo plot front` draws it"
        )


def _value(trial: FrozenTrial) -> float:
    assert trial.value is not None, "a complete trial has a value"
    return float(trial.value)


def _maximizes(study: Study) -> bool:
    return study.direction == StudyDirection.MAXIMIZE
