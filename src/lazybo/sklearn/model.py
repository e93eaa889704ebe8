"""What a fitted regressor holds: the Gaussian process of its targets, and how targets and values are converted.

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

K does not depend on y: all outputs share one factor, and a new normalisation of y needs no factorisation.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from lazybo.core.checks import Array
from lazybo.gp.fit import Data
from lazybo.gp.process import Process
from lazybo.gp.targets import standardize, unit_of
from lazybo.sklearn.learning import Parameters

# `Process` needs some noise; this much is lost in rounding.
NO_NOISE = float(np.finfo(np.float64).tiny)


class Rows(NamedTuple):
    """Observations in the units of the user, and v."""

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
    """A fitted model. `with_rows` extends its process in place: after that, only the new model may be used."""

    process: Process
    parameters: Parameters
    y: Array
    values: Values

    @classmethod
    def build(cls, rows: Rows, values: Values, parameters: Parameters) -> "Model":
        """A model of all rows, O(n³)."""
        process = Process(parameters.parsed(rows.x.shape[1]).kernel, max(parameters.noise, NO_NOISE))
        process.append(rows.x, values.targets, variance=rows.known)
        return cls(process, parameters, rows.y, values)

    def with_rows(self, new: Rows, values: Values) -> "Model":
        """A model with t more rows, in O(t n²). ``values`` are those of all rows."""
        self.process.append(new.x, values.targets[len(self.y) :], variance=new.known)
        self.process.set_targets(values.targets)
        return replace(self, y=np.concatenate((self.y, new.y)), values=values)

    @property
    def data(self) -> Data:
        """The data to learn parameters from."""
        return Data(self.process.X, self.values.targets, self.process.known_variances)

    def mean(self, u: Array) -> Array:
        """Mean at the rows of U, (m,) or (m, q)."""
        return self.process.mean(u) * self.values.scale + self.values.shift

    def variance(self, u: Array) -> Array:
        """Variance at the rows of U, with the white noise, in units of t², (m,)."""
        return self.process.posterior(u).variance + self.parameters.noise

    def covariance(self, u: Array) -> Array:
        """Joint covariance at the rows of U, with the white noise, in units of t², (m, m)."""
        _, covariance = self.process.posterior_covariance(u)
        covariance[np.diag_indices_from(covariance)] += self.parameters.noise
        return covariance


def unchanged(y: Array) -> Values:
    """y unchanged."""
    return Values(y, np.zeros(y.shape[1:]), np.ones(y.shape[1:]))


def in_units(y: Array) -> Values:
    """y unchanged, or divided by a power of two if the squares of y, the units of a kernel, would overflow."""
    unit = unit_of(y)
    return Values(y / unit, np.zeros(y.shape[1:]), np.full(y.shape[1:], unit))


def normalised(y: Array) -> Values:
    """y with mean 0 and standard deviation 1 in each column."""
    if y.ndim == 1:
        targets, shift, scale = standardize(y)
        return Values(targets, np.array(shift), np.array(scale))
    columns = [standardize(column) for column in y.T]
    shift, scale = np.array([column[1:] for column in columns]).T
    return Values(np.column_stack([column.values for column in columns]), shift, scale)
