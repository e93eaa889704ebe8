"""A joint acquisition of several processes: over the pool, around some centers, and exactly.

The search (`maxima`) sees one function with a gradient. It does not know how many processes are behind it.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazybo.core.checks import Array
from lazybo.gp.process import Process
from lazybo.search.acquisition import Judge
from lazybo.search.near_field import NearField
from lazybo.search.pool import Pool

Index: TypeAlias = NDArray[np.intp]


class Layer(NamedTuple):
    """The process of one output, and its pool. ``built`` is the number of rows that it was built from at once."""

    process: Process
    pool: Pool
    built: int


class Landscape:
    """The joint acquisition of some outputs. The pools of all layers have the same points."""

    def __init__(self, layers: Sequence[Layer], judge: Judge) -> None:
        self.layers = layers
        self._judge = judge
        # Distances between points are those of the first process.
        self.kernel = layers[0].process.kernel
        self.pool_points = layers[0].pool.points

    @property
    def ranges(self) -> Array:
        """The distance along each column that makes a difference to any output, (d,)."""
        first, *others = (layer.process.kernel.ranges for layer in self.layers)
        return np.minimum.reduce([first, *others]) if others else first

    def over_pool(self) -> Array:
        """The acquisition at the points of the pool."""
        return self._judged([layer.pool.posterior(layer.process, layer.built) for layer in self.layers])

    def exact(self, u: Array) -> Array:
        """The acquisition at the rows of U, from the exact posteriors."""
        found = [layer.process.posterior(u) for layer in self.layers]
        return self._judged([(mean, np.sqrt(variance)) for mean, variance in found])

    def around(self, centers: Array) -> "Surroundings":
        """A cheap approximation around some centers."""
        return Surroundings([NearField(layer.process, centers) for layer in self.layers], self._judge)

    def _judged(self, posteriors: Sequence[tuple[Array, Array]]) -> Array:
        return self._judge(*stacked(posteriors)).value


class Surroundings:
    """The joint acquisition on near fields around the same centers."""

    def __init__(self, fields: Sequence[NearField], judge: Judge) -> None:
        self._fields, self._judge = fields, judge

    def value(self, u: Array, center: Index) -> Array:
        """The acquisition at the rows of U, each near its center, (m,)."""
        return self._judge(*stacked([field.posterior(u, center) for field in self._fields])).value

    def gradient(self, u: Array, center: Index) -> tuple[Array, Array]:
        """The acquisition, (m,), and its derivatives by U, (m, d)."""
        found = [field.with_slope(u, center) for field in self._fields]
        judged = self._judge(*stacked([(each.mean, each.std) for each in found]))
        first, *others = (each.pulled_back(*by) for each, *by in zip(found, judged.by_mean, judged.by_std, strict=True))
        for other in others:
            first = first + other
        return judged.value, first


def stacked(posteriors: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Means and standard deviations of several outputs, each (p, m)."""
    means, stds = zip(*posteriors, strict=True)
    return np.array(means), np.array(stds)
