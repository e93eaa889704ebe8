"""Matérn 5/2 with an additive part: a sum over single columns.

======  ============================================================  ==========
symbol  meaning                                                       shape
======  ============================================================  ==========
ℓ       length scales, one for each column                            (d,)
σ²      output scale, k(x, x)                                         scalar
r, rⱼ   distance of two points in units of ℓ, and in column j alone   (m, n)
M       Matérn 5/2 of a distance (`matern.py`)                        (m, n)
a       share of the variance that is additive, in (0, 1)             scalar
sⱼ      √(5 d) rⱼ                                                     (d, m, n)
gⱼ      (1 + sⱼ) exp(-sⱼ)                                             (d, m, n)
======  ============================================================  ==========

`AdditiveMatern52` is k = σ² [(1 - a) M(r) + a/d Σⱼ M(√d rⱼ)], and θ ends with log a/(1 - a).

Two points that agree in one coordinate and differ in all others are far apart for M(r), so they are uncorrelated there.
The additive part keeps them correlated through that coordinate. So objectives that are nearly a sum over their
parameters are learned from far fewer observations.

Why √d: distances in the unit cube grow with √d, and so do the length scales, but the distance in one column does not.
With the factor √d, -∂²k/∂x² at a point is the same for every a, so ℓⱼ is the distance that matters along column j
whatever the share is. Sums and positive multiples of positive semidefinite kernels are positive semidefinite.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import ClassVar

import numpy as np

from lazybo.core import Array, checks
from lazybo.gp.kernels.base import Column, Coordinates, Kernel, Parameter, Slope, upper

# Entries of sⱼ, and of distances, to compute at a time, so that temporary arrays stay in the CPU cache.
BLOCK_ENTRIES = 16_000
# With shorter length scales, squares of sⱼ would overflow; exp(-sⱼ) is 0 long before.
MAX_RATE = 1e100


@dataclass(frozen=True, eq=False)
class AdditiveMatern52(Kernel):
    """Matérn 5/2 in which a ``share`` of the variance is a sum of one-dimensional kernels. Immutable."""

    length_scales: Array
    output_scale: float = 1.0
    share: float = 0.5
    columns: Sequence[Column] = field(default=())

    name: ClassVar[str] = "additive"

    def __post_init__(self) -> None:
        share = checks.positive("share", self.share)
        if share >= 1:
            raise ValueError(f"share must be between 0 and 1, not {share}")
        object.__setattr__(self, "share", share)
        self._check()

    @property
    def theta(self) -> Array:
        """The logarithms of the length scales, of the output scale and of the share's odds, (d + 2,)."""
        odds = self.share / (1.0 - self.share)
        return np.log(np.append(self.length_scales, [self.output_scale, odds]))

    @cached_property
    def layout(self) -> list[Parameter]:
        """The kind of each entry of θ."""
        scales = (Parameter("length_scale", column) for column in self.columns)
        return [*scales, Parameter("output_scale"), Parameter("share")]

    @staticmethod
    def values_at(theta: Array) -> Array:
        """The values for some θ, in the last axis."""
        values = np.exp(theta)
        values[..., -1] /= 1.0 + values[..., -1]
        return values

    @cached_property
    def values(self) -> Array:
        """The length scales, the output scale and the share, (d + 2,)."""
        return np.append(self.length_scales, [self.output_scale, self.share])

    def between(self, c: Array, other: Array) -> Array:
        """k between the rows of two sets of features, (m, n)."""
        k: Array = self.several([self], c, other)[0]
        return k

    @staticmethod
    def several(kernels: "Sequence[AdditiveMatern52]", c: Array, other: Array) -> Array:
        """k of several kernels that differ only in θ, between the same features, (s, m, n)."""
        coordinates, values = kernels[0].coordinates, np.array([each.values for each in kernels])
        d = len(coordinates.columns)
        joint_share, single_share = _shares(values)
        k = np.empty((len(kernels), len(c), len(other)))
        size = max(1, BLOCK_ENTRIES // max(1, d * len(other)))
        for start in range(0, len(c), size):
            rows = slice(start, start + size)
            apart = coordinates.apart(c[rows], other)
            joint, _, single = _matern_sums(apart.reshape(d, math.prod(apart.shape[1:])), values[:, :d])
            joint *= joint_share
            single *= single_share
            joint += single
            k[:, rows] = joint.reshape(len(k), *apart.shape[1:])
        return k

    def with_slope(self, c: Array, other: Array) -> tuple[Array, Slope]:
        """k between the rows of two sets of features, (m, n), and its derivatives."""
        first, shape = self.coordinates.first, (len(c), len(other))
        apart = self.coordinates.apart(c, other).reshape(self.dim, -1)
        joint, h, single, pull = _block_sums(_rates(self.length_scales[None]) * apart)
        joint_share, single_share = _shares(self.values[None])
        joint *= joint_share
        h *= joint_share * (5.0 / 3.0)
        single *= single_share
        joint += single
        by_column = pull.reshape(self.dim, *shape)
        by_column *= c.T[first, :, None] - other.T[first, None, :]
        by_column *= single_share * self.dim * (5.0 / 3.0)
        return joint.reshape(shape), Slope(self, c, other, h.reshape(shape), by_column)

    def pairs(self, x: Array) -> "AdditivePairs":
        """k between all pairs of validated points, for learning."""
        return AdditivePairs(self.coordinates, self.coordinates.of(x))


def _shares(values: Array) -> tuple[Array, Array]:
    """σ² (1 - a) and σ² a/d of kernels with these `values`, each (s, 1)."""
    output, share = values[:, -2:-1], values[:, -1:]
    return output * (1.0 - share), output * share / (values.shape[1] - 2)


def _matern_sums(apart: Array, scales: Array, slopes: Array | None = None) -> tuple[Array, ...]:
    """M(r), (1 + √5 r) exp(-√5 r), and Σⱼ M(√d rⱼ), each (s, N), for s kernels with these length scales, (s, d).

    ``apart`` are distances along each column in units of the coordinates, (d, N). ``slopes`` becomes gⱼ, (s, d, N). An
    entry does not depend on the others.
    """
    (d, n), rates = apart.shape, _rates(scales)
    size = max(1, BLOCK_ENTRIES // (d * len(scales)))
    if n <= size and slopes is None:
        return _block_sums(rates * apart)[:3]
    found = np.empty((3, len(scales), n))
    for start in range(0, n, size):
        block = slice(start, start + size)
        found[0, :, block], found[1, :, block], found[2, :, block], g = _block_sums(rates * apart[:, block])
        if slopes is not None:
            slopes[:, :, block] = g
    return tuple(found)


def _rates(scales: Array) -> Array:
    """sⱼ for distances of 1 along each column, (s, d, 1)."""
    return np.minimum(math.sqrt(5.0 * scales.shape[1]) / scales, MAX_RATE)[:, :, None]


def _block_sums(t: Array) -> tuple[Array, Array, Array, Array]:
    """M(r), (1 + √5 r) exp(-√5 r), Σⱼ M(√d rⱼ), each (s, N), and gⱼ, (s, d, N), in place, of these sⱼ, (s, d, N)."""
    squares, decay = t * t, np.negative(t)
    np.exp(decay, out=decay)
    s = _added(squares)
    s *= 1.0 / t.shape[1]
    np.sqrt(s, out=s)
    t += 1.0
    t *= decay  # gⱼ
    squares *= decay
    total = _added(squares)
    total *= 1.0 / 3.0
    total += _added(t)
    decay = np.exp(-s)
    g = (1.0 + s) * decay
    s *= s
    s *= decay
    s *= 1.0 / 3.0
    s += g
    return s, g, total, t


def _added(terms: Array) -> Array:
    """The sum over columns, (s, N), one after the other: NumPy would round the sum of a single entry differently."""
    if terms.shape[2] > 1:
        return np.asarray(np.add.reduce(terms, axis=1))
    return np.asarray(reduce(np.add, terms.transpose(1, 0, 2)).copy())


class AdditivePairs:
    """k between all pairs of points with coordinates C, see `Pairs`."""

    def __init__(self, coordinates: Coordinates, c: Array) -> None:
        self.upper = upper(len(c))
        # Distances along each column, and their squares, (d, P).
        self._apart = coordinates.among(c, self.upper)
        self._squares = self._apart**2
        self._slopes = np.empty((0, *self._apart.shape))  # gⱼ

    def covariance(self, values: Array) -> Array:
        """k of each pair, (s, P)."""
        self._values, (d, pairs) = values, self._apart.shape
        joint_share, single_share = _shares(values)
        if len(self._slopes) != len(values):
            self._slopes = np.empty((len(values), d, pairs))
        self._joint, self._g, self._additive = _matern_sums(self._apart, values[:, :d], self._slopes)
        self._joint *= joint_share
        self._additive *= single_share
        return self._joint + self._additive

    def by_theta(self, weights: Array, diagonal: Array) -> Array:
        """Σ_ab W_ab ∂k_ab/∂θ, (s, d + 2).

        With g = (1 + √5 r) exp(-√5 r), ∂k/∂log ℓⱼ is 5/3 σ² [(1 - a) g + a gⱼ] rⱼ². With A the joint and B the
        additive part of k, ∂k/∂log σ² = A + B and ∂k/∂log(a/(1 - a)) = (1 - a) B - a A.
        """
        d, on_diagonal = len(self._squares), np.add.reduce(diagonal, axis=1)
        scales, output, share = self._values[:, :d], self._values[:, d], self._values[:, d + 1]
        by_joint = (weights * self._g) @ self._squares.T
        by_single = np.matmul(self._slopes * self._squares, weights[:, :, None])[:, :, 0]
        by_scales = (1.0 - share)[:, None] * by_joint + share[:, None] * by_single
        by_scales *= (10.0 / 3.0) * output[:, None] / scales**2
        joint = 2.0 * np.vecdot(weights, self._joint) + (1.0 - share) * output * on_diagonal
        additive = 2.0 * np.vecdot(weights, self._additive) + share * output * on_diagonal
        return np.column_stack((by_scales, joint + additive, (1.0 - share) * additive - share * joint))
