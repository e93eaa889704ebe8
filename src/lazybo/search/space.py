"""Search spaces: Optuna distributions <-> points of the unit cube that the kernel understands.

======  ==============================================================  ========
symbol  meaning                                                         shape
======  ==============================================================  ========
d       parameters that can vary; single-valued ones are left out       scalar
x       a point: numbers in [0, 1], choices as 0, 1, …, NaN: inactive   (d,)
======  ==============================================================  ========

A numeric parameter is linear or logarithmic in its distribution's own sense. A point is always *real*: whole numbers
and steps are where they will be evaluated, not where a continuous search would like them.

A conditional parameter has a `Condition`: it is active while its parent, itself active, has one of some values. An
*optional* one may be absent from an observation for reasons unknown; points to evaluate always have it.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from lazybo.checks import Array, is_float_like, shortened
from lazybo.model.kernels import Column

# More configurations than this are never listed one by one.
MAX_LISTED = 100_000
# So many levels on either side may stand for one that is no value of the distribution, and so many if those are none.
NEAR_LEVELS = 8
FAR_LEVELS = 2**15


@dataclass(frozen=True)
class Condition:
    """A parameter is active while ``parent`` is active and has one of ``values``."""

    parent: str
    values: tuple[Any, ...]


class Space:
    """The parameters of a problem, and the way between their values and points."""

    def __init__(
        self,
        distributions: Mapping[str, BaseDistribution],
        conditions: Mapping[str, Condition] | None = None,
        optional: Collection[str] = (),
    ) -> None:
        self.distributions = dict(distributions)
        self.conditions = dict(conditions or {})
        self.optional = frozenset(optional)
        _check(self.distributions, self.conditions)
        self._axes = {name: _Axis(d) for name, d in self.distributions.items() if not d.single()}
        self.names = tuple(self._axes)
        self._parents_first = _parents_first(self.distributions, self.conditions)
        self.columns = tuple(
            Column(axis.categories, conditional=name in self.conditions or name in self.optional)
            for name, axis in self._axes.items()
        )
        self.categorical = np.array([column.categories > 0 for column in self.columns], dtype=bool)
        self.levels = np.array([axis.levels for axis in self._axes.values()])
        """How many values each column can take, infinity for a continuous one, (d,)."""

    @property
    def dim(self) -> int:
        """Number of parameters that can vary, d."""
        return len(self.names)

    @cached_property
    def size(self) -> float:
        """How many configurations there are: infinity with a continuous parameter.

        Those that conditions make equal count once, unless there are too many to list.
        """
        product_of_levels = float(np.prod(self.levels))
        if self.conditions and product_of_levels <= MAX_LISTED:
            return float(sum(1 for _ in self.listed()))
        return product_of_levels

    # ----------------------------------------------------------- values <-> points

    def check(self, params: Mapping[str, Any], *, outside: bool = False) -> None:
        """Refuse what is not one configuration of this space: unknown, missing, inactive or impossible values.

        With ``outside`` a number may lie outside its range, as long as it has a place beyond its ends.
        """
        if not isinstance(params, Mapping):
            raise ValueError(f"params must be a mapping from parameter names to values, not {params!r}")
        unknown = [name for name in params if name not in self.distributions]
        if unknown:
            raise ValueError(f"unknown parameter {unknown[0]!r}; this space has {sorted(self.distributions)}")
        for name, value in params.items():
            if not _contains(self.distributions[name], value) and not (outside and self._has_place(name, value)):
                raise ValueError(f"{name}={shortened(value)} is not in {self.distributions[name]}")
        for name in self.distributions:
            active = self._is_active(name, params)
            if active and name not in params and name not in self.optional:
                raise ValueError(f"parameter {name!r} is missing")
            if not active and name in params:
                condition = self.conditions[name]
                raise ValueError(
                    f"parameter {name!r} is only active while {condition.parent!r} is one of {condition.values}"
                )

    def plain(self, params: Mapping[str, Any], *, outside: bool = False) -> dict[str, Any]:
        """A configuration that was checked, as plain Python values: no NumPy scalars, choices as the space has them."""
        self.check(params, outside=outside)
        return {name: _plain(self.distributions[name], value) for name, value in params.items()}

    def _has_place(self, name: str, value: Any) -> bool:
        axis = self._axes.get(name)
        try:
            return (
                axis is not None and not axis.categories and is_float_like(value) and math.isfinite(axis.encode(value))
            )
        except (TypeError, ValueError, OverflowError):
            return False

    def encode(self, params: Mapping[str, Any]) -> Array:
        """The point of a configuration that was checked, (d,)."""
        return np.array([axis.encode(params[name]) if name in params else np.nan for name, axis in self._axes.items()])

    def decode(self, x: Array) -> dict[str, Any]:
        """The configuration at a point, in the order of the distributions."""
        column = {name: j for j, name in enumerate(self.names)}
        params: dict[str, Any] = {}
        for name in self._parents_first:
            if not self._is_active(name, params):
                continue
            params[name] = (
                self._axes[name].decode(x[column[name]]) if name in column else _only(self.distributions[name])
            )
        return {name: params[name] for name in self.distributions if name in params}

    def complete(self, fixed: Mapping[str, Any], x: Array, rng: np.random.Generator) -> dict[str, Any]:
        """The configuration with these values, the others as at a point, or random where it has none."""
        params: dict[str, Any] = {}
        column = {name: j for j, name in enumerate(self.names)}
        for name in self._parents_first:
            if not self._is_active(name, params):
                continue
            if name in fixed or name not in column:
                params[name] = fixed[name] if name in fixed else _only(self.distributions[name])
                continue
            axis, place = self._axes[name], x[column[name]]
            params[name] = axis.decode(axis.spread(rng.random(1))[0] if np.isnan(place) else place)
        complete = {name: params[name] for name in self.distributions if name in params} | dict(fixed)
        self.check(complete)
        return complete

    def _is_active(self, name: str, params: Mapping[str, Any]) -> bool:
        condition = self.conditions.get(name)
        return condition is None or (condition.parent in params and params[condition.parent] in condition.values)

    # ------------------------------------------------------------------- points

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Points drawn uniformly, every level of a discrete parameter equally often, (n, d)."""
        return self.spread(rng.random((n, self.dim)))

    def spread(self, u: Array) -> Array:
        """Points for numbers in [0, 1): each level of a discrete parameter gets an equal share, (n, d)."""
        parts = [axis.spread(u[:, j]) for j, axis in enumerate(self._axes.values())]
        return self.repair(np.column_stack(parts)) if parts else np.zeros((len(u), 0))

    def snap(self, x: Array) -> Array:
        """The nearest real points, (n, d); NaN stays."""
        parts = [axis.snap(x[:, j]) for j, axis in enumerate(self._axes.values())]
        return np.column_stack(parts) if parts else x

    def clip(self, x: Array) -> Array:
        """Points with their numbers pulled into [0, 1], (n, d)."""
        return np.where(self.categorical, x, np.clip(x, 0.0, 1.0))

    def settle(self, x: Array) -> Array:
        """Points to the last bit as their configurations will have them, (n, d)."""
        return np.array([self.encode(self.decode(row)) for row in x]).reshape(x.shape)

    def repair(self, x: Array, rng: np.random.Generator | None = None) -> Array:
        """Make points obey the conditions, in place and returned: inactive entries NaN, newly active ones filled.

        Filled at random, or in the middle of their range without ``rng``.
        """
        column = {name: j for j, name in enumerate(self.names)}
        for name in self._parents_first:
            if name not in column or not (name in self.conditions or name in self.optional):
                continue
            j = column[name]
            active = self._active_rows(name, x, column) if name in self.conditions else np.full(len(x), True)
            x[~active, j] = np.nan
            empty = active & np.isnan(x[:, j])
            if empty.any():
                u = np.full(int(empty.sum()), 0.5) if rng is None else rng.random(int(empty.sum()))
                x[empty, j] = self._axes[name].spread(u)
        return x

    def _active_rows(self, name: str, x: Array, column: dict[str, int]) -> NDArray[np.bool_]:
        condition = self.conditions[name]
        parent = condition.parent
        if parent not in column:
            active = _only(self.distributions[parent]) in condition.values
            rows = np.full(len(x), active)
            return rows & self._active_rows(parent, x, column) if parent in self.conditions else rows
        axis = self._axes[parent]
        wanted = [axis.encode(value) for value in condition.values]
        near = np.abs(x[:, column[parent]][:, None] - np.array(wanted)) <= 1e-12
        return np.asarray(near.any(axis=1))

    def neighbours(self, x: Array, rng: np.random.Generator) -> Array:
        """The points one discrete move away from one point: the next levels up and down, every other choice, (m, d)."""
        moves = []
        for j, axis in enumerate(self._axes.values()):
            if np.isnan(x[j]):
                continue
            for value in axis.next_to(x[j]):
                move = x.copy()
                move[j] = value
                moves.append(move)
        return self.repair(np.array(moves), rng) if moves else np.zeros((0, self.dim))

    def listed(self) -> Iterator[Array]:
        """All points of a finite space, each once."""
        levels = [axis.spread(np.arange(0.5, axis.levels) / axis.levels) for axis in self._axes.values()]
        seen = set()
        for values in product(*levels):
            x = self.repair(np.array([values]))[0]
            key = x.tobytes()
            if key not in seen:
                seen.add(key)
                yield x


