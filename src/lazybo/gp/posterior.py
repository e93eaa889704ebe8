"""What the search asks of a model of one output: `Posterior`. `lazybo.gp.process.Process` is one.

======  ============================================================  ==========
symbol  meaning                                                       shape
======  ============================================================  ==========
X, t    rows of the model and their targets; NaN where pending        (n, d), (n,)
U       points to predict at                                          (m, d)
V       L⁻¹ k(X, U)                                                   (n, m)
α, β    K⁻¹ t, K⁻¹ k(X, u)                                            (n,), (m, n)
======  ============================================================  ==========

Two approximations and caches make the search cheap: a `Pool` updates the posterior at fixed points as the factor grows,
and a `NearField` approximates it around a few centers. All numbers are in units of the targets.
"""

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazybo.core.blas import one_thread
from lazybo.core.checks import Array
from lazybo.gp.cholesky import CHUNK_ROWS, inverted

if TYPE_CHECKING:
    from lazybo.gp.kernels.base import PriorMean, Slope
    from lazybo.gp.process import Process

Index: TypeAlias = NDArray[np.intp]

# The known variance of a row that has no value and never will have one, in units of t²: the row changes nothing.
NO_VALUE = 1e10
# A near field has this many rows, and this many centers of a prior mean.
NEAR_ROWS = 192
NEAR_CENTERS = 384
# The inverse is exact to about this; smaller variances are rounding errors.
MIN_VARIANCE = 1e-9


class Moments(NamedTuple):
    """Mean, (m,) or (m, q), and variance, (m,), of the latent function at m points.

    The variance is infinite where it would overflow, for values above about 1e154.
    """

    mean: Array
    variance: Array


class MomentGradients(NamedTuple):
    """Mean and variance, and their derivatives with respect to the points, each (m, d)."""

    mean: Array
    variance: Array
    mean_gradient: Array
    variance_gradient: Array


class PosteriorSlope(Protocol):
    """The derivatives of a mean and a standard deviation by the points."""

    def by_points(self, by_mean: Array, by_std: Array) -> Array:
        """∂a/∂u of a function a with these derivatives by mean and deviation, each (m,), at each point u, (m, d)."""


class LocalPosterior(Protocol):
    """A posterior around some centers. Each point u belongs to one of them: ``center`` are indices, (m,)."""

    def posterior(self, u: Array, center: Index) -> tuple[Array, Array]:
        """Mean and standard deviation at the rows of U, each (m,)."""

    def with_slope(self, u: Array, center: Index) -> tuple[Array, Array, PosteriorSlope]:
        """Mean and standard deviation at the rows of U, each (m,), and their derivatives."""


class PoolPosterior(Protocol):
    """A posterior at fixed ``points``, (m, d), that follows the model as it grows."""

    @property
    def points(self) -> Array:
        """The points, (m, d)."""

    def posterior(self) -> tuple[Array, Array]:
        """Mean and standard deviation at the points, each (m,). Costs O(n) a point for every new row."""

    def truncate(self, n: int) -> None:
        """Keep only the first ``n`` rows; call it when the model is truncated."""


class Posterior(Protocol):
    """A model of one output given its rows. Several processes with weights can be one, too."""

    @property
    def X(self) -> Array:  # noqa: N802 - the name everyone gives it
        """Points of all rows, (n, d)."""

    @property
    def targets(self) -> Array:
        """Targets of all rows, NaN where pending, (n,)."""

    @property
    def known_variances(self) -> Array:
        """Known noise variance of each row, in addition to `noise`, (n,); `NO_VALUE` where there is no value."""

    @property
    def noise(self) -> float:
        """The noise variance that all rows share."""

    @property
    def ranges(self) -> Array:
        """The distance along each column that makes a difference, (d,)."""

    def smoothed(self) -> Array:
        """The posterior mean at each row, without its noise, (n,). Needs no solve."""

    def mean(self, u: Array) -> Array:
        """The posterior mean at the rows of U, (m,), in O(n m)."""

    def posterior(self, u: Array) -> Moments:
        """Mean and variance at the rows of U, each (m,)."""

    def posterior_covariance(self, u: Array) -> tuple[Array, Array]:
        """Mean, (m,), and joint covariance, (m, m), at the rows of U."""

    def told_covariance(self, u: Array) -> Array:
        """The joint covariance at the rows of U, (m, m), given only the rows that have a target."""

    def around(self, centers: Array) -> LocalPosterior:
        """A cheap approximation around some centers, (c, d)."""

    def pool(self, points: Array) -> PoolPosterior:
        """The posterior at fixed points, (m, d)."""


