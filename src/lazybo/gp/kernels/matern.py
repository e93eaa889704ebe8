"""Matérn 5/2 on mixed and conditional columns.

======  ============================================================  ==========
symbol  meaning                                                       shape
======  ============================================================  ==========
ℓ       length scales, one for each column                            (d,)
σ²      output scale, k(x, x)                                         scalar
r       distance of two points in units of ℓ                          (m, n)
s       √5 r                                                          (m, n)
M       (1 + s + s²/3) exp(-s)   (paper, section 2.2)                 (m, n)
h       -2 ∂(σ² M)/∂(r²) = 5/3 σ² (1 + s) exp(-s)                     (m, n)
======  ============================================================  ==========

`Matern52` is k = σ² M(r) with θ = (log ℓ₁, …, log ℓ_d, log σ²).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from lazybo.core import Array
from lazybo.gp.kernels.base import Column, Coordinates, Kernel, Parameter, Slope, upper

SQRT_5 = math.sqrt(5.0)
# Beyond this distance the kernel is 0 in doubles, and infinity · 0 would be NaN.
MAX_DISTANCE = 1e3


@dataclass(frozen=True, eq=False)
class Matern52(Kernel):
    """Matérn 5/2 with a length scale for each column. Immutable: methods that change parameters return a new kernel."""

    length_scales: Array
    output_scale: float = 1.0
    columns: Sequence[Column] = field(default=())

    name: ClassVar[str] = "matern52"

    def __post_init__(self) -> None:
        self._check()

    @property
    def theta(self) -> Array:
        """The logarithms of the length scales and of the output scale, (d + 1,)."""
        return np.log(self.values)

    @property
    def values(self) -> Array:
        """The length scales and the output scale, (d + 1,)."""
        return np.append(self.length_scales, self.output_scale)

    @cached_property
    def layout(self) -> list[Parameter]:
        """The kind of each entry of θ."""
        return [*(Parameter("length_scale", column) for column in self.columns), Parameter("output_scale")]

    @staticmethod
    def values_at(theta: Array) -> Array:
        """The values for some θ, in the last axis."""
        return np.exp(theta)

    def between(self, c: Array, other: Array) -> Array:
        """k between the rows of two sets of features, (m, n)."""
        return self._value(c, other)[0]

    def with_slope(self, c: Array, other: Array) -> tuple[Array, Slope]:
        """k between the rows of two sets of features, (m, n), and its derivatives; both need the same exponentials."""
        k, h = self._value(c, other)
        h *= 5.0 / 3.0
        return k, Slope(self, c, other, h)

    def pairs(self, x: Array) -> "MaternPairs":
        """k between all pairs of validated points, for learning."""
        return MaternPairs(self.coordinates, self.coordinates.of(x))

    def _value(self, c: Array, other: Array) -> tuple[Array, Array]:
        """k = g + σ² s²/3 exp(-s) and g = σ² (1 + s) exp(-s), each (m, n).

        Distances are those of differences: this is exact for near duplicates, unlike a matrix product.
        """
        s = self.distances(c, other)
        s *= SQRT_5
        np.minimum(s, MAX_DISTANCE, out=s)
        decay = np.negative(s)
        np.exp(decay, out=decay)
        decay *= self.output_scale
        k = s * decay
        decay += k
        k *= s
        k *= 1.0 / 3.0
        k += decay
        return k, decay


class MaternPairs:
    """k between all pairs of points with coordinates C, see `Pairs`."""

    def __init__(self, coordinates: Coordinates, c: Array) -> None:
        self.upper = upper(len(c))
        # Squared distances along each column, (d, P).
        self._squares = coordinates.among(c, self.upper) ** 2

    def covariance(self, values: Array) -> Array:
        """k of each pair, (s, P)."""
        self._values = values
        s = np.sqrt(5.0 * values[:, :-1] ** -2 @ self._squares)
        np.minimum(s, MAX_DISTANCE, out=s)
        decay = np.exp(-s)
        decay *= values[:, -1:]
        k = s * decay
        self._g = decay + k  # σ² (1 + s) exp(-s)
        k *= s
        k *= 1.0 / 3.0
        k += self._g
        self._k = k
        return k

    def by_theta(self, weights: Array, diagonal: Array) -> Array:
        """Σ_ab W_ab ∂k_ab/∂θ, (s, d + 1): ∂k/∂log σ² = k, and ∂k/∂log ℓⱼ = 5/3 σ² (1 + s) exp(-s) Δⱼ²/ℓⱼ²."""
        scales, output = self._values[:, :-1], self._values[:, -1]
        by_scales = (weights * self._g) @ self._squares.T / scales**2 * (10.0 / 3.0)
        by_output = 2.0 * np.vecdot(weights, self._k) + output * np.add.reduce(diagonal, axis=1)
        return np.column_stack((by_scales, by_output))
