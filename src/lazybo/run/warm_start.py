"""Results from elsewhere, to begin with: earlier studies, or tables of results."""

import csv
import logging
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.study import Study
from optuna.trial import TrialState

from lazybo.search.space import Space

_logger = logging.getLogger("lazybo")

# A configuration, and its value; None: the evaluation failed.
Known = tuple[dict[str, Any], float | None]


def known_results(source: Any, space: Space, direction: str) -> list[Known]:
    """All results of a study, a table, or several of them.

    A table is a CSV file, a data frame, a list of dicts with the parameters and ``value`` (Optuna's
    ``trials_dataframe()`` names them ``params_…``), or a list of pairs of parameters and value.
    """
    if source is None:
        return []
    if isinstance(source, Study):
        return _from_study(source, space, direction)
    if isinstance(source, str | Path):
        return _from_csv(Path(source), space)
    if hasattr(source, "to_dict"):
        return _from_rows(source.to_dict("records"), space)
    if isinstance(source, Iterable) and not isinstance(source, Mapping):
        items = list(source)
        if any(isinstance(item, Study | str | Path) or hasattr(item, "to_dict") for item in items):
            return [result for item in items for result in known_results(item, space, direction)]
        return _from_rows(items, space)
    raise TypeError(f"warm_start must be a study, a table of results, or a list of those, not {source!r}")


def _from_study(study: Study, space: Space, direction: str) -> list[Known]:
    theirs = study.direction.name.lower()
    if theirs != direction:
        raise ValueError(f"the study {study.study_name!r} to start from says {theirs!r}, this run {direction!r}")
    results: list[Known] = []
    misfits = 0
    for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.FAIL)):
        try:
            space.check(trial.params, outside=True)
        except ValueError:
            misfits += trial.state == TrialState.COMPLETE
        else:
            results.append((dict(trial.params), trial.value))
    if misfits and not results:
        raise ValueError(f"no trial of the study {study.study_name!r} to start from fits this space")
    if misfits:
        _logger.warning(f"{misfits} trials of {study.study_name!r} do not fit this space and teach nothing")
    return results


def _from_csv(path: Path, space: Space) -> list[Known]:
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise ValueError(f"the table to start from cannot be read: {error}") from None
    return _from_rows([{k: _parsed(k, v, space) for k, v in row.items() if k is not None} for row in rows], space)


def _parsed(name: str, text: str, space: Space) -> Any:
    """A cell of a CSV file, as its column means it."""
    distribution = space.distributions.get(name.removeprefix("params_"))
    if text == "":
        return None
    if isinstance(distribution, CategoricalDistribution):
        return next((choice for choice in distribution.choices if str(choice) == text), text)
    try:
        return int(text) if isinstance(distribution, IntDistribution) else float(text)
    except ValueError:
        return text


def _from_rows(rows: Iterable[Any], space: Space) -> list[Known]:
    results: list[Known] = []
    for i, row in enumerate(rows):
        try:
            params, value = _split(row, space.distributions)
            space.check(params, outside=True)
            results.append((params, value))
        except (TypeError, ValueError) as error:
            raise ValueError(f"row {i} of the table to start from: {error}") from None
    return results


def _split(row: Any, space: Mapping[str, BaseDistribution]) -> Known:
    """A row as parameters and value; empty cells are parameters that were not active."""
    if isinstance(row, Mapping):
        if "value" not in row:
            raise ValueError(f"there is no 'value', only {sorted(map(str, row))}")
        cells = {str(name).removeprefix("params_"): cell for name, cell in row.items()}
        value = row["value"]
    else:
        cells, value = row
    params = {name: cells[name] for name in space if name in cells and not _empty(cells[name])}
    return params, None if _empty(value) else float(value)


def _empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell))
