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

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
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

from lazybo.checks import Array, shortened
from lazybo.model.kernels import Column
from lazybo.search.axis import Axis, contains, has_place, only_value, plain_value

# More configurations than this are never listed one by one.
MAX_LISTED = 100_000


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
        self.conditions = _conditions(conditions)
        self.optional = _names("optional", optional)
        _check(self.distributions, self.conditions, self.optional)
        self._axes = {name: Axis(d) for name, d in self.distributions.items() if not d.single()}
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
            if not contains(self.distributions[name], value) and not (
                outside and has_place(self._axes.get(name), value)
            ):
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
        return {name: plain_value(self.distributions[name], value) for name, value in params.items()}

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
                self._axes[name].decode(x[column[name]]) if name in column else only_value(self.distributions[name])
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
                params[name] = fixed[name] if name in fixed else only_value(self.distributions[name])
                continue
            axis, place = self._axes[name], x[column[name]]
            params[name] = axis.decode(axis.from_uniform(rng.random(1))[0] if np.isnan(place) else place)
        complete = {name: params[name] for name in self.distributions if name in params} | dict(fixed)
        self.check(complete)
        return complete

    def _is_active(self, name: str, params: Mapping[str, Any]) -> bool:
        condition = self.conditions.get(name)
        return condition is None or (condition.parent in params and params[condition.parent] in condition.values)

    # ------------------------------------------------------------------- points

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Points drawn uniformly, every level of a discrete parameter equally often, (n, d)."""
        return self.from_uniform(rng.random((n, self.dim)))

    def from_uniform(self, u: Array) -> Array:
        """Points for numbers in [0, 1): each level of a discrete parameter gets an equal share, (n, d)."""
        parts = [axis.from_uniform(u[:, j]) for j, axis in enumerate(self._axes.values())]
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
                x[empty, j] = self._axes[name].from_uniform(u)
        return x

    def _active_rows(self, name: str, x: Array, column: dict[str, int]) -> NDArray[np.bool_]:
        condition = self.conditions[name]
        parent = condition.parent
        if parent not in column:
            active = only_value(self.distributions[parent]) in condition.values
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
        levels = [axis.from_uniform(np.arange(0.5, axis.levels) / axis.levels) for axis in self._axes.values()]
        seen = set()
        for values in product(*levels):
            x = self.repair(np.array([values]))[0]
            key = x.tobytes()
            if key not in seen:
                seen.add(key)
                yield x


def _conditions(conditions: Mapping[str, Condition] | None) -> dict[str, Condition]:
    """``conditions`` as a dict, the values of each as a tuple."""
    if conditions is not None and not isinstance(conditions, Mapping):
        raise ValueError(
            "conditions must be a dict from the name of a parameter to its lazybo.Condition(parent, values), not "
            f"{shortened(conditions)}"
        )
    checked = {}
    for name, condition in (conditions or {}).items():
        which = f"conditions: the condition of {name!r}"
        if not isinstance(condition, Condition):
            raise ValueError(f"{which} must be lazybo.Condition(parent, values), not {shortened(condition)}")
        values = condition.values
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ValueError(f"{which} must have a list of values, not {shortened(values)}")
        if not values:
            raise ValueError(f"{which} has no values: the parameter could never be active")
        checked[name] = Condition(condition.parent, tuple(values))
    return checked


def _names(argument: str, names: Collection[str]) -> frozenset[str]:
    """Names of parameters as a set."""
    if isinstance(names, str) or not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{argument} must be a list of names of parameters, not {shortened(names)}")
    return frozenset(names)


def _check(
    distributions: dict[str, BaseDistribution], conditions: dict[str, Condition], optional: frozenset[str]
) -> None:
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
    unknown = optional - distributions.keys()
    if unknown:
        raise ValueError(f"optional names the unknown parameter {min(unknown)!r}; this space has {[*distributions]}")
    for name, condition in conditions.items():
        parent = condition.parent
        if name not in distributions or not isinstance(parent, str) or parent not in distributions:
            raise ValueError(
                f"conditions: the condition of {name!r} on {shortened(parent)} names a parameter that does not exist; "
                f"this space has {[*distributions]}"
            )
        for value in condition.values:
            if not contains(distributions[parent], value):
                raise ValueError(f"conditions: the condition of {name!r}: {parent}={shortened(value)} can never be")


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
