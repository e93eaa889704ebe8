"""Where to evaluate next: the maxima of the acquisition over a lazy Gaussian process.

======  ====================================================================  ========
symbol  meaning                                                               shape
======  ====================================================================  ========
n, m    rows of the process; candidates                                       scalar
V       L⁻¹ k(X, pool): what the pool keeps of the factor                     (n, m)
c       centres: the points that the search begins from                       (c, d)
M       rows of X near the centres that the search sees in full               scalar
======  ====================================================================  ========

The search goes from wide and cheap to narrow and exact:

1. A *pool* of points spread over the space keeps its posterior as the factor grows: a new row costs O(n) a point, not
   O(n²).
2. Its best points and the best observations are the *centres*. Fresh candidates are drawn around each.
3. The best candidates climb, all at once, on a *near field*: the exact mean and the variance given the M rows that
   matter most.
4. Whole numbers and choices move to their best neighbours.
5. The finalists' exact posterior decides.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.stats import qmc

from lazybo.checks import Array
from lazybo.model.gp import CHUNK_ROWS, LazyGP
from lazybo.search.acquisition import Acquisition
from lazybo.search.space import Space

Index: TypeAlias = NDArray[np.intp]

POOL_POINTS = 512
POOL_CENTRES = 6
BEST_CENTRES = 4
CANDIDATES_PER_CENTRE = 16
STARTS = 8
NEAR_ROWS = 192
CLIMB_STEPS = 12
DISCRETE_ROUNDS = 8
# A climb ends when no start gains more than this any more, or can only step less than this.
CONVERGED = 1e-2
# The near field's inverse is exact to about this; less variance than that is rounding.
MIN_VARIANCE = 1e-9
# Pool points nearer than this to a better one, in the kernel's ranges, are no centres.
CENTRE_GAP = 0.25
# Finalists nearer than this, in the kernel's ranges, are one maximum.
SAME_MAXIMUM = 0.05


@dataclass(frozen=True)
class Maximum:
    """A local maximum of the acquisition: the point, (d,), and the value there."""

    x: Array
    value: float


class Pool:
    """Points spread over the space, whose posterior grows with the factor.

    V of the first ``built`` rows is solved in chunks of `CHUNK_ROWS`, that of later ones row by row. So it is the same
    to the last bit whether it grew with the factor or was made at once.
    """

    def __init__(self, points: Array) -> None:
        self.points = points
        self._gp: LazyGP | None = None
        self._factorisation = (0, 0)
        self._v = np.zeros((0, len(points)))
        self._n = 0
        self._variance = np.zeros(len(points))

    def posterior(self, gp: LazyGP, built: int = 0) -> tuple[Array, Array]:
        """Mean and standard deviation at the points, each (m,); O(n) a point for every row that is new."""
        factorisation = (gp.rebuilds, gp.factor.refactorisations)
        if gp is not self._gp or factorisation != self._factorisation or gp.n < self._n:
            self._gp, self._factorisation, self._n = gp, factorisation, 0
        if self._n == 0:
            self._variance = gp.kernel.diagonal(gp.kernel.features(self.points))
        if gp.n > self._n:
            self._extend(gp, built)
        mean = gp.whitened @ self._v[: gp.n]
        return mean, np.sqrt(np.maximum(self._variance, 0.0))

    def truncate(self, n: int, built: int) -> None:
        """Forget all but the first ``n`` rows; of the first ``built`` rows, whole chunks only are ever kept."""
        if self._gp is not None and n < self._n:
            self._n = n
            self._variance = self._gp.kernel.diagonal(self._gp.kernel.features(self.points))
            for rows in _steps(0, n, built):
                self._subtract(rows)

    def _extend(self, gp: LazyGP, built: int) -> None:
        if gp.n > len(self._v):
            grown = np.empty((max(gp.n, len(self._v) * 5 // 4 + 64), len(self.points)))
            grown[: self._n] = self._v[: self._n]
            self._v = grown
        self._v[self._n : gp.n] = gp.covariance(self.points, slice(self._n, gp.n))
        for rows in _steps(self._n, gp.n, built):
            gp.factor.finish_solve(self._v[: rows.stop], rows.start, together=CHUNK_ROWS)
            self._subtract(rows)
        self._n = gp.n

    def _subtract(self, rows: slice) -> None:
        self._variance -= np.einsum("ij,ij->j", self._v[rows], self._v[rows])


def _steps(first: int, stop: int, built: int) -> list[slice]:
    """Rows [first, stop) as they are solved together: chunks of those that were ``built`` at once, then one by one."""
    chunks = [*range(first, min(stop, built), CHUNK_ROWS)]
    starts = [*chunks, *range(max(first, min(stop, built)), stop), stop]
    return [slice(a, b) for a, b in pairwise(starts)]


class NearField:
    """The posterior around some centres, cheap enough to climb on.

    The mean is exact in the rows nearest to the centres and, for all others, linear around each centre. The variance
    is that given the nearest rows alone. With at most `NEAR_ROWS` rows both are exact.
    """

    def __init__(self, gp: LazyGP, centres: Array) -> None:
        self._kernel = gp.kernel
        self._centres = centres
        k, slope = gp.kernel.with_slope(gp.kernel.features(centres), gp.features)
        rows = np.arange(gp.n)
        if gp.n > NEAR_ROWS:
            rows = np.sort(np.argpartition(k.max(axis=0), -NEAR_ROWS)[-NEAR_ROWS:])
        self._z, self._alpha = gp.features[rows], gp.alpha[rows]
        far = gp.alpha.copy()
        far[rows] = 0.0
        self._far_mean = k @ far
        self._far_gradient = slope.by_points(far)
        self._inverse = gp.inverse(rows)

    def value(self, u: Array, centre: Index, acquisition: Acquisition, best: float) -> Array:
        """The acquisition at the rows of U, each near its centre, (m,)."""
        z = self._kernel.features(u)
        k = self._kernel.between(z, self._z)
        return acquisition(self._mean(u, centre, k), self._std(z, k, k @ self._inverse), best).value

    def gradient(self, u: Array, centre: Index, acquisition: Acquisition, best: float) -> tuple[Array, Array]:
        """The acquisition a and its derivatives by U.

        ∂a = a_μ ∂μ + a_σ ∂σ, with ∂σ = -Σᵢ βᵢ ∂k(u, xᵢ) / σ and β = K⁻¹ k: one sum over the rows with the weights
        a_μ α - a_σ β / σ.
        """
        z = self._kernel.features(u)
        k, slope = self._kernel.with_slope(z, self._z)
        beta = k @ self._inverse
        std = self._std(z, k, beta)
        acquired = acquisition(self._mean(u, centre, k), std, best)
        weights = acquired.by_mean[:, None] * self._alpha
        weights -= (acquired.by_std / std)[:, None] * beta
        return acquired.value, slope.by_points(weights) + acquired.by_mean[:, None] * self._far_gradient[centre]

    def _mean(self, u: Array, centre: Index, k: Array) -> Array:
        step = u - self._centres[centre]
        step[np.isnan(step)] = 0.0
        return k @ self._alpha + self._far_mean[centre] + np.einsum("ij,ij->i", self._far_gradient[centre], step)

    def _std(self, z: Array, k: Array, beta: Array) -> Array:
        prior = self._kernel.diagonal(z)
        return np.sqrt(np.maximum(prior - np.einsum("ij,ij->i", k, beta), MIN_VARIANCE * prior))


def spread_points(space: Space, rng: np.random.Generator, n: int) -> Array:
    """Points that fill the space evenly (scrambled Sobol), (n, d)."""
    if space.dim == 0:
        return np.zeros((n, 0))
    # A power of two: the only lengths for which Sobol's points are balanced.
    return space.spread(qmc.Sobol(space.dim, rng=rng).random_base2(max(n - 1, 1).bit_length())[:n])


def find_maxima(
    gp: LazyGP,
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

    ``best`` is the value to improve on, ``incumbents`` the best points observed, (b, d). The process was ``built`` from
    so many rows at once.
    """
    mean, std = pool.posterior(gp, built)
    order = np.argsort(-acquisition(mean, std, best).value, kind="stable")
    apart = _apart(gp.kernel.features(pool.points[order]), max(POOL_CENTRES, starts - 2))
    centres = np.vstack((pool.points[order[apart]], incumbents[:BEST_CENTRES]))
    field = NearField(gp, centres)

    def value(u: Array, centre: Index) -> Array:
        return np.where(taken(u), -np.inf, field.value(u, centre, acquisition, best))

    def gradient(u: Array, centre: Index) -> tuple[Array, Array]:
        return field.gradient(u, centre, acquisition, best)

    candidates, centre = _around(space, centres, gp.kernel.ranges, rng)
    values = value(candidates, centre)
    chosen = _best_of_each(values, centre, starts)
    start, centre = candidates[chosen], centre[chosen]
    u = start
    # A new choice may have its optimum elsewhere: where there are both, climb again after the moves.
    for _ in range(2 if space.categorical.any() else 1):
        if not space.categorical.all():
            free = ~space.categorical & ~np.isnan(u)
            u = space.repair(space.snap(climb(gradient, u, centre, free, gp.kernel.ranges)), rng)
        u = _move_discrete(space, value, u, centre, rng)
    # Where the top is taken, the way to it is not.
    u = np.where(taken(u)[:, None], start, u)
    u = space.settle(u[~taken(u)])
    mean, variance = gp.posterior(u)
    return _distinct(gp, u, acquisition(mean, np.sqrt(variance), best).value)


