"""What the search needs of the posterior of a process: moments, a prior mean, a near field.

======  ============================================================  ==========
symbol  meaning                                                       shape
======  ============================================================  ==========
X, t    rows of the model and their targets; NaN where pending        (n, d), (n,)
U       points to predict at                                          (m, d)
V       L⁻¹ k(X, U)                                                   (n, m)
α, β    K⁻¹ t, K⁻¹ k(X, u)                                            (n,), (m, n)
======  ============================================================  ==========

A `NearField` approximates the posterior around a few centers, which makes the search cheap. `leave_one_out` predicts
each target without it. All numbers are in units of the targets.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazybo.core import Array, one_thread

if TYPE_CHECKING:
    from lazybo.gp.kernels.base import Kernel, Slope
    from lazybo.gp.process import Process

Index: TypeAlias = NDArray[np.intp]
Mask: TypeAlias = NDArray[np.bool_]

# The known variance of a row that has no value and never will have one, in units of t²: the row changes nothing.
NO_VALUE = 1e10
# Solutions that grow with the factor are kept in whole chunks of this many rows; later rows are solved again. So a
# solution is the same to the last bit however often rows were added.
CHUNK_ROWS = 64
# A near field has this many rows, and this many centers of a prior mean.
NEAR_ROWS = 192
NEAR_CENTERS = 384
# Rows to leave out at a time, to limit temporary memory to this many columns of K.
LEFT_OUT_ROWS = 256
# Batch size of a prior mean: limits memory.
BLOCK_POINTS = 256
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


def root_of(covariance: Array) -> Array:
    """R with R Rᵀ = covariance, (m, m), from the eigenvalues: if points coincide, there is no Cholesky factor."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))


@dataclass(frozen=True, eq=False)
class PriorMean:
    """What a process predicts where it has no observations: m(u) = ``offset`` + Σᵢ βᵢ k(u, xᵢ). Immutable.

    The centers have the features ``z``, (n, D), and the ``weights`` β, (n,). Posterior means of other processes with
    the same kernel, and weighted sums of them, have this form.
    """

    kernel: "Kernel"
    z: Array
    weights: Array
    offset: float

    def __call__(self, u: Array) -> Array:
        """m at the rows of U, (m,)."""
        blocks = (u[start : start + BLOCK_POINTS] for start in range(0, len(u), BLOCK_POINTS))
        sums = [self.kernel.between(self.kernel.features(block), self.z) @ self.weights for block in blocks]
        return self.offset + np.concatenate([*sums, np.zeros(0)])

    def gradient(self, u: Array) -> Array:
        """The derivatives of m by the rows of U, (m, w)."""
        return self.kernel.with_slope(self.kernel.features(u), self.z)[1].by_points(self.weights)


class NearSum:
    """Σᵢ wᵢ k(u, zᵢ) around some centers: the ``most`` nearest terms exactly, the others linear around each center.

    ``usable`` marks the terms that may be near ones, (n,).
    """

    def __init__(
        self, kernel: "Kernel", z: Array, weights: Array, centers: Array, most: int, usable: Mask | None = None
    ) -> None:
        self._centers = centers
        self._far: tuple[Array, Array] | None = None
        self.rows: Index | None = None  # the near ones; None if all are
        if len(z) > most:
            k, slope = kernel.with_slope(kernel.features(centers), z)
            nearness = k.max(axis=0) if usable is None else np.where(usable, k.max(axis=0), -np.inf)
            self.rows = np.sort(np.argpartition(nearness, -most)[-most:])
            far = weights.copy()
            far[self.rows] = 0.0
            self._far = k @ far, slope.by_points(far)
            z, weights = z[self.rows], weights[self.rows]
        self.z, self.weights = z, weights

    def add_far(self, mean: Array, u: Array, center: Index) -> Array:
        """Add the terms that are far away to the sum of the near ones at the rows of U, (m,)."""
        if self._far is not None:
            values, gradients = self._far
            way = u - self._centers[center]
            way[np.isnan(way)] = 0.0  # inactive entries
            mean += values[center] + np.vecdot(gradients[center], way)
        return mean

    def far_gradient(self, center: Index) -> Array | None:
        """The derivatives of the terms that are far away, (m, d); None if there are none."""
        return None if self._far is None else self._far[1][center]


