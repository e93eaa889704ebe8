"""What a process keeps with its factor: the weights w = L⁻¹ t and α = K⁻¹ t of its targets, and two caches.

A *pending* row has a point and no target yet (NaN). It lowers the variance and does not change the mean: its target is
what the other rows predict there, so its weight in α is 0. With p the pending rows, A = K⁻¹ and α⁰ = A [t; 0], that
target is -(A_pp)⁻¹ α⁰_p: no other factor is needed.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazybo.core.checks import Array
from lazybo.gp.cholesky import CHUNK_ROWS, GrowingCholesky
from lazybo.gp.targets import unit_of

# Solutions are cached for up to this many points. They are always solved as this many columns, so that the solution of
# a point does not depend on the other points, to the last bit.
CACHED_POINTS = 8
# k(X, X) is cached for up to this many rows: 8 MB.
CACHED_ROWS = 1024


class Weights:
    """w and α of the current targets, (n,) or (n, q), solved when they are first needed.

    Both are in units of ``unit``, a power of two: t = unit · right-hand side.
    """

    def __init__(self) -> None:
        self.targets = np.zeros(0)
        self.unit = 1.0
        self._right = np.zeros(0)  # the right-hand side: targets in ``unit``, 0 where pending
        self._whitened_right = np.zeros(0)  # the one that `_whitened` was solved for
        self._whitened = np.zeros(0)
        self._solved: tuple[Array, Array] | None = None

    @property
    def pending(self) -> NDArray[np.bool_]:
        """Which rows have no target yet, (n,)."""
        return _any_in_row(np.isnan(self.targets))

    def set(self, targets: Array) -> None:
        """Replace the targets; NaN means pending."""
        missing = np.isnan(targets)
        right = np.where(missing, 0.0, targets) if missing.any() else targets
        self.targets, self.unit = targets, unit_of(right)
        self._right = right if self.unit == 1.0 else right / self.unit
        self._solved = None

    def truncate(self, n: int) -> None:
        """Keep only the first ``n`` rows."""
        self._whitened, self._whitened_right = self._whitened[:n], self._whitened_right[:n]
        self.set(self.targets[:n])

    def forget(self) -> None:
        """Discard all solutions, because the factor has changed."""
        self._whitened = self._whitened_right = np.zeros((0, *self.targets.shape[1:]))
        self._solved = None

    def whitened(self, factor: GrowingCholesky) -> Array:
        """w."""
        return self._solve(factor)[0] if self.pending.any() else self._whiten(factor)

    def alpha(self, factor: GrowingCholesky) -> Array:
        """α, 0 where pending."""
        return self._solve(factor)[1]

    def _whiten(self, factor: GrowingCholesky) -> Array:
        """L⁻¹ of the right-hand side. If its first rows are unchanged, only w₂ = D⁻¹ (t₂ - Qᵀ w₁) is computed."""
        right, before = self._right, self._whitened_right
        if right is not before:
            done = _unchanged(right, before) // CHUNK_ROWS * CHUNK_ROWS
            w = np.concatenate((self._whitened[:done], right[done:])) if done else right.copy()
            factor.finish_solve(w, done, together=CHUNK_ROWS)
            self._whitened, self._whitened_right = w, right
        return self._whitened

    def _solve(self, factor: GrowingCholesky) -> tuple[Array, Array]:
        """w and α, with the targets of pending rows such that their α is 0."""
        if self._solved is None:
            w = self._whiten(factor)
            alpha = factor.solve_upper(w)
            rows = np.flatnonzero(self.pending)
            if len(rows):
                columns = factor.unit_columns(rows)
                change = columns @ np.linalg.solve(columns.T @ columns, -alpha[rows])
                w, alpha = w + change, alpha + factor.solve_upper(change)
                alpha[rows] = 0.0
            self._solved = w, alpha
        return self._solved


def _unchanged(right: Array, before: Array) -> int:
    """The number of leading rows that are equal in two arrays."""
    if right.shape[1:] != before.shape[1:]:
        return 0
    common = min(len(right), len(before))
    changed = np.flatnonzero(_any_in_row(right[:common] != before[:common]))
    return int(changed[0]) if len(changed) else common


def _any_in_row(flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return flags if flags.ndim == 1 else np.asarray(flags.any(axis=1))


class SolutionCache:
    """V = L⁻¹ k(X, U) of the last few predicted points, for one factor. One of them is often appended next."""

    def __init__(self) -> None:
        self._solutions: dict[bytes, Array] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Copies are empty: a solution is a column of an array, and a copy of the column is rounded differently."""
        return {"_solutions": {}}

    def get(self, point: Array) -> Array | None:
        """The solution of a point, (n,), or None if it is not in the cache."""
        return self._solutions.get(point.tobytes())

    def solve(self, factor: GrowingCholesky, points: Array, covariance: Array) -> Array:
        """V, (n, m), for k(X, U), (n, m). It is cached if there are few points."""
        m = len(points)
        if m > CACHED_POINTS:
            return factor.solve_lower(covariance)
        columns = np.zeros((factor.n, CACHED_POINTS))
        columns[:, :m] = covariance
        factor.finish_solve(columns, 0)
        v = columns[:, :m]
        self._solutions = {point.tobytes(): v[:, i] for i, point in enumerate(points)}
        return v

    def clear(self) -> None:
        """Empty the cache, because the factor has changed."""
        self._solutions = {}


class CovarianceCache:
    """k between the first rows of X, without noise."""

    def __init__(self) -> None:
        self._k = np.zeros((0, 0))
        self._n = 0

    def add(self, cross: Array, block: Array) -> None:
        """Add t rows: k with all rows before them, (n, t), and among themselves, (t, t)."""
        first, stop = len(cross), len(cross) + len(block)
        if first != self._n or stop > CACHED_ROWS:
            return
        if stop > len(self._k):
            size = min(max(stop, 2 * len(self._k), 64), CACHED_ROWS)
            grown = np.zeros((size, size))
            grown[:first, :first] = self._k[:first, :first]
            self._k = grown
        self._k[:first, first:stop] = cross
        self._k[first:stop, :first] = cross.T
        self._k[first:stop, first:stop] = block
        self._n = stop

    def get(self, rows: NDArray[np.intp]) -> Array | None:
        """k between some rows, in ascending order, (r, r); None if not all of them are cached."""
        return self._k[np.ix_(rows, rows)] if len(rows) and rows[-1] < self._n else None

    def truncate(self, n: int) -> None:
        """Keep only the first ``n`` rows."""
        self._n = min(self._n, n)
