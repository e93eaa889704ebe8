"""The interface of a kernel, and mixed and conditional columns as Euclidean coordinates.

======  ============================================================  ==========
symbol  meaning                                                       shape
======  ============================================================  ==========
X, U    points: one row each, with the numbers of all columns         (n, w)
d, w    columns, and the numbers in a row: more, if some have several scalar
C       coordinates of X, one or more for each column                 (n, D)
Z       features of X: coordinates in units of `ranges`               (n, D)
k       covariance of two points                                      (m, n)
θ       the kernel's parameters, each as a logarithm                  (p,)
======  ============================================================  ==========

The coordinates of a column:

- numeric: the value itself;
- a *block* of several numbers with one length scale: these numbers. They describe one thing, such as a graph, and only
  change together, so there are no derivatives by them;
- categorical with c choices: a corner of a simplex with edge 1, so two different choices have distance 1;
- categorical with more than `MAX_CORNERS` choices: a *label*. Its one coordinate is the choice, or -1 if inactive, and
  is only compared. Distances are the same as in the simplex, but don't get slower with more choices;
- conditional (may be inactive, NaN): one more coordinate, 0 if active and 1 if not. The other coordinates of an
  inactive entry have a neutral value. Two inactive entries coincide; an inactive and an active one are at least as far
  apart as any two active ones in [0, 1].

So a kernel that is positive definite in Euclidean space is positive definite on these points.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
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
# The coordinate of an inactive label.
INACTIVE_LABEL = -1.0
# Columns with more choices than this are labels.
MAX_CORNERS = 64
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
        count = self.categories
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
            raise ValueError(f"categories must be 0 (numeric) or the number of choices, not {self.categories!r}")

    @property
    def is_label(self) -> bool:
        """Whether the choice itself is the coordinate."""
        return self.categories > MAX_CORNERS

    @property
    def width(self) -> int:
        """The number of coordinates."""
        return (1 if self.is_label else self.categories or self.size) + self.conditional

    @property
    def is_corner(self) -> bool:
        """Whether it is a corner of the simplex in every row."""
        return 0 < self.categories <= MAX_CORNERS and not self.conditional

    @property
    def is_fixed(self) -> bool:
        """Whether there are no derivatives by its numbers: it is a choice or a block."""
        return self.categories > 0 or self.size > 1


@dataclass(frozen=True, slots=True)
class Parameter:
    """The kind of an entry of θ: the log of a column's length scale, of k(x, x), or of the odds of a share."""

    kind: Literal["length_scale", "output_scale", "share"]
    column: Column | None = None


class Slope(Protocol):
    """The derivatives of k between two sets of points; they reuse what was computed for k."""

    def by_points(self, weights: Array) -> Array:
        """∂/∂u of Σᵢ wᵢ k(u, xᵢ) for each point u of the first set, (m, w); weights (m, n), or (n,) for all points.

        Choices, blocks and inactive entries have derivative 0.
        """


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


class Several:
    """Several kernels that differ only in θ, between the same points: the naive way."""

    def __init__(self, kernels: Sequence["Kernel"]) -> None:
        self.kernels, self.coordinates = kernels, kernels[0].coordinates

    def between(self, c: Array, other: Array) -> Array:
        """k of each kernel between the rows of two sets of coordinates, (s, m, n)."""
        return np.array([each.between(c / each.scales, other / each.scales) for each in self.kernels])


def upper(n: int) -> Mask:
    """Where a square matrix is above its diagonal, (n, n): the places of the pairs a < b, row by row."""
    places = np.arange(n)
    return places[:, None] < places


