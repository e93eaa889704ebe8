"""Trials of a study: their state, point, constraints, cost and rank, and the space that they show.

A trial is in one of these states (`State`). Optuna has no paused and no skipped trials: `state_of` tells them apart by
their attributes.

```
WAITING ──> RUNNING ──> COMPLETE   it has values
   ^         │  ^  ├──> STOPPED    Optuna's PRUNED: only intermediate values
   │         v  │  ├──> FAILED     no value
   └─────── PAUSED └──> SKIPPED    nobody made the experiment; the model ignores it
```

Optuna keeps the constraints of a trial as attributes of it; each is satisfied if it is at most 0. A trial that has not
measured a constraint that other trials have is not known to be feasible, and does not count.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from lazybo.core import Array, Direction, checks
from lazybo.search import Evaluation, non_dominated
from lazybo.space import Condition, Space, Structured
from lazybo.study.attributes import (
    CONSTRAINT_KEY,
    OWN_ATTRIBUTES,
    PAUSE_KEY,
    PAUSED_KEY,
    SECONDS_KEY,
    SKIPPED_KEY,
    TO_END_KEY,
    VARIANCE_KEY,
    metric_at,
)
from lazybo.study.store import Store

# The name of a constraint that has none.
NO_NAME = "(no name)"
# The cost that is a time. It is measured and need not be returned.
SECONDS = "seconds"
# Shorter evaluations count as this long: differences below a millisecond are noise.
LEAST_SECONDS = 1e-3


# ------------------------------------------------------------------------ states


class State(Enum):
    """The state of a trial; see the top of this module."""

    WAITING = auto()
    RUNNING = auto()
    PAUSED = auto()
    COMPLETE = auto()
    STOPPED = auto()
    FAILED = auto()
    SKIPPED = auto()


_STATES = {
    TrialState.WAITING: State.WAITING,
    TrialState.RUNNING: State.RUNNING,
    TrialState.COMPLETE: State.COMPLETE,
    TrialState.PRUNED: State.STOPPED,
    TrialState.FAIL: State.FAILED,
}


def state_of(trial: FrozenTrial) -> State:
    """The state of a trial."""
    if is_paused(trial):
        return State.PAUSED
    if trial.state == TrialState.FAIL and SKIPPED_KEY in trial.system_attrs:
        return State.SKIPPED
    return _STATES[trial.state]


def is_paused(trial: FrozenTrial) -> bool:
    """Whether a training was stopped for now and can be continued from its checkpoint."""
    return trial.state == TrialState.WAITING and trial.user_attrs.get(PAUSED_KEY) is not None


def paused_step(trial: FrozenTrial) -> int:
    """The last step at which a training was paused, also if it runs again; 0 if it never was."""
    return _pause_of(trial)[0] or (trial.last_step or 0 if is_paused(trial) else 0)


def ended_at(trial: FrozenTrial) -> float:
    """When a trial ended or was last paused, in seconds since 1970; infinite if it runs or waits, or nobody knows."""
    if is_paused(trial):
        return _pause_of(trial)[1]
    if not trial.state.is_finished():
        return math.inf
    return trial.datetime_complete.timestamp() if trial.datetime_complete else 0.0


def _pause_of(trial: FrozenTrial) -> tuple[int, float]:
    """The step and the time of a training's last pause; 0 and ∞ if there is none, or if they are damaged."""
    with suppress(KeyError, TypeError, ValueError):
        step, seconds = trial.system_attrs[PAUSE_KEY]
        return checks.whole("step", step, 0), checks.finite_number("seconds", seconds)
    return 0, math.inf


def paused_trials(study: Study) -> list[FrozenTrial]:
    """The paused trials of a study."""
    return [trial for trial in Store(study).trials() if is_paused(trial)]


