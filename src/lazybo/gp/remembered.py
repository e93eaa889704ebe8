"""Caches of a process: V = L⁻¹ k(X, U) for the last few predicted points, and k(X, X) of its first rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazybo.core.checks import Array
from lazybo.gp.cholesky import GrowingCholesky

# Solutions are cached for up to so many points. These are always solved as so many columns, so that the solution of a
# point does not depend on the other points, to the last bit.
MAX_REMEMBERED = 8
# k(X, X) is kept for up to so many rows: 8 MB.
MAX_ENTRIES = 1024


class Remembered:
    """A small cache, valid for one factor. One of the predicted points is often appended next."""

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
        if m > MAX_REMEMBERED:
            return factor.solve_lower(covariance)
        columns = np.zeros((factor.n, MAX_REMEMBERED))
        columns[:, :m] = covariance
        factor.finish_solve(columns, 0)
        v = columns[:, :m]
        self._solutions = {point.tobytes(): v[:, i] for i, point in enumerate(points)}
        return v

    def clear(self) -> None:
        """Empty the cache, because the factor has changed."""
        self._solutions = {}


class Entries:
    """k between the first rows of X, without noise."""

    def __init__(self) -> None:
        self._k = np.zeros((0, 0))
        self._n = 0

    def add(self, cross: Array, block: Array) -> None:
        """Add t rows: k with all rows before them, (n, t), and among themselves, (t, t)."""
        first, stop = len(cross), len(cross) + len(block)
        if first != self._n or stop > MAX_ENTRIES:
            return
        if stop > len(self._k):
            size = min(max(stop, 2 * len(self._k), 64), MAX_ENTRIES)
            grown = np.zeros((size, size))
            grown[:first, :first] = self._k[:first, :first]
            self._k = grown
        self._k[:first, first:stop] = cross
        self._k[first:stop, :first] = cross.T
        self._k[first:stop, first:stop] = block
        self._n = stop

    def get(self, rows: NDArray[np.intp]) -> Array | None:
        """k between some rows, in ascending order, (r, r); None if not all of them are here."""
        return self._k[np.ix_(rows, rows)] if len(rows) and rows[-1] < self._n else None

    def truncate(self, n: int) -> None:
        """Keep only the first ``n`` rows."""
        self._n = min(self._n, n)
