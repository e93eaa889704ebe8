"""Search for local maxima: BFGS from many starts at once, and moves between the values of discrete parameters."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazybo.core.checks import Array
from lazybo.space.space import Space

Index: TypeAlias = NDArray[np.intp]

CLIMB_STEPS = 12
DISCRETE_ROUNDS = 8
# BFGS ends when no start gains more than this, or when all steps are shorter than this.
CONVERGED = 1e-2


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
    ``shortened`` may end steps earlier, given their starts and ends: a step must not leave the feasible set.
    """
    scale = np.minimum(ranges, 1.0)
    inverse = np.tile(np.eye(u.shape[1]), (len(u), 1, 1))  # inverse Hessians of -f, in units of ``scale``
    reach = np.full(len(u), 0.3)  # the longest step, in units of ``scale``
    fixed = None if free.all() else ~free
    value, slope = gradient(u, center)
    slope = slope * scale
    for _ in range(CLIMB_STEPS):
        direction = _direction(inverse, slope, u, fixed)
        length = np.sqrt(_dot(direction, direction))
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
        moved = np.sqrt(_dot(step, step))
        reach = np.where(better, np.maximum(reach, 2 * moved), 0.4 * moved)
        converged = np.where(better, new_value - value, reach) < CONVERGED
        row = better[:, None]
        u, slope, value = np.where(row, there, u), np.where(row, new_slope, slope), np.where(better, new_value, value)
        if np.count_nonzero(converged) == len(u):
            break
    return u


def _direction(inverse: Array, slope: Array, u: Array, fixed: NDArray[np.bool_] | None) -> Array:
    """The quasi-Newton direction of each start, or the gradient if that direction does not lead up.

    It is 0 for ``fixed`` entries, and where it would leave the unit cube.
    """
    blocked = ((u <= 0.0) & (slope < 0.0)) | ((u >= 1.0) & (slope > 0.0))
    if fixed is not None:
        blocked |= fixed
    free = np.count_nonzero(blocked) == 0
    g = slope if free else np.where(blocked, 0.0, slope)
    direction = np.einsum("sij,sj->si", inverse, g)
    if not free:
        direction[blocked] = 0.0
    uphill = _dot(direction, g) > 0
    return direction if np.count_nonzero(uphill) == len(u) else np.where(uphill[:, None], direction, g)


def _update(inverse: Array, rows: NDArray[np.bool_], s: Array, y: Array) -> None:
    """The BFGS update of the inverse Hessians, where the curvature sᵀy is positive.

    With ρ = 1/sᵀy and v = ½ ρ (1 + ρ yᵀHy) s - ρ Hy it is H + s vᵀ + v sᵀ.
    """
    curvature = _dot(s, y)
    rows = rows & (curvature > 1e-12)
    count = np.count_nonzero(rows)
    if count < len(rows):
        if count == 0:
            return
        y, curvature = np.where(rows[:, None], y, 0.0), np.where(rows, curvature, np.inf)
    rho = 1.0 / curvature
    hy = np.einsum("sij,sj->si", inverse, y)
    v = (0.5 * rho * (1.0 + rho * _dot(y, hy)))[:, None] * s - rho[:, None] * hy
    change = s[:, :, None] * v[:, None, :]
    inverse += change
    inverse += change.transpose(0, 2, 1)


def _dot(a: Array, b: Array) -> Array:
    """The scalar product of each row, (s,)."""
    product: Array = np.vecdot(a, b)
    return product


def move_discrete(
    space: Space,
    value: Callable[[Array, Index], Array],
    u: Array,
    center: Index,
    rng: np.random.Generator,
) -> Array:
    """Hill climbing over integers and choices: move each point to its best neighbour as long as that is better."""
    if np.isinf(space.levels).all():
        return u
    u = u.copy()
    active = np.ones(len(u), dtype=bool)
    best = value(u, center)
    for _ in range(DISCRETE_ROUNDS):
        none = np.zeros((0, space.dim))
        groups = [space.neighbours(x, u, rng) if on else none for x, on in zip(u, active, strict=True)]
        owner = np.repeat(np.arange(len(u)), [len(group) for group in groups])
        if len(owner) == 0:
            break
        moves = np.vstack(groups)
        values = value(moves, center[owner])
        for i in np.flatnonzero(active):
            mine = np.flatnonzero(owner == i)
            top = mine[np.argmax(values[mine])] if len(mine) else -1
            active[i] = len(mine) > 0 and values[top] > best[i]
            if active[i]:
                u[i], best[i] = moves[top], values[top]
        if not active.any():
            break
    return u
