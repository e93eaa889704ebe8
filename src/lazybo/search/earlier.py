"""Earlier studies of related problems: their results, as points of the new space.

Values are never compared between studies: those of each are transformed by themselves. So an earlier study may have
other units, another scale, and even another direction. Its space may differ, too:

- a number outside of the new range counts where it is; a choice that the new space does not have leaves its trial out;
- a parameter that the new space does not have, or has with one value only, is ignored;
- a parameter that most earlier studies lack is ignored by all of them: they say nothing about it. A study that lacks a
  parameter which most others have is left out.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.study import Study, StudyDirection
from optuna.trial import TrialState

from lazybo.core import Array, Direction, checks
from lazybo.gp import EarlierTasks, Kernel, Priors, Warping
from lazybo.space import Cells, Space

_logger = logging.getLogger("lazybo")

# The state of a trial with a value, in Optuna's tables.
COMPLETE = TrialState.COMPLETE.name
# Studies together have at most MAX_ROWS results; a single one at most MAX_STUDY_ROWS. More are thinned.
MAX_ROWS = 10_000
MAX_STUDY_ROWS = 1_000
# A study with fewer results says next to nothing.
FEWEST = 3
# If a study has too many trials, this share of those that are kept are its best ones; the others are random.
BEST_SHARE = 0.25


@dataclass(frozen=True)
class EarlierStudy:
    """The results of an earlier study: its configurations, and their values, in which small is good."""

    name: str
    configurations: tuple[Mapping[str, Any], ...]
    values: tuple[tuple[float, ...], ...]

    @classmethod
    def read(
        cls,
        sources: Any,
        directions: Sequence[Direction],
        names: Sequence[str] | None = None,
        opened: Callable[[str], Any] | None = None,
    ) -> "tuple[EarlierStudy, ...]":
        """Earlier studies as they were given: Optuna studies, data frames, lists of results, or objects of this class.

        A list of results has dicts with the parameters and ``value``, or pairs of parameters and value. The values of
        tables are those of an objective with our direction. ``names`` are those of our objectives, and ``opened`` finds
        what is given by its name.
        """
        found = enumerate(check_sources(sources))
        given = [(i, opened(str(each)) if opened and isinstance(each, str | Path) else each) for i, each in found]
        return tuple(cls._of(each, i, directions, names) for i, each in given)

    @classmethod
    def _of(
        cls, source: object, position: int, directions: Sequence[Direction], names: Sequence[str] | None
    ) -> "EarlierStudy":
        if isinstance(source, cls):
            return source
        if isinstance(source, Study):
            return cls._of_study(source, len(directions), names)
        rows = Cells.of_frame(source) if Cells.is_frame(source) else source
        if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
            raise ValueError(
                "each of earlier must be a study, a data frame or a list of dicts with the parameters and 'value', not "
                f"{checks.shortened(source)}"
            )
        return cls.of_rows(rows, f"table {position + 1}", directions)

    @classmethod
    def of_rows(cls, rows: Iterable[Any], name: str, directions: Sequence[Direction]) -> "EarlierStudy":
        """The results of a table. Rows without a value are left out; so are Optuna's trials that did not end."""
        signs = [-1.0 if each == "maximize" else 1.0 for each in directions]
        found = [_result(row, signs, f"row {i} of the earlier {name}") for i, row in enumerate(rows)]
        known = [each for each in found if each is not None]
        return cls(name, tuple(params for params, _ in known), tuple(values for _, values in known))

    @classmethod
    def _of_study(cls, study: Study, objectives: int, names: Sequence[str] | None) -> "EarlierStudy":
        """The completed trials, in the order of our ``names`` of objectives if the study has these."""
        if len(study.directions) != objectives:
            raise ValueError(
                f"the earlier study {study.study_name!r} has {len(study.directions)} objectives, this one "
                f"{objectives}; give a table with the values that correspond"
            )
        order = _order(study, objectives, names)
        signs = [-1.0 if each == StudyDirection.MAXIMIZE else 1.0 for each in study.directions]
        trials = [each for each in study.get_trials(deepcopy=False) if each.state == TrialState.COMPLETE]
        results = [(dict(trial.params), tuple(signs[i] * trial.values[i] for i in order)) for trial in trials]
        finite = [each for each in results if np.isfinite(each[1]).all()]
        return cls(study.study_name, tuple(params for params, _ in finite), tuple(values for _, values in finite))

    @staticmethod
    def best_of(studies: "Sequence[EarlierStudy]", number: int, name: str) -> Any:
        """A parameter of the best configuration of one of the studies, for a trial with this number; None if none.

        It is for trials whose space is not known yet. The best one has the smallest sum of ranks over the objectives.
        """
        used = [study for study in studies if study.values]
        if not used:
            return None
        study = used[number % len(used)]
        ranks = np.argsort(np.argsort(np.array(study.values), axis=0), axis=0).sum(axis=1)
        return study.configurations[int(ranks.argmin())].get(name)


