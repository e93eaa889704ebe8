"""Good ranges: for each parameter, where the model expects values that are nearly as good as the best.

======  =====================================================================  =====
symbol  meaning                                                                shape
======  =====================================================================  =====
x*      the recommended configuration                                          (d,)
T       the limit: what the model expects at x*, and the distance worse        scalar
μ, σ    posterior mean and standard deviation of each particle                 (s, m)
w       weights of the particles                                               (s,)
======  =====================================================================  =====

A value v of a parameter is good *with the others at their best* if the mean at x*, with v in place of its own, is at
most T. It is good *with the others free* if there are other values for which the mean is. The probability of a range is
that of a value drawn evenly from it, on its scale: the average of Σ w Φ((T - μ) / σ). Measured constraints must be
expected to hold too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lazybo.core import Array, one_thread, texts
from lazybo.search import Predictor, Recommendation
from lazybo.space import Space

if TYPE_CHECKING:
    from lazybo.search import Optimizer

# The default distance, as a share of what lies between the best value and the median of the space, by the model.
DISTANCE = 0.05
# A line has every level of a parameter that has at most LEVELS, and a grid of GRID points otherwise.
LEVELS, GRID = 101, 501
# With the others free: values of the parameter, candidates for the others, and rounds of random changes of the best.
PLACES, SAMPLED, CANDIDATES, ROUNDS, CHANGES = 25, 512, 32, 3, 16
# Of a larger front, only this many configurations are asked whether a parameter matters there.
MOST_CENTERS = 20


@dataclass(frozen=True)
class Range:
    """Where a parameter is good: from ``low`` to ``high``, or at these ``choices``.

    ``probability`` is that of a value drawn evenly from there to be within the distance.
    """

    low: Any
    high: Any
    choices: tuple[Any, ...]
    probability: float

    def __str__(self) -> str:
        return in_words(self.low, self.high, self.choices)


def in_words(low: Any, high: Any, choices: Iterable[Any]) -> str:
    """A range for people: its ends with three digits, or its choices."""
    ends = (f"{each:.3g}" if isinstance(each, float) else str(each) for each in (low, high))
    return ", ".join(map(texts.shown, choices)) or " to ".join(ends)


@dataclass(frozen=True)
class GoodRange:
    """The good values of one parameter. ``best`` is the recommended one; None if the parameter is not active there.

    ``at_best`` has the other parameters at their recommended values, and ``free`` leaves them free. Each is None if
    there is no good value.
    """

    best: Any
    at_best: Range | None
    free: Range | None


@dataclass(frozen=True)
class Ranges(Mapping[str, GoodRange]):
    """The good values of each parameter, by name: at most ``distance`` worse than ``best``, up to ``limit``."""

    best: float
    distance: float
    limit: float
    parameters: dict[str, GoodRange]

    def __getitem__(self, name: str) -> GoodRange:
        return self.parameters[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)

    def rows(self) -> list[list[str]]:
        """A table for people: the parameter, its best value, and both ranges with their probabilities."""
        return [
            [name, "" if each.best is None else texts.shown(each.best), *_cells(each.at_best), *_cells(each.free)]
            for name, each in self.parameters.items()
        ]

    def _repr_html_(self) -> str:
        title = f"Within {texts.shown(self.distance)} of {texts.shown(self.best)}"
        return texts.table(title, HEADINGS, self.rows())


HEADINGS = ("parameter", "best", "others at their best", "probability", "others free", "probability")


def _cells(found: Range | None) -> tuple[str, str]:
    return ("", "") if found is None else (str(found), texts.percent(found.probability))


@one_thread()
def ranges_of(
    optimizer: "Optimizer", predictor: Predictor, recommended: Recommendation, distance: float | None = None
) -> Ranges:
    """The ranges of a model around the recommended configuration."""
    space = optimizer.space
    center = space.points.clip(
        space.points.encode({n: v for n, v in recommended.params.items() if n in space.distributions})[None]
    )
    drawn = space.points.sample(np.random.default_rng(0), SAMPLED)
    judge = _Judge(optimizer, predictor, center, drawn, distance)
    others = judge.candidates(center, drawn)
    found = {name: _of_parameter(judge, center[0], j, name, others) for j, name in columns_of(space)}
    return Ranges(judge.best, judge.distance, judge.limit, found)


@one_thread()
def indifferent(optimizer: "Optimizer", predictors: Sequence[Predictor], centers: Array) -> set[str]:
    """The parameters of which every value is good for all objectives at points, (m, d), with the others as there."""
    space, centers = optimizer.space, optimizer.space.points.clip(centers)
    drawn = space.points.sample(np.random.default_rng(0), SAMPLED)
    single, found = {name: j for j, name in columns_of(space)}, set(space.points.names)
    for center in centers[:MOST_CENTERS]:
        judges = [_Judge(optimizer, predictor, center[None], drawn) for predictor in predictors]
        for name in [each for each in found if not np.isnan(center[space.points.slices[each]]).any()]:
            columns = space.points.slices[name]
            if name in single:
                points = along(space, center, single[name])
            else:
                points = np.repeat(center[None], len(drawn), axis=0)
                points[:, columns] = drawn[:, columns]
            points = space.points.repair(points)
            if any((judge.excess(points) > 0).any() for judge in judges):
                found.discard(name)
    return found


class _Judge:
    """Which points are expected to be nearly as good as a center, (1, d), and with which probability."""

    def __init__(
        self, optimizer: "Optimizer", predictor: Predictor, center: Array, drawn: Array, distance: float | None = None
    ) -> None:
        self.space, self._predictor, sign = optimizer.space, predictor, predictor.sign
        mean = float(predictor.means(center)[0])
        middle = float(np.median(predictor.means(drawn)))
        self.best, typical = (sign * predictor.warping.inverse(np.array([mean, middle]))).tolist()
        # Halves, since the difference of two doubles may overflow.
        default = 2.0 * DISTANCE * max(sign * (typical / 2 - self.best / 2), 0.0)
        self.distance = default if distance is None else distance
        self.limit = self.best + sign * self.distance
        self._target = max(float(predictor.warping(np.array([sign * self.limit]))[0]), mean) + predictor.equal
        self.steps = predictor.posterior.ranges
        self._holds: Callable[[Array], Array] = optimizer.model.search.models.feasible_chance

    def excess(self, points: Array) -> Array:
        """How much worse than the limit points are expected to be, (m,): at most 0 is good."""
        excess = self._predictor.means(points) - self._target
        return np.where(self._holds(points) >= 0.5, excess, np.inf)

    def rough(self, points: Array) -> Array:
        """The same by the leading particle alone, to find points; what they are worth is for all of them to say."""
        excess = self._predictor.posterior.leading.mean(self.space.points.as_rows(points)) - self._target
        return np.where(self._holds(points) >= 0.5, excess, np.inf)

    def chance(self, points: Array) -> Array:
        """The probability that points are good, (m,)."""
        return self._predictor.below(points, self._target) * self._holds(points)

    def candidates(self, center: Array, drawn: Array) -> Array:
        """Points with promising values, the center first, then the best, (c, d)."""
        evaluated = self.space.points.clip(self._predictor.posterior.X[:, : self.space.points.dim])
        points = (
            np.vstack((drawn, self.space.points.repair(self.space.points.snap(evaluated))))
            if self.space.points.dim
            else drawn
        )
        return np.vstack((center, points[np.argsort(self.excess(points), kind="stable")]))


def _of_parameter(judge: _Judge, center: Array, j: int, name: str, others: Array) -> GoodRange:
    space = judge.space
    known = not np.isnan(center[j])
    at_best = None
    if known:
        line = space.points.repair(along(space, center, j))
        at_best = _range(space, name, line, judge.excess(line) <= 0, judge.chance(line), center[j], j)
    active = others[~np.isnan(others[:, j])][:CANDIDATES]
    free = _free_range(judge, center, j, name, active) if len(active) else None
    return GoodRange(space.points.decode(center)[name] if known else None, at_best, _wider(space, name, free, at_best))


def _free_range(judge: _Judge, center: Array, j: int, name: str, others: Array) -> Range | None:
    """The good values of a parameter with the others free: from a few places, then from more around their ends."""
    places = np.unique(along(judge.space, np.nan_to_num(center, nan=0.0), j)[:, j])
    found = None
    for _ in range(2):
        few = np.unique(np.linspace(0, len(places) - 1, PLACES).astype(int)) if len(places) > PLACES else slice(None)
        tried = np.unique(np.append(places[few], center[[j]][~np.isnan(center[[j]])]))
        points, excess = _freed(judge, j, tried, others)
        if not len(points):
            return None
        start = points[int(np.argmin(excess)), j] if np.isnan(center[j]) else center[j]
        found = _range(judge.space, name, points, excess <= 0, judge.chance(points), start, j)
        if found is None or len(tried) >= len(places):
            break
        good = np.sort(points[excess <= 0, j])
        below, above = tried[tried < good[0]], tried[tried > good[-1]]
        places = places[(places >= below.max(initial=0.0)) & (places <= above.min(initial=1.0))]
    return found


def _freed(judge: _Judge, j: int, places: Array, others: Array) -> tuple[Array, Array]:
    """For values along a parameter, points with the best others that were found, (p, d), and their excess, (p,)."""
    space, rng = judge.space, np.random.default_rng(0)

    def tried(points: Array) -> tuple[Array, Array]:
        points = space.points.repair(points, rng)
        excess = np.full(len(points), np.inf)
        active = ~np.isnan(points[:, j])
        if active.any():
            excess[active] = judge.rough(points[active])
        return points, excess

    start = np.tile(others, (len(places), 1))
    start[:, j] = np.repeat(places, len(others))
    points, excess = tried(start)
    best = excess.reshape(len(places), -1).argmin(axis=1) + len(others) * np.arange(len(places))
    points, excess = points[best], excess[best]
    active = np.isfinite(excess)
    points, excess, places = points[active], excess[active], places[active]
    for _ in range(ROUNDS if len(points) else 0):
        moved = space.points.snap(space.points.perturbed(np.repeat(points, CHANGES, axis=0), judge.steps, rng))
        moved[:, j] = np.repeat(places, CHANGES)
        moved, found = tried(moved)
        top = found.reshape(len(points), -1).argmin(axis=1) + CHANGES * np.arange(len(points))
        better = found[top] < excess
        points, excess = np.where(better[:, None], moved[top], points), np.where(better, found[top], excess)
    return points, judge.excess(points) if len(points) else excess


def _range(
    space: Space, name: str, points: Array, good: NDArray[np.bool_], chance: Array, start: float, j: int
) -> Range | None:
    """The range of good points along a column around ``start``; all good ones if the column has choices."""
    order = np.argsort(points[:, j], kind="stable")
    points, good, chance = points[order], good[order], chance[order]
    middle = int(np.argmin(np.abs(points[:, j] - start)))
    if space.points.numeric[j]:
        bad = np.flatnonzero(~good)
        first = int(bad[bad < middle].max(initial=-1)) + 1
        last = int(bad[bad > middle].min(initial=len(good))) - 1
        good = good & (np.arange(len(good)) >= first) & (np.arange(len(good)) <= last)
    if not good.any():
        return None
    values = [space.points.decode(point)[name] for point in points[good]]
    # Levels on a logarithmic scale are crowded at its upper end.
    widths = np.gradient(points[good, j]) if space.points.numeric[j] and good.sum() > 1 else None
    probability = float(np.average(chance[good], weights=widths))
    if space.points.numeric[j]:
        return Range(values[0], values[-1], (), probability)
    return Range(None, None, tuple(values), probability)


def _wider(space: Space, name: str, free: Range | None, at_best: Range | None) -> Range | None:
    """The free range, which contains the other one; its places are fewer."""
    if free is None or at_best is None:
        return free or at_best
    if at_best.choices:
        both = {*map(repr, at_best.choices), *map(repr, free.choices)}
        choices = tuple(each for each in space.distributions[name].choices if repr(each) in both)  # type: ignore[attr-defined]
        return Range(None, None, choices, free.probability)
    return Range(min(free.low, at_best.low), max(free.high, at_best.high), (), free.probability)


# ----------------------------------------------------------------------------- lines


def columns_of(space: Space) -> list[tuple[int, str]]:
    """The parameters that can be drawn along a line, each after its column; one with several columns cannot."""
    return [(columns.start, name) for name, columns in space.points.slices.items() if columns.stop - columns.start == 1]


def along(space: Space, center: Array, j: int) -> Array:
    """Points along one column: all its levels, or some from end to end that include the center, (m, d)."""
    places = np.linspace(0.0, 1.0, GRID)
    if space.points.levels[j] <= LEVELS or not space.points.numeric[j]:
        listed = next(space.points.axes[name].listed()[:, 0] for column, name in columns_of(space) if column == j)
        places = listed[np.round(places * (len(listed) - 1)).astype(np.intp)]
    x = np.repeat(center[None], GRID + 1, axis=0)
    x[1:, j] = places
    x[:, j] = space.points.snap(x)[:, j]
    return x[np.unique(x[:, j], return_index=True)[1]]
