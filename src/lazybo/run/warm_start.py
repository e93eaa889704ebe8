"""What a run starts with: known results from studies or tables, and initial configurations to evaluate first."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.search import Optimizer
from lazybo.space import Cells, Space
from lazybo.study import as_given

if TYPE_CHECKING:
    from lazybo.search import Optimizer

_logger = logging.getLogger("lazybo")

# A configuration and its value; None means that the evaluation failed.
Known = tuple[dict[str, Any], float | None]


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
    if isinstance(source, FrozenTrial):
        return _from_trials([source], space, "the trials")
    if isinstance(source, str | Path):
        return _from_rows(space.cells.read(source, "the table to start from").values(), space)
    if Cells.is_frame(source):
        try:
            return _from_rows(Cells.of_frame(source), space)
        except TypeError:  # a pandas column, for example
            raise _no_source(source) from None
    if isinstance(source, Iterable) and not isinstance(source, Mapping | bytes):
        items = list(source)
        if items and all(isinstance(item, FrozenTrial) for item in items):
            return _from_trials(items, space, "the trials")
        if any(isinstance(item, Study | FrozenTrial | str | Path) or Cells.is_frame(item) for item in items):
            return [result for item in items for result in known_results(item, space, direction)]
        return _from_rows(items, space)
    raise _no_source(source)


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
    return _from_trials(study.get_trials(deepcopy=False), space, name)


def _from_trials(trials: Sequence[FrozenTrial], space: Space, where: str) -> list[Known]:
    results: list[Known] = []
    misfits = 0
    for trial in trials:
        if trial.state not in (TrialState.COMPLETE, TrialState.FAIL):
            continue
        params = as_given(trial.params, space.distributions)
        try:
            space.check(params, outside=True)
        except ValueError:
            misfits += trial.state == TrialState.COMPLETE
        else:
            results.append((params, trial.value))
    if misfits and not results:
        raise ValueError(f"no trial of {where} to start from fits this space")
    if misfits:
        _logger.warning(f"{misfits} trials of {where} to start from do not fit this space and are not used")
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
    """The state of a trial in Optuna's tables; None in others."""
    if not isinstance(row, Mapping) or "state" not in row:
        return None
    if "state" in space.cells.columns(row).values():
        return None
    state = row["state"]
    return state.name if isinstance(state, TrialState) else str(state).removeprefix("TrialState.")


def _split(row: Any, space: Space) -> Known:
    """A row as parameters and value."""
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


def check_initial(initial: Iterable[Mapping[str, Any]], space: Space | None) -> list[dict[str, Any]]:
    """The initial configurations, complete or in part. The error names the first that does not fit the space.

    A parameter that is active for only one value of its parent sets the parent to that value. Without a space, only
    the types are checked.
    """
    if isinstance(initial, Mapping | str) or not isinstance(initial, Iterable):
        raise ValueError(f"initial must be a list of dicts of parameters, not {initial!r}")
    first = []
    for i, params in enumerate(initial):
        try:
            first.append(_plain_part(params) if space is None else _known_part(params, space))
        except ValueError as error:
            raise ValueError(f"initial configuration {i}: {error}") from None
    return first


def check_initial_feasible(initial: Sequence[Mapping[str, Any]], optimizer: "Optimizer") -> None:
    """Raise a ValueError if an initial configuration is not feasible, whatever its missing parameters are."""
    if optimizer.space.feasible is None:
        return
    for i, params in enumerate(initial):
        try:
            optimizer.planner.complete(params, i)
        except ValueError as error:
            raise ValueError(f"initial configuration {i}: {error}") from None


def _plain_part(params: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(params, Mapping):
        raise ValueError(f"it must be a dict of parameters, not {params!r}")
    known = {name: value.item() if isinstance(value, np.generic) else value for name, value in params.items()}
    for name, value in known.items():
        if not isinstance(name, str):
            raise ValueError(f"the name of a parameter must be a text, not {name!r}")
        if not isinstance(value, str | int | float | None):
            raise ValueError(f"{name} must be a text or a number, not {value!r}")
    return known


def _known_part(params: Mapping[str, Any], space: Space) -> dict[str, Any]:
    if not isinstance(params, Mapping):
        raise ValueError(f"it must be a dict of parameters, not {params!r}")
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
