"""Learning as `LazyGPRegressor` understands it: what a scikit-learn kernel asks for, or lazybo's priors.

A scikit-learn kernel says itself what is free and within which bounds: maximum likelihood. Without one the parameters
are the most probable ones under `lazybo.fit.Priors`, which are made for the unit cube and for values of the size of 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.optimize import minimize
from sklearn.gaussian_process.kernels import Kernel

from lazybo.checks import Array
from lazybo.model.fit import NOISY_START, Data, K, Priors, maximum_a_posteriori, prior_kernel, subset
from lazybo.model.gp import evidence
from lazybo.model.kernels import Kernel as OwnKernel
from lazybo.model.kernels import Matern52
from lazybo.sklearn.kernels import Meaning, composed, read

# As in scikit-learn: called with (objective, initial θ, bounds), returns the best θ and its objective.
Minimizer: TypeAlias = Callable[..., tuple[Array, float]]

# Sizes outside of this are taken for its ends, so that their squares are numbers; and ranges outside of that.
SMALLEST, LARGEST = 1e-75, 1e75
SMALLEST_RANGE, LARGEST_RANGE = 1e-290, 1e308


class Parameters(NamedTuple):
    """A kernel and the white noise (which a scikit-learn kernel has in itself) as they stand.

    ``learned_at`` is how many rows there were when they were last learned, 0: never. ``own``: no kernel was given.
    """

    kernel: Kernel | OwnKernel
    noise: float
    learned_at: int = 0
    own: bool = False

    def meaning(self, dim: int) -> Meaning:
        """What the kernel means for points with ``dim`` columns."""
        return read(self.kernel, dim)

    @property
    def free(self) -> bool:
        """Whether there is anything to learn."""
        return isinstance(self.kernel, OwnKernel) or self.kernel.n_dims > 0


@dataclass(frozen=True, slots=True)
class Learning:
    """How parameters are learned: with which minimiser (None: L-BFGS-B), from how many further starts and rows."""

    minimizer: Minimizer | None
    restarts: int
    rng: np.random.RandomState
    max_points: int
    priors: Priors

    def learned(self, parameters: Parameters, data: Data) -> Parameters:
        """Parameters learned from ``data``, sought from the present ones."""
        kernel, first = parameters.kernel, parameters.learned_at == 0
        if isinstance(kernel, OwnKernel):
            kernel, noise = self.most_probable(kernel, None if first else parameters.noise, data)
        else:
            if parameters.own:
                kernel = self.most_probable_in_units(kernel, data, first=first)
            else:
                kernel = self.maximum_likelihood(kernel, data)
            noise = read(kernel, data.x.shape[1]).noise
        return Parameters(kernel, noise, len(data.x), parameters.own)

    def maximum_likelihood(self, kernel: Kernel, data: Data) -> Kernel:
        """``kernel`` with the parameters of the highest likelihood within its bounds.

        Sought from the present ones, and from further ones that are drawn evenly from the bounds.
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
        """Kernel and noise of the highest posterior density.

        Sought from the present ones, and from further ones that are drawn from the priors. While there is no noise yet
        (None), from the priors' and from a noisy start: the posterior often has a mode near each.
        """
        noises = (prior_kernel(kernel, self.priors)[1], NOISY_START) if noise is None else (noise,)
        starts = [(kernel, start) for start in noises]
        center, spread = self.priors.center(kernel), self.priors.spread(kernel)
        for _ in range(self.restarts):
            phi = center + spread * self.rng.standard_normal(len(center))
            starts.append((kernel.with_theta(phi[:-1]), float(np.exp(phi[-1]))))
        found = [maximum_a_posteriori(data, *start, self.priors, max_points=self.max_points) for start in starts]
        best = max(found, key=lambda learned: learned.log_posterior)
        return best.kernel, best.noise

    def most_probable_in_units(self, kernel: Kernel, data: Data, *, first: bool) -> Kernel:
        """The same for a kernel that was `composed`, in units of the data; the ``first`` time from the priors alone."""
        units, before = Units(data), read(kernel, data.x.shape[1])
        assert isinstance(before.kernel, Matern52), "that is what is composed"
        if first:
            start: tuple[Matern52, float | None] = prior_kernel(before.kernel, self.priors)[0], None
        else:
            start = units.within(before.kernel, before.noise)
        return composed(*units.outside(*self.most_probable(*start, units.enter(data))))


def log_likelihood(kernel: Kernel | OwnKernel, data: Data) -> tuple[float, Array]:
    """log p(t | X, θ) and its derivatives by the kernel's θ; minus infinity where K is not positive definite."""
    meaning = read(kernel, data.x.shape[1])
    try:
        value, gradient = evidence(meaning.kernel, meaning.noise, *data)
    except np.linalg.LinAlgError:
        return -np.inf, np.zeros(meaning.jacobian.shape[1])
    return value, gradient @ meaning.jacobian


def _bfgs(objective: Callable[[Array], Any], start: Array, bounds: Array) -> tuple[Array, float]:
    start = np.clip(start, *bounds.T)
    result = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return result.x, float(result.fun)


class Units:
    """The ranges of the columns of X and the size of the targets: what the priors call 1."""

    def __init__(self, data: Data) -> None:
        # Halves, since the range itself may be beyond the largest double.
        ranges = 2.0 * np.clip(np.ptp(data.x / 2, axis=0), 0.0, LARGEST_RANGE / 2)
        self.ranges = np.where(ranges > 0, np.maximum(ranges, SMALLEST_RANGE), 1.0)
        largest = float(np.abs(data.targets).max())
        size = largest * float(np.sqrt(np.mean((data.targets / largest) ** 2))) if largest else 1.0
        self.size = float(np.clip(size, SMALLEST, LARGEST))

    def enter(self, data: Data) -> Data:
        """``data`` in these units."""
        return Data(data.x / self.ranges, data.targets / self.size, data.known / self.size**2)

    def within(self, kernel: Matern52, noise: float) -> tuple[Matern52, float]:
        """Parameters that hold outside, in these units."""
        return Matern52(kernel.length_scales / self.ranges, kernel.output_scale / self.size**2), noise / self.size**2

    def outside(self, kernel: Matern52, noise: float) -> tuple[Matern52, float]:
        """Parameters that hold in these units, outside of them."""
        with np.errstate(over="ignore"):
            length_scales = np.minimum(kernel.length_scales * self.ranges, LARGEST_RANGE)
        return Matern52(length_scales, kernel.output_scale * self.size**2), noise * self.size**2
