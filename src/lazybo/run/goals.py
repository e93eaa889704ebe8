"""What a run optimises: the objectives, by name or by position, and bounds on metrics."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from optuna.pruners import BasePruner, NopPruner, ThresholdPruner

from lazybo.core import Direction, checks
from lazybo.study import metric_at


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
            value = metric_at(metrics, bound.metric)
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


ONE_OBJECTIVE = Goals()


def check_goals(direction: object, constraints: object = None, reports: object = None) -> Goals:
    """The goals of `optimize()`; raises a ValueError if they are wrong.

    ``direction`` is one direction, a list of directions, or a dict of the names of objectives and their directions.
    """
    bounds = check_bounds(constraints)
    if not isinstance(direction, Mapping):
        return Goals(checks.check_directions(direction), None, bounds).reporting(reports)
    if not direction or not all(isinstance(name, str) and name.strip() for name in direction):
        raise ValueError(f"direction must be a dict of names and directions, not {checks.shortened(direction)}")
    checked = [checks.one_of(f"the direction of {name!r}", each, checks.DIRECTIONS) for name, each in direction.items()]
    return Goals(tuple(checked), tuple(direction), bounds).reporting(reports)


def check_bounds(constraints: object) -> tuple[Bound, ...]:
    """Bounds from a dict: a number is the largest feasible value of a metric, a pair (low, high) a range."""
    if constraints is None:
        return ()
    if not isinstance(constraints, Mapping):
        raise ValueError(f"constraints must be a dict such as {{'memory': 4e9}}, not {checks.shortened(constraints)}")
    found = []
    for metric, given in constraints.items():
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
        found += [Bound(metric, end, at_least) for end, at_least in ((low, True), (high, False)) if end is not None]
    return tuple(found)


def check_pruner(pruner: BasePruner | None, goals: Goals) -> None:
    """Reject pruners that judge by one objective if there are several: they fail, or stop the wrong trials."""
    of_optuna = type(pruner).__module__.startswith("optuna.") and not isinstance(pruner, NopPruner | ThresholdPruner)
    if goals.several and of_optuna:
        raise ValueError(
            f"{type(pruner).__name__} compares one objective, and there are several; leave pruner out for "
            "lazybo.LazyPruner(), or give optuna.pruners.NopPruner() to stop nothing"
        )
