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

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazybo.core import Array, checks
from lazybo.gp.cholesky import GrowingCholesky, inverted
from lazybo.gp.kernels.base import Kernel, as_kernel
from lazybo.gp.posterior import CHUNK_ROWS, NO_VALUE, MomentGradients, Moments, PriorMean
from lazybo.gp.targets import product, relative_variances, unit_of

# Rows to append at a time, to limit temporary memory to this many columns of K.
BLOCK_ROWS = 512
# log 2π
LOG_2PI = float(np.log(2 * np.pi))


class Rows(NamedTuple):
    """Rows of a process; processes with the same rows share them.

    ``x`` are the points, (n, w), and ``c`` their coordinates, (n, D); ``known`` is v and ``expected`` the prior mean,
    each (n,).
    """

    x: Array
    c: Array
    known: Array
    expected: Array

    def joined(self, kernel: Kernel, prior: PriorMean | None, x: Array, known: Array) -> "Rows":
        """These rows, and new ones with these points and known variances."""
        expected = np.zeros(len(x)) if prior is None else prior(x)
        new = (x, kernel.coordinates.of(x), relative_variances(known, 1.0), expected)
        return Rows(*(np.concatenate(pair) for pair in zip(self, new, strict=True)))

    @property
    def informative(self) -> NDArray[np.bool_]:
        """Which rows say something about values, (n,): not those of evaluations that failed (`NO_VALUE`)."""
        return self.known < NO_VALUE

    def first(self, n: int) -> "Rows":
        """The first n rows."""
        return Rows(*(each[:n] for each in self))


class RightHandSide:
    """Targets without the prior mean, as solves need them: immutable, so that processes with the same rows share it.

    ``values`` are the targets in units of ``unit``, a power of two, and 0 in the rows that are ``pending``.
    """

    def __init__(self, targets: Array) -> None:
        missing = np.isnan(targets)
        self.targets = targets
        self.pending = np.flatnonzero(missing if targets.ndim == 1 else missing.any(axis=1))
        right = np.where(missing, 0.0, targets) if len(self.pending) else targets
        self.unit = unit_of(right)
        self.values = right if self.unit == 1.0 else right / self.unit


