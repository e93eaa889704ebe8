"""The search in one space: its records, the models of their outputs, and the choice of the next points.

First come startup points that fill the space, then the maxima of the acquisition function. Random numbers depend only
on the seed and the number of the suggestion, so that a resumed run makes the same suggestions.

An optimiser has one search with all records. Beyond what one factor serves, searches in parts of the space take over
(`lazybo.search.regions`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazybo.core import Array, one_thread
from lazybo.gp import EarlierTasks, Kernel
from lazybo.search.acquisition import Acquisition
from lazybo.search.maximise import BEST_CENTERS, STARTS, Maximum, Surface, around, find_maxima
from lazybo.search.models import Models
from lazybo.search.output import Learning
from lazybo.search.records import Index, Records
from lazybo.search.results import Result, State
from lazybo.space import FeasibleSet, Space

# How many random points are drawn before the remaining points of a nearly exhausted space are listed.
RANDOM_TRIES = 64
# Suggestions keep at least this distance from pending points, in length scales.
PENDING_GAP = 0.02
# With more parameters than this, the first startup point is in the middle of the space.
FEW_PARAMETERS = 10
# Startup points come from the Sobol sequence up to this number; later ones are random.
MAX_LISTED_STARTUP = 2**16
# With earlier tasks, the first suggestions are chosen from the best points of each. The one with the number CONTROL is
# spread over the space as without them: if the tasks mislead, points that they call good do not show it.
PORTFOLIO = 16
BEST_OF_TASK = 8
CONTROL = 2
# For the expected gain: how many maxima are searched, how many observations may stay the best, and how often points are
# drawn around them.
PROSPECT_MAXIMA, INCUMBENTS, ROUNDS = 8, 16, 2
# From DOUBT_AFTER results on, a share of the suggestions looks elsewhere: a model that is too sure would refine a local
# optimum, or one choice that was good right away, for a hundred evaluations (docs/notebook.md).
DOUBT_AFTER = 25
DOUBT_SHARE = 0.2
# With beliefs, the search for the next point also starts at this many points that are drawn from them. Startup points
# with even numbers are drawn from them too; with a known constraint, the first feasible one of so many.
BELIEVED_CENTERS = 3
BELIEVED_TRIES = 256
# The default kernel of local models: they are learned again in every round, and the additive one takes longer to learn.
LOCAL_KERNEL = "matern52"

Predicate: TypeAlias = Callable[[Array], NDArray[np.bool_]]


class Search:
    """The records in a space, the models that learn from them, and the choice of the next points.

    ``earlier`` has what earlier studies say about each objective. With ``repeats``, an evaluation is repeated to find
    out whether there is noise.
    """

    def __init__(
        self,
        space: Space,
        learning: Learning,
        acquisition: Acquisition,
        earlier: Sequence[EarlierTasks | None],
        *,
        n_startup: int,
        has_cost: bool,
        repeats: bool = True,
    ) -> None:
        self.space, self.n_startup = space, n_startup
        self.records = Records(space, len(earlier))
        self.feasible = None if space.feasible is None else FeasibleSet(space, space.feasible)
        self.models = Models(space, self.records, learning, earlier, self.feasible, has_cost=has_cost)
        self.has_cost = has_cost
        self._learning, self._acquisition, self._repeats = learning, acquisition, repeats
        self._earlier = [each for each in earlier if each is not None]
        self._portfolio: Array | None = None

    def part(self, space: Space, *, local: bool) -> "Search":
        """A search with the same options in a part of the space, without records. A ``local`` one learns faster.

        It never looks elsewhere, nor repeats an evaluation to find noise. A local one has one particle and refines what
        a crowd has found.
        """
        priors = self._learning.priors
        default = LOCAL_KERNEL if local and (priors is None or priors.like is None) else None
        kernel = self._learning.kernel or default  # priors around a kernel are for the one that all records have
        nothing: list[EarlierTasks | None] = [None] * self.records.objectives
        return Search(
            space,
            replace(self._learning, kernel=kernel, thins=not local, particles=1 if local else self._learning.particles),
            replace(self._acquisition, in_doubt=None),
            nothing,
            n_startup=0,
            has_cost=self.has_cost,
            repeats=False,
        )

    def resolve(self, row: int, result: Result) -> None:
        """Set the result of a row. Where that changes a row of a factor, it is appended again."""
        unknown = (0.0,) * len(self.models.objectives)
        forecast = self.records[row].result.variances or unknown
        # What a failure teaches about values depends on whether an earlier row at its point has one.
        at = (self.records[each].result.state for each in self.records.places.at(self.records[row].point))
        changed = result.state is State.FAILED or State.FAILED in at
        for surrogate, *variances in zip(self.models.objectives, result.variances or unknown, forecast, strict=True):
            if changed or any(variances):
                surrogate.cut(row)
        self.records.resolve(row, result)

    def remove(self, row: int) -> None:
        """Remove a row."""
        self.models.remove(row)
        self.records.remove(row)

    @one_thread()
    def learn(self) -> None:
        """Learn the kernels that are due."""
        if self.records.n_complete:
            self.models.learn()

    def uses_model(self, seed: int) -> bool:
        """Whether the next point is a maximum of the acquisition, not a startup point or the only one that is left."""
        is_startup = len(self.records) < self.n_startup or self.records.n_complete == 0
        return self.space.points.dim > 0 and not is_startup and self._remaining(seed) != 1

    @one_thread()
    def choose(self, seed: int, number: int, count: int) -> list[Array]:
        """At least one and at most ``count`` points; the first one is the suggestion with this ``number``."""
        rng = np.random.default_rng((seed, number))
        if self.space.points.dim == 0:
            return [np.zeros(0)]
        if len(self.records) < self.n_startup or self.records.n_complete == 0:
            point = self._startup_point(seed, number)
            return [self.random_point(seed, rng) if point is None or self._taken(seed)(point[None])[0] else point]
        if self._remaining(seed) == 1:
            return [self.random_point(seed, rng)]
        elsewhere = self._looks_elsewhere(rng)
        surface, best = self._surface(seed, rng, elsewhere or self._acquisition)
        doubtful = self._repeats and any(each.current().is_doubtful for each in self.models.objectives)
        again = self._repeatable(best) if doubtful else None
        if again is not None:
            return [again]
        barred = None if elsewhere is None else self._same_choice(best, rng)
        maxima = self._maxima(surface, best, seed, rng, count, barred)
        return [maximum.x for maximum in maxima[:count]] or [self.random_point(seed, rng)]

    @one_thread()
    def maxima(self, seed: int, rng: np.random.Generator, count: int) -> list[Maximum]:
        """The distinct local maxima of the acquisition, best first. The search has starts for ``count`` maxima."""
        return self._maxima(*self._surface(seed, rng, self._acquisition), seed, rng, count)

    def _surface(self, seed: int, rng: np.random.Generator, acquisition: Acquisition) -> tuple[Surface, Index]:
        believed = self.space.believed
        term = None if believed is None else believed.term(self.records.n_complete)
        return self.models.surface(seed, rng, acquisition, term)

    def _looks_elsewhere(self, rng: np.random.Generator) -> Acquisition | None:
        """The acquisition of a suggestion that looks elsewhere; None for the others, and where values are noisy."""
        if self._acquisition.in_doubt is None or self.records.objectives > 1 or self.records.n_complete < DOUBT_AFTER:
            return None
        doubts = rng.random() < DOUBT_SHARE and not self.models.objectives[0].current().fitted.is_noisy
        return self._acquisition.in_doubt if doubts else None

    def _same_choice(self, best: Index, rng: np.random.Generator) -> Predicate | None:
        """A function that tells which points make the same choice as the best row, for a parameter drawn at random."""
        starts = self.models.objectives[0].fitted.kernel.coordinates.start.tolist()
        columns = zip(starts, self.space.points.columns, strict=True)
        incumbent = self.records.points(best[:1]).reshape(-1)  # empty if there is no best row
        choices = [j for j, column in columns if len(incumbent) and column.categories and not np.isnan(incumbent[j])]
        if not choices:
            return None
        j = int(rng.choice(choices))
        return lambda points: points[:, j] == incumbent[j]

    def _maxima(
        self,
        surface: Surface,
        rows: Index,
        seed: int,
        rng: np.random.Generator,
        count: int,
        barred: Predicate | None = None,
    ) -> list[Maximum]:
        incumbents, taken = self.space.points.clip(self.records.points(rows)), self._taken(seed, self._kernel())
        if self.space.believed is not None:
            expected = self.space.believed.points(rng.random((BELIEVED_CENTERS, self.space.points.draws)))
            incumbents = np.vstack((incumbents, expected))
        return find_maxima(
            surface,
            self.space,
            incumbents,
            taken if barred is None else lambda points: taken(points) | barred(points),
            rng,
            max(STARTS, 2 * count),
            self.feasible,
        )

    @one_thread()
    def prospects(self, seed: int, rng: np.random.Generator) -> tuple[Array, int]:
        """Points that the next evaluations may be at, as rows of the process, and how many of them were evaluated.

        The best feasible observations come first, then the maxima of the acquisition, points around both, and the pool.
        With measured constraints, those that the model expects to violate one are left out.
        """
        found = [maximum.x for maximum in self.maxima(seed, rng, PROSPECT_MAXIMA)]
        now = self.models.objectives[0].current()
        rows, _ = now.denoised()
        rows = rows[self.records.feasible(forecasts=True)[rows]]
        incumbents = self.records.points(rows[self.models.inside(rows, INCUMBENTS)[:INCUMBENTS]])
        centers = np.vstack((self.space.points.clip(incumbents[:BEST_CENTERS]), *(x[None] for x in found)))
        near = [around(self.space, centers, now.posterior.ranges, rng)[0] for _ in range(ROUNDS)]
        points = np.vstack((*(x[None] for x in found), *near, self.models.pool_points(seed)))
        points = np.unique(points, axis=0)
        points = points[~self._taken(seed, now.fitted.kernel)(points)]
        return np.vstack((incumbents, points[self.models.expects_feasible(points)])), len(incumbents)

    def _repeatable(self, rows: Index) -> Array | None:
        """The point of the first of these rows that may be suggested again; None if there is none.

        Results that were observed may lack an optional parameter, lie outside the ranges or not be feasible. Another
        evaluation may run nearby.
        """
        points = self.records.points(rows)
        points = points[~self._near_pending(points, self._kernel())]
        whole = self.space.points.repair(self.space.points.clip(points))
        for point, suggestible in zip(points, whole, strict=True):
            allowed = self.feasible is None or bool(self.feasible.contains(suggestible[None])[0])
            if allowed and np.array_equal(point, suggestible, equal_nan=True):
                return point
        return None

    def _startup_point(self, seed: int, number: int) -> Array | None:
        if self._earlier and number != CONTROL and number < len(self._first_points()):
            return self._first_points()[number]
        expected = self._believed_point(seed, number) if number % 2 == 0 else None
        if expected is not None:
            return expected
        if self.feasible is not None:
            return self.feasible.startup_point(seed, number)
        return startup_point(self.space, seed, number) if number < MAX_LISTED_STARTUP else None

    def _first_points(self) -> Array:
        """Points that were good in the earlier tasks, in the order in which they are suggested."""
        if self._portfolio is None:
            best = [
                task.points[np.argsort(task.targets, kind="stable")[:BEST_OF_TASK]]
                for earlier in self._earlier
                for task in earlier.tasks
            ]
            candidates = np.unique(
                self.space.points.repair(self.space.points.snap(self.space.points.clip(np.vstack(best)))), axis=0
            )
            if self.feasible is not None:
                candidates = candidates[self.feasible.contains(candidates)]
            self._portfolio = EarlierTasks.portfolio(self._earlier, candidates, PORTFOLIO)
        return self._portfolio

    def _believed_point(self, seed: int, number: int) -> Array | None:
        """A point where beliefs expect the optimum, the first where they do most; None if there is no feasible one."""
        believed = self.space.believed
        if believed is None:
            return None
        rng = np.random.default_rng((seed, number, BELIEVED_TRIES))
        u = self.space.points.sobol(np.random.default_rng(seed), number + 1)[number:]
        u = np.vstack((u, rng.random((BELIEVED_TRIES if self.feasible is not None else 0, self.space.points.draws))))
        points = believed.points(u, most=number == 0)
        feasible = points if self.feasible is None else points[self.feasible.contains(points)]
        return feasible[0] if len(feasible) else None

    def configuration(self, point: Array) -> dict[str, Any]:
        """The configuration at a point; if a row is there, the configuration of that row to the last bit.

        Decoding may round differently, and would not repeat the row. What was observed outside of its range, by so
        little that it has the same point, is not suggested.
        """
        params = self.space.points.decode(point)
        rows = self.records.places.at(point)
        known = self.records[rows[0]].params if rows else {}
        return params | {name: known[name] for name in params if name in known and self.space.allows(name, known[name])}

    def is_exhausted(self, seed: int) -> bool:
        """Whether every point that may be suggested has a row."""
        return self._remaining(seed) <= 0

    def _remaining(self, seed: int) -> float:
        """The number of points that may be suggested and have no row."""
        if self.feasible is None:
            return self.space.size - len(self.records.places)
        return self.feasible.left(seed, len(self.records), self.records.places.contain)

    def _kernel(self) -> Kernel:
        """The kernel of the first objective, as the model in use has it."""
        return self.models.objectives[0].current().fitted.kernel

    def _taken(self, seed: int, kernel: Kernel | None = None) -> Predicate:
        """A function that tells which points have a row, are too near to a pending one or not feasible, (m,).

        If every point has a row, only those that are not feasible are taken.
        """
        exhausted = self.is_exhausted(seed)

        def taken(points: Array) -> NDArray[np.bool_]:
            barred = np.zeros(len(points), dtype=bool) if self.feasible is None else ~self.feasible.contains(points)
            if exhausted:
                return barred
            return barred | self.records.places.contain(points) | self._near_pending(points, kernel)

        return taken

    def _near_pending(self, points: Array, kernel: Kernel | None) -> NDArray[np.bool_]:
        """Which points are too near to a pending one, (m,), by this kernel or the one that was learned last."""
        pending = self.records.rows(State.PENDING)
        if not len(pending) or not len(points):
            return np.zeros(len(points), dtype=bool)
        kernel = kernel or self.models.objectives[0].fitted.kernel
        waiting = kernel.features(self.records.points(pending))
        return kernel.distances(kernel.features(points), waiting).min(axis=1) < PENDING_GAP

    def random_point(self, seed: int, rng: np.random.Generator) -> Array:
        """A random point that is not taken, if there is one. In a small space the remaining points are listed."""
        if self.feasible is None:
            points = self.space.points.sample(rng, RANDOM_TRIES)
        else:
            points = self.feasible.spread(seed, rng, RANDOM_TRIES)
        free = points[~self._taken(seed)(points)]
        if len(free):
            return free[0]
        if self.feasible is not None:
            listed = self.feasible.everything(seed)
            left = list(listed[~self.records.places.contain(listed)])
        elif not self.space.is_small:
            left = []
        else:
            left = [x for x in self.space.points.listed() if not self.records.places.contain(x)[0]]
        return left[int(rng.integers(len(left)))] if left else points[0]


def startup_point(space: Space, seed: int, number: int) -> Array:
    """The point with this number of a Sobol sequence: processes that share the numbers never repeat a point.

    With many parameters the first point is in the middle, except for its choices. A random point of a cube is √2 times
    as far from another one as from the middle, so that the middle is the better guess of where the optimum is.
    """
    point = space.points.spread(np.random.default_rng(seed), number + 1)[number]
    if number > 0 or space.points.dim <= FEW_PARAMETERS:
        return point
    middle = np.where(space.points.numeric & ~np.isnan(point), 0.5, point)
    return space.points.snap(middle[None])[0]
