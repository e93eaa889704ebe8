"""Regions: boxes of the space with a model each, for more observations than one factor serves.

======  ==================================================================  ========
symbol  meaning                                                             shape
======  ==================================================================  ========
n       all observations                                                    scalar
c       the center of a region: the best point of its last round            (d,)
s       the side of its box, in units of the space; numbers only            scalar
======  ==================================================================  ========

A region is a box around a center. Its model has the observations near it, at most a few hundred, and every later one in
the box. It works in *rounds* of a fixed number of evaluations. A round that improved often doubles the side, one that
did not improve halves it; the next round is around the best point, with a new model. A region whose box has become tiny
has found what there is, and starts anew where a model of the whole space expects most.

So a step costs the same however many observations there are, and all of them count: they are what new rounds and new
regions learn from. The box is a space of its own with narrower ranges (`Space.narrowed`). So the model sees a box of
any size as a unit cube, and everything that works in a space works in a region: integers, choices, conditions, known
and measured constraints, several objectives, failures and costs.

What a region is depends only on the observations and on `state`, so that a resumed run continues in the same way. The
state changes only in `settle`, and depends on results only: suggestions that are pending, and how often something was
proposed, make no difference.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazybo.core.blas import one_thread
from lazybo.core.checks import Array, finite_number, positive, whole
from lazybo.gp.earlier import EarlierTasks
from lazybo.search.core import Core, MakeCore
from lazybo.search.hypervolume import non_dominated
from lazybo.search.observations import Observations
from lazybo.search.results import State

Index: TypeAlias = NDArray[np.intp]

# Which region each suggestion is for, by its number: the regions are sorted by their best value.
TURNS = (0, 1, 0, 2)
# A round's model starts with so many observations: half of them the nearest ones, half spread over twice the box.
NEIGHBOURS = 200
# So many evaluations are a round, or as many as there are parameters if there are more.
ROUND = 100
# A region begins with this side. It starts anew if its side falls below the least.
FIRST_SIDE, LEAST_SIDE = 0.4, 2.0**-10
# The first region is as large as so many of the best observations are apart.
BEST_APART = 50
# So many improvements in a round double the side.
MANY_IMPROVEMENTS = 4
# An improvement counts if it is more than this share of the distance from the best value to the median.
MATTERS = 1e-3
# So many random configurations are tried if the proposed one was evaluated before.
OTHER_TRIES = 64
# A core begins with at most this many of the newest pending observations. A round with this many results more than it
# needs begins again: they were not asked for, and are too many for one core.
MOST_PENDING, MOST_NEW = 500, 500
# Distances are computed for so many observations at a time.
CHUNK = 10_000
# No study has more observations. A state that was edited may say so.
MAX_ROWS = 2**53
# The model of the whole space has so many of the best observations, and so many others.
BEST_OF_ALL, SPREAD_OVER_ALL = 250, 500


@dataclass
class Region:
    """A box with a model. ``start`` observations existed when its round began; those in ``waiting`` had no result."""

    center: Array
    side: float
    start: int
    waiting: Index | None = None  # None in states of earlier versions: those that have none now
    core: Core | None = None  # made when it is needed
    learned: Mapping[str, Any] | None = None  # what the core had learned before this region was restored
    before: int = 0  # how many rows of the core are older than the round
    seen: int = 0  # the rows before this one are in the core, if they belong there
    pending: dict[int, int] = field(default_factory=dict)  # rows of the core by rows of all observations

    def state(self) -> dict[str, Any]:
        """Plain data for JSON."""
        learned = self.learned if self.core is None else self.core.outputs.state()
        return {
            "center": [None if np.isnan(x) else float(x) for x in self.center],
            "side": self.side,
            "start": self.start,
            **({} if self.waiting is None or not len(self.waiting) else {"waiting": self.waiting.tolist()}),
            **({} if learned is None else {"model": learned}),
        }


class Regions:
    """The regions of a space. They read the observations and propose configurations; they record nothing."""

    def __init__(self, everything: Core, make: MakeCore, make_whole: MakeCore) -> None:
        self._everything = everything
        self._space, self._observations = everything.space, everything.observations
        self._make, self._make_whole = make, make_whole
        self._no_tasks: list[EarlierTasks | None] = [None] * self._observations.objectives
        self._regions: list[Region] = []

    def __bool__(self) -> bool:
        """Whether there are regions."""
        return bool(self._regions)

    @one_thread()
    def settle(self, seed: int, budget_left: float | None) -> None:
        """Update the regions to all results: end the rounds that are over, and learn what is due.

        Until there are new results, another call changes nothing. ``budget_left`` is for the cost.
        """
        if not self._regions:
            self._regions = self._first_regions()
        self._regions = [self._continued(region, seed, index) for index, region in enumerate(self._regions)]
        for core in map(self._synced, self._regions):
            core.outputs.budget_left = budget_left
            core.learn()

    @one_thread()
    def propose(self, seed: int, number: int) -> dict[str, Any]:
        """The configuration of the suggestion with this number. It changes nothing; call `settle` first."""
        core, rng = self._turn(number), np.random.default_rng((seed, number, 6))
        if core.feasible is None or not core.feasible.is_empty(seed):
            point = core.chooser.choose(seed, number, 1)[0]
            params = core.observations.configuration(point)
            if not self._is_known(self._space.encode(params)) or self._everything.chooser.is_exhausted(seed):
                return params
            if (other := self._other(core, rng, self._is_known)) is not None:
                return other
        return self._observations.configuration(self._everything.chooser.random_point(seed, rng))

    def _turn(self, number: int) -> Core:
        """The core of the region whose turn it is."""
        cores = [self._synced(region) for region in self._regions]
        order = np.argsort([_best_value(core) for core in cores], kind="stable")
        return cores[order[TURNS[number % len(TURNS)] % len(order)]]

    def _continued(self, region: Region, seed: int, index: int) -> Region:
        """A region, or what comes after it: its next round, or a new region if nothing is left to evaluate in it."""
        needed = max(ROUND, self._space.dim)
        if self._count_results(region) > needed + MOST_NEW:
            return self._begun(region.center, region.side)
        core = self._synced(region)
        if _results(core, region.before) >= needed:
            return self._next_round(region, core, seed, index)
        if self._has_news(region) and self._is_exhausted(core, seed):
            return self._new_region(seed, index)
        return region

    def _count_results(self, region: Region) -> int:
        """The number of results in a box since the round began, also those that its core does not have yet."""
        core = region.core or self._built(region)
        new = (self._observations[row] for row in range(region.seen, len(self._observations)))
        pending = State.PENDING
        return _results(core, region.before) + sum(
            each.result.state is not pending and core.space.has(each.params) for each in new
        )

    def _has_news(self, region: Region) -> bool:
        """Whether there are more results than when the round of a region began."""
        assert region.waiting is not None, "it is known once the core was made"
        return self._n_known > region.start - len(region.waiting)

    def _is_exhausted(self, core: Core, seed: int) -> bool:
        """Whether all configurations of a box seem to have a result, while others in the space have none."""
        if core.feasible is not None and core.feasible.is_empty(seed):
            return True
        if core.space.size == np.inf or (core.feasible is None and core.space.size > self._n_known):
            return False
        if self._everything.chooser.is_exhausted(seed):
            return False
        rng = np.random.default_rng((seed, self._n_known, 7))
        return self._other(core, rng, self._observations.has_ended_at) is None

    def _other(self, core: Core, rng: np.random.Generator, is_taken: Callable[[Array], bool]) -> dict[str, Any] | None:
        """A random configuration of a box whose point is not taken; None if there seems to be none."""
        for params in core.space.decode_all(core.space.sample(rng, OTHER_TRIES)):
            allowed = core.feasible is None or core.feasible.contains.holds(params)
            if allowed and not is_taken(self._space.encode(params)):
                return params
        return None

    def _is_known(self, point: Array) -> bool:
        return bool(self._observations.contain(point[None])[0])

    def of_whole_space(self, seed: int) -> Core:
        """A core of the whole space, with the best observations and as many others as it can serve."""
        rows = self._with_result(len(self._observations))
        best = rows[np.argsort(_ranks(self._observations)[rows], kind="stable")[:BEST_OF_ALL]]
        others = np.setdiff1d(rows, best)
        rng = np.random.default_rng((seed, len(self._observations), 4))
        spread = rng.choice(others, min(SPREAD_OVER_ALL, len(others)), replace=False)
        core = self._make_whole(self._space, self._no_tasks)
        waiting = self._without_result(len(self._observations))[-MOST_PENDING:]
        for row in np.sort(np.concatenate((best, spread, waiting))):
            found = self._observations[row]
            core.observations.add(found.params, found.result, found.number)
        return core

    # ----------------------------------------------------------------- change

    def changed(self) -> None:
        """Results that were known have changed: every model learns anew."""
        for region in self._regions:
            _forget_core(region)

    def remove(self, row: int) -> None:
        """A pending row will be removed, and the rows after it move up."""
        for region in self._regions:
            if region.core is None:
                self._synced(region)  # what was learned counts the rows of the core
            _remove_from_core(region, row)
            if row < region.start:
                _remove_from_start(region, row)

    def state(self) -> list[dict[str, Any]]:
        """The regions as plain data for JSON."""
        return [region.state() for region in self._regions]

    def parse(self, state: Any) -> list[Region]:
        """The inverse of `state`. Raises errors if it is not a state of regions of this space."""
        found, outputs = [], self._make(self._space, self._no_tasks).outputs
        for each in state:
            center = np.array([np.nan if x is None else finite_number("center", x) for x in each["center"]])
            if len(center) != self._space.dim:
                raise ValueError(f"the center of a region must have {self._space.dim} numbers")
            start, side = whole("start", each["start"], 0, MAX_ROWS), positive("side", each["side"])
            waiting = each.get("waiting")
            if waiting is not None:
                waiting = np.array(
                    [whole("a row that was pending", row, 0, MAX_ROWS) for row in waiting], dtype=np.intp
                )
            if "model" in each:
                outputs.parse(each["model"])  # raises if it is of another kernel or space
            found.append(Region(center, side, start, waiting, learned=each.get("model")))
        return found

    def restore(self, regions: list[Region]) -> None:
        """Continue with regions that were read by `parse`."""
        self._regions = regions

    # --------------------------------------------------------------- regions

    def _first_regions(self) -> list[Region]:
        """A region around the best point, as large as the best points are apart, and others away from it."""
        rows = self._with_result(len(self._observations))
        rows = rows[np.argsort(_ranks(self._observations)[rows], kind="stable")]
        rows = rows[self._everything.outputs.inside(rows, MOST_NEW)]
        points = self._space.clip(self._observations.points(rows))
        centers: list[Array] = []
        for point in points:
            if all(self._distances(point[None], center)[0] > FIRST_SIDE / 2 for center in centers):
                centers.append(point)
            if len(centers) == len(set(TURNS)):
                break
        apart = 2.0 * float(np.median(self._distances(points[:BEST_APART], centers[0])))
        sides = [min(max(apart, 16 * LEAST_SIDE), FIRST_SIDE), *[FIRST_SIDE] * (len(centers) - 1)]
        return [self._begun(center, side) for center, side in zip(centers, sides, strict=True)]

    def _begun(self, center: Array, side: float) -> Region:
        """A region whose round begins now."""
        n = len(self._observations)
        return Region(center, side, n, self._without_result(n))

    def _next_round(self, region: Region, core: Core, seed: int, index: int) -> Region:
        """The region around the best point of its last round; a new region if the box has become tiny."""
        count = _improvements(core, region.before)
        side = region.side * (2.0 if count >= MANY_IMPROVEMENTS else 0.5 if count == 0 else 1.0)
        if side < LEAST_SIDE:
            return self._new_region(seed, index)
        rng = np.random.default_rng((seed, len(self._observations), 5))
        best = core.observations[_best_row(core, rng)].params
        center = self._space.clip(self._space.encode(best)[None])[0]
        return self._begun(center, min(side, 1.0))

    def _new_region(self, seed: int, index: int) -> Region:
        """A region where the model of the whole space expects most; ``index`` is that of the region it replaces."""
        center = self.of_whole_space(seed).chooser.choose(seed, len(self._observations) + index, 1)[0]
        return self._begun(center, FIRST_SIDE)

    def _synced(self, region: Region) -> Core:
        """The core of a region with all observations that belong there."""
        core = region.core or self._built(region)
        for row, mine in list(region.pending.items()):
            if (result := self._observations[row].result) is not core.observations[mine].result:
                core.resolve(mine, result)
                if result.state is not State.PENDING:
                    del region.pending[row]
        for row in range(region.seen, len(self._observations)):
            if core.space.has(self._observations[row].params):
                self._add(region, core, row)
        region.seen = len(self._observations)
        return core

    def _built(self, region: Region) -> Core:
        """The core as it was when the round began: the observations near the box, and those that were pending in it."""
        # Another process, in which this region began, may have had more rows.
        region.start = min(region.start, len(self._observations))
        if region.waiting is None:
            region.waiting = self._without_result(region.start)
        region.waiting = region.waiting[region.waiting < region.start]
        half = np.where(self._space.categorical, np.inf, region.side / 2.0)
        around = np.nan_to_num(region.center, nan=0.5)
        low = np.where(np.isnan(region.center), 0.0, np.clip(around - half, 0.0, 1.0))
        high = np.where(np.isnan(region.center), 1.0, np.clip(around + half, 0.0, 1.0))
        core = self._make(self._space.narrowed(low, high), self._no_tasks)
        for row in self._neighbours(region):
            self._add(region, core, int(row))
        for row in region.waiting[-MOST_PENDING:]:
            if core.space.has(self._observations[row].params):
                self._add(region, core, int(row))
        region.core, region.before, region.seen = core, len(core.observations), region.start
        if region.learned is not None:
            core.outputs.restore(core.outputs.parse(region.learned))
            region.learned = None
        return core

    def _add(self, region: Region, core: Core, row: int) -> None:
        found = self._observations[row]
        if found.result.state is State.PENDING:
            region.pending[row] = len(core.observations)
        core.observations.add(core.space.plain(found.params, outside=True), found.result, None)

    def _neighbours(self, region: Region) -> Index:
        """The rows that a round begins with, in their order: the nearest ones, and some of all within twice the box."""
        assert region.waiting is not None, "it is known once the core is made"
        rows = np.setdiff1d(np.arange(region.start), region.waiting)
        distances = self._distances(self._observations.points(rows), region.center)
        near = np.argsort(distances, kind="stable")
        first, rest = near[: NEIGHBOURS // 2], near[NEIGHBOURS // 2 :]
        inside = np.sort(rest[: max(np.count_nonzero(distances[rest] <= region.side), NEIGHBOURS // 2)])
        rng = np.random.default_rng(len(rows))
        spread = rng.choice(inside, min(NEIGHBOURS // 2, len(inside)), replace=False)
        return np.sort(rows[np.concatenate((first, spread))])

    def _distances(self, points: Array, center: Array) -> Array:
        """The largest difference between numbers, plus one for each choice that differs, (m,)."""
        categorical, found = self._space.categorical, np.zeros(len(points))
        for start in range(0, len(points), CHUNK):
            part = points[start : start + CHUNK]
            gaps = np.abs(part - center)
            gaps[np.isnan(part) & np.isnan(center)] = 0.0
            gaps[np.isnan(gaps)] = 1.0
            differ = np.count_nonzero(gaps[:, categorical], axis=1)
            found[start : start + CHUNK] = gaps[:, ~categorical].max(axis=1, initial=0.0) + differ
        return found

    def _with_result(self, n: int) -> Index:
        """The rows among the first n that have ended, or have a forecast."""
        return np.setdiff1d(np.arange(n), self._without_result(n))

    @property
    def _n_known(self) -> int:
        """The number of rows that have ended, or have a forecast."""
        n = len(self._observations)
        return n - len(self._without_result(n))

    def _without_result(self, n: int) -> Index:
        """The rows among the first n that have neither ended nor a forecast."""
        pending = self._observations.rows(State.PENDING)
        pending = pending[pending < n]
        forecast = [not np.isnan(self._observations[row].result.values or np.nan).all() for row in pending]
        return pending[~np.array(forecast, dtype=bool)]


def _forget_core(region: Region) -> None:
    region.core, region.learned, region.pending = None, None, {}


def _remove_from_core(region: Region, row: int) -> None:
    """Remove a pending row of all observations from the core of a region, if it is there."""
    mine = region.pending.pop(row, None)
    if mine is not None and region.core is not None:
        region.core.remove(mine)
        region.before -= mine < region.before
    region.seen -= row < region.seen
    region.pending = {
        other - (other > row): each - (mine is not None and each > mine) for other, each in region.pending.items()
    }


def _remove_from_start(region: Region, row: int) -> None:
    """Remove a row from those that existed when the round of a region began."""
    assert region.waiting is not None, "it is known once the core was made"
    others = region.waiting[region.waiting != row]
    if len(others) == len(region.waiting) or len(others) >= MOST_PENDING:
        _forget_core(region)  # without this row, the core would have begun with others
    region.start, region.waiting = region.start - 1, others - (others > row)


def _results(core: Core, before: int) -> int:
    """How many of the rows from ``before`` on have ended."""
    pending = core.observations.rows(State.PENDING)
    return len(core.observations) - before - int(np.count_nonzero(pending >= before))


def _ranks(observations: Observations) -> Array:
    """A number for each row, smaller for better ones: infinity if it has no value or is not feasible, (n,).

    It is the value of one objective; of several, 0 on the front and 1 elsewhere.
    """
    ranks, rows = np.full(len(observations), np.inf), np.flatnonzero(observations.feasible(forecasts=True))
    values = np.column_stack([observations.values_of(j)[rows] for j in range(observations.objectives)])
    ranks[rows] = values[:, 0] if observations.objectives == 1 else 1.0 - non_dominated(values)
    return ranks


def _ranks_without_noise(core: Core) -> Array:
    """The `_ranks` of a core; where its model has found noise, of what it expects instead of what was measured."""
    ranks, surrogate = _ranks(core.observations), core.outputs.objectives[0]
    if core.observations.objectives == 1 and surrogate.fitted.is_noisy:
        rows, means = surrogate.denoised(surrogate.sync())
        expected = np.full(len(ranks), np.inf)
        expected[rows] = surrogate.warping.inverse(means)
        ranks = np.where(np.isfinite(ranks), expected, np.inf)
    return ranks


def _best_value(core: Core) -> float:
    return float(_ranks_without_noise(core).min(initial=np.inf))


def _ranks_or_violations(core: Core) -> Array:
    """The ranks of a core; by how much constraints are violated if nothing is feasible, (n,)."""
    ranks = _ranks_without_noise(core)
    if np.isfinite(ranks).any():
        return ranks
    names = core.observations.constraints
    excess = sum((np.maximum(core.observations.violations(name), 0.0) for name in names), np.zeros(len(ranks)))
    return np.where(np.isnan(excess), np.inf, excess)


def _best_row(core: Core, rng: np.random.Generator) -> int:
    """A row of the best ones that satisfy the known constraint, if any does."""
    ranks = _ranks_or_violations(core)
    rows = np.argsort(ranks, kind="stable")
    rows = rows[core.outputs.inside(rows)]
    return int(rng.choice(rows[ranks[rows] == ranks[rows[0]]]))


def _improvements(core: Core, before: int) -> int:
    """How often the rows from ``before`` on have improved on all earlier ones."""
    ranks = _ranks_or_violations(core)
    if core.observations.objectives > 1:
        return int(np.count_nonzero(ranks[before:] == 0.0))
    known = ranks[np.isfinite(ranks)]
    if not len(known):
        return 0
    matters = MATTERS * float(np.median(known) - known.min())
    best, count = float(ranks[:before].min(initial=np.inf)), 0
    for value in ranks[before:]:
        if value < best - matters:
            best, count = float(value), count + 1
    return count
