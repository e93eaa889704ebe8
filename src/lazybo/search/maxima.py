"""Find the maxima of the acquisition function of a lazy Gaussian process.

======  ====================================================================  ========
symbol  meaning                                                               shape
======  ====================================================================  ========
n, m    rows of the process; candidates                                       scalar
V       L⁻¹ k(X, pool), which the pool keeps                                  (n, m)
c       centers: the points at which the search starts                        (c, d)
M       rows of X near the centers that are used exactly                      scalar
======  ====================================================================  ========

The search goes from wide and cheap to narrow and exact:

1. A *pool* of points spread over the space keeps its posterior as the factor grows: a new row costs O(n) a point, not
   O(n²).
2. Its best points and the best observations are the *centers*. Fresh candidates are drawn around each.
3. The best candidates are improved by BFGS, all at once, on a *near field*: the exact mean, and the variance given the
   M rows that matter most.
4. Integers and choices move to their best neighbours.
5. The exact posterior of the finalists decides.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from lazybo.checks import Array
from lazybo.model.process import Process
from lazybo.search.acquisition import Acquisition
from lazybo.search.ascent import climb, move_discrete
from lazybo.search.near_field import NearField
from lazybo.search.pool import Pool
from lazybo.search.space import Space

Index: TypeAlias = NDArray[np.intp]

POOL_CENTERS = 6
BEST_CENTERS = 4
CANDIDATES_PER_CENTER = 16
STARTS = 8
# A pool point is not a center if it is nearer than this to a better one, in units of the kernel's ranges.
CENTER_GAP = 0.25
# Finalists that are nearer than this, in units of the kernel's ranges, count as one maximum.
SAME_MAXIMUM = 0.05


@dataclass(frozen=True)
class Maximum:
    """A local maximum of the acquisition: the point, (d,), and the value there."""

    x: Array
    value: float


def find_maxima(
    gp: Process,
    space: Space,
    pool: Pool,
    acquisition: Acquisition,
    best: float,
    incumbents: Array,
    taken: Callable[[Array], NDArray[np.bool_]],
    rng: np.random.Generator,
    starts: int = STARTS,
    built: int = 0,
) -> list[Maximum]:
    """The distinct local maxima of the acquisition among points that are not taken, best first.

    ``best`` is the value to improve on, ``incumbents`` the best points observed, (b, d). ``built``
    is the number of rows that the process was built from at once.
    """
    mean, std = pool.posterior(gp, built)
    order = np.argsort(-acquisition(mean, std, best).value, kind="stable")
    apart = _apart(gp.kernel.features(pool.points[order]), max(POOL_CENTERS, starts - 2))
    centers = np.vstack((pool.points[order[apart]], incumbents[:BEST_CENTERS]))
    field = NearField(gp, centers)

    def value(u: Array, center: Index) -> Array:
        return np.where(taken(u), -np.inf, field.value(u, center, acquisition, best))

    def gradient(u: Array, center: Index) -> tuple[Array, Array]:
        return field.gradient(u, center, acquisition, best)

    candidates, center = around(space, centers, gp.kernel.ranges, rng)
    values = value(candidates, center)
    chosen = _best_of_each(values, center, starts)
    start, center = candidates[chosen], center[chosen]
    u = start
    # The optimum may be elsewhere for another choice: if there are choices, run BFGS again after the moves.
    for _ in range(2 if space.categorical.any() else 1):
        if not space.categorical.all():
            free = ~space.categorical & ~np.isnan(u)
            u = space.repair(space.snap(climb(gradient, u, center, free, gp.kernel.ranges)), rng)
        u = move_discrete(space, value, u, center, rng)
    # If the optimum was evaluated already, fall back to its start.
    u = np.where(taken(u)[:, None], start, u)
    u = space.settle(u[~taken(u)])
    mean, variance = gp.posterior(u)
    return _distinct(gp, u, acquisition(mean, np.sqrt(variance), best).value)


def _apart(z: Array, count: int) -> list[int]:
    """The first rows that keep `CENTER_GAP` from all earlier ones, at most ``count``."""
    kept: list[int] = []
    free = np.ones(len(z), dtype=bool)
    while free.any() and len(kept) < count:
        kept.append(int(np.argmax(free)))
        free &= cdist(z, z[kept[-1:]])[:, 0] > CENTER_GAP
    return kept


def around(space: Space, centers: Array, ranges: Array, rng: np.random.Generator) -> tuple[Array, Index]:
    """The centers and new candidates around each; and the index of the center that each belongs to."""
    center = np.repeat(np.arange(len(centers)), CANDIDATES_PER_CENTER)
    u = centers[center].copy()
    m, d = u.shape
    width = 10 ** rng.uniform(-3.0, 0.0, (m, 1)) * np.minimum(ranges, 1.0)
    touched = rng.random((m, d)) < np.maximum(rng.random((m, 1)), 1.5 / d)
    numeric = touched & ~space.categorical
    u = np.where(numeric, np.clip(u + width * rng.standard_normal((m, d)), 0.0, 1.0), u)
    flipped = space.categorical & (rng.random((m, d)) < 1.0 / d) & ~np.isnan(u)
    choices = np.where(space.categorical, space.levels, 1.0)
    u = np.where(flipped, np.floor(rng.random((m, d)) * choices), u)
    u[::CANDIDATES_PER_CENTER] = centers
    return space.repair(space.snap(u), rng), center


def _best_of_each(values: Array, center: Index, count: int) -> Index:
    """The best candidate of each center, best first, at most ``count``: starts that are not too near to each other."""
    order = np.argsort(-values, kind="stable")
    _, first = np.unique(center[order], return_index=True)
    return order[np.sort(first)[:count]]


def _distinct(gp: Process, points: Array, values: Array) -> list[Maximum]:
    """Maxima with their values, best first, without duplicates."""
    z = gp.kernel.features(points)
    kept: list[int] = []
    for i in np.argsort(-values, kind="stable"):
        if all(np.linalg.norm(z[i] - z[j]) > SAME_MAXIMUM for j in kept):
            kept.append(int(i))
    return [Maximum(points[i], float(values[i])) for i in kept]