def climb(
    gradient: Callable[[Array, Index], tuple[Array, Array]],
    u: Array,
    centre: Index,
    free: NDArray[np.bool_],
    ranges: Array,
) -> Array:
    """Maximise from all starts at once in the unit cube: one BFGS for each, one evaluation of all for each step.

    A start whose step does not improve halves it and tries again, while the others go on.
    """
    scale = np.minimum(ranges, 1.0)
    inverse = np.tile(np.eye(u.shape[1]), (len(u), 1, 1))  # inverse Hessians of -f, in units of ``scale``
    reach = np.full(len(u), 0.3)  # the longest step, in units of ``scale``
    value, slope = gradient(u, centre)
    slope = slope * scale
    direction = None
    for _ in range(CLIMB_STEPS):
        blocked = ~free | ((u <= 0.0) & (slope < 0)) | ((u >= 1.0) & (slope > 0))
        g = np.where(blocked, 0.0, slope)
        direction = np.where(blocked, 0.0, np.einsum("sij,sj->si", inverse, g))
        uphill = np.einsum("si,si->s", direction, g) > 0
        direction = np.where(uphill[:, None], direction, g)
        length = np.linalg.norm(direction, axis=1)
        direction *= np.minimum(1.0, reach / np.maximum(length, 1e-300))[:, None]
        there = np.where(free, np.clip(u + direction * scale, 0.0, 1.0), u)
        new_value, new_slope = gradient(there, centre)
        new_slope = new_slope * scale
        better = new_value > value
        step = np.nan_to_num((there - u) / scale)
        _update(inverse, better, step, np.where(free, slope - new_slope, 0.0))
        moved = np.linalg.norm(step, axis=1)
        reach = np.where(better, np.maximum(reach, 2 * moved), 0.4 * moved)
        gain = np.where(better, new_value - value, 0.0)
        u = np.where(better[:, None], there, u)
        value, slope = np.where(better, new_value, value), np.where(better[:, None], new_slope, slope)
        if (np.where(better, gain, reach) < CONVERGED).all():
            break
    return u


