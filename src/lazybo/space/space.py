"""Search spaces: convert the values of Optuna distributions to points of the unit cube and back.

======  ==============================================================  ========
symbol  meaning                                                         shape
======  ==============================================================  ========
d       numbers in a point: one for each parameter that can vary, if    scalar
        none has structure
x       a point: numbers in [0, 1], choices as 0, 1, …, NaN: inactive   (d,)
======  ==============================================================  ========

A numeric parameter is linear or logarithmic, like its distribution. Points always belong to values that can be
evaluated: integers and steps are rounded.

What configurations are is in `configurations.py`. A point ends with the features that a user's function computes from
its configuration, if there is one (`derived.py`).
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise, product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazybo.core import Array, checks
from lazybo.gp import Column
from lazybo.space.axis import Axis, Perturbation, axis_of
from lazybo.space.beliefs import Belief, Believed, beliefs_of, check_belief, fitting
from lazybo.space.configurations import Condition, Configurations, names_in
from lazybo.space.derived import Canonical, Derived, Features
from lazybo.space.distributions import contains, only_value
from lazybo.space.kinds import Structured
from lazybo.space.shorthand import warn_of_misreading

__all__ = ["MAX_LISTED", "Condition", "Predicate", "Space", "Undeclared", "as_space", "believing", "places_of", "sobol"]

# Whether a configuration may be evaluated.
Predicate: TypeAlias = Callable[[dict[str, Any]], bool]
# What a space is made of.
ARGUMENTS = ("parameters", "conditions", "feasible", "optional", "features", "canonical", "instead_of", "beliefs")
# Spaces with more configurations than this are never listed.
MAX_LISTED = 100_000
# The features of a user's function have units that come from so many random configurations.
EXAMPLES = 128
# The canonical forms of so many of them are checked.
CHECKED = 8


class Space:
    """The parameters of a problem, and what is known about them. Converts configurations to points and back.

    - ``parameters``: a dict of lists of choices, ranges ``(low, high)`` or ``(low, high, "log")``, and Optuna
      distributions (`lazybo.space.shorthand`), and kinds with structure such as `lazybo.Permutation`.
    - ``conditions``: when a parameter is active: ``{"momentum": Condition("optimizer", ("sgd",))}``.
    - ``feasible``: a function of a configuration (a dict of its active parameters) that says whether it may be
      evaluated: ``lambda params: params["a"] + params["b"] <= 1``. Only feasible configurations are suggested.
    - ``beliefs``: where you expect the best values: ``{"lr": lazybo.Belief(around=1e-3, within=3)}``. They guide the
      first suggestions and fade as values arrive.
    - ``optional``: names of parameters that observations may lack for other reasons.
    - ``features``: a function of a configuration that returns extra inputs of the model. ``instead_of`` names the
      parameters that they replace.
    - ``canonical``: a function of a configuration that returns a key. Configurations with equal keys are equivalent:
      only one of them is suggested, and what was measured for one holds for all. If it returns the configuration that
      stands for the equivalent ones, a dict, the model also knows which others are near it.
    """

    @checks.hinting({})
    def __init__(
        self,
        parameters: Mapping[str, Any],
        *,
        conditions: Mapping[str, Condition] | None = None,
        feasible: Predicate | None = None,
        optional: Collection[str] = (),
        features: Features | None = None,
        canonical: Canonical | None = None,
        instead_of: Collection[str] = (),
        beliefs: Mapping[str, Belief] | None = None,
    ) -> None:
        known = self.configurations = Configurations(
            parameters, conditions, optional, may_be_empty=isinstance(self, Undeclared)
        )
        self.parameters, self.stored, self.kinds = known.parameters, known.stored, known.kinds
        self.distributions, self.conditions, self.optional = known.distributions, known.conditions, known.optional
        self.check, self.has, self.plain = known.check, known.has, known.plain
        self.store, self.values, self.stored_conditions = known.store, known.values, known.stored_conditions
        if feasible is not None and not callable(feasible):
            raise ValueError(
                "feasible must be a function that takes a configuration (a dict) and returns True or False, not "
                f"{checks.shortened(feasible)}"
            )
        self.feasible = feasible
        self.beliefs = beliefs_of(beliefs)
        for name, belief in self.beliefs.items():
            if name not in self.parameters:
                raise ValueError(f"there is a belief about {name!r}, but this space has {sorted(self.parameters)}")
            check_belief(name, belief, self.parameters[name])
        warn_of_misreading(parameters)
        self.axes: dict[str, Axis] = {
            name: each.axis if isinstance(each, Structured) else axis_of(each)
            for name, each in self.parameters.items()
            if isinstance(each, Structured) or not each.single()
        }
        known.axes, self._parents_first = self.axes, known.parents_first
        self.names = tuple(self.axes)
        self.slices = _consecutive({name: axis.width for name, axis in self.axes.items()})
        """The numbers of a point that belong to each parameter that can vary."""
        self._drawn = _consecutive({name: axis.draws for name, axis in self.axes.items()})
        self.believed = Believed(self.beliefs, self.axes, self.slices, self._drawn) if self.beliefs else None
        """The density of the beliefs; None if there are none."""
        self.draws = sum(axis.draws for axis in self.axes.values())
        """How many uniform numbers a random point needs."""
        places = [np.minimum(np.arange(axis.draws), axis.width - 1) for axis in self.axes.values()]
        self._stepped = np.concatenate(
            [place + each.start for place, each in zip(places, self.slices.values(), strict=True)] or [[]]
        ).astype(np.intp)
        """The number of a point whose range the steps of each uniform number have, (draws,)."""
        maybe, axes = self.conditions.keys() | self.optional, self.axes.items()
        self.instead_of = _replaced(instead_of, self.parameters, features)
        by_axis = {name: axis.columns(conditional=name in maybe) for name, axis in axes}
        self.numeric = np.array([each for _, axis in axes for each in axis.numeric], dtype=bool)
        """Which numbers of a point are in [0, 1] and may move continuously, (d,)."""
        self.levels = np.array([axis.levels for _, axis in axes for _ in range(axis.width)])
        """How many values the parameter of each number of a point can take, infinity for a continuous one, (d,)."""
        self.features, self.canonical = features, canonical
        self.derived: Derived | None = None
        """What the user's functions say about configurations."""
        self.own = 0
        """How many numbers at the end of a point are features of the user's function."""
        if features is not None or canonical is not None:
            random = self.sample(np.random.default_rng(0), EXAMPLES if self.axes else 1)
            examples = [self.decode(x) for x in random]
            self.derived = Derived(known, features, canonical, examples)
            # A function of feasible configurations may fail for others.
            for each in examples[:CHECKED] if canonical is not None and feasible is None else ():
                self.derived.check_canonical(each)
            self.own = self.derived.count
            self.numeric = np.append(self.numeric, np.zeros(self.own, dtype=bool))
            self.levels = np.append(self.levels, np.full(self.own, np.inf))
        self.columns = _seen(by_axis, self.instead_of, () if self.derived is None else self.derived.columns)

    def __eq__(self, other: object) -> bool:
        """Whether another space has the same parameters, conditions and predicate."""
        return isinstance(other, Space) and all(getattr(self, name) == getattr(other, name) for name in ARGUMENTS)

    __hash__ = None  # type: ignore[assignment]

    @property
    def dim(self) -> int:
        """How many numbers a point has: one for each parameter that can vary, unless some have structure; d."""
        return len(self.numeric)

    @cached_property
    def size(self) -> float:
        """The number of configurations; infinity if a parameter is continuous.

        Configurations that differ only in inactive parameters count once, unless there are too many to list.
        """
        product_of_levels = math.prod(axis.levels for axis in self.axes.values())
        if self.conditions and product_of_levels <= MAX_LISTED:
            return float(sum(1 for _ in self.listed()))
        return product_of_levels

    def changed(self, **changes: Any) -> "Space":
        """The same space with other arguments."""
        return Space(**{name: getattr(self, name) for name in ARGUMENTS} | changes)

    # ------------------------------------------------------------ values and points

    def encode(self, params: Mapping[str, Any]) -> Array:
        """The point of a validated configuration, (d,)."""
        if self.derived is None:
            return self._encode(params)
        params, numbers = self.derived.of(params)
        return np.append(self._encode(params), numbers)

    def _encode(self, params: Mapping[str, Any]) -> Array:
        parts = [
            axis.encode(self.configurations.of(name, params))
            if self.stored[name][0] in params
            else (np.nan,) * axis.width
            for name, axis in self.axes.items()
        ]
        return np.array([x for part in parts for x in part])

    def encode_some(self, params: Mapping[str, Any]) -> Array:
        """The point of a part of a configuration, (d,): NaN where it has no value, and for features."""
        have = [name for name, stored in self.stored.items() if all(each in params for each in stored)]
        place = self._encode({each: params[each] for name in have for each in self.stored[name]})
        return np.append(place, np.full(self.own, np.nan))

    def key(self, x: Array, params: Mapping[str, Any] | None = None) -> Hashable:
        """What points of equivalent configurations share: what ``canonical`` returns, or else the point itself."""
        if self.derived is None or self.canonical is None:
            return x.tobytes()
        point = x.tobytes()
        key = self.derived.key(params) if params is not None else self.derived.key_at(point, lambda: self.decode(x))
        return point if isinstance(key, Mapping) else (key,)

    def decode(self, x: Array) -> dict[str, Any]:
        """The configuration at a point, in the order of the distributions."""
        place, params = x.tolist(), dict[str, Any]()
        for name in self._parents_first:
            if name in self.conditions and not self.configurations.is_active(name, params):
                continue
            if name in self.axes:
                params.update(self.configurations.as_stored(name, self.axes[name].decode(place[self.slices[name]])))
            else:
                params[name] = only_value(self.distributions[name])
        return {name: params[name] for name in self.distributions if name in params}

    def decode_all(self, x: Array) -> list[dict[str, Any]]:
        """The configurations at some points: those of `decode`, many times faster."""
        values: dict[str, list[Any]] = {}
        for name, stored in self.stored.items():
            if name not in self.axes:
                values[name] = [only_value(self.distributions[name])] * len(x)
                continue
            place = x[:, self.slices[name]]
            known = ~np.isnan(place[:, 0])
            rest = iter(self.axes[name].decode_all(place[known]))
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
                    if not self.configurations.is_active(name, row):
                        for each in self.stored[name]:
                            del row[each]
        return rows

    def complete(self, fixed: Mapping[str, Any], x: Array, rng: np.random.Generator) -> dict[str, Any]:
        """A configuration with the ``fixed`` values; the others are those of a point, or random if it has none."""
        params: dict[str, Any] = {}
        for name in self._parents_first:
            if not self.configurations.is_active(name, params):
                continue
            stored = self.stored[name]
            if all(each in fixed for each in stored):
                params |= {each: fixed[each] for each in stored}
                continue
            if name not in self.axes:
                params[name] = only_value(self.distributions[name])
                continue
            axis, place = self.axes[name], x[self.slices[name]]
            if np.isnan(place[0]):
                place = axis.from_uniform(rng.random((1, axis.draws)))[0]
            chosen = dict(self.configurations.as_stored(name, axis.decode(place.tolist())))
            params |= chosen | {each: fixed[each] for each in chosen if each in fixed}
        complete = {name: params[name] for name in self.distributions if name in params} | dict(fixed)
        self.check(complete)
        return complete

    # ------------------------------------------------------------------- points

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Random points, (n, d): every parameter is uniform on its scale, as in `from_uniform`."""
        return self.from_uniform(rng.random((n, self.draws)))

    def spread(self, rng: np.random.Generator, n: int) -> Array:
        """Points that fill the space evenly (scrambled Sobol), (n, d)."""
        return self.from_uniform(sobol(self.draws, rng, n)) if self.dim else np.zeros((n, 0))

    def from_uniform(self, u: Array) -> Array:
        """Points for uniform numbers in [0, 1), (n, draws): every parameter is uniform on its scale.

        Discrete numbers are rounded from a range that begins and ends half a step beyond their ends.
        """
        parts = [axis.from_uniform(u[:, self._drawn[name]]) for name, axis in self.axes.items()]
        empty = np.zeros((len(u), self.own))
        return self.repair(np.hstack([*parts, empty]))

    def perturbed(self, x: Array, ranges: Array, rng: np.random.Generator) -> Array:
        """Points near some others, (m, d): numbers make random steps up to their ``ranges``, and choices change."""
        m, d = len(x), self.draws
        width = 10 ** rng.uniform(-3.0, 0.0, (m, 1)) * np.minimum(ranges[self._stepped], 1.0)
        touched = rng.random((m, d)) < np.maximum(rng.random((m, 1)), 1.5 / d)
        step = width * rng.standard_normal((m, d))
        draws = Perturbation(touched, step, rng.random((m, d)) < 1.0 / d, rng.random((m, d)))
        slices, drawn = self.slices, self._drawn
        parts = [axis.perturbed(x[:, slices[name]], draws.part(drawn[name])) for name, axis in self.axes.items()]
        return _joined(parts, x, self.own)

    def free(self, x: Array) -> NDArray[np.bool_]:
        """Which numbers of points may move continuously, (n, d)."""
        parts = [axis.free(x[:, self.slices[name]]) for name, axis in self.axes.items()]
        return np.hstack([*parts, np.zeros((len(x), self.own), dtype=bool)])

    def project(self, x: Array, free: NDArray[np.bool_]) -> Array:
        """Points that moved continuously, moved in place to the nearest ones of configurations, (n, d)."""
        for name, kind in self.kinds.items():
            columns = self.slices[name]
            x[:, columns] = kind.axis.project(x[:, columns], free[:, columns])
        return x

    def snap(self, x: Array) -> Array:
        """The nearest points that belong to configurations, (n, d); NaN is kept."""
        parts = [axis.snap(x[:, self.slices[name]]) for name, axis in self.axes.items()]
        return _joined(parts, x, self.own)

    def clip(self, x: Array) -> Array:
        """Points with their numbers clipped to [0, 1], (n, d)."""
        return np.where(self.numeric, np.clip(x, 0.0, 1.0), x)

    def as_rows(self, x: Array) -> Array:
        """Points as rows of a process, (n, max(d, 1)): if nothing varies, one column in which all are equal."""
        return x if self.dim else np.zeros((len(x), 1))

    def repair(self, x: Array, rng: np.random.Generator | None = None) -> Array:
        """Make points obey the conditions, in place: set inactive entries to NaN, and fill newly active ones.

        Entries are filled at random, or with the middle of their range if there is no ``rng``. Features of their
        configurations are computed again. Returns the points.
        """
        self._obeying(x, rng)
        if self.derived is not None:
            for i, row in enumerate(x):
                x[i] = self.derived.remembered(row, lambda row: self.encode(self.decode(row)))
        return x

    def _obeying(self, x: Array, rng: np.random.Generator | None = None) -> Array:
        for name in self._parents_first:
            if name not in self.axes or not (name in self.conditions or name in self.optional):
                continue
            axis, columns = self.axes[name], self.slices[name]
            active = _active_rows(self, name, x) if name in self.conditions else np.full(len(x), True)
            x[~active, columns] = np.nan
            empty = active & np.isnan(x[:, columns.start])
            if empty.any():
                shape = (int(empty.sum()), axis.draws)
                x[empty, columns] = axis.from_uniform(np.full(shape, 0.5) if rng is None else rng.random(shape))
        return x

    def neighbours(self, x: Array, others: Array, rng: np.random.Generator) -> Array:
        """The discrete neighbours of one point, (m, d): the next levels up and down, and every other choice.

        Of a parameter with very many choices only those of ``others``, (s, d), and some at random.
        """
        moves = []
        for name, axis in self.axes.items():
            columns = self.slices[name]
            if np.isnan(x[columns.start]):
                continue
            places = axis.next_to(x[columns], others[:, columns], rng)
            moved = np.repeat(x[None], len(places), axis=0)
            moved[:, columns] = places
            moves.append(moved)
        return self.repair(np.vstack(moves), rng) if moves else np.zeros((0, self.dim))

    def listed(self) -> Iterator[Array]:
        """All points of a finite space, each once."""
        seen = set()
        for values in product(*(axis.listed() for axis in self.axes.values())):
            x = self.repair(np.concatenate((*values, np.zeros(self.own)))[None])[0]
            key = x.tobytes()
            if key not in seen:
                seen.add(key)
                yield x


class Undeclared(Space):
    """The space of a run whose objective names its parameters: it has none, and the sampler infers them from trials."""

    def __init__(self) -> None:
        super().__init__({})


def _active_rows(space: Space, name: str, x: Array) -> NDArray[np.bool_]:
    """At which points a conditional parameter is active, (n,)."""
    condition = space.conditions[name]
    parent = condition.parent
    if parent not in space.axes:
        active = only_value(space.distributions[parent]) in condition.values
        rows = np.full(len(x), active)
        return rows & _active_rows(space, parent, x) if parent in space.conditions else rows
    places = np.array(places_of(space, condition)).reshape(-1, space.axes[parent].width)
    gaps = np.abs(x[:, None, space.slices[parent]] - places)
    return np.asarray((gaps <= 1e-12).all(axis=2).any(axis=1))


def places_of(space: Space, condition: Condition) -> list[tuple[float, ...]]:
    """The coordinates of a parent that can vary at which a condition holds; values outside its range have none."""
    axis, parent = space.axes[condition.parent], condition.parent
    values = [value for value in condition.values if contains(space.distributions[parent], value)]
    return [axis.encode(space.configurations.of(parent, {parent: value})) for value in values]


def _replaced(names: Collection[str], parameters: Mapping[str, Any], features: Features | None) -> tuple[str, ...]:
    """The names of parameters that the model does not see, in the order of the parameters."""
    for name in names_in("instead_of", names):
        if name not in parameters:
            raise ValueError(
                f"instead_of names {checks.shortened(name)}; the parameters are {checks.shortened([*parameters], 200)}"
            )
    if names and features is None:
        raise ValueError("instead_of needs features, which the model sees instead of these parameters")
    return tuple(name for name in parameters if name in names)


def _seen(
    by_axis: Mapping[str, Sequence[Column]], hidden: Collection[str], own: Sequence[Column]
) -> tuple[Column, ...]:
    """The columns that the model sees, those of parameters and its ``own`` features; it skips the ``hidden`` ones."""
    seen, before = list[Column](), 0
    parts = [*((columns, name in hidden) for name, columns in by_axis.items()), (own, False)]
    for columns, is_hidden in parts:
        if is_hidden:
            before += sum(column.size for column in columns)
        elif columns:
            seen += [replace(columns[0], before=before), *columns[1:]]
            before = 0
    return tuple(seen)


def _joined(parts: list[Array], x: Array, own: int) -> Array:
    """Points of these parts. The features of their configurations, the last ``own`` numbers, are still those of X."""
    return np.hstack([*parts, x[:, x.shape[1] - own :]]) if parts else x


def sobol(draws: int, rng: np.random.Generator, n: int) -> Array:
    """Uniform numbers of a scrambled Sobol sequence, (n, draws)."""
    # Imported here: it takes as long as all other imports of an optimiser, and reports on a study do not need it.
    from scipy.stats import qmc

    # Sobol points are balanced only if their number is a power of two.
    numbers: Array = qmc.Sobol(draws, rng=rng).random_base2(max(n - 1, 1).bit_length())[:n]
    return numbers


def believing(space: Space, beliefs: Mapping[str, Belief]) -> Space:
    """The same space with these beliefs, except for those that do not fit it."""
    found = fitting(beliefs, space.parameters)
    return space if found == space.beliefs else space.changed(beliefs=found)


def as_space(given: Any) -> Space:
    """``given`` itself if it is a `Space`, or the space of a dict of parameters."""
    return given if isinstance(given, Space) else Space(given)


def _consecutive(lengths: Mapping[str, int]) -> dict[str, slice]:
    """Slices of these lengths, one after the other."""
    ends = np.cumsum([0, *lengths.values()]).tolist()
    return {name: slice(*pair) for name, pair in zip(lengths, pairwise(ends), strict=True)}
