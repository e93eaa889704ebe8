"""Search for local maxima: BFGS from many starts at once, and moves between the values of discrete parameters."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazybo.checks import Array
from lazybo.search.space import Space

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
    value, slope = gradient(u, center)
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
        if shortened is not None:
            there = shortened(u, there)
        new_value, new_slope = gradient(there, center)
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
        groups = [space.neighbours(x, rng) if on else np.zeros((0, space.dim)) for x, on in zip(u, active, strict=True)]
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
