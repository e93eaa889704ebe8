"""The observations of an optimiser: one record for each configuration that it suggested or was told.

The index of a record is its *row*, here and in the Gaussian process.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazybo.checks import Array, as_number, shortened, whole
from lazybo.search.space import Space


class State(Enum):
    """The state of an evaluation."""

    PENDING = auto()
    COMPLETE = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Result:
    """The state of an evaluation, and its value if it is complete (NaN otherwise). Smaller values are better.

    ``variance`` is the known variance of the noise in the value.
    """

    state: State
    value: float = math.nan
    variance: float = 0.0

    @classmethod
    def of(cls, value: float | None, sign: float, variance: float) -> "Result":
        """The result for a value from the user: None, NaN and infinity are failures."""
        double = math.inf if value is None else as_number("the value (or None for a failure)", value)
        variance = _check_variance(variance)
        if not math.isfinite(double):
            return cls(State.FAILED, variance=variance)
        return cls(State.COMPLETE, sign * double, variance)


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

    def __init__(self, space: Space) -> None:
        self._space = space
        self._rows: list[Observation] = []
        self._row_of: dict[int, int] = {}
        self._at: Counter[bytes] = Counter()  # how many rows are at each point
        self._values: Array | None = None  # cache of `values`
        self._by_state: dict[State, NDArray[np.intp]] = {}  # cache of `rows`

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> Observation:
        return self._rows[row]

    # ---------------------------------------------------------------- change

    def add(self, params: dict[str, Any], result: Result, number: int | None) -> None:
        """Add a row for a validated configuration."""
        point = self._space.encode(params)
        if number is not None:
            self._row_of[number] = len(self._rows)
        self._rows.append(Observation(params, point, number, result))
        self._at[point.tobytes()] += 1
        self._changed()

    def resolve(self, row: int, result: Result) -> None:
        """Set the result of a row."""
        self._rows[row].result = result
        self._changed()

    def remove(self, row: int) -> None:
        """Remove a row; the rows after it move up."""
        key = self._rows.pop(row).point.tobytes()
        self._at[key] -= 1
        if not self._at[key]:
            del self._at[key]
        self._row_of = {each.number: i for i, each in enumerate(self._rows) if each.number is not None}
        self._changed()

    def _changed(self) -> None:
        self._values = None
        self._by_state = {}

    # ------------------------------------------------------------------ look

    def pending_row(self, number: object) -> int:
        """The row of a suggestion that was not told yet, by its number."""
        known = isinstance(number, int | np.integer) and not isinstance(number, bool)
        row = self._row_of.get(int(number)) if known else None  # type: ignore[call-overload]
        if row is None:
            given = shortened(number)
            raise ValueError(f"no suggestion has the number {given}; use observe() for results that were not asked for")
        if self._rows[row].result.state is not State.PENDING:
            raise ValueError(f"number {number} was told already")
        return row

    def told_row(self, number: int) -> int:
        """The row of a suggestion that was told, by its number."""
        row = self._row_of.get(number)
        if row is None or self._rows[row].result.state is State.PENDING:
            raise ValueError(f"no suggestion with the number {shortened(number)} was told")
        return row

    def rows(self, state: State) -> NDArray[np.intp]:
        """The rows in this state."""
        if state not in self._by_state:
            found = [i for i, each in enumerate(self._rows) if each.result.state is state]
            self._by_state[state] = np.array(found, dtype=np.intp)
        return self._by_state[state]

    @property
    def n_complete(self) -> int:
        """The number of evaluations with a value."""
        return len(self.rows(State.COMPLETE))

    @property
    def values(self) -> Array:
        """The values, NaN where there is none, (n,)."""
        if self._values is None:
            self._values = np.array([each.result.value for each in self._rows])
        return self._values

    def variances(self, rows: slice | NDArray[np.intp] = slice(None)) -> Array:
        """The known variances of some rows."""
        return np.array([each.result.variance for each in self._select(rows)])

    def points(self, rows: slice | NDArray[np.intp] = slice(None)) -> Array:
        """The points of some rows, (n, d)."""
        chosen = self._select(rows)
        return np.array([each.point for each in chosen]).reshape(len(chosen), self._space.dim)

    def contain(self, points: Array) -> NDArray[np.bool_]:
        """Which of these points have a row, (m,)."""
        data, width = points.tobytes(), 8 * self._space.dim
        return np.array([data[i : i + width] in self._at for i in range(0, len(data), width)], dtype=bool)

    @property
    def remaining(self) -> float:
        """The number of points of the space without a row."""
        return self._space.size - len(self._at)

    def _select(self, rows: slice | NDArray[np.intp]) -> list[Observation]:
        return self._rows[rows] if isinstance(rows, slice) else [self._rows[i] for i in rows]

    # ----------------------------------------------------------------- state

    def state(self) -> list[dict[str, Any]]:
        """All rows as plain data for JSON."""
        return [
            {
                "params": dict(each.params),
                "value": _plain(each.result),
                "variance": each.result.variance,
                "number": each.number,
            }
            for each in self._rows
        ]

    def parse(self, row: Mapping[str, Any]) -> tuple[dict[str, Any], Result, int | None]:
        """The arguments of `add` for a row of `state`."""
        number = None if row["number"] is None else whole("number", row["number"], 0)
        params = self._space.plain(row["params"], outside=True)
        return params, _from_plain(row["value"], _check_variance(row["variance"])), number


def _plain(result: Result) -> float | str | None:
    """A value for JSON, which has no NaN."""
    if result.state is State.COMPLETE:
        return result.value
    return "failed" if result.state is State.FAILED else None


def _from_plain(value: float | str | None, variance: float) -> Result:
    if value is None or value == "failed":
        return Result(State.PENDING if value is None else State.FAILED, variance=variance)
    double = as_number("a value", value)
    if not math.isfinite(double):
        raise ValueError(f"a value must be finite, None or 'failed', not {value!r}")
    return Result(State.COMPLETE, double, variance)


def _check_variance(variance: float) -> float:
    double = as_number("variance", variance)
    if not (math.isfinite(double) and double >= 0):
        raise ValueError(f"variance must be a number of at least 0, not {shortened(variance)}")
    return double
