"""Kernels of scikit-learn: converted to ours, and how `LazyGPRegressor` learns their parameters.

======  =======================================================================  ========
symbol  meaning                                                                  shape
======  =======================================================================  ========
θ       scikit-learn's: logarithms of all parameters that are not "fixed"        (p,)
φ       (log ℓ₁, …, log ℓ_d, log σ², log σₙ²), as in `lazybo.gp.fit`             (d + 2,)
J       ∂φ/∂θ                                                                    (d + 2, p)
c       product of the constants in a term                                       scalar
======  =======================================================================  ========

Sums and products are multiplied out, so ``2.0 * (WhiteKernel() + Matern(nu=2.5))`` is accepted too. Each term must then
be a product of constants and either a WhiteKernel or the Matern, and there must be exactly one Matern. Then σ² = Σ c
over the terms with the Matern, and σₙ² = Σ c · level over the others.

The parameters of a scikit-learn kernel are learned by maximum likelihood within the kernel's own bounds. Other kernels
are learned by maximum a posteriori with `lazybo.gp.priors.Priors`, which suit the unit cube and values of about size 1.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel, Matern, Product, Sum, WhiteKernel

from lazybo import Matern52
from lazybo.core import Array
from lazybo.gp import Kernel as OwnKernel
from lazybo.gp import Learner, Priors

K = TypeVar("K", bound=OwnKernel)
# As in scikit-learn: called with (objective, initial θ, bounds), returns the best θ and its objective.
Minimizer: TypeAlias = Callable[..., tuple[Array, float]]

SUPPORTED = (
    "ConstantKernel * Matern(nu=2.5) + WhiteKernel in any order (only the Matern is required); "
    "a kernel of lazybo.gp.kernels; or None"
)
# The size of y and the ranges of X are clipped to these limits, so that nothing overflows.
SMALLEST, LARGEST = 1e-75, 1e75
SMALLEST_RANGE, LARGEST_RANGE = 1e-290, 1e308
# Without a known noise, learning also starts from this much.
NOISY_START = 1e-2


class Data(NamedTuple):
    """Points, (n, d), targets, (n,) or (n, q), and known noise variances in units of the targets², (n,)."""

    x: Array
    targets: Array
    known: Array


class Parsed(NamedTuple):
    """A parsed kernel expression: our kernel, the noise variance (0 if there is none), and J."""

    kernel: OwnKernel
    noise: float
    jacobian: Array


class _Term(NamedTuple):
    """A product of constants and at most one other kernel."""

    constants: tuple[ConstantKernel, ...]
    base: Any  # Matern, WhiteKernel or None

    @property
    def value(self) -> float:
        """c, or c · level for white noise."""
        level = self.base.noise_level if type(self.base) is WhiteKernel else 1.0
        return float(np.prod([constant.constant_value for constant in self.constants]) * level)

    @property
    def factors(self) -> tuple[Any, ...]:
        """The kernels whose parameters are factors of the value."""
        return (*self.constants, self.base) if type(self.base) is WhiteKernel else self.constants

    def times(self, other: "_Term") -> "_Term":
        if self.base is not None and other.base is not None:
            raise ValueError("the product of two kernels is not supported")
        return _Term(self.constants + other.constants, other.base if self.base is None else self.base)


def validate(kernel: Any) -> Kernel | OwnKernel:
    """Raise a ValueError if the kernel is not supported. Returns a copy, or the kernel itself if it is immutable."""
    if isinstance(kernel, OwnKernel):
        return kernel
    # An object that occurs twice has two entries in θ; cloning makes it two objects.
    own = clone(kernel) if isinstance(kernel, Kernel) else kernel
    try:
        terms = _terms(own)
        if len(_materns(terms)) == 1 and all(term.base is not None for term in terms):
            return own
    except ValueError:
        pass
    raise ValueError(f"the kernel must be {SUPPORTED}; not {kernel!r}")


def parse(kernel: Kernel | OwnKernel, dim: int) -> Parsed:
    """Parse a kernel that `validate` returned, for points with ``dim`` columns."""
    if not isinstance(kernel, Kernel):
        if kernel.dim != dim:
            raise ValueError(f"the kernel has {kernel.dim} columns, but X has {dim}")
        return Parsed(kernel, 0.0, np.eye(len(kernel.theta) + 1)[:, :-1])
    terms = _terms(kernel)
    (matern,) = _materns(terms)
    signal = [term for term in terms if term.base is matern]
    white = [term for term in terms if term.base is not matern]
    output_scale, noise = (float(sum(term.value for term in part)) for part in (signal, white))
    if not 0 <= noise < np.inf:
        raise ValueError(f"the noise level of a WhiteKernel must not be negative, but is {noise}")
    own = Matern52(_length_scales(matern, dim), output_scale)

    place, size = _places(kernel)
    jacobian = np.zeros((dim + 2, size))
    here = jacobian[:dim, place[id(matern)]]
    here[:] = np.eye(dim) if here.shape[1] > 1 else 1.0
    for row, part, total in ((dim, signal, output_scale), (dim + 1, white, noise)):
        for term in part if total else ():
            for factor in term.factors:
                jacobian[row, place[id(factor)]] += term.value / total
    return Parsed(own, noise, jacobian)


def composed(kernel: Matern52, noise: float) -> Kernel:
    """The scikit-learn kernel for our kernel and noise, for numeric columns: the inverse of `parse`."""
    scales = kernel.length_scales.copy() if kernel.dim > 1 else float(kernel.length_scales[0])
    return ConstantKernel(kernel.output_scale) * Matern(scales, nu=2.5) + WhiteKernel(noise)


def _terms(kernel: Any) -> list[_Term]:
    """The terms of an expression. Raises a ValueError if it is not supported; subclasses may compute anything."""
    if type(kernel) is ConstantKernel:
        return [_Term((kernel,), None)]
    if type(kernel) is WhiteKernel or (type(kernel) is Matern and kernel.nu == 2.5):
        return [_Term((), kernel)]
    if type(kernel) is Sum:
        return _terms(kernel.k1) + _terms(kernel.k2)
    if type(kernel) is Product:
        return [a.times(b) for a in _terms(kernel.k1) for b in _terms(kernel.k2)]
    raise ValueError(f"{kernel!r} is not supported")


def _materns(terms: list[_Term]) -> list[Matern]:
    """The different Matern objects, by id: scikit-learn's kernels are not hashable, and equal ones count twice."""
    return list({id(term.base): term.base for term in terms if type(term.base) is Matern}.values())


