"""The observations of an optimiser: one record for each configuration that it suggested or was told.

The index of a record is its *row*, here and in the Gaussian process.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazybo.checks import Array, as_number, finite_number, positive, shortened, whole
from lazybo.model.targets import LARGEST
from lazybo.search.space import Space


class State(Enum):
    """The state of an evaluation."""

    PENDING = auto()
    COMPLETE = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Result:
    """The state of an evaluation, and the value of each objective if it is complete. Smaller values are better.

    A pending evaluation may have a forecast of one objective; its other values are NaN then. ``variances`` are the
    known variances of the noise in the values. ``constraints`` are the constraints that were measured, by name; each is
    satisfied if it is at most 0. ``cost`` is what the evaluation cost, if that is known.
    """

    state: State
    values: tuple[float, ...] = ()
    variances: tuple[float, ...] = ()
    constraints: Mapping[str, float] = field(default_factory=dict)
    cost: float | None = None

    @classmethod
    def of(
        cls,
        value: float | Sequence[float | None] | None,
        signs: Sequence[float],
        variance: float | Sequence[float] = 0.0,
        constraints: Mapping[str, float | None] | None = None,
        cost: float | None = None,
    ) -> "Result":
        """The result for what a user tells: None, NaN and infinity are failures."""
        doubles = _check_values(value, len(signs))
        variances = _check_variances(variance, len(signs))
        measured = check_constraints(constraints)
        if doubles is None or not all(map(math.isfinite, doubles)):
            return cls(State.FAILED, variances=variances, constraints=measured, cost=cost)
        values = tuple(sign * double for sign, double in zip(signs, doubles, strict=True))
        return cls(State.COMPLETE, values, variances, measured, cost)

    @classmethod
    def forecast(
        cls,
        value: float,
        variance: float,
        signs: Sequence[float],
        objective: int,
        constraints: Mapping[str, float | None] | None = None,
    ) -> "Result":
        """A pending result with the forecast of one objective."""
        if not math.isfinite(double := as_number("the forecast", value)):
            raise ValueError(f"a forecast must be a finite number, not {shortened(value)}")
        known = [j == objective for j in range(len(signs))]
        values = (sign * double if is_it else math.nan for sign, is_it in zip(signs, known, strict=True))
        variances = tuple(_check_variance(variance) if is_it else 0.0 for is_it in known)
        return cls(State.PENDING, tuple(values), variances, check_constraints(constraints))


PENDING = Result(State.PENDING)


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

    def pending_row(self, number: object) -> int:
        """The row of a suggestion that was not told yet, by its number."""
        known = isinstance(number, int | np.integer) and not isinstance(number, bool)
        row = self._row_of.get(int(number)) if known else None  # type: ignore[call-overload]
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

    def told_row(self, number: int) -> int:
        """The row of a suggestion that was told, or has a forecast, by its number."""
        row = self._row_of.get(number)
        if row is None or self._rows[row].result == PENDING:
            raise ValueError(f"no suggestion with the number {shortened(number)} was told")
        return row

    def result_row(self, which: object) -> int:
        """The row with a result, by the number of a suggestion, or by the configuration if that has one result."""
        if not isinstance(which, Mapping):
            known = isinstance(which, int | np.integer) and not isinstance(which, bool)
            row = self._row_of.get(int(which)) if known else None  # type: ignore[call-overload]
            if row is None or self._rows[row].result.state is State.PENDING:
                raise ValueError(f"no suggestion with the number {shortened(which)} was told; tell() its value")
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

    def feasible(self) -> NDArray[np.bool_]:
        """Which rows have values, and have measured and satisfied all constraints, (n,)."""
        found = np.zeros(len(self._rows), dtype=bool)
        found[self.rows(State.COMPLETE)] = True
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

        Decoding may round differently, and would not repeat the row.
        """
        params = self._space.decode(point)
        known = self._rows[self._at[point.tobytes()][0]].params if point.tobytes() in self._at else {}
        return {name: known.get(name, value) for name, value in params.items()}

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

    @property
    def remaining(self) -> float:
        """The number of points of the space without a row."""
        return self._space.size - len(self._at)

    # ----------------------------------------------------------------- state

    def state(self) -> list[dict[str, Any]]:
        """All rows as plain data for JSON."""
        return [
            {
                "params": dict(each.params),
                "value": _plain(each.result),
                "variance": _one_or_list(each.result.variances) if each.result.variances else 0.0,
                "constraints": dict(each.result.constraints),
                "number": each.number,
                **_plain_forecast(each.result),
                **({} if each.result.cost is None else {"cost": each.result.cost}),
            }
            for each in self._rows
        ]

    def parse(self, row: Mapping[str, Any], objectives: int) -> tuple[dict[str, Any], Result, int | None]:
        """The arguments of `add` for a row of `state`. Earlier versions had no constraints and no costs."""
        number = None if row["number"] is None else whole("number", row["number"], 0)
        params = self._space.plain(row["params"], outside=True)
        variances = _check_variances(row["variance"], objectives)
        result = _from_plain(row["value"], variances, check_constraints(row.get("constraints")))
        if result is PENDING and "forecast" in row:
            values = _check_forecast(row["forecast"], objectives)
            result = Result(State.PENDING, values, variances, check_constraints(row.get("constraints")))
        return (
            params,
            result if row.get("cost") is None else replace(result, cost=positive("cost", row["cost"])),
            number,
        )


