"""Choose the next points: first startup points that fill the space, then the maxima of the acquisition function.

Random numbers depend only on the seed and the number of the suggestion, so that a resumed run makes the same
suggestions.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from lazybo.blas import one_thread
from lazybo.checks import Array
from lazybo.search.acquisition import Acquisition
from lazybo.search.maxima import BEST_CENTERS, STARTS, Maximum, around, find_maxima
from lazybo.search.observations import Observations, State
from lazybo.search.pool import sobol_points
from lazybo.search.space import MAX_LISTED, Space
from lazybo.search.surrogate import Surrogate

# How many random points are drawn before the remaining points of a nearly exhausted space are listed.
RANDOM_TRIES = 64
# Suggestions keep at least this distance from pending points, in length scales.
PENDING_GAP = 0.02
# Startup points come from the Sobol sequence up to this number; later ones are random.
MAX_LISTED_STARTUP = 2**16
# For the expected gain: how many maxima are searched, how many observations may stay the best, and how often points are
# drawn around them.
PROSPECT_MAXIMA, INCUMBENTS, ROUNDS = 8, 16, 2


class Chooser:
    """Chooses points, given the observations and their surrogate. It records nothing."""

    def __init__(
        self, space: Space, observations: Observations, surrogate: Surrogate, acquisition: Acquisition, n_startup: int
    ) -> None:
        self._space = space
        self._observations = observations
        self._surrogate = surrogate
        self._acquisition = acquisition
        self._n_startup = n_startup

    @one_thread()
    def choose(self, seed: int, number: int, count: int) -> list[Array]:
        """At least one and at most ``count`` points; the first one is the suggestion with this ``number``."""
        rng = np.random.default_rng((seed, number))
        if self._space.dim == 0:
            return [np.zeros(0)]
        if len(self._observations) < self._n_startup or self._observations.n_complete == 0:
            point = startup_point(self._space, seed, number) if number < MAX_LISTED_STARTUP else None
            return [self._random_point(rng) if point is None or self._taken(point[None])[0] else point]
        if self._observations.remaining == 1:
            return [self._random_point(rng)]
        maxima = self.maxima(seed, rng, count)
        return [maximum.x for maximum in maxima[:count]] or [self._random_point(rng)]

    @one_thread()
    def maxima(self, seed: int, rng: np.random.Generator, count: int) -> list[Maximum]:
        """The distinct local maxima of the acquisition, best first. The search has starts for ``count`` maxima."""
        process = self._surrogate.sync()
        rows, means = self._surrogate.denoised(process)
        return find_maxima(
            process,
            self._space,
            self._surrogate.pool(seed),
            self._acquisition,
            float(means[0]),
            self._space.clip(process.X[rows[:BEST_CENTERS]]),
            self._taken,
            rng,
            max(STARTS, 2 * count),
            self._surrogate.fitted.built_rows,
        )

    @one_thread()
    def prospects(self, seed: int, rng: np.random.Generator) -> tuple[Array, int]:
        """Points that the next evaluations may be at, as rows of the process, and how many of them were evaluated.

        The best observations come first, then the maxima of the acquisition, points around both, and the pool.
        """
        found = [maximum.x for maximum in self.maxima(seed, rng, PROSPECT_MAXIMA)]
        process = self._surrogate.sync()
        rows, _ = self._surrogate.denoised(process)
        incumbents = process.X[rows[:INCUMBENTS]]
        centers = np.vstack((self._space.clip(incumbents[:BEST_CENTERS]), *(x[None] for x in found)))
        near = [around(self._space, centers, process.kernel.ranges, rng)[0] for _ in range(ROUNDS)]
        points = np.vstack((*(x[None] for x in found), *near, self._surrogate.pool(seed).points))
        points = np.unique(points, axis=0)
        return np.vstack((incumbents, points[~self._taken(points)])), len(incumbents)

    def _taken(self, points: Array) -> NDArray[np.bool_]:
        """Which points have a row or are too near to a pending one, (m,). None, if every point has a row."""
        if self._observations.remaining <= 0:
            return np.zeros(len(points), dtype=bool)
        taken = self._observations.contain(points)
        pending = self._observations.rows(State.PENDING)
        if len(pending) and len(points):
            kernel = self._surrogate.fitted.kernel
            waiting = kernel.features(self._observations.points(pending))
            taken |= cdist(kernel.features(points), waiting).min(axis=1) < PENDING_GAP
        return taken

    def _random_point(self, rng: np.random.Generator) -> Array:
        """A random point that is not taken, if there is one. In a small space the remaining points are listed."""
        points = self._space.sample(rng, RANDOM_TRIES)
        free = points[~self._taken(points)]
        if len(free) or self._space.size > MAX_LISTED:
            return free[0] if len(free) else points[0]
        left = [x for x in self._space.listed() if not self._observations.contain(x)[0]]
        return left[int(rng.integers(len(left)))] if left else points[0]


def startup_point(space: Space, seed: int, number: int) -> Array:
    """The point with this number of a Sobol sequence: processes that share the numbers never repeat a point."""
    return sobol_points(space, np.random.default_rng(seed), number + 1)[number]
