"""Choose the next points: first startup points that fill the space, then the maxima of the acquisition function.

Random numbers depend only on the seed and the number of the suggestion, so that a resumed run makes the same
suggestions.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lazybo.core.blas import one_thread
from lazybo.core.checks import Array
from lazybo.gp.earlier import portfolio
from lazybo.gp.kernels import distances
from lazybo.search.acquisition import Acquisition
from lazybo.search.landscape import Landscape
from lazybo.search.maxima import BEST_CENTERS, STARTS, Maximum, around, joint_maxima
from lazybo.search.observations import Observations
from lazybo.search.outputs import Outputs
from lazybo.search.pool import sobol_points
from lazybo.search.results import State
from lazybo.space.feasible import FeasibleSet
from lazybo.space.space import MAX_LISTED, Space

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


class Chooser:
    """Chooses points, given the observations and the surrogates of their outputs. It records nothing."""

    def __init__(
        self,
        space: Space,
        observations: Observations,
        outputs: Outputs,
        acquisition: Acquisition,
        n_startup: int,
        feasible: FeasibleSet | None = None,
        repeats: bool = True,
    ) -> None:
        self._space = space
        self._observations = observations
        self._outputs = outputs
        self._surrogate = outputs.objectives[0]
        self._acquisition = acquisition
        self._n_startup = n_startup
        self._feasible = feasible
        self._repeats = repeats
        self._earlier = [each.earlier for each in outputs.objectives if each.earlier is not None]
        self._portfolio: Array | None = None

    def uses_model(self, seed: int) -> bool:
        """Whether the next point is a maximum of the acquisition, not a startup point or the only one that is left."""
        return self._space.dim > 0 and not self._is_startup and self._remaining(seed) != 1

    @property
    def _is_startup(self) -> bool:
        return len(self._observations) < self._n_startup or self._observations.n_complete == 0

    @one_thread()
    def choose(self, seed: int, number: int, count: int) -> list[Array]:
        """At least one and at most ``count`` points; the first one is the suggestion with this ``number``."""
        rng = np.random.default_rng((seed, number))
        if self._space.dim == 0:
            return [np.zeros(0)]
        if self._is_startup:
            point = self._startup_point(seed, number)
            return [self.random_point(seed, rng) if point is None or self._taken(seed)(point[None])[0] else point]
        if self._remaining(seed) == 1:
            return [self.random_point(seed, rng)]
        landscape, best = self._outputs.landscape(seed, rng, self._acquisition)
        again = self._repeatable(best) if self._repeats and self._outputs.doubtful() else None
        if again is not None:
            return [again]
        maxima = self._maxima(landscape, best, seed, rng, count)
        return [maximum.x for maximum in maxima[:count]] or [self.random_point(seed, rng)]

    @one_thread()
    def maxima(self, seed: int, rng: np.random.Generator, count: int) -> list[Maximum]:
        """The distinct local maxima of the acquisition, best first. The search has starts for ``count`` maxima."""
        return self._maxima(*self._outputs.landscape(seed, rng, self._acquisition), seed, rng, count)

    def _maxima(
        self, landscape: Landscape, rows: NDArray[np.intp], seed: int, rng: np.random.Generator, count: int
    ) -> list[Maximum]:
        incumbents = self._space.clip(landscape.layers[0].process.X[rows])
        return joint_maxima(
            landscape,
            self._space,
            incumbents,
            self._taken(seed),
            rng,
            max(STARTS, 2 * count),
            None if self._feasible is None else self._feasible.contains,
        )

    @one_thread()
    def prospects(self, seed: int, rng: np.random.Generator) -> tuple[Array, int]:
        """Points that the next evaluations may be at, as rows of the process, and how many of them were evaluated.

        The best feasible observations come first, then the maxima of the acquisition, points around both, and the pool.
        With measured constraints, those that the model expects to violate one are left out.
        """
        found = [maximum.x for maximum in self.maxima(seed, rng, PROSPECT_MAXIMA)]
        process = self._surrogate.sync()
        rows, _ = self._surrogate.denoised(process)
        rows = rows[self._observations.feasible(forecasts=True)[rows]]
        incumbents = process.X[rows[self._outputs.inside(rows, INCUMBENTS)[:INCUMBENTS]]]
        centers = np.vstack((self._space.clip(incumbents[:BEST_CENTERS]), *(x[None] for x in found)))
        near = [around(self._space, centers, process.kernel.ranges, rng)[0] for _ in range(ROUNDS)]
        points = np.vstack((*(x[None] for x in found), *near, self._surrogate.pool(seed).points))
        points = np.unique(points, axis=0)
        points = points[~self._taken(seed)(points)]
        return np.vstack((incumbents, points[self._outputs.expects_feasible(points)])), len(incumbents)

    def _repeatable(self, rows: NDArray[np.intp]) -> Array | None:
        """The point of the first of these rows that may be suggested again; None if there is none.

        Results that were observed may lack an optional parameter, lie outside the ranges or not be feasible. Another
        evaluation may run nearby.
        """
        points = self._observations.points(rows)
        points = points[~self._near_pending(points)]
        whole = self._space.repair(self._space.clip(points))
        for point, suggestible in zip(points, whole, strict=True):
            allowed = self._feasible is None or bool(self._feasible.contains(suggestible[None])[0])
            if allowed and np.array_equal(point, suggestible, equal_nan=True):
                return point
        return None

    def _startup_point(self, seed: int, number: int) -> Array | None:
        if self._earlier and number != CONTROL and number < len(self._first_points()):
            return self._first_points()[number]
        if self._feasible is not None:
            return self._feasible.startup_point(seed, number)
        return startup_point(self._space, seed, number) if number < MAX_LISTED_STARTUP else None

    def _first_points(self) -> Array:
        """Points that were good in the earlier tasks, in the order in which they are suggested."""
        if self._portfolio is None:
            best = [
                task.points[np.argsort(task.targets, kind="stable")[:BEST_OF_TASK]]
                for earlier in self._earlier
                for task in earlier.tasks
            ]
            candidates = np.unique(self._space.repair(self._space.snap(self._space.clip(np.vstack(best)))), axis=0)
            if self._feasible is not None:
                candidates = candidates[self._feasible.contains(candidates)]
            self._portfolio = portfolio(self._earlier, candidates, PORTFOLIO)
        return self._portfolio

    def is_exhausted(self, seed: int) -> bool:
        """Whether every point that may be suggested has a row."""
        return self._remaining(seed) <= 0

    def _remaining(self, seed: int) -> float:
        """The number of points that may be suggested and have no row."""
        return (
            self._observations.remaining
            if self._feasible is None
            else self._feasible.left(seed, len(self._observations), self._observations.contain)
        )

    def _taken(self, seed: int) -> Callable[[Array], NDArray[np.bool_]]:
        """A function that tells which points have a row, are too near to a pending one or not feasible, (m,).

        If every point has a row, only those that are not feasible are taken.
        """
        exhausted = self.is_exhausted(seed)

        def taken(points: Array) -> NDArray[np.bool_]:
            barred = np.zeros(len(points), dtype=bool) if self._feasible is None else ~self._feasible.contains(points)
            if exhausted:
                return barred
            return barred | self._observations.contain(points) | self._near_pending(points)

        return taken

    def _near_pending(self, points: Array) -> NDArray[np.bool_]:
        """Which points are too near to a pending one, (m,)."""
        pending = self._observations.rows(State.PENDING)
        if not len(pending) or not len(points):
            return np.zeros(len(points), dtype=bool)
        kernel = self._surrogate.fitted.kernel
        waiting = kernel.features(self._observations.points(pending))
        return distances(kernel, kernel.features(points), waiting).min(axis=1) < PENDING_GAP

    def random_point(self, seed: int, rng: np.random.Generator) -> Array:
        """A random point that is not taken, if there is one. In a small space the remaining points are listed."""
        if self._feasible is None:
            points = self._space.sample(rng, RANDOM_TRIES)
        else:
            points = self._feasible.spread(seed, rng, RANDOM_TRIES)
        free = points[~self._taken(seed)(points)]
        if len(free):
            return free[0]
        if self._feasible is not None:
            listed = self._feasible.everything(seed)
            left = list(listed[~self._observations.contain(listed)])
        elif self._space.size > MAX_LISTED:
            left = []
        else:
            left = [x for x in self._space.listed() if not self._observations.contain(x)[0]]
        return left[int(rng.integers(len(left)))] if left else points[0]


def startup_point(space: Space, seed: int, number: int) -> Array:
    """The point with this number of a Sobol sequence: processes that share the numbers never repeat a point.

    With many parameters the first point is in the middle, except for its choices. A random point of a cube is √2 times
    as far from another one as from the middle, so that the middle is the better guess of where the optimum is.
    """
    point = sobol_points(space, np.random.default_rng(seed), number + 1)[number]
    if number > 0 or space.dim <= FEW_PARAMETERS:
        return point
    middle = np.where(space.categorical | np.isnan(point), point, 0.5)
    return space.snap(middle[None])[0]
