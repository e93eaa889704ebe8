"""Search at the border of the feasible set, where the maxima of the acquisition often are.

The border is known only by a predicate, so its direction is unknown. BFGS stops where it meets the border. From there
the search goes on with random steps that the slope favours. Steps that end outside are shortened to the border.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazybo.core.checks import Array
from lazybo.space.feasible import Feasibility
from lazybo.space.space import Space

Index: TypeAlias = NDArray[np.intp]

# At most so many points move along the border, the best ones.
FOLLOWED = 3
ROUNDS, STEPS_PER_ROUND = 6, 16
# The length of the first steps, in units of the kernel's ranges, and how it changes.
FIRST_LENGTH, LONGER, SHORTER = 0.3, 1.5, 0.4
# Candidates and random steps need not end near to the border: they are many.
ROUGH = 3


class Border:
    """The border of the feasible set, for one search of maxima."""

    def __init__(self, space: Space, feasible: Feasibility, ranges: Array, rng: np.random.Generator) -> None:
        self._space = space
        self._feasible = feasible
        self._scale = np.minimum(ranges, 1.0)
        self._rng = rng
        self._met: NDArray[np.bool_] | None = None  # which starts have met the border

    def pulled_back(self, centers: Array, candidates: Array) -> Array:
        """Candidates that are not feasible, pulled towards their centers until they are, (m, d)."""
        u = self._feasible.shortened(centers, candidates, ROUGH)
        return self._space.repair(self._space.snap(u), self._rng)

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
            end = np.where(self._space.categorical | np.isnan(start), start, np.clip(end, 0.0, 1.0))
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