def _places(kernel: Kernel) -> tuple[dict[int, slice], int]:
    """The slice of θ for each leaf, by the id of the leaf, and the length of θ. Fixed parameters are not in θ."""
    places, start = {}, 0
    for leaf in _leaves(kernel):
        size = sum(parameter.n_elements for parameter in leaf.hyperparameters if not parameter.fixed)
        places[id(leaf)] = slice(start, start + size)
        start += size
    return places, start


def _leaves(kernel: Kernel) -> Iterator[Kernel]:
    if type(kernel) in (Sum, Product):
        yield from _leaves(kernel.k1)
        yield from _leaves(kernel.k2)
    else:
        yield kernel


def _length_scales(kernel: Matern, dim: int) -> Array:
    scales = np.atleast_1d(np.asarray(kernel.length_scale, dtype=np.float64))
    if scales.shape not in ((1,), (dim,)):
        raise ValueError(f"the kernel has {scales.size} length scales, but X has {dim} columns")
    return np.broadcast_to(scales, dim)


# ------------------------------------------------------------------------ learning


class Parameters(NamedTuple):
    """The current kernel, and the noise variance (a scikit-learn kernel contains it too).

    ``learned_at`` is the number of rows when they were last learned (0: never). ``own``: the user gave no kernel.
    """

    kernel: Kernel | OwnKernel
    noise: float
    learned_at: int = 0
    own: bool = False

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
        rows, bounds = Learner(max_points=self.max_points).rows(len(data.x)), kernel.bounds
        part = Data(*(each[rows] for each in data))
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
        noises = (self.priors.start(kernel)[1], NOISY_START) if noise is None else (noise,)
        starts = [(kernel, start) for start in noises]
        center, deviations = self.priors.center(kernel), self.priors.deviations(kernel)
        for _ in range(self.restarts):
            phi = center + deviations * self.rng.standard_normal(len(center))
            starts.append((kernel.with_theta(phi[:-1]), float(np.exp(phi[-1]))))
        learner = Learner(self.priors, max_points=self.max_points)
        found = [learner.best(*start, *data) for start in starts]
        best = max(found, key=lambda learned: learned.log_posterior)
        return best.kernel, best.noise

    def most_probable_in_units(self, kernel: Kernel, data: Data, *, first: bool) -> Kernel:
        """`most_probable` in units of the data, for a kernel from `composed`. The ``first`` start is the prior."""
        units, before = Units(data), parse(kernel, data.x.shape[1])
        assert isinstance(before.kernel, Matern52), "composed makes Matern kernels"
        if first:
            start: tuple[Matern52, float | None] = self.priors.start(before.kernel)[0], None
        else:
            start = units.within(before.kernel, before.noise)
        return composed(*units.outside(*self.most_probable(*start, units.data(data))))


def log_likelihood(kernel: Kernel | OwnKernel, data: Data) -> tuple[float, Array]:
    """log p(t | X, θ) and its derivatives by the kernel's θ; minus infinity if K is not positive definite."""
    parsed = parse(kernel, data.x.shape[1])
    try:
        value, gradient = Learner.evidence(parsed.kernel, parsed.noise, *data)
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