def resume(study: Study, *numbers: int) -> None:
    """Queue paused trials: the next run continues them before it starts others, and does not pause them again.

    Without numbers, all paused trials. Raises a ValueError if one of these trials is not paused.
    """
    paused = {trial.number: trial for trial in paused_trials(study)}
    for number in numbers:
        if number not in paused:
            known = ", ".join(map(str, paused)) or "none"
            raise ValueError(f"trial {checks.shortened(number)} is not paused; paused trials: {known}")
    store = Store(study)
    for number in numbers or tuple(paused):
        trial_id = paused[number]._trial_id
        store.set_trial_attributes(trial_id, {TO_END_KEY: True})
        store.set_user_attributes(trial_id, {PAUSED_KEY: None})


# ------------------------------------------------------------------ configuration


def as_given(params: Mapping[str, Any], space: Mapping[str, BaseDistribution]) -> dict[str, Any]:
    """Parameters from a storage with the choices of the space: JSON turns tuples into lists."""
    return {name: _as_given(value, space.get(name)) for name, value in params.items()}


def _as_given(value: Any, distribution: BaseDistribution | None) -> Any:
    if not isinstance(value, list) or not isinstance(distribution, CategoricalDistribution):
        return value
    return next((choice for choice in distribution.choices if _as_lists(choice) == value), value)


def _as_lists(choice: Any) -> Any:
    return [_as_lists(part) for part in choice] if isinstance(choice, list | tuple) else choice