def check_sources(given: Any) -> tuple[Any, ...]:
    """Earlier studies as they were given; `EarlierStudy.read` reads them."""
    if isinstance(given, str | bytes | Mapping | Study) or not isinstance(given, Iterable):
        raise ValueError(
            f"earlier must be a list of studies, names of studies and tables, not {checks.shortened(given)}"
        )
    return tuple(given)


def _order(study: Study, objectives: int, names: Sequence[str] | None) -> list[int]:
    """The places of our objectives among those of a study."""
    theirs = study.metric_names or []
    order = list(range(objectives))
    if not names or not theirs or objectives == 1:
        return order
    if set(names) != set(theirs):
        say(f"the objectives {', '.join(theirs)} of {study.study_name!r} are taken for {', '.join(names)}")
    found = [theirs.index(name) for name in names if name in theirs]
    return found if len(found) == objectives else order


@dataclass(frozen=True, eq=False)
class Fitting:
    """The results of all earlier studies that fit a space.

    ``values`` has a column for each objective. ``unknown`` says which columns of the space the studies say nothing
    about, (d,).
    """

    names: list[str]
    points: list[Array]
    values: list[Array]
    unknown: NDArray[np.bool_]

    def tasks(self, objective: int) -> list[tuple[str, Array, Array]]:
        """The name, points and targets of each task of one objective; those whose values are all equal are left out."""
        found = []
        for name, points, values in zip(self.names, self.points, self.values, strict=True):
            y = values[:, objective]
            targets = Warping.fit("warped", y)(y)
            if y.min() < y.max():
                rows = thinned(y, min(MAX_STUDY_ROWS, max(MAX_ROWS // len(self.names), FEWEST)))
                found.append((name, points[rows], targets[rows]))
            else:
                say(f"the earlier study {name!r} is not used: all its values are equal")
        return found


def _result(row: object, signs: Sequence[float], where: str) -> tuple[dict[str, Any], tuple[float, ...]] | None:
    """The parameters and the values of a row, None if it has no value."""
    params, value = _parts(row, where)
    values = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if value is not None and len(values) != len(signs):
        raise ValueError(f"{where} must have {len(signs)} values, not {checks.shortened(value)}")
    numbers = [math.nan if each is None else _number(each, where) for each in values]
    if not all(map(math.isfinite, numbers)):
        return None
    kept = {name: cell for name, cell in params.items() if not (isinstance(cell, float) and math.isnan(cell))}
    return kept, tuple(sign * number for sign, number in zip(signs, numbers, strict=True))


def _parts(row: object, where: str) -> tuple[dict[str, Any], Any]:
    """The parameters and the value of a row; None if it is of a trial that did not complete."""
    if isinstance(row, Mapping) and "value" in row:
        complete = str(row.get("state", COMPLETE)).removeprefix("TrialState.") == COMPLETE
        return _cells(row), row["value"] if complete else None
    if isinstance(row, Sequence) and len(row) == 2 and isinstance(row[0], Mapping):
        return dict(row[0]), row[1]
    raise ValueError(f"{where} must be a dict with 'value', or a pair (params, value), not {checks.shortened(row)}")


def _number(value: Any, where: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{where}: the value must be a number, not {checks.shortened(value)}") from None


def _cells(row: Mapping[Any, Any]) -> dict[str, Any]:
    """The parameters of a row. Optuna's tables mark them, and have other columns, too."""
    cells = {str(name): cell for name, cell in row.items() if name != "value"}
    marked = {name.removeprefix("params_"): cell for name, cell in cells.items() if name.startswith("params_")}
    return marked or cells


def fitting(studies: Sequence[EarlierStudy], space: Space) -> Fitting:
    """Usable results of earlier studies; the log says what was left out."""
    missing = [_missing(study, space) for study in studies]
    unknown = {name for name in space.points.names if sum(name in each for each in missing) * 2 > len(studies)}
    names: list[str] = []
    points: list[Array] = []
    values: list[Array] = []
    middle = (
        space.points.decode(space.points.repair(np.where(space.points.numeric, 0.5, 0.0)[None])[0])
        if space.points.dim
        else {}
    )
    for study, lacks in zip(studies, missing, strict=True):
        if lacks - unknown:
            lacking = ", ".join(map(repr, sorted(lacks - unknown)))
            say(f"the earlier study {study.name!r} is not used: it has no parameter {lacking}, which others have")
            continue
        fits = [_point(each, space, unknown, middle) for each in study.configurations]
        rows = [i for i, point in enumerate(fits) if point is not None]
        if len(rows) < FEWEST:
            say(f"the earlier study {study.name!r} is not used: {len(rows)} of its results fit this space")
            continue
        _say_what_is_left_out(study, space, len(rows), unknown)
        names.append(study.name)
        points.append(np.array([fits[i] for i in rows]))
        values.append(np.array([study.values[i] for i in rows]))
    without = np.zeros(space.points.dim, dtype=bool)
    for name in unknown:
        without[space.points.slices[name]] = True
    return Fitting(names, points, values, without)


def _missing(study: EarlierStudy, space: Space) -> set[str]:
    """The parameters of the space that no configuration of a study has."""
    seen = {name for configuration in study.configurations for name in configuration}
    return {name for name in space.points.names if not seen.issuperset(space.stored[name])}


def _point(params: Mapping[str, Any], space: Space, unknown: set[str], middle: Mapping[str, Any]) -> Array | None:
    """The point of a configuration of another space, (d,); None if it has none here."""
    varying = {each for name in space.points.names if name not in unknown for each in space.stored[name]}
    known = {name: _as_choice(value, space.distributions[name]) for name, value in params.items() if name in varying}
    constants = {name: middle[name] for name in space.parameters if name not in space.points.names and name in middle}
    filled = {each: middle[each] for name in unknown for each in space.stored[name] if each in middle}
    try:
        return space.points.encode(space.plain({**constants, **filled, **known}, outside=True))
    except (ValueError, TypeError, OverflowError):
        return None


def _as_choice(value: Any, distribution: BaseDistribution) -> Any:
    """A choice as the space has it; files have texts for numbers, and lists for tuples."""
    if not isinstance(distribution, CategoricalDistribution) or value in distribution.choices:
        return value
    text = str(tuple(value) if isinstance(value, list) else value)
    return next((choice for choice in distribution.choices if str(choice) == text), value)


def _say_what_is_left_out(study: EarlierStudy, space: Space, used: int, unknown: set[str]) -> None:
    foreign = sorted({name for each in study.configurations for name in each} - set(space.distributions))
    parts = []
    if used < len(study.configurations):
        parts.append(f"{len(study.configurations) - used} of its {len(study.configurations)} results do not fit")
    if foreign:
        parts.append(f"ignored, since this space has no such parameters: {', '.join(map(repr, foreign))}")
    if unknown:
        parts.append(f"it says nothing about {', '.join(map(repr, sorted(unknown)))}")
    if parts:
        say(f"the earlier study {study.name!r}: {'; '.join(parts)}")


def thinned(values: Array, most: int) -> NDArray[np.intp]:
    """At most this many rows: the best ones (`BEST_SHARE`), and others at random, always the same."""
    if len(values) <= most:
        return np.arange(len(values))
    order = np.argsort(values, kind="stable")
    best = order[: math.ceil(BEST_SHARE * most)]
    others = np.random.default_rng(len(values)).choice(order[len(best) :], most - len(best), replace=False)
    return np.sort(np.concatenate((best, others)))


def tasks_of(
    studies: Sequence[EarlierStudy], space: Space, objectives: int, kernel: str | Kernel | None, priors: Priors | None
) -> list[EarlierTasks | None]:
    """What earlier studies say about each objective."""
    if not studies or space.points.dim == 0:
        return [None] * objectives
    fits, start = fitting(studies, space), Kernel.chosen(kernel, space.points.columns)
    every = [fits.tasks(objective) for objective in range(objectives)]
    return [EarlierTasks(tasks, start, priors or Priors(), fits.unknown) if tasks else None for tasks in every]


@cache
def say(message: str) -> None:
    """Write to the log, once in a process: the same studies are fitted again whenever a model is made."""
    _logger.warning(message)
