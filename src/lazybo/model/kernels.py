"""Matérn 5/2 on mixed and conditional columns.

======  ============================================================  ==========
symbol  meaning                                                       shape
======  ============================================================  ==========
X, U    points: one row each, one column a parameter                  (n, d)
ℓ       length scales, one a column                                   (d,)
σ²      output scale, k(x, x)                                         scalar
Z       features of X: Euclidean coordinates in units of ℓ            (n, D)
r       distance of two feature rows                                  (n, m)
s       √5 r                                                          (n, m)
k       σ² (1 + s + s²/3) exp(-s)   (paper, section 2.2)              (n, m)
h       -2 ∂k/∂(r²) = 5/3 σ² (1 + s) exp(-s)                          (n, m)
θ       (log ℓ₁, …, log ℓ_d, log σ²)                                  (d + 1,)
======  ============================================================  ==========

Every kind of column becomes Euclidean coordinates, in which Matérn 5/2 is positive definite; so the mixed kernel is
positive semidefinite by construction, and one formula serves all gradients:

- numeric: the value itself;
- categorical with c choices: the choice's corner of a simplex with edge 1, so that unequal choices are one apart;
- conditional (may be inactive, NaN): one more coordinate, 0 if active and 1 if not, beside a neutral value. Two
  inactive entries coincide; an inactive and an active one are at least as far apart as any two active ones in [0, 1].
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from lazybo.checks import Array, as_array, as_shape, positive

MAX_DISTANCE = 1e3
MIN_LENGTH_SCALE = 1e-300
# Where an inactive numeric entry lies: the middle of the unit interval, so that no active value is favoured.
INACTIVE_VALUE = 0.5


@dataclass(frozen=True, slots=True)
class Column:
    """What a column holds: a number, or one of ``categories`` choices as 0, 1, …; NaN only when ``conditional``."""

    categories: int = 0
    conditional: bool = False

    def __post_init__(self) -> None:
        if (
            isinstance(self.categories, bool)
            or not isinstance(self.categories, int | np.integer)
            or self.categories < 0
        ):
            raise ValueError(f"categories must be 0 (numeric) or the number of choices, not {self.categories!r}")

    @property
    def width(self) -> int:
        """How many feature coordinates it takes."""
        return max(self.categories, 1) + self.conditional


@dataclass(frozen=True, eq=False)
class Matern52:
    """Matérn 5/2 with a length scale for each column; immutable, so a changed parameter is a new kernel."""

    length_scales: Array
    output_scale: float = 1.0
    columns: Sequence[Column] = field(default=())

    def __post_init__(self) -> None:
        scales = as_array("length_scales", self.length_scales, 1).copy()
        if len(scales) == 0 or not (np.isfinite(scales).all() and (scales >= MIN_LENGTH_SCALE).all()):
            raise ValueError(f"length_scales must be positive finite numbers, one a column, not {scales}")
        scales.flags.writeable = False
        columns = tuple(self.columns) or (Column(),) * len(scales)
        if not all(isinstance(column, Column) for column in columns):
            raise ValueError(f"columns must be Column objects, not {columns}")
        if len(columns) != len(scales):
            raise ValueError(f"there are {len(scales)} length scales but {len(columns)} columns")
        object.__setattr__(self, "length_scales", scales)
        object.__setattr__(self, "output_scale", positive("output_scale", self.output_scale))
        object.__setattr__(self, "columns", columns)

    def __setstate__(self, state: dict[str, object]) -> None:
        """After a copy or unpickling: NumPy forgets that an array was read-only."""
        self.__dict__.update(state)
        self.length_scales.flags.writeable = False

    @property
    def dim(self) -> int:
        """Number of columns, d."""
        return len(self.length_scales)

    @property
    def theta(self) -> Array:
        """The logarithms of the length scales and of the output scale, (d + 1,)."""
        return np.log(np.append(self.length_scales, self.output_scale))

    def with_theta(self, theta: ArrayLike) -> "Matern52":
        """The same kernel with other parameters."""
        values = np.exp(as_shape("theta", theta, (self.dim + 1,)))
        return replace(self, length_scales=values[:-1], output_scale=values[-1])

    def check(self, x: ArrayLike, name: str = "X") -> Array:
        """``x`` as points of this kernel: (n, d), numbers finite, choices known, NaN in conditional columns only."""
        points = as_array(name, x, 2)
        if points.shape[1] != self.dim:
            raise ValueError(f"{name} must have {self.dim} columns, but has shape {points.shape}")
        inactive = np.isnan(points)
        allowed = np.array([column.conditional for column in self.columns])
        bad = np.isinf(points) | (inactive & ~allowed)
        if bad.any():
            row, j = np.argwhere(bad)[0]
            hint = "" if np.isinf(points[row, j]) else " (NaN means inactive, and the column is not conditional)"
            raise ValueError(f"{name} must be finite, but row {row}, column {j} is {points[row, j]}{hint}")
        for j, column in enumerate(self.columns):
            if column.categories:
                codes = points[~inactive[:, j], j]
                wrong = codes[(codes != np.floor(codes)) | (codes < 0) | (codes >= column.categories)]
                if len(wrong):
                    known = f"from 0 to {column.categories - 1}"
                    raise ValueError(f"{name}: column {j} holds a choice {known}, not {wrong[0]}")
        return points

    def __call__(self, x: ArrayLike, other: ArrayLike | None = None) -> Array:
        """k between the rows of two sets of points, (n, m); of ``x`` with itself when there is no other."""
        z = self.features(self.check(x))
        return self.between(z, z if other is None else self.features(self.check(other)))

    def features(self, x: Array) -> Array:
        """Z: the coordinates of points that were checked, in units of the length scales, (n, D)."""
        if not self._coded:
            return x / self.length_scales
        parts = [_coordinates(x[:, j], column) for j, column in enumerate(self.columns)]
        z: Array = np.hstack(parts)
        return z / self._feature_scales

    def between(self, z: Array, other: Array) -> Array:
        """k between the rows of two feature arrays, (n, m)."""
        s = _scaled_distance(z, other)
        return _value(s, self._decay(s))

    def with_slope(self, z: Array, other: Array) -> tuple[Array, Array]:
        """k and h between the rows of two feature arrays, each (n, m); both need the same exponentials."""
        s = _scaled_distance(z, other)
        decay = self._decay(s)
        h = s + 1.0
        h *= decay
        h *= 5.0 / 3.0
        return _value(s, decay), h

    def input_gradient(self, u: Array, z: Array, weighted_slope: Array) -> Array:
        """∂/∂u of Σᵢ wᵢ k(u, xᵢ) for each row of U, (m, d), from w ∘ h between U and X, (m, n), and Z.

        ∂k/∂u = -h (u - x)/ℓ². Categorical and inactive entries have gradient 0.
        """
        v = self.features(u)
        pull = weighted_slope @ z - v * weighted_slope.sum(axis=1, keepdims=True)
        gradient = pull[:, self._value_feature] / self.length_scales
        gradient[:, self._categorical] = 0.0
        gradient[np.isnan(u)] = 0.0
        return gradient

    def parameter_gradient(self, z: Array, weights: Array, k: Array, h: Array) -> Array:
        """Σ_ab W_ab ∂K_ab/∂θ for a symmetric W over one set of points with features Z, (d + 1,).

        ∂K/∂log σ² = K. ∂K/∂log ℓⱼ = h Δⱼ² with Δⱼ² the squared distance in the features of column j, and with w = W ∘ h
        Σ w_ab (z_a - z_b)² = 2 (Σ_a z_a² Σ_b w_ab - zᵀ w z): one matrix product instead of d passes over n²
        differences.
        """
        w = weights * h
        quadratic = (z * z).T @ w.sum(axis=1) - np.einsum("aj,aj->j", z, w @ z)
        per_column = np.bincount(self._feature_column, weights=2.0 * quadratic, minlength=self.dim)
        return np.append(per_column, np.vdot(weights, k))

    def _decay(self, s: Array) -> Array:
        """σ² exp(-s)."""
        decay = np.negative(s)
        np.exp(decay, out=decay)
        decay *= self.output_scale
        return decay

    # ------------------------------------------------------- derived from columns

    @cached_property
    def _coded(self) -> bool:
        """Whether any column needs more than its own value."""
        return any(column.categories or column.conditional for column in self.columns)

    @cached_property
    def _categorical(self) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        return np.array([column.categories > 0 for column in self.columns])

    @cached_property
    def _feature_column(self) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
        """The column that each feature belongs to, (D,)."""
        return np.repeat(np.arange(self.dim), [column.width for column in self.columns])

    @cached_property
    def _value_feature(self) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
        """The first feature of each column, which for a numeric one is its value, (d,)."""
        return np.searchsorted(self._feature_column, np.arange(self.dim))

    @cached_property
    def _feature_scales(self) -> Array:
        return self.length_scales[self._feature_column]


def _scaled_distance(z: Array, other: Array) -> Array:
    """s = √5 r. Differences are taken before they are squared: near duplicates keep their distance exactly."""
    s = cdist(z, other)
    s *= np.sqrt(5.0)
    # Beyond this the kernel is 0 in doubles, and infinity · 0 would be NaN.
    return np.minimum(s, MAX_DISTANCE, out=s)


def _value(s: Array, decay: Array) -> Array:
    """(1 + s + s²/3) · decay, with one temporary."""
    k = s * (1.0 / 3.0)
    k += 1.0
    k *= s
    k += 1.0
    k *= decay
    return k


def _coordinates(values: Array, column: Column) -> Array:
    """The features of one column in units of 1, (n, width)."""
    inactive = np.isnan(values)
    coordinates = np.zeros((len(values), column.width))
    if column.categories:
        # Corners at distance √2 · √½ = 1 from each other; an inactive entry lies in the middle of them.
        coordinates[:, : column.categories] = np.sqrt(0.5) / column.categories * inactive[:, None]
        active = np.flatnonzero(~inactive)
        coordinates[active, values[active].astype(np.intp)] = np.sqrt(0.5)
    else:
        coordinates[:, 0] = np.where(inactive, INACTIVE_VALUE, values)
    if column.conditional:
        coordinates[:, -1] = inactive
    return coordinates