def check_constraints(given: Mapping[str, float | None] | None) -> dict[str, float]:
    """The constraints that were measured, by name. None and NaN mean that a constraint was not measured."""
    if not isinstance(given, Mapping | None):
        raise ValueError(f"constraints must be a dict of names and numbers, not {shortened(given)}")
    measured = {}
    for name, value in (given or {}).items():
        if not isinstance(name, str):
            raise ValueError(f"the name of a constraint must be a text, not {shortened(name)}")
        double = math.nan if value is None else as_number(f"the constraint {name!r}", value)
        if not math.isnan(double):
            # An infinite violation is as bad as the largest one.
            measured[name] = min(max(double, -LARGEST), LARGEST)
    return measured


def _check_values(given: Any, count: int) -> tuple[float, ...] | None:
    """One number for each objective; None if any of them is None."""
    if given is None:
        return None
    if count == 1:
        return (as_number("the value (or None for a failure)", given),)
    if not isinstance(given, list | tuple | np.ndarray) or len(given) != count:
        expected = f"a list of {count} values, one for each objective, or None for a failure"
        raise ValueError(f"expected {expected}, not {shortened(given)}")
    if any(value is None for value in given):
        return None
    return tuple(as_number("a value", value) for value in given)


def _check_variances(given: Any, count: int) -> tuple[float, ...]:
    """One known variance for each objective."""
    if not isinstance(given, list | tuple | np.ndarray):
        given = [given] if count == 1 else [given] * count if given == 0 else given
    if not isinstance(given, list | tuple | np.ndarray) or len(given) != count:
        raise ValueError(f"variance must be a list of {count} numbers, one for each objective, not {shortened(given)}")
    return tuple(_check_variance(each) for each in given)


def _plain(result: Result) -> float | list[float] | str | None:
    """A value for JSON, which has no NaN, or a list of them for several objectives."""
    if result.state is State.COMPLETE:
        return _one_or_list(result.values)
    return "failed" if result.state is State.FAILED else None


def _plain_forecast(result: Result) -> dict[str, Any]:
    """The forecast of a pending result for JSON: None where there is none; empty if there is no forecast."""
    if result.state is not State.PENDING or not result.values:
        return {}
    return {"forecast": [None if math.isnan(value) else value for value in result.values]}


def _check_forecast(given: Any, count: int) -> tuple[float, ...]:
    if not isinstance(given, list | tuple) or len(given) != count:
        raise ValueError(f"a forecast must be a list of {count} numbers or None, not {shortened(given)}")
    return tuple(math.nan if value is None else finite_number("a forecast", value) for value in given)


def _one_or_list(numbers: tuple[float, ...]) -> float | list[float]:
    return numbers[0] if len(numbers) == 1 else list(numbers)


def _from_plain(value: Any, variances: tuple[float, ...], constraints: dict[str, float]) -> Result:
    if value is None:
        # A pending row knows nothing but its point, so that a restored one is equal to it.
        return PENDING
    if value == "failed":
        return Result(State.FAILED, (), variances, constraints)
    doubles = _check_values(value, len(variances))
    if doubles is None or not all(map(math.isfinite, doubles)):
        raise ValueError(f"a value must be finite, None or 'failed', not {shortened(value)}")
    return Result(State.COMPLETE, doubles, variances, constraints)


def _check_variance(variance: float) -> float:
    double = as_number("variance", variance)
    if not (math.isfinite(double) and double >= 0):
        raise ValueError(f"variance must be a number of at least 0, not {shortened(variance)}")
    return double