class _Axis:
    """One parameter that can vary: its values <-> [0, 1], or 0, 1, … for choices.

    A discrete number is at one of ``levels`` values; all ways to its coordinate go through its level, so that equal
    values have equal coordinates to the last bit.
    """

    def __init__(self, distribution: BaseDistribution) -> None:
        self.distribution = distribution
        self.categories = len(distribution.choices) if isinstance(distribution, CategoricalDistribution) else 0
        self.levels = float(self.categories) if self.categories else _levels(distribution)
        self._continuous = math.isinf(self.levels)
        if not self.categories:
            assert isinstance(distribution, FloatDistribution | IntDistribution)
            self._log = distribution.log
            self._low, self._high, self._step = distribution.low, distribution.high, distribution.step or 0
            # Where high - low is beyond the largest double, the axis is measured in units of 2.
            self._half = 0.5 if math.isinf(float(self._high) - float(self._low)) else 1.0
            self._origin = self._measure(self._low)
            self._extent = self._measure(self._high) - self._origin

    def _measure(self, value: float) -> float:
        """Where a number lies on a linear or logarithmic scale."""
        return math.log(value) if self._log else float(value) * self._half

    def encode(self, value: Any) -> float:
        if self.categories:
            return float(self.distribution.to_internal_repr(value))
        if not self._continuous:
            level = self._level_of(value)
            if self._log and self._low + level * self._step <= 0:
                raise ValueError(f"{value} has no logarithm")
            return float(self._at_level(level))
        return (self._measure(value) - self._origin) / self._extent

    def decode(self, x: float) -> Any:
        distribution = self.distribution
        if isinstance(distribution, CategoricalDistribution):
            return distribution.choices[int(x)]
        # The ends are themselves, not what rounding makes of them.
        end = self._low if x <= 0.0 else self._high if x >= 1.0 else None
        if end is not None and _contains(distribution, float(end)):
            return distribution.to_external_repr(float(end))
        if not self._continuous:
            return self._known_value(int(self._level(x)))
        scaled = self._origin + float(x) * self._extent
        return min(max(math.exp(scaled) if self._log else scaled / self._half, self._low), self._high)

    def _known_value(self, level: int) -> Any:
        """The value nearest to a level that the distribution itself contains, as it would be read from a study.

        Studies keep doubles: not every whole number beyond 2⁵³ is one, and far from 0 a small step is lost in rounding.
        """
        for distance in range(NEAR_LEVELS):
            for near in (level - distance, level + distance):
                value = float(self._low + near * self._step)
                for double in (value, math.nextafter(value, -math.inf), math.nextafter(value, math.inf)):
                    if _contains(self.distribution, double):
                        return self.distribution.to_external_repr(double)
        offsets = np.arange(-FAR_LEVELS, FAR_LEVELS)
        values = float(self._low) + (float(level) + offsets) * float(self._step)
        multiple = (values - float(self._low)) / float(self._step)
        order = np.argsort(np.abs(offsets), kind="stable")
        for i in order[(np.abs(multiple - np.round(multiple)) < 1e-8)[order]]:
            if _contains(self.distribution, float(values[i])):
                return self.distribution.to_external_repr(float(values[i]))
        return self.distribution.to_external_repr(float(self._low + level * self._step))

    def _level_of(self, value: Any) -> int:
        """The level nearest to a value, also beyond the ends."""
        whole = self.distribution
        if isinstance(whole, IntDistribution) and value == int(value):
            return round(Fraction(int(value) - whole.low, whole.step))
        return round((value * self._half - self._low * self._half) / (self._step * self._half))

    def spread(self, u: Array) -> Array:
        if self._continuous:
            return u
        level = np.minimum(np.floor(u * self.levels), self.levels - 1)
        return level if self.categories else self._at_level(level)

    def snap(self, x: Array) -> Array:
        return x if self.categories or self._continuous else self._at_level(self._level(x))

    def next_to(self, x: float) -> list[float]:
        if self.categories:
            return [float(c) for c in range(self.categories) if c != x]
        if self._continuous:
            return []
        level = self._level(x)
        near = np.array([k for k in (level - 1, level + 1) if 0 <= k < self.levels])
        return [float(value) for value in self._at_level(near)]

    def _level(self, x: Any) -> Any:
        """The level nearest to a coordinate."""
        if not self._log:
            return np.round(x * (self.levels - 1))
        value = np.exp(self._origin + x * self._extent)
        return np.clip(np.round((value - self._low) / self._step), 0, self.levels - 1)

    def _at_level(self, level: Any) -> Any:
        """The coordinates of levels counted from 0."""
        if not self._log:
            return level / (self.levels - 1)
        return (np.log(self._low + level * self._step) - self._origin) / self._extent


