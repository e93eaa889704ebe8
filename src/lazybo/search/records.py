"""The records of an optimiser: one for each configuration that it suggested or was told, with its result.

A record has a *serial* number that never changes, and a *row*: its place among the records, here and in the Gaussian
processes. Rows move up when a record before them is removed; serial numbers do not change.
"""

import bisect
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazybo.core import Array, checks, codec, texts
from lazybo.search.results import PENDING, Result, State
from lazybo.space import Cells, Space

Index: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A configuration to evaluate, and its number, by which its value can be told."""

    number: int
    params: dict[str, Any]

    def _repr_html_(self) -> str:
        return texts.table(f"Suggestion {self.number}", ("", ""), self.params.items())


@dataclass(slots=True)
class Record:
    """A configuration, its point in the unit cube, and its result.

    ``number`` is None if the configuration was given to `Optimizer.observe`, not suggested.
    """

    serial: int
    params: dict[str, Any]
    point: Array
    number: int | None
    result: Result


class Places:
    """The rows at each point. Rows of equivalent configurations (``canonical``) count as one point."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._keys: list[Hashable] = []  # of each row
        self._rows: dict[Hashable, list[int]] = {}

    def __len__(self) -> int:
        """The number of different points."""
        return len(self._rows)

    def append(self, point: Array, params: Mapping[str, Any]) -> int:
        """Add a row at the point of a configuration; gives the first row there."""
        key = self._space.points.key(point, params)
        rows = self._rows.setdefault(key, [])
        rows.append(len(self._keys))
        self._keys.append(key)
        return rows[0]

    def remove(self, row: int) -> None:
        """Remove a row; the rows after it move up."""
        key = self._keys.pop(row)
        if row < len(self._keys):
            self._rows = {}
            for i, each in enumerate(self._keys):
                self._rows.setdefault(each, []).append(i)
        elif len(self._rows[key]) == 1:
            del self._rows[key]
        else:
            self._rows[key].pop()

    def at(self, point: Array, params: Mapping[str, Any] | None = None) -> list[int]:
        """The rows at a point; ``params`` is the configuration there, if it is known."""
        return self._rows.get(self._space.points.key(point, params), [])

    def contain(self, points: Array) -> NDArray[np.bool_]:
        """Which of these points have a row, (m,)."""
        if self._space.canonical is not None:
            return np.array(
                [self._space.points.key(point) in self._rows for point in np.atleast_2d(points)], dtype=bool
            )
        data, width = points.tobytes(), 8 * self._space.points.dim
        return np.array([data[i : i + width] in self._rows for i in range(0, len(data), width)], dtype=bool)

    @property
    def repeated(self) -> list[list[int]]:
        """The rows at each point that has several."""
        return [rows for rows in self._rows.values() if len(rows) > 1] if len(self._rows) < len(self._keys) else []


class Arrays:
    """Arrays with an entry for each row: all grow together, and have room for more rows than are in use."""

    def __init__(self) -> None:
        self._all: dict[str, Array] = {}
        self._n = self._room = 0

    def __getitem__(self, name: str) -> Array:
        return self._all[name][: self._n]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def create(self, name: str, *shape: int, fill: float = 0.0) -> None:
        """Another array, with entries of this shape."""
        self._all[name] = np.full((self._room, *shape), fill)

    def append(self) -> None:
        """Add a row, whose entries are 0 until they are set."""
        if self._n == self._room:
            more = self._n // 2 + 16
            for name, array in self._all.items():
                self._all[name] = np.concatenate((array, np.zeros((more, *array.shape[1:]))))
            self._room += more
        self._n += 1

    def remove(self, row: int) -> None:
        """Remove a row; the rows after it move up."""
        for array in self._all.values():
            array[row:-1] = array[row + 1 :].copy()
        self._n -= 1


