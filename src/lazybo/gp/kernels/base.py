"""The interface of a kernel, and mixed and conditional columns as Euclidean coordinates.

======  ============================================================  ==========
symbol  meaning                                                       shape
======  ============================================================  ==========
X, U    points: one row each, with the numbers of all columns         (n, w)
d, w    columns, and the numbers in a row: more, if some have several scalar
C       features of X: coordinates, one or more for each column       (n, D)
ℓ       length scales, one for each column                            (d,)
k       covariance of two points                                      (m, n)
θ       the kernel's parameters, each as a logarithm                  (p,)
======  ============================================================  ==========

The coordinates of a column:

- numeric: the value itself;
- a *block* of several numbers with one length scale: these numbers. They describe one thing, such as a graph, and only
  change together, so there are no derivatives by them;
- categorical: the choice, or -1 if inactive. It is only compared: two different choices have distance 1, as the corners
  of a simplex, and an inactive one is as far from a choice as a point above the center of the simplex;
- conditional numbers and blocks (may be inactive, NaN): one more coordinate, 0 if active and 1 if not. The other
  coordinates of an inactive entry have a neutral value. Two inactive entries coincide; an inactive and an active one
  are at least as far apart as any two active ones in [0, 1].

So a kernel that is positive definite in Euclidean space is positive definite on these points.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist

from lazybo.core import Array, checks

Index: TypeAlias = NDArray[np.intp]
Mask: TypeAlias = NDArray[np.bool_]

# The name of the default kernel.
DEFAULT = "additive"
# The coordinate of an inactive number: the middle of the unit interval, so that no active value is favoured.
INACTIVE_VALUE = 0.5
# The coordinate of an inactive choice.
INACTIVE_CHOICE = -1.0
# The smallest length scale.
MIN_LENGTH_SCALE = 1e-300


@dataclass(frozen=True, slots=True)
class Column:
    """A column of numbers, or of ``categories`` choices as 0, 1, …. Only ``conditional`` columns may have NaN.

    A column with a ``size`` above 1 is a block of as many numbers with one length scale. If they are whole multiples of
    some number, that is their ``unit``. The kernel does not see the ``before`` numbers of a point before its own.
    ``typical`` is the usual length scale of a column with one number compared with others. Priors use it.
    """

    categories: int = 0
    conditional: bool = False
    typical: float = field(default=1.0, compare=False)
    size: int = 1
    unit: float = 0.0
    before: int = 0

    def __post_init__(self) -> None:
        if not checks.is_whole(self.categories) or self.categories < 0:
            raise ValueError(f"categories must be 0 (numeric) or the number of choices, not {self.categories!r}")

    @property
    def width(self) -> int:
        """The number of coordinates."""
        return 1 if self.categories else self.size + self.conditional

    @property
    def is_counted(self) -> bool:
        """Whether it is a block of whole numbers in every row."""
        return self.unit > 0 and self.size > 1 and not self.conditional

    @property
    def is_apart(self) -> bool:
        """Whether its distances are not those of one coordinate: several numbers, or a choice that may be inactive."""
        return self.width > 1 or (self.categories > 0 and self.conditional)

    @property
    def is_optional(self) -> bool:
        """Whether it is a number that may be inactive."""
        return self.conditional and not self.is_fixed

    @property
    def is_fixed(self) -> bool:
        """Whether there are no derivatives by its numbers: it is a choice or a block."""
        return self.categories > 0 or self.size > 1


@dataclass(frozen=True, slots=True)
class Parameter:
    """The kind of an entry of θ: the log of a column's length scale, of k(x, x), or of the odds of a share."""

    kind: Literal["length_scale", "output_scale", "share"]
    column: Column | None = None


class Pairs(Protocol):
    """k between all pairs of n points while θ changes, for learning. What does not depend on θ is computed once.

    The P = n (n - 1)/2 pairs a < b are in the order of `upper`, row by row.
    """

    # Where an (n, n) matrix is above its diagonal.
    upper: Mask

    def covariance(self, values: Array) -> Array:
        """k of each pair, (s, P), for s kernels with these `Kernel.values`, (s, p)."""

    def by_theta(self, weights: Array, diagonal: Array) -> Array:
        """Σ_ab W_ab ∂k_ab/∂θ of the last covariances, (s, p).

        W is symmetric: its entries are W_ab of the pairs, (s, P), and W_aa, (s, n).
        """


def upper(n: int) -> Mask:
    """Where a square matrix is above its diagonal, (n, n): the places of the pairs a < b, row by row."""
    places = np.arange(n)
    return places[:, None] < places


