"""The lazy Gaussian process: exact inference on a factor that is extended, never rebuilt, while the kernel stays.

======  ===================================================================  ========
symbol  meaning                                                              shape
======  ===================================================================  ========
X, y    observed points and values                                           (n, d), (n,)
t       targets: y after its transform (`lazybo.targets`)                    (n,)
v       known noise variance of each observation, in units of y²             (n,)
σₙ²     noise variance that all observations share, in units of t² (`noise`) scalar
K       k(X, X) + diag(σₙ² + v / scale²) = L Lᵀ                              (n, n)
w       L⁻¹ t                                                                (n,)
α       K⁻¹ t = L⁻ᵀ w                                                        (n,)
U       points to predict at                                                 (m, d)
V       L⁻¹ k(X, U)                                                          (n, m)
======  ===================================================================  ========

Posterior (paper, algorithm 1): mean = Vᵀ w, covariance = k(U, U) - Vᵀ V.

A *pending* row is a point whose value is still to come. It lowers the variance and leaves the mean as it was: its
target is what the others predict there, so its weight in α is 0. With p the pending rows, A = K⁻¹ and α⁰ = A [t; 0],
that target is -(A_pp)⁻¹ α⁰_p: no other factor is needed.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import lapack

from lazybo.blas import one_thread
from lazybo.checks import Array, as_array, as_shape, finite, positive
from lazybo.model.cholesky import GrowingCholesky
from lazybo.model.kernels import Kernel, as_kernel
from lazybo.model.targets import Targets, Transform, identity

# Rows appended at a time: bounds the work space to this many columns of K.
BLOCK_ROWS = 512
# Targets beyond these are solved for in units of a power of two, so that nothing overflows on the way.
SMALL_TARGET, LARGE_TARGET = 1e-100, 1e100
# Known variances count as at most this, in units of the targets².
MAX_VARIANCE = 1e50
# The solutions of so few points are kept until the next change. They are always solved as so many columns: then the
# solution of a point does not depend, in any bit, on the points beside it.
MAX_REMEMBERED = 8
# w = L⁻¹ t is kept in whole chunks of so many rows; the last rows are solved again, so that w is the same however often
# it grew.
CHUNK_ROWS = 64


class Posterior(NamedTuple):
    """Mean and variance of the latent function at m points, in units of y; each (m,).

    The variance is infinite where it is beyond the largest double, for values from about 1e154 on.
    """

    mean: Array
    variance: Array


class PosteriorGradient(NamedTuple):
    """The posterior and its derivatives with respect to the points; the latter (m, d)."""

    mean: Array
    variance: Array
    mean_gradient: Array
    variance_gradient: Array


class LazyGP:
    """Gaussian process with a zero prior mean (in units of the targets) that learns new rows in O(t n²).

    ``noise`` is the variance of the noise that all observations share, in units of the transformed values;
    ``transform`` is one of `lazybo.targets`. ``rebuilds`` counts how often all of K was factored: only by
    `set_parameters`.
    """

    def __init__(self, kernel: Kernel, noise: float = 1e-6, *, transform: Transform = identity) -> None:
        self._kernel = as_kernel(kernel)
        self._noise = positive("noise", noise)
        self._transform = transform
        self._factor = GrowingCholesky()
        self._x = np.zeros((0, kernel.dim))
        self._z = kernel.features(self._x)
        self._y = np.zeros(0)
        self._known = np.zeros(0)
        self._known_scale = 1.0
        self._targets = Targets(np.zeros(0), 0.0, 1.0)
        self._unit = 1.0  # of what is solved: t = unit · right-hand side
        self._whitened_targets = np.zeros(0)
        self._whitened = np.zeros(0)
        self._weights: tuple[Array, Array] | None = None
        self._remembered: dict[bytes, Array] = {}  # L⁻¹ k(X, u) of the last points predicted: one of them may come next
        self.rebuilds = 0

    # ------------------------------------------------------------------ state

    @property
    def n(self) -> int:
        """Number of observations."""
        return len(self._y)

    @property
    def kernel(self) -> Kernel:
        """The kernel with its present parameters."""
        return self._kernel

    @property
    def noise(self) -> float:
        """σₙ², the shared noise variance in units of the transformed values."""
        return self._noise

    @property
    def X(self) -> Array:  # noqa: N802 - the name everyone gives it
        """Observed points, (n, d); a view that must not be written to."""
        return _read_only(self._x)

    @property
    def y(self) -> Array:
        """Observed values, NaN where pending, (n,); a view that must not be written to."""
        return _read_only(self._y)

    @property
    def pending(self) -> NDArray[np.bool_]:
        """Which rows are points without a value yet, (n,)."""
        return np.isnan(self._y)

    @property
    def features(self) -> Array:
        """Z, the kernel's features of the observed points, (n, D); a view that must not be written to."""
        return _read_only(self._z)

    @property
    def work(self) -> int:
        """Multiply-adds spent on the factor so far."""
        return self._factor.work

    @property
    def factor(self) -> GrowingCholesky:
        """The factor of K; for reading and solving only."""
        return self._factor

    @property
    def targets(self) -> Targets:
        """The transformed values of all observations, 0 where pending."""
        return self._targets

    @property
    def known_variances(self) -> Array:
        """v, the known noise variances in units of y², (n,)."""
        return _read_only(self._known)

    @property
    def noise_variances(self) -> Array:
        """The diagonal that noise adds to K, in units of the transformed values, (n,).

        Known variances are there in the scale that the targets had when K was last factored, or when the first of them
        came: another scale would be another K.
        """
        return self._noise + relative_variances(self._known, self._known_scale)

    # ----------------------------------------------------------------- change

    @one_thread()
    def append(self, x: ArrayLike, y: ArrayLike, *, variance: ArrayLike | None = None) -> None:
        """Learn rows X, (t, d), with values y, (t,), in O(t n²).

        ``variance`` is the known noise variance of each value beyond the shared noise, in units of y², (t,).
        """
        new_x = self._kernel.check(x)
        new_y = as_shape("y", y, (len(new_x),))
        known = np.zeros(len(new_x)) if variance is None else as_shape("variance", variance, (len(new_x),))
        if (known < 0).any():
            raise ValueError(f"variance must not be negative, but its smallest entry is {known.min()}")
        self._append(new_x, new_y, known)

    @one_thread()
    def append_pending(self, x: ArrayLike) -> None:
        """Add points, (t, d), whose values are still to come, in O(t n²): less variance there, the same mean."""
        new_x = self._kernel.check(x)
        self._append(new_x, np.full(len(new_x), np.nan), np.zeros(len(new_x)))

    def append_alone(self, x: Array, variance: float) -> None:
        """Learn one row, (d,), with the value 0: every bit depends on the rows before it and on nothing else.

        `append` may use another solution for it, which differs in rounding: that of a row among others.
        """
        if x.tobytes() not in self._remembered:
            point = self._kernel.check(x[None])
            self._remember(point, self.covariance(point))
        self.append(x[None], [0.0], variance=[variance])

    def truncate(self, n: int) -> None:
        """Forget all but the first ``n`` observations; the factor takes O(1)."""
        self._factor.truncate(n)
        self._remembered = {}
        self._x, self._z, self._known = self._x[:n], self._z[:n], self._known[:n]
        self._whitened, self._whitened_targets = self._whitened[:n], self._whitened_targets[:n]
        self._set_y(self._y[:n], self._transformed(self._y[:n]))

    def replace_y(self, y: ArrayLike) -> None:
        """Other values at the same points, NaN: pending. No factorisation, a few solves at the next posterior."""
        values = as_array("y", y, 1).copy()
        if values.shape != (self.n,):
            raise ValueError(f"y must have shape ({self.n},), but has shape {values.shape}")
        finite("y", values[~np.isnan(values)])
        self._set_y(values, self._transformed(values))

    @one_thread()
    def set_parameters(self, kernel: Kernel, noise: float) -> None:
        """Another kernel (of the same columns) and noise: the one thing that factors all of K again, O(n³)."""
        if as_kernel(kernel).columns != self._kernel.columns:
            raise ValueError("the new kernel must have the same columns as the old one")
        noise, scale = positive("noise", noise), self._targets.scale
        z = kernel.features(self._x)
        diagonal = noise + relative_variances(self._known, scale)
        factor = GrowingCholesky()
        factor.work, factor.refactorisations = self._factor.work, self._factor.refactorisations
        _extend(factor, kernel, z[:0], z, diagonal)
        self._kernel, self._noise, self._known_scale = kernel, noise, scale
        self._z, self._factor = z, factor
        self._forget_solutions()
        self.rebuilds += 1

    # ---------------------------------------------------------------- predict

    @one_thread()
    def covariance(self, u: ArrayLike, rows: slice = slice(None)) -> Array:
        """k between some rows of X and the rows of U, without noise, (n, m)."""
        return self._kernel.between(self._z[rows], self._kernel.features(self._kernel.check(u, "U")))

    @one_thread()
    def posterior(self, u: ArrayLike) -> Posterior:
        """Mean and variance of the latent function at the rows of U, in units of y."""
        points = self._kernel.check(u, "U")
        z = self._kernel.features(points)
        v = self._remember_or_solve(points, z)
        return Posterior(self._mean(v), self._variance(z, v))

    @one_thread()
    def posterior_gradient(self, u: ArrayLike) -> PosteriorGradient:
        """`posterior` and its derivatives with respect to U; two triangular solves for all rows together.

        ∂mean = Σᵢ αᵢ ∂k(u, xᵢ);  ∂variance = -2 Σᵢ βᵢ ∂k(u, xᵢ) with β = L⁻ᵀ V. Categorical and inactive entries have
        derivative 0.
        """
        points = self._kernel.check(u, "U")
        z = self._kernel.features(points)
        k, slope = self._kernel.with_slope(z, self._z)
        v = self._factor.solve_lower(k.T)
        beta = self._factor.solve_upper(v)
        by_mean = slope.by_points(self._solved()[1])
        by_variance = -2.0 * slope.by_points(beta.T)
        scale = self._targets.scale
        return PosteriorGradient(
            self._mean(v),
            self._variance(z, v),
            _product(by_mean, self._unit, scale),
            _product(by_variance, scale, scale),
        )

    @one_thread()
    def posterior_covariance(self, u: ArrayLike) -> tuple[Array, Array]:
        """Mean, (m,), and joint covariance, (m, m), of the latent function at the rows of U, in units of y."""
        mean, covariance = self._joint(u)
        return mean, _product(covariance, self._targets.scale, self._targets.scale)

    def _joint(self, u: ArrayLike) -> tuple[Array, Array]:
        """The mean in units of y and the joint covariance in units of the targets²."""
        z = self._kernel.features(self._kernel.check(u, "U"))
        v = self._factor.solve_lower(self._kernel.between(self._z, z))
        return self._mean(v), self._kernel.between(z, z) - v.T @ v

    @one_thread()
    def sample(self, u: ArrayLike, size: int, rng: np.random.Generator) -> Array:
        """Functions drawn jointly from the posterior, at the rows of U, (size, m).

        The root of the covariance is taken by eigenvalues: it exists where points coincide and a Cholesky factor does
        not.
        """
        mean, covariance = self._joint(u)
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return mean + _product(rng.standard_normal((size, len(mean))) @ root.T, self._targets.scale)

    @one_thread()
    def inverse(self, rows: NDArray[np.intp]) -> Array:
        """The inverse of K between some rows, noise included, (r, r), O(r³): for many cheap looks at few rows."""
        z = self._z[rows]
        k = self._kernel.between(z, z)
        k[np.diag_indices_from(k)] += (self.noise_variances + self._factor.jitter)[rows]
        return _inverted(k)[1]

    @one_thread()
    def log_marginal_likelihood(self) -> float:
        """log p(t | X) = -½ tᵀα - Σ log Lᵢᵢ - n/2 log 2π (paper, algorithm 1, line 7), of the transformed values."""
        self._refuse_pending()
        w = self._whiten()
        return -0.5 * (
            float(w @ w) * self._unit * self._unit + self._factor.logdet() + self.n * float(np.log(2 * np.pi))
        )

    @one_thread()
    def log_marginal_likelihood_gradient(self) -> tuple[float, Array]:
        """The same and its derivatives by (θ, log σₙ²), (p + 1,). Needs K⁻¹, O(n³)."""
        self._refuse_pending()
        return evidence(
            self._kernel,
            self._noise,
            self._x,
            self._targets.values,
            self.noise_variances - self._noise + self._factor.jitter,
        )

    @property
    def whitened(self) -> Array:
        """w = L⁻¹ t, (n,): the mean of anything is its V times this."""
        w = self._solved()[0] if self.pending.any() else self._whiten()
        return _read_only(w if self._unit == 1.0 else _product(w, self._unit))

    @property
    def alpha(self) -> Array:
        """α = K⁻¹ t, (n,); 0 where pending."""
        alpha = self._solved()[1]
        return _read_only(alpha if self._unit == 1.0 else _product(alpha, self._unit))

    # ---------------------------------------------------------------- private

    def _refuse_pending(self) -> None:
        if self.pending.any():
            raise ValueError("the likelihood is that of observed values, but some rows are pending")

    def _mean(self, v: Array) -> Array:
        _, shift, scale = self._targets
        w = self._solved()[0] if self.pending.any() else self._whiten()
        return _product(v.T @ w, self._unit, scale) + shift

    def _variance(self, z: Array, v: Array) -> Array:
        return _product(self._target_variance(z, v), self._targets.scale, self._targets.scale)

    def _target_variance(self, z: Array, v: Array) -> Array:
        """In units of the targets², (m,)."""
        return np.maximum(self._kernel.diagonal(z) - np.einsum("ij,ij->j", v, v), 0.0)

    def _remember_or_solve(self, points: Array, z: Array) -> Array:
        """V of points that were checked, with their features, (n, m)."""
        covariance = self._kernel.between(self._z, z)
        if len(points) <= MAX_REMEMBERED:
            return self._remember(points, covariance)
        return self._factor.solve_lower(covariance)

    def _remember(self, points: Array, covariance: Array) -> Array:
        """V of a few points, (n, m), kept in case that one of them is appended next."""
        m = len(points)
        columns = np.zeros((self.n, MAX_REMEMBERED))
        columns[:, :m] = covariance
        self._factor.finish_solve(columns, 0)
        v = columns[:, :m]
        self._remembered = {point.tobytes(): v[:, i] for i, point in enumerate(points)}
        return v

    def _append(self, new_x: Array, new_y: Array, known: Array) -> None:
        """Everything that may fail comes before the first change."""
        y = np.concatenate((self._y, new_y))
        targets = self._transformed(y)
        known_scale = self._known_scale if self._known.any() else targets.scale
        new_z = self._kernel.features(new_x)
        refactorisations = self._factor.refactorisations
        noise = self._noise + relative_variances(known, known_scale)
        solved = self._remembered.get(new_x[0].tobytes()) if len(new_x) == 1 else None
        _extend(self._factor, self._kernel, self._z, new_z, noise, solved)
        self._remembered = {}
        if self._factor.refactorisations != refactorisations:
            self._forget_solutions()
        self._x = np.concatenate((self._x, new_x))
        self._z = np.concatenate((self._z, new_z))
        self._known, self._known_scale = np.concatenate((self._known, known)), known_scale
        self._set_y(y, targets)

    def _transformed(self, y: Array) -> Targets:
        """The targets of values, those of pending ones 0."""
        known = ~np.isnan(y)
        values, shift, scale = self._transform(y[known])
        targets = np.zeros(len(y))
        targets[known] = values
        targets.flags.writeable = False
        return Targets(targets, shift, scale)

    def _set_y(self, y: Array, targets: Targets) -> None:
        self._y, self._targets, self._unit = y, targets, unit_of(targets.values)
        self._weights = None

    def _forget_solutions(self) -> None:
        self._remembered = {}
        self._whitened = self._whitened_targets = np.zeros(0)
        self._weights = None

    @one_thread()
    def _whiten(self) -> Array:
        """w = L⁻¹ t. Where earlier targets are unchanged, w only grows: w₂ = D⁻¹ (t₂ - Qᵀ w₁)."""
        values, before = self._targets.values, self._whitened_targets
        if self._unit != 1.0:
            values = values / self._unit
        if values is not before:
            common = min(len(values), len(before))
            changed = np.flatnonzero(values[:common] != before[:common])
            done = (int(changed[0]) if len(changed) else common) // CHUNK_ROWS * CHUNK_ROWS
            w = np.concatenate((self._whitened[:done], values[done:]))
            self._factor.finish_solve(w, done, together=CHUNK_ROWS)
            self._whitened, self._whitened_targets = w, values
        return self._whitened

    @one_thread()
    def _solved(self) -> tuple[Array, Array]:
        """w and α, with the targets of pending rows such that their α is 0."""
        if self._weights is None:
            w = self._whiten()
            alpha = self._factor.solve_upper(w)
            rows = np.flatnonzero(self.pending)
            if len(rows):
                unit = np.zeros((self.n, len(rows)))
                unit[rows, np.arange(len(rows))] = 1.0
                self._factor.finish_solve(unit, int(rows[0]))
                change = unit @ np.linalg.solve(unit.T @ unit, -alpha[rows])
                w, alpha = w + change, alpha + self._factor.solve_upper(change)
                alpha[rows] = 0.0
            self._weights = w, alpha
        return self._weights


