"""The log marginal likelihood and its gradient, which learning maximises."""

import numpy as np
from scipy.linalg import lapack

from lazybo.core.checks import Array
from lazybo.gp.cholesky import inverse_from
from lazybo.gp.kernels import Kernel, upper


class Workspace:
    """Arrays for `evidence` of the same points with several kernels: large ones take longer to allocate than to use."""

    def __init__(self, kernel: Kernel, x: Array) -> None:
        self.pairs = kernel.pairs(x)
        self.upper = upper(len(x))
        self.covariance, self.weights = np.zeros((2, len(x), len(x)))


def evidence(
    kernel: Kernel, noise: float, x: Array, targets: Array, known: Array, workspace: Workspace | None = None
) -> tuple[float, Array]:
    """log p(t | X) and its derivatives by (θ, log σₙ²), (p + 1,), for noise σₙ² + ``known`` on the diagonal; O(n³).

    ``targets`` is (n,), or (n, q) for q independent outputs that share K; then the result is the sum over them. With
    W = Σ α αᵀ - q K⁻¹, the derivative by any parameter is ½ Σ_ab W_ab ∂K_ab. A ``workspace`` of the same points saves
    time.
    """
    n = len(x)
    if n == 0:
        return 0.0, np.zeros(len(kernel.theta) + 1)
    space = workspace or Workspace(kernel, x)
    covariance, diagonal = space.covariance, slice(None, None, n + 1)
    covariance[space.upper] = space.pairs.covariance(kernel)
    covariance.reshape(-1)[diagonal] = kernel.diagonal(x) + noise + known
    # The upper triangle in C order is the lower one for LAPACK; both steps work in place, and leave the other one.
    lower, info = lapack.dpotrf(covariance.T, lower=1, clean=0, overwrite_a=1)
    if info:
        raise np.linalg.LinAlgError(NOT_POSITIVE_DEFINITE)
    alpha, _ = lapack.dpotrs(lower, targets, lower=1)
    outputs = alpha.reshape(n, -1)
    q = outputs.shape[1]
    value = -0.5 * (np.vdot(targets, alpha) + q * n * LOG_2PI) - q * np.log(np.diagonal(lower)).sum()
    inverse, _ = lapack.dpotri(lower, lower=1, overwrite_c=1)
    weights = np.matmul(outputs, outputs.T, out=space.weights)
    weights -= inverse.T if q == 1 else q * inverse.T
    on_diagonal = weights.reshape(-1)[diagonal]
    by_theta = space.pairs.by_theta(weights[space.upper], on_diagonal)
    return float(value), 0.5 * np.append(by_theta, noise * on_diagonal.sum())


LOG_2PI = float(np.log(2 * np.pi))
NOT_POSITIVE_DEFINITE = "the covariance is not positive definite: try a larger noise"


def inverted(covariance: Array) -> Array:
    """The inverse of a matrix, (n, n)."""
    lower, info = lapack.dpotrf(covariance, lower=1)
    if info:
        raise np.linalg.LinAlgError(NOT_POSITIVE_DEFINITE)
    return inverse_from(lower)
