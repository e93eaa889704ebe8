"""A cache of V = L⁻¹ k(X, U) for the last few predicted points: one of them is often appended next."""

import numpy as np

from lazybo.checks import Array
from lazybo.model.cholesky import GrowingCholesky

# Solutions are cached for up to so many points. These are always solved as so many columns, so that the solution of a
# point does not depend on the other points, to the last bit.
MAX_REMEMBERED = 8


class Remembered:
    """A small cache, valid for one factor."""

    def __init__(self) -> None:
        self._solutions: dict[bytes, Array] = {}

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
