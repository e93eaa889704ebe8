"""Checks of the arguments of `lazybo.optimize`, alone and together; what `warm_start` and `initial` may be."""

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import TrialState

from lazybo.core import checks
from lazybo.run.goals import Goals
from lazybo.run.limits import Limits
from lazybo.run.objective import Call, KFold, call_of, call_without_space
from lazybo.search import Optimizer, Options
from lazybo.space import Cells, Space
from lazybo.study import LazyPruner, LazySampler, TrialView

_logger = logging.getLogger("lazybo")

_IN_SAMPLER = ["n_startup_trials", *(each.name for each in fields(Options) if each.name not in ("seed", "n_startup"))]
# What to use instead of arguments that moved, or that other libraries have.
HINTS = {
    **{each.name: f"use limits=lazybo.Limits({each.name}=...)" for each in fields(Limits)},
    **{name: f"use sampler=lazybo.LazySampler({name}=...)" for name in _IN_SAMPLER},
    **{name: f"use lazybo.Space({{...}}, {name}=...) as the space" for name in Space.KNOWLEDGE},
    "directions": "use direction=, which also takes a list or a dict of names",
    "reports": "use pruner=lazybo.LazyPruner(reports=...)",
    "n_startup": "use sampler=lazybo.LazySampler(n_startup_trials=...)",
    "n_jobs": "use n_parallel= for several evaluations at the same time (in processes; executor='threads' for threads)",
    "study": "give storage= and study_name=; the same ones resume the study",
    **dict.fromkeys(
        ("track", "tracker", "trackers", "tracking", "logger", "loggers"),
        "use callbacks=[...] with a tracker, such as lazybo.track.mlflow.MLflow()",
    ),
    "load_if_exists": "the same storage= and study_name= always resume the study",
    "catch": "every exception fails its trial only; limits=lazybo.Limits(max_failures=...) says how many failures in a "
    "row end the run",
    "show_progress_bar": "use progress=",
    "verbose": "use progress=",
    "random_state": "use seed=",
    "maximize": "use direction='maximize'",
    "mode": "use direction='minimize' or 'maximize'",
    "metric": "return a dict with 'value', or name the objective with direction={name: 'minimize'}",
    **dict.fromkeys(("n_calls", "n_iter", "max_evals", "maxiter", "num_samples", "iterations"), "use n_trials="),
}
# A configuration and its value; None means that the evaluation failed.
Known = tuple[dict[str, Any], float | None]


def checked_limits(limits: object) -> Limits:
    """The limits of a run; those by default if none are given."""
    if not isinstance(limits, Limits | None):
        raise TypeError(f"limits must be lazybo.Limits(...), such as lazybo.Limits(timeout=60), not {limits!r}")
    return limits or Limits()


def checked_space(
    space: Space | Mapping[str, Any] | None, options: Options, limits: Limits, warm_start: object, max_steps: object
) -> tuple[Space, Options]:
    """The space and the options, both with the beliefs of one of them; an empty space if there is none."""
    if space is None:
        known = {"warm_start": warm_start, "max_steps": max_steps, "min_gain": limits.min_gain}
        for name, given in {**known, "confirm": limits.confirm or None}.items():
            if given is not None:
                raise ValueError(f"{name} needs a space: give the parameters as the second argument of optimize()")
        return Space.undeclared(), options
    return options.joined(Space.of(space))


def checked_options(sampler: object, seed: int | None) -> Options:
    """The options of the model."""
    if sampler is None:
        return Options(seed=checks.check_seed(seed))
    if not isinstance(sampler, LazySampler):
        advice = "optimize() always uses lazybo's model; for other samplers use Optuna's study.optimize()"
        if sampler is LazySampler:
            raise TypeError("sampler is the class LazySampler; write lazybo.LazySampler(), with parentheses")
        kind = BaseSampler.__name__ if isinstance(sampler, type) else type(sampler).__name__
        raise TypeError(f"sampler must be lazybo.LazySampler(...), not {kind}: {advice}")
    if sampler.feasible is not None:
        raise ValueError("give feasible to the space: lazybo.Space({...}, feasible=...), not to the sampler")
    if None not in (seed, sampler.seed) and seed != sampler.seed:
        raise ValueError(f"seed={seed} here, and seed={sampler.seed} in the sampler; leave one of them out")
    return sampler.options if seed is None else replace(sampler.options, seed=checks.check_seed(seed))


