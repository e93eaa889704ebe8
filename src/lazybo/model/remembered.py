"""Solutions V = L⁻¹ k(X, U) of the last few points that were predicted: one of them is often appended next."""

import numpy as np

from lazybo.checks import Array
from lazybo.model.cholesky import GrowingCholesky

# The solutions of so few points are kept. They are always solved as so many columns: then the solution of a point does
# not depend, in any bit, on the points beside it.
MAX_REMEMBERED = 8


class Remembered:
    """A small cache, valid for one factor."""

    def __init__(self) -> None:
        self._solutions: dict[bytes, Array] = {}

    def get(self, point: Array) -> Array | None:
        """The solution of a point, (n,), if it is kept."""
        return self._solutions.get(point.tobytes())

    def solve(self, factor: GrowingCholesky, points: Array, covariance: Array) -> Array:
        """V, (n, m), for k(X, U), (n, m); kept if there are few points."""
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
        """The factor has changed."""
        self._solutions = {}
