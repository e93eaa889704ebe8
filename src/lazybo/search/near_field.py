"""The near field: a cheap approximation of the posterior around a few centers, for the local search."""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazybo.core.blas import one_thread
from lazybo.core.checks import Array
from lazybo.gp.cholesky import inverted
from lazybo.gp.kernels.base import PriorMean, Slope
from lazybo.gp.posterior import NO_VALUE
from lazybo.gp.process import Process
from lazybo.search.acquisition import Acquisition

Index: TypeAlias = NDArray[np.intp]

NEAR_ROWS = 192
NEAR_PARTS = 384
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
        self._far: tuple[Array, Array] | None = None
        self._prior = None if gp.prior is None else NearMean(gp.prior, centers)
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
        other_gradient = None if self._far is None else self._far[1][center]
        if self._prior is not None:
            by_prior = self._prior.gradient(u, center)
            other_gradient = by_prior if other_gradient is None else by_prior + other_gradient
        return Sloped(self._mean(u, center, k), std, slope, self._alpha, beta, other_gradient)

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
        if self._far is not None:
            far_mean, far_gradient = self._far
            mean += far_mean[center] + np.vecdot(far_gradient[center], steps(u, self._centers[center]))
        return mean if self._prior is None else mean + self._prior(u, center)

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
    other_gradient: Array | None  # of the parts of the mean that are not sums over these rows

    def pulled_back(self, by_mean: Array, by_std: Array) -> Array:
        """The derivatives by U of a function a with these derivatives by mean and std, (m, d).

        ∂a = a_μ ∂μ + a_σ ∂σ, with ∂σ = -Σᵢ βᵢ ∂k(u, xᵢ) / σ and β = K⁻¹ k: one sum over the rows with the weights
        a_μ α - a_σ β / σ.
        """
        weights = by_mean[:, None] * self.alpha
        weights -= (by_std / self.std)[:, None] * self.beta
        gradient = self.slope.by_points(weights)
        if self.other_gradient is not None:
            gradient += by_mean[:, None] * self.other_gradient
        return gradient


class NearMean:
    """A cheap approximation of a prior mean around some centers: of its parts far away only the linear part."""

    def __init__(self, prior: PriorMean, centers: Array) -> None:
        self._kernel, self._centers, self._offset = prior.kernel, centers, prior.offset
        self._far: tuple[Array, Array] | None = None
        if len(prior.z) <= NEAR_PARTS:
            self._z, self._weights = prior.kernel.prepared(prior.z), prior.weights
            return
        k, slope = prior.kernel.with_slope(prior.kernel.features(centers), prior.z)
        near = np.sort(np.argpartition(k.max(axis=0), -NEAR_PARTS)[-NEAR_PARTS:])
        self._z, self._weights = prior.kernel.prepared(prior.z[near]), prior.weights[near]
        far = prior.weights.copy()
        far[near] = 0.0
        self._far = k @ far, slope.by_points(far)

    def __call__(self, u: Array, center: Index) -> Array:
        """The prior mean at the rows of U, each near its center, (m,)."""
        mean: Array = self._offset + self._kernel.between(self._kernel.features(u), self._z) @ self._weights
        if self._far is not None:
            far_mean, far_gradient = self._far
            mean += far_mean[center] + np.vecdot(far_gradient[center], steps(u, self._centers[center]))
        return mean

    def gradient(self, u: Array, center: Index) -> Array:
        """Its derivatives by U, (m, d)."""
        found = self._kernel.with_slope(self._kernel.features(u), self._z)[1].by_points(self._weights)
        return found if self._far is None else found + self._far[1][center]


def steps(u: Array, centers: Array) -> Array:
    """The way from each center, (m, d); 0 where an entry is inactive."""
    way = u - centers
    way[np.isnan(way)] = 0.0
    return way


@one_thread()
def inverse_of(gp: Process, rows: Index | None = None) -> Array:
    """The inverse of K between some rows, (r, r), or all of them, noise and jitter included; O(r³)."""
    if rows is None:
        return gp.factor.inverse()
    k = gp.covariance_among(rows)
    k.reshape(-1)[:: len(k) + 1] += (gp.noise + gp.known_variances + gp.factor.jitter)[rows]
    return inverted(k)
