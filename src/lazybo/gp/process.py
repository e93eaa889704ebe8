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
from lazybo.gp.kernels import Kernel, as_kernel
from lazybo.gp.prior_mean import PriorMean
from lazybo.gp.remembered import Entries, Remembered
from lazybo.gp.units import product, relative_variances
from lazybo.gp.weights import Weights

# Rows to append at a time; this limits the temporary memory to so many columns of K.
BLOCK_ROWS = 512
# The known variance of a row that has no value and never will have one, in units of t²: the row changes nothing.
NO_VALUE = 1e10


class Posterior(NamedTuple):
    """Mean, (m,) or (m, q), and variance, (m,), of the latent function at m points.

    The variance is infinite where it would overflow, for values above about 1e154.
    """

    mean: Array
    variance: Array


class PosteriorGradient(NamedTuple):
    """The posterior, and its derivatives with respect to the points, each (m, d)."""

    mean: Array
    variance: Array
    mean_gradient: Array
    variance_gradient: Array


class Process:
    """Gaussian process that adds t rows in O(t n²); its prior mean is 0 unless ``prior`` is given, for one output.

    Do not write to ``kernel``, ``noise`` and ``factor``; `set_parameters` changes them. ``rebuilds`` counts how often
    `set_parameters` has factored all of K.
    """

    def __init__(self, kernel: Kernel, noise: float = 1e-6, prior: PriorMean | None = None) -> None:
        self.kernel = as_kernel(kernel)
        self.noise = positive("noise", noise)
        self.prior = prior
        self.factor = GrowingCholesky()
        self.rebuilds = 0
        self._x = np.zeros((0, kernel.dim))
        self._z = kernel.features(self._x)
        self._known = np.zeros(0)
        self._expected = np.zeros(0)  # the prior mean of each row
        self._weights = Weights()
        self._remembered = Remembered()
        self._entries = Entries()

    # ------------------------------------------------------------------ state

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self._x)

    @property
    def X(self) -> Array:  # noqa: N802 - the name everyone gives it
        """Points, (n, d); a view that must not be written to."""
        return read_only(self._x)

    @property
    def features(self) -> Array:
        """Z, the kernel's features of the points, (n, D); a view that must not be written to."""
        return read_only(self._z)

    @property
    def targets(self) -> Array:
        """t with the prior mean, NaN where pending, (n,) or (n, q); a view that must not be written to."""
        return read_only(self._weights.targets if self.prior is None else self._weights.targets + self._expected)

    @property
    def known_variances(self) -> Array:
        """v, (n,); a view that must not be written to."""
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
        refactorisations = self.factor.refactorisations
        solved = self._remembered.get(new_x[0]) if len(new_x) == 1 else None
        _extend(self.factor, self._entries, self.kernel, self._z, new_z, self.noise + known, solved)
        self._remembered.clear()
        if self.factor.refactorisations != refactorisations:
            self._weights.forget()
        self._x = np.concatenate((self._x, new_x))
        self._z = np.concatenate((self._z, new_z))
        self._known = np.concatenate((self._known, known))
        self._expected = np.concatenate((self._expected, expected))
        self._weights.set(all_targets)

    def append_alone(self, x: Array, target: float = np.nan, *, variance: float = 0.0) -> None:
        """Add one row, (d,), to a process with one output, so that every bit depends only on the rows before it.

        In `append` the rounding of a row also depends on the rows that are added with it.
        """
        if self._remembered.get(x) is None:
            point = self.kernel.check(x[None])
            self._remembered.solve(self.factor, point, self.covariance(point))
        self.append(x[None], [target], variance=[variance])

    def truncate(self, n: int) -> None:
        """Keep only the first ``n`` rows, in O(1) for the factor."""
        self.factor.truncate(n)
        self._remembered.clear()
        self._entries.truncate(n)
        self._x, self._z, self._known = self._x[:n], self._z[:n], self._known[:n]
        self._expected = self._expected[:n]
        self._weights.truncate(n)

    def set_targets(self, targets: ArrayLike) -> None:
        """Replace all targets (NaN: pending). Needs no factorisation, only a few solves at the next posterior."""
        shape = np.shape(targets)
        checked = as_targets("targets", targets, (self.n, *shape[1:]))
        self._weights.set(checked.copy() if self.prior is None else checked - self._expected)

    @one_thread()
    def set_parameters(self, kernel: Kernel, noise: float, *, variance: ArrayLike | None = None) -> None:
        """Change the kernel (of the same columns) and the noise. Only this factors all of K again, O(n³).

        ``variance`` replaces the known variances as well, (n,).
        """
        if as_kernel(kernel).columns != self.kernel.columns:
            raise ValueError("the new kernel must have the same columns as the old one")
        noise = positive("noise", noise)
        known = self._known if variance is None else relative_variances(as_variances(variance, self.n), 1.0)
        z = kernel.features(self._x)
        factor, entries = GrowingCholesky(), Entries()
        factor.work, factor.refactorisations = self.factor.work, self.factor.refactorisations
        _extend(factor, entries, kernel, z[:0], z, noise + known)
        self.kernel, self.noise, self._known = kernel, noise, known
        self._z, self.factor, self._entries = z, factor, entries
        self._remembered.clear()
        self._weights.forget()
        self.rebuilds += 1

    # ---------------------------------------------------------------- predict

    @one_thread()
    def covariance(self, u: ArrayLike, rows: slice = slice(None)) -> Array:
        """k between some rows of X and the rows of U, without noise, (n, m)."""
        return self.kernel.between(self._z[rows], self.kernel.features(self.kernel.check(u, "U")))

    @one_thread()
    def covariance_among(self, rows: NDArray[np.intp]) -> Array:
        """k between some rows of X, in ascending order, without noise, (r, r). For early rows nothing is computed."""
        k = self._entries.get(rows)
        return self.kernel.between(self._z[rows], self._z[rows]) if k is None else k

    @one_thread()
    def mean(self, u: ArrayLike) -> Array:
        """The posterior mean at the rows of U, (m,) or (m, q), in O(n m). No solves are needed."""
        found = product(self.covariance(u).T @ self._weights.alpha(self.factor), self._weights.unit)
        return found if self.prior is None else found + self.prior(self.kernel.check(u, "U"))

    @one_thread()
    def posterior(self, u: ArrayLike) -> Posterior:
        """Mean and variance of the latent function at the rows of U."""
        points = self.kernel.check(u, "U")
        z = self.kernel.features(points)
        v = self._remembered.solve(self.factor, points, self.kernel.between(self._z, z))
        return Posterior(self._mean(v, points), _variance(self.kernel, z, v))

    @one_thread()
    def posterior_gradient(self, u: ArrayLike) -> PosteriorGradient:
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
        return PosteriorGradient(self._mean(v, points), _variance(self.kernel, z, v), by_mean, by_variance)

    @one_thread()
    def posterior_covariance(self, u: ArrayLike) -> tuple[Array, Array]:
        """Mean, (m,) or (m, q), and joint covariance, (m, m), of the latent function at the rows of U."""
        points = self.kernel.check(u, "U")
        z = self.kernel.features(points)
        v = self.factor.solve_lower(self.kernel.between(self._z, z))
        return self._mean(v, points), self.kernel.between(z, z) - v.T @ v

    @one_thread()
    def told_covariance(self, u: ArrayLike) -> Array:
        """The joint covariance at the rows of U, (m, m), given only the rows with a target: no pending ones.

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


def root_of(covariance: Array) -> Array:
    """R with R Rᵀ = covariance, (m, m).

    It is computed from the eigenvalues: if points coincide, there is no Cholesky factor.
    """
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def as_targets(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Array:
    """``values`` as doubles of this shape, finite or NaN."""
    targets = as_array(name, values, len(shape))
    if targets.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, but has shape {targets.shape}")
    finite(name, targets[~np.isnan(targets)])
    return targets


def as_variances(variance: ArrayLike, n: int) -> Array:
    """``variance`` as n finite numbers, none of them negative."""
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
    entries: Entries,
    kernel: Kernel,
    z: Array,
    new_z: Array,
    noise: Array,
    solved: Array | None = None,
) -> None:
    """Append the rows of K for new features to the factor, a few hundred at a time. If it fails, none are added.

    The same rows without noise are kept in ``entries``.
    """
    before, every = factor.n, np.concatenate((z, new_z))
    try:
        for start in range(0, len(new_z), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            new = new_z[rows]
            block = kernel.between(new, new)
            cross = kernel.between(every[: before + start], new)
            entries.add(cross, block)
            block.reshape(-1)[:: len(block) + 1] += noise[rows]
            factor.append(cross, block, solved=solved)
    except BaseException:
        factor.truncate(before)
        entries.truncate(before)
        raise
