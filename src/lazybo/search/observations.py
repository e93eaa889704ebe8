"""The observations of an optimiser: one record for each configuration that it suggested or was told.

The index of a record is its *row*, here and in the Gaussian process.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazybo.core import text
from lazybo.core.checks import Array, shortened
from lazybo.search.results import PENDING, Result, State, from_plain, to_plain
from lazybo.space.axis import contains
from lazybo.space.space import Space


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A configuration to evaluate, and its number, by which its value can be told."""

    number: int
    params: dict[str, Any]

    def _repr_html_(self) -> str:
        return text.table(f"Suggestion {self.number}", ("", ""), self.params.items())


@dataclass(slots=True)
class Observation:
    """A configuration, its point in the unit cube, and its result.

    ``number`` is None if the configuration was given to `Optimizer.observe`, not suggested.
    """

    params: dict[str, Any]
    point: Array
    number: int | None
    result: Result


class Observations:
    """All observations, in the order in which they were added, with arrays of their points and values."""

    def __init__(self, space: Space, objectives: int = 1) -> None:
        self._space = space
        self._rows: list[Observation] = []
        self._row_of: dict[int, int] = {}
        self._at: dict[bytes, list[int]] = {}  # the rows at each point
        # The rows again as arrays, of which the first len(self) entries are in use.
        self._points = np.zeros((0, space.dim))
        self._values, self._variances = np.zeros((2, 0, objectives))
        self._states = np.zeros(0, dtype=np.int8)
        self._names: set[str] | None = set()  # cache of the names of `constraints`; None if it must be made anew
        self._violations: dict[str, Array] = {}  # cache of constraints by name
        self._costs: Array | None = None  # cache of `costs`
        self._by_state: dict[State, NDArray[np.intp]] = {}  # cache of `rows`
        self.version = 0  # counts all changes

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def objectives(self) -> int:
        """The number of objectives."""
        return self._values.shape[1]

    def __iter__(self) -> Iterator[Observation]:
        return iter(self._rows)

    def __getitem__(self, row: int) -> Observation:
        return self._rows[row]

    # ---------------------------------------------------------------- change

    def add(self, params: dict[str, Any], result: Result, number: int | None) -> None:
        """Add a row for a validated configuration."""
        point = self._space.encode(params)
        row = len(self._rows)
        if number is not None:
            self._row_of[number] = row
        self._rows.append(Observation(params, point, number, result))
        self._at.setdefault(point.tobytes(), []).append(row)
        if row == len(self._values):
            self._grow()
        self._points[row] = point
        self._write(row, result)

    def resolve(self, row: int, result: Result) -> None:
        """Set the result of a row."""
        if self._rows[row].result.constraints:
            self._names = None
        self._rows[row].result = result
        self._write(row, result)

    def remove(self, row: int) -> None:
        """Remove a row; the rows after it move up."""
        gone = self._rows.pop(row)
        if gone.result.constraints:
            self._names = None
        if row == len(self._rows):  # nothing moves
            at = self._at[gone.point.tobytes()]
            at.remove(row)
            if not at:
                del self._at[gone.point.tobytes()]
            if gone.number is not None:
                del self._row_of[gone.number]
        else:
            self._row_of = {each.number: i for i, each in enumerate(self._rows) if each.number is not None}
            self._at = {}
            for i, each in enumerate(self._rows):
                self._at.setdefault(each.point.tobytes(), []).append(i)
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

    def pending_row(self, suggestion: object) -> int:
        """The row of a suggestion that was not told yet, by itself or its number."""
        number = suggestion.number if isinstance(suggestion, Suggestion) else suggestion
        row = self._row_with(number)
        if row is None:
            given = shortened(number)
            if isinstance(number, Mapping):
                raise ValueError(
                    f"give a suggestion or its number, not the parameters {given}; use observe() for results that were "
                    "not asked for"
                )
            raise ValueError(f"no suggestion has the number {given}; use observe() for results that were not asked for")
        if self._rows[row].result.state is not State.PENDING:
            raise ValueError(
                f"number {number} was told already; use correct() to change it, or observe() to add another value"
            )
        return row

    def _row_with(self, number: object) -> int | None:
        """The row of the suggestion with this number; None if there is none."""
        is_number = isinstance(number, int | np.integer) and not isinstance(number, bool)
        return self._row_of.get(int(number)) if is_number else None  # type: ignore[call-overload]

    def told_row(self, number: int) -> int:
        """The row of a suggestion that was told, or has a forecast, by its number."""
        row = self._row_of.get(number)
        if row is None or self._rows[row].result == PENDING:
            raise ValueError(f"no suggestion with the number {shortened(number)} was told")
        return row

    def result_row(self, which: object) -> int:
        """The row with a result, by a suggestion, its number, or the configuration if that has one result."""
        if not isinstance(which, Mapping):
            number = which.number if isinstance(which, Suggestion) else which
            row = self._row_with(number)
            if row is None or self._rows[row].result.state is State.PENDING:
                raise ValueError(f"no suggestion with the number {shortened(number)} was told; tell() its value")
            return row
        point = self._space.encode(self._space.plain(which, outside=True))
        rows = [row for row in self._at.get(point.tobytes(), []) if self._rows[row].result.state is not State.PENDING]
        if len(rows) != 1:
            found = "no result" if not rows else f"{len(rows)} results: give the number of the suggestion"
            raise ValueError(f"{shortened(dict(which), 200)} has {found}")
        return rows[0]

    def repeats(self, row: int) -> bool:
        """Whether another row has the point of this one."""
        return len(self._at[self._rows[row].point.tobytes()]) > 1

    def rows(self, state: State) -> NDArray[np.intp]:
        """The rows in this state."""
        if state not in self._by_state:
            self._by_state[state] = np.flatnonzero(self._states[: len(self)] == state.value)
        return self._by_state[state]

    @property
    def n_complete(self) -> int:
        """The number of evaluations with a value."""
        return len(self.rows(State.COMPLETE))

    @property
    def n_ended(self) -> int:
        """The number of evaluations that are not pending."""
        return len(self) - len(self.rows(State.PENDING))

    @property
    def values(self) -> Array:
        """The values of the first objective, NaN where there is none, (n,)."""
        return self.values_of(0)

    def values_of(self, objective: int) -> Array:
        """The values of an objective, NaN where there is none, (n,)."""
        return self._values[: len(self), objective].copy()

    def variances(self, rows: slice | NDArray[np.intp] = slice(None), objective: int = 0) -> Array:
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
        """Which rows have measured their values, and have measured and satisfied all constraints, (n,).

        With ``forecasts``, also rows that were stopped and have a forecast of each objective.
        """
        found = np.zeros(len(self._rows), dtype=bool)
        found[self.rows(State.COMPLETE)] = True
        if forecasts:
            stopped = self.rows(State.STOPPED)
            found[stopped] = ~np.isnan(self._values[stopped]).any(axis=1)
        for name in self.constraints:
            found &= self.violations(name) <= 0.0  # not where it is NaN
        return found

    def points(self, rows: slice | NDArray[np.intp] = slice(None)) -> Array:
        """The points of some rows, (n, d)."""
        return np.array(self._points[: len(self)][rows])

    def contain(self, points: Array) -> NDArray[np.bool_]:
        """Which of these points have a row, (m,)."""
        data, width = points.tobytes(), 8 * self._space.dim
        return np.array([data[i : i + width] in self._at for i in range(0, len(data), width)], dtype=bool)

    def configuration(self, point: Array) -> dict[str, Any]:
        """The configuration at a point; if the point has a row, that of the row to the last bit.

        Decoding may round differently, and would not repeat the row. What was observed outside of its range, by so
        little that it has the same point, is not suggested.
        """
        params, ranges = self._space.decode(point), self._space.distributions
        known = self._rows[self._at[point.tobytes()][0]].params if point.tobytes() in self._at else {}
        return params | {name: known[name] for name in params if name in known and contains(ranges[name], known[name])}

    @property
    def repeated(self) -> list[list[int]]:
        """The rows at each point that has several."""
        if len(self._at) == len(self._rows):
            return []
        return [rows for rows in self._at.values() if len(rows) > 1]

    def has_failed_at(self, row: int) -> bool:
        """Whether any row at the point of this one has failed."""
        rows = self._at[self._rows[row].point.tobytes()]
        return any(self._rows[other].result.state is State.FAILED for other in rows)

    def has_ended_at(self, point: Array) -> bool:
        """Whether any evaluation of this point has ended."""
        return any(self._rows[row].result.state is not State.PENDING for row in self._at.get(point.tobytes(), []))

    @property
    def remaining(self) -> float:
        """The number of points of the space without a row."""
        return self._space.size - len(self._at)

    # ----------------------------------------------------------------- state

    def state(self) -> list[dict[str, Any]]:
        """All rows as plain data for JSON."""
        return [{"params": dict(each.params), **to_plain(each.result, each.number)} for each in self._rows]

    def parse(self, row: Mapping[str, Any]) -> tuple[dict[str, Any], Result, int | None]:
        """The arguments of `add` for a row of `state`."""
        return self._space.plain(row["params"], outside=True), *from_plain(row, self.objectives)
