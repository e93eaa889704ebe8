"""What a fitted regressor holds: a process that knows the points, and the values beside it.

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
from functools import cached_property
from typing import NamedTuple

import numpy as np

from lazybo.checks import Array
from lazybo.model.fit import Data
from lazybo.model.gp import LazyGP, unit_of
from lazybo.model.targets import standardize
from lazybo.sklearn.learning import Parameters

# `LazyGP` wants some noise; this is lost in rounding.
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

    gp: LazyGP
    parameters: Parameters
    y: Array
    values: Values

    @classmethod
    def build(cls, rows: Rows, values: Values, parameters: Parameters) -> "Model":
        """All rows at once, O(n³)."""
        gp = LazyGP(parameters.meaning(rows.x.shape[1]).kernel, max(parameters.noise, NO_NOISE))
        gp.append(rows.x, np.zeros(len(rows.y)), variance=rows.known)
        return cls(gp, parameters, rows.y, values)

    def with_rows(self, new: Rows, values: Values) -> "Model":
        """Some rows more in O(t n²); ``values`` are those of all rows."""
        y = np.concatenate((self.y, new.y))
        self.gp.append(new.x, np.zeros(len(new.y)), variance=new.known)
        return replace(self, y=y, values=values)

    @property
    def data(self) -> Data:
        """What parameters are learned from."""
        return Data(self.gp.X, self.values.targets, self.gp.known_variances)

    @cached_property
    def _weights(self) -> tuple[Array, float]:
        """α in units of a power of two, and that. Made when first asked for: rows that only come in do not pay."""
        unit = unit_of(self.values.targets)
        return self.gp.factor.solve(self.values.targets / unit), unit

    @property
    def alpha(self) -> Array:
        """α."""
        weights, unit = self._weights
        return weights * unit

    def mean(self, u: Array) -> Array:
        """At the rows of U, (m,) or (m, q)."""
        weights, unit = self._weights
        return self.gp.covariance(u).T @ weights * unit * self.values.scale + self.values.shift

    def variance(self, u: Array) -> Array:
        """At the rows of U, with the white noise, in units of t², (m,)."""
        return self.gp.posterior(u).variance + self.parameters.noise

    def covariance(self, u: Array) -> Array:
        """At the rows of U jointly, with the white noise, in units of t², (m, m)."""
        _, covariance = self.gp.posterior_covariance(u)
        covariance[np.diag_indices_from(covariance)] += self.parameters.noise
        return covariance

    def log_marginal_likelihood(self) -> float:
        """Σ over the outputs of -½ tᵀα - Σ log Lᵢᵢ - n/2 log 2π."""
        constant = self.gp.factor.logdet() + self.gp.n * float(np.log(2 * np.pi))
        weights, unit = self._weights
        quadratic = float(np.vdot(self.values.targets / unit, weights)) * unit * unit
        return -0.5 * (quadratic + self.values.scale.size * constant)


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
