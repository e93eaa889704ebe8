"""Matérn 5/2 with an additive part: a sum over single columns.

======  ============================================================  ==========
symbol  meaning                                                       shape
======  ============================================================  ==========
ℓ       length scales, one for each column                            (d,)
σ²      output scale, k(x, x)                                         scalar
Z       features: coordinates in units of ℓ                           (n, D)
r, rⱼ   distance of two feature rows, and in column j alone           (m, n)
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
from typing import ClassVar, NamedTuple

import numpy as np

from lazybo.core import Array, checks
from lazybo.gp.kernels.base import INACTIVE_VALUE, Column, Coordinates, Kernel, Parameter, Several, upper
from lazybo.gp.kernels.matern import MAX_DISTANCE, Matern52, MaternSlope

# Entries of sⱼ to compute at a time, so that temporary arrays stay in the CPU cache.
BLOCK_ENTRIES = 8_192
# For numbers up to this, quotients of their exponentials do not overflow.
MAX_EXPONENT = 350.0


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
        return [*self.joint.layout, Parameter("share")]

    @staticmethod
    def values_at(theta: Array) -> Array:
        """The values for some θ, in the last axis."""
        values = np.exp(theta)
        values[..., -1] /= 1.0 + values[..., -1]
        return values

    @property
    def values(self) -> Array:
        """The length scales, the output scale and the share, (d + 2,)."""
        return np.append(self.length_scales, [self.output_scale, self.share])

    def prepared(self, z: Array) -> "Lines":
        """Z with its exponentials."""
        coordinates = self.coordinates
        first = z.T[coordinates.first] if coordinates.coded else z.T
        values = np.multiply(first, self._unit, order="C")
        if coordinates.labels:
            values[coordinates.labels] = 0.0  # only their distances count
        if self._middle is None:
            return Lines(z, values, None, None)
        grown = values - self._middle
        # Near the unit cube this depends only on the kernel: an entry of k must not depend on the other points.
        if np.abs(grown).max(initial=0.0) > MAX_EXPONENT:
            return Lines(z, values, None, None)
        np.exp(grown, out=grown)
        return Lines(z, values, grown, 1.0 / grown)

    def between(self, z: Array, other: "Array | Lines") -> Array:
        """k between the rows of two feature arrays, (m, n)."""
        rows = self.prepared(z)
        columns = rows if other is z else other if isinstance(other, Lines) else self.prepared(other)
        if self.coordinates.coded:
            counted = self.coordinates.counted_squares(z, columns.z, self.length_scales)
            k = self.joint.between(z, columns.z, counted)
            k += self._column_by_column(rows, columns, counted)
            return k
        k = self.joint.between(z, columns.z)
        for block in self._blocks(k):
            if columns is not rows:
                k[block] += self._additive(rows.block(block), columns)[0]
                continue
            k[block, : block.stop] += self._additive(rows.block(block), rows.block(slice(0, block.stop)))[0]
            k[: block.start, block] = k[block, : block.start].T
        return k

    def with_slope(self, z: Array, other: "Array | Lines") -> tuple[Array, "AdditiveSlope"]:
        """k between the rows of two feature arrays, (m, n), and its derivatives."""
        rows, columns = self.prepared(z), other if isinstance(other, Lines) else self.prepared(other)
        k, joint = self.joint.with_slope(z, columns.z)
        additive, pull, difference = self._additive(rows, columns)
        pull *= difference
        k += additive
        return k, AdditiveSlope(self, joint, pull)

    def pairs(self, x: Array) -> "AdditivePairs":
        """k between all pairs of validated points, for learning."""
        return AdditivePairs(self.coordinates, self.coordinates.of(x))

    def _additive(self, rows: "Lines", columns: "Lines") -> tuple[Array, Array, Array]:
        """σ² a/d Σⱼ (1 + sⱼ + sⱼ²/3) exp(-sⱼ), (m, n); gⱼ, (d, m, n); the differences p - q of points, (d, m, n).

        exp(-|p - q|) is the smaller of exp(p) exp(-q) and exp(q) exp(-p). So each entry needs two products instead of
        an exponential, unless exp(p) would overflow.
        """
        difference = rows.values[:, :, None] - columns.values[:, None, :]
        s = np.abs(difference)
        for j in self._wide:
            s[j] = self.coordinates.distances_in(j, rows.z, columns.z, self.length_scales) * self._unit
        if rows.grown is None or columns.grown is None or rows.shrunk is None or columns.shrunk is None:
            np.minimum(s, MAX_DISTANCE, out=s)
            decay = np.exp(-s)
            g = s * decay
        else:
            decay = rows.grown[:, :, None] * columns.shrunk[:, None, :]
            g = rows.shrunk[:, :, None] * columns.grown[:, None, :]
            np.minimum(decay, g, out=decay)
            for j in self._wide:
                np.minimum(s[j], MAX_DISTANCE, out=s[j])
                decay[j] = np.exp(-s[j])
            np.multiply(s, decay, out=g)
        s *= g
        s *= 1.0 / 3.0
        g += decay
        s += g
        # A single entry column by column: np.add.reduce would round its sum differently.
        total: Array = np.add.reduce(s, axis=0) if s[0].size > 1 else reduce(np.add, s)
        total *= self.output_scale * self.share / self.dim
        return total, g, difference

    def _column_by_column(self, rows: "Lines", columns: "Lines", counted: Sequence[Array]) -> Array:
        """The first result of `_additive` to the last bit, for kernels with choices or blocks; ``counted`` as there.

        A choice has two values of M: for the same and for another choice.
        """
        total = np.zeros((len(rows.z), len(columns.z)))
        squares = dict(zip(self.coordinates.counted, counted, strict=True))
        for j, column in enumerate(self.columns):
            if column.is_corner:
                total += self._of_choices(j, rows.z, columns.z)
                continue
            if j in squares:
                s = np.sqrt(squares[j], out=squares[j])
                s *= self._unit
            elif j in self._wide:
                s = self.coordinates.distances_in(j, rows.z, columns.z, self.length_scales) * self._unit
            else:
                total += _matern(np.abs(rows.values[j, :, None] - columns.values[j]), rows.decay(columns, j))
                continue
            total += _matern(np.minimum(s, MAX_DISTANCE, out=s), None)
        total *= self.output_scale * self.share / self.dim
        return total

    def _of_choices(self, j: int, z: Array, other: Array) -> Array:
        """M(sⱼ) of a column of choices, (m, n)."""
        span = self.coordinates.span(j)
        mine, theirs = z[:, span].argmax(axis=1), other[:, span].argmax(axis=1)
        edge = 2.0 * (math.sqrt(0.5) / self.length_scales[j]) ** 2
        s = np.minimum(np.sqrt(np.array([0.0, edge])) * self._unit, MAX_DISTANCE)
        table: Array = _matern(s, None)[(theirs != np.arange(self.columns[j].categories)[:, None]).astype(np.intp)]
        return table[mine]

    def _blocks(self, k: Array) -> list[slice]:
        """The rows of k in blocks that are computed one after the other."""
        size = max(1, BLOCK_ENTRIES // max(1, self.dim * k.shape[1]))
        return [slice(start, start + size) for start in range(0, len(k), size)]

    @cached_property
    def _unit(self) -> float:
        """√(5 d)."""
        return math.sqrt(5.0 * self.dim)

    @cached_property
    def slope_scales(self) -> Array:
        """-σ² a/(3 d) √(5 d)/ℓ: the derivative of the additive part by a coordinate, for g (p - q) = 1, (d,)."""
        return -self._unit / (3.0 * self.dim) * self.share * self.output_scale / self.length_scales

    @cached_property
    def _middle(self) -> Array | None:
        """The middle of the unit interval in units of `Lines`, (d, 1); None if exponentials in it are too large."""
        middle = self._unit * INACTIVE_VALUE / self.length_scales[:, None]
        return None if 2.0 * middle.max() > MAX_EXPONENT else middle

    @cached_property
    def joint(self) -> Matern52:
        """The part of the kernel that is not additive."""
        return Matern52(self.length_scales, (1.0 - self.share) * self.output_scale, self.columns)

    @cached_property
    def _wide(self) -> list[int]:
        """The columns whose distances are not differences of one feature."""
        return [j for j, column in enumerate(self.columns) if column.width > 1 or column.is_label]


def _matern(s: Array, decay: Array | None) -> Array:
    """M(s), in place, from s and exp(-s) if it is known."""
    decay = np.exp(-s) if decay is None else decay
    g = s * decay
    s *= g
    s *= 1.0 / 3.0
    g += decay
    s += g
    return s


class Lines(NamedTuple):
    """Points projected on each column, in units in which distances are sⱼ.

    ``z`` are the features, (n, D), and ``values`` the first feature of each column in these units, (d, n). With c =
    ``values`` minus the middle of the unit interval, ``grown`` is exp(c) and ``shrunk`` exp(-c), or both are None if
    some of them are too large.
    """

    z: Array
    values: Array
    grown: Array | None
    shrunk: Array | None

    def decay(self, other: "Lines", j: int) -> Array | None:
        """exp(-sⱼ) of the points with others, (m, n), by products as in `_additive`; None if they would overflow."""
        if self.grown is None or other.grown is None or self.shrunk is None or other.shrunk is None:
            return None
        decay = self.grown[j, :, None] * other.shrunk[j]
        return np.minimum(decay, self.shrunk[j, :, None] * other.grown[j], out=decay)

    def block(self, rows: slice) -> "Lines":
        """Some of the points."""
        if rows.start == 0 and rows.stop >= len(self.z):
            return self
        if self.grown is None or self.shrunk is None:
            return Lines(self.z[rows], self.values[:, rows], None, None)
        return Lines(self.z[rows], self.values[:, rows], self.grown[:, rows], self.shrunk[:, rows])


@dataclass(frozen=True, slots=True)
class AdditiveSlope:
    """The derivatives of k between two sets of points: of its joint part, and of its additive part.

    ``pull`` is gⱼ (pⱼ - qⱼ), (d, m, n), where p - q is the difference of two points in units of `Lines`.
    """

    kernel: AdditiveMatern52
    joint: MaternSlope
    pull: Array

    def by_points(self, weights: Array) -> Array:
        """∂/∂u of Σᵢ wᵢ k(u, xᵢ) for each point u of the first set, (m, w).

        The derivative of M(s) by s is -s g / 3, and s = √(5 d) |uⱼ - xⱼ|/ℓⱼ.
        """
        kernel, coordinates = self.kernel, self.kernel.coordinates
        gradient: Array = np.vecdot(self.pull, weights).T * kernel.slope_scales
        if coordinates.coded:
            gradient[coordinates.without_slope(self.joint.z)] = 0.0
            gradient = coordinates.by_number(gradient)
        gradient += self.joint.by_points(weights)
        return gradient


def _matern_sums(apart: Array, scales: Array, slopes: Array | None = None) -> tuple[Array, Array, Array]:
    """M(r), (1 + √5 r) exp(-√5 r), and Σⱼ M(√d rⱼ), each (s, N), for s kernels with these length scales, (s, d).

    ``apart`` are distances along each column in units of the coordinates, (d, N). ``slopes`` becomes gⱼ sⱼ², (s, d, N).
    An entry does not depend on the others: columns are added one after the other.
    """
    d = len(apart)
    per_unit = math.sqrt(5.0 * d) / scales
    clipped = bool((apart.max(axis=1, initial=0.0) * per_unit).max() > MAX_DISTANCE)
    squares, total = np.zeros((2, len(scales), apart.shape[1]))
    for j in range(d):
        t = per_unit[:, j, None] * apart[j]
        if clipped:
            np.minimum(t, MAX_DISTANCE, out=t)
        square, decay = t * t, np.exp(-t)
        squares += square
        t += 1.0
        t *= decay  # gⱼ
        total += t
        if slopes is not None:
            np.multiply(square, t, out=slopes[:, j])
        square *= decay
        square *= 1.0 / 3.0
        total += square
    squares *= 1.0 / d
    s = np.sqrt(squares, out=squares)
    decay = np.exp(-s)
    g = (1.0 + s) * decay
    s *= s
    s *= decay
    s *= 1.0 / 3.0
    s += g
    return s, g, total


class SeveralAdditive(Several):
    """Several additive kernels that differ only in θ, between the same points: their distances are computed once."""

    kernels: Sequence[AdditiveMatern52]

    def __init__(self, kernels: Sequence[AdditiveMatern52]) -> None:
        super().__init__(kernels)
        self._scales = np.array([each.length_scales for each in kernels])
        outputs, shares = np.array([(each.output_scale, each.share) for each in kernels]).T
        self._joint, self._single = (outputs * (1.0 - shares))[:, None], (outputs * shares / kernels[0].dim)[:, None]

    def between(self, c: Array, other: Array) -> Array:
        """k of each kernel between the rows of two sets of coordinates, (s, m, n)."""
        k = np.empty((len(self.kernels), len(c), len(other)))
        size = max(1, BLOCK_ENTRIES // max(1, len(k) * len(other)))
        for start in range(0, len(c), size):
            rows = slice(start, start + size)
            apart = self.coordinates.apart(c[rows], other)
            joint, _, single = _matern_sums(apart.reshape(len(apart), math.prod(apart.shape[1:])), self._scales)
            joint *= self._joint
            single *= self._single
            joint += single
            k[:, rows] = joint.reshape(len(k), apart.shape[1], len(other))
        return k


AdditiveMatern52.several = SeveralAdditive


class AdditivePairs:
    """k between all pairs of points with coordinates C, see `Pairs`."""

    def __init__(self, coordinates: Coordinates, c: Array) -> None:
        self.upper = upper(len(c))
        # Distances along each column, (d, P).
        self._apart = np.array([each[self.upper] for each in coordinates.along_columns(c, c)])
        self._slopes = np.empty((0, *self._apart.shape))  # gⱼ sⱼ²

    def covariance(self, values: Array) -> Array:
        """k of each pair, (s, P)."""
        self._values, (d, pairs) = values, self._apart.shape
        scales, outputs, shares = values[:, :d], values[:, d, None], values[:, d + 1, None]
        if len(self._slopes) != len(values):
            self._slopes = np.empty((len(values), d, pairs))
        self._joint, self._g, self._additive = np.empty((3, len(values), pairs))
        size = max(1, BLOCK_ENTRIES // len(values))
        for start in range(0, pairs, size):
            block = slice(start, start + size)
            found = _matern_sums(self._apart[:, block], scales, self._slopes[:, :, block])
            self._joint[:, block], self._g[:, block], self._additive[:, block] = found
        self._joint *= outputs * (1.0 - shares)
        self._additive *= outputs * shares / d
        return self._joint + self._additive

    def by_theta(self, weights: Array, diagonal: Array) -> Array:
        """Σ_ab W_ab ∂k_ab/∂θ, (s, d + 2).

        With g = (1 + √5 r) exp(-√5 r), ∂k/∂log ℓⱼ is σ²/(3 d) [(1 - a) g + a gⱼ] sⱼ². With A the joint and B the
        additive part of k, ∂k/∂log σ² = A + B and ∂k/∂log(a/(1 - a)) = (1 - a) B - a A.
        """
        d, on_diagonal = len(self._apart), np.add.reduce(diagonal, axis=1)
        scales, output, share = self._values[:, :d], self._values[:, d], self._values[:, d + 1]
        by_joint = (weights * self._g) @ (self._apart**2).T * (5.0 * d) / scales**2
        by_single = np.matmul(self._slopes, weights[:, :, None])[:, :, 0]
        by_scales = (1.0 - share)[:, None] * by_joint + share[:, None] * by_single
        by_scales *= (2.0 / (3.0 * d)) * output[:, None]
        joint = 2.0 * np.vecdot(weights, self._joint) + (1.0 - share) * output * on_diagonal
        additive = 2.0 * np.vecdot(weights, self._additive) + share * output * on_diagonal
        return np.column_stack((by_scales, joint + additive, (1.0 - share) * additive - share * joint))