def evidence(kernel: Kernel, noise: float, x: Array, targets: Array, known: Array) -> tuple[float, Array]:
    """log p(t | X) and its derivatives by (θ, log σₙ²), (p + 1,), for noise σₙ² + ``known`` on the diagonal; O(n³).

    ``targets`` is (n,), or (n, q) for q independent outputs that share K; then it is the sum over them. With
    W = Σ α αᵀ - q K⁻¹, the derivative by any parameter is ½ Σ_ab W_ab ∂K_ab.
    """
    if len(x) == 0:
        return 0.0, np.zeros(len(kernel.theta) + 1)
    z = kernel.features(x)
    k, slope = kernel.with_slope(z, z)
    covariance = k.copy()
    covariance[np.diag_indices_from(covariance)] += noise + known
    lower, inverse = _inverted(covariance)
    alpha, _ = lapack.dpotrs(lower, targets, lower=1)
    outputs = alpha.reshape(len(x), -1)
    q = outputs.shape[1]
    weights = outputs @ outputs.T - q * inverse
    value = -0.5 * (np.vdot(targets, alpha) + q * len(x) * np.log(2 * np.pi)) - q * np.log(np.diagonal(lower)).sum()
    gradient = np.append(slope.by_theta(weights), noise * np.trace(weights))
    return float(value), 0.5 * gradient