def root_of(covariance: Array) -> Array:
    """R with R Rᵀ = covariance, (m, m).

    It is computed from the eigenvalues: if points coincide, there is no Cholesky factor.
    """
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))


class Pool:
    """The posterior of a process at fixed points. V gets one row for each new row of X: O(n) a point, not O(n²).

    The rows that were appended together are solved in chunks of `CHUNK_ROWS`, the others row by row. So V is the same
    to the last bit whether it grew with the factor or was computed at once.
    """

    def __init__(self, process: "Process", points: Array) -> None:
        self.points = points
        self._process = process
        self._factorisation = (0, 0)
        self._v = np.zeros((0, len(points)))
        self._n = 0
        self._variance = np.zeros(len(points))
        self._prepared: Any = None  # the features of the points
        self._expected: Array | float = 0.0  # the prior mean

    def posterior(self) -> tuple[Array, Array]:
        """Mean and standard deviation at the points, each (m,)."""
        process = self._process
        factorisation = (process.rebuilds, process.factor.refactorisations)
        if factorisation != self._factorisation or process.n < self._n:
            self._factorisation, self._n = factorisation, 0
        if self._n == 0:
            z = process.kernel.features(self.points)
            self._prepared, self._variance = process.kernel.prepared(z), process.kernel.diagonal(z)
            self._expected = 0.0 if process.prior is None else process.prior(self.points)
        if process.n > self._n:
            self._extend()
        mean = process.whitened @ self._v[: process.n] + self._expected
        return mean, np.sqrt(np.maximum(self._variance, 0.0))

    def truncate(self, n: int) -> None:
        """Keep only the first ``n`` rows. Of rows that were appended together only whole chunks may stay."""
        if n < self._n:
            self._n = n
            self._variance = self._process.kernel.diagonal(self._process.kernel.features(self.points))
            for rows in groups_of_rows(0, n, self._process.built):
                self._subtract(rows)

    def _extend(self) -> None:
        process = self._process
        if process.n > len(self._v):
            grown = np.empty((max(process.n, len(self._v) * 5 // 4 + 64), len(self.points)))
            grown[: self._n] = self._v[: self._n]
            self._v = grown
        self._v[self._n : process.n] = process.kernel.between(process.features[self._n : process.n], self._prepared)
        for rows in groups_of_rows(self._n, process.n, process.built):
            process.factor.finish_solve(self._v[: rows.stop], rows.start, together=CHUNK_ROWS)
            self._subtract(rows)
        self._n = process.n

    def _subtract(self, rows: slice) -> None:
        self._variance -= np.einsum("ij,ij->j", self._v[rows], self._v[rows])


def groups_of_rows(first: int, stop: int, built: int) -> list[slice]:
    """Rows [first, stop) in the groups that are solved together: the first ``built`` in chunks, then one by one."""
    chunks = [*range(first, min(stop, built), CHUNK_ROWS)]
    starts = [*chunks, *range(max(first, min(stop, built)), stop), stop]
    return [slice(a, b) for a, b in pairwise(starts)]


class NearField:
    """A cheap approximation of the posterior of a process around some centers.

    The rows nearest to the centers enter the mean exactly; the part of all other rows is linear around each center. The
    variance is the one given only the nearest rows. With at most `NEAR_ROWS` rows both are exact.
    """

    def __init__(self, process: "Process", centers: Array) -> None:
        self._kernel = process.kernel
        self._centers = centers
        self._far: tuple[Array, Array] | None = None
        self._prior = None if process.prior is None else NearMean(process.prior, centers)
        if process.n <= NEAR_ROWS:
            self._z, self._alpha = process.kernel.prepared(process.features), process.alpha
            self._inverse = inverse_of(process)
            return
        k, slope = process.kernel.with_slope(process.kernel.features(centers), process.features)
        nearness = np.where(process.known_variances < NO_VALUE, k.max(axis=0), -np.inf)
        rows = np.sort(np.argpartition(nearness, -NEAR_ROWS)[-NEAR_ROWS:])
        alpha = process.alpha
        self._z, self._alpha = process.kernel.prepared(process.features[rows]), alpha[rows]
        far = alpha.copy()
        far[rows] = 0.0
        self._far = k @ far, slope.by_points(far)
        self._inverse = inverse_of(process, rows)

    def posterior(self, u: Array, center: Index) -> tuple[Array, Array]:
        """Mean and standard deviation at the rows of U, each near its center, (m,)."""
        z = self._kernel.features(u)
        k = self._kernel.between(z, self._z)
        return self._mean(u, center, k), self._std(z, k, k @ self._inverse)

    def with_slope(self, u: Array, center: Index) -> tuple[Array, Array, "NearSlope"]:
        """Mean and standard deviation at the rows of U, each near its center, (m,), and their derivatives."""
        z = self._kernel.features(u)
        k, slope = self._kernel.with_slope(z, self._z)
        beta = k @ self._inverse
        std = self._std(z, k, beta)
        other_gradient = None if self._far is None else self._far[1][center]
        if self._prior is not None:
            by_prior = self._prior.gradient(u, center)
            other_gradient = by_prior if other_gradient is None else by_prior + other_gradient
        return self._mean(u, center, k), std, NearSlope(std, slope, self._alpha, beta, other_gradient)

    def _mean(self, u: Array, center: Index, k: Array) -> Array:
        mean: Array = k @ self._alpha
        if self._far is not None:
            far_mean, far_gradient = self._far
            mean += far_mean[center] + np.vecdot(far_gradient[center], _steps(u, self._centers[center]))
        return mean if self._prior is None else mean + self._prior(u, center)

    def _std(self, z: Array, k: Array, beta: Array) -> Array:
        prior = self._kernel.diagonal(z)
        variance = prior - np.vecdot(k, beta)
        return np.sqrt(np.maximum(variance, MIN_VARIANCE * prior, out=variance))


class NearSlope(NamedTuple):
    """What the derivatives of a near field by the points need."""

    std: Array
    slope: "Slope"
    alpha: Array
    beta: Array
    other_gradient: Array | None  # of the parts of the mean that are not sums over the nearest rows

    def by_points(self, by_mean: Array, by_std: Array) -> Array:
        """∂a/∂u of a function a with these derivatives by mean and deviation, (m, d).

        ∂a = a_μ ∂μ + a_σ ∂σ, with ∂σ = -Σᵢ βᵢ ∂k(u, xᵢ) / σ: one sum over the rows with the weights a_μ α - a_σ β / σ.
        """
        weights = by_mean[:, None] * self.alpha
        weights -= (by_std / self.std)[:, None] * self.beta
        gradient = self.slope.by_points(weights)
        if self.other_gradient is not None:
            gradient += by_mean[:, None] * self.other_gradient
        return gradient


class NearMean:
    """A cheap approximation of a prior mean around some centers: the parts that are far away are linear."""

    def __init__(self, prior: "PriorMean", centers: Array) -> None:
        self._kernel, self._centers, self._offset = prior.kernel, centers, prior.offset
        self._far: tuple[Array, Array] | None = None
        if len(prior.z) <= NEAR_CENTERS:
            self._z, self._weights = prior.kernel.prepared(prior.z), prior.weights
            return
        k, slope = prior.kernel.with_slope(prior.kernel.features(centers), prior.z)
        near = np.sort(np.argpartition(k.max(axis=0), -NEAR_CENTERS)[-NEAR_CENTERS:])
        self._z, self._weights = prior.kernel.prepared(prior.z[near]), prior.weights[near]
        far = prior.weights.copy()
        far[near] = 0.0
        self._far = k @ far, slope.by_points(far)

    def __call__(self, u: Array, center: Index) -> Array:
        """The prior mean at the rows of U, each near its center, (m,)."""
        mean: Array = self._offset + self._kernel.between(self._kernel.features(u), self._z) @ self._weights
        if self._far is not None:
            far_mean, far_gradient = self._far
            mean += far_mean[center] + np.vecdot(far_gradient[center], _steps(u, self._centers[center]))
        return mean

    def gradient(self, u: Array, center: Index) -> Array:
        """Its derivatives by U, (m, d)."""
        found = self._kernel.with_slope(self._kernel.features(u), self._z)[1].by_points(self._weights)
        return found if self._far is None else found + self._far[1][center]


def _steps(u: Array, centers: Array) -> Array:
    """The way from each center, (m, d); 0 where an entry is inactive."""
    way = u - centers
    way[np.isnan(way)] = 0.0
    return way


@one_thread()
def inverse_of(process: "Process", rows: Index | None = None) -> Array:
    """The inverse of K between some rows, (r, r), or all of them, with noise and jitter; O(r³)."""
    if rows is None:
        return process.factor.inverse()
    k = process.covariance_among(rows)
    k.reshape(-1)[:: len(k) + 1] += (process.noise + process.known_variances + process.factor.jitter)[rows]
    return inverted(k)
