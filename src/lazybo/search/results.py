"""The result of an evaluation: its state, its values, and what else was measured. Checked once, when it is told.

Smaller values are better: with the direction "maximize" they are negated. ``signs`` are -1 for such objectives, else 1.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np

from lazybo.core import checks

# What is told: one value, one for each of several objectives, or None for a failure.
Values: TypeAlias = float | Sequence[float | None] | None


class State(IntEnum):
    """The state of an evaluation."""

    PENDING = 0
    COMPLETE = 1
    FAILED = 2
    STOPPED = 3  # ended early: what it has is a forecast, not a measurement


@dataclass(frozen=True, slots=True)
class Result:
    """The state of an evaluation, and the value of each objective if it is complete. Smaller values are better.

    A pending or stopped evaluation may have a forecast of one objective; its other values are NaN then. ``variances``
    are the known variances of the noise in the values, or those of the forecast. ``constraints`` are the constraints
    that were measured, by name; each is satisfied if it is at most 0. ``cost`` is what the evaluation cost, if that is
    known.
    """

    state: State
    values: tuple[float, ...] = ()
    variances: tuple[float, ...] = ()
    constraints: Mapping[str, float] = field(default_factory=dict)
    cost: float | None = None

    @classmethod
    def of(
        cls,
        value: Values,
        signs: Sequence[float],
        variance: float | Sequence[float] = 0.0,
        constraints: Mapping[str, float | None] | None = None,
        cost: float | None = None,
    ) -> "Result":
        """The result for what a user tells: None, NaN and infinity are failures."""
        found = cls._of(value, signs, variance, constraints, cost)
        if any(not name.strip() for name in constraints or ()):
            raise ValueError(
                f"a constraint needs a name that is not empty, not {checks.shortened(dict(constraints or {}))}"
            )
        return found

    @classmethod
    def _of(
        cls,
        value: Values,
        signs: Sequence[float],
        variance: float | Sequence[float],
        constraints: Mapping[str, float | None] | None,
        cost: float | None,
    ) -> "Result":
        """`of` with constraints that may have an empty name, as files of earlier versions may."""
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
        *,
        state: State = State.PENDING,
        cost: float | None = None,
    ) -> "Result":
        """A pending or stopped result with the forecast of one objective."""
        if not math.isfinite(double := checks.as_number("the forecast", value)):
            raise ValueError(f"a forecast must be a finite number, not {checks.shortened(value)}")
        known = [j == objective for j in range(len(signs))]
        values = (sign * double if is_it else math.nan for sign, is_it in zip(signs, known, strict=True))
        variances = tuple(_check_variance(variance) if is_it else 0.0 for is_it in known)
        return cls(state, tuple(values), variances, check_constraints(constraints), cost)

    def corrected(
        self,
        value: Values,
        signs: Sequence[float],
        variance: float | Sequence[float] | None,
        constraints: Mapping[str, float | None] | None,
        cost: float | None,
    ) -> "Result":
        """The result with another value. What is None, and constraints that are not given, stay as they are."""
        if variance is None:
            variance = _one_or_list(self.variances) if any(self.variances) else 0.0
        measured = {**self.constraints, **(constraints or {})}
        Result.of(value, signs, variance, constraints)  # only what is new must have a name
        return Result._of(value, signs, variance, measured, self.cost if cost is None else cost)

    def revised(self, value: float, variance: float, signs: Sequence[float], objective: int) -> "Result":
        """The result with another value and variance, or another forecast of one objective if that is what it has."""
        if self.state in (State.PENDING, State.STOPPED):
            return Result.forecast(
                value, variance, signs, objective, self.constraints, state=self.state, cost=self.cost
            )
        return Result._of(value, signs, variance, self.constraints, self.cost)


PENDING = Result(State.PENDING)


def cost_of(name: str | None, seconds: float | None, cost: float | None) -> float | None:
    """The cost that was told; None if it is not known or does not count. ``name`` is what the optimiser calls it."""
    if cost is not None and name in (None, "seconds"):
        remedy = "tell seconds=" if name else "make the optimiser with cost='NAME', or leave it out"
        raise ValueError(f"tell(cost={checks.shortened(cost)}): this optimiser has cost={name!r}; {remedy}")
    took = None if seconds is None else checks.positive("seconds", seconds)
    told = None if cost is None else checks.positive(f"the cost, {name!r},", cost)
    return took if name == "seconds" else told


def check_constraints(given: Mapping[str, float | None] | None) -> dict[str, float]:
    """The constraints that were measured, by name. None and NaN mean that a constraint was not measured."""
    if not isinstance(given, Mapping | None):
        raise ValueError(f"constraints must be a dict of names and numbers, not {checks.shortened(given)}")
    measured = {}
    for name, value in (given or {}).items():
        if not isinstance(name, str):
            raise ValueError(f"the name of a constraint must be a string, not {checks.shortened(name)}")
        double = math.nan if value is None else checks.as_number(f"the constraint {name!r}", value)
        if not math.isnan(double):
            # An infinite violation is as bad as the largest one.
            measured[name] = min(max(double, -sys.float_info.max), sys.float_info.max)
    return measured


def _check_values(given: Any, count: int) -> tuple[float, ...] | None:
    """One number for each objective; None if any of them is None."""
    if given is None:
        return None
    if count == 1:
        return (checks.as_number("the value (or None for a failure)", given),)
    if not isinstance(given, list | tuple | np.ndarray) or len(given) != count:
        expected = f"a list of {count} values, one for each objective, or None for a failure"
        raise ValueError(f"expected {expected}, not {checks.shortened(given)}")
    if any(value is None for value in given):
        return None
    return tuple(checks.as_number("a value", value) for value in given)


def _check_variances(given: Any, count: int) -> tuple[float, ...]:
    """One known variance for each objective."""
    if not isinstance(given, list | tuple | np.ndarray):
        given = [given] if count == 1 else [given] * count if given == 0 else given
    if not isinstance(given, list | tuple | np.ndarray) or len(given) != count:
        raise ValueError(
            f"variance must be a list of {count} numbers, one for each objective, not {checks.shortened(given)}"
        )
    return tuple(_check_variance(each) for each in given)


def _check_variance(variance: float) -> float:
    double = checks.as_number("variance", variance)
    if not (math.isfinite(double) and double >= 0):
        raise ValueError(f"variance must be a number of at least 0, not {checks.shortened(variance)}")
    return double


# ------------------------------------------------------------------------ state


def to_plain(result: Result, number: int | None) -> dict[str, Any]:
    """A result and the number of its suggestion as plain data for JSON, which has no NaN."""
    plain: dict[str, Any] = {
        "value": "failed" if result.state is State.FAILED else None,
        "variance": _one_or_list(result.variances) if result.variances else 0.0,
        "constraints": dict(result.constraints),
        "number": number,
    }
    if result.state is State.COMPLETE:
        plain["value"] = _one_or_list(result.values)
    elif result.state is not State.FAILED and result.values:
        plain["forecast"] = [None if math.isnan(value) else value for value in result.values]
        plain |= {"stopped": True} if result.state is State.STOPPED else {}
    return plain if result.cost is None else {**plain, "cost": result.cost}


def from_plain(row: Mapping[str, Any], objectives: int) -> tuple[Result, int | None]:
    """The inverse of `to_plain`. Earlier versions had no constraints and no costs."""
    number = None if row["number"] is None else checks.whole("number", row["number"], 0)
    value, variances = row["value"], _check_variances(row["variance"], objectives)
    constraints = check_constraints(row.get("constraints"))
    if value is None and "forecast" in row:
        state = State.STOPPED if row.get("stopped") else State.PENDING
        result = Result(state, _check_forecast(row["forecast"], objectives), variances, constraints)
    elif value is None:
        # A pending row knows nothing but its point, so that a restored one is equal to it.
        result = PENDING
    elif value == "failed":
        result = Result(State.FAILED, (), variances, constraints)
    else:
        doubles = _check_values(value, objectives)
        if doubles is None or not all(map(math.isfinite, doubles)):
            raise ValueError(f"a value must be finite, None or 'failed', not {checks.shortened(value)}")
        result = Result(State.COMPLETE, doubles, variances, constraints)
    return result if row.get("cost") is None else replace(result, cost=checks.positive("cost", row["cost"])), number


def _check_forecast(given: Any, count: int) -> tuple[float, ...]:
    if not isinstance(given, list | tuple) or len(given) != count:
        raise ValueError(f"a forecast must be a list of {count} numbers or None, not {checks.shortened(given)}")
    return tuple(math.nan if value is None else checks.finite_number("a forecast", value) for value in given)


def _one_or_list(numbers: Sequence[float]) -> float | list[float]:
    return numbers[0] if len(numbers) == 1 else list(numbers)
