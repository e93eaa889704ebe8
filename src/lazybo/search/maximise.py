"""Find the maxima of an acquisition function over the space.

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
   With known constraints, points that stopped at the border of the feasible set move along it (`Border`).
5. The exact posterior of the finalists decides.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazybo.core import Array
from lazybo.gp import Kernel, Posterior
from lazybo.search.acquisition import Joint, averaged
from lazybo.search.records import Index
from lazybo.space import FeasibleSet, Space

POOL_CENTERS = 6
BEST_CENTERS = 4
CANDIDATES_PER_CENTER = 16
STARTS = 8
# A pool point is not a center if it is nearer than this to a better one, in units of the kernel's ranges.
CENTER_GAP = 0.25
FIRST_ROWS = 64
# Finalists that are nearer than this, in units of the kernel's ranges, count as one maximum.
SAME_MAXIMUM = 0.05
CLIMB_STEPS = 12
DISCRETE_ROUNDS = 8
# BFGS ends when no start gains more than this, or when all steps are shorter than this.
CONVERGED = 1e-2
# At most this many points, the best ones, move along the border of the feasible set.
FOLLOWED = 3
ROUNDS, STEPS_PER_ROUND = 6, 16
# The length of the first steps, in units of the kernel's ranges, and how it changes.
FIRST_LENGTH, LONGER, SHORTER = 0.3, 1.5, 0.4
# Candidates and random steps need not end near the border: there are many of them.
ROUGH = 3

# What is added to an acquisition at points, (m,), and its derivatives, (m, d).
Term: TypeAlias = Callable[[Array], tuple[Array, Array]]


@dataclass(frozen=True)
class Maximum:
    """A local maximum of the acquisition: the point, (d,), and the value there."""

    x: Array
    value: float


class Surface:
    """A joint acquisition of some outputs as a function of the point. The ``points`` are those of the pool.

    The search does not know how many models are behind it, nor how many particles each has. Distances between points
    are those of ``kernel``. A ``term`` of the point itself is added to the acquisition.
    """

    def __init__(
        self,
        kernel: Kernel,
        posteriors: Sequence[Posterior],
        points: Array,
        joint: Joint,
        term: Term | None = None,
    ) -> None:
        self.kernel, self.points = kernel, points
        self._posteriors, self._joint, self._term = posteriors, joint, term

    @property
    def ranges(self) -> Array:
        """The distance along each column that makes a difference to any output, (d,)."""
        first, *others = (posterior.ranges for posterior in self._posteriors)
        return np.minimum.reduce([first, *others]) if others else first

    def over_pool(self) -> Array:
        """The acquisition at the points of the pool, averaged over the particles."""
        return self._with_term(
            averaged(self._joint, [each.over(self.points) for each in self._posteriors]), self.points
        )

    def exact(self, u: Array) -> Array:
        """The acquisition at the rows of U, from the exact posteriors, averaged over the particles."""
        return self._with_term(averaged(self._joint, [each.components(u) for each in self._posteriors]), u)

    def _with_term(self, values: Array, points: Array) -> Array:
        return values if self._term is None else values + self._term(points)[0]

    def around(self, centers: Array) -> "NearSurface":
        """A cheap approximation of the acquisition by the leading particles around some centers."""
        return NearSurface(self._posteriors, centers, self._joint, self._term)


class NearSurface:
    """The acquisition around some centers. Each point belongs to one of them."""

    def __init__(self, posteriors: Sequence[Posterior], centers: Array, joint: Joint, term: Term | None) -> None:
        self._near = [posterior.around(centers) for posterior in posteriors]
        self._joint, self._term = joint, term

    def value(self, u: Array, center: Index) -> Array:
        """The acquisition at the rows of U, each near its center, (m,)."""
        means, stds = zip(*(each.posterior(u, center) for each in self._near), strict=True)
        found = self._joint(np.array(means), np.array(stds)).value
        return found if self._term is None else found + self._term(u)[0]

    def gradient(self, u: Array, center: Index) -> tuple[Array, Array]:
        """The acquisition, (m,), and its derivatives by U, (m, d)."""
        means, stds, slopes = zip(*(each.with_slope(u, center) for each in self._near), strict=True)
        acquired = self._joint(np.array(means), np.array(stds))
        by_outputs = zip(slopes, acquired.by_mean, acquired.by_std, strict=True)
        first, *others = (slope.by_points(by_mean, by_std) for slope, by_mean, by_std in by_outputs)
        for other in others:
            first = first + other
        if self._term is None:
            return acquired.value, first
        value, slope = self._term(u)
        return acquired.value + value, first + slope


def find_maxima(
    surface: Surface,
    space: Space,
    incumbents: Array,
    taken: Callable[[Array], NDArray[np.bool_]],
    rng: np.random.Generator,
    starts: int = STARTS,
    feasible: FeasibleSet | None = None,
) -> list[Maximum]:
    """The distinct local maxima of an acquisition among points that are not taken, best first.

    The search starts around the best points of the pool, and around all ``incumbents``, (b, d). Points that are not
    ``feasible`` must be taken.
    """
    kernel, points, ranges = surface.kernel, surface.points, surface.ranges
    order = (-surface.over_pool()).argsort(kind="stable")
    apart = _apart(kernel, kernel.features(points[order]), max(POOL_CENTERS, starts - 2))
    centers = np.vstack((points[order[apart]], incumbents))
    field = surface.around(centers)

    def value(u: Array, center: Index) -> Array:
        return np.where(taken(u), -np.inf, field.value(u, center))

    candidates, center = around(space, centers, ranges, rng)
    border = None if feasible is None else Border(space, feasible, ranges, rng)
    if border is not None:
        candidates = border.pulled_back(centers[center], candidates)
    values = value(candidates, center)
    # The starts are the best candidates of different centers, so that they are not too near to each other.
    chosen = _best_of_each(values, center)
    chosen = chosen[(-values[chosen]).argsort(kind="stable")[:starts]]
    start, center = candidates[chosen], center[chosen]
    u = start
    # The optimum may be elsewhere for another choice: if there are choices too, run BFGS again after the moves.
    for _ in range(2 if space.points.numeric.any() and not space.points.numeric.all() else 1):
        if space.points.numeric.any():
            free = space.points.free(u)
            u = climb(field.gradient, u, center, free, ranges, _limits(space, border, free))
            u = space.points.repair(space.points.snap(u), rng)
        u = move_discrete(space, value, u, center, rng)
    if border is not None:
        u = border.followed(value, field.gradient, u, center)
    # If the optimum was evaluated already, fall back to its start.
    u = np.where(taken(u)[:, None], start, u)
    # Decoded and encoded again, points equal those of their configurations to the last bit.
    settled = [space.points.encode(params) for params in space.points.decode_all(u[~taken(u)])]
    u = np.array(settled).reshape(-1, space.points.dim)
    if feasible is not None:
        u = u[feasible.contains(u)]  # settling may have moved a point over the border, by a rounding error
    return _distinct(kernel, u, surface.exact(u))


def _limits(space: Space, border: "Border | None", free: NDArray[np.bool_]) -> Callable[[Array, Array], Array] | None:
    """Where steps of `climb` end, given their starts and ends; None if everywhere in the unit cube."""
    if not space.kinds:
        return None if border is None else border.shortened

    def limited(start: Array, end: Array) -> Array:
        there = space.points.project(end, free)
        return there if border is None else border.shortened(start, there)

    return limited


def _apart(kernel: Kernel, z: Array, count: int) -> list[int]:
    """The first rows that keep `CENTER_GAP` from all earlier ones, at most ``count``."""
    for size in (FIRST_ROWS, len(z)):  # nearly always the first rows are enough
        near = kernel.distances(z[:size], z[:size]) <= CENTER_GAP
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
    u = space.points.perturbed(centers[center], ranges, rng)
    u[::CANDIDATES_PER_CENTER] = centers
    return space.points.repair(space.points.snap(u), rng), center


def _best_of_each(values: Array, owner: Index) -> Index:
    """The best candidate of each owner, of equal ones the first. ``owner`` is in ascending order."""
    order = np.lexsort((-values, owner))
    return order[np.concatenate(([True], owner[1:] > owner[:-1]))]


def _distinct(kernel: Kernel, points: Array, values: Array) -> list[Maximum]:
    """Maxima with their values, best first, without duplicates."""
    z = kernel.features(points)
    near = kernel.distances(z, z) <= SAME_MAXIMUM
    kept: list[int] = []
    for i in np.argsort(-values, kind="stable"):
        if not near[i, kept].any():
            kept.append(int(i))
    return [Maximum(points[i], float(values[i])) for i in kept]


# ------------------------------------------------------------------ local search


def climb(
    gradient: Callable[[Array, Index], tuple[Array, Array]],
    u: Array,
    center: Index,
    free: NDArray[np.bool_],
    ranges: Array,
    shortened: Callable[[Array, Array], Array] | None = None,
) -> Array:
    """Maximise in the unit cube by BFGS from all starts at once; each step evaluates all of them together.

    If a step does not improve the value, its length is halved. The other starts continue meanwhile.
    ``shortened`` may move the ends of steps, given their starts: a step must not leave the feasible set.
    """
    scale = np.minimum(ranges, 1.0)
    inverse = np.tile(np.eye(u.shape[1]), (len(u), 1, 1))  # inverse Hessians of -f, in units of ``scale``
    reach = np.full(len(u), 0.3)  # the longest step, in units of ``scale``
    fixed = None if free.all() else ~free
    u, (value, slope) = u.copy(), gradient(u, center)
    slope = slope * scale
    for _ in range(CLIMB_STEPS):
        direction = _direction(inverse, slope, u, fixed)
        length = np.sqrt(np.vecdot(direction, direction))
        direction *= np.minimum(1.0, reach / np.maximum(length, 1e-300))[:, None]
        there = u + direction * scale
        np.minimum(np.maximum(there, 0.0, out=there), 1.0, out=there)
        if fixed is not None:
            np.copyto(there, u, where=fixed)
        if shortened is not None:
            there = shortened(u, there)
        new_value, new_slope = gradient(there, center)
        new_slope = new_slope * scale
        better = new_value > value
        step, bend = (there - u) / scale, slope - new_slope
        if fixed is not None:
            step[fixed] = bend[fixed] = 0.0
        _update(inverse, better, step, bend)
        moved = np.sqrt(np.vecdot(step, step))
        reach = np.where(better, np.maximum(reach, 2 * moved), 0.4 * moved)
        converged = np.where(better, new_value - value, reach) < CONVERGED
        for known, new in ((u, there), (slope, new_slope), (value, new_value)):
            known[better] = new[better]
        if converged.all():
            break
    return u


def _direction(inverse: Array, slope: Array, u: Array, fixed: NDArray[np.bool_] | None) -> Array:
    """The quasi-Newton direction of each start, or the gradient if that direction does not lead up.

    It is 0 for ``fixed`` entries, and where it would leave the unit cube.
    """
    blocked = ((u <= 0.0) & (slope < 0.0)) | ((u >= 1.0) & (slope > 0.0))
    if fixed is not None:
        blocked |= fixed
    free = not blocked.any()
    g = slope if free else np.where(blocked, 0.0, slope)
    direction = np.vecdot(inverse, g[:, None])
    if not free:
        direction[blocked] = 0.0
    uphill = np.vecdot(direction, g) > 0
    return direction if uphill.all() else np.where(uphill[:, None], direction, g)


def _update(inverse: Array, rows: NDArray[np.bool_], s: Array, y: Array) -> None:
    """The BFGS update of the inverse Hessians, where the curvature sᵀy is positive.

    With ρ = 1/sᵀy and v = ½ ρ (1 + ρ yᵀHy) s - ρ Hy it is H + s vᵀ + v sᵀ.
    """
    curvature = np.vecdot(s, y)
    rows = rows & (curvature > 1e-12)
    if not rows.all():
        if not rows.any():
            return
        y, curvature = np.where(rows[:, None], y, 0.0), np.where(rows, curvature, np.inf)
    rho = 1.0 / curvature
    hy = np.vecdot(inverse, y[:, None])
    v = (0.5 * rho * (1.0 + rho * np.vecdot(y, hy)))[:, None] * s - rho[:, None] * hy
    change = s[:, :, None] * v[:, None, :]
    inverse += change
    inverse += change.transpose(0, 2, 1)


def move_discrete(
    space: Space,
    value: Callable[[Array, Index], Array],
    u: Array,
    center: Index,
    rng: np.random.Generator,
) -> Array:
    """Hill climbing over integers and choices: move each point to its best neighbour as long as that is better."""
    if np.isinf(space.points.levels).all() and not space.kinds:
        return u
    u, best = u.copy(), value(u, center)
    active = np.arange(len(u))
    for _ in range(DISCRETE_ROUNDS):
        moves, owner = space.points.neighbours(u[active], u, rng)
        if len(owner) == 0:
            break
        owner = active[owner]
        values = value(moves, center[owner])
        tops = _best_of_each(values, owner)
        active = owner[tops]
        better = values[tops] > best[active]
        active, tops = active[better], tops[better]
        if not len(active):
            break
        u[active], best[active] = moves[tops], values[tops]
    return u


class Border:
    """Search along the border of the feasible set, where the maxima of the acquisition often are.

    The border is known only by a predicate, so its direction is unknown. BFGS stops where it meets the border. From
    there the search continues with random steps that the slope favours, shortened to the border if they end outside.
    """

    def __init__(self, space: Space, feasible: FeasibleSet, ranges: Array, rng: np.random.Generator) -> None:
        self._space = space
        self._feasible = feasible.contains
        self._scale = np.minimum(ranges, 1.0)
        self._rng = rng
        self._met: NDArray[np.bool_] | None = None  # which starts have met the border

    def pulled_back(self, centers: Array, candidates: Array) -> Array:
        """Candidates that are not feasible, pulled towards their centers until they are, (m, d)."""
        u = self._feasible.shortened(centers, candidates, ROUGH)
        return self._space.points.repair(self._space.points.snap(u), self._rng)

    def shortened(self, start: Array, end: Array) -> Array:
        """The ends of the steps of `climb`, shortened to the border."""
        there = self._feasible.shortened(start, end)
        changed = ~((there == end) | np.isnan(end)).all(axis=1)
        self._met = changed if self._met is None else self._met | changed
        return there

    def followed(
        self,
        value: Callable[[Array, Index], Array],
        gradient: Callable[[Array, Index], tuple[Array, Array]],
        u: Array,
        center: Index,
    ) -> Array:
        """The points of ``u`` that have met the border, moved along it as long as the acquisition rises, (s, d)."""
        if self._met is None or not self._met.any():
            return u
        values = np.where(self._met, value(u, center), -np.inf)
        rows = np.argsort(-values, kind="stable")[:FOLLOWED]
        rows = rows[np.isfinite(values[rows])]
        if len(rows) == 0:
            return u
        x, at, best = u[rows], center[rows], values[rows]
        length, k = np.full(len(rows), FIRST_LENGTH), STEPS_PER_ROUND
        for _ in range(ROUNDS):
            steps = self._steps(gradient(x, at)[1] * self._scale) * length[:, None, None]
            start = np.repeat(x, k, axis=0)
            end = start + self._scale * steps.reshape(start.shape)
            end = np.where(self._space.points.numeric & ~np.isnan(start), np.clip(end, 0.0, 1.0), start)
            there = self.pulled_back(start, end)
            values = value(there, np.repeat(at, k)).reshape(-1, k)
            top = np.argmax(values, axis=1)
            highest = values[np.arange(len(x)), top]
            better = highest > best
            x = np.where(better[:, None], there.reshape(len(x), k, -1)[np.arange(len(x)), top], x)
            best = np.where(better, highest, best)
            length = length * np.where(better, LONGER, SHORTER)
        u = u.copy()
        u[rows] = x
        return u

    def _steps(self, slope: Array) -> Array:
        """Random unit steps uphill, (s, k, d): half of them of one or a few parameters."""
        s, d = slope.shape
        z = self._rng.standard_normal((s, STEPS_PER_ROUND, d))
        z[:, ::2] *= self._rng.random((s, (STEPS_PER_ROUND + 1) // 2, d)) < 1.5 / d
        uphill = np.einsum("skd,sd->sk", z, np.nan_to_num(slope)) >= 0
        z = np.where(uphill[:, :, None], z, -z)
        return z / np.maximum(np.linalg.norm(z, axis=2, keepdims=True), 1e-12)