def params_in(space: Mapping[str, BaseDistribution], params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that the space has, with its choices."""
    return as_given({name: value for name, value in params.items() if name in space}, space)


def point_in(space: Space, params: Mapping[str, Any]) -> Array | None:
    """The point of a configuration without parameters that the space does not have; None if it is from another space.

    Numbers may lie outside their range.
    """
    try:
        return space.points.encode(space.plain(params_in(space.distributions, params), outside=True))
    except ValueError:
        return None


def point_of(trial: FrozenTrial, space: Space) -> Array | None:
    """The point of a trial; None if it is from another space."""
    return point_in(space, trial.params)


# -------------------------------------------------------------- values and limits


def directions_of(study: Study) -> tuple[Direction, ...]:
    """The directions of a study as `Optimizer` takes them."""
    return tuple("maximize" if each == StudyDirection.MAXIMIZE else "minimize" for each in study.directions)


def names_of(study: Study) -> list[str]:
    """The names of the objectives; without names ``value``, or ``value 0``, ``value 1`` and so on for several."""
    if study.metric_names:
        return list(study.metric_names)
    count = len(study.directions)
    return ["value"] if count == 1 else [f"value {i}" for i in range(count)]


def known_variance(trial: FrozenTrial) -> float:
    """The known variance of a trial's value; 0 if there is none, or if it cannot be read."""
    found = trial.system_attrs.get(VARIANCE_KEY)
    variance = checks.as_number("variance", found) if checks.is_number(found) else 0.0
    return variance if 0.0 <= variance < math.inf else 0.0


def metrics_of(trial: FrozenTrial) -> dict[str, Any]:
    """What the objective returned beside its value: the user's attributes, without those that lazybo writes."""
    return {n: v for n, v in trial.user_attrs.items() if n not in OWN_ATTRIBUTES and not n.startswith("lazybo:")}


def measured_constraints(trial: FrozenTrial) -> dict[str, float]:
    """The constraints that a trial has measured, by name. What is not a number was not measured.

    Optuna and earlier versions accept empty names.
    """
    written: Mapping[str, object] = trial.constraints
    found = {name: checks.as_number(name, value) for name, value in written.items() if checks.is_number(value)}
    return {name if name.strip() else NO_NAME: value for name, value in found.items() if not math.isnan(value)}


def as_attributes(constraints: Mapping[str, float]) -> dict[str, float]:
    """Measured constraints as the attributes that Optuna reads."""
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


def evaluations_of(trials: Sequence[FrozenTrial], space: Space) -> list[Evaluation]:
    """The feasible trials in the space, which may be recommended or repeated."""
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
    """A key that is equal for equal parameters."""
    try:
        return frozenset(params.items())
    except TypeError:  # a choice is a list
        return repr(sorted(params.items()))


# -------------------------------------------------------------------------- cost


def measured_seconds(trial: FrozenTrial) -> float | None:
    """How long the evaluation of a trial took in its worker, if that was measured."""
    measured = trial.system_attrs.get(SECONDS_KEY)
    seconds = checks.as_number("seconds", measured) if checks.is_number(measured) else math.nan
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def seconds_of(trial: FrozenTrial) -> float | None:
    """How long the evaluation of a trial took: as its worker measured it, or by the times in the study."""
    measured = measured_seconds(trial)
    if measured is not None:
        return measured
    if trial.datetime_start is None or trial.datetime_complete is None:
        return None
    return max((trial.datetime_complete - trial.datetime_start).total_seconds(), 0.0)


def cost_of(trial: FrozenTrial, cost: str) -> float | None:
    """What a finished trial cost, if that is known. A stopped trial has not cost as much as a whole evaluation."""
    if trial.state == TrialState.PRUNED:
        return None
    if cost == SECONDS:
        took = seconds_of(trial)
        return None if took is None else max(took, LEAST_SECONDS)
    metric = metric_at(trial.user_attrs, cost)
    return float(metric) if is_cost(metric) else None


def is_cost(metric: object) -> bool:
    """Whether a metric can be a cost: a positive finite number."""
    return checks.is_number(metric) and math.isfinite(number := checks.as_number("cost", metric)) and number > 0.0


def check_returned(trial: FrozenTrial, cost: str) -> None:
    """Raise a ValueError if a complete trial lacks the metric that is the cost."""
    found = metric_at(trial.user_attrs, cost)
    if cost != SECONDS and not is_cost(found):
        given = "there is none" if found is None else f"not {checks.shortened(found)}"
        raise ValueError(
            f"trial {trial.number}: cost={cost!r} needs a positive number under this name in every trial, {given}; "
            f"call trial.set_user_attr({cost!r}, ...), or use cost='seconds', which is measured"
        )


# ------------------------------------------------------------------------- space


def infer_space(
    distributions: Mapping[str, BaseDistribution],
    trials: Sequence[FrozenTrial],
    feasible: Callable[[dict[str, Any]], bool] | None = None,
    kinds: Mapping[str, Structured] | None = None,
) -> Space:
    """The space of these parameters; when each is active is inferred from trials that completed or were stopped.

    Parameters that one of ``kinds`` is stored as are one.

    A parameter that some trials lack depends on the first categorical or integer parameter whose values separate the
    trials that have it from those that do not. If there is no such parameter, it is optional.
    """
    done = (TrialState.COMPLETE, TrialState.PRUNED)
    seen = [trial.params for trial in trials if trial.state in done and trial.params]
    parameters = Space.grouped(distributions, kinds or {})
    whole = {
        name: [*each.stored(name)] if isinstance(each, Structured) else [name] for name, each in parameters.items()
    }
    conditions: dict[str, Condition] = {}
    optional = set()
    for name, stored in whole.items():
        have = [params for params in seen if all(each in params for each in stored)]
        lack = [params for params in seen if not all(each in params for each in stored)]
        if not lack:
            continue
        alone = {each: d for each, d in distributions.items() if each in parameters}
        for parent in _possible_parents(name, alone, conditions):
            # Compared as strings: choices may be lists, which a set cannot hold.
            with_it = {repr(params[parent]): params[parent] for params in have if parent in params}
            without = {repr(params[parent]) for params in lack if parent in params}
            without_parent = any(parent not in params for params in have)
            if with_it and with_it.keys().isdisjoint(without) and not without_parent:
                conditions[name] = Condition(parent, tuple(with_it[text] for text in sorted(with_it)), outside=True)
                break
        else:
            optional.add(name)
    return Space(parameters, conditions=conditions, feasible=feasible, optional=optional)


def _possible_parents(
    name: str, space: Mapping[str, BaseDistribution], conditions: Mapping[str, Condition]
) -> list[str]:
    """Discrete parameters that do not themselves depend on this one."""

    def depends_on_it(child: str) -> bool:
        while child in conditions:
            child = conditions[child].parent
            if child == name:
                return True
        return False

    discrete = (CategoricalDistribution, IntDistribution)
    return [p for p, d in space.items() if p != name and isinstance(d, discrete) and not depends_on_it(p)]