def _inverted(covariance: Array) -> tuple[Array, Array]:
    """The lower factor of a matrix and its inverse, each (n, n)."""
    lower, info = lapack.dpotrf(covariance, lower=1)
    if info:
        raise np.linalg.LinAlgError("the covariance is not positive definite: try a larger noise")
    inverse, _ = lapack.dpotri(lower, lower=1)
    # dpotri fills the lower triangle only.
    inverse = np.tril(inverse)
    diagonal = inverse.diagonal().copy()
    inverse = inverse + inverse.T
    inverse[np.diag_indices_from(inverse)] = diagonal
    return lower, inverse


def _extend(
    factor: GrowingCholesky, kernel: Kernel, z: Array, new_z: Array, noise: Array, solved: Array | None = None
) -> None:
    """Append the rows of K for new features to the factor of the old ones, all or none, a few hundred at a time."""
    before, every = factor.n, np.concatenate((z, new_z))
    try:
        for start in range(0, len(new_z), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            block = kernel.between(new_z[rows], new_z[rows])
            block[np.diag_indices_from(block)] += noise[rows]
            factor.append(kernel.between(every[: before + start], new_z[rows]), block, solved=solved)
    except BaseException:
        factor.truncate(before)
        raise


def relative_variances(known: Array, scale: float) -> Array:
    """Known variances in units of the targets², at most `MAX_VARIANCE`."""
    with np.errstate(over="ignore"):
        return np.minimum(known / scale / scale, MAX_VARIANCE)


def unit_of(targets: Array) -> float:
    """A power of two near the largest target, where their squares would not be numbers; otherwise 1."""
    largest = float(np.abs(targets).max(initial=0.0))
    if largest == 0.0 or SMALL_TARGET <= largest <= LARGE_TARGET:
        return 1.0
    return math.ldexp(1.0, min(math.frexp(largest)[1], 1023))


def _product(values: Array, *factors: "float | Array") -> Array:
    """values · factors, one after the other; infinity where that is beyond the largest double."""
    with np.errstate(over="ignore"):
        for factor in factors:
            values = values * factor
    return values


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view
