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


class Records:
    """All records, in the order in which they were added, with arrays of their points and values."""

    def __init__(self, space: Space, objectives: int = 1) -> None:
        self._space, self.objectives = space, objectives
        self._rows: list[Record] = []
        self._serials: list[int] = []
        self.next_serial = 0
        self._row_of: dict[int, int] = {}
        self._at: dict[Hashable, list[int]] = {}  # the rows at each point, or of equivalent configurations
        self._keys: list[Hashable] = []  # what each row has there
        # The rows again as arrays, of which the first len(self) entries are in use.
        self._points = np.zeros((0, space.points.dim))
        self._values, self._variances = np.zeros((2, 0, objectives))
        self._states = np.zeros(0, dtype=np.int8)
        self._names: set[str] | None = set()  # cache of the names of `constraints`; None if it must be made again
        self._violations: dict[str, Array] = {}  # cache of constraints by name
        self._costs: Array | None = None  # cache of `costs`
        self._by_state: dict[State, Index] = {}  # cache of `rows`
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
        row, serial = len(self._rows), self.next_serial
        self.next_serial += 1
        point = self._space.points.encode(params)
        key = self._space.points.key(point, params)
        if key in self._at:
            point = self._rows[self._at[key][0]].point  # equivalent configurations are one point
        record = Record(serial, params, point, number, result)
        if number is not None:
            self._row_of[number] = row
        self._rows.append(record)
        self._serials.append(serial)
        self._keys.append(key)
        self._at.setdefault(key, []).append(row)
        if row == len(self._values):
            self._grow()
        self._points[row] = point
        self._write(row, result)
        return record

    def resolve(self, row: int, result: Result) -> None:
        """Set the result of a row."""
        if self._rows[row].result.constraints:
            self._names = None
        self._rows[row].result = result
        self._write(row, result)

    def remove(self, row: int) -> None:
        """Remove a row; the rows after it move up."""
        gone, key = self._rows.pop(row), self._keys.pop(row)
        del self._serials[row]
        if gone.result.constraints:
            self._names = None
        if row == len(self._rows):  # nothing moves
            self._at[key].remove(row)
            if not self._at[key]:
                del self._at[key]
            if gone.number is not None:
                del self._row_of[gone.number]
        else:
            self._row_of = {each.number: i for i, each in enumerate(self._rows) if each.number is not None}
            self._at = {}
            for i, each in enumerate(self._keys):
                self._at.setdefault(each, []).append(i)
            for array in (self._points, self._values, self._variances, self._states):
                array[row:-1] = array[row + 1 :].copy()
        self._violations, self._costs = {}, None
        self._by_state = {}
        self.version += 1

    def _write(self, row: int, result: Result) -> None:
        self._values[row], self._variances[row] = result.values or math.nan, result.variances or 0.0
        self._states[row] = result.state.value
        if result.constraints and self._names is not None:
            self._names.update(result.constraints)
        self._violations, self._costs, self._by_state = {}, None, {}
        self.version += 1

    def _grow(self) -> None:
        """Make room for half as many rows again."""
        more = len(self._rows) // 2 + 16
        self._points, self._values, self._variances, self._states = (
            np.concatenate((array, np.zeros((more, *array.shape[1:]), array.dtype)))
            for array in (self._points, self._values, self._variances, self._states)
        )

    # ------------------------------------------------------------------ look

    def row_of(self, serial: int) -> int:
        """The first row whose record has at least this serial number."""
        return bisect.bisect_left(self._serials, serial)

    def row_with(self, number: object) -> int | None:
        """The row of the suggestion with this number; None if there is none."""
        is_number = isinstance(number, int | np.integer) and not isinstance(number, bool)
        return self._row_of.get(int(number)) if is_number else None  # type: ignore[call-overload]

    def at(self, point: Array, params: Mapping[str, Any] | None = None) -> list[int]:
        """The rows at a point, or of equivalent configurations; ``params`` is the one at the point, if it is known."""
        return self._at.get(self._space.points.key(point, params), [])

    def rows(self, state: State) -> Index:
        """The rows in this state."""
        if state not in self._by_state:
            self._by_state[state] = np.flatnonzero(self._states[: len(self)] == state.value)
        return self._by_state[state]

    @property
    def n_complete(self) -> int:
        """The number of evaluations with a value."""
        return len(self.rows(State.COMPLETE))

    def values(self, objective: int = 0) -> Array:
        """The values of an objective, NaN where there is none, (n,)."""
        return self._values[: len(self), objective].copy()

    def variances(self, rows: slice | Index = slice(None), objective: int = 0) -> Array:
        """The known variances of some rows."""
        return np.array(self._variances[: len(self), objective][rows])

    @property
    def constraints(self) -> list[str]:
        """The names of all constraints that any evaluation has measured, in alphabetical order."""
        if self._names is None:
            self._names = {name for each in self._rows for name in each.result.constraints}
        return sorted(self._names)

    def violations(self, constraint: str) -> Array:
        """The values of a constraint, NaN where it was not measured, (n,)."""
        if constraint not in self._violations:
            found = [each.result.constraints.get(constraint, math.nan) for each in self._rows]
            self._violations[constraint] = np.array(found)
        return self._violations[constraint]

    def costs(self) -> Array:
        """What each evaluation cost, NaN where that is not known, (n,)."""
        if self._costs is None:
            found = [math.nan if each.result.cost is None else each.result.cost for each in self._rows]
            self._costs = np.array(found)
        return self._costs.copy()

    def feasible(self, *, forecasts: bool = False) -> NDArray[np.bool_]:
        """Rows with measured values that have measured and satisfied all constraints, as a mask, (n,).

        With ``forecasts`` also stopped rows with a forecast of each objective.
        """
        found = np.zeros(len(self._rows), dtype=bool)
        found[self.rows(State.COMPLETE)] = True
        if forecasts:
            stopped = self.rows(State.STOPPED)
            found[stopped] = ~np.isnan(self._values[stopped]).any(axis=1)
        for name in self.constraints:
            found &= self.violations(name) <= 0.0  # not where it is NaN
        return found

    def points(self, rows: slice | Index = slice(None)) -> Array:
        """The points of some rows, (n, d)."""
        return np.array(self._points[: len(self)][rows])

    def contain(self, points: Array) -> NDArray[np.bool_]:
        """Which of these points, or of equivalent ones, have a row, (m,)."""
        if self._space.canonical is not None:
            return np.array([self._space.points.key(point) in self._at for point in np.atleast_2d(points)], dtype=bool)
        data, width = points.tobytes(), 8 * self._space.points.dim
        return np.array([data[i : i + width] in self._at for i in range(0, len(data), width)], dtype=bool)

    def configuration(self, point: Array) -> dict[str, Any]:
        """The configuration at a point; if a row is there, the configuration of that row to the last bit.

        Decoding may round differently, and would not repeat the row. What was observed outside of its range, by so
        little that it has the same point, is not suggested.
        """
        params = self._space.points.decode(point)
        rows = self.at(point)
        known = self._rows[rows[0]].params if rows else {}
        return params | {
            name: known[name] for name in params if name in known and self._space.allows(name, known[name])
        }

    @property
    def repeated(self) -> list[list[int]]:
        """The rows at each point that has several."""
        if len(self._at) == len(self._rows):
            return []
        return [rows for rows in self._at.values() if len(rows) > 1]

    @property
    def remaining(self) -> float:
        """The number of points of the space without a row."""
        return self._space.size - len(self._at)


# ----------------------------------------------------------------- rows by what users give


def point_of(records: Records, space: Space, params: Mapping[str, Any]) -> Array:
    """The point of a validated configuration, or of the first equivalent one that has a row, (d,)."""
    point = space.points.encode(params)
    rows = records.at(point, params)
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
    at = records.at(space.points.encode(space.plain(which, outside=True)))
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
    params = dict.fromkeys(f"params_{name}" for each in records for name in each.params)
    measured = sorted({name for each in records for name in each.result.constraints})
    known = any(any(each.result.variances) for each in records if each.result.state is State.COMPLETE)
    variances = [name.replace("value", "variance", 1) for name in values] if known else []
    costs = ["cost" if cost != "seconds" else "seconds"] if cost is not None else []
    columns = ["number", *values, *params, *(f"constraints_{name}" for name in measured), *variances, *costs, "state"]
    return Table(
        {column: row.get(column) for column in columns}
        for row in (_row(each, signs, values, variances, costs) for each in records)
    )


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