class Coordinates:
    """Converts points with these columns to coordinates."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self.columns = columns
        # The column that each coordinate belongs to, (D,); the columns that are labels, and those that are blocks of
        # whole numbers in every row; whether coordinates are anything else than the numbers of points.
        self.column = np.repeat(np.arange(len(columns)), [column.width for column in columns])
        self.labels = [j for j, each in enumerate(columns) if each.is_label]
        self.counted = [j for j, each in enumerate(columns) if each.unit and each.size > 1 and not each.conditional]
        self.coded = any(each.is_fixed or each.conditional or each.before for each in columns)
        self._conditional = np.array([each.conditional for each in columns])

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
        if not self.coded:
            return x
        places = zip(self.start.tolist(), self.columns, strict=True)
        return np.hstack([_coordinates(x[:, j : j + column.size], column) for j, column in places])

    def distances(self, z: Array, other: Array, ranges: Array, counted: Sequence[Array] | None = None) -> Array:
        """Distances between the rows of two feature arrays, (m, n); ``ranges``, (d,), are needed for labels.

        ``counted`` are the squared distances in the columns of that name, if they are known.
        """
        if not self.labels and not self.counted:
            return cdist(z, other)
        squares = cdist(z[:, self.euclidean], other[:, self.euclidean], "sqeuclidean")
        for j in self.labels:
            squares += self.label_squares(j, z, other) / ranges[j] / ranges[j]
        for each in self.counted_squares(z, other, ranges) if counted is None else counted:
            squares += each
        return np.sqrt(squares, out=squares)

    def counted_squares(self, z: Array, other: Array, ranges: Array) -> list[Array]:
        """Squared distances between the rows of two feature arrays in each block of whole numbers, (m, n).

        A matrix product of whole numbers is exact, so an entry does not depend on the others, and equal rows have
        distance 0. It takes a fifth of the time of differences.
        """
        found = []
        for j in self.counted:
            span, scale = self.span(j), ranges[j] / self.columns[j].unit
            a = np.rint(z[:, span] * scale)
            b = a if other is z else np.rint(other[:, span] * scale)
            squares = a @ b.T
            squares *= -2.0
            squares += np.vecdot(a, a)[:, None]
            squares += np.vecdot(b, b)
            squares /= scale * scale
            found.append(squares)
        return found

    def span(self, j: int) -> slice:
        """The coordinates of a column."""
        return slice(self.first[j], self._last[j] + 1)

    def distances_in(self, j: int, z: Array, other: Array, ranges: Array) -> Array:
        """Distances between the rows of two feature arrays in one column, (m, n)."""
        span = self.span(j)
        if j not in self.labels:
            return cdist(z[:, span], other[:, span])
        squares = self.label_squares(j, z, other) / ranges[j] / ranges[j]
        if self.columns[j].conditional:
            flag = slice(self._last[j], span.stop)
            squares += cdist(z[:, flag], other[:, flag], "sqeuclidean")
        return np.sqrt(squares, out=squares)

    def apart(self, c: Array, other: Array) -> Array:
        """Distances between the rows of two sets of coordinates along each column, (d, m, n).

        They don't depend on θ, and an entry does not depend on the other points.
        """
        if not self.coded:
            return np.abs(c.T[:, :, None] - other.T[:, None, :])
        return np.array([*self.along_columns(c, other)])

    def along_columns(self, c: Array, other: Array) -> Iterator[Array]:
        """The same for one column after the other, each (m, n)."""
        ones = np.ones(len(self.columns))
        squares = dict(zip(self.counted, self.counted_squares(c, other, ones), strict=True))
        for j, column in enumerate(self.columns):
            if j in squares:
                yield np.sqrt(squares[j])
            elif column.width > 1 or column.is_label:
                yield self.distances_in(j, c, other, ones)
            else:
                yield np.abs(c[:, self.first[j], None] - other[:, self.first[j]])

    def label_squares(self, j: int, z: Array, other: Array) -> Array:
        """Squared distances of the labels in a column, (m, n), in units of its range and without its last coordinate.

        Two corners of the simplex have distance 1, and a corner and its center √(½ (1 - 1/c)).
        """
        one, two = z[:, self.first[j], None], other[:, self.first[j]]
        squares = (one != two).astype(float)
        if self.columns[j].conditional:
            to_center = 0.5 * (1.0 - 1.0 / self.columns[j].categories)
            np.copyto(squares, to_center, where=(one == INACTIVE_LABEL) != (two == INACTIVE_LABEL))
        return squares

    def without_slope(self, z: Array) -> Mask:
        """Which columns of the points with features Z have derivative 0: choices, blocks and inactive ones, (n, d)."""
        fixed = np.tile([column.is_fixed for column in self.columns], (len(z), 1))
        fixed[:, self._conditional] |= z[:, self._last[self._conditional]] != 0
        return fixed

    def by_number(self, by_column: Array) -> Array:
        """Derivatives by the numbers of points, (m, w), from those by columns, (m, d)."""
        if len(self.owner) == len(self.columns):
            return by_column
        derivatives = np.zeros((len(by_column), len(self.owner)))
        derivatives[:, self.start] = by_column
        return derivatives

    def scales(self, ranges: Array) -> Array:
        """What each coordinate is divided by, (D,): the range of its column, and 1 for labels."""
        scales = ranges[self.column]
        scales[self.first[self.labels]] = 1.0
        return scales

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
    def first(self) -> Index:
        """The first coordinate of each column, (d,). For a numeric column it is the value."""
        return np.searchsorted(self.column, np.arange(len(self.columns)))

    @cached_property
    def _last(self) -> Index:
        """The last coordinate of each column, (d,). For a conditional column it is 0 if active."""
        return np.searchsorted(self.column, np.arange(len(self.columns)), side="right") - 1

    @cached_property
    def euclidean(self) -> Index:
        """The coordinates that are neither labels nor in blocks of whole numbers."""
        counted = np.flatnonzero(np.isin(self.column, self.counted))
        return np.setdiff1d(np.arange(len(self.column)), [*self.first[self.labels], *counted])

    @cached_property
    def _needed(self) -> Mask:
        """Which numbers of a point must not be NaN, (w,)."""
        needed = ~self._conditional[self.owner]
        needed[np.arange(len(needed)) < self.start[self.owner]] = False  # not seen
        return needed


@lru_cache(maxsize=64)
def coordinates_of(columns: tuple[Column, ...]) -> Coordinates:
    """A cached object for these columns: learning makes hundreds of kernels that differ only in θ."""
    return Coordinates(columns)


def _coordinates(values: Array, column: Column) -> Array:
    """The coordinates of one column with the numbers ``values``, (n, size): (n, width)."""
    if not column.conditional and not column.categories:
        return values
    inactive = np.isnan(values[:, 0])
    coordinates = np.zeros((len(values), column.width))
    if column.is_label:
        coordinates[:, 0] = np.where(inactive, INACTIVE_LABEL, values[:, 0])
    elif column.is_corner:
        coordinates[np.arange(len(values)), values[:, 0].astype(np.intp)] = np.sqrt(0.5)
    elif column.categories:
        # The distance of two corners is √2 · √½ = 1; an inactive entry is at the center.
        coordinates[:, : column.categories] = np.sqrt(0.5) / column.categories * inactive[:, None]
        active = np.flatnonzero(~inactive)
        coordinates[active, values[active, 0].astype(np.intp)] = np.sqrt(0.5)
    else:
        coordinates[:, : column.size] = np.where(inactive[:, None], INACTIVE_VALUE, values)
    if column.conditional:
        coordinates[:, -1] = inactive
    return coordinates


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

    @cached_property
    def scales(self) -> Array:
        """What coordinates are divided by to become features, (D,)."""
        return self.coordinates.scales(self.length_scales)

    def check(self, x: ArrayLike, name: str = "X") -> Array:
        """Validated points of this kernel, (n, w): finite numbers, known choices, NaN only in conditional columns."""
        return self.coordinates.check(x, name)

    def features(self, x: Array) -> Array:
        """Z: the coordinates of validated points, in units of the length scales, (n, D)."""
        z: Array = self.coordinates.of(x) / self.scales
        return z

    def diagonal(self, z: Array) -> Array:
        """k of each point with itself, (n,)."""
        return np.full(len(z), self.output_scale)

    def distances(self, z: Array, other: Array) -> Array:
        """Distances between the rows of two feature arrays, (m, n), in units of the ranges."""
        return self.coordinates.distances(z, other, self.length_scales)

    def prepared(self, z: Array) -> Any:
        """Features in the form that `between` and `with_slope` need for ``other``; saves time if it is used again."""
        return z

    @abstractmethod
    def between(self, z: Array, other: Any) -> Array:
        """k between the rows of two feature arrays, (m, n)."""

    @abstractmethod
    def with_slope(self, z: Array, other: Any) -> tuple[Array, Slope]:
        """k between the rows of two feature arrays, (m, n), and its derivatives."""

    @abstractmethod
    def pairs(self, x: Array) -> Pairs:
        """k between all pairs of validated points, for learning."""

    # Kernels of this class that differ only in θ, between the same points.
    several: ClassVar[type[Several]] = Several

    def __call__(self, x: ArrayLike, other: ArrayLike | None = None) -> Array:
        """k between the rows of two sets of points, (m, n); among the rows of ``x`` if there is no other."""
        z = self.features(self.check(x))
        return self.between(z, z if other is None else self.features(self.check(other)))


def as_kernel(kernel: object) -> Kernel:
    """Return ``kernel``; raise a ValueError if it is not a kernel."""
    if not isinstance(kernel, Kernel):
        raise ValueError(f"the kernel must be one of lazybo.gp.kernels, such as Matern52, not {kernel!r}")
    return kernel