def _update(inverse: Array, rows: NDArray[np.bool_], s: Array, y: Array) -> None:
    """The BFGS update of the inverse Hessians, where the curvature sᵀy is positive."""
    curvature = np.einsum("si,si->s", s, y)
    rows = rows & (curvature > 1e-12)
    if not rows.any():
        return
    s, y, h = s[rows], y[rows], inverse[rows]
    rho = 1.0 / curvature[rows]
    hy = np.einsum("sij,sj->si", h, y)
    factor = rho * (1.0 + rho * np.einsum("si,si->s", y, hy))
    h = h + factor[:, None, None] * (s[:, :, None] * s[:, None, :])
    cross = hy[:, :, None] * s[:, None, :]
    inverse[rows] = h - rho[:, None, None] * (cross + cross.transpose(0, 2, 1))


def _apart(z: Array, count: int) -> list[int]:
    """The first rows that are no neighbours of an earlier one, at most ``count``."""
    kept: list[int] = []
    free = np.ones(len(z), dtype=bool)
    while free.any() and len(kept) < count:
        kept.append(int(np.argmax(free)))
        free &= cdist(z, z[kept[-1:]])[:, 0] > CENTRE_GAP
    return kept


def _around(space: Space, centres: Array, ranges: Array, rng: np.random.Generator) -> tuple[Array, Index]:
    """Fresh candidates around each centre, the centres themselves first; and which centre each belongs to."""
    centre = np.repeat(np.arange(len(centres)), CANDIDATES_PER_CENTRE)
    u = centres[centre].copy()
    m, d = u.shape
    width = 10 ** rng.uniform(-3.0, 0.0, (m, 1)) * np.minimum(ranges, 1.0)
    touched = rng.random((m, d)) < np.maximum(rng.random((m, 1)), 1.5 / d)
    numeric = touched & ~space.categorical
    u = np.where(numeric, np.clip(u + width * rng.standard_normal((m, d)), 0.0, 1.0), u)
    flipped = space.categorical & (rng.random((m, d)) < 1.0 / d) & ~np.isnan(u)
    choices = np.where(space.categorical, space.levels, 1.0)
    u = np.where(flipped, np.floor(rng.random((m, d)) * choices), u)
    u[::CANDIDATES_PER_CENTRE] = centres
    return space.repair(space.snap(u), rng), centre


