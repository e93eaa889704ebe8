"""How `LazyGPRegressor` learns kernel parameters: by maximum likelihood, or with lazybo's priors.

The parameters of a scikit-learn kernel are learned by maximum likelihood within the kernel's own bounds. Other kernels
are learned by maximum a posteriori with `lazybo.fit.Priors`, which fit the unit cube and values of about size 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.optimize import minimize
from sklearn.gaussian_process.kernels import Kernel

from lazybo.core.checks import Array
from lazybo.gp.evidence import evidence
from lazybo.gp.fit import NOISY_START, Data, K, Priors, maximum_a_posteriori, prior_kernel, subset
from lazybo.gp.kernels import Kernel as OwnKernel
from lazybo.gp.kernels import Matern52
from lazybo.sklearn.kernels import Parsed, composed, parse

# As in scikit-learn: called with (objective, initial θ, bounds), returns the best θ and its objective.
Minimizer: TypeAlias = Callable[..., tuple[Array, float]]

# The size of y and the ranges of X are clipped to these limits, so that nothing overflows.
SMALLEST, LARGEST = 1e-75, 1e75
SMALLEST_RANGE, LARGEST_RANGE = 1e-290, 1e308


class Parameters(NamedTuple):
    """The current kernel, and the noise variance (a scikit-learn kernel contains it too).

    ``learned_at`` is the number of rows when they were last learned (0: never). ``own``: the user gave no kernel.
    """

    kernel: Kernel | OwnKernel
    noise: float
    learned_at: int = 0
    own: bool = False

    def parsed(self, dim: int) -> Parsed:
        """The parsed kernel, for points with ``dim`` columns."""
        return parse(self.kernel, dim)

    @property
    def free(self) -> bool:
        """Whether there is anything to learn."""
        return isinstance(self.kernel, OwnKernel) or self.kernel.n_dims > 0


@dataclass(frozen=True, slots=True)
class Learning:
    """How parameters are learned: the minimiser (None: L-BFGS-B), the number of restarts, the most rows, the priors."""

    minimizer: Minimizer | None
    restarts: int
    rng: np.random.RandomState
    max_points: int
    priors: Priors

    def learned(self, parameters: Parameters, data: Data) -> Parameters:
        """Parameters learned from ``data``, starting from the current ones."""
        kernel, first = parameters.kernel, parameters.learned_at == 0
        if not isinstance(kernel, Kernel):
            kernel, noise = self.most_probable(kernel, None if first else parameters.noise, data)
        else:
            if parameters.own:
                kernel = self.most_probable_in_units(kernel, data, first=first)
            else:
                kernel = self.maximum_likelihood(kernel, data)
            noise = parse(kernel, data.x.shape[1]).noise
        return Parameters(kernel, noise, len(data.x), parameters.own)

    def maximum_likelihood(self, kernel: Kernel, data: Data) -> Kernel:
        """``kernel`` with its maximum likelihood parameters within its bounds.

        It starts from the current parameters; restarts are drawn uniformly from the bounds.
        """
        part, bounds = data.part(subset(len(data.x), self.max_points)), kernel.bounds
        if self.restarts and not np.isfinite(bounds).all():
            raise ValueError("n_restarts_optimizer > 0 needs a kernel whose bounds are finite")

        def objective(theta: Array, eval_gradient: bool = True) -> Any:
            value, gradient = log_likelihood(kernel.clone_with_theta(theta), part)
            return (-value, -gradient) if eval_gradient else -value

        starts = [kernel.theta, *(self.rng.uniform(*bounds.T) for _ in range(self.restarts))]
        found = [(self.minimizer or _bfgs)(objective, start, bounds=bounds) for start in starts]
        theta, _ = min(found, key=lambda result: result[1])
        return kernel.clone_with_theta(theta)

    def most_probable(self, kernel: K, noise: float | None, data: Data) -> tuple[K, float]:
        """Maximum a posteriori kernel and noise.

        It starts from the current parameters; restarts are drawn from the priors. If no noise is known yet (None), it
        starts from the priors' noise and from a large one, since the posterior often has a mode near each.
        """
        noises = (prior_kernel(kernel, self.priors)[1], NOISY_START) if noise is None else (noise,)
        starts = [(kernel, start) for start in noises]
        center, deviations = self.priors.center(kernel), self.priors.deviations(kernel)
        for _ in range(self.restarts):
            phi = center + deviations * self.rng.standard_normal(len(center))
            starts.append((kernel.with_theta(phi[:-1]), float(np.exp(phi[-1]))))
        found = [maximum_a_posteriori(data, *start, self.priors, max_points=self.max_points) for start in starts]
        best = max(found, key=lambda learned: learned.log_posterior)
        return best.kernel, best.noise

    def most_probable_in_units(self, kernel: Kernel, data: Data, *, first: bool) -> Kernel:
        """`most_probable` in units of the data, for a kernel from `composed`. The ``first`` start is the prior."""
        units, before = Units(data), parse(kernel, data.x.shape[1])
        assert isinstance(before.kernel, Matern52), "composed makes Matern kernels"
        if first:
            start: tuple[Matern52, float | None] = prior_kernel(before.kernel, self.priors)[0], None
        else:
            start = units.within(before.kernel, before.noise)
        return composed(*units.outside(*self.most_probable(*start, units.data(data))))


def log_likelihood(kernel: Kernel | OwnKernel, data: Data) -> tuple[float, Array]:
    """log p(t | X, θ) and its derivatives by the kernel's θ; minus infinity if K is not positive definite."""
    parsed = parse(kernel, data.x.shape[1])
    try:
        value, gradient = evidence(parsed.kernel, parsed.noise, *data)
    except np.linalg.LinAlgError:
        return -np.inf, np.zeros(parsed.jacobian.shape[1])
    return value, gradient @ parsed.jacobian


def _bfgs(objective: Callable[[Array], Any], start: Array, bounds: Array) -> tuple[Array, float]:
    start = np.clip(start, *bounds.T)
    result = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return result.x, float(result.fun)


class Units:
    """Units in which the priors fit: the range of each column of X, and the size (root mean square) of the targets."""

    def __init__(self, data: Data) -> None:
        # Halves, since the range itself may be larger than the largest double.
        ranges = 2.0 * np.clip(np.ptp(data.x / 2, axis=0), 0.0, LARGEST_RANGE / 2)
        self.ranges = np.where(ranges > 0, np.maximum(ranges, SMALLEST_RANGE), 1.0)
        largest = float(np.abs(data.targets).max())
        size = largest * float(np.sqrt(np.mean((data.targets / largest) ** 2))) if largest else 1.0
        self.size = float(np.clip(size, SMALLEST, LARGEST))

    def data(self, data: Data) -> Data:
        """``data`` in these units."""
        return Data(data.x / self.ranges, data.targets / self.size, data.known / self.size**2)

    def within(self, kernel: Matern52, noise: float) -> tuple[Matern52, float]:
        """Convert parameters from the units of X and the targets to these units."""
        return Matern52(kernel.length_scales / self.ranges, kernel.output_scale / self.size**2), noise / self.size**2

    def outside(self, kernel: Matern52, noise: float) -> tuple[Matern52, float]:
        """Convert parameters from these units to the units of X and the targets."""
        with np.errstate(over="ignore"):
            length_scales = np.minimum(kernel.length_scales * self.ranges, LARGEST_RANGE)
        return Matern52(length_scales, kernel.output_scale * self.size**2), noise * self.size**2
