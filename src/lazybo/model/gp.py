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

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import lapack

from lazybo.blas import one_thread
from lazybo.checks import Array, as_array, as_shape, positive
from lazybo.model.cholesky import GrowingCholesky
from lazybo.model.kernels import Kernel, as_kernel
from lazybo.model.targets import Targets, Transform, identity

# Rows appended at a time: bounds the work space to this many columns of K.
BLOCK_ROWS = 512
MAX_VALUE = 1e150
# The solutions of so few predicted points are kept until the next change.
MAX_REMEMBERED = 32


class Posterior(NamedTuple):
    """Mean and variance of the latent function at m points, in units of y; each (m,)."""

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
        return self._noise + self._known / self._known_scale / self._known_scale

    # ----------------------------------------------------------------- change

    @one_thread()
    def append(self, x: ArrayLike, y: ArrayLike, *, variance: ArrayLike | None = None) -> None:
        """Learn rows X, (t, d), with values y, (t,), in O(t n²).

        ``variance`` is the known noise variance of each value beyond the shared noise, in units of y², (t,).
        """
        new_x = self._kernel.check(x)
        new_y = _check_values(as_shape("y", y, (len(new_x),)))
        known = np.zeros(len(new_x)) if variance is None else as_shape("variance", variance, (len(new_x),))
        if (known < 0).any():
            raise ValueError(f"variance must not be negative, but its smallest entry is {known.min()}")
        self._append(new_x, new_y, known)

    @one_thread()
    def append_pending(self, x: ArrayLike) -> None:
        """Add points, (t, d), whose values are still to come, in O(t n²): less variance there, the same mean."""
        new_x = self._kernel.check(x)
        self._append(new_x, np.full(len(new_x), np.nan), np.zeros(len(new_x)))

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
        _check_values(values[~np.isnan(values)])
        self._set_y(values, self._transformed(values))

    @one_thread()
    def set_parameters(self, kernel: Kernel, noise: float) -> None:
        """Another kernel (of the same columns) and noise: the one thing that factors all of K again, O(n³)."""
        if as_kernel(kernel).columns != self._kernel.columns:
            raise ValueError("the new kernel must have the same columns as the old one")
        noise, scale = positive("noise", noise), self._targets.scale
        z = kernel.features(self._x)
        diagonal = noise + self._known / scale / scale
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
        v = self._factor.solve_lower(self._kernel.between(self._z, z))
        if len(points) <= MAX_REMEMBERED:
            self._remembered = {point.tobytes(): v[:, i] for i, point in enumerate(points)}
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
        scale = self._targets.scale
        return PosteriorGradient(
            self._mean(v),
            self._variance(z, v),
            scale * slope.by_points(self.alpha),
            -2.0 * scale**2 * slope.by_points(beta.T),
        )

    @one_thread()
    def posterior_covariance(self, u: ArrayLike) -> tuple[Array, Array]:
        """Mean, (m,), and joint covariance, (m, m), of the latent function at the rows of U, in units of y."""
        z = self._kernel.features(self._kernel.check(u, "U"))
        v = self._factor.solve_lower(self._kernel.between(self._z, z))
        covariance = self._kernel.between(z, z) - v.T @ v
        return self._mean(v), self._targets.scale**2 * covariance

    @one_thread()
    def sample(self, u: ArrayLike, size: int, rng: np.random.Generator) -> Array:
        """Functions drawn jointly from the posterior, at the rows of U, (size, m).

        The root of the covariance is taken by eigenvalues: it exists where points coincide and a Cholesky factor does
        not.
        """
        mean, covariance = self.posterior_covariance(u)
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return mean + rng.standard_normal((size, len(mean))) @ root.T

    @one_thread()
    def inverse(self, rows: NDArray[np.intp]) -> Array:
        """The inverse of K between some rows, noise included, (r, r), O(r³): for many cheap looks at few rows."""
        z = self._z[rows]
        k = self._kernel.between(z, z)
        k[np.diag_indices_from(k)] += (self.noise_variances + self._factor.jitter)[rows]
        return _inverted(k)[1]

    @one_thread()
    def innovation(self, x: ArrayLike, y: ArrayLike, *, variance: ArrayLike | None = None) -> Array:
        """(y - mean) / std of values not yet appended, noise included, (t,): about normal while the parameters fit."""
        mean, latent = self.posterior(x)
        scale = self._targets.scale
        known = np.zeros(len(mean)) if variance is None else as_shape("variance", variance, mean.shape)
        total = latent / scale / scale + self._noise + known / scale / scale
        return (as_shape("y", y, mean.shape) - mean) / scale / np.sqrt(total)

    @one_thread()
    def log_marginal_likelihood(self) -> float:
        """log p(t | X) = -½ tᵀα - Σ log Lᵢᵢ - n/2 log 2π (paper, algorithm 1, line 7), of the transformed values."""
        self._refuse_pending()
        w = self.whitened
        return -0.5 * (float(w @ w) + self._factor.logdet() + self.n * float(np.log(2 * np.pi)))

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
        return _read_only(self._solved()[0] if self.pending.any() else self._whiten())

    @property
    def alpha(self) -> Array:
        """α = K⁻¹ t, (n,); 0 where pending."""
        return _read_only(self._solved()[1])

    # ---------------------------------------------------------------- private

    def _refuse_pending(self) -> None:
        if self.pending.any():
            raise ValueError("the likelihood is that of observed values, but some rows are pending")

    def _mean(self, v: Array) -> Array:
        _, shift, scale = self._targets
        return v.T @ self.whitened * scale + shift

    def _variance(self, z: Array, v: Array) -> Array:
        variance = self._kernel.diagonal(z) - np.einsum("ij,ij->j", v, v)
        return np.maximum(variance, 0.0) * self._targets.scale**2

    def _append(self, new_x: Array, new_y: Array, known: Array) -> None:
        """Everything that may fail comes before the first change."""
        y = np.concatenate((self._y, new_y))
        targets = self._transformed(y)
        known_scale = self._known_scale if self._known.any() else targets.scale
        new_z = self._kernel.features(new_x)
        refactorisations = self._factor.refactorisations
        noise = self._noise + known / known_scale / known_scale
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
        self._y, self._targets = y, targets
        self._weights = None

    def _forget_solutions(self) -> None:
        self._remembered = {}
        self._whitened = self._whitened_targets = np.zeros(0)
        self._weights = None

    @one_thread()
    def _whiten(self) -> Array:
        """w = L⁻¹ t. Where earlier targets are unchanged, w only grows: w₂ = D⁻¹ (t₂ - Qᵀ w₁)."""
        values, before = self._targets.values, self._whitened_targets
        if values is not before:
            done = min(len(values), len(before))
            if not np.array_equal(values[:done], before[:done]):
                done = 0
            w = np.concatenate((self._whitened[:done], values[done:]))
            self._factor.finish_solve(w, done)
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


def _check_values(y: Array) -> Array:
    """Values whose squares, the units of a variance, are still numbers."""
    if np.abs(y).max(initial=0.0) > MAX_VALUE:
        raise ValueError(f"y must lie within ±{MAX_VALUE:g}, but has {y[np.abs(y).argmax()]}")
    return y


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view