def _best_of_each(values: Array, centre: Index, count: int) -> Index:
    """The best candidate of each centre, best first, at most ``count``: starts that lie apart."""
    order = np.argsort(-values, kind="stable")
    _, first = np.unique(centre[order], return_index=True)
    return order[np.sort(first)[:count]]


def _move_discrete(
    space: Space,
    value: Callable[[Array, Index], Array],
    u: Array,
    centre: Index,
    rng: np.random.Generator,
) -> Array:
    """Hill climbing over whole numbers and choices: each point to its best neighbour while that is better."""
    if np.isinf(space.levels).all():
        return u
    u = u.copy()
    active = np.ones(len(u), dtype=bool)
    best = value(u, centre)
    for _ in range(DISCRETE_ROUNDS):
        groups = [space.neighbours(x, rng) if on else np.zeros((0, space.dim)) for x, on in zip(u, active, strict=True)]
        owner = np.repeat(np.arange(len(u)), [len(group) for group in groups])
        if len(owner) == 0:
            break
        moves = np.vstack(groups)
        values = value(moves, centre[owner])
        for i in np.flatnonzero(active):
            mine = np.flatnonzero(owner == i)
            top = mine[np.argmax(values[mine])] if len(mine) else -1
            active[i] = len(mine) > 0 and values[top] > best[i]
            if active[i]:
                u[i], best[i] = moves[top], values[top]
        if not active.any():
            break
    return u


def _distinct(gp: LazyGP, points: Array, values: Array) -> list[Maximum]:
    """Maxima with their values, best first, those that coincide counted once."""
    z = gp.kernel.features(points)
    kept: list[int] = []
    for i in np.argsort(-values, kind="stable"):
        if all(np.linalg.norm(z[i] - z[j]) > SAME_MAXIMUM for j in kept):
            kept.append(int(i))
    return [Maximum(points[i], float(values[i])) for i in kept]
