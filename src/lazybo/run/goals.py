"""What a run optimises: the objectives, by name or by position, and bounds on metrics; and how far it has come."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from optuna.pruners import BasePruner, NopPruner, ThresholdPruner
from optuna.trial import TrialState

from lazybo.core import Direction, checks, codec


@dataclass(frozen=True)
class Bound:
    """A metric must be at most, or at least, a number. ``name`` is the name of the constraint."""

    metric: str
    limit: float
    at_least: bool = False

    @property
    def name(self) -> str:
        """For example ``memory<=4000``."""
        return f"{self.metric}{'>=' if self.at_least else '<='}{self.limit:.12g}"

    def violation(self, value: float) -> float:
        """How far a value is beyond the bound; at most 0 if it is feasible."""
        difference = self.limit - value if self.at_least else value - self.limit
        return difference if not math.isnan(difference) else 0.0  # equal infinities


class Tally:
    """What the limits are compared with, counted over the trials of a study. Only feasible trials can be the best.

    With several objectives, a trial is better if it changes the front.
    """

    def __init__(self, *directions: str) -> None:
        self.failed = 0
        self.succeeded = 0  # trials that have a value, or were pruned or paused
        self.failed_in_a_row = 0
        self.infeasible = 0
        self.since_best = 0  # trials since the last improvement
        self.completed = 0
        self._signs = [-1.0 if each == "maximize" else 1.0 for each in directions]
        self._front: list[tuple[float, ...]] = []  # small is good
        self._different: set[tuple[float, ...]] = set()  # at most two of the results

    @property
    def best(self) -> float | None:
        """The best value so far, if there is one objective."""
        return self._signs[0] * self._front[0][0] if self._front and len(self._signs) == 1 else None

    @property
    def is_constant(self) -> bool:
        """Whether all trials that completed have the same result."""
        return len(self._different) == 1

    @property
    def front(self) -> int:
        """How many trials are on the front, if there are several objectives."""
        return len(self._front) if len(self._signs) > 1 else 0

    def reaches(self, target: float | None) -> bool:
        """Whether the best value so far is at least as good as this one."""
        return target is not None and bool(self._front) and self._front[0][0] <= self._signs[0] * target

    def count(
        self, state: TrialState, values: Sequence[float] | None, *, feasible: bool = True, repeat: bool = False
    ) -> None:
        """Add a trial that ended. A repeat is no part of the search: target and patience ignore it."""
        failed = state == TrialState.FAIL
        self.failed += failed
        self.succeeded += not failed
        self.failed_in_a_row = self.failed_in_a_row + 1 if failed else 0
        complete = state == TrialState.COMPLETE and values is not None
        self.completed += complete
        if complete and len(self._different) < 2:
            self._different.add(tuple(values or ()))
        self.infeasible += complete and not feasible
        if repeat:
            return
        better = complete and feasible and self._add(values or ())
        self.since_best = 0 if better else self.since_best + 1

    def count_paused(self) -> None:
        """Add a trial that was paused: no failure, and no improvement once there is something to improve on."""
        self.succeeded += 1
        self.since_best += bool(self._front)

    def _add(self, values: Sequence[float]) -> bool:
        """Add a trial to the front, unless one there is at least as good in all objectives."""
        new = tuple(sign * value for sign, value in zip(self._signs, values, strict=True))
        if any(all(a <= b for a, b in zip(old, new, strict=True)) for old in self._front):
            return False
        self._front = [old for old in self._front if not all(a <= b for a, b in zip(new, old, strict=True))]
        self._front.append(new)
        return True


@dataclass(frozen=True)
class Goals:
    """The objectives of a run with their directions, and its bounds. ``names`` is None if objectives have none.

    ``reports`` is the position of the objective that trials report. ``cost`` is the metric that evaluations must return
    as their cost, if there is one.
    """

    directions: tuple[Direction, ...] = ("minimize",)
    names: tuple[str, ...] | None = None
    bounds: tuple[Bound, ...] = ()
    reports: int = 0
    cost: str | None = None

    @staticmethod
    def of(direction: object, constraints: object = None) -> "Goals":
        """Goals from arguments of `optimize()`; raises a ValueError if they are wrong.

        ``direction`` is one direction, a list of directions, or a dict of the names of objectives and their directions.
        """
        bounds = bounds_of(constraints)
        if not isinstance(direction, Mapping):
            return Goals(checks.check_directions(direction), None, bounds)
        if not direction or not all(isinstance(name, str) and name.strip() for name in direction):
            raise ValueError(f"direction must be a dict of names and directions, not {checks.shortened(direction)}")
        checked = [checks.one_of(f"the direction of {name!r}", d, checks.DIRECTIONS) for name, d in direction.items()]
        return Goals(tuple(checked), tuple(direction), bounds)

    @property
    def several(self) -> bool:
        """Whether there are several objectives."""
        return len(self.directions) > 1

    def violations(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """How far each bound is violated, by the name of the constraint.

        Raises a KeyError with the name of a metric that is missing or not a number.
        """
        found = {}
        for bound in self.bounds:
            value = codec.metric_at(metrics, bound.metric)
            if not checks.is_number(value) or math.isnan(checks.as_number(bound.metric, value)):
                raise KeyError(bound.metric)
            found[bound.name] = bound.violation(checks.as_number(bound.metric, value))
        return found

    def reporting(self, reports: object) -> "Goals":
        """The same goals with the objective that trials report, by its name or position; None is the first."""
        known: tuple[object, ...] = self.names or ()
        count = len(self.directions)
        if reports is None:
            return self
        if isinstance(reports, str) and reports in known:
            return replace(self, reports=known.index(reports))
        if isinstance(reports, int | np.integer) and not isinstance(reports, bool) and 0 <= reports < count:
            return replace(self, reports=int(reports))
        names = f"one of {', '.join(map(repr, known))}, or " if known else ""
        raise ValueError(
            f"reports must be the objective that trial.report gives: {names}a position from 0 to {count - 1}, "
            f"not {checks.shortened(reports)}"
        )

    def check_pruner(self, pruner: BasePruner | None) -> None:
        """Reject pruners that judge by one objective if there are several: they fail, or stop the wrong trials."""
        optunas = type(pruner).__module__.startswith("optuna.") and not isinstance(pruner, NopPruner | ThresholdPruner)
        if self.several and optunas:
            raise ValueError(
                f"{type(pruner).__name__} compares one objective, and there are several; leave pruner out for "
                "lazybo.LazyPruner(), or give optuna.pruners.NopPruner() to stop nothing"
            )

    def tally(self) -> Tally:
        """A count of trials and their best values, with none so far."""
        return Tally(*self.directions)


ONE_OBJECTIVE = Goals()


def bounds_of(constraints: object) -> tuple[Bound, ...]:
    """Bounds from a dict: a number is the largest feasible value of a metric, a pair (low, high) a range."""
    if constraints is None:
        return ()
    if not isinstance(constraints, Mapping):
        raise ValueError(f"constraints must be a dict such as {{'memory': 4e9}}, not {checks.shortened(constraints)}")
    return tuple(bound for metric, given in constraints.items() for bound in _bounds_on(metric, given))


def _bounds_on(metric: object, given: object) -> list[Bound]:
    if not isinstance(metric, str) or not metric.strip():
        raise ValueError(f"constraints must have names of metrics as keys, not {checks.shortened(metric)}")
    ends = given if isinstance(given, Sequence) and not isinstance(given, str) else (None, given)
    if len(ends) != 2 or all(end is None for end in ends):
        raise ValueError(
            f"the constraint on {metric!r} must be a number, the largest that is feasible, or a pair (low, high) "
            f"with None for an open end, not {checks.shortened(given)}"
        )
    low, high = (end if end is None else checks.finite_number(f"the constraint on {metric!r}", end) for end in ends)
    if low is not None and high is not None and low > high:
        raise ValueError(f"the constraint on {metric!r} is empty: {low:g} is more than {high:g}; give (low, high)")
    return [Bound(metric, end, at_least) for end, at_least in ((low, True), (high, False)) if end is not None]