class Records:
    """All records, in the order in which they were added, with arrays of their points and values."""

    def __init__(self, space: Space, objectives: int = 1) -> None:
        self._space, self.objectives = space, objectives
        self.places = Places(space)
        self._rows: list[Record] = []
        self._serials: list[int] = []
        self.next_serial = 0
        self._row_of: dict[int, int] = {}
        self._arrays, self._violations = Arrays(), Arrays()
        self._arrays.create("point", space.points.dim)
        self._arrays.create("values", objectives)
        self._arrays.create("variances", objectives)
        self._arrays.create("state")
        self._arrays.create("cost")
        self._in_state: list[Index | None] = [None] * len(State)  # cache of `rows`
        self.version = 0  # counts all changes

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._rows)

    def __getitem__(self, row: int) -> Record:
        return self._rows[row]

    # ---------------------------------------------------------------- change

    def add(self, params: dict[str, Any], result: Result, number: int | None) -> Record:
        """Add a record of a validated configuration."""
        row, point = len(self._rows), self._space.points.encode(params)
        first = self.places.append(point, params)
        if first < row:
            point = self._rows[first].point  # equivalent configurations are one point
        record = Record(self.next_serial, params, point, number, result)
        self.next_serial += 1
        if number is not None:
            self._row_of[number] = row
        self._rows.append(record)
        self._serials.append(record.serial)
        self._arrays.append()
        self._violations.append()
        self._arrays["point"][row] = point
        self.resolve(row, result)
        return record

    def resolve(self, row: int, result: Result) -> None:
        """Set the result of a row."""
        self._rows[row].result = result
        self._arrays["values"][row] = result.values or math.nan
        self._arrays["variances"][row] = result.variances or 0.0
        self._arrays["state"][row] = result.state
        self._arrays["cost"][row] = math.nan if result.cost is None else result.cost
        for name in result.constraints.keys() - self._violations:
            self._violations.create(name, fill=math.nan)
        for name in self._violations:
            self._violations[name][row] = result.constraints.get(name, math.nan)
        self._changed()

    def remove(self, row: int) -> None:
        """Remove a row; the rows after it move up."""
        gone = self._rows.pop(row)
        del self._serials[row]
        self.places.remove(row)
        self._arrays.remove(row)
        self._violations.remove(row)
        if row < len(self._rows):
            self._row_of = {each.number: i for i, each in enumerate(self._rows) if each.number is not None}
        elif gone.number is not None:
            del self._row_of[gone.number]
        self._changed()

    def _changed(self) -> None:
        self._in_state = [None] * len(State)
        self.version += 1

    # ------------------------------------------------------------------ look

    def row_of(self, serial: int) -> int:
        """The first row whose record has at least this serial number."""
        return bisect.bisect_left(self._serials, serial)

    def row_with(self, number: object) -> int | None:
        """The row of the suggestion with this number; None if there is none."""
        return self._row_of.get(int(number)) if checks.is_whole(number) else None

    def rows(self, state: State) -> Index:
        """The rows in this state."""
        found = self._in_state[state]
        if found is None:
            found = self._in_state[state] = (self._arrays["state"] == state).nonzero()[0]
        return found

    @property
    def n_complete(self) -> int:
        """The number of evaluations with a value."""
        return len(self.rows(State.COMPLETE))

    def points(self, rows: slice | Index = slice(None)) -> Array:
        """The points of some rows, (n, d)."""
        return np.array(self._arrays["point"][rows])

    def values(self, objective: int = 0) -> Array:
        """The values of an objective, NaN where there is none, (n,)."""
        return self._arrays["values"][:, objective].copy()

    def variances(self, rows: slice | Index = slice(None), objective: int = 0) -> Array:
        """The known variances of some rows."""
        return np.array(self._arrays["variances"][:, objective][rows])

    @property
    def violations(self) -> dict[str, Array]:
        """The values of all constraints that any evaluation has measured, by name in alphabetical order.

        NaN where a constraint was not measured, (n,).
        """
        found = {name: self._violations[name].copy() for name in sorted(self._violations)}
        return {name: values for name, values in found.items() if not np.isnan(values).all()}

    @property
    def costs(self) -> Array:
        """What each evaluation cost, NaN where that is not known, (n,)."""
        return self._arrays["cost"].copy()

    def feasible(self, *, forecasts: bool = False) -> NDArray[np.bool_]:
        """Rows with measured values that have measured and satisfied all constraints, as a mask, (n,).

        With ``forecasts`` also stopped rows with a forecast of each objective.
        """
        found = np.zeros(len(self._rows), dtype=bool)
        found[self.rows(State.COMPLETE)] = True
        if forecasts:
            stopped = self.rows(State.STOPPED)
            found[stopped] = ~np.isnan(self._arrays["values"][stopped]).any(axis=1)
        for values in self.violations.values():
            found &= values <= 0.0  # not where it is NaN
        return found


# ----------------------------------------------------------------- rows by what users give


def point_of(records: Records, space: Space, params: Mapping[str, Any]) -> Array:
    """The point of a validated configuration, or of the first equivalent one that has a row, (d,)."""
    point = space.points.encode(params)
    rows = records.places.at(point, params)
    return records[rows[0]].point if rows else point


