"""The Gaussian process: exact inference on a factor that is extended, and rebuilt only if the kernel changes.

Targets are in the units of the process; `lazybo.gp.lazy_gp` and the optimiser's surrogate convert values to targets and
back.

======  ===================================================================  ===============
symbol  meaning                                                              shape
======  ===================================================================  ===============
X       points                                                               (n, d)
t       targets, of one output or of q that share K; NaN: pending            (n,) or (n, q)
v       known noise variance of each row, in units of t²                     (n,)
σₙ²     noise variance that all rows share, in units of t² (`noise`)         scalar
K       k(X, X) + diag(σₙ² + v) = L Lᵀ                                       (n, n)
w       L⁻¹ t                                                                as t
α       K⁻¹ t = L⁻ᵀ w                                                        as t
m       prior mean, 0 unless one is given; t above is t - m(X) then          (n,)
U       points to predict at                                                 (m, d)
V       L⁻¹ k(X, U)                                                          (n, m)
======  ===================================================================  ===============

Posterior (paper, algorithm 1): mean = m(U) + Vᵀ w, covariance = k(U, U) - Vᵀ V. Pending rows are explained in
`lazybo.gp.weights`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazybo.core.blas import one_thread
from lazybo.core.checks import Array, as_array, as_shape, finite, positive
from lazybo.gp.cholesky import GrowingCholesky
from lazybo.gp.kernels.base import Kernel, PriorMean, as_kernel
from lazybo.gp.posterior import NO_VALUE, MomentGradients, Moments, NearField, Pool
from lazybo.gp.targets import product, relative_variances
from lazybo.gp.weights import CovarianceCache, SolutionCache, Weights

# Rows to append at a time, to limit temporary memory to this many columns of K.
BLOCK_ROWS = 512
# Rows to leave out at a time, for the same reason.
LEFT_OUT_ROWS = 256


class Process:
    """Gaussian process that adds t rows in O(t n²); a `Posterior` if it has one output.

    Do not write to ``kernel``, ``noise`` and ``factor``; `set_parameters` changes them. ``rebuilds`` counts how often
    `set_parameters` has factored all of K. ``built`` is the number of first rows that were added by `append`.
    """

    def __init__(self, kernel: Kernel, noise: float = 1e-6, prior: PriorMean | None = None) -> None:
        self.kernel = as_kernel(kernel)
        self.noise = positive("noise", noise)
        self.prior = prior
        self.factor = GrowingCholesky()
        self.rebuilds = self.built = 0
        self._x = np.zeros((0, kernel.dim))
        self._z = kernel.features(self._x)
        self._known = np.zeros(0)
        self._expected = np.zeros(0)  # the prior mean of each row
        self._weights = Weights()
        self._solutions = SolutionCache()
        self._covariances = CovarianceCache()

    # ------------------------------------------------------------------ state

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self._x)

    @property
    def X(self) -> Array:  # noqa: N802 - the name everyone gives it
        """Points, (n, d); a read-only view."""
        return read_only(self._x)

    @property
    def features(self) -> Array:
        """Z, the kernel's features of the points, (n, D); a read-only view."""
        return read_only(self._z)

    @property
    def targets(self) -> Array:
        """t with the prior mean, NaN where pending, (n,) or (n, q); a read-only view."""
        return read_only(self._weights.targets if self.prior is None else self._weights.targets + self._expected)

    @property
    def known_variances(self) -> Array:
        """v, (n,); a read-only view."""
        return read_only(self._known)

    # ----------------------------------------------------------------- change

    @one_thread()
    def append(self, x: ArrayLike, targets: ArrayLike, *, variance: ArrayLike | None = None) -> None:
        """Add rows X, (t, d), with targets, (t,) or (t, q), in O(t n²); NaN targets are pending.

        ``variance`` is the known noise variance of each row, in addition to the shared noise, (t,).
        """
        new_x = self.kernel.check(x)
        before = self._weights.targets if self.n else np.zeros((0, *np.shape(targets)[1:]))
        new = as_targets("targets", targets, (len(new_x), *before.shape[1:]))
        known = np.zeros(len(new_x)) if variance is None else as_variances(variance, len(new_x))
        # Everything that may fail comes before the first change.
        expected = np.zeros(0) if self.prior is None else self.prior(new_x)
        all_targets = np.concatenate((before, new if self.prior is None else new - expected))
        new_z = self.kernel.features(new_x)
        known = relative_variances(known, 1.0)
        refactorisations, together = self.factor.refactorisations, self.built == self.n
        solved = self._solutions.get(new_x[0]) if len(new_x) == 1 else None
        _extend(self.factor, self._covariances, self.kernel, self._z, new_z, self.noise + known, solved)
        self._solutions.clear()
        if self.factor.refactorisations != refactorisations:
            self._weights.forget()
        self._x = np.concatenate((self._x, new_x))
        self._z = np.concatenate((self._z, new_z))
        self._known = np.concatenate((self._known, known))
        self._expected = np.concatenate((self._expected, expected))
        self._weights.set(all_targets)
        if together:
            self.built = self.n

    def append_alone(self, x: Array, target: float = np.nan, *, variance: float = 0.0) -> None:
        """Add one row, (d,), to a process with one output, so that every bit depends only on the rows before it.

        In `append` the rounding of a row also depends on the rows that are added with it.
        """
        if self._solutions.get(x) is None:
            point = self.kernel.check(x[None])
            self._solutions.solve(self.factor, point, self.kernel.between(self._z, self.kernel.features(point)))
        built = self.built
        self.append(x[None], [target], variance=[variance])
        self.built = built

    def truncate(self, n: int) -> None:
        """Keep only the first ``n`` rows, in O(1) for the factor."""
        self.factor.truncate(n)
        self._solutions.clear()
        self._covariances.truncate(n)
        self._x, self._z, self._known = self._x[:n], self._z[:n], self._known[:n]
        self._expected, self.built = self._expected[:n], min(self.built, n)
        self._weights.truncate(n)

    def set_targets(self, targets: ArrayLike) -> None:
        """Replace all targets (NaN: pending). Needs no factorisation, only a few solves at the next posterior."""
        shape = np.shape(targets)
        checked = as_targets("targets", targets, (self.n, *shape[1:]))
        self._weights.set(checked.copy() if self.prior is None else checked - self._expected)

    @one_thread()
    def set_parameters(self, kernel: Kernel, noise: float, *, variance: ArrayLike | None = None) -> None:
        """Change the kernel (with the same columns) and the noise. Only this factors all of K again, O(n³).

        ``variance`` replaces the known variances as well, (n,).
        """
        if as_kernel(kernel).columns != self.kernel.columns:
            raise ValueError("the new kernel must have the same columns as the old one")
        noise = positive("noise", noise)
        known = self._known if variance is None else relative_variances(as_variances(variance, self.n), 1.0)
        z = kernel.features(self._x)
        factor, covariances = GrowingCholesky(), CovarianceCache()
        factor.work, factor.refactorisations = self.factor.work, self.factor.refactorisations
        _extend(factor, covariances, kernel, z[:0], z, noise + known)
        self.kernel, self.noise, self._known = kernel, noise, known
        self._z, self.factor, self._covariances = z, factor, covariances
        self._solutions.clear()
        self._weights.forget()
        self.rebuilds += 1

    # ---------------------------------------------------------------- predict

    @property
    def ranges(self) -> Array:
        """The distance along each column that makes a difference, (d,)."""
        return self.kernel.ranges

    def around(self, centers: Array) -> NearField:
        """A cheap approximation around some centers, (c, d)."""
        return NearField(self, centers)

    def pool(self, points: Array) -> Pool:
        """The posterior at fixed points, (m, d)."""
        return Pool(self, points)

    @one_thread()
    def covariance_among(self, rows: NDArray[np.intp]) -> Array:
        """k between some rows of X, in ascending order, without noise, (r, r). The first rows are cached."""
        k = self._covariances.get(rows)
        return self.kernel.between(self._z[rows], self._z[rows]) if k is None else k

    @one_thread()
    def smoothed(self) -> Array:
        """The posterior mean at each row, (n,) or (n, q): t - (σₙ² + v) ∘ α, which needs no solve."""
        smoothed: Array = self.targets - (self.noise + self.known_variances) * self.alpha
        return smoothed

    @one_thread()
    def mean(self, u: ArrayLike) -> Array:
        """The posterior mean at the rows of U, (m,) or (m, q), in O(n m). No solves are needed."""
        points = self.kernel.check(u, "U")
        k = self.kernel.between(self._z, self.kernel.features(points))
        found = product(k.T @ self._weights.alpha(self.factor), self._weights.unit)
        return found if self.prior is None else found + self.prior(points)

    @one_thread()
    def posterior(self, u: ArrayLike) -> Moments:
        """Mean and variance of the latent function at the rows of U."""
        points = self.kernel.check(u, "U")
        z = self.kernel.features(points)
        v = self._solutions.solve(self.factor, points, self.kernel.between(self._z, z))
        return Moments(self._mean(v, points), _variance(self.kernel, z, v))

    @one_thread()
    def posterior_gradient(self, u: ArrayLike) -> MomentGradients:
        """`posterior` and its derivatives with respect to U, for one output, by two triangular solves.

        ∂mean = Σᵢ αᵢ ∂k(u, xᵢ);  ∂variance = -2 Σᵢ βᵢ ∂k(u, xᵢ) with β = L⁻ᵀ V. Categorical and inactive entries have
        derivative 0.
        """
        points = self.kernel.check(u, "U")
        z = self.kernel.features(points)
        k, slope = self.kernel.with_slope(z, self._z)
        v = self.factor.solve_lower(k.T)
        beta = self.factor.solve_upper(v)
        by_mean = product(slope.by_points(self._weights.alpha(self.factor)), self._weights.unit)
        if self.prior is not None:
            by_mean = by_mean + self.prior.gradient(points)
        by_variance = -2.0 * slope.by_points(beta.T)
        return MomentGradients(self._mean(v, points), _variance(self.kernel, z, v), by_mean, by_variance)

    @one_thread()
    def posterior_covariance(self, u: ArrayLike) -> tuple[Array, Array]:
        """Mean, (m,) or (m, q), and joint covariance, (m, m), of the latent function at the rows of U."""
        points = self.kernel.check(u, "U")
        z = self.kernel.features(points)
        v = self.factor.solve_lower(self.kernel.between(self._z, z))
        return self._mean(v, points), self.kernel.between(z, z) - v.T @ v

    @one_thread()
    def told_covariance(self, u: ArrayLike) -> Array:
        """The joint covariance at the rows of U, (m, m), given only the rows with a target.

        With p the pending rows, k their covariances with U set to 0, A = K⁻¹, C = L⁻¹ E_p and V = L⁻¹ k, it is
        k(U, U) - Vᵀ V + (Cᵀ V)ᵀ (Cᵀ C)⁻¹ (Cᵀ V), since the inverse of K without p is A_oo - A_op (A_pp)⁻¹ A_po.
        """
        z, rows = self.kernel.features(self.kernel.check(u, "U")), np.flatnonzero(self._weights.pending)
        k = self.kernel.between(self._z, z)
        k[rows] = 0.0
        columns = np.zeros((self.n, len(rows)))
        columns[rows, np.arange(len(rows))] = 1.0
        v, c = self.factor.solve_lower(k), self.factor.solve_lower(columns)
        cross = c.T @ v
        return np.asarray(self.kernel.between(z, z) - v.T @ v + cross.T @ np.linalg.solve(c.T @ c, cross))

    @one_thread()
    def log_marginal_likelihood(self) -> float:
        """log p(t | X) = -½ tᵀα - Σ log Lᵢᵢ - n/2 log 2π (paper, algorithm 1, line 7), the sum over all outputs."""
        if self._weights.pending.any():
            raise ValueError("the likelihood needs a target for every row, but some rows are pending")
        w, unit = self._weights.whitened(self.factor), self._weights.unit
        outputs = 1 if w.ndim == 1 else w.shape[1]
        constant = self.factor.logdet() + self.n * float(np.log(2 * np.pi))
        return -0.5 * (float(np.vdot(w, w)) * unit * unit + outputs * constant)

    @property
    @one_thread()
    def whitened(self) -> Array:
        """w = L⁻¹ t; the mean at any points is Vᵀ w, plus the prior mean."""
        return read_only(product(self._weights.whitened(self.factor), self._weights.unit))

    @property
    @one_thread()
    def alpha(self) -> Array:
        """α = K⁻¹ t; 0 where pending."""
        return read_only(product(self._weights.alpha(self.factor), self._weights.unit))

    def _mean(self, v: Array, points: Array) -> Array:
        found = product(v.T @ self._weights.whitened(self.factor), self._weights.unit)
        return found if self.prior is None else found + self.prior(points)


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
def leave_one_out(process: Process, most: int | None = None) -> LeftOut:
    """The predictions for all rows that have a target, or for ``most`` of them, spread evenly.

    A process without row i predicts tᵢ - αᵢ/Bᵢᵢ there, with or without a prior mean, and a measurement has the variance
    1/Bᵢᵢ. B is the inverse of K without the pending rows p: with A = K⁻¹, Bᵢᵢ = Aᵢᵢ - Aᵢₚ (Aₚₚ)⁻¹ Aₚᵢ. A row costs one
    triangular solve, O(n²). Nothing is factored again.
    """
    known = ~np.isnan(process.targets) & (process.known_variances < NO_VALUE)
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