class NearField:
    """A cheap approximation of the posterior of a process around some centers.

    The mean is a `NearSum`. The variance is the one given only the nearest rows. With at most `NEAR_ROWS` rows both are
    exact.
    """

    def __init__(self, process: "Process", centers: Array) -> None:
        self._kernel = process.kernel
        self._prior = None if process.prior is None else NearMean(process.prior, centers)
        self._sum = NearSum(process.kernel, process.rows.c, process.alpha, centers, NEAR_ROWS, process.rows.informative)
        self._inverse = process.inverse_among(self._sum.rows)

    def posterior(self, u: Array, center: Index) -> tuple[Array, Array]:
        """Mean and standard deviation at the rows of U, each near its center, (m,)."""
        z = self._kernel.features(u)
        k = self._kernel.between(z, self._sum.z)
        return self._mean(u, center, k), self._std(z, k, k @ self._inverse)

    def with_slope(self, u: Array, center: Index) -> tuple[Array, Array, "NearSlope"]:
        """Mean and standard deviation at the rows of U, each near its center, (m,), and their derivatives."""
        z = self._kernel.features(u)
        k, slope = self._kernel.with_slope(z, self._sum.z)
        beta = k @ self._inverse
        std = self._std(z, k, beta)
        other_gradient = self._sum.far_gradient(center)
        if self._prior is not None:
            by_prior = self._prior.gradient(u, center)
            other_gradient = by_prior if other_gradient is None else by_prior + other_gradient
        return self._mean(u, center, k), std, NearSlope(std, slope, self._sum.weights, beta, other_gradient)

    def _mean(self, u: Array, center: Index, k: Array) -> Array:
        mean = self._sum.add_far(k @ self._sum.weights, u, center)
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
    """A cheap approximation of a prior mean around some centers."""

    def __init__(self, prior: PriorMean, centers: Array) -> None:
        self._kernel, self._offset = prior.kernel, prior.offset
        self._sum = NearSum(prior.kernel, prior.z, prior.weights, centers, NEAR_CENTERS)

    def __call__(self, u: Array, center: Index) -> Array:
        """The prior mean at the rows of U, each near its center, (m,)."""
        k = self._kernel.between(self._kernel.features(u), self._sum.z)
        return self._sum.add_far(self._offset + k @ self._sum.weights, u, center)

    def gradient(self, u: Array, center: Index) -> Array:
        """Its derivatives by U, (m, d)."""
        slope = self._kernel.with_slope(self._kernel.features(u), self._sum.z)[1]
        near, far = slope.by_points(self._sum.weights), self._sum.far_gradient(center)
        return near if far is None else near + far


class LeftOut(NamedTuple):
    """What a process predicts for each of some rows without that row, in units of the targets.

    ``mean`` and ``deviation`` describe a measurement, with its noise.
    """

    rows: NDArray[np.intp]
    mean: Array
    deviation: Array

    def standardised(self, targets: Array) -> Array:
        """The errors in units of the predicted deviations, for all targets of the process, (r,)."""
        return (targets[self.rows] - self.mean) / self.deviation


@one_thread()
def leave_one_out(process: "Process", most: int | None = None) -> LeftOut:
    """The predictions for all rows that have a target, or for ``most`` of them, spread evenly.

    A process without row i predicts tᵢ - αᵢ/Bᵢᵢ there, with or without a prior mean, and a measurement has the variance
    1/Bᵢᵢ. B is the inverse of K without the pending rows p: with A = K⁻¹, Bᵢᵢ = Aᵢᵢ - Aᵢₚ (Aₚₚ)⁻¹ Aₚᵢ. A row costs one
    triangular solve, O(n²). Nothing is factored again.
    """
    known = ~np.isnan(process.targets) & process.rows.informative
    rows = np.flatnonzero(known)
    if most is not None and len(rows) > most:
        rows = rows[np.linspace(0, len(rows) - 1, most).round().astype(np.intp)]
    pending = process.factor.unit_columns(np.flatnonzero(np.isnan(process.targets)))
    precision = np.empty(len(rows))
    for start in range(0, len(rows), LEFT_OUT_ROWS):
        block = slice(start, start + LEFT_OUT_ROWS)
        columns = process.factor.unit_columns(rows[block])
        precision[block] = np.einsum("ij,ij->j", columns, columns)
        if pending.shape[1]:
            cross = pending.T @ columns
            solved = np.linalg.solve(pending.T @ pending, cross)
            precision[block] -= np.einsum("ij,ij->j", cross, solved)
    return LeftOut(rows, process.targets[rows] - process.alpha[rows] / precision, 1.0 / np.sqrt(precision))


def told_covariance(process: "Process", u: Array) -> Array:
    """The joint covariance at the rows of U, (m, m), given only the rows with a target.

    With p the pending rows, k their covariances with U set to 0, A = K⁻¹, C = L⁻¹ E_p and V = L⁻¹ k, it is
    k(U, U) - Vᵀ V + (Cᵀ V)ᵀ (Cᵀ C)⁻¹ (Cᵀ V), since the inverse of K without p is A_oo - A_op (A_pp)⁻¹ A_po.
    """
    kernel, rows = process.kernel, np.flatnonzero(np.isnan(process.targets))
    z = kernel.features(kernel.check(u, "U"))
    k = kernel.between(process.rows.c, z)
    k[rows] = 0.0
    v, c = process.factor.solve_lower(k), process.factor.unit_columns(rows)
    cross = c.T @ v
    return np.asarray(kernel.between(z, z) - v.T @ v + cross.T @ np.linalg.solve(c.T @ c, cross))
