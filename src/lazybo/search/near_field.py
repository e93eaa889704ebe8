"""The near field: a cheap approximation of the posterior around a few centers, for the local search."""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazybo.blas import one_thread
from lazybo.checks import Array
from lazybo.model.evidence import inverted
from lazybo.model.kernels import Slope
from lazybo.model.process import NO_VALUE, Process
from lazybo.search.acquisition import Acquisition

Index: TypeAlias = NDArray[np.intp]

NEAR_ROWS = 192
# The inverse is exact to about this; smaller variances are rounding errors.
MIN_VARIANCE = 1e-9


class NearField:
    """A cheap approximation of the posterior around some centers.

    The rows nearest to the centers enter the mean exactly; the part of all other rows is linear around each center. The
    variance is the one given only the nearest rows. With at most `NEAR_ROWS` rows both are exact.
    """

    def __init__(self, gp: Process, centers: Array) -> None:
        self._kernel = gp.kernel
        self._centers = centers
        self._inactive = bool(np.isnan(centers).any()) or any(column.conditional for column in gp.kernel.columns)
        self._far: tuple[Array, Array] | None = None
        if gp.n <= NEAR_ROWS:
            self._z, self._alpha = gp.kernel.prepared(gp.features), gp.alpha
            self._inverse = inverse_of(gp)
            return
        k, slope = gp.kernel.with_slope(gp.kernel.features(centers), gp.features)
        nearness = np.where(gp.known_variances < NO_VALUE, k.max(axis=0), -np.inf)
        rows = np.sort(np.argpartition(nearness, -NEAR_ROWS)[-NEAR_ROWS:])
        alpha = gp.alpha
        self._z, self._alpha = gp.kernel.prepared(gp.features[rows]), alpha[rows]
        far = alpha.copy()
        far[rows] = 0.0
        self._far = k @ far, slope.by_points(far)
        self._inverse = inverse_of(gp, rows)

    def posterior(self, u: Array, center: Index) -> tuple[Array, Array]:
        """Mean and standard deviation at the rows of U, each near its center, (m,)."""
        z = self._kernel.features(u)
        k = self._kernel.between(z, self._z)
        return self._mean(u, center, k), self._std(z, k, k @ self._inverse)

    def with_slope(self, u: Array, center: Index) -> "Sloped":
        """The same with what their derivatives need."""
        z = self._kernel.features(u)
        k, slope = self._kernel.with_slope(z, self._z)
        beta = k @ self._inverse
        std = self._std(z, k, beta)
        far_gradient = None if self._far is None else self._far[1][center]
        return Sloped(self._mean(u, center, k), std, slope, self._alpha, beta, far_gradient)

    def value(self, u: Array, center: Index, acquisition: Acquisition, best: float) -> Array:
        """The acquisition at the rows of U, each near its center, (m,)."""
        return acquisition(*self.posterior(u, center), best).value

    def gradient(self, u: Array, center: Index, acquisition: Acquisition, best: float) -> tuple[Array, Array]:
        """The acquisition and its derivatives by U."""
        sloped = self.with_slope(u, center)
        acquired = acquisition(sloped.mean, sloped.std, best)
        return acquired.value, sloped.pulled_back(acquired.by_mean, acquired.by_std)

    def _mean(self, u: Array, center: Index, k: Array) -> Array:
        mean: Array = k @ self._alpha
        if self._far is None:
            return mean
        step = u - self._centers[center]
        if self._inactive:
            step[np.isnan(step)] = 0.0
        far_mean, far_gradient = self._far
        mean += far_mean[center] + np.vecdot(far_gradient[center], step)
        return mean

    def _std(self, z: Array, k: Array, beta: Array) -> Array:
        prior = self._kernel.diagonal(z)
        variance = prior - np.vecdot(k, beta)
        return np.sqrt(np.maximum(variance, MIN_VARIANCE * prior, out=variance))


class Sloped(NamedTuple):
    """The posterior of a near field at some points, and what its derivatives by the points need."""

    mean: Array
    std: Array
    slope: Slope
    alpha: Array
    beta: Array
    far_gradient: Array | None

    def pulled_back(self, by_mean: Array, by_std: Array) -> Array:
        """The derivatives by U of a function a with these derivatives by mean and std, (m, d).

        ∂a = a_μ ∂μ + a_σ ∂σ, with ∂σ = -Σᵢ βᵢ ∂k(u, xᵢ) / σ and β = K⁻¹ k: one sum over the rows with the weights
        a_μ α - a_σ β / σ.
        """
        weights = by_mean[:, None] * self.alpha
        weights -= (by_std / self.std)[:, None] * self.beta
        gradient = self.slope.by_points(weights)
        if self.far_gradient is not None:
            gradient += by_mean[:, None] * self.far_gradient
        return gradient


@one_thread()
def inverse_of(gp: Process, rows: Index | None = None) -> Array:
    """The inverse of K between some rows, (r, r), or all of them, noise and jitter included; O(r³)."""
    if rows is None:
        return gp.factor.inverse()
    k = gp.covariance_among(rows)
    k.reshape(-1)[:: len(k) + 1] += (gp.noise + gp.known_variances + gp.factor.jitter)[rows]
    return inverted(k)