def pending_row(records: Records, suggestion: object) -> int:
    """The row of a suggestion that was not told yet, by itself or its number."""
    number = suggestion.number if isinstance(suggestion, Suggestion) else suggestion
    row = records.row_with(number)
    if row is None:
        given, instead = checks.shortened(number), "use observe() for results that were not asked for"
        if isinstance(number, Mapping):
            raise ValueError(f"give a suggestion or its number, not the parameters {given}; {instead}")
        raise ValueError(f"no suggestion has the number {given}; {instead}")
    if records[row].result.state is not State.PENDING:
        raise ValueError(
            f"number {number} was told already; use correct() to change it, or observe() to add another value"
        )
    return row


def told_row(records: Records, number: int) -> int:
    """The row of a suggestion that was told, or has a forecast, by its number."""
    row = records.row_with(number)
    if row is None or records[row].result == PENDING:
        raise ValueError(f"no suggestion with the number {checks.shortened(number)} was told")
    return row


def result_row(records: Records, space: Space, which: object) -> int:
    """The row with a result, by a suggestion, its number, or the configuration if that has one result."""
    if not isinstance(which, Mapping):
        number = which.number if isinstance(which, Suggestion) else which
        row = records.row_with(number)
        if row is None or records[row].result.state is State.PENDING:
            raise ValueError(f"no suggestion with the number {checks.shortened(number)} was told; tell() its value")
        return row
    at = records.places.at(space.points.encode(space.plain(which, outside=True)))
    rows = [row for row in at if records[row].result.state is not State.PENDING]
    if len(rows) != 1:
        found = "no result" if not rows else f"{len(rows)} results: give the number of the suggestion"
        raise ValueError(f"{checks.shortened(dict(which), 200)} has {found}")
    return rows[0]


# ------------------------------------------------------------------------ tables

# Optuna's names of the states of trials.
STATES = {State.COMPLETE: "COMPLETE", State.FAILED: "FAIL", State.PENDING: "RUNNING", State.STOPPED: "PRUNED"}


class Table(list[dict[str, Any]]):
    """Rows of plain data, all with the same columns."""

    def to_dataframe(self) -> Any:
        """A pandas data frame of the rows."""
        try:
            import pandas
        except ImportError:
            raise ImportError("a data frame needs pandas, which is not installed: pip install pandas") from None
        return pandas.DataFrame.from_records(self)

    def to_csv(self, path: str | Path) -> None:
        """Write a CSV file, which ``optimize(warm_start=path)`` and ``lazybo tell --table`` read; None is empty."""
        columns = list(self[0]) if self else ["number", "value", "state"]
        codec.write_whole(path, Cells.csv(columns, self).encode(errors="backslashreplace"))


def rows_of(records: Sequence[Record], signs: Sequence[float], cost: str | None) -> Table:
    """One row for each record, with the columns of ``lazybo export``; None where a record lacks one."""
    values = ["value"] if len(signs) == 1 else [f"values_{i}" for i in range(len(signs))]
    variances = [name.replace("value", "variance", 1) for name in values]
    costs = [] if cost is None else ["seconds" if cost == "seconds" else "cost"]
    rows = [_row(each, signs, values, variances, costs) for each in records]
    params, constraints = _columns("params_", rows), sorted(_columns("constraints_", rows))
    measured = variances if any(row.get(name) for row in rows for name in variances) else []
    columns = ["number", *values, *params, *constraints, *measured, *costs, "state"]
    return Table({column: row.get(column) for column in columns} for row in rows)


def _columns(start: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    """The columns of any row that start like this."""
    return [*dict.fromkeys(column for row in rows for column in row if column.startswith(start))]


def _row(
    each: Record, signs: Sequence[float], values: Sequence[str], variances: Sequence[str], costs: Sequence[str]
) -> dict[str, Any]:
    result = each.result
    row: dict[str, Any] = {"number": each.number, "state": STATES[result.state]}
    if result.state is State.COMPLETE:
        row |= {name: sign * value for name, sign, value in zip(values, signs, result.values, strict=True)}
        row |= dict(zip(variances, result.variances, strict=False))
    row |= {f"params_{name}": value for name, value in each.params.items()}
    row |= {f"constraints_{name}": value for name, value in result.constraints.items()}
    return row | dict.fromkeys(costs, result.cost)
