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
   With known constraints, points that stopped at the border of the feasible set move along it (`border`).
5. The exact posterior of the finalists decides.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazybo.core.checks import Array
from lazybo.gp.kernels.base import Kernel, distances
from lazybo.gp.process import Process
from lazybo.search.acquisition import Acquisition
from lazybo.search.ascent import climb, move_discrete
from lazybo.search.border import Border
from lazybo.search.joint import improvement
from lazybo.search.landscape import Landscape, Layer
from lazybo.search.pool import Pool
from lazybo.space.feasible import Feasibility
from lazybo.space.space import Space

Index: TypeAlias = NDArray[np.intp]

POOL_CENTERS = 6
BEST_CENTERS = 4
CANDIDATES_PER_CENTER = 16
STARTS = 8
# A pool point is not a center if it is nearer than this to a better one, in units of the kernel's ranges.
CENTER_GAP = 0.25
FIRST_ROWS = 64
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
    feasible: Feasibility | None = None,
) -> list[Maximum]:
    """The distinct local maxima of the acquisition of one process among points that are not taken, best first.

    ``best`` is the value to improve on, ``incumbents`` the best points observed, (b, d). ``built``
    is the number of rows that the process was built from at once. Points that are not ``feasible`` must be taken.
    """
    landscape = Landscape([Layer(gp, pool, built)], improvement(acquisition, best))
    return joint_maxima(landscape, space, incumbents[:BEST_CENTERS], taken, rng, starts, feasible)


def joint_maxima(
    landscape: Landscape,
    space: Space,
    incumbents: Array,
    taken: Callable[[Array], NDArray[np.bool_]],
    rng: np.random.Generator,
    starts: int = STARTS,
    feasible: Feasibility | None = None,
) -> list[Maximum]:
    """The distinct local maxima of a joint acquisition among points that are not taken, best first.

    The search starts around the best points of the pool, and around all ``incumbents``, (b, d). Points that are not
    ``feasible`` must be taken.
    """
    kernel, points, ranges = landscape.kernel, landscape.pool_points, landscape.ranges
    order = np.argsort(-landscape.over_pool(), kind="stable")
    apart = _apart(kernel, kernel.features(points[order]), max(POOL_CENTERS, starts - 2))
    centers = np.vstack((points[order[apart]], incumbents))
    field = landscape.around(centers)

    def value(u: Array, center: Index) -> Array:
        return np.where(taken(u), -np.inf, field.value(u, center))

    candidates, center = around(space, centers, ranges, rng)
    border = None if feasible is None else Border(space, feasible, ranges, rng)
    if border is not None:
        candidates = border.pulled_back(centers[center], candidates)
    values = value(candidates, center)
    chosen = _best_of_each(values, center, starts)
    start, center = candidates[chosen], center[chosen]
    u = start
    # The optimum may be elsewhere for another choice: if there are choices, run BFGS again after the moves.
    for _ in range(2 if space.categorical.any() else 1):
        if not space.categorical.all():
            free = ~space.categorical & ~np.isnan(u)
            shortened = None if border is None else border.shortened
            u = space.repair(space.snap(climb(field.gradient, u, center, free, ranges, shortened)), rng)
        u = move_discrete(space, value, u, center, rng)
    if border is not None:
        u = border.followed(value, field.gradient, u, center)
    # If the optimum was evaluated already, fall back to its start.
    u = np.where(taken(u)[:, None], start, u)
    u = space.settle(u[~taken(u)])
    if feasible is not None:
        u = u[feasible(u)]  # settling may have moved a point over the border, by a rounding error
    return _distinct(kernel, u, landscape.exact(u))


def _apart(kernel: Kernel, z: Array, count: int) -> list[int]:
    """The first rows that keep `CENTER_GAP` from all earlier ones, at most ``count``."""
    for size in (FIRST_ROWS, len(z)):  # nearly always the first rows are enough
        near = distances(kernel, z[:size], z[:size]) <= CENTER_GAP
        kept: list[int] = []
        free = np.ones(len(near), dtype=bool)
        while len(kept) < count and free.any():
            kept.append(int(free.argmax()))
            free &= ~near[kept[-1]]
            free[kept[-1]] = False
        if len(kept) == count or size >= len(z):
            break
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


def _distinct(kernel: Kernel, points: Array, values: Array) -> list[Maximum]:
    """Maxima with their values, best first, without duplicates."""
    z = kernel.features(points)
    near = distances(kernel, z, z) <= SAME_MAXIMUM
    kept: list[int] = []
    for i in np.argsort(-values, kind="stable"):
        if not near[i, kept].any():
            kept.append(int(i))
    return [Maximum(points[i], float(values[i])) for i in kept]