def check_combination(
    goals: Goals, limits: Limits, options: Options, warm_start: object, pruner: BasePruner | None, *, folds: bool
) -> None:
    """Reject arguments that contradict each other."""
    several = goals.several
    wrong: list[tuple[object, str]] = [
        (
            several and limits.target_value is not None,
            "target_value is for one objective; use patience or a callback that calls study.stop()",
        ),
        (several and limits.min_gain is not None, "min_gain is for one objective; use patience"),
        (several and limits.confirm, "confirm is for one objective; with several there is no single best to confirm"),
        (several and warm_start is not None, "warm_start has the values of one objective; there are several here"),
        (
            folds and (several or goals.names or goals.bounds),
            "kfold is for one objective without constraints on metrics; evaluate all folds in one call and return "
            "their means",
        ),
        (
            folds and goals.cost,
            f"with kfold the cost can be 'seconds', not the metric {goals.cost!r} of one fold; evaluate all folds in "
            "one call and return it",
        ),
        (
            options.deterministic and limits.confirm,
            "confirm evaluates the best configurations again, and deterministic says that this gives the same values; "
            "leave one of them out",
        ),
    ]
    for is_wrong, message in wrong:
        if is_wrong:
            raise ValueError(message)
    goals.check_pruner(pruner)


def check_objects(callbacks: object, pruner: object, study_name: object) -> None:
    """Reject wrong types, which would otherwise be noticed while trials run, or never."""
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise TypeError(f"callbacks must be a list of functions of (study, trial), not {callbacks!r}")
    for callback in callbacks:
        if isinstance(callback, type):
            raise TypeError(f"a callback must be a function of (study, trial); make one: {callback.__name__}(...)")
        if not _takes(callback, 2):
            raise TypeError(f"a callback must be a function of (study, trial), not {callback!r}")
        if hasattr(callback, "report") and not _takes(callback.report, 4):
            raise TypeError(
                f"the report of a callback must be a method of (study, trial, step, value), not {callback!r}"
            )
    if isinstance(pruner, type) and issubclass(pruner, BasePruner):
        raise TypeError(f"pruner is the class {pruner.__name__}; write {pruner.__name__}(), with parentheses")
    if not isinstance(pruner, BasePruner | None):
        raise TypeError(f"pruner must be one of optuna.pruners or lazybo.LazyPruner(), not {pruner!r}")
    if not isinstance(study_name, str | None):
        raise TypeError(f"study_name must be a string, not {study_name!r}")