def _levels(distribution: BaseDistribution) -> float:
    """How many values a number can take."""
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    if distribution.step is None:
        return float("inf")
    if isinstance(distribution, IntDistribution):
        return float((distribution.high - distribution.low) // distribution.step + 1)
    count = (distribution.high / 2 - distribution.low / 2) / (distribution.step / 2)
    return float(round(count) + 1) if math.isfinite(count) else math.inf


def _contains(distribution: BaseDistribution, value: Any) -> bool:
    numeric = not isinstance(distribution, CategoricalDistribution)
    try:
        if numeric and not is_float_like(value):
            return False
        return distribution._contains(distribution.to_internal_repr(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _plain(distribution: BaseDistribution, value: Any) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[int(distribution.to_internal_repr(value))]
    if isinstance(distribution, IntDistribution) and value == int(value):
        return int(value)
    return value if type(value) in (int, float) else float(value)


def _only(distribution: BaseDistribution) -> Any:
    """The one value of a single-valued distribution."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[0]
    return distribution.low  # type: ignore[attr-defined]


def _check(distributions: dict[str, BaseDistribution], conditions: dict[str, Condition]) -> None:
    if not distributions:
        raise ValueError("the space is empty: give at least one parameter")
    for name, distribution in distributions.items():
        if not isinstance(name, str):
            raise ValueError(f"parameter names must be strings, not {name!r}")
        if not isinstance(distribution, FloatDistribution | IntDistribution | CategoricalDistribution):
            raise ValueError(
                f"parameter {name!r} must have an Optuna FloatDistribution, IntDistribution or "
                f"CategoricalDistribution, not {distribution!r}"
            )
    for name, condition in conditions.items():
        if not isinstance(condition, Condition):
            raise ValueError(f"the condition of {name!r} must be lazybo.Condition(parent, values), not {condition!r}")
        if name not in distributions or condition.parent not in distributions:
            raise ValueError(f"the condition of {name!r} on {condition.parent!r} names a parameter that does not exist")
        for value in condition.values:
            if not _contains(distributions[condition.parent], value):
                raise ValueError(f"the condition of {name!r}: {condition.parent}={value!r} can never be")


def _parents_first(distributions: dict[str, BaseDistribution], conditions: dict[str, Condition]) -> list[str]:
    """All names, a parent before its children."""
    ordered: list[str] = []

    def visit(name: str, below: tuple[str, ...]) -> None:
        if name in below:
            raise ValueError(f"the conditions of {' and '.join(sorted(below))} depend on each other")
        if name not in ordered:
            if name in conditions:
                visit(conditions[name].parent, (*below, name))
            ordered.append(name)

    for name in distributions:
        visit(name, ())
    return ordered
