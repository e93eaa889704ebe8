"""What a fitted regressor holds: a process of targets, and the way from and to the values.

======  ==============================================================  ======================
symbol  meaning                                                         shape
======  ==============================================================  ======================
X, y    observed points and values, q outputs                           (n, d), (n,) or (n, q)
t       targets: y, or y normalised column by column                    (n,) or (n, q)
v       known noise variance of each row, in units of t²                (n,)
K       k(X, X) + diag(σₙ² + v) = L Lᵀ                                  (n, n)
α       K⁻¹ t                                                           (n,) or (n, q)
U       points to predict at                                            (m, d)
======  ==============================================================  ======================

K does not depend on y: all outputs share one factor, and a normalisation that moves costs no factorisation.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from lazybo.checks import Array
from lazybo.model.fit import Data
from lazybo.model.process import Process
from lazybo.model.targets import standardize
from lazybo.model.units import unit_of
from lazybo.sklearn.learning import Parameters

# `Process` needs some noise; this is lost in rounding.
NO_NOISE = float(np.finfo(np.float64).tiny)


class Rows(NamedTuple):
    """Observations as they were given, and v."""

    x: Array
    y: Array
    known: Array


class Values(NamedTuple):
    """t = (y - shift) / scale; shift and scale are () or (q,)."""

    targets: Array
    shift: Array
    scale: Array


@dataclass(frozen=True)
class Model:
    """Immutable but for the process, which belongs to the latest model that was made from it."""

    process: Process
    parameters: Parameters
    y: Array
    values: Values

    @classmethod
    def build(cls, rows: Rows, values: Values, parameters: Parameters) -> "Model":
        """All rows at once, O(n³)."""
        process = Process(parameters.meaning(rows.x.shape[1]).kernel, max(parameters.noise, NO_NOISE))
        process.append(rows.x, values.targets, variance=rows.known)
        return cls(process, parameters, rows.y, values)

    def with_rows(self, new: Rows, values: Values) -> "Model":
        """Some rows more in O(t n²); ``values`` are those of all rows."""
        self.process.append(new.x, values.targets[len(self.y) :], variance=new.known)
        self.process.set_targets(values.targets)
        return replace(self, y=np.concatenate((self.y, new.y)), values=values)

    @property
    def data(self) -> Data:
        """What parameters are learned from."""
        return Data(self.process.X, self.values.targets, self.process.known_variances)

    def mean(self, u: Array) -> Array:
        """At the rows of U, (m,) or (m, q)."""
        return self.process.mean(u) * self.values.scale + self.values.shift

    def variance(self, u: Array) -> Array:
        """At the rows of U, with the white noise, in units of t², (m,)."""
        return self.process.posterior(u).variance + self.parameters.noise

    def covariance(self, u: Array) -> Array:
        """At the rows of U jointly, with the white noise, in units of t², (m, m)."""
        _, covariance = self.process.posterior_covariance(u)
        covariance[np.diag_indices_from(covariance)] += self.parameters.noise
        return covariance


def as_they_are(y: Array) -> Values:
    """y itself."""
    return Values(y, np.zeros(y.shape[1:]), np.ones(y.shape[1:]))


def in_units(y: Array) -> Values:
    """y itself, or in units of a power of two where the squares of y, the units of a kernel, are no numbers."""
    unit = unit_of(y)
    return Values(y / unit, np.zeros(y.shape[1:]), np.full(y.shape[1:], unit))


def normalised(y: Array) -> Values:
    """Mean 0 and standard deviation 1, column by column."""
    if y.ndim == 1:
        targets, shift, scale = standardize(y)
        return Values(targets, np.array(shift), np.array(scale))
    columns = [standardize(column) for column in y.T]
    shift, scale = np.array([column[1:] for column in columns]).T
    return Values(np.column_stack([column.values for column in columns]), shift, scale)
