"""The interface of a kernel: what the process, learning and the search need.

======  ============================================================  ==========
symbol  meaning                                                       shape
======  ============================================================  ==========
X, U    points: one row each, one column a parameter                  (n, d)
Z       features of X: Euclidean coordinates in units of `ranges`     (n, D)
k       covariance of two points                                      (m, n)
θ       the kernel's parameters, each as a logarithm                  (p,)
======  ============================================================  ==========
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazybo.core.checks import Array
from lazybo.gp.kernels.columns import Column, coordinates_of


@dataclass(frozen=True, slots=True)
class Parameter:
    """The kind of an entry of θ: the log of a column's length scale, of k(x, x), or of the odds of a share."""

    kind: Literal["length_scale", "output_scale", "share"]
    column: Column | None = None


class Slope(Protocol):
    """The derivatives of k between two sets of points; they reuse what was computed for k."""

    def by_points(self, weights: Array) -> Array:
        """∂/∂u of Σᵢ wᵢ k(u, xᵢ) for each point u of the first set, (m, d); weights (m, n), or (n,) for all points.

        Categorical and inactive entries have derivative 0.
        """


class Pairs(Protocol):
    """k between all pairs of n points while θ changes, for learning. What does not depend on θ is computed once.

    P = n (n - 1)/2 pairs a < b are in the order of `upper`: row by row. Arrays are reused by the next `covariance`.
    """

    def covariance(self, kernel: Any) -> Array:
        """k of each pair, (P,), for a kernel that differs only in θ from the one that made this object."""

    def by_theta(self, weights: Array, diagonal: Array) -> Array:
        """Σ_ab W_ab ∂k_ab/∂θ of the last covariance, (p,), from W_ab of the pairs, (P,), and W_aa, (n,); W = Wᵀ."""


@runtime_checkable
class Kernel(Protocol):
    """A covariance function of points with given columns; immutable, so a changed parameter is a new kernel."""

    # The name of the kernel in `Optimizer(kernel=…)`.
    name: ClassVar[str]

    @property
    def columns(self) -> Sequence[Column]:
        """What the columns of a point hold."""

    @property
    def dim(self) -> int:
        """Number of columns, d."""

    @property
    def theta(self) -> Array:
        """θ, (p,)."""

    @property
    def layout(self) -> Sequence[Parameter]:
        """The kind of each entry of θ."""

    @property
    def ranges(self) -> Array:
        """The distance along each column that makes a difference, (d,), for example its length scale."""

    def with_theta(self, theta: ArrayLike) -> Self:
        """The same kernel with other parameters."""

    @property
    def values(self) -> Array:
        """The parameters without logarithm, (p,). Save these: exp(log x) is not x to the last bit."""

    def with_values(self, values: ArrayLike) -> Self:
        """The same kernel with these parameters, to the last bit."""

    def check(self, x: ArrayLike, name: str = "X") -> Array:
        """Validated points of this kernel, (n, d)."""

    def features(self, x: Array) -> Array:
        """Z of validated points, (n, D)."""

    def diagonal(self, z: Array) -> Array:
        """k of each point with itself, (n,)."""

    def prepared(self, z: Array) -> Any:
        """Features in the form in which `between` and `with_slope` use ``other``: saves time if it is used again."""

    def between(self, z: Array, other: Any) -> Array:
        """k between the rows of two feature arrays, (m, n)."""

    def with_slope(self, z: Array, other: Any) -> tuple[Array, Slope]:
        """k between the rows of two feature arrays, (m, n), and its derivatives."""

    def pairs(self, x: Array) -> Pairs:
        """k between all pairs of validated points, for learning."""

    def __call__(self, x: ArrayLike, other: ArrayLike | None = None) -> Array:
        """k between the rows of two sets of points, (m, n); between those of ``x`` if there is no other."""


def upper(n: int) -> NDArray[np.bool_]:
    """Where a square matrix is above its diagonal, (n, n): the places of the pairs a < b, row by row."""
    return np.triu(np.ones((n, n), dtype=bool), 1)


def distances(kernel: Kernel, z: Array, other: Array) -> Array:
    """Distances of the rows of two feature arrays, (m, n), in units of the kernel's ranges."""
    return coordinates_of(tuple(kernel.columns)).distances(z, other, kernel.ranges)


def as_kernel(kernel: object) -> Kernel:
    """Return ``kernel``; raise a ValueError if it is not a kernel."""
    if isinstance(kernel, type) or not isinstance(kernel, Kernel):
        raise ValueError(f"the kernel must be one of lazybo.kernels, such as Matern52, not {kernel!r}")
    return kernel
