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

Posterior (paper, algorithm 1): mean = m(U) + Vᵀ w, covariance = k(U, U) - Vᵀ V.

A *pending* row has a point and no target yet (NaN). It lowers the variance and does not change the mean: its target is
what the other rows predict there, so its weight in α is 0. With p the pending rows, A = K⁻¹ and α⁰ = A [t; 0], that
target is -(A_pp)⁻¹ α⁰_p: no other factor is needed.
"""

from copy import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazybo.core import Array, checks, one_thread
from lazybo.gp.cholesky import GrowingCholesky, inverted
from lazybo.gp.kernels.base import Kernel, PriorMean, as_kernel
from lazybo.gp.posterior import CHUNK_ROWS, NO_VALUE, MomentGradients, Moments, NearField
from lazybo.gp.targets import product, relative_variances, unit_of

# Rows to append at a time, to limit temporary memory to this many columns of K.
BLOCK_ROWS = 512
# Solutions are cached for up to this many points. They are always solved as this many columns, so that the solution of
# a point does not depend on the other points, to the last bit.
CACHED_POINTS = 8
# k(X, X) is cached for up to this many rows: 8 MB.
CACHED_ROWS = 1024


class Process:
    """Gaussian process that adds t rows in O(t n²).

    Do not write to ``kernel``, ``noise`` and ``factor``; `set_parameters` changes them. ``rebuilds`` counts how often
    `set_parameters` has factored all of K. ``built`` is the number of first rows that were added by `append`.
    """

    def __init__(self, kernel: Kernel, noise: float = 1e-6, prior: PriorMean | None = None) -> None:
        self.kernel = as_kernel(kernel)
        self.noise = checks.positive("noise", noise)
        self.prior = prior
        self.factor = GrowingCholesky()
        self.rebuilds = self.built = 0
        self._x = np.zeros((0, kernel.width))
        self._z = kernel.features(self._x)
        self._known = np.zeros(0)
        self._expected = np.zeros(0)  # the prior mean of each row
        self._weights = Weights()
        self._solutions = SolutionCache()
        self._covariances = CovarianceCache()

    def copy(self) -> "Process":
        """An independent process with the same rows, in O(n / 256): see `GrowingCholesky.copy`."""
        process = copy(self)
        process.factor, process._covariances = self.factor.copy(), copy(self._covariances)
        process._weights, process._solutions = copy(self._weights), SolutionCache(self._solutions.known)
        return process

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

    @property
    def informative(self) -> NDArray[np.bool_]:
        """Which rows say something about values, (n,): not those of evaluations that failed (`NO_VALUE`)."""
        return self._known < NO_VALUE

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
        noise = checks.positive("noise", noise)
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

    def around(self, centers: Array) -> NearField:
        """A cheap approximation around some centers, (c, d)."""
        return NearField(self, centers)

    @one_thread()
    def inverse_among(self, rows: NDArray[np.intp] | None = None) -> Array:
        """The inverse of K between some rows in ascending order, (r, r), or all of them; O(r³)."""
        if rows is None:
            return self.factor.inverse()
        k = self._covariances.get(rows)
        k = self.kernel.between(self._z[rows], self._z[rows]) if k is None else k
        k.reshape(-1)[:: len(k) + 1] += (self.noise + self._known + self.factor.jitter)[rows]
        return inverted(k)

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
        """log p(t | X) = -½ tᵀα - Σ log Lᵢᵢ - n/2 log 2π (paper, algorithm 1, line 7), the sum over all outputs.

        Pending rows do not count. Their α is 0, so tᵀα is that of the other rows, whose log determinant is
        log det K + log det (K⁻¹)_pp.
        """
        w, unit = self._weights.whitened(self.factor), self._weights.unit
        outputs = 1 if w.ndim == 1 else w.shape[1]
        rows = np.flatnonzero(self._weights.pending)
        constant = self.factor.logdet() + (self.n - len(rows)) * float(np.log(2 * np.pi))
        if len(rows):
            columns = self.factor.unit_columns(rows)
            constant += float(np.linalg.slogdet(columns.T @ columns)[1])
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


def as_targets(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Array:
    """``values`` as doubles of this shape, finite or NaN."""
    targets = checks.as_array(name, values, len(shape))
    if targets.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, but has shape {targets.shape}")
    checks.finite(name, targets[~np.isnan(targets)])
    return targets


def as_variances(variance: ArrayLike, n: int) -> Array:
    """``variance`` as n finite numbers that are not negative."""
    known = checks.as_shape("variance", variance, (n,))
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
    covariances: "CovarianceCache",
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


# ------------------------------------------------------------- weights and caches


class Weights:
    """w and α of the current targets, (n,) or (n, q), solved when they are first needed.

    Both are in units of ``unit``, a power of two: t = unit · right-hand side.
    """

    def __init__(self) -> None:
        self.targets = np.zeros(0)
        self.unit = 1.0
        self._right = np.zeros(0)  # the right-hand side: targets in ``unit``, 0 where pending
        self._whitened_right = np.zeros(0)  # the one that `_whitened` was solved for
        self._whitened = np.zeros(0)
        self._solved: tuple[Array, Array] | None = None

    @property
    def pending(self) -> NDArray[np.bool_]:
        """Which rows have no target yet, (n,)."""
        return _any_in_row(np.isnan(self.targets))

    def set(self, targets: Array) -> None:
        """Replace the targets; NaN means pending."""
        missing = np.isnan(targets)
        right = np.where(missing, 0.0, targets) if missing.any() else targets
        self.targets, self.unit = targets, unit_of(right)
        self._right = right if self.unit == 1.0 else right / self.unit
        self._solved = None

    def truncate(self, n: int) -> None:
        """Keep only the first ``n`` rows."""
        self._whitened, self._whitened_right = self._whitened[:n], self._whitened_right[:n]
        self.set(self.targets[:n])

    def forget(self) -> None:
        """Discard all solutions, because the factor has changed."""
        self._whitened = self._whitened_right = np.zeros((0, *self.targets.shape[1:]))
        self._solved = None

    def whitened(self, factor: GrowingCholesky) -> Array:
        """w."""
        return self._solve(factor)[0] if self.pending.any() else self._whiten(factor)

    def alpha(self, factor: GrowingCholesky) -> Array:
        """α, 0 where pending."""
        return self._solve(factor)[1]

    def _whiten(self, factor: GrowingCholesky) -> Array:
        """L⁻¹ of the right-hand side. If its first rows are unchanged, only w₂ = D⁻¹ (t₂ - Qᵀ w₁) is computed."""
        right, before = self._right, self._whitened_right
        if right is not before:
            done = _unchanged(right, before) // CHUNK_ROWS * CHUNK_ROWS
            w = np.concatenate((self._whitened[:done], right[done:])) if done else right.copy()
            factor.finish_solve(w, done, together=CHUNK_ROWS)
            self._whitened, self._whitened_right = w, right
        return self._whitened

    def _solve(self, factor: GrowingCholesky) -> tuple[Array, Array]:
        """w and α, with the targets of pending rows such that their α is 0."""
        if self._solved is None:
            w = self._whiten(factor)
            alpha = factor.solve_upper(w)
            rows = np.flatnonzero(self.pending)
            if len(rows):
                columns = factor.unit_columns(rows)
                change = columns @ np.linalg.solve(columns.T @ columns, -alpha[rows])
                w, alpha = w + change, alpha + factor.solve_upper(change)
                alpha[rows] = 0.0
            self._solved = w, alpha
        return self._solved


def _unchanged(right: Array, before: Array) -> int:
    """The number of leading rows that are equal in two arrays."""
    if right.shape[1:] != before.shape[1:]:
        return 0
    common = min(len(right), len(before))
    changed = np.flatnonzero(_any_in_row(right[:common] != before[:common]))
    return int(changed[0]) if len(changed) else common


def _any_in_row(flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return flags if flags.ndim == 1 else np.asarray(flags.any(axis=1))


class SolutionCache:
    """V = L⁻¹ k(X, U) of the last few predicted points, for one factor. One of them is often appended next."""

    def __init__(self, known: dict[bytes, Array] | None = None) -> None:
        self.known = known or {}

    def __getstate__(self) -> dict[str, Any]:
        """Copies are empty: a solution is a column of an array, and a copy of the column is rounded differently."""
        return {"known": {}}

    def get(self, point: Array) -> Array | None:
        """The solution of a point, (n,), or None if it is not in the cache."""
        return self.known.get(point.tobytes())

    def solve(self, factor: GrowingCholesky, points: Array, covariance: Array) -> Array:
        """V, (n, m), for k(X, U), (n, m). It is cached if there are few points."""
        m = len(points)
        if m > CACHED_POINTS:
            return factor.solve_lower(covariance)
        columns = np.zeros((factor.n, CACHED_POINTS))
        columns[:, :m] = covariance
        factor.finish_solve(columns, 0)
        v = columns[:, :m]
        self.known = {point.tobytes(): v[:, i] for i, point in enumerate(points)}
        return v

    def clear(self) -> None:
        """Empty the cache, because the factor has changed."""
        self.known = {}


class CovarianceCache:
    """k between the first rows of X, without noise. Copies share the array; only one of them adds rows to it."""

    def __init__(self) -> None:
        self._k = np.zeros((0, 0))
        self._n = 0
        self._filled = [0]  # how many rows of the array any copy has

    def add(self, cross: Array, block: Array) -> None:
        """Add t rows: k with all rows before them, (n, t), and among themselves, (t, t)."""
        first, stop = len(cross), len(cross) + len(block)
        if first != self._n or stop > CACHED_ROWS:
            return
        if stop > len(self._k) or self._filled[0] != first:
            enough = stop <= len(self._k)
            size = len(self._k) if enough else min(max(stop, 2 * len(self._k), 64), CACHED_ROWS)
            grown = np.zeros((size, size))
            grown[:first, :first] = self._k[:first, :first]
            self._k, self._filled = grown, [0]
        self._k[:first, first:stop] = cross
        self._k[first:stop, :first] = cross.T
        self._k[first:stop, first:stop] = block
        self._n = self._filled[0] = stop

    def get(self, rows: NDArray[np.intp]) -> Array | None:
        """k between some rows, in ascending order, (r, r); None if not all of them are cached."""
        return self._k[np.ix_(rows, rows)] if len(rows) and rows[-1] < self._n else None

    def truncate(self, n: int) -> None:
        """Keep only the first ``n`` rows."""
        self._n = min(self._n, n)
