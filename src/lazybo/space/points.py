"""Points of the unit cube for the configurations of a space: encode, decode, draw, move.

======  ==============================================================  ========
symbol  meaning                                                         shape
======  ==============================================================  ========
d       numbers in a point: one for each parameter that can vary, if    scalar
        none has structure
x       a point: numbers in [0, 1], choices as 0, 1, …, NaN: inactive   (d,)
======  ==============================================================  ========

A numeric parameter is linear or logarithmic, like its distribution. Points always belong to values that can be
evaluated: integers and steps are rounded. A point ends with the features that a user's function computes from its
configuration, if there is one (`derived.py`).
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lazybo.core import Array
from lazybo.gp import Column
from lazybo.space.axis import Axis, Perturbation, axis_of
from lazybo.space.derived import Derived
from lazybo.space.distributions import only_value
from lazybo.space.kinds import Structured
from lazybo.space.moves import Moves

if TYPE_CHECKING:
    from scipy.stats.qmc import Sobol

    from lazybo.space.space import Parameter, Space

# The features of a user's function have units that come from this many random configurations.
EXAMPLES = 128


class Points:
    """The points of a space: how its configurations are encoded; immutable."""

    def __init__(self, space: "Space") -> None:
        self._space = space
        self.axes = _axes(space.parameters)
        """The axes of the parameters that can vary."""
        self.names = tuple(self.axes)
        self.slices = _consecutive({name: axis.width for name, axis in self.axes.items()})
        """The numbers of a point that belong to each of them."""
        self.drawn = _consecutive({name: axis.draws for name, axis in self.axes.items()})
        """The uniform numbers from which each of them is drawn."""
        self.draws = sum(axis.draws for axis in self.axes.values())
        """How many uniform numbers a random point needs."""
        self._stepped = _stepped(self.axes, self.slices)
        maybe = space.conditions.keys() | space.optional
        self._maybe = [name for name in space.parents_first if name in self.axes and name in maybe]
        self.places = _places(self.axes, space)
        """By conditional parameter: the coordinates of its parent at which it is active, (m, w), if that can vary."""
        self._moves = Moves(self.axes, self.slices)
        self.own = 0
        """How many numbers at the end of a point are features of the user's function."""
        self._derived: Derived | None = None
        self._derived = _derived(self, space)
        self.own = 0 if self._derived is None else self._derived.count
        numeric = [each for axis in self.axes.values() for each in axis.numeric]
        self.numeric = np.array([*numeric, *np.zeros(self.own)], dtype=bool)
        """Which numbers of a point are in [0, 1] and may move continuously, (d,)."""
        levels = [axis.levels for axis in self.axes.values() for _ in range(axis.width)]
        self.levels = np.array([*levels, *np.full(self.own, np.inf)])
        """How many values the parameter of each number of a point can take, infinity for a continuous one, (d,)."""
        self.dim = len(self.numeric)
        """How many numbers a point has: one for each parameter that can vary, unless some have structure; d."""
        by_axis = {name: axis.columns(conditional=name in maybe) for name, axis in self.axes.items()}
        self.columns = _seen(by_axis, space.instead_of, () if self._derived is None else self._derived.columns)
        """What the model has to know of each number that it sees."""

    # ------------------------------------------------------------- configurations

    def encode(self, params: Mapping[str, Any]) -> Array:
        """The point of a validated configuration, (d,)."""
        if self._derived is None:
            return self._encode(params)
        params, numbers = self._derived.described(params)
        return np.append(self._encode(params), numbers)

    def _encode(self, params: Mapping[str, Any]) -> Array:
        numbers: list[float] = []
        for name, axis in self.axes.items():
            stored = self._space.stored[name]
            if stored[0] not in params:
                numbers += (np.nan,) * axis.width
            elif name in self._space.kinds:
                numbers += axis.encode(tuple(params[each] for each in stored))
            else:
                numbers += axis.encode(params[name])
        return np.array(numbers)

    def encode_some(self, params: Mapping[str, Any]) -> Array:
        """The point of a part of a configuration, (d,): NaN where it has no value, and for features."""
        have = [stored for stored in self._space.stored.values() if all(each in params for each in stored)]
        place = self._encode({each: params[each] for stored in have for each in stored})
        return np.append(place, np.full(self.own, np.nan))

    def key(self, x: Array, params: Mapping[str, Any] | None = None) -> Hashable:
        """What points of equivalent configurations share: what ``canonical`` returns, or else the point itself."""
        point = x.tobytes()
        if self._derived is None or self._space.canonical is None:
            return point
        key = self._derived.key(params) if params is not None else self._derived.key_at(point, lambda: self.decode(x))
        return point if isinstance(key, Mapping) else (key,)

    def decode(self, x: Array) -> dict[str, Any]:
        """The configuration at a point, in the order of the distributions."""
        params: dict[str, Any] = {}
        for name in self._space.parents_first:
            if self._space.is_active(name, params):
                params |= self._at(name, x)
        return {name: params[name] for name in self._space.distributions if name in params}

    def _at(self, name: str, x: Array) -> dict[str, Any]:
        """The stored values of a parameter at a point where it is active."""
        if name not in self.axes:
            return {name: only_value(self._space.distributions[name])}
        found = self.axes[name].decode(x[self.slices[name]].tolist())
        return dict(zip(self._space.stored[name], found, strict=True)) if name in self._space.kinds else {name: found}

    def chosen(self, name: str, x: Array, rng: np.random.Generator) -> dict[str, Any]:
        """The stored values of a parameter at a point, or random ones if it is not active there."""
        if name in self.axes and np.isnan(x[self.slices[name].start]):
            axis, x = self.axes[name], x.copy()
            x[self.slices[name]] = axis.from_uniform(rng.random((1, axis.draws)))[0]
        return self._at(name, x)

    def decode_all(self, x: Array) -> list[dict[str, Any]]:
        """The configurations at some points: those of `decode`, many times faster."""
        space, values = self._space, dict[str, list[Any]]()
        for name, stored in space.stored.items():
            values |= zip(stored, self._all_at(name, x), strict=True)
        rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        for name in space.parents_first:
            for row in rows if name in space.conditions else ():
                if not space.is_active(name, row):
                    for each in space.stored[name]:
                        del row[each]
        return rows

    def _all_at(self, name: str, x: Array) -> list[list[Any]]:
        """The values of what a parameter is stored as at some points; anything where it is not active."""
        if name not in self.axes:
            return [[only_value(self._space.distributions[name])] * len(x)]
        place = x[:, self.slices[name]]
        active = ~np.isnan(place[:, 0])
        found = self.axes[name].decode_all(place[active])
        stored = self._space.stored[name]
        parts = [[row[i] for row in found] for i in range(len(stored))] if name in self._space.kinds else [found]
        if active.all():
            return parts
        rests = [iter(part) for part in parts]
        return [[next(rest) if each else None for each in active.tolist()] for rest in rests]

    # ------------------------------------------------------------------ draw

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Random points, (n, d): every parameter is uniform on its scale, as in `from_uniform`."""
        return self.from_uniform(rng.random((n, self.draws)))

    def spread(self, rng: np.random.Generator, n: int) -> Array:
        """Points that fill the space evenly (scrambled Sobol), (n, d)."""
        return self.from_uniform(self.sobol(rng, n)) if self.dim else np.zeros((n, 0))

    def sobol(self, rng: np.random.Generator, n: int) -> Array:
        """Uniform numbers of a scrambled Sobol sequence, (n, draws)."""
        # Sobol points are balanced only if their number is a power of two.
        numbers: Array = self.sequence(rng).random_base2(max(n - 1, 1).bit_length())[:n]
        return numbers

    def sequence(self, rng: np.random.Generator) -> "Sobol":
        """A scrambled Sobol sequence of the uniform numbers of points."""
        # Imported here: it takes as long as all other imports of an optimiser, and reports on a study do not need it.
        from scipy.stats.qmc import Sobol

        return Sobol(self.draws, rng=rng)

    def from_uniform(self, u: Array) -> Array:
        """Points for uniform numbers in [0, 1), (n, draws): every parameter is uniform on its scale.

        Discrete numbers are rounded from a range that begins and ends half a step beyond their ends.
        """
        parts = [axis.from_uniform(u[:, self.drawn[name]]) for name, axis in self.axes.items()]
        empty = np.zeros((len(u), self.own))
        return self.repair(np.hstack([*parts, empty]))

    def listed(self) -> Iterator[Array]:
        """All points of a finite space, each once."""
        seen = set()
        for values in product(*(axis.listed() for axis in self.axes.values())):
            x = self.repair(np.concatenate((*values, np.zeros(self.own)))[None])[0]
            key = x.tobytes()
            if key not in seen:
                seen.add(key)
                yield x

    # ------------------------------------------------------------------ move

    def perturbed(self, x: Array, ranges: Array, rng: np.random.Generator) -> Array:
        """Points near some others, (m, d): numbers make random steps up to their ``ranges``, and choices change."""
        m, d = len(x), self.draws
        if d == 0:  # a space of constants has one point
            return np.array(x)
        width = 10 ** rng.uniform(-3.0, 0.0, (m, 1)) * np.minimum(ranges[self._stepped], 1.0)
        touched = rng.random((m, d)) < np.maximum(rng.random((m, 1)), 1.5 / d)
        step = width * rng.standard_normal((m, d))
        draws = Perturbation(touched, step, rng.random((m, d)) < 1.0 / d, rng.random((m, d)))
        slices, drawn = self.slices, self.drawn
        parts = [axis.perturbed(x[:, slices[name]], draws.part(drawn[name])) for name, axis in self.axes.items()]
        return _joined(parts, x, self.own)

    def neighbours(self, x: Array, others: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.intp]]:
        """The discrete neighbours of some points, (s, d): the next levels up and down, and every other choice.

        Returns the neighbours, (m, d), and the row of X to which each belongs, (m,), in ascending order. Of a parameter
        with very many choices there are only those of ``others``, (k, d), and some at random.
        """
        moved, row = self._moves.of(x, others, rng)
        return self.repair(moved, rng), row

    def free(self, x: Array) -> NDArray[np.bool_]:
        """Which numbers of points may move continuously, (n, d)."""
        parts = [axis.free(x[:, self.slices[name]]) for name, axis in self.axes.items()]
        return np.hstack([*parts, np.zeros((len(x), self.own), dtype=bool)])

    def project(self, x: Array, free: NDArray[np.bool_]) -> Array:
        """Points that moved continuously, moved in place to the nearest ones of configurations, (n, d)."""
        for name, kind in self._space.kinds.items():
            columns = self.slices[name]
            x[:, columns] = kind.axis.project(x[:, columns], free[:, columns])
        return x

    def snap(self, x: Array) -> Array:
        """The nearest points that belong to configurations, (n, d); NaN is kept."""
        return _joined([axis.snap(x[:, self.slices[name]]) for name, axis in self.axes.items()], x, self.own)

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
        for name in self._maybe:
            axis, columns = self.axes[name], self.slices[name]
            active = _active_rows(self, self._space, name, x)
            x[~active, columns] = np.nan
            empty = active & np.isnan(x[:, columns.start])
            if empty.any():
                shape = (int(empty.sum()), axis.draws)
                x[empty, columns] = axis.from_uniform(np.full(shape, 0.5) if rng is None else rng.random(shape))
        if self._derived is not None:
            for i, row in enumerate(x):
                x[i] = self._derived.remembered(row, lambda row: self.encode(self.decode(row)))
        return x


def _axes(parameters: "Mapping[str, Parameter]") -> dict[str, Axis]:
    """The axes of the parameters that can vary."""
    axes: dict[str, Axis] = {}
    for name, each in parameters.items():
        if isinstance(each, Structured):
            axes[name] = each.axis
        elif not each.single():
            axes[name] = axis_of(each)
    return axes


def _places(axes: Mapping[str, Axis], space: "Space") -> dict[str, Array]:
    """The coordinates at which conditions hold. Values outside the range of a parent have none."""
    places = {}
    for name, condition in space.conditions.items():
        parent = condition.parent
        if parent in axes:
            values = [value for value in condition.values if space.allows(parent, value)]
            found = [axes[parent].encode((value,) if parent in space.kinds else value) for value in values]
            places[name] = np.array(found).reshape(-1, axes[parent].width)
    return places


def _stepped(axes: Mapping[str, Axis], slices: Mapping[str, slice]) -> NDArray[np.intp]:
    """The number of a point whose range the steps of each uniform number have, (draws,)."""
    places = [slices[name].start + min(i, axis.width - 1) for name, axis in axes.items() for i in range(axis.draws)]
    return np.array(places, dtype=np.intp)


def _derived(points: Points, space: "Space") -> Derived | None:
    """What the user's functions say about configurations."""
    if space.features is None and space.canonical is None:
        return None
    random = points.sample(np.random.default_rng(0), EXAMPLES if points.axes else 1)
    return Derived.of(space, [points.decode(x) for x in random])


