"""A Gaussian process of learning curves: every value of a curve is a row of a factor that grows.

======  ==============================================================================  =========
symbol  meaning                                                                         shape
======  ==============================================================================  =========
x       configurations, one row for each value of a curve                               (n, d)
t       logarithm of the step                                                           (n,)
c       number of the curve that a row belongs to                                       (n,)
kₓ      Matérn 5/2 of two configurations, with variance 1
k₁ k₂   Matérn 3/2 of two logarithms of steps, with length scales ℓ₁ and ℓ₂
k       kₓ (a + b k₁ + w min(t, t')) + g k₂ + [c = c'] (h min(t, t') + e)               (m, n)
σ²      noise of a single value
K       k + σ² I = L Lᵀ                                                                 (n, n)
θ       logarithms of the length scales of kₓ, then of (a, b, w, g, h, e, σ², ℓ₁, ℓ₂)   (d + 9,)
======  ==============================================================================  =========

a is the level of a configuration, b the shape of its curve and w how far it moves: neighbours share all three. Curves
that begin at the same value and separate later, as losses do, have a small a and a large w. g is the shape that all
curves share. h and e are the shape and the level of a single curve: what another seed would change, and what kₓ is too
smooth for. In log steps a curve changes as much from step 1 to 2 as from 50 to 100: it levels off. Its own shape is a
random walk, which stays where it is. A stationary process would return to the mean: it would predict that the one model
that learned will unlearn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from lazybo.core import Array, one_thread
from lazybo.gp.cholesky import GrowingCholesky
from lazybo.gp.kernels.base import Column, upper
from lazybo.gp.kernels.matern import Matern52
from lazybo.gp.marginal import likelihood

# Parameters other than the length scales of kₓ: medians of their log-normal priors, spreads, lower and upper bounds.
NAMES = ("level", "shape", "drift", "common", "own_shape", "own_level", "noise", "time_scale", "common_scale")
MEDIANS = np.array([0.5, 0.2, 0.05, 0.2, 0.05, 0.05, 1e-3, 2.0, 2.0])
SPREADS = np.array([1.5, 1.5, 1.5, 2.5, 1.5, 1.5, 2.0, 0.7, 0.7])
# The other start of learning: less drift of each curve, more noise of each value.
NOISY_START = MEDIANS * np.array([1.0, 1.0, 1.0, 1.0, 0.1, 1.0, 100.0, 1.0, 1.0])
LOWER = np.array([1e-3, 1e-3, 1e-4, 1e-3, 1e-4, 1e-4, 1e-6, 0.3, 0.3])
UPPER = np.array([30.0, 30.0, 30.0, 1e3, 30.0, 30.0, 1.0, 30.0, 30.0])
# The length scales of kₓ: median in units of √d as in `lazybo.gp.priors.Priors`, spread 1, bounds.
LENGTH_SCALE = 0.5
MIN_LENGTH, MAX_LENGTH = 5e-3, 1e3
MAX_EVALUATIONS = 30
FAR = 1e25


class CurveRows(NamedTuple):
    """Where curves have values: configurations, (n, w), log steps, (n,), and numbers of curves, (n,)."""

    x: Array
    t: Array
    curve: NDArray[np.intp]

    @staticmethod
    def of(rows: Array) -> "CurveRows":
        """The parts of rows as `CurveProcess` gets them, (n, w + 2)."""
        return CurveRows(np.ascontiguousarray(rows[:, :-2]), rows[:, -2].copy(), rows[:, -1].astype(np.intp))


@dataclass(frozen=True, eq=False)
class CurveKernel:
    """The covariance of values of curves; immutable. ``values`` are the parameters `NAMES`, (9,)."""

    configurations: Matern52
    values: Array

    @classmethod
    def prior(cls, columns: Sequence[Column]) -> "CurveKernel":
        """The kernel at the medians of the priors."""
        dim = max(len(columns), 1)
        return cls(Matern52(np.full(dim, LENGTH_SCALE * np.sqrt(dim)), columns=columns), MEDIANS)

    @property
    def noise(self) -> float:
        """σ²."""
        return float(self.values[6])

    def own(self, t: float) -> float:
        """The part of the variance of a value at t that other curves do not share: h t + e + σ²."""
        return float(self.values[4] * t + self.values[5] + self.noise)

    @property
    def theta(self) -> Array:
        """θ, (d + 9,)."""
        return np.log(np.append(self.configurations.length_scales, self.values))

    def with_theta(self, theta: Array) -> "CurveKernel":
        """The same kernel with other parameters."""
        values, d = np.exp(theta), self.configurations.dim
        return CurveKernel(replace(self.configurations, length_scales=values[:d]), values[d:])

    def features(self, rows: CurveRows) -> CurveRows:
        """CurveRows with the features of their configurations."""
        return CurveRows(self.configurations.features(self.configurations.check(rows.x)), rows.t, rows.curve)

    def diagonal(self, rows: CurveRows) -> Array:
        """k of each row with itself, (n,)."""
        a, b, w, g, h, e, *_ = self.values
        diagonal: Array = a + b + g + e + (w + h) * rows.t
        return diagonal

    def between(self, rows: CurveRows, other: CurveRows) -> Array:
        """k between two sets of features, (m, n)."""
        a, b, w, g, h, e, _, l1, l2 = self.values
        distance = np.abs(rows.t[:, None] - other.t)
        k = b * _matern32(distance * (np.sqrt(3.0) / l1))
        k += w * np.minimum(rows.t[:, None], other.t) + a
        k *= self.configurations.between(rows.x, other.x)
        k += g * _matern32(distance * (np.sqrt(3.0) / l2))
        i, j = np.nonzero(rows.curve[:, None] == other.curve)
        k[i, j] += h * np.minimum(rows.t[i], other.t[j]) + e
        return k


def _matern32(s: Array) -> Array:
    return (1.0 + s) * np.exp(-s)


def _matern32_slope(s: Array) -> Array:
    """∂/∂log ℓ of (1 + s) exp(-s) for s = √3 |Δ|/ℓ."""
    return s * s * np.exp(-s)


def evidence(kernel: CurveKernel, rows: CurveRows, targets: Array) -> tuple[float, Array]:
    """log p(targets) and its derivatives by θ, (d + 9,): each is ½ Σ W ∘ ∂K with W = α αᵀ - K⁻¹ (``weights``)."""
    a, b, w, g, h, e, noise, l1, l2 = kernel.values
    z = kernel.features(rows)
    s1, s2 = (np.sqrt(3.0) * np.abs(z.t[:, None] - z.t) / scale for scale in (l1, l2))
    same = z.curve[:, None] == z.curve
    k1, k2, own = _matern32(s1), _matern32(s2), same.astype(np.float64)
    pairs, places = kernel.configurations.pairs(rows.x), upper(len(rows.x))
    kx = np.zeros(places.shape)
    kx[places] = pairs.covariance(kernel.configurations.values[None])[0]
    kx += kx.T
    kx[np.diag_indices_from(kx)] = kernel.configurations.diagonal(z.x)
    walk = np.minimum(z.t[:, None], z.t)
    time = a + b * k1 + w * walk
    covariance = kx * time + g * k2 + own * (h * walk + e)
    covariance[np.diag_indices_from(covariance)] += noise
    value, weights = likelihood(covariance, targets)
    weights = np.where(places.T, weights.T, weights)
    wx, wo = weights * kx, weights * own
    gradient = (
        a * wx.sum(),
        b * np.vdot(wx, k1),
        w * np.vdot(wx, walk),
        g * np.vdot(weights, k2),
        h * np.vdot(wo, walk),
        e * wo.sum(),
        noise * np.trace(weights),
        b * np.vdot(wx, _matern32_slope(s1)),
        g * np.vdot(weights, _matern32_slope(s2)),
    )
    by_configurations = weights * time
    by_lengths = pairs.by_theta(by_configurations[None, places], np.diagonal(by_configurations)[None])[0, :-1]
    return value, 0.5 * np.concatenate((by_lengths, gradient))


@one_thread()
def learn(columns: Sequence[Column], rows: CurveRows, targets: Array) -> CurveKernel:
    """The kernel at its maximum a posteriori, by L-BFGS-B from the more probable of two starts.

    A curve that scatters may be a random walk with little noise, or a smooth curve with much noise. An ascent stays in
    the mode in which it starts.
    """
    kernel = CurveKernel.prior(columns)
    d, center = kernel.configurations.dim, kernel.theta
    deviations = np.append(np.ones(d), SPREADS)

    def negative_log_posterior(theta: Array) -> tuple[float, Array]:
        try:
            value, gradient = evidence(kernel.with_theta(theta), rows, targets)
        except np.linalg.LinAlgError:  # too little noise for this many rows: the search turns back
            return FAR, np.zeros(len(theta))
        z = (theta - center) / deviations
        return 0.5 * float(z @ z) - value, z / deviations - gradient

    lower = np.log(np.append(np.full(d, MIN_LENGTH), LOWER))
    upper = np.log(np.append(np.full(d, MAX_LENGTH), UPPER))
    starts = [replace(kernel, values=values).theta for values in (MEDIANS, NOISY_START)]
    found = minimize(
        negative_log_posterior,
        min(starts, key=lambda theta: negative_log_posterior(theta)[0]),
        jac=True,
        method="L-BFGS-B",
        bounds=np.column_stack((lower, upper)),
        options={"maxfun": MAX_EVALUATIONS, "ftol": 1e-5, "gtol": 1e-2},
    )
    return kernel.with_theta(found.x)


@lru_cache(maxsize=8)
def _learned(columns: tuple[Column, ...], rows: bytes, targets: bytes) -> CurveKernel:
    """`learn` from bytes. Sampler and pruner of a study share the result."""
    values = np.frombuffer(targets)
    return learn(columns, CurveRows.of(np.frombuffer(rows).reshape(len(values), -1)), values)


class CurveProcess:
    """The process of all curves. It appends rows in O(n²) each, and removes the last ones in O(1).

    A row is a value of a curve: the numbers of its configuration, the logarithm of the step, the number of the curve.
    """

    def __init__(self, kernel: CurveKernel) -> None:
        self.kernel = kernel
        self.factor = GrowingCholesky()
        self._z = kernel.features(
            CurveRows(np.zeros((0, kernel.configurations.width)), np.zeros(0), np.zeros(0, np.intp))
        )
        self._targets = self._w = np.zeros(0)

    @classmethod
    def learned(cls, columns: Sequence[Column], rows: Array, targets: Array) -> "CurveProcess":
        """A process without rows whose kernel was learned from these, (n, w + 2), and their targets, (n,)."""
        return cls(_learned(tuple(columns), rows.tobytes(), targets.tobytes()))

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.factor.n

    @property
    def innovations(self) -> Array:
        """w = L⁻¹ targets: the error of the prediction from all earlier rows, in standard deviations, (n,)."""
        return self._w

    @one_thread()
    def append(self, rows: Array, targets: Array) -> None:
        """Add rows, (t, w + 2), with their targets, (t,)."""
        z = self.kernel.features(CurveRows.of(rows))
        block = self.kernel.between(z, z)
        block[np.diag_indices_from(block)] += self.kernel.noise
        refactorisations, n = self.factor.refactorisations, self.n
        self.factor.append(self.kernel.between(self._z, z), block)
        self._targets = np.concatenate((self._targets, targets))
        # A refactorisation has changed the old rows too.
        done = n if self.factor.refactorisations == refactorisations else 0
        self._w = np.concatenate((self._w[:done], self._targets[done:]))
        self.factor.finish_solve(self._w, done)
        self._z = CurveRows(*(np.concatenate(pair) for pair in zip(self._z, z, strict=True)))

    def truncate(self, n: int) -> None:
        """Keep the first ``n`` rows."""
        self.factor.truncate(n)
        self._targets, self._w = self._targets[:n], self._w[:n]
        self._z = CurveRows(self._z.x[:n], self._z.t[:n], self._z.curve[:n])

    @one_thread()
    def posterior(self, rows: Array) -> tuple[Array, Array]:
        """Mean and variance of the curves at some rows, without the noise of a single value, each (m,)."""
        z = self.kernel.features(CurveRows.of(rows))
        v = self.factor.solve_lower(self.kernel.between(self._z, z))
        variance = self.kernel.diagonal(z) - np.einsum("ij,ij->j", v, v)
        return v.T @ self._w, np.maximum(variance, 0.0)
