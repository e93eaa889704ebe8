"""Known constraints: which configurations may be evaluated, and points spread over that part of the space.

The predicate is a Python function of a configuration. It is called here and nowhere else, for the configuration at a
point, so a point that is feasible here decodes to a configuration for which the predicate was true.

How points of the feasible set are found, even if it is a small part of the space:

1. The points of a Sobol sequence are tried in order; the feasible ones are kept. In a small finite space, all points.
2. If nearly none is feasible, points near the corners and the middle of the space are tried: sums of many parameters
   are small near one corner.
3. Where fewer than needed were found, copies of them *walk*: they make random steps, and stay where they are if a step
   leaves the feasible set. A step may be the difference of two feasible points, so that steps get the size and the
   shape of the set. The walk tends to the uniform distribution over all parts of the set that were found.

Everything here is a function of the space, the predicate and the seed (and of a given generator), so that a resumed run
gets the same points.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazybo.core import Array, checks
from lazybo.space.space import Predicate, Space

# Answers that are remembered: more than a step asks for.
MAX_REMEMBERED = 2**15
# A step that leaves the feasible set ends at its border, to 1/2⁷ of its length.
BISECTIONS = 7
# The search for feasible points ends with this many of them, or after this many tries.
ENOUGH, MAX_TRIES = 512, 2**16
FIRST_TRIES = 2**8
# With fewer than this, points near the corners are tried too.
FEW, CORNER_TRIES = 16, 2**14
# The walkers, and how many steps they make: more if they begin at only a few different points.
POPULATION = 1024
STEPS, STEPS_FROM_FEW, NEW_STEPS = 12, 96, 2
# From this share of the volume on, points come from a Sobol sequence without a walk.
LARGE_SHARE = 0.25
# Values that are tried for the parameters that a configuration lacks.
COMPLETIONS = 4096


class Feasibility:
    """Whether points are feasible. Answers are remembered: the predicate must always give the same one."""

    def __init__(self, space: Space, predicate: Predicate) -> None:
        self._space = space
        self._predicate = predicate
        self._conditional = bool(space.conditions or space.optional)
        self._known: dict[bytes, bool] = {}

    def holds(self, params: Mapping[str, Any]) -> bool:
        """The predicate of a configuration. If it fails, a ValueError names the configuration."""
        return bool(self._answers([dict(params)])[0])

    def fresh(self, points: Array) -> NDArray[np.bool_]:
        """Which points are feasible, (m,). The answers are not remembered: for many points that are asked once."""
        if self._conditional:
            # A number on its way between two levels may switch other parameters on or off.
            points = self._space.points.repair(self._space.points.snap(points).copy())
        return np.array(self._answers(self._space.points.decode_all(points)), dtype=bool)

    def _answers(self, configurations: list[dict[str, Any]]) -> list[bool]:
        predicate = self._predicate
        answers: list[bool] = []
        if self._space.kinds:
            configurations = [self._space.values(params) for params in configurations]
        try:
            answers.extend(predicate(params) for params in configurations)  # keeps the answers before an exception
        except Exception as error:  # the predicate is the user's: anything can go wrong in it
            given, reason = configurations[len(answers)], f"{type(error).__name__}: {error}"
            raise ValueError(f"feasible cannot be evaluated for {checks.shortened(given, 400)}: {reason}") from error
        for params, answer in zip(configurations, answers, strict=True):
            if not isinstance(answer, bool | np.bool_):
                raise ValueError(
                    f"feasible must return True or False, but returned {checks.shortened(answer)} "
                    f"({type(answer).__name__}) for {checks.shortened(params, 400)}"
                )
        return answers

    def __call__(self, points: Array) -> NDArray[np.bool_]:
        """Which points are feasible, (m,)."""
        data, width = points.tobytes(), 8 * self._space.points.dim
        keys = [data[i : i + width] for i in range(0, len(data), width)]
        new = [i for i, key in enumerate(keys) if key not in self._known]
        if len(self._known) + len(new) > MAX_REMEMBERED:
            self._known.clear()
            new = list(range(len(keys)))
        if new:
            self._known.update(zip([keys[i] for i in new], self.fresh(points[new]).tolist(), strict=True))
        return np.array([self._known[key] for key in keys], dtype=bool)

    def shortened(self, start: Array, end: Array, bisections: int = BISECTIONS) -> Array:
        """The ends of steps, (m, d); a step that ends outside is shortened to the border, by bisection.

        Choices are those of the end, unless no part of such a step is feasible: then the end is the start.
        """
        rows = np.flatnonzero(~self(end))
        if len(rows) == 0:
            return end
        first, last = start[rows], end[rows]
        found, low, high = first, np.zeros(len(rows)), np.ones(len(rows))
        for _ in range(bisections):
            middle = (low + high) / 2
            there = np.where(self._space.points.numeric, first + middle[:, None] * (last - first), last)
            there = np.where(np.isnan(there), last, there)
            inside = self(there)
            found = np.where(inside[:, None], there, found)
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        ends = end.copy()
        ends[rows] = found
        return ends


@dataclass(frozen=True)
class Found:
    """Feasible points, (m, d), and the share of the Sobol points that are feasible."""

    points: Array
    share: float
    near_corners: bool = False  # most of them are, if they had to be searched there


class FeasibleSet:
    """The part of a space in which a predicate is true."""

    def __init__(self, space: Space, predicate: Predicate) -> None:
        self.contains = Feasibility(space, predicate)
        self._space = space
        self._found: tuple[int, Found] | None = None
        self._population: tuple[int, Array] | None = None

    def check(self, seed: int) -> None:
        """Raise a ValueError if no feasible point can be found."""
        if self._space.points.dim == 0:
            only = self._space.points.decode(np.zeros(0))
            if self.contains.holds(only):
                return
            raise ValueError(f"the only configuration of this space, {checks.shortened(only, 400)}, is not feasible")
        self._search(seed, 1)

    def is_empty(self, seed: int) -> bool:
        """Whether no feasible point can be found."""
        try:
            self._start(seed)
        except ValueError:
            return True
        return False

    # ------------------------------------------------------------------- points

    def startup_point(self, seed: int, number: int) -> Array | None:
        """The feasible point with this number of a fixed sequence; None if the sequence has ended."""
        found = self._start(seed).points
        if number < len(found):
            return np.array(found[number])
        return np.array(self._walked(seed)[number]) if number < POPULATION else None

    def spread(self, seed: int, rng: np.random.Generator, n: int) -> Array:
        """Points spread over the feasible set, (n, d); new ones for every generator."""
        points = np.zeros((0, self._space.points.dim))
        if self._start(seed).share >= LARGE_SHARE:
            sobol = self._space.points.sequence(rng)
            while len(points) < n and sobol.num_generated < 8 * n:
                tried = self._space.points.from_uniform(sobol.random(1 << (n - 1).bit_length()))
                points = np.vstack((points, tried[self.contains.fresh(tried)]))
        if len(points) < n:
            population = self._walked(seed)
            begin = population[rng.permutation(len(population))[np.arange(n - len(points)) % len(population)]]
            points = np.vstack((points, self._walk(begin, population, rng, NEW_STEPS)))
        return points[:n]

    def everything(self, seed: int) -> Array:
        """All known points of the feasible set, (m, d); complete for small spaces."""
        return self._listed if self._space.is_small else self._walked(seed)

    def left(self, seed: int, taken: int, contain: Callable[[Array], NDArray[np.bool_]]) -> float:
        """The number of feasible points that are not taken; infinity if there are many.

        At most ``taken`` are; ``contain`` says which points are.
        """
        share = self._start(seed).share
        if not self._space.is_small or share * self._space.size > 1000 + 4 * taken:
            return np.inf
        return float(np.count_nonzero(~contain(self._listed)))

    def completed(self, seed: int, fixed: Mapping[str, Any], x: Array, rng: np.random.Generator) -> dict[str, Any]:
        """A feasible configuration with the ``fixed`` values; the others are those of a point if that is feasible."""
        known = self._walked(seed)
        distance = np.abs(np.nan_to_num(known, nan=2.0) - self._space.points.encode_some(fixed))
        near = known[np.argsort(np.nansum(distance, axis=1), kind="stable")]
        candidates = np.vstack((x[None], near[: COMPLETIONS // 8], self._space.points.sample(rng, COMPLETIONS)))
        tried = 0
        for candidate in candidates:
            params = self._space.complete(fixed, candidate, rng)
            tried += 1
            if self.contains.holds(params):
                return params
            if len(params) == len(fixed):
                raise ValueError(f"{checks.shortened(params, 400)} is not feasible")
        raise ValueError(
            f"no feasible values were found for the parameters other than {checks.shortened(dict(fixed), 400)}: "
            f"{tried:,} were tried; change these values, or give all parameters"
        )

    # --------------------------------------------------------------- private

    def _start(self, seed: int) -> Found:
        if self._found is None or self._found[0] != seed:
            self._found = seed, self._search(seed, ENOUGH)
        return self._found[1]

    def _walked(self, seed: int) -> Array:
        """The found points and walkers that began there: `POPULATION` points."""
        if self._population is None or self._population[0] != seed:
            rng, found = np.random.default_rng((seed, 2)), self._start(seed).points[:POPULATION]
            many = len(found) >= 4 * FEW and not self._start(seed).near_corners
            points = found[np.arange(POPULATION) % len(found)]
            for _ in range(STEPS if many else STEPS_FROM_FEW):
                points = self._walk(points, points, rng, 1)
            if many:
                points[: len(found)] = found  # they are uniform already
            self._population = seed, points
        return self._population[1]

    @cached_property
    def _listed(self) -> Array:
        points = np.array(list(self._space.points.listed()))
        return points[self.contains.fresh(points)]

    def _search(self, seed: int, enough: int) -> Found:
        sobol = self._space.points.sequence(np.random.default_rng(seed))
        points, tries = np.zeros((0, self._space.points.dim)), 0
        while len(points) < enough and tries < MAX_TRIES:
            tried = self._space.points.from_uniform(sobol.random(max(FIRST_TRIES, tries)))
            points, tries = np.vstack((points, tried[self.contains.fresh(tried)])), tries + len(tried)
        share, corners = len(points) / tries, len(points) < min(FEW, enough)
        if len(points) < FEW and self._space.is_small:
            if len(self._listed) == 0:
                raise _nothing(f"none of the {self._space.size:,.0f} configurations is feasible")
            return Found(self._listed[np.random.default_rng((seed, 3)).permutation(len(self._listed))], share)
        if corners:
            near = self._near_corners(np.random.default_rng((seed, 4)))
            points, tries = np.vstack((points, near[self.contains.fresh(near)])), tries + len(near)
        if len(points) == 0:
            raise _nothing(f"none of {tries:,} points that were tried is feasible")
        return Found(points, share, corners)

    def _near_corners(self, rng: np.random.Generator) -> Array:
        """Points pulled towards a corner or the middle, by factors from 1 to 1/1000."""
        m, d = CORNER_TRIES, self._space.points.draws
        corner = rng.integers(0, 3, (m, d)) / 2
        corner = np.where(rng.random((m, 1)) < 0.5, corner[:, :1], corner)  # the same for all parameters
        factor = 10 ** rng.uniform(-3.0, 0.0, (m, 1))
        return self._space.points.from_uniform(np.minimum(corner + factor * (rng.random((m, d)) - corner), 1.0 - 1e-9))

    def _walk(self, points: Array, others: Array, rng: np.random.Generator, steps: int) -> Array:
        for _ in range(steps if self._space.points.dim else 0):  # a space of constants has one point
            there = self._moved(points, others, rng)
            points = np.where(self.contains.fresh(there)[:, None], there, points)
        return points

    def _moved(self, points: Array, others: Array, rng: np.random.Generator) -> Array:
        """A step of each walker: along the difference of two others, a random one, or one parameter drawn again."""
        (m, d), numeric = points.shape, self._space.points.numeric
        i, j = rng.integers(len(others), size=(2, m))
        touched = rng.random((m, d)) < np.maximum(rng.random((m, 1)), 1.5 / d)
        count = np.maximum(touched.sum(axis=1, keepdims=True), 1)
        along = rng.uniform(0.3, 1.0, (m, 1)) * 2.4 / np.sqrt(2 * count) * np.nan_to_num(others[i] - others[j])
        width = 10 ** rng.uniform(-3.0, -0.3, (m, 1))
        step = np.where(rng.random((m, 1)) < 0.6, along, width * rng.standard_normal((m, d)))
        u = np.where(touched & numeric, _reflected(points + step), points)
        u = np.where(touched & ~numeric & (rng.random((m, 1)) < 0.3), others[i], u)
        new, one = self._space.points.sample(rng, m), rng.integers(0, d, (m, 1)) == np.arange(d)
        redrawn = (rng.random((m, 1)) < 0.25) & ~np.isnan(new)
        u = np.where(redrawn, np.where(one, new, points), u)
        u = np.where(np.isnan(u), points, u)
        return self._space.points.repair(self._space.points.snap(u), rng)


def _reflected(u: Array) -> Array:
    """Numbers reflected at 0 and 1, so that walkers do not gather at the ends of ranges."""
    return np.clip(1.0 - np.abs(1.0 - np.abs(u)), 0.0, 1.0)


def _nothing(what: str) -> ValueError:
    return ValueError(
        f"no feasible configuration was found: {what}. Loosen the constraint, narrow the ranges to the part of the "
        "space in which it can hold, or choose other parameters: for a + b == 1, tune a alone and compute b"
    )