class Process:
    """Gaussian process that adds t rows in O(t n²).

    Do not write to ``kernel``, ``noise`` and ``factor``; `set_parameters` changes them. ``rebuilds`` counts how often
    `set_parameters` has factored all of K.
    """

    def __init__(self, kernel: Kernel, noise: float = 1e-6, prior: PriorMean | None = None) -> None:
        self.kernel = as_kernel(kernel)
        self.noise = checks.positive("noise", noise)
        self.prior = prior
        self.factor = GrowingCholesky()
        self.rebuilds = 0
        x = np.zeros((0, kernel.width))
        self.rows = Rows(x, kernel.coordinates.of(x), np.zeros(0), np.zeros(0))
        self._right = RightHandSide(np.zeros(0))
        # w without the targets of pending rows, what it was solved for, and w and α with them.
        self._w = self._solved_for = np.zeros(0)
        self._solved: tuple[Array, Array] | None = None

    def copy(self) -> "Process":
        """An independent process with the same rows, in O(n / 256): see `GrowingCholesky.copy`."""
        process = object.__new__(Process)
        process.__dict__.update(self.__dict__)
        process.factor = self.factor.copy()
        return process

    # ------------------------------------------------------------------ state

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.rows.x)

    @property
    def X(self) -> Array:  # noqa: N802 - the name everyone gives it
        """Points, (n, d); a read-only view."""
        return read_only(self.rows.x)

    @property
    def targets(self) -> Array:
        """t with the prior mean, NaN where pending, (n,) or (n, q); a read-only view."""
        return read_only(self._right.targets if self.prior is None else self._right.targets + self.rows.expected)

    @property
    def known_variances(self) -> Array:
        """v, (n,); a read-only view."""
        return read_only(self.rows.known)

    # ----------------------------------------------------------------- change

    def append(self, x: ArrayLike, targets: ArrayLike, *, variance: ArrayLike | None = None) -> None:
        """Add rows X, (t, d), with targets, (t,) or (t, q), in O(t n²); NaN targets are pending.

        ``variance`` is the known noise variance of each row, in addition to the shared noise, (t,).
        """
        new_x = self.kernel.check(x)
        before = self._right.targets if self.n else np.zeros((0, *np.shape(targets)[1:]))
        new = as_targets("targets", targets, (len(new_x), *before.shape[1:]))
        known = np.zeros(len(new_x)) if variance is None else as_variances(variance, len(new_x))
        rows = self.rows.joined(self.kernel, self.prior, new_x, known)
        right = RightHandSide(np.concatenate((before, new if self.prior is None else new - rows.expected[self.n :])))
        self._extend(rows, right)

    def _extend(self, rows: Rows, right: RightHandSide) -> None:
        """Add the last of these rows, a few hundred at a time. If it fails, none are added."""
        grown, c = self.copy(), rows.c
        for start in range(self.n, len(c), BLOCK_ROWS):
            new = c[start : start + BLOCK_ROWS]
            cross, block = self.kernel.between(c[:start], new), self.kernel.between(new, new)
            grown.grow(rows.first(start + len(new)), right, cross, block)
        grown.aim(right)
        self.__dict__.update(grown.__dict__)

    def grow(self, rows: Rows, right: RightHandSide, cross: Array, block: Array, solved: Array | None = None) -> None:
        """Add the last of these rows: k with all rows before, (n, t), and among themselves, (t, t), without noise.

        ``solved`` is L⁻¹ k of a single new row, if it is known.
        """
        refactorisations = self.factor.refactorisations
        block.reshape(-1)[:: len(block) + 1] += self.noise + rows.known[self.n :]
        self.factor.extend(cross, block, solved)
        self.rows = rows
        self.aim(right)
        if self.factor.refactorisations != refactorisations:
            self._w = self._solved_for = np.zeros(0)

    def truncate(self, n: int) -> None:
        """Keep only the first ``n`` rows, in O(1) for the factor."""
        self.factor.truncate(n)
        self._w, self._solved_for = self._w[:n], self._solved_for[:n]
        self.rows = self.rows.first(n)
        self.aim(RightHandSide(self._right.targets[:n]))

    def set_targets(self, targets: ArrayLike) -> None:
        """Replace all targets (NaN: pending). Needs no factorisation, only a few solves at the next posterior."""
        checked = as_targets("targets", targets, (self.n, *np.shape(targets)[1:]))
        self.aim(RightHandSide(checked.copy() if self.prior is None else checked - self.rows.expected))

    def aim(self, right: RightHandSide) -> None:
        """Replace all targets by a right-hand side."""
        self._right, self._solved = right, None

    def set_parameters(self, kernel: Kernel, noise: float, *, variance: ArrayLike | None = None) -> None:
        """Change the kernel (with the same columns) and the noise. Only this factors all of K again, O(n³).

        ``variance`` replaces the known variances as well, (n,).
        """
        if as_kernel(kernel).columns != self.kernel.columns:
            raise ValueError("the new kernel must have the same columns as the old one")
        noise, rows = checks.positive("noise", noise), self.rows
        if variance is not None:
            rows = rows._replace(known=relative_variances(as_variances(variance, self.n), 1.0))
        changed = Process(kernel, noise, self.prior)
        changed.factor.work, changed.factor.refactorisations = self.factor.work, self.factor.refactorisations
        changed._extend(rows, self._right)
        changed.rebuilds = self.rebuilds + 1
        self.__dict__.update(changed.__dict__)

    # ---------------------------------------------------------------- predict

    def inverse_among(self, rows: NDArray[np.intp] | None = None) -> Array:
        """The inverse of K between some rows in ascending order, (r, r), or all of them; O(r³)."""
        if rows is None:
            return self.factor.inverse()
        c = self.rows.c[rows]
        k = self.kernel.between(c, c)
        k.reshape(-1)[:: len(k) + 1] += (self.noise + self.rows.known + self.factor.jitter)[rows]
        return inverted(k)

    def mean(self, u: ArrayLike) -> Array:
        """The posterior mean at the rows of U, (m,) or (m, q), in O(n m). No solves are needed."""
        points = self.kernel.check(u, "U")
        k = self.kernel.between(self.rows.c, self.kernel.features(points))
        return self.expected(k.T, self._solutions()[1], points)

    def posterior(self, u: ArrayLike) -> Moments:
        """Mean and variance of the latent function at the rows of U."""
        points, c, v = self._projected(u)
        return Moments(self.expected(v.T, self._whitened(), points), _variance(self.kernel, c, v))

    def posterior_gradient(self, u: ArrayLike) -> MomentGradients:
        """`posterior` and its derivatives with respect to U, for one output, by two triangular solves.

        ∂mean = Σᵢ αᵢ ∂k(u, xᵢ);  ∂variance = -2 Σᵢ βᵢ ∂k(u, xᵢ) with β = L⁻ᵀ V. Categorical and inactive entries have
        derivative 0.
        """
        points = self.kernel.check(u, "U")
        z = self.kernel.features(points)
        k, slope = self.kernel.with_slope(z, self.rows.c)
        v = self.factor.solve_lower(k.T)
        beta = self.factor.solve_upper(v)
        by_mean = product(slope.by_points(self._solutions()[1]), self._right.unit)
        if self.prior is not None:
            by_mean = by_mean + self.prior.gradient(points)
        by_variance = -2.0 * slope.by_points(beta.T)
        return MomentGradients(
            self.expected(v.T, self._whitened(), points),
            _variance(self.kernel, z, v),
            by_mean,
            by_variance,
        )

    def posterior_covariance(self, u: ArrayLike) -> tuple[Array, Array]:
        """Mean, (m,) or (m, q), and joint covariance, (m, m), of the latent function at the rows of U."""
        points, c, v = self._projected(u)
        return self.expected(v.T, self._whitened(), points), self.kernel.between(c, c) - v.T @ v

    def _projected(self, u: ArrayLike) -> tuple[Array, Array, Array]:
        """The rows of U as validated points, their features, and V."""
        points = self.kernel.check(u, "U")
        c = self.kernel.features(points)
        return points, c, self.factor.solve_lower(self.kernel.between(self.rows.c, c))

    def log_marginal_likelihood(self) -> float:
        """log p(t | X) = -½ tᵀα - Σ log Lᵢᵢ - n/2 log 2π (paper, algorithm 1, line 7), the sum over all outputs.

        Pending rows do not count. Their α is 0, so tᵀα is that of the other rows, whose log determinant is
        log det K + log det (K⁻¹)_pp.
        """
        w, unit, rows = self._whitened(), self._right.unit, self._right.pending
        outputs = 1 if w.ndim == 1 else w.shape[1]
        constant = self.factor.logdet() + (self.n - len(rows)) * LOG_2PI
        if len(rows):
            columns = self.factor.unit_columns(rows)
            constant += float(np.linalg.slogdet(columns.T @ columns)[1])
        return -0.5 * (float(np.vdot(w, w)) * unit * unit + outputs * constant)

    @property
    def whitened(self) -> Array:
        """w = L⁻¹ t; the mean at any points is Vᵀ w, plus the prior mean."""
        return in_units(self._whitened(), self._right.unit)

    @property
    def alpha(self) -> Array:
        """α = K⁻¹ t; 0 where pending."""
        return in_units(self._solutions()[1], self._right.unit)

    def _whitened(self, *, pending: bool = True) -> Array:
        """w in units of the right-hand side, with the targets of ``pending`` rows for which their α is 0, or without.

        If the first rows of the right-hand side are unchanged, only w₂ = D⁻¹ (t₂ - Qᵀ w₁) is computed.
        """
        if pending and len(self._right.pending):
            return self._solutions()[0]
        right = self._right.values
        if right is not self._solved_for:
            done = _unchanged(right, self._solved_for) // CHUNK_ROWS * CHUNK_ROWS
            w = np.concatenate((self._w[:done], right[done:])) if done else right.copy()
            self.factor.finish_solve(w, done, together=CHUNK_ROWS)
            self._w, self._solved_for = w, right
        return self._w

    def _solutions(self) -> tuple[Array, Array]:
        """w and α in units of the right-hand side."""
        if self._solved is None:
            w, rows = self._whitened(pending=False), self._right.pending
            alpha = self.factor.solve_upper(w)
            if len(rows):
                columns = self.factor.unit_columns(rows)
                change = columns @ np.linalg.solve(columns.T @ columns, -alpha[rows])
                w, alpha = w + change, alpha + self.factor.solve_upper(change)
                alpha[rows] = 0.0
            self._solved = w, alpha
        return self._solved

    def expected(self, a: Array, b: Array, points: Array) -> Array:
        """A B in units of the targets, plus the prior mean: Vᵀ w and kᵀ α are the posterior mean."""
        found = product(a @ b, self._right.unit)
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


def in_units(values: Array, unit: float) -> Array:
    """Values times a unit; a read-only array."""
    return read_only(values if unit == 1.0 else product(values, unit))


def _variance(kernel: Kernel, z: Array, v: Array) -> Array:
    return np.maximum(kernel.diagonal(z) - np.einsum("ij,ij->j", v, v), 0.0)


def _unchanged(right: Array, before: Array) -> int:
    """The number of leading rows that are equal in two arrays."""
    common = min(len(right), len(before))
    if common < CHUNK_ROWS or right.shape[1:] != before.shape[1:]:
        return 0  # fewer than a chunk are solved again anyway
    same = right[:common] == before[:common]
    changed = np.flatnonzero(~(same if same.ndim == 1 else same.all(axis=1)))
    return int(changed[0]) if len(changed) else common
