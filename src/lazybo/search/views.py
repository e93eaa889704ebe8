"""What the surrogate of one output sees of the observations: the rows with a value, their values and variances."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lazybo.core.checks import Array
from lazybo.search.observations import Observations
from lazybo.search.results import State


class Rows(Protocol):
    """The observations as the surrogate of one output sees them."""

    def __len__(self) -> int: ...

    def rows(self, state: State) -> NDArray[np.intp]:
        """The rows in this state."""

    @property
    def values(self) -> Array:
        """The values, NaN where there is none, (n,)."""

    def variances(self, rows: slice | NDArray[np.intp] = slice(None)) -> Array:
        """The known variances of some rows."""

    def points(self, rows: slice | NDArray[np.intp] = slice(None)) -> Array:
        """The points of some rows, (n, d)."""

    @property
    def repeated(self) -> list[list[int]]:
        """The rows at each point that has several."""

    @property
    def measured(self) -> NDArray[np.intp]:
        """The complete rows whose value is a measurement, not a forecast."""

    @property
    def unfinished(self) -> NDArray[np.intp]:
        """The rows whose evaluation has not ended, also those with a forecast."""


@dataclass(frozen=True)
class View:
    """What is the same for all outputs."""

    observations: Observations

    def __len__(self) -> int:
        return len(self.observations)

    def points(self, rows: slice | NDArray[np.intp] = slice(None)) -> Array:
        """The points of some rows, (n, d)."""
        return self.observations.points(rows)

    @property
    def repeated(self) -> list[list[int]]:
        """The rows at each point that has several."""
        return self.observations.repeated


@dataclass(frozen=True)
class Objective(View):
    """The observations of one objective: an evaluation with a forecast of it counts as complete."""

    index: int

    def rows(self, state: State) -> NDArray[np.intp]:
        """The rows in this state: failed, or else complete with a value or pending without one."""
        if state is State.FAILED:
            return self.observations.rows(state)
        open_rows = np.concatenate((self.unfinished, self.observations.rows(State.STOPPED)))
        if not len(open_rows):
            return self.observations.rows(state)
        forecast = ~np.isnan(self.values[open_rows])
        if state is State.PENDING:
            return np.sort(open_rows[~forecast])
        return np.sort(np.concatenate((self.measured, open_rows[forecast])))

    @property
    def measured(self) -> NDArray[np.intp]:
        """The complete rows whose value is a measurement, not a forecast."""
        return self.observations.rows(State.COMPLETE)

    @property
    def unfinished(self) -> NDArray[np.intp]:
        """The rows whose evaluation has not ended, also those with a forecast."""
        return self.observations.rows(State.PENDING)

    @property
    def values(self) -> Array:
        """The values, NaN where there is none, (n,)."""
        return self.observations.values_of(self.index)

    def variances(self, rows: slice | NDArray[np.intp] = slice(None)) -> Array:
        """The known variances of some rows."""
        return self.observations.variances(rows, self.index)


@dataclass(frozen=True)
class Measured(View, ABC):
    """The observations of something that evaluations show beside their values: where it is not known, it is pending."""

    @property
    @abstractmethod
    def values(self) -> Array:
        """The values, NaN where there is none, (n,)."""

    def rows(self, state: State) -> NDArray[np.intp]:
        """The rows in this state; none has failed."""
        missing = np.isnan(self.values)
        return np.flatnonzero({State.COMPLETE: ~missing, State.PENDING: missing}.get(state, np.zeros(0, dtype=bool)))

    @property
    def measured(self) -> NDArray[np.intp]:
        """The rows with a value."""
        return self.rows(State.COMPLETE)

    @property
    def unfinished(self) -> NDArray[np.intp]:
        """The rows without a value."""
        return self.rows(State.PENDING)

    def variances(self, rows: slice | NDArray[np.intp] = slice(None)) -> Array:
        """The known variances of some rows: none is known."""
        return np.zeros(len(np.arange(len(self))[rows]))


@dataclass(frozen=True)
class Constraint(Measured):
    """The observations of a measured constraint."""

    name: str

    @property
    def values(self) -> Array:
        """The values, NaN where it was not measured, (n,)."""
        return self.observations.violations(self.name)


@dataclass(frozen=True)
class Cost(Measured):
    """The observations of the logarithm of the cost.

    A failed evaluation counts only if it cost more than all others, as one that ran into a timeout does. One that broke
    down after a second says little about what an evaluation costs there.
    """

    @property
    def values(self) -> Array:
        """The logarithms of the costs, NaN where there is none, (n,)."""
        costs, failed = self.observations.costs(), self.observations.rows(State.FAILED)
        largest = np.nanmax(np.delete(costs, failed), initial=0.0)
        costs[failed[~(costs[failed] > largest)]] = np.nan
        return np.log(costs)


@dataclass(frozen=True)
class Outcomes(Measured):
    """The observations as labels: 1 for an evaluation that failed, 0 for one with a value or stopped early."""

    @property
    def values(self) -> Array:
        """The labels, NaN where there is none, (n,)."""
        labels = np.full(len(self), np.nan)
        labels[self.observations.rows(State.COMPLETE)] = labels[self.observations.rows(State.STOPPED)] = 0.0
        labels[self.observations.rows(State.FAILED)] = 1.0
        return labels

    @property
    def repeated(self) -> list[list[int]]:
        """None: repeats that succeed again are no proof that failures are no accidents."""
        return []