def _takes(function: object, count: int) -> bool:
    """Whether something can be called with this many arguments, as far as Python knows."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # functions in C have no signature
        return True
    return True


def checked_call(objective: Callable[..., Any], space: Space) -> Call:
    """How to call an objective over this space."""
    if not space.declared:
        return call_without_space(objective)
    if isinstance(objective, KFold):
        return call_of(objective.objective, space.parameters, space.conditions, folds=True)
    return replace(call_of(objective, space.parameters, space.conditions), space=space.parameters)


def check_steps(call: Call, max_steps: int | None, checkpoints: object) -> None:
    """Reject steps and checkpoints that the objective cannot have."""
    if max_steps is not None:
        checks.whole("max_steps", max_steps, 1)
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


def completed_pruner(pruner: BasePruner | None, max_steps: int | None) -> BasePruner:
    """The pruner of a run. Ours knows the last step of a training."""
    if pruner is None or (isinstance(pruner, LazyPruner) and pruner.max_step is None):
        return LazyPruner(max_steps, None if pruner is None else pruner.reports)
    return pruner


# -------------------------------------------------------------------- warm_start


def known_results(source: Any, space: Space, direction: str) -> list[Known]:
    """All results of a study, a table, or several of them.

    A table is a CSV file, a data frame, a list of dicts with the parameters and ``value`` (Optuna's
    ``trials_dataframe()`` names them ``params_…``), or a list of pairs of parameters and value. If there is a column
    ``state``, as in Optuna's tables, only trials that completed or failed are used.
    """
    if source is None:
        return []
    if isinstance(source, Study):
        return _from_study(source, space, direction)
    if isinstance(source, str | Path):
        return _from_rows(space.cells.read(source, "the table to start from").values(), space)
    if Cells.is_frame(source):
        try:
            return _from_rows(Cells.of_frame(source), space)
        except TypeError:  # a pandas column, for example
            raise _no_source(source) from None
    if not isinstance(source, Iterable) or isinstance(source, Mapping | bytes):
        raise _no_source(source)
    items = list(source)
    if any(isinstance(item, Study | str | Path) or Cells.is_frame(item) for item in items):
        return [result for item in items for result in known_results(item, space, direction)]
    return _from_rows(items, space)


def _no_source(source: Any) -> TypeError:
    return TypeError(
        "warm_start must be a study, a data frame, the name of a CSV file, a list of dicts with the parameters and "
        f"'value', or a list of those, not {source!r:.100}"
    )


# ------------------------------------------------------------------ studies


def _from_study(study: Study, space: Space, direction: str) -> list[Known]:
    name = f"the study {study.study_name!r}"
    if len(study.directions) > 1:
        raise ValueError(f"{name} to start from has {len(study.directions)} objectives, not one")
    theirs = study.direction.name.lower()
    if theirs != direction:
        raise ValueError(f"{name} to start from says {theirs!r}, this run {direction!r}")
    results: list[Known] = []
    misfits = 0
    for trial in study.get_trials(deepcopy=False):
        if trial.state not in (TrialState.COMPLETE, TrialState.FAIL):
            continue
        params = TrialView(trial).given_in(space)
        try:
            space.check(params, outside=True)
        except ValueError:
            misfits += trial.state == TrialState.COMPLETE
        else:
            results.append((params, trial.value))
    if misfits and not results:
        raise ValueError(f"no trial of {name} to start from fits this space")
    if misfits:
        _logger.warning(f"{misfits} trials of {name} to start from do not fit this space and are not used")
    return results


# ------------------------------------------------------------------- tables


def _from_rows(rows: Iterable[Any], space: Space) -> list[Known]:
    results: list[Known] = []
    for i, row in enumerate(rows):
        state = _state(row, space)
        if state not in (TrialState.COMPLETE.name, TrialState.FAIL.name, None):
            continue
        try:
            params, value = _split(row, space)
            space.check(params, outside=True)
        except (TypeError, ValueError, OverflowError) as error:
            if state == TrialState.FAIL.name:
                continue  # it failed before it got its parameters
            raise ValueError(f"row {i} of the table to start from: {error}") from None
        results.append((params, value))
    return results


def _state(row: Any, space: Space) -> str | None:
    if not isinstance(row, Mapping) or "state" not in row or "state" in space.cells.columns(row).values():
        return None
    state = row["state"]
    return state.name if isinstance(state, TrialState) else str(state).removeprefix("TrialState.")


def _split(row: Any, space: Space) -> Known:
    if isinstance(row, Mapping):
        row = space.store(row)
        columns = space.cells.columns(row)
        for name in ("value", *space.distributions):
            there = name in columns or (name == "value" and name in row)
            if not there and name not in space.stored_conditions:
                raise ValueError(f"there is no {name!r}, only {sorted(map(str, row))}")
        if columns.get("value") == "value":
            raise ValueError(f"the column 'value' is the result; call the parameter's column {Cells.MARK + 'value'!r}")
        cells: Mapping[str, Any] = {name: row[column] for name, column in columns.items()}
        value = row["value"]
    elif isinstance(row, Sequence) and len(row) == 2 and isinstance(row[0], Mapping):
        cells, value = space.store(row[0]), row[1]
    else:
        raise ValueError(
            f"it must be a dict with the parameters and 'value', or a pair (params, value), not {row!r:.100}"
        )
    if isinstance(value, str | bytes):
        raise ValueError(f"the value must be a number, not {value!r}")
    return space.cells.params(cells), None if Cells.is_empty(value) else float(value)


# ------------------------------------------------- initial configurations


def check_initial(initial: Iterable[Mapping[str, Any]], space: Space, optimizer: "Optimizer") -> list[dict[str, Any]]:
    """The initial configurations, complete or in part. The error names the first that does not fit the space.

    A parameter that is active for only one value of its parent sets the parent to that value. A configuration must be
    feasible for some values of the parameters that it leaves out. If the objective names its parameters itself, only
    the types are checked.
    """
    if isinstance(initial, Mapping | str) or not isinstance(initial, Iterable):
        raise ValueError(f"initial must be a list of dicts of parameters, not {initial!r}")
    first = []
    for i, params in enumerate(initial):
        try:
            if not isinstance(params, Mapping):
                raise ValueError(f"it must be a dict of parameters, not {params!r}")
            first.append(_plain_part(params) if not space.declared else _known_part(params, space))
            if space.feasible is not None:
                optimizer.planner.complete(first[-1], i)
        except ValueError as error:
            raise ValueError(f"initial configuration {i}: {error}") from None
    return first


def _plain_part(params: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: value.item() if isinstance(value, np.generic) else value for name, value in params.items()}
    for name, value in known.items():
        if not isinstance(name, str):
            raise ValueError(f"the name of a parameter must be a text, not {name!r}")
        if not isinstance(value, str | int | float | None):
            raise ValueError(f"{name} must be a text or a number, not {value!r}")
    return known


def _known_part(params: Mapping[str, Any], space: Space) -> dict[str, Any]:
    known = dict(space.store(params))
    for name in [*known]:
        while (condition := space.stored_conditions.get(name)) is not None and condition.parent not in known:
            if len(condition.values) > 1:
                raise ValueError(
                    f"{name!r} is only active while {condition.parent!r} is one of {condition.values}; "
                    f"give {condition.parent!r} too"
                )
            known[condition.parent], name = condition.values[0], condition.parent
    # Raises ValueError if no values of the other parameters make this a configuration of the space.
    space.complete(known, np.full(space.points.dim, np.nan), np.random.default_rng(0))
    distributions = {name: space.distributions[name] for name in known}
    return {name: d.to_external_repr(d.to_internal_repr(known[name])) for name, d in distributions.items()}
