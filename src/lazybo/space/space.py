"""Search spaces: convert the values of Optuna distributions to points of the unit cube and back.

======  ==============================================================  ========
symbol  meaning                                                         shape
======  ==============================================================  ========
d       numbers in a point: one for each parameter that can vary, if    scalar
        none has structure
x       a point: numbers in [0, 1], choices as 0, 1, …, NaN: inactive   (d,)
======  ==============================================================  ========

A configuration has two forms, which differ for parameters with structure (`kinds.py`). Users see *values*: ``{"order":
["b", "a"]}``. Everything else has *params*, as a study stores them: ``{"order[0]": "b", "order[1]": "a"}``.

A numeric parameter is linear or logarithmic, like its distribution. Points always belong to values that can be
evaluated: integers and steps are rounded.

A conditional parameter has a `Condition`: it is active while its parent is active and has one of certain values. An
*optional* parameter may be missing from an observation for unknown reasons; points to evaluate always have it.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution

from lazybo.core.checks import Array, hinting, shortened
from lazybo.space.axis import Axis, Perturbation, allowed_values, axis_of, contains, has_place, only_value, plain_value
from lazybo.space.kinds import Kind
from lazybo.space.shorthand import as_distributions, warn_of_misreading

# Whether a configuration may be evaluated.
Predicate: TypeAlias = Callable[[dict[str, Any]], bool]
# Spaces with more configurations than this are never listed.
MAX_LISTED = 100_000
# Distances are computed for this many points at a time.
CHUNK = 10_000


@dataclass(frozen=True)
class Condition:
    """A parameter is active while ``parent`` is active and has one of ``values``.

    With ``outside``, values may lie outside the range of the parent, as those of earlier results may.
    """

    parent: str
    values: tuple[Any, ...]
    outside: bool = field(default=False, compare=False, repr=False)


class Space:
    """The parameters of a problem, and what is known about them. Converts configurations to points and back.

    - ``parameters``: a dict of lists of choices, ranges ``(low, high)`` or ``(low, high, "log")``, and Optuna
      distributions (`lazybo.space.shorthand`).
    - ``conditions``: when a parameter is active: ``{"momentum": Condition("optimizer", ("sgd",))}``.
    - ``feasible``: a function of a configuration (a dict of its active parameters) that says whether it may be
      evaluated: ``lambda params: params["a"] + params["b"] <= 1``. Only feasible configurations are suggested.
    - ``optional``: names of parameters that observations may lack for other reasons.
    """

    @hinting({})
    def __init__(
        self,
        parameters: Mapping[str, Any],
        *,
        conditions: Mapping[str, Condition] | None = None,
        feasible: Predicate | None = None,
        optional: Collection[str] = (),
    ) -> None:
        self.parameters = _parameters(parameters)
        """Every parameter as a distribution or a kind with structure."""
        stored = {
            name: each.stored(name) if isinstance(each, Kind) else {name: each}
            for name, each in self.parameters.items()
        }
        self.stored = {name: tuple(each) for name, each in stored.items()}
        """The names in a study of each parameter."""
        self.kinds = {name: each for name, each in self.parameters.items() if isinstance(each, Kind)}
        self.distributions = _flat(stored)
        """The distributions of all parameters as a study has them."""
        self.conditions = _conditions(conditions)
        self.optional = _names("optional", optional)
        _check(self.parameters, self.conditions, self.optional)
        if feasible is not None and not callable(feasible):
            raise ValueError(
                "feasible must be a function that takes a configuration (a dict) and returns True or False, not "
                f"{shortened(feasible)}"
            )
        self.feasible = feasible
        warn_of_misreading(parameters)
        self._axes: dict[str, Axis] = {
            name: each.axis if isinstance(each, Kind) else axis_of(each)
            for name, each in self.parameters.items()
            if isinstance(each, Kind) or not each.single()
        }
        self.names = tuple(self._axes)
        ends = np.cumsum([0, *(axis.width for axis in self._axes.values())]).tolist()
        self.slices = {name: slice(*pair) for name, pair in zip(self._axes, pairwise(ends), strict=True)}
        """The columns of each parameter that can vary."""
        ends = np.cumsum([0, *(axis.draws for axis in self._axes.values())]).tolist()
        self._drawn = {name: slice(*pair) for name, pair in zip(self._axes, pairwise(ends), strict=True)}
        self.draws = ends[-1]
        """How many uniform numbers a random point needs."""
        self._parents_first = _parents_first(self.parameters, self.conditions)
        maybe = self.conditions.keys() | self.optional
        axes = self._axes.items()
        self.columns = tuple(each for name, axis in axes for each in axis.columns(conditional=name in maybe))
        self.numeric = np.array([each for axis in self._axes.values() for each in axis.numeric], dtype=bool)
        """Which columns are numbers in [0, 1] that may move continuously, (d,)."""
        self.levels = np.array([axis.levels for axis in self._axes.values() for _ in range(axis.width)])
        """How many values the parameter of each number of a point can take, infinity for a continuous one, (d,)."""

    def __eq__(self, other: object) -> bool:
        """Whether another space has the same parameters, conditions and predicate."""
        return isinstance(other, Space) and all(
            getattr(self, name) == getattr(other, name) for name in ("parameters", "conditions", "optional", "feasible")
        )

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def stored_conditions(self) -> dict[str, Condition]:
        """The conditions by the names of stored parameters."""
        return {each: condition for name, condition in self.conditions.items() for each in self.stored[name]}

    @property
    def dim(self) -> int:
        """How many numbers a point has: one for each parameter that can vary, unless some have structure; d."""
        return len(self.numeric)

    @cached_property
    def size(self) -> float:
        """The number of configurations; infinity if a parameter is continuous.

        Configurations that differ only in inactive parameters count once, unless there are too many to list.
        """
        product_of_levels = math.prod(axis.levels for axis in self._axes.values())
        if self.conditions and product_of_levels <= MAX_LISTED:
            return float(sum(1 for _ in self.listed()))
        return product_of_levels

    def box(self, center: Array, side: float) -> "Space":
        """The part of the space around a point, (d,), as wide as ``side`` in each number.

        Choices, and parameters that others depend on, keep all values.
        """
        half = np.where(self.numeric, side / 2.0, np.inf)
        around = np.nan_to_num(center, nan=0.5)
        low = np.where(np.isnan(center), 0.0, np.clip(around - half, 0.0, 1.0))
        high = np.where(np.isnan(center), 1.0, np.clip(around + half, 0.0, 1.0))
        parents = {condition.parent for condition in self.conditions.values()}
        narrow = {
            name: axis.narrowed(low[self.slices[name]], high[self.slices[name]])
            for name, axis in self._axes.items()
            if name not in parents
        }
        return self.changed(parameters={**self.parameters, **narrow})

    def changed(self, **changes: Any) -> "Space":
        """The same space with other arguments."""
        given = {name: getattr(self, name) for name in ("parameters", "conditions", "feasible", "optional")}
        return Space(**given | changes)

    def distances(self, points: Array, center: Array) -> Array:
        """The largest difference between numbers, plus the distances of other kinds of parameters, (m,)."""
        found = np.zeros(len(points))
        for start in range(0, len(points), CHUNK):
            part = points[start : start + CHUNK]
            largest, others = np.zeros(len(part)), np.zeros(len(part))
            for name, axis in self._axes.items():
                x, middle = part[:, self.slices[name]], center[self.slices[name]]
                gaps = axis.distances(x, middle)
                gaps[np.isnan(x[:, 0]) & np.isnan(middle[0])] = 0.0
                gaps[np.isnan(gaps)] = 1.0
                if axis.numeric.all():
                    largest = np.maximum(largest, gaps)
                else:
                    others += gaps
            found[start : start + CHUNK] = largest + others
        return found

    # ------------------------------------------------------------ values and points

    def check(self, params: Mapping[str, Any], *, outside: bool = False) -> None:
        """Raise a ValueError if this is not a configuration: unknown, missing or inactive parameters, or wrong values.

        These are stored parameters. With ``outside`` a number may lie outside its range (but not below 0 on a
        logarithmic scale).
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
                allowed = allowed_values(self.distributions[name])
                raise ValueError(f"{name} must be {allowed}, not {shortened(value)}")
        for name, stored in self.stored.items():
            active = _is_active(self.conditions, name, params)
            missing = [each for each in stored if each not in params]
            if active and missing and not (name in self.optional and len(missing) == len(stored)):
                raise ValueError(f"parameter {missing[0] if len(missing) < len(stored) else name!r} is missing")
            if not active and len(missing) < len(stored):
                condition = self.conditions[name]
                raise ValueError(
                    f"parameter {name!r} is only active while {condition.parent!r} is one of {condition.values}"
                )

    def has(self, params: Mapping[str, Any]) -> bool:
        """Whether this is a configuration of the space."""
        try:
            self.check(params)
        except ValueError:
            return False
        return True

    def plain(self, params: Mapping[str, Any], *, outside: bool = False) -> dict[str, Any]:
        """Validate a configuration and convert it to stored parameters with plain Python values."""
        params = self.store(params)
        self.check(params, outside=outside)
        return {name: plain_value(self.distributions[name], value) for name, value in params.items()}

    def store(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Params of values as users give them. Those that are stored parameters already stay as they are."""
        if not self.kinds or not isinstance(values, Mapping):
            return values
        params: dict[str, Any] = {}
        for name, value in values.items():
            kind = self.kinds.get(name)
            if kind is None:
                params[name] = value
                continue
            try:
                params |= zip(self.stored[name], kind.write(value), strict=True)
            except ValueError as error:
                raise ValueError(f"{name} {error}") from None
        return params

    def values(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The values that users see for stored parameters, in the order of the definition."""
        if not self.kinds:
            return dict(params)
        values = {}
        for name, stored in self.stored.items():
            if all(each in params for each in stored):
                read = self.kinds[name].read if name in self.kinds else None
                values[name] = params[name] if read is None else read([params[each] for each in stored])
        return values

    def encode(self, params: Mapping[str, Any]) -> Array:
        """The point of a validated configuration, (d,)."""
        parts = [
            axis.encode(self._of(name, params)) if self.stored[name][0] in params else (np.nan,) * axis.width
            for name, axis in self._axes.items()
        ]
        return np.array([x for part in parts for x in part])

    def _of(self, name: str, params: Mapping[str, Any]) -> Any:
        """What the axis of a parameter encodes: its value, or all stored values of a kind with structure."""
        return tuple(params[each] for each in self.stored[name]) if name in self.kinds else params[name]

    def _stored(self, name: str, decoded: Any) -> Iterable[tuple[str, Any]]:
        """What the axis of a parameter has decoded as stored parameters."""
        return zip(self.stored[name], decoded, strict=True) if name in self.kinds else ((name, decoded),)

    def decode(self, x: Array) -> dict[str, Any]:
        """The configuration at a point, in the order of the distributions."""
        place, params = x.tolist(), dict[str, Any]()
        for name in self._parents_first:
            if name in self.conditions and not _is_active(self.conditions, name, params):
                continue
            if name in self._axes:
                params.update(self._stored(name, self._axes[name].decode(place[self.slices[name]])))
            else:
                params[name] = only_value(self.distributions[name])
        return {name: params[name] for name in self.distributions if name in params}

    def decode_all(self, x: Array) -> list[dict[str, Any]]:
        """The configurations at some points: those of `decode`, many times faster."""
        values: dict[str, Sequence[Any]] = {}
        for name, stored in self.stored.items():
            if name not in self._axes:
                values[name] = [only_value(self.distributions[name])] * len(x)
                continue
            place = x[:, self.slices[name]]
            known = ~np.isnan(place[:, 0])
            rest = iter(self._axes[name].decode_all(place[known]))
            found = [next(rest) if each else None for each in known.tolist()] if not known.all() else [*rest]
            if name in self.kinds:
                for i, each in enumerate(stored):
                    values[each] = [None if row is None else row[i] for row in found]
            else:
                values[name] = found
        rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        for name in self._parents_first:
            if name in self.conditions:
                for row in rows:
                    if not _is_active(self.conditions, name, row):
                        for each in self.stored[name]:
                            del row[each]
        return rows

    def complete(self, fixed: Mapping[str, Any], x: Array, rng: np.random.Generator) -> dict[str, Any]:
        """A configuration with the ``fixed`` values; the others are those of a point, or random if it has none."""
        params: dict[str, Any] = {}
        for name in self._parents_first:
            if not _is_active(self.conditions, name, params):
                continue
            stored = self.stored[name]
            if all(each in fixed for each in stored):
                params |= {each: fixed[each] for each in stored}
                continue
            if name not in self._axes:
                params[name] = only_value(self.distributions[name])
                continue
            axis, place = self._axes[name], x[self.slices[name]]
            if np.isnan(place[0]):
                place = axis.from_uniform(rng.random((1, axis.draws)))[0]
            chosen = dict(self._stored(name, axis.decode(place.tolist())))
            params |= chosen | {each: fixed[each] for each in chosen if each in fixed}
        complete = {name: params[name] for name in self.distributions if name in params} | dict(fixed)
        self.check(complete)
        return complete

    # ------------------------------------------------------------------- points

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Random points, (n, d): uniform, with all levels of a discrete parameter equally likely."""
        return self.from_uniform(rng.random((n, self.draws)))

    def spread(self, rng: np.random.Generator, n: int) -> Array:
        """Points that fill the space evenly (scrambled Sobol), (n, d)."""
        if self.dim == 0:
            return np.zeros((n, 0))
        # Imported here: it takes as long as all other imports of an optimiser, and reports on a study do not need it.
        from scipy.stats import qmc

        # Sobol points are balanced only if their number is a power of two.
        return self.from_uniform(qmc.Sobol(self.draws, rng=rng).random_base2(max(n - 1, 1).bit_length())[:n])

    def from_uniform(self, u: Array) -> Array:
        """Points for uniform numbers in [0, 1), (n, draws): all levels of a discrete parameter are equally likely."""
        parts = [axis.from_uniform(u[:, self._drawn[name]]) for name, axis in self._axes.items()]
        return self.repair(np.hstack(parts)) if parts else np.zeros((len(u), 0))

    def perturbed(self, x: Array, ranges: Array, rng: np.random.Generator) -> Array:
        """Points near some others, (m, d): numbers make random steps up to their ``ranges``, and choices change."""
        m, d = len(x), self.draws
        width = 10 ** rng.uniform(-3.0, 0.0, (m, 1)) * np.minimum(ranges[self._ranged], 1.0)
        touched = rng.random((m, d)) < np.maximum(rng.random((m, 1)), 1.5 / d)
        step = width * rng.standard_normal((m, d))
        draws = Perturbation(touched, step, rng.random((m, d)) < 1.0 / d, rng.random((m, d)))
        slices, drawn = self.slices, self._drawn
        parts = [axis.perturbed(x[:, slices[name]], draws.part(drawn[name])) for name, axis in self._axes.items()]
        return np.hstack(parts)

    @cached_property
    def _ranged(self) -> NDArray[np.intp]:
        """For each uniform number the number of a point whose range its steps have, (draws,)."""
        places = [
            np.minimum(np.arange(axis.draws), axis.width - 1) + self.slices[name].start
            for name, axis in self._axes.items()
        ]
        return np.concatenate([*places, np.zeros(0, dtype=np.intp)])

    def free(self, x: Array) -> NDArray[np.bool_]:
        """Which numbers of points may move continuously, (n, d)."""
        return np.hstack([axis.free(x[:, self.slices[name]]) for name, axis in self._axes.items()])

    def project(self, x: Array, free: NDArray[np.bool_]) -> Array:
        """Points that moved continuously, moved back in place to those of configurations, (n, d): shares keep their sum."""
        for name, kind in self.kinds.items():
            columns = self.slices[name]
            x[:, columns] = kind.axis.project(x[:, columns], free[:, columns])
        return x

    def snap(self, x: Array) -> Array:
        """The nearest points that belong to configurations, (n, d); NaN is kept."""
        parts = [axis.snap(x[:, self.slices[name]]) for name, axis in self._axes.items()]
        return np.hstack(parts) if parts else x

    def clip(self, x: Array) -> Array:
        """Points with their numbers clipped to [0, 1], (n, d)."""
        return np.where(self.numeric, np.clip(x, 0.0, 1.0), x)

    def as_rows(self, x: Array) -> Array:
        """Points as rows of a process, (n, max(d, 1)): if nothing varies, one column in which all are equal."""
        return x if self.dim else np.zeros((len(x), 1))

    def repair(self, x: Array, rng: np.random.Generator | None = None) -> Array:
        """Make points obey the conditions, in place: set inactive entries to NaN, and fill newly active ones.

        Entries are filled at random, or with the middle of their range if there is no ``rng``. Returns the points.
        """
        for name in self._parents_first:
            if name not in self._axes or not (name in self.conditions or name in self.optional):
                continue
            axis, columns = self._axes[name], self.slices[name]
            active = self._active_rows(name, x) if name in self.conditions else np.full(len(x), True)
            x[~active, columns] = np.nan
            empty = active & np.isnan(x[:, columns.start])
            if empty.any():
                shape = (int(empty.sum()), axis.draws)
                x[empty, columns] = axis.from_uniform(np.full(shape, 0.5) if rng is None else rng.random(shape))
        return x

    def _active_rows(self, name: str, x: Array) -> NDArray[np.bool_]:
        condition = self.conditions[name]
        parent = condition.parent
        if parent not in self._axes:
            active = only_value(self.distributions[parent]) in condition.values
            rows = np.full(len(x), active)
            return rows & self._active_rows(parent, x) if parent in self.conditions else rows
        places = np.array(self.places(condition)).reshape(-1, self._axes[parent].width)
        gaps = np.abs(x[:, None, self.slices[parent]] - places)
        return np.asarray((gaps <= 1e-12).all(axis=2).any(axis=1))

    def places(self, condition: Condition) -> list[tuple[float, ...]]:
        """The coordinates of a parent that can vary at which a condition holds; values outside its range have none."""
        axis, parent = self._axes[condition.parent], condition.parent
        values = [value for value in condition.values if contains(self.distributions[parent], value)]
        return [axis.encode(self._of(parent, {parent: value})) for value in values]

    def neighbours(self, x: Array, others: Array, rng: np.random.Generator) -> Array:
        """The discrete neighbours of one point, (m, d): the next levels up and down, and every other choice.

        Of a parameter with very many choices only those of ``others``, (s, d), and some at random.
        """
        moves = []
        for name, axis in self._axes.items():
            columns = self.slices[name]
            if np.isnan(x[columns.start]):
                continue
            for place in axis.next_to(x[columns], others[:, columns], rng):
                move = x.copy()
                move[columns] = place
                moves.append(move)
        return self.repair(np.array(moves), rng) if moves else np.zeros((0, self.dim))

    def listed(self) -> Iterator[Array]:
        """All points of a finite space, each once."""
        seen = set()
        for values in product(*(axis.listed() for axis in self._axes.values())):
            x = self.repair(np.concatenate(values)[None])[0]
            key = x.tobytes()
            if key not in seen:
                seen.add(key)
                yield x


def _is_active(conditions: Mapping[str, Condition], name: str, params: Mapping[str, Any]) -> bool:
    condition = conditions.get(name)
    return condition is None or (condition.parent in params and params[condition.parent] in condition.values)


def as_space(given: Any) -> Space:
    """``given`` itself if it is a `Space`, or the space of a dict of parameters."""
    return given if isinstance(given, Space) else Space(given)


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
        checked[name] = replace(condition, values=tuple(values))
    return checked


def _names(argument: str, names: Collection[str]) -> frozenset[str]:
    """Names of parameters as a set."""
    if isinstance(names, str) or not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{argument} must be a list of names of parameters, not {shortened(names)}")
    return frozenset(names)


def _parameters(given: Any) -> dict[str, BaseDistribution | Kind]:
    """The parameters of a space as distributions and kinds with structure."""
    kinds = {name: each for name, each in given.items() if isinstance(each, Kind)} if isinstance(given, Mapping) else {}
    if not kinds:
        return {**as_distributions(given)}
    others = as_distributions(
        {name: None if name in kinds else each for name, each in given.items() if name not in kinds}
    )
    return {name: kinds.get(name) or others[name] for name in given}


def _flat(stored: Mapping[str, Mapping[str, BaseDistribution]]) -> dict[str, BaseDistribution]:
    """The stored parameters of all parameters."""
    flat: dict[str, BaseDistribution] = {}
    for name, each in stored.items():
        twice = next((inside for inside in each if inside in flat), None)
        if twice is not None:
            raise ValueError(f"parameter {name!r} is stored as {twice!r}, which is another parameter; rename one")
        flat |= each
    return flat


def _check(
    distributions: Mapping[str, BaseDistribution | Kind], conditions: dict[str, Condition], optional: frozenset[str]
) -> None:
    if not distributions:
        raise ValueError("the space is empty: give at least one parameter")
    unknown = optional - distributions.keys()
    if unknown:
        raise ValueError(f"optional names the unknown parameter {min(unknown)!r}; this space has {[*distributions]}")
    for name, condition in conditions.items():
        _check_condition(name, condition, distributions)


def _check_condition(name: str, condition: Condition, distributions: Mapping[str, BaseDistribution | Kind]) -> None:
    parent, which = condition.parent, f"conditions: the condition of {name!r}"
    for known in (name, parent):
        if not isinstance(known, str) or known not in distributions:
            missing = f"there is no parameter {shortened(known)}; this space has {[*distributions]}"
            raise ValueError(f"{which} on {shortened(parent)}: {missing}")
    given = distributions[parent]
    whole = given.stored(parent).get(parent) if isinstance(given, Kind) else given
    if whole is None:
        raise ValueError(f"{which} on {parent!r}: a parameter with structure decides about no others")
    for value in condition.values:
        if not contains(whole, value) and not condition.outside:
            allowed = allowed_values(whole)
            raise ValueError(f"{which} has {parent}={shortened(value)}, but {parent} must be {allowed}")


def _parents_first(distributions: Iterable[str], conditions: dict[str, Condition]) -> list[str]:
    """All parameter names, parents before children."""
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
