"""The log marginal likelihood with its gradient, and BFGS within bounds, which learning maximises it with.

======  ==========================================================  ========
symbol  meaning                                                     shape
======  ==========================================================  ========
x       variables, within their bounds                              (p,)
f, g    value and gradient at x                                     , (p,)
B       approximation of the Hessian, positive definite             (p, p)
d       step, -B⁻¹ g of the variables that no bound holds           (p,)
======  ==========================================================  ========

BFGS starts from a given Hessian. An evaluation of the likelihood of a hundred observations takes a third of a
millisecond, and SciPy's L-BFGS-B adds a fifth of that to each. It also needs about a third more evaluations: it knows
no scale, so its first step is short.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from lazybo.core import Array

if TYPE_CHECKING:
    from lazybo.gp.kernels.base import Kernel

LOG_2PI = float(np.log(2 * np.pi))
# A step changes no variable by more than this.
MAX_STEP = 1.0
# A step is accepted if f falls by at least this share of what the gradient promises.
SUFFICIENT = 1e-4
# Shorter steps, as a share of the first one that was tried, are not tried.
SHORTEST = 1e-4


class Evidence:
    """log p(t | X) of targets, (n,), for noise σₙ² + ``known`` on the diagonal, and its derivatives; O(n³).

    Targets of shape (n, q) are q independent outputs that share K; then the result is the sum over them. What does not
    depend on the parameters is computed once.
    """

    def __init__(self, kernel: "Kernel", x: Array, targets: Array, known: Array) -> None:
        self._pairs, self._targets, self._known = kernel.pairs(x), targets, known
        self._output = [each.kind for each in kernel.layout].index("output_scale")

    def __call__(self, values: Array, noise: Array) -> tuple[Array, Array]:
        """Its value for s kernels, (s,), and its derivatives by (θ, log σₙ²), (s, p + 1).

        The kernels have these `values`, (s, p), and ``noise``, (s,). With W = Σ α αᵀ - q K⁻¹, the derivative by any
        parameter is ½ Σ_ab W_ab ∂K_ab.
        """
        s, n = len(values), len(self._known)
        if n == 0:
            return np.zeros(s), np.zeros((s, values.shape[1] + 1))
        upper, diagonal = self._pairs.upper, np.arange(n)
        k = np.zeros((s, n, n))
        k[:, upper] = self._pairs.covariance(values)
        k[:, diagonal, diagonal] = (values[:, self._output] + noise)[:, None] + self._known
        found, weights = np.empty(s), np.empty((s, n, n))
        for i in range(s):
            found[i], _ = likelihood(k[i], self._targets, weights[i])
        on_diagonal = weights[:, diagonal, diagonal]
        by_theta = self._pairs.by_theta(weights[:, upper], on_diagonal)
        return found, 0.5 * np.column_stack((by_theta, noise * np.add.reduce(on_diagonal, axis=1)))


def likelihood(covariance: Array, targets: Array, out: Array | None = None) -> tuple[float, Array]:
    """log p(t) of targets with this covariance K, (n, n), and W = Σ α αᵀ - q K⁻¹, (n, n), into ``out``.

    Only the upper triangles count, of K and of W. K is overwritten.
    """
    n = len(covariance)
    # The upper triangle in C order is the lower one for LAPACK; both steps work in place, and leave the other one.
    lower, info = lapack.dpotrf(covariance.T, lower=1, clean=0, overwrite_a=1)
    if info:
        raise np.linalg.LinAlgError("the covariance is not positive definite: try a larger noise")
    alpha, _ = lapack.dpotrs(lower, targets, lower=1)
    outputs = alpha.reshape(n, -1)
    q = outputs.shape[1]
    value = -0.5 * (np.vdot(targets, alpha) + q * n * LOG_2PI) - q * np.log(np.diagonal(lower)).sum()
    inverse, _ = lapack.dpotri(lower, lower=1, overwrite_c=1)
    weights = np.matmul(outputs, outputs.T, out=out)
    weights -= inverse.T if q == 1 else q * inverse.T
    return float(value), weights


class Minimum(NamedTuple):
    """The variables, (p,), the value there, and the number of evaluations."""

    x: Array
    value: float
    evaluations: int


def minimise(
    function: Callable[[Array], tuple[float, Array]],
    start: Array,
    lower: Array,
    upper: Array,
    hessian: Array,
    *,
    tolerance: float,
    max_evaluations: int,
) -> Minimum:
    """A local minimum of a function that returns f and g.

    It ends when the quadratic model promises less than ``tolerance``: ½ gᵀ B⁻¹ g.
    """
    x = np.minimum(np.maximum(start, lower), upper)
    value, g = function(x)
    evaluations = 1
    while evaluations < max_evaluations:
        direction = _direction(hessian, g, ((x <= lower) & (g > 0)) | ((x >= upper) & (g < 0)))
        length = float(np.abs(direction).max())
        with np.errstate(over="ignore", invalid="ignore"):
            promised = -0.5 * float(g @ direction)
        if not (np.isfinite(length) and promised >= tolerance):
            break
        direction *= min(1.0, MAX_STEP / length)
        length, better = 1.0, False
        while not better and length > SHORTEST and evaluations < max_evaluations:
            there = np.minimum(np.maximum(x + length * direction, lower), upper)
            new_value, new_g = function(there)
            evaluations += 1
            step = there - x
            promised = float(g @ step)
            better = new_value <= value + SUFFICIENT * promised
            hessian = _updated(hessian, step, new_g - g)
            # The minimum of the parabola through both values with the slope at x; a tenth if the value is NaN.
            length *= max(0.1, min(0.5 * promised / (promised + value - new_value or np.nan), 0.5))
        if not better:
            break
        x, value, g = there, new_value, new_g
    return Minimum(x, value, evaluations)


def _direction(hessian: Array, g: Array, held: NDArray[np.bool_]) -> Array:
    """-B⁻¹ g, 0 for the variables that are held by a bound.

    Where f is so steep that B is singular in doubles, only its diagonal is used.
    """
    direction, free = np.zeros_like(g), np.flatnonzero(~held)
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            part = hessian if len(free) == len(g) else hessian[np.ix_(free, free)]
            direction[free] = -np.linalg.solve(part, g[free])
            downhill = bool(g @ direction <= 0)
        except np.linalg.LinAlgError:
            downhill = False
        if not downhill:
            direction[free] = -g[free] / np.maximum(np.diagonal(hessian)[free], np.finfo(float).tiny)
    return direction


def _updated(hessian: Array, step: Array, change: Array) -> Array:
    """The BFGS update of B; B itself if the function is not convex along the step."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        curvature = float(step @ change)
        if not curvature > 1e-10 * float(np.sqrt((step @ step) * (change @ change))):
            return hessian
        bent = hessian @ step
        updated = hessian - np.outer(bent, bent / (step @ bent)) + np.outer(change, change / curvature)
    return updated if np.isfinite(updated).all() else hessian
