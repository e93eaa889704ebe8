"""The log marginal likelihood and its gradient, which learning maximises."""

import numpy as np
from scipy.linalg import lapack

from lazybo.checks import Array
from lazybo.model.kernels import Kernel


def evidence(kernel: Kernel, noise: float, x: Array, targets: Array, known: Array) -> tuple[float, Array]:
    """log p(t | X) and its derivatives by (θ, log σₙ²), (p + 1,), for noise σₙ² + ``known`` on the diagonal; O(n³).

    ``targets`` is (n,), or (n, q) for q independent outputs that share K; then the result is the sum over them. With
    W = Σ α αᵀ - q K⁻¹, the derivative by any parameter is ½ Σ_ab W_ab ∂K_ab.
    """
    if len(x) == 0:
        return 0.0, np.zeros(len(kernel.theta) + 1)
    z = kernel.features(x)
    k, slope = kernel.with_slope(z, z)
    covariance = k.copy()
    covariance[np.diag_indices_from(covariance)] += noise + known
    lower, inverse = inverted(covariance)
    alpha, _ = lapack.dpotrs(lower, targets, lower=1)
    outputs = alpha.reshape(len(x), -1)
    q = outputs.shape[1]
    weights = outputs @ outputs.T - q * inverse
    value = -0.5 * (np.vdot(targets, alpha) + q * len(x) * np.log(2 * np.pi)) - q * np.log(np.diagonal(lower)).sum()
    gradient = np.append(slope.by_theta(weights), noise * np.trace(weights))
    return float(value), 0.5 * gradient


def inverted(covariance: Array) -> tuple[Array, Array]:
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