def _active_rows(points: Points, space: "Space", name: str, x: Array) -> NDArray[np.bool_]:
    """At which points a parameter is active, (n,), if its parents obey their conditions."""
    condition = space.conditions.get(name)
    if condition is None:
        return np.full(len(x), True)
    parent = condition.parent
    if parent not in points.axes:
        holds = only_value(space.distributions[parent]) in condition.values
        return _active_rows(points, space, parent, x) & holds
    gaps = np.abs(x[:, None, points.slices[parent]] - points.places[name])
    return np.asarray(np.any(np.all(gaps <= 1e-12, axis=2), axis=1))


def _joined(parts: list[Array], x: Array, own: int) -> Array:
    """Points of these parts. The features of their configurations, the last ``own`` numbers, are still those of X."""
    return np.hstack([*parts, x[:, x.shape[1] - own :]]) if parts else x


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


def _consecutive(lengths: Mapping[str, int]) -> dict[str, slice]:
    """Slices of these lengths, one after the other."""
    ends = np.cumsum([0, *lengths.values()]).tolist()
    return {name: slice(*pair) for name, pair in zip(lengths, pairwise(ends), strict=True)}


# ------------------------------------------------------------------------------ boxes


def narrowed(points: Points, center: Array, side: float) -> "dict[str, Parameter]":
    """The parameters of a box around a point, (d,), as wide as ``side`` in each number. Choices keep all values."""
    half = np.where(points.numeric, side / 2.0, np.inf)
    around = np.nan_to_num(center, nan=0.5)
    low = np.where(np.isnan(center), 0.0, np.clip(around - half, 0.0, 1.0))
    high = np.where(np.isnan(center), 1.0, np.clip(around + half, 0.0, 1.0))
    return {
        name: axis.narrowed(low[points.slices[name]], high[points.slices[name]]) for name, axis in points.axes.items()
    }


def distances(points: Points, x: Array, center: Array) -> Array:
    """The largest difference between numbers, plus the distances of other kinds of parameters, (m,)."""
    largest, others = np.zeros((2, len(x)))
    for name, axis in points.axes.items():
        place, middle = x[:, points.slices[name]], center[points.slices[name]]
        gaps = axis.distances(place, middle)
        gaps[np.isnan(place[:, 0]) & np.isnan(middle[0])] = 0.0
        gaps[np.isnan(gaps)] = 1.0
        if axis.numeric.all():
            largest = np.maximum(largest, gaps)
        else:
            others += gaps
    return largest + others
