"""The candidate pool: points spread over the space, whose posterior is updated as the factor grows.

V = L⁻¹ k(X, pool) gets one row for each new row of X, which costs O(n) a point instead of O(n²).
"""

from itertools import pairwise
from typing import Any

import numpy as np

from lazybo.core.checks import Array
from lazybo.gp.cholesky import CHUNK_ROWS
from lazybo.gp.process import Process
from lazybo.space.space import Space

POOL_POINTS = 512


class Pool:
    """Points spread over the space, whose posterior is updated as the factor grows.

    The first ``built`` rows of V are solved in chunks of `CHUNK_ROWS`, later ones row by row. So V is the same to the
    last bit whether it grew with the factor or was computed at once.
    """

    def __init__(self, points: Array) -> None:
        self.points = points
        self._gp: Process | None = None
        self._factorisation = (0, 0)
        self._v = np.zeros((0, len(points)))
        self._n = 0
        self._variance = np.zeros(len(points))
        self._prepared: Any = None  # the features of the points
        self._expected: Array | float = 0.0  # the prior mean

    def posterior(self, gp: Process, built: int = 0) -> tuple[Array, Array]:
        """Mean and standard deviation at the points, each (m,). Costs O(n) a point for every new row."""
        factorisation = (gp.rebuilds, gp.factor.refactorisations)
        if gp is not self._gp or factorisation != self._factorisation or gp.n < self._n:
            self._gp, self._factorisation, self._n = gp, factorisation, 0
        if self._n == 0:
            z = gp.kernel.features(self.points)
            self._prepared, self._variance = gp.kernel.prepared(z), gp.kernel.diagonal(z)
            self._expected = 0.0 if gp.prior is None else gp.prior(self.points)
        if gp.n > self._n:
            self._extend(gp, built)
        mean = gp.whitened @ self._v[: gp.n] + self._expected
        return mean, np.sqrt(np.maximum(self._variance, 0.0))

    def truncate(self, n: int, built: int) -> None:
        """Keep only the first ``n`` rows; of the first ``built`` rows only whole chunks."""
        if self._gp is not None and n < self._n:
            self._n = n
            self._variance = self._gp.kernel.diagonal(self._gp.kernel.features(self.points))
            for rows in groups_of_rows(0, n, built):
                self._subtract(rows)

    def _extend(self, gp: Process, built: int) -> None:
        if gp.n > len(self._v):
            grown = np.empty((max(gp.n, len(self._v) * 5 // 4 + 64), len(self.points)))
            grown[: self._n] = self._v[: self._n]
            self._v = grown
        self._v[self._n : gp.n] = gp.kernel.between(gp.features[self._n : gp.n], self._prepared)
        for rows in groups_of_rows(self._n, gp.n, built):
            gp.factor.finish_solve(self._v[: rows.stop], rows.start, together=CHUNK_ROWS)
            self._subtract(rows)
        self._n = gp.n

    def _subtract(self, rows: slice) -> None:
        self._variance -= np.einsum("ij,ij->j", self._v[rows], self._v[rows])


def groups_of_rows(first: int, stop: int, built: int) -> list[slice]:
    """Rows [first, stop) in the groups that are solved together: the first ``built`` in chunks, then one by one."""
    chunks = [*range(first, min(stop, built), CHUNK_ROWS)]
    starts = [*chunks, *range(max(first, min(stop, built)), stop), stop]
    return [slice(a, b) for a, b in pairwise(starts)]


def sobol_points(space: Space, rng: np.random.Generator, n: int) -> Array:
    """Points that fill the space evenly (scrambled Sobol), (n, d)."""
    if space.dim == 0:
        return np.zeros((n, 0))
    # Imported here: it takes as long as all other imports of an optimiser, and reports on a study do not need it.
    from scipy.stats import qmc

    # Sobol points are balanced only if their number is a power of two.
    return space.from_uniform(qmc.Sobol(space.dim, rng=rng).random_base2(max(n - 1, 1).bit_length())[:n])
