"""Checks of the arguments of `optimize()`. Each error names the argument, what was expected, and what was given."""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from optuna.pruners import BasePruner, NopPruner, ThresholdPruner

from lazybo.core.checks import finite_number, positive, seconds, shortened, whole
from lazybo.run.call import Call
from lazybo.run.goals import Goals
from lazybo.run.limits import Limits
from lazybo.search.optimizer import Optimizer
from lazybo.space.space import Space


def check_limits(
    n_trials: int | None,
    timeout: float | None,
    target_value: float | None,
    patience: int | None,
    trial_timeout: float | None,
    retries: int,
    max_failures: int | None,
    min_gain: float | None = None,
    confirm: int = 0,
) -> Limits:
    """The limits of a run; one of them must be able to end it, and to end its search before a final check."""
    limits = Limits(
        n_trials=_count("n_trials", n_trials),
        timeout=seconds("timeout", timeout),
        target_value=None if target_value is None else finite_number("target_value", target_value),
        patience=_count("patience", patience),
        max_failures=_count("max_failures", max_failures),
        trial_timeout=seconds("trial_timeout", trial_timeout),
        retries=whole("retries", retries, 0),
        min_gain=None if min_gain is None else positive("min_gain", min_gain),
        confirm=whole("confirm", confirm, 0),
    )
    ends_search = not (math.inf == limits.n_trials == limits.patience) or not (target_value is min_gain is None)
    if not ends_search and limits.timeout == math.inf:
        raise ValueError("nothing would end this run: give n_trials, timeout, target_value, patience or min_gain")
    if limits.confirm and not ends_search:
        raise ValueError(
            "confirm needs to know when the search ends: give n_trials, target_value, patience or min_gain"
        )
    if limits.confirm >= limits.n_trials:
        raise ValueError(f"confirm is a part of n_trials={n_trials}: it must be less, not {shortened(confirm)}")
    return limits


def check_supported(goals: Goals, limits: Limits, warm_start: object, *, folds: bool) -> None:
    """Reject what has a meaning for one objective only."""
    if goals.several and limits.target_value is not None:
        raise ValueError("target_value is for one objective; use patience or a callback that calls study.stop()")
    if goals.several and limits.min_gain is not None:
        raise ValueError("min_gain is for one objective; use patience")
    if goals.several and limits.confirm:
        raise ValueError("confirm is for one objective; with several there is no single best configuration to confirm")
    if goals.several and warm_start is not None:
        raise ValueError("warm_start gives the values of one objective; there are several here")
    if folds and (goals.several or goals.names or goals.bounds):
        raise ValueError(
            "kfold is for one objective without constraints on metrics; evaluate all folds in one call and return "
            "their means"
        )
    if folds and goals.cost:
        raise ValueError(
            f"with kfold the cost can be 'seconds', not the metric {goals.cost!r} of one fold; evaluate all folds in "
            "one call and return it"
        )


def check_repeats(limits: Limits, *, deterministic: bool) -> None:
    """Reject a final check of a deterministic objective."""
    if deterministic and limits.confirm:
        raise ValueError(
            "confirm evaluates the best configurations again, and deterministic says that this gives the same values; "
            "leave one of them out"
        )


def check_steps(call: Call, max_steps: int | None, checkpoints: object) -> None:
    """Reject steps and checkpoints that the objective cannot have."""
    if max_steps is not None:
        whole("max_steps", max_steps, 1)
        if not call.reports:
            raise ValueError(
                "max_steps is for objectives that report: a generator function that yields the value of each step, or "
                "a function that takes trial and calls trial.report"
            )
    if checkpoints is None:
        return
    if not isinstance(checkpoints, str | PathLike):
        raise TypeError(f"checkpoints must be the path of a folder, not {checkpoints!r}")
    if Path(checkpoints).expanduser().exists() and not Path(checkpoints).expanduser().is_dir():
        raise ValueError(f"checkpoints must be a folder, but {str(checkpoints)!r} is not one")
    if not call.takes_checkpoint:
        raise ValueError(
            "checkpoints is for objectives that have some: a generator function with an argument called checkpoint"
        )


def check_objects(callbacks: object, pruner: object, study_name: object) -> None:
    """Reject wrong types here, which would otherwise be noticed while trials run, or never."""
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise TypeError(f"callbacks must be a list of functions of (study, trial), not {callbacks!r}")
    for callback in callbacks:
        if not callable(callback):
            raise TypeError(f"a callback must be a function of (study, trial), not {callback!r}")
    if not isinstance(pruner, BasePruner | None):
        raise TypeError(f"pruner must be one of optuna.pruners or lazybo.LazyPruner(), not {pruner!r}")
    if not isinstance(study_name, str | None):
        raise TypeError(f"study_name must be a string, not {study_name!r}")


def check_pruner(pruner: BasePruner | None, goals: Goals) -> None:
    """Reject pruners that judge by one objective alone if there are several: they raise an error, or stop wrongly."""
    own = type(pruner).__module__.startswith("optuna.") and not isinstance(pruner, NopPruner | ThresholdPruner)
    if goals.several and own:
        raise ValueError(
            f"{type(pruner).__name__} compares one objective, and there are several; leave pruner out for "
            "lazybo.LazyPruner(), or give optuna.pruners.NopPruner() to stop nothing"
        )


def _count(name: str, value: int | None) -> float:
    # No count is larger than sys.maxsize, which a double can hold.
    return math.inf if value is None else min(whole(name, value, 1), sys.maxsize)


def check_initial(initial: Iterable[Mapping[str, Any]], space: Space) -> list[dict[str, Any]]:
    """The initial configurations, complete or in part. The error names the first that does not fit the space.

    A parameter that is active for only one value of its parent sets the parent to that value.
    """
    if isinstance(initial, Mapping | str) or not isinstance(initial, Iterable):
        raise ValueError(f"initial must be a list of dicts of parameters, not {initial!r}")
    first = []
    for i, params in enumerate(initial):
        try:
            first.append(_known_part(params, space))
        except ValueError as error:
            raise ValueError(f"initial configuration {i}: {error}") from None
    return first


def check_initial_feasible(initial: Sequence[Mapping[str, Any]], optimizer: Optimizer) -> None:
    """Raise a ValueError if an initial configuration is not feasible, whatever its missing parameters are."""
    if optimizer.space.feasible is None:
        return
    for i, params in enumerate(initial):
        try:
            optimizer.planner.complete(params, i)
        except ValueError as error:
            raise ValueError(f"initial configuration {i}: {error}") from None


def _known_part(params: Mapping[str, Any], space: Space) -> dict[str, Any]:
    if not isinstance(params, Mapping):
        raise ValueError(f"it must be a dict of parameters, not {params!r}")
    known = dict(params)
    for name in params:
        while (condition := space.conditions.get(name)) is not None and condition.parent not in known:
            if len(condition.values) > 1:
                raise ValueError(
                    f"{name!r} is only active while {condition.parent!r} is one of {condition.values}; "
                    f"give {condition.parent!r} too"
                )
            known[condition.parent], name = condition.values[0], condition.parent
    # Raises ValueError if no values of the other parameters make this a configuration of the space.
    space.complete(known, np.full(space.dim, np.nan), np.random.default_rng(0))
    distributions = {name: space.distributions[name] for name in known}
    return {name: d.to_external_repr(d.to_internal_repr(known[name])) for name, d in distributions.items()}
