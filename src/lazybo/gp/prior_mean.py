"""A prior mean: what a process predicts where it has no observations of its own.

======  ============================================================  ==========
symbol  meaning                                                       shape
======  ============================================================  ==========
X, β    centers and their weights                                     (n, d), (n,)
m(u)    b + Σᵢ βᵢ k(u, xᵢ)                                            scalar
======  ============================================================  ==========

The posterior means of other processes with the same kernel, and weighted sums of them, have this form.
"""

from dataclasses import dataclass

import numpy as np

from lazybo.core.checks import Array
from lazybo.gp.kernels import Kernel

# Points to evaluate at a time; this limits the temporary memory to so many rows of k.
BLOCK_POINTS = 256


@dataclass(frozen=True, eq=False)
class PriorMean:
    """m: ``offset`` plus a sum over centers with the features ``z``. Immutable."""

    kernel: Kernel
    z: Array
    weights: Array
    offset: float

    def __call__(self, u: Array) -> Array:
        """m at the rows of U, (m,)."""
        blocks = (u[start : start + BLOCK_POINTS] for start in range(0, len(u), BLOCK_POINTS))
        sums = [self.kernel.between(self.kernel.features(block), self.z) @ self.weights for block in blocks]
        return self.offset + np.concatenate([*sums, np.zeros(0)])

    def gradient(self, u: Array) -> Array:
        """The derivatives of m by the rows of U, (m, d)."""
        return self.kernel.with_slope(self.kernel.features(u), self.z)[1].by_points(self.weights)