class Coordinates:
    """Converts points with these columns to coordinates."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self.columns = columns
        widths = [column.width for column in columns]
        # The first coordinate of each column, (d,): for a numeric column it is the value. The column of each one, (D,).
        self.first = np.cumsum([0, *widths])[:-1]
        self._column = np.repeat(np.arange(len(columns)), widths)
        # Columns of choices; those whose distances are not differences of one coordinate; those without derivatives.
        self._choices = [j for j, each in enumerate(columns) if each.categories and not each.conditional]
        self._alone = [j for j, each in enumerate(columns) if each.is_apart]
        self._fixed = [j for j, each in enumerate(columns) if each.is_fixed]
        self._maybe = [j for j, each in enumerate(columns) if each.is_optional]
        self._compared = any(each.categories or each.is_counted for each in columns)
        # Whether coordinates are the numbers of points.
        self._plain = not any(each.conditional or each.before for each in columns)

    def check(self, x: ArrayLike, name: str = "X") -> Array:
        """Validated points, (n, w): finite numbers, known choices, NaN only in conditional columns."""
        points = checks.as_array(name, x, 2)
        if points.shape[1] != len(self.owner):
            raise ValueError(f"{name} must have {len(self.owner)} columns, but has shape {points.shape}")
        inactive = np.isnan(points)
        bad = np.isinf(points) | (inactive & self._needed)
        if bad.any():
            row, j = np.argwhere(bad)[0]
            hint = "" if np.isinf(points[row, j]) else " (NaN means inactive, and the column is not conditional)"
            raise ValueError(f"{name} must be finite, but row {row}, column {j} is {points[row, j]}{hint}")
        for j, column in zip(self.start.tolist(), self.columns, strict=True):
            if column.categories:
                codes = points[~inactive[:, j], j]
                wrong = codes[(codes != np.floor(codes)) | (codes < 0) | (codes >= column.categories)]
                if len(wrong):
                    known = f"from 0 to {column.categories - 1}"
                    raise ValueError(f"{name}: column {j} must have choices {known}, not {wrong[0]}")
        return points

    def of(self, x: Array) -> Array:
        """C of validated points, (n, D)."""
        if self._plain:
            return x
        places = zip(self.start.tolist(), self.columns, strict=True)
        return np.hstack([_coordinates(x[:, j : j + column.size], column) for j, column in places])

    def apart(self, c: Array, other: Array) -> Array:
        """Distances between the rows of two sets of coordinates along each column, (d, m, n).

        They don't depend on θ, and an entry does not depend on the other points.
        """
        one, other_one = self.leading(c), self.leading(other)
        apart: Array = np.subtract(one.T[:, :, None], other_one.T[:, None, :], order="C")
        np.abs(apart, out=apart)
        for j in self._choices:
            np.minimum(apart[j], 1.0, out=apart[j])
        for j in self._alone:
            apart[j] = self.along(j, c, other)
        return apart

    def leading(self, c: Array) -> Array:
        """The first coordinate of each column, (n, d)."""
        return c if len(self._column) == len(self.first) else c[:, self.first]

    def along(self, j: int, c: Array, other: Array) -> Array:
        """The same along one column, (m, n)."""
        column, span = self.columns[j], slice(self.first[j], self.first[j] + self.columns[j].width)
        one, two = c[:, span], other[:, span]
        if column.categories:
            apart = (one != two[:, 0]).astype(float)
            if column.conditional:
                to_inactive = math.sqrt(1.0 + 0.5 * (1.0 - 1.0 / column.categories))
                np.copyto(apart, to_inactive, where=(one == INACTIVE_CHOICE) != (two[:, 0] == INACTIVE_CHOICE))
            return apart
        if column.width == 1:
            return np.abs(one - two[:, 0])
        if not column.is_counted:
            return cdist(one, two)
        # A matrix product of whole numbers is exact, so an entry does not depend on the others, and equal rows have
        # distance 0. It takes a fifth of the time of differences.
        one = np.rint(one / column.unit)
        two = one if other is c else np.rint(two / column.unit)
        squares = -2.0 * (one @ two.T)
        squares += np.vecdot(one, one)[:, None]
        squares += np.vecdot(two, two)
        return column.unit * np.sqrt(squares)

    def among(self, c: Array, pairs: Mask) -> Array:
        """The same for some pairs of the same points, (d, P)."""
        return np.array([self.along(j, c, c)[pairs] for j in range(len(self.columns))])

    def distances(self, c: Array, other: Array, ranges: Array) -> Array:
        """Distances between the rows of two sets of coordinates in units of ``ranges``, (d,): (m, n)."""
        if not self._compared:
            scales = ranges[self._column]
            return cdist(c / scales, other / scales)
        squares = np.zeros((len(c), len(other)))
        for j, scale in enumerate(ranges):
            squares += (self.along(j, c, other) / scale) ** 2
        return np.sqrt(squares, out=squares)

    def by_number(self, by_column: Array, c: Array) -> Array:
        """Derivatives by the numbers of points with coordinates C, (m, w), from those by columns, (m, d).

        They are 0 for choices, blocks and inactive entries.
        """
        by_column[:, self._fixed] = 0.0
        for j in self._maybe:
            by_column[c[:, self.first[j] + 1] != 0, j] = 0.0
        if len(self.owner) == len(self.columns):
            return by_column
        derivatives = np.zeros((len(by_column), len(self.owner)))
        derivatives[:, self.start] = by_column
        return derivatives

    @cached_property
    def owner(self) -> Index:
        """The column of each number of a point, (w,)."""
        return np.repeat(np.arange(len(self.columns)), [column.before + column.size for column in self.columns])

    @cached_property
    def start(self) -> Index:
        """The first number of each column in a point that the kernel sees, (d,)."""
        before = np.array([column.before for column in self.columns], dtype=np.intp)
        return np.searchsorted(self.owner, np.arange(len(self.columns))) + before

    @cached_property
    def _needed(self) -> Mask:
        """Which numbers of a point must not be NaN, (w,)."""
        needed = ~np.array([each.conditional for each in self.columns])[self.owner]
        needed[np.arange(len(needed)) < self.start[self.owner]] = False  # not seen
        return needed


# Learning makes hundreds of kernels that differ only in θ.
coordinates_of = lru_cache(maxsize=64)(Coordinates)


def _coordinates(values: Array, column: Column) -> Array:
    """The coordinates of one column with the numbers ``values``, (n, size): (n, width)."""
    if column.categories:
        return np.where(np.isnan(values), INACTIVE_CHOICE, values)
    if not column.conditional:
        return values
    inactive = np.isnan(values[:, :1])
    return np.hstack((np.where(inactive, INACTIVE_VALUE, values), inactive))


class Kernel(ABC):
    """A covariance function with a length scale for each column; immutable, so a changed parameter is a new kernel."""

    # The name of the kernel in `Optimizer(kernel=…)`.
    name: ClassVar[str]
    # The kernels that can be chosen by name; `lazybo.gp.kernels` fills it.
    by_name: ClassVar[dict[str, type[Any]]] = {}
    length_scales: Array
    output_scale: float
    columns: Sequence[Column]

    def _check(self) -> None:
        """Validate length scales, output scale and columns (numeric by default), and make the scales read-only."""
        scales = checks.as_array("length_scales", self.length_scales, 1).copy()
        if len(scales) == 0 or not (np.isfinite(scales).all() and (scales >= MIN_LENGTH_SCALE).all()):
            raise ValueError(f"length_scales must be positive finite numbers, one for each column, not {scales}")
        scales.flags.writeable = False
        columns = tuple(self.columns) or (Column(),) * len(scales)
        if not all(isinstance(column, Column) for column in columns):
            raise ValueError(f"columns must be Column objects, not {columns}")
        if len(columns) != len(scales):
            raise ValueError(f"there are {len(scales)} length scales but {len(columns)} columns")
        self.__dict__.update(length_scales=scales, columns=columns)
        self.__dict__["output_scale"] = checks.positive("output_scale", self.output_scale)

    @staticmethod
    def check_choice(kernel: object) -> "str | Kernel | None":
        """Return ``kernel`` if it is a name of a kernel, a kernel, or None; raise a ValueError otherwise."""
        if isinstance(kernel, str) and kernel not in Kernel.by_name:
            raise ValueError(f"kernel must be one of {list(Kernel.by_name)} or a kernel object, not {kernel!r}")
        return kernel if kernel is None or isinstance(kernel, str) else as_kernel(kernel)

    @staticmethod
    def chosen(kernel: "str | Kernel | None", columns: Sequence[Column]) -> "Kernel":
        """A new kernel by name (None: the default) with length scales 1, or a kernel object with these columns."""
        if kernel is None or isinstance(kernel, str):
            made: Kernel = Kernel.by_name[kernel or DEFAULT](np.ones(max(len(columns), 1)), columns=columns)
            return made
        if tuple(kernel.columns) != tuple(columns):
            raise ValueError(f"the kernel must have the columns of the space: {columns}")
        return kernel

    def plain(self) -> dict[str, Any] | None:
        """Its name and its parameters as plain data; None for a kernel that cannot be chosen by name."""
        known = Kernel.by_name.get(self.name) is type(self)
        return {"name": self.name, "values": self.values.tolist()} if known else None

    def __setstate__(self, state: dict[str, object]) -> None:
        """After a copy or unpickling NumPy arrays are writable: make them read-only again."""
        self.__dict__.update(state)
        self.length_scales.flags.writeable = False

    @property
    def dim(self) -> int:
        """Number of columns, d."""
        return len(self.length_scales)

    @property
    def width(self) -> int:
        """How many numbers a point has, w."""
        return len(self.coordinates.owner)

    @property
    def ranges(self) -> Array:
        """The change of each number of a point that makes a difference, (w,): the length scale of its column."""
        return self.length_scales if self.width == self.dim else self.length_scales[self.coordinates.owner]

    @property
    @abstractmethod
    def layout(self) -> Sequence[Parameter]:
        """The kind of each entry of θ."""

    @property
    @abstractmethod
    def theta(self) -> Array:
        """θ, (p,)."""

    def with_theta(self, theta: ArrayLike) -> Self:
        """The same kernel with other parameters."""
        return self.with_values(self.values_at(checks.as_shape("theta", theta, (len(self.layout),))))

    @property
    @abstractmethod
    def values(self) -> Array:
        """The parameters without logarithm, (p,). Save these: exp(log x) is not x to the last bit."""

    @staticmethod
    @abstractmethod
    def values_at(theta: Array) -> Array:
        """The `values` for some θ, in the last axis."""

    def with_values(self, values: ArrayLike) -> Self:
        """The same kernel with these parameters, to the last bit."""
        checked = checks.as_shape("values", values, (len(self.layout),))
        return type(self)(checked[: self.dim], *checked[self.dim :], columns=self.columns)  # type: ignore[call-arg]

    @cached_property
    def coordinates(self) -> Coordinates:
        """Converts points to coordinates."""
        return coordinates_of(tuple(self.columns))

    def check(self, x: ArrayLike, name: str = "X") -> Array:
        """Validated points of this kernel, (n, w): finite numbers, known choices, NaN only in conditional columns."""
        return self.coordinates.check(x, name)

    def features(self, x: Array) -> Array:
        """C: the coordinates of validated points, (n, D)."""
        return self.coordinates.of(x)

    def diagonal(self, c: Array) -> Array:
        """k of each point with itself, (n,)."""
        return np.full(len(c), self.output_scale)

    def distances(self, c: Array, other: Array) -> Array:
        """Distances between the rows of two sets of features, (m, n), in units of the length scales."""
        return self.coordinates.distances(c, other, self.length_scales)

    @abstractmethod
    def between(self, c: Array, other: Array) -> Array:
        """k between the rows of two sets of features, (m, n)."""

    @abstractmethod
    def with_slope(self, c: Array, other: Array) -> tuple[Array, "Slope"]:
        """k between the rows of two sets of features, (m, n), and its derivatives."""

    @staticmethod
    def several(kernels: "Sequence[Any]", c: Array, other: Array) -> Array:
        """k of several kernels of this class that differ only in θ, between the same features, (s, m, n)."""
        return np.array([each.between(c, other) for each in kernels])

    @abstractmethod
    def pairs(self, x: Array) -> Pairs:
        """k between all pairs of validated points, for learning."""

    def __call__(self, x: ArrayLike, other: ArrayLike | None = None) -> Array:
        """k between the rows of two sets of points, (m, n); among the rows of ``x`` if there is no other."""
        c = self.features(self.check(x))
        return self.between(c, c if other is None else self.features(self.check(other)))


@dataclass(frozen=True, slots=True)
class Slope:
    """The derivatives of k between two sets of points U and X by the first one: ∂k/∂uⱼ = -(h + hⱼ) (uⱼ - xⱼ)/ℓⱼ².

    ``joint`` is h, (m, n), of the points with these features. ``single`` is hⱼ (uⱼ - xⱼ), (d, m, n), if each column
    counts by itself, too.
    """

    kernel: Kernel
    c: Array
    other: Array
    joint: Array
    single: Array | None = None

    def by_points(self, weights: Array) -> Array:
        """∂/∂u of Σᵢ wᵢ k(u, xᵢ) for each point u of the first set, (m, w); weights (m, n), or (n,) for all points.

        Choices, blocks and inactive entries have derivative 0.
        """
        coordinates = self.kernel.coordinates
        u, x = coordinates.leading(self.c), coordinates.leading(self.other)
        w = weights * self.joint
        gradient = w @ x
        gradient -= u * np.add.reduce(w, axis=1, keepdims=True)
        if self.single is not None:
            gradient -= np.vecdot(self.single, weights).T
        gradient /= self.kernel.length_scales**2
        return coordinates.by_number(gradient, self.c)


def as_kernel(kernel: object) -> Kernel:
    """Return ``kernel``; raise a ValueError if it is not a kernel."""
    if not isinstance(kernel, Kernel):
        raise ValueError(f"the kernel must be one of lazybo.gp.kernels, such as Matern52, not {kernel!r}")
    return kernel
