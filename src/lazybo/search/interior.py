"""A weak prior that the optimum is inside the ranges of the parameters, and not at their ends.

======  =====================================================  ======
symbol  meaning                                                shape
======  =====================================================  ======
u       points of the unit cube                                (m, d)
n       rows of the process                                    scalar
β       the weight of the prior, in evaluations                scalar
p       log p(u) = Σⱼ log(uⱼ (1 - uⱼ) + δ), over numbers only  (m,)
======  =====================================================  ======

At the faces of the cube there are few observations, so the variance and the expected improvement are large there. Early
suggestions therefore lie on faces, and if the first of them are good, all later ones may stay there. People choose
ranges that have the optimum inside. So β/n log p(u) is added to the logarithm of the acquisition function, and vanishes
as observations come in (after Hvarfner et al., πBO). What it gains and costs is in docs/tuning.md.
"""

import numpy as np

from lazybo.checks import Array
from lazybo.search.space import Space

WEIGHT = 4.0
# At a face, log p is that of a uniform distribution minus about 2.6; δ is the height of p there.
HEIGHT_AT_FACE = 0.02


class Interior:
    """β/n log p, to be added to an acquisition function."""

    def __init__(self, space: Space, n: int) -> None:
        self._numeric = ~space.categorical
        self._weight = WEIGHT / max(n, 1)

    def value(self, u: Array) -> Array:
        """The weighted logarithm, (m,). Choices and inactive parameters add a constant."""
        return self._weight * np.log(self._height(u)).sum(axis=1)

    def gradient(self, u: Array) -> Array:
        """Its derivatives, (m, d)."""
        slope = np.zeros_like(u)
        slope[:, self._numeric] = self._weight * (1.0 - 2.0 * self._inside(u)) / self._height(u)
        return slope

    def _inside(self, u: Array) -> Array:
        return np.nan_to_num(u[:, self._numeric], nan=0.5)

    def _height(self, u: Array) -> Array:
        inside = self._inside(u)
        return inside * (1.0 - inside) + HEIGHT_AT_FACE
