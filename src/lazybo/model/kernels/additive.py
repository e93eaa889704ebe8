"""Matérn 5/2 with an additive part: a sum of one-dimensional kernels, one for each column.

======  ============================================================  ==========
symbol  meaning                                                       shape
======  ============================================================  ==========
M       Matérn 5/2 with output scale 1, as a function of the distance
a       share of the variance that is additive, in (0, 1)             scalar
r, rⱼ   distance of two feature rows, and in column j alone           (m, n)
sⱼ      √(5 d) rⱼ                                                     (d, m, n)
k       σ² [(1 - a) M(r) + a/d Σⱼ M(√d rⱼ)]                           (m, n)
gⱼ      (1 + sⱼ) exp(-sⱼ)                                             (d, m, n)
θ       (log ℓ₁, …, log ℓ_d, log σ², log a/(1 - a))                   (d + 2,)
======  ============================================================  ==========

Two points that agree in one coordinate and differ in all others are far apart for M(r), so they are uncorrelated there.
In the additive part they stay correlated by that coordinate. Objectives that are nearly a sum over their parameters are
therefore learned from far fewer observations.

Why √d: distances in the unit cube grow with √d, and so do the length scales, but the distance in one column does not.
With the factor √d, -∂²k/∂x² at a point is the same for every a, so ℓⱼ is the distance that matters along column j for
every share.

Sums and positive multiples of positive semidefinite kernels are positive semidefinite, so k is too, for all columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from lazybo.checks import Array, as_shape, positive
from lazybo.model.kernels.base import Parameter
from lazybo.model.kernels.columns import INACTIVE_VALUE, Column
from lazybo.model.kernels.matern import MAX_DISTANCE, Matern52, MaternSlope

# How many entries of sⱼ are computed at a time, so that temporary arrays stay in the CPU cache.
BLOCK_ENTRIES = 16_384
# For numbers up to this, quotients of their exponentials do not overflow.
MAX_EXPONENT = 350.0


@dataclass(frozen=True, eq=False)
class AdditiveMatern52:
    """Matérn 5/2 in which a ``share`` of the variance is a sum of one-dimensional kernels. Immutable."""

    length_scales: Array
    output_scale: float = 1.0
    share: float = 0.5
    columns: Sequence[Column] = field(default=())

    name: ClassVar[str] = "additive"

    def __post_init__(self) -> None:
        share = positive("share", self.share)
        if share >= 1:
            raise ValueError(f"share must be between 0 and 1, not {share}")
        scale = positive("output_scale", self.output_scale)
        joint = Matern52(self.length_scales, (1.0 - share) * scale, self.columns)
        object.__setattr__(self, "length_scales", joint.length_scales)
        object.__setattr__(self, "output_scale", scale)
        object.__setattr__(self, "share", share)
        object.__setattr__(self, "columns", joint.columns)

    def __setstate__(self, state: dict[str, object]) -> None:
        """After a copy or unpickling NumPy arrays are writable: make them read-only again."""
        self.__dict__.update(state)
        self.length_scales.flags.writeable = False

    @property
    def dim(self) -> int:
        """Number of columns, d."""
        return self.joint.dim

    @property
    def theta(self) -> Array:
        """The logarithms of the length scales, of the output scale and of the share's odds, (d + 2,)."""
        odds = self.share / (1.0 - self.share)
        return np.log(np.append(self.length_scales, [self.output_scale, odds]))

    @property
    def layout(self) -> list[Parameter]:
        """The kind of each entry of θ."""
        return [*self.joint.layout, Parameter("share")]

    @property
    def ranges(self) -> Array:
        """The length scales, (d,)."""
        return self.length_scales

    def with_theta(self, theta: ArrayLike) -> "AdditiveMatern52":
        """The same kernel with other parameters."""
        values = np.exp(as_shape("theta", theta, (self.dim + 2,)))
        values[-1] /= 1.0 + values[-1]
        return self.with_values(values)

    @property
    def values(self) -> Array:
        """The length scales, the output scale and the share, (d + 2,)."""
        return np.append(self.length_scales, [self.output_scale, self.share])

    def with_values(self, values: ArrayLike) -> "AdditiveMatern52":
        """The same kernel with other length scales, another output scale and another share, (d + 2,)."""
        checked = as_shape("values", values, (self.dim + 2,))
        return replace(self, length_scales=checked[:-2], output_scale=checked[-2], share=checked[-1])

    def check(self, x: ArrayLike, name: str = "X") -> Array:
        """Validated points of this kernel, (n, d): finite numbers, known choices, NaN only in conditional columns."""
        return self.joint.check(x, name)

    def __call__(self, x: ArrayLike, other: ArrayLike | None = None) -> Array:
        """k between the rows of two sets of points, (m, n); between those of ``x`` if there is no other."""
        z = self.features(self.check(x))
        return self.between(z, z if other is None else self.features(self.check(other)))

    def features(self, x: Array) -> Array:
        """Z: the coordinates of validated points, in units of the length scales, (n, D)."""
        return self.joint.features(x)

    def diagonal(self, z: Array) -> Array:
        """σ² for each point, (n,)."""
        return np.full(len(z), self.output_scale)

    def between(self, z: Array, other: Array) -> Array:
        """k between the rows of two feature arrays, (m, n)."""
        k = self.joint.between(z, other)
        rows, columns = self._lines(z), self._lines(other)
        size = self._block_rows(len(other))
        s, g = np.empty((2, self.dim, min(size, len(z)), len(other)))
        for start in range(0, len(z), size):
            block = rows.block(start, start + size)
            m = len(block.z)
            k[start : start + m] += self._additive(block, columns, s[:, :m], g[:, :m])
        return k

    def with_slope(self, z: Array, other: Array) -> tuple[Array, "AdditiveSlope"]:
        """k between the rows of two feature arrays, (m, n), and its derivatives."""
        k, joint = self.joint.with_slope(z, other)
        rows = self._lines(z)
        columns = rows if other is z else self._lines(other)
        size = self._block_rows(len(other))
        s, g = np.empty((2, self.dim, *k.shape))
        additive = np.empty_like(k)
        for start in range(0, len(z), size):
            block = slice(start, start + size)
            additive[block] = self._additive(rows.block(start, start + size), columns, s[:, block], g[:, block])
        return k + additive, AdditiveSlope(self, joint, additive, s, g)

    def _lines(self, z: Array) -> "Lines":
        unit = np.sqrt(5.0 * self.dim)
        z = z * unit
        values = z.T[self.joint.coordinates.first]
        middle = unit * INACTIVE_VALUE / self.length_scales
        centred = values - middle[:, None]
        # Near the unit cube this depends only on the kernel: an entry of k must not depend on the other points.
        if 2.0 * middle.max() > MAX_EXPONENT or np.abs(centred).max(initial=0.0) > MAX_EXPONENT:
            return Lines(z, values, None)
        return Lines(z, values, np.exp(centred))

    def _additive(self, rows: "Lines", columns: "Lines", s: Array, g: Array) -> Array:
        """σ² a/d Σⱼ (1 + sⱼ + sⱼ²/3) exp(-sⱼ), (m, n); sⱼ and gⱼ are written to ``s`` and ``g``, (d, m, n).

        exp(-|p - q|) is the smaller of exp(p) / exp(q) and exp(q) / exp(p). So each entry needs a division instead of
        an exponential, unless exp(p) would overflow.
        """
        np.subtract(rows.values[:, :, None], columns.values[:, None, :], out=s)
        np.abs(s, out=s)
        for j, features in self._wide:
            s[j] = cdist(rows.z[:, features], columns.z[:, features])
        # Beyond this the kernel is 0 in doubles, and infinity · 0 would be NaN.
        np.minimum(s, MAX_DISTANCE, out=s)
        if rows.exp is None or columns.exp is None:
            decay = np.exp(-s)
        else:
            decay = rows.exp[:, :, None] / columns.exp[:, None, :]
            np.divide(columns.exp[:, None, :], rows.exp[:, :, None], out=g)
            np.minimum(decay, g, out=decay)
            for j, _ in self._wide:
                decay[j] = np.exp(-s[j])
        np.multiply(s, decay, out=g)
        values = s * g
        values *= 1.0 / 3.0
        g += decay
        values += g
        # Column by column: the rounding of np.sum depends on the shape, and is different for a single entry.
        total: Array = values[0]
        for value in values[1:]:
            total += value
        total *= self.output_scale * self.share / self.dim
        return total

    def _block_rows(self, width: int) -> int:
        """How many rows to compute at a time."""
        return max(1, BLOCK_ENTRIES // max(1, self.dim * width))

    @cached_property
    def joint(self) -> Matern52:
        """The part of the kernel that is not additive."""
        return Matern52(self.length_scales, (1.0 - self.share) * self.output_scale, self.columns)

    @cached_property
    def _wide(self) -> list[tuple[int, slice]]:
        """The columns with several features, each with the slice of its features."""
        first = self.joint.coordinates.first
        wide = [(j, column.width) for j, column in enumerate(self.columns) if column.width > 1]
        return [(j, slice(first[j], first[j] + width)) for j, width in wide]


class Lines(NamedTuple):
    """Points projected on each column, in units in which distances are sⱼ.

    ``z`` are all features, (n, D), and ``values`` the first feature of each column, (d, n). ``exp`` are the
    exponentials of ``values`` minus the middle of the unit interval, or None if some of them are too large.
    """

    z: Array
    values: Array
    exp: Array | None

    def block(self, start: int, stop: int) -> "Lines":
        """The points from ``start`` to ``stop``."""
        if start == 0 and stop >= len(self.z):
            return self
        exp = None if self.exp is None else self.exp[:, start:stop]
        return Lines(self.z[start:stop], self.values[:, start:stop], exp)


@dataclass(frozen=True, slots=True)
class AdditiveSlope:
    """The derivatives of k between two sets of points, from those of its joint part, its additive part, sⱼ and gⱼ."""

    kernel: AdditiveMatern52
    joint: MaternSlope
    additive: Array
    s: Array
    g: Array

    def by_points(self, weights: Array) -> Array:
        """∂/∂u of Σᵢ wᵢ k(u, xᵢ) for each point u of the first set, (m, d).

        ∂/∂uⱼ of a/d M(√d rⱼ) is -5/3 a gⱼ (uⱼ - xⱼ)/ℓⱼ².
        """
        kernel, coordinates = self.kernel, self.kernel.joint.coordinates
        w = weights * self.g
        z, other = self.joint.z[:, coordinates.first], self.joint.other[:, coordinates.first]
        pull = (w @ other.T[:, :, None])[:, :, 0].T - z * w.sum(axis=2).T
        gradient = 5.0 / 3.0 * kernel.share * kernel.output_scale * pull / kernel.length_scales
        gradient[coordinates.without_slope(self.joint.z)] = 0.0
        return self.joint.by_points(weights) + gradient

    def by_theta(self, weights: Array) -> Array:
        """Σ_ab W_ab ∂k_ab/∂θ for a symmetric W over one set of points with itself, (d + 2,).

        ∂/∂log ℓⱼ of a/d M(√d rⱼ) is 5/3 a gⱼ rⱼ² = a gⱼ sⱼ² / (3 d). With A the joint and B the additive part of k,
        ∂k/∂log σ² = A + B and ∂k/∂log(a/(1 - a)) = (1 - a) B - a A.
        """
        kernel, share = self.kernel, self.kernel.share
        by_joint = self.joint.by_theta(weights)
        w = self.s * self.s
        w *= self.g
        by_scales = w.reshape(kernel.dim, -1) @ np.ascontiguousarray(weights).reshape(-1)
        by_scales *= share * kernel.output_scale / (3.0 * kernel.dim)
        joint, additive = by_joint[-1], np.vdot(weights, self.additive)
        return np.concatenate((by_joint[:-1] + by_scales, [joint + additive, (1.0 - share) * additive - share * joint]))
