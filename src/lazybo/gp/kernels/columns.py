"""Convert points with mixed and conditional columns to Euclidean coordinates.

======  ============================================================  ==========
symbol  meaning                                                       shape
======  ============================================================  ==========
X       points: one row each, one column a parameter                  (n, d)
C       coordinates of X, one or more a column                        (n, D)
======  ============================================================  ==========

- numeric: the value itself;
- categorical with c choices: a corner of a simplex with edge 1, so that the distance of two different choices is 1;
- categorical with more than `MAX_CORNERS` choices: a *label*. Its one coordinate is the choice, or -1 if inactive, and
  is only compared. Distances are those of the simplex, at a cost that does not grow with the number of choices;
- conditional (may be inactive, NaN): one more coordinate, 0 if active and 1 if not. The other coordinates of an
  inactive entry have a neutral value. Two inactive entries coincide; an inactive and an active one are at least as far
  apart as any two active ones in [0, 1].

A kernel that is positive definite in Euclidean space is therefore positive definite on these points.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist

from lazybo.core.checks import Array, as_array

Index: TypeAlias = NDArray[np.intp]
Mask: TypeAlias = NDArray[np.bool_]

# The coordinate of an inactive numeric entry: the middle of the unit interval, so that no active value is favoured.
INACTIVE_VALUE = 0.5
# The coordinate of an inactive label.
INACTIVE_LABEL = -1.0
# Columns with more choices than this are labels.
MAX_CORNERS = 64


@dataclass(frozen=True, slots=True)
class Column:
    """A column of numbers, or of ``categories`` choices as 0, 1, …. Only ``conditional`` columns may have NaN."""

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
    def is_label(self) -> bool:
        """Whether the choice itself is the coordinate."""
        return self.categories > MAX_CORNERS

    @property
    def width(self) -> int:
        """The number of coordinates."""
        return (1 if self.is_label else max(self.categories, 1)) + self.conditional


class Coordinates:
    """Converts points with these columns to coordinates."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self.columns = columns

    def check(self, x: ArrayLike, name: str = "X") -> Array:
        """Validated points, (n, d): finite numbers, known choices, NaN only in conditional columns."""
        points = as_array(name, x, 2)
        if points.shape[1] != len(self.columns):
            raise ValueError(f"{name} must have {len(self.columns)} columns, but has shape {points.shape}")
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
                    raise ValueError(f"{name}: column {j} must have choices {known}, not {wrong[0]}")
        return points

    def of(self, x: Array) -> Array:
        """C of validated points, (n, D)."""
        if not self.coded:
            return x
        return np.hstack([_coordinates(x[:, j], column) for j, column in enumerate(self.columns)])

    def distances(self, z: Array, other: Array, ranges: Array) -> Array:
        """Distances of the rows of two feature arrays, (m, n): coordinates in units of ``ranges``, (d,), and labels."""
        if not self.labels:
            return cdist(z, other)
        squares = cdist(z[:, self.euclidean], other[:, self.euclidean], "sqeuclidean")
        for j in self.labels:
            squares += self.label_squares(j, z, other) / ranges[j] / ranges[j]
        return np.sqrt(squares, out=squares)

    def distances_in(self, j: int, z: Array, other: Array, ranges: Array) -> Array:
        """Distances of the rows of two feature arrays in one column, (m, n)."""
        span = slice(self.first[j], self._last[j] + 1)
        if j not in self.labels:
            return cdist(z[:, span], other[:, span])
        squares = self.label_squares(j, z, other) / ranges[j] / ranges[j]
        if self.columns[j].conditional:
            flag = slice(self._last[j], span.stop)
            squares += cdist(z[:, flag], other[:, flag], "sqeuclidean")
        return np.sqrt(squares, out=squares)

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
        """Which entries of the points with features Z have derivative 0: choices and inactive entries, (n, d)."""
        fixed = np.tile(self._categorical, (len(z), 1))
        fixed[:, self._conditional] |= z[:, self._last[self._conditional]] != 0
        return fixed

    @cached_property
    def column(self) -> Index:
        """The column that each coordinate belongs to, (D,)."""
        return np.repeat(np.arange(len(self.columns)), [column.width for column in self.columns])

    @cached_property
    def first(self) -> Index:
        """The first coordinate of each column, (d,). For a numeric column it is the value."""
        return np.searchsorted(self.column, np.arange(len(self.columns)))

    @cached_property
    def _last(self) -> Index:
        """The last coordinate of each column, (d,). For a conditional column it is 0 if active."""
        return np.searchsorted(self.column, np.arange(len(self.columns)), side="right") - 1

    @cached_property
    def labels(self) -> tuple[int, ...]:
        """The columns that are labels."""
        return tuple(j for j, column in enumerate(self.columns) if column.is_label)

    @cached_property
    def euclidean(self) -> Index:
        """The coordinates that are not labels."""
        return np.setdiff1d(np.arange(len(self.column)), self.first[list(self.labels)])

    def scales(self, ranges: Array) -> Array:
        """What each coordinate is divided by, (D,): the range of its column, and 1 for labels."""
        scales = ranges[self.column]
        scales[self.first[list(self.labels)]] = 1.0
        return scales

    @cached_property
    def coded(self) -> bool:
        """Whether any column is categorical or conditional. Otherwise coordinates are the points themselves."""
        return any(column.categories or column.conditional for column in self.columns)

    @cached_property
    def _categorical(self) -> Mask:
        return np.array([column.categories > 0 for column in self.columns])

    @cached_property
    def _conditional(self) -> Mask:
        return np.array([column.conditional for column in self.columns])


@lru_cache(maxsize=64)
def coordinates_of(columns: tuple[Column, ...]) -> Coordinates:
    """A cached object for these columns: learning makes hundreds of kernels that differ only in θ."""
    return Coordinates(columns)


def _coordinates(values: Array, column: Column) -> Array:
    """The coordinates of one column, (n, width)."""
    inactive = np.isnan(values)
    coordinates = np.zeros((len(values), column.width))
    if column.is_label:
        coordinates[:, 0] = np.where(inactive, INACTIVE_LABEL, values)
    elif column.categories:
        # The distance of two corners is √2 · √½ = 1; an inactive entry is at the center.
        coordinates[:, : column.categories] = np.sqrt(0.5) / column.categories * inactive[:, None]
        active = np.flatnonzero(~inactive)
        coordinates[active, values[active].astype(np.intp)] = np.sqrt(0.5)
    else:
        coordinates[:, 0] = np.where(inactive, INACTIVE_VALUE, values)
    if column.conditional:
        coordinates[:, -1] = inactive
    return coordinates
