"""When and how the kernel parameters are learned.

======  =================================================================  ========
symbol  meaning                                                            shape
======  =================================================================  ========
φ       (θ, log σₙ²), what is learned: the kernel's parameters, the noise  (p + 1,)
n, m    observations, and how many of them are used for learning           scalar
======  =================================================================  ========

`modes` maximise log p(t | X, φ) + log p(φ): maxima a posteriori. `is_due` decides when, by the lag. `draw` draws
*particles* from the posterior of φ, which is approximately normal around each mode: with the Hessian H of -log p there,
N(φ̂, H⁻¹) (Laplace).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazybo.core import Array, Lag, checks, one_thread
from lazybo.gp.kernels.base import Kernel
from lazybo.gp.marginal import Evidence, minimise
from lazybo.gp.mixture import Particle
from lazybo.gp.priors import NOISY, Hypothesis, K, Priors
from lazybo.gp.targets import subset

Index: TypeAlias = NDArray[np.intp]

# Learning uses at most this many observations. A few hundred determine ten parameters well, and the cost is cubic.
MAX_POINTS = 400
# The posterior often has two modes, "rugged" and "noisy", and an ascent stays in the mode where it starts. Up to
# SECOND_START_POINTS observations the other mode is always tried too, which costs little. From there to `MAX_POINTS` it
# is tried if the number of observations is a multiple of SECOND_START_EVERY: about a fifth more work, but without it,
# noise of 0.5 was not found within 160 observations (docs/notebook.md). The first learning always tries both.
SECOND_START_POINTS = 30
SECOND_START_EVERY = 5
# With fewer observations noise is not considered: too few to tell it from a rugged objective, and an evaluation that is
# repeated to find out is missed most while there are few.
NOISY_POINTS = 20
# Less noise than NOISY is the rugged mode. The search for the noisy mode starts from the noise NOISY_START, the search
# for the rugged mode from the prior's length scales times RUGGED_START.
NOISY_START = 1e-2
RUGGED_START = 0.3
MAX_EVALUATIONS = 40
# An ascent ends when it promises to add less than this to the log posterior.
TOLERANCE = 3e-3
# The second derivative of the log posterior by a parameter that matters, for each observation.
CURVATURE = 0.2
# Ascents that end nearer to each other than this have found the same mode.
SAME_MODE = 0.2
# Modes that are less probable than the best one by more than this, as a logarithm, have no draws.
NEGLIGIBLE = 6.0
# H is the difference of gradients at φ̂ and at steps of this length.
HESSIAN_STEP = 1e-2
# No direction of a draw is wider than the widest prior by more than this factor, where H is flat or not definite.
WIDEST = 1.5
# The squares of larger targets overflow.
MAX_TARGET = 1e150
# The work model of `is_due`, in multiply-adds: learning once takes about 20 evaluations of m³/2, and one factorisation
# of n³/6. Each observation adds to the budget for learning: a constant, which is little even for small problems, and a
# few passes over the factor.
LEARNING_PER_POINT_CUBED = 10
ALLOWANCE = 4_000_000
ALLOWANCE_PER_ENTRY = 8
# Particles have at most this many rows together: few cost next to nothing, and leave the kernel uncertain.
PARTICLE_ROWS = 400
# With larger targets, as values that are not scaled may be, the likelihoods of particles differ by rounding errors.
LARGE_TARGET = 1e4


class Data(NamedTuple):
    """Data to learn from: points, (n, d), targets, (n,), and known noise variances in units of the targets², (n,).

    Targets of shape (n, q) are q independent outputs that share the parameters.
    """

    x: Array
    targets: Array
    known: Array

    def part(self, rows: Index) -> "Data":
        """The data of some rows."""
        return Data(self.x[rows], self.targets[rows], self.known[rows])


@dataclass(frozen=True, slots=True)
class Learned(Generic[K]):
    """Learned parameters, their log posterior density up to a constant, and how many evaluations and rows it took.

    ``under`` is the posterior, given a hypothesis about the noise, of which they are a maximum.
    """

    kernel: K
    noise: float
    log_posterior: float
    evaluations: int
    points: int
    under: "LogPosterior"

    @property
    def phi(self) -> Array:
        """φ, (p + 1,)."""
        return np.append(self.kernel.theta, np.log(self.noise))

    def is_near(self, other: "Learned[K]") -> bool:
        """Whether two ascents have found the same mode."""
        return bool(np.abs(self.phi - other.phi).max() < SAME_MODE)


@one_thread()
def modes(
    data: Data,
    kernel: K,
    noise: float,
    priors: Priors | None = None,
    *,
    max_points: int = MAX_POINTS,
    first: bool = False,
) -> list[Learned[K]]:
    """Local maxima of the posterior, the most probable one first.

    The ascent starts from ``kernel`` and ``noise``, and in the other mode if that is cheap. ``first`` means that these
    were not learned: both modes are tried at any number of observations. If the priors have two hypotheses about the
    noise, each mode is the best under one hypothesis.
    """
    n = len(data.x)
    if n < 2:
        raise ValueError(f"learning needs at least 2 observations, but there are {n}")
    checks.whole("max_points", max_points, 2)
    largest = float(np.abs(data.targets).max())
    if largest > MAX_TARGET:
        raise ValueError(
            f"targets must lie within ±{MAX_TARGET:g} to learn kernel parameters, but one is {largest:g}: standardise "
            "the values (transform=standardize, or normalize_y=True)"
        )
    both = first or n <= SECOND_START_POINTS or (n <= MAX_POINTS and n % SECOND_START_EVERY == 0)
    return _modes([data.part(subset(n, max_points))], kernel, noise, priors or Priors(), n=n, both=both)


@one_thread()
def learn_together(
    parts: Sequence[Data], kernel: K, priors: Priors | None = None, *, max_points: int = MAX_POINTS
) -> Learned[K]:
    """Maximum a posteriori parameters shared by independent functions, from at most ``max_points`` rows of each."""
    used = [part.part(subset(len(part.x), max_points)) for part in parts]
    start, noise = (priors or Priors()).start(kernel)
    return _modes(used, start, noise, priors or Priors(), n=sum(len(part.x) for part in used), both=True)[0]


def _modes(parts: Sequence[Data], kernel: K, noise: float, priors: Priors, *, n: int, both: bool) -> list[Learned[K]]:
    """The modes that were tried, the most probable one first."""
    hypotheses = priors.hypotheses() if n >= NOISY_POINTS else priors.hypotheses()[:1]
    evidences = [(Evidence(kernel, *data), len(data.x)) for data in parts]
    found = [_ascend(evidences, kernel, *start) for start in _starts(kernel, noise, hypotheses, both=both)]
    return sorted(found, key=lambda learned: -learned.log_posterior)


def _starts(
    kernel: Kernel, noise: float, hypotheses: Sequence[Hypothesis], *, both: bool
) -> list[tuple[Hypothesis, Array]]:
    """The current parameters, and with ``both`` a start in the other mode; each with its hypothesis."""
    mine, other = hypotheses[0], hypotheses[-1]
    if noise >= NOISY:
        mine, other = other, mine
    starts = [(mine, np.append(kernel.theta, np.log(noise)))]
    if both:
        starts.append((other, _other_mode(kernel, noise, other.priors)))
    return starts


def _other_mode(kernel: Kernel, noise: float, priors: Priors) -> Array:
    """The start for the other mode: the noisy one if ``noise`` is small, else the rugged one."""
    start = priors.center(kernel)
    if noise < NOISY < priors.noise_limit:
        start[-1] = max(start[-1], np.log(NOISY_START))
    else:
        lengths = [i for i, parameter in enumerate(kernel.layout) if parameter.kind == "length_scale"]
        start[lengths] += np.log(RUGGED_START)
    return start


class LogPosterior:
    """Σ log p(t | X, φ) + log p(φ), a sum over independent parts, under one hypothesis; up to a constant.

    Parameters without a spread are ``held`` at the centers of their priors.
    """

    def __init__(self, parts: Sequence[tuple[Evidence, int]], kernel: Kernel, hypothesis: Hypothesis) -> None:
        priors, self.log_odds = hypothesis
        self._center, self.deviations = priors.center(kernel), priors.deviations(kernel)
        self.held = self.deviations == 0
        self.deviations[self.held] = 1.0
        self.lower, self.upper = priors.bounds(kernel)
        self.lower[self.held] = self.upper[self.held] = self._center[self.held]
        self._kernel, self._parts = kernel, parts

    def __call__(self, phi: Array) -> tuple[Array, Array]:
        """Its values at s φ, (s,), and its derivatives, (s, p + 1); φ is (s, p + 1)."""
        deviation = (phi - self._center) / self.deviations
        total, by_phi = -0.5 * np.vecdot(deviation, deviation), -deviation / self.deviations
        values, noise = self._kernel.values_at(phi[:, :-1]), np.exp(phi[:, -1])
        for evidence, _ in self._parts:
            value, gradient = evidence(values, noise)
            total, by_phi = total + value, by_phi + gradient
        return total, by_phi

    def negative(self, phi: Array) -> tuple[float, Array]:
        """Minus its value at one φ, (p + 1,), and the derivatives of that."""
        value, gradient = self(phi[None])
        return -float(value[0]), -gradient[0]

    def at(self, phi: Array) -> tuple[Kernel, float]:
        """The kernel and the noise with the parameters φ."""
        return self._kernel.with_theta(phi[:-1]), float(np.exp(phi[-1]))


def _ascend(parts: Sequence[tuple[Evidence, int]], kernel: K, hypothesis: Hypothesis, start: Array) -> Learned[K]:
    """One run of BFGS on the log posterior under one hypothesis."""
    under, n = LogPosterior(parts, kernel, hypothesis), sum(count for _, count in parts)
    # Each observation adds about this much curvature: it sets the length of the first steps.
    hessian = np.diag(under.deviations**-2 + CURVATURE * n)
    found = minimise(
        under.negative, start, under.lower, under.upper, hessian, tolerance=TOLERANCE, max_evaluations=MAX_EVALUATIONS
    )
    learned_kernel, noise = kernel.with_theta(found.x[:-1]), float(np.exp(found.x[-1]))
    # Compare hypotheses by the probability around the mode, not by its height (Laplace). The precisions of prior and
    # observations add up, so while there are few observations the mode is as wide as the prior.
    narrower = 1.0 + CURVATURE * n * under.deviations[~under.held] ** 2
    log_posterior = under.log_odds - found.value - 0.5 * float(np.log(narrower).sum())
    return Learned(learned_kernel, noise, log_posterior, found.evaluations, n, under)


@dataclass(frozen=True, slots=True)
class Learner:
    """When kernel parameters are learned, by the ``lag``, and how: from ``max_points`` rows, with these ``priors``.

    With the lag "auto" at most this many ``particles`` are drawn; otherwise there is one.
    """

    priors: Priors = Priors()  # noqa: RUF009 - immutable
    lag: Lag = "auto"
    particles: int = 1
    max_points: int = MAX_POINTS

    def is_due(self, learned_at: int, n: int, *, always: bool = False) -> bool:
        """Whether to learn with n observations if the last time was with ``learned_at``; ``always``: after each one."""
        return is_due(1 if always else self.lag, learned_at, n)

    @one_thread()
    def best(
        self, kernel: K, noise: float, x: Array, targets: Array, known: Array, *, first: bool = False
    ) -> Learned[K]:
        """The most probable parameters; ``known`` are noise variances in units of the targets².

        It starts from the given ones, which with ``first`` were not learned.
        """
        found = modes(Data(x, targets, known), kernel, noise, self.priors, max_points=self.max_points, first=first)
        return replace(found[0], evaluations=sum(learned.evaluations for learned in found))

    def drawn(
        self, kernel: Kernel, noise: float, x: Array, targets: Array, known: Array, *, first: bool
    ) -> list["Particle"]:
        """Particles, the most probable mode first; ``first`` if the parameters to start from were not learned."""
        found = modes(Data(x, targets, known), kernel, noise, self.priors, max_points=self.max_points, first=first)
        several = self.lag == "auto" and np.abs(targets).max() < LARGE_TARGET
        return draw(found, particles_at(len(x), self.particles) if several else 1)

    def rows(self, n: int) -> Index:
        """The rows to learn from."""
        return subset(n, self.max_points)

    @staticmethod
    def evidence(kernel: Kernel, noise: float, x: Array, targets: Array, known: Array) -> tuple[float, Array]:
        """log p(targets) and its derivatives by (θ, log σₙ²), (p + 1,); LinAlgError if K is not positive definite."""
        value, gradient = Evidence(kernel, x, targets, known)(kernel.values[None], np.array([noise]))
        return float(value[0]), gradient[0]


# ---------------------------------------------------------------------- particles


@one_thread()
def draw(found: Sequence[Learned[Kernel]], most: int) -> list[Particle]:
    """About ``most`` draws of φ from its posterior around some modes, the most probable mode first.

    Each mode has as many draws as its probability says, with equal weights, and is one of them itself. They come in
    pairs on opposite sides of the mode, and from the same standard normal numbers each time. So they change as little
    from one learning to the next as the posterior does.
    """
    if most == 1:
        return [Particle(found[0].kernel, found[0].noise, 0.0)]
    least = found[0].log_posterior - NEGLIGIBLE
    likely = [found[0], *(learned for learned in found[1:] if learned.log_posterior > least)]
    around = [_Normal(one) for i, one in enumerate(likely) if not any(one.is_near(other) for other in likely[:i])]
    logs = np.array([each.log_probability for each in around])
    shares = np.exp(logs - logs.max())
    shares /= shares.sum()
    particles = []
    for each, share in sorted(zip(around, shares.tolist(), strict=True), key=lambda pair: -pair[1]):
        count = round(share * most)
        particles += [Particle(*parameters, float(np.log(share / count))) for parameters in each.draws(count)]
    return particles


class _Normal:
    """The normal approximation of the posterior around a mode."""

    def __init__(self, mode: Learned[Kernel]) -> None:
        self._under, self._phi = mode.under, mode.phi
        free = np.flatnonzero(~mode.under.held)
        steps = HESSIAN_STEP * np.eye(len(self._phi))[free]
        (value, *_), (gradient, *others) = self._under(np.vstack((self._phi, self._phi + steps)))
        changes = (gradient - np.array(others))[:, free] / HESSIAN_STEP
        precisions, self._directions = np.linalg.eigh(0.5 * (changes + changes.T))
        deviations = mode.under.deviations[free]
        self._precisions = np.maximum(precisions, (WIDEST * deviations.max()) ** -2)
        self._free = free
        narrower = np.log(self._precisions).sum() + 2.0 * np.log(deviations).sum()
        self.log_probability = mode.under.log_odds + float(value) - 0.5 * float(narrower)

    def draws(self, count: int) -> list[tuple[Kernel, float]]:
        """The mode, and other draws from the distribution, within the bounds of the parameters."""
        z = np.random.default_rng(len(self._phi)).standard_normal((-(-count // 2), len(self._free)))
        away = np.stack((z, -z), axis=1).reshape(-1, len(self._free)) / np.sqrt(self._precisions)
        phi = np.tile(self._phi, (count, 1))
        phi[1:, self._free] += (away @ self._directions.T)[: count - 1]
        return [self._under.at(row) for row in np.clip(phi, self._under.lower, self._under.upper)]


# ------------------------------------------------------------------------ the lag


def is_due(lag: Lag, learned_at: int, n: int) -> bool:
    """Whether to learn with n observations if the kernel was last learned at ``learned_at`` (0: never).

    - An integer l: every l observations; 1 is standard Bayesian optimisation.
    - None: never, the paper's fully lazy mode.
    - "auto": when the budget covers the work. Each observation since then adds `ALLOWANCE`, and `ALLOWANCE_PER_ENTRY`
      for each of the n² entries of K. While n is small that is every observation; later, learning costs O(n²) a step.
      No clock is used, so runs are repeatable.
    """
    if lag is None or n < 2 or n <= learned_at:
        return False
    if lag == "auto":
        paid = ALLOWANCE * (n - learned_at) + ALLOWANCE_PER_ENTRY * (_sum_of_squares(n) - _sum_of_squares(learned_at))
        return paid >= learning_work(n)
    return learned_at == 0 or n - learned_at >= lag


def learning_work(n: int) -> int:
    """Multiply-adds to learn once with n observations, by the work model."""
    return LEARNING_PER_POINT_CUBED * min(n, MAX_POINTS) ** 3 + n**3 // 6


def particles_at(n: int, most: int) -> int:
    """How many particles to draw with n observations: they have at most `PARTICLE_ROWS` rows together."""
    return min(most, max(PARTICLE_ROWS // max(n, 1), 1))


def _sum_of_squares(n: int) -> int:
    return n * (n + 1) * (2 * n + 1) // 6