def as_targets(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Array:
    """``values`` as doubles of this shape, finite or NaN."""
    targets = as_array(name, values, len(shape))
    if targets.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, but has shape {targets.shape}")
    finite(name, targets[~np.isnan(targets)])
    return targets


def as_variances(variance: ArrayLike, n: int) -> Array:
    """``variance`` as n finite numbers that are not negative."""
    known = as_shape("variance", variance, (n,))
    if (known < 0).any():
        raise ValueError(f"variance must not be negative, but its smallest entry is {known.min()}")
    return known


def read_only(array: Array) -> Array:
    """A view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def _variance(kernel: Kernel, z: Array, v: Array) -> Array:
    return np.maximum(kernel.diagonal(z) - np.einsum("ij,ij->j", v, v), 0.0)


def _extend(
    factor: GrowingCholesky,
    covariances: CovarianceCache,
    kernel: Kernel,
    z: Array,
    new_z: Array,
    noise: Array,
    solved: Array | None = None,
) -> None:
    """Append the rows of K for new features to the factor, a few hundred at a time. If it fails, none are added.

    The same rows without noise are cached in ``covariances``.
    """
    before, every = factor.n, np.concatenate((z, new_z))
    try:
        for start in range(0, len(new_z), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            new = new_z[rows]
            block = kernel.between(new, new)
            cross = kernel.between(every[: before + start], new)
            covariances.add(cross, block)
            block.reshape(-1)[:: len(block) + 1] += noise[rows]
            factor.append(cross, block, solved=solved)
    except BaseException:
        factor.truncate(before)
        covariances.truncate(before)
        raise
