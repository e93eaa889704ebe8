"""The discrete moves of points: one level up or down, another choice, or what an axis lists.

======  ==============================================================  ========
symbol  meaning                                                         shape
======  ==============================================================  ========
s       points that move                                                scalar
e       entries of the table: moves that a point may have               scalar
x       points                                                          (s, d)
======  ==============================================================  ========

Moves of numbers and of a few choices are one table for the whole space: each entry says which number of a point changes
and how. So all moves of all points are a few operations on arrays. Other axes list their moves point by point.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lazybo.core import Array
from lazybo.space.axis import Axis, Scale

Rows = NDArray[np.intp]


class Moves:
    """The moves along some axes, whose numbers in a point are ``slices``."""

    def __init__(self, axes: Mapping[str, Axis], slices: Mapping[str, slice]) -> None:
        column, value, self._listed = list[int](), list[float](), list[tuple[slice, Axis]]()
        scales: dict[int, Scale] = {}  # by entry
        for name, axis in axes.items():
            value += range(axis.choices)
            if axis.steps is not None:
                scales |= dict.fromkeys((len(value), len(value) + 1), axis.steps)
                value += 0.0, 0.0
            if axis.lists_moves:
                self._listed.append((slices[name], axis))
            column += [slices[name].start] * (len(value) - len(column))
        self._column, self._value = np.array(column, dtype=np.intp), np.array(value)
        self._step = np.zeros(len(value))
        self._step[[*scales]] = np.tile([-1.0, 1.0], len(scales) // 2)
        entries = [np.array([i for i, each in scales.items() if each.log == log], np.intp) for log in (False, True)]
        self._scales = [(these, Scale.joined([scales[i] for i in these.tolist()])) for these in entries if len(these)]

    def of(self, x: Array, others: Array, rng: np.random.Generator) -> tuple[Array, Rows]:
        """The moved points, (m, d), and the row of X of each, (m,): point by point, along each axis in turn.

        Axes with very many choices try those of ``others``, (k, d), and some at random.
        """
        row, column, value = self._tabled(x)
        moved = x[row]
        moved[np.arange(len(row)), column] = value
        if not self._listed:
            return moved, row
        columns, rows, groups = [column], [row], [moved]
        for i, point in enumerate(x):
            for place, axis in self._listed:
                if not np.isnan(point[place.start]):
                    found = axis.next_to(point[place], others[:, place], rng)
                    group = np.repeat(point[None], len(found), axis=0)
                    group[:, place] = found
                    groups.append(group)
                    rows.append(np.full(len(group), i))
                    columns.append(np.full(len(group), place.start))
        row = np.concatenate(rows)
        order = np.lexsort((np.concatenate(columns), row))
        return np.vstack(groups)[order], row[order]

    def _tabled(self, x: Array) -> tuple[Rows, Rows, Array]:
        """The moves of the table: rows of X, the number of the point that changes, and what it becomes, each (m,)."""
        here = x[:, self._column]
        value = np.empty(here.shape)
        value[:] = self._value
        exists = ~np.isnan(here) & (value != here)
        for entries, scale in self._scales:
            level = scale.level(here[:, entries]) + self._step[entries]
            exists[:, entries] = (level >= 0) & (level < scale.levels)  # NaN compares as False
            value[:, entries] = scale.at(np.minimum(np.maximum(level, 0), scale.levels - 1))
        row, entry = np.nonzero(exists)
        return row, self._column[entry], value[row, entry]
