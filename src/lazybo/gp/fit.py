"""When and how the kernel parameters are learned.

======  =================================================================  ========
symbol  meaning                                                            shape
======  =================================================================  ========
φ       (θ, log σₙ²), what is learned: the kernel's parameters, the noise  (p + 1,)
n, m    observations, and how many of them are used for learning           scalar
======  =================================================================  ========

`learn` maximises log p(t | X, φ) + log p(φ): maximum a posteriori. `is_due` decides when, by the lag.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from lazybo.core.blas import one_thread
from lazybo.core.checks import Array, positive, shortened
from lazybo.gp.evidence import Workspace, evidence, minimise
from lazybo.gp.kernels.base import Kernel, Parameter
from lazybo.gp.targets import Repeats, relative_variances

if TYPE_CHECKING:
    from lazybo.gp.lazy_gp import LazyGP

Index: TypeAlias = NDArray[np.intp]
Lag: TypeAlias = int | Literal["auto"] | None
K = TypeVar("K", bound=Kernel)

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
NOISY = 1e-3
NOISY_START = 1e-2
RUGGED_START = 0.3
# The prior of noise that repeats have shown: median, and spread of the logarithm. However many repeats there are, the
# spread stays at least LEAST_MEASURED_SPREAD, since the noise may differ elsewhere.
MEASURED_NOISE = 0.05
MEASURED_SPREAD = 2.0
LEAST_MEASURED_SPREAD = 0.4
# If the kernel of similar functions is known, spreads around its parameters are this share of the usual spreads.
LIKE_SPREAD = 0.5
# With more columns than this, the median of the length scales grows more slowly.
MANY_COLUMNS = 10
MAX_EVALUATIONS = 40
# An ascent ends when it promises to add less than this to the log posterior.
TOLERANCE = 3e-3
# The second derivative of the log posterior by a parameter that matters, for each observation.
CURVATURE = 0.2
# The squares of larger targets overflow.
MAX_TARGET = 1e150
# The work model of `is_due`, in multiply-adds: learning once takes about 20 evaluations of m³/2, and one factorisation
# of n³/6. Each observation adds to the budget for learning: a constant, which is little even for small problems, and a
# few passes over the factor.
LEARNING_PER_POINT_CUBED = 10
ALLOWANCE = 4_000_000
ALLOWANCE_PER_ENTRY = 8

# Smaller spreads fix a parameter, larger ones mean no prior. The squares of both would overflow.
SMALLEST_SPREAD, LARGEST_SPREAD = 1e-9, 1e9

# Bounds far outside what the priors allow in practice, but narrow enough that K stays positive definite in doubles.
_LOWER = {"length_scale": 5e-3, "output_scale": 1e-2, "share": 1e-2, "noise": 1e-7}
_UPPER = {"length_scale": 1e3, "output_scale": 1e2, "share": 0.99, "noise": 1.0}


@dataclass(frozen=True, slots=True)
class Priors:
    """Log-normal priors of the kernel parameters and the noise.

    Each prior has a median and a ``…_spread``, the standard deviation of the logarithm. A spread of 0 fixes the
    parameter. Priors matter most while there are few observations. Distances in the unit cube grow with √d, so the
    median of the length scales is multiplied by √d: two random points then have the same correlation in every
    dimension. With many columns the factor is smaller, down to half: suggested points are near the best ones, and long
    scales send the search to the border of the space (docs/dimensions.md). In one space, numbers on a logarithmic scale
    usually matter more than others (`Column.typical`); the mean of the logarithms stays the same.

    There are two hypotheses about the noise. Quiet: next to none, ``noise`` is small and its prior narrow. Noisy: there
    is some, ``noisy``, and the objective is smoother: its length scales vary less (``noisy_length_scale_spread``).
    ``noisy_odds`` are the prior odds of the noisy one; 0 excludes it. Learning compares the best parameters under each.
    With few values a rugged and a noisy objective look alike; repeated evaluations decide (`given`). ``noise_limit`` is
    an upper bound, ``noise_floor`` a lower one.

    ``share`` is the additive share of an additive kernel's variance. Its odds, share / (1 - share), are log-normal. If
    ``like`` is the kernel of similar functions, its length scales and share are the medians, with smaller spreads.
    """

    length_scale: float = 0.5
    choice_length_scale: float = 1.2
    length_scale_spread: float = 1.0
    output_scale: float = 1.0
    output_scale_spread: float = 1.0
    noise: float = 2e-5
    noise_spread: float = 1.0
    share: float = 0.5
    share_spread: float = 2.0
    noisy: float = 0.2
    noisy_spread: float = 1.0
    noisy_length_scale_spread: float = 0.5
    noisy_odds: float = 1.0
    noise_limit: float = 1.0
    noise_floor: float = 1e-7
    like: Kernel | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "like" and not (
                field.name.endswith(("spread", "odds")) and getattr(self, field.name) == 0
            ):
                given = positive(f"the prior's {field.name}", getattr(self, field.name))
                if field.name.endswith("spread") and not SMALLEST_SPREAD <= given <= LARGEST_SPREAD:
                    limits = f"0, or from {SMALLEST_SPREAD:g} to {LARGEST_SPREAD:g}"
                    raise ValueError(f"the prior's {field.name} must be {limits}, not {given:g}")
        for name, kind in (*((kind, kind) for kind in _LOWER), ("noisy", "noise")):
            median, low, high = getattr(self, name), _LOWER[kind], _UPPER[kind]
            if not low <= median <= high:
                raise ValueError(f"the prior's {name} must be between {low:g} and {high:g}, not {median:g}")

    def within(self, least: float, most: float) -> "Priors":
        """The priors of noise within this range. Noise that is excluded, fixed or measured stays as it is."""
        if not self.may_be_noisy:
            return self
        limit = max(min(most, self.noise_limit), self.noise)
        floor = max(min(least, limit), self.noise_floor)
        odds = self.noisy_odds if limit > NOISY else 0.0
        return replace(self, noise=max(self.noise, floor), noise_floor=floor, noise_limit=limit, noisy_odds=odds)

    def given(self, repeats: Repeats) -> "Priors":
        """The priors after repeated evaluations: equal values exclude noise, different ones measure it.

        The measurement and a wide prior around `MEASURED_NOISE` are weighted by their precisions.
        """
        if not self.may_be_noisy or not (repeats.differ or repeats.agree):
            return self
        if repeats.agree:
            return self.without_noise()
        measured, variance = repeats.log_variance()
        precisions = np.array([MEASURED_SPREAD**-2, 1.0 / variance])
        median = math.exp(float(precisions @ [math.log(MEASURED_NOISE), measured]) / precisions.sum())
        spread = max(float(precisions.sum()) ** -0.5, LEAST_MEASURED_SPREAD)
        bounded = min(max(median, _LOWER["noise"]), _UPPER["noise"])
        return replace(self, noise=bounded, noise_spread=spread, noisy_odds=0.0)

    def without_noise(self) -> "Priors":
        """The priors of an objective that is known to have no noise."""
        return replace(self, noisy_odds=0.0, noise_limit=min(self.noise_limit, NOISY))

    @property
    def exclude_noise(self) -> bool:
        """Whether these priors exclude noise, whatever the values are."""
        return self.noisy_odds == 0 and self.noise_limit <= NOISY

    def like_others(self, kernel: Kernel, output_scale: float) -> "Priors":
        """The priors of a function that is like others with this kernel; fixed parameters stay as they are."""
        if self.output_scale_spread == 0:
            return replace(self, like=kernel)
        bounded = min(max(output_scale, _LOWER["output_scale"]), _UPPER["output_scale"])
        return replace(self, like=kernel, output_scale=bounded)

    def hypotheses(self) -> list["Hypothesis"]:
        """The hypotheses about the noise, each with one prior of the noise: quiet, and noisy unless it is excluded."""
        quiet = replace(self, noisy_odds=0.0)
        if not self.may_be_noisy:
            return [Hypothesis(quiet, 0.0)]
        noisy = replace(
            quiet,
            noise=self.noisy,
            noise_spread=self.noisy_spread,
            length_scale_spread=min(self.length_scale_spread, self.noisy_length_scale_spread),
        )
        return [Hypothesis(quiet, 0.0), Hypothesis(noisy, math.log(self.noisy_odds))]

    @property
    def may_be_noisy(self) -> bool:
        """Whether noise is possible: it is neither excluded nor fixed."""
        return self.noisy_odds > 0 and self.noise_spread > 0 and self.noisy_spread > 0

    def center(self, kernel: Kernel) -> Array:
        """The median of φ for a kernel, (p + 1,)."""
        unknown = {parameter.kind for parameter in kernel.layout} - _LOWER.keys()
        if unknown:
            raise ValueError(f"there are no priors for the kernel's parameters {sorted(unknown)}, only for {[*_LOWER]}")
        center = np.log([*(self._median(parameter, kernel.dim) for parameter in kernel.layout), self.noise])
        center[:-1] += _relative(kernel.layout)
        if self.like is not None:
            free = _is_shape(kernel) & (self.deviations(kernel)[:-1] > 0)
            center[:-1] = np.where(free, self.like.theta, center[:-1])
        return center

    def deviations(self, kernel: Kernel) -> Array:
        """The standard deviations of φ, (p + 1,)."""
        spreads = np.array([*(getattr(self, f"{each.kind}_spread") for each in kernel.layout), self.noise_spread])
        if self.like is not None:
            spreads[:-1] *= np.where(_is_shape(kernel), LIKE_SPREAD, 1.0)
        return spreads

    def bounds(self, kernel: Kernel) -> tuple[Array, Array]:
        """Lower and upper bounds of φ, each (p + 1,)."""
        kinds = [*(parameter.kind for parameter in kernel.layout), "noise"]
        lower, upper = ([_positive(kind, limits[kind]) for kind in kinds] for limits in (_LOWER, _UPPER))
        lower[-1] = max(lower[-1], min(self.noise_floor, self.noise_limit))
        upper[-1] = max(min(upper[-1], self.noise_limit), lower[-1])
        return np.log(lower), np.log(upper)

    def _median(self, parameter: Parameter, dim: int) -> float:
        if parameter.kind == "length_scale":
            choice = parameter.column is not None and parameter.column.is_fixed
            return (self.choice_length_scale if choice else self.length_scale * shortening(dim)) * float(np.sqrt(dim))
        return _positive(parameter.kind, getattr(self, parameter.kind))


def shortening(dim: int) -> float:
    """The median length scale of numbers, as a share of √d times `Priors.length_scale`."""
    return min(max(MANY_COLUMNS / dim, 0.5), 1.0)


class Hypothesis(NamedTuple):
    """Priors, and the logarithm of the odds that they are right."""

    priors: Priors
    log_odds: float


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
    """Learned parameters, their log posterior density up to a constant, and how many evaluations and rows it took."""

    kernel: K
    noise: float
    log_posterior: float
    evaluations: int
    points: int


def check_priors(priors: object) -> Priors:
    """Validated priors; the default ones for None."""
    if not isinstance(priors, Priors | None):
        raise ValueError(f"priors must be lazybo.Priors(...) or None, not {shortened(priors)}")
    return priors or Priors()


def priors_for(priors: Priors | None, noise: float | None, *, deterministic: bool) -> Priors | None:
    """The priors to use: without noise if the objective is deterministic. Contradictions raise a ValueError."""
    if not isinstance(deterministic, bool):
        raise ValueError(f"deterministic must be True or False, not {shortened(deterministic)}")
    if not deterministic:
        return priors
    given = check_priors(priors)
    if given.noise >= NOISY:
        raise ValueError(
            f"deterministic=True excludes noise, but the priors expect a noise of {given.noise:g}; drop one of them"
        )
    if noise is not None and positive("noise", noise) >= NOISY:
        raise ValueError(f"deterministic=True excludes noise, but noise is {shortened(noise)}; drop one of them")
    return given.without_noise()


def prior_kernel(kernel: K, priors: Priors | None = None) -> tuple[K, float]:
    """The kernel and the noise at the medians of the priors, to start with."""
    center = (priors or Priors()).center(kernel)
    return kernel.with_theta(center[:-1]), float(np.exp(center[-1]))


@one_thread()
def learn(gp: "LazyGP", priors: Priors | None = None, *, max_points: int = MAX_POINTS) -> Learned[Kernel]:
    """Set ``gp`` to its maximum a posteriori parameters, learned from all rows with a value. K is factored once."""
    rows, scale = np.flatnonzero(~np.isnan(gp.y)), gp.targets.scale
    data = Data(gp.X[rows], gp.targets.values[rows], relative_variances(gp.known_variances[rows], scale))
    learned = maximum_a_posteriori(data, gp.kernel, gp.noise, priors, max_points=max_points)
    gp.set_parameters(learned.kernel, learned.noise)
    return learned


@one_thread()
def maximum_a_posteriori(
    data: Data,
    kernel: K,
    noise: float,
    priors: Priors | None = None,
    *,
    max_points: int = MAX_POINTS,
    first: bool = False,
) -> Learned[K]:
    """Maximum a posteriori parameters. Starts from ``kernel`` and ``noise``, and in the other mode if that is cheap.

    ``first`` means that these were not learned: both modes are tried at any number of observations. If the priors have
    two hypotheses about the noise, each mode is the best under one hypothesis.
    """
    n = len(data.x)
    if n < 2:
        raise ValueError(f"learning needs at least 2 observations, but there are {n}")
    if not isinstance(max_points, int) or max_points < 2:
        raise ValueError(f"max_points must be a whole number of at least 2, not {max_points!r}")
    largest = float(np.abs(data.targets).max())
    if largest > MAX_TARGET:
        raise ValueError(
            f"targets must lie within ±{MAX_TARGET:g} to learn kernel parameters, but one is {largest:g}: standardise "
            "the values (transform=standardize, or normalize_y=True)"
        )
    both = first or n <= SECOND_START_POINTS or (n <= MAX_POINTS and n % SECOND_START_EVERY == 0)
    return _best_mode([data.part(subset(n, max_points))], kernel, noise, priors or Priors(), n=n, both=both)


@one_thread()
def learn_together(
    parts: Sequence[Data], kernel: K, priors: Priors | None = None, *, max_points: int = MAX_POINTS
) -> Learned[K]:
    """Maximum a posteriori parameters shared by independent functions, from at most ``max_points`` rows of each."""
    used = [part.part(subset(len(part.x), max_points)) for part in parts]
    start, noise = prior_kernel(kernel, priors)
    return _best_mode(used, start, noise, priors or Priors(), n=sum(len(part.x) for part in used), both=True)


def _best_mode(parts: Sequence[Data], kernel: K, noise: float, priors: Priors, *, n: int, both: bool) -> Learned[K]:
    """The more probable mode."""
    hypotheses = priors.hypotheses() if n >= NOISY_POINTS else priors.hypotheses()[:1]
    found = [_ascend(parts, kernel, *start) for start in _starts(kernel, noise, hypotheses, both=both)]
    best = max(found, key=lambda learned: learned.log_posterior)
    return replace(best, evaluations=sum(learned.evaluations for learned in found))


def subset(n: int, size: int) -> Index:
    """The rows to learn from: all, or a random subset that depends only on n, so that runs are repeatable."""
    if n <= size:
        return np.arange(n)
    return np.sort(np.random.default_rng(n).choice(n, size, replace=False))


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


def _ascend(parts: Sequence[Data], kernel: K, hypothesis: Hypothesis, start: Array) -> Learned[K]:
    """One run of BFGS on -Σ log p(t | X, φ) - log p(φ), a sum over independent parts, under one hypothesis."""
    priors, log_odds = hypothesis
    center, deviations = priors.center(kernel), priors.deviations(kernel)
    held = deviations == 0
    deviations[held] = 1.0
    n, spaces = sum(len(data.x) for data in parts), [Workspace(kernel, data.x) for data in parts]

    def negative_log_posterior(phi: Array) -> tuple[float, Array]:
        deviation, changed, noise = (phi - center) / deviations, kernel.with_theta(phi[:-1]), float(np.exp(phi[-1]))
        total, by_phi = 0.5 * float(deviation @ deviation), deviation / deviations
        for data, space in zip(parts, spaces, strict=True):
            value, gradient = evidence(changed, noise, *data, space)
            total, by_phi = total - value, by_phi - gradient
        return total, by_phi

    lower, upper = priors.bounds(kernel)
    lower[held] = upper[held] = center[held]
    # Each observation adds about this much curvature: it sets the length of the first steps.
    hessian = np.diag(deviations**-2 + CURVATURE * n)
    found = minimise(
        negative_log_posterior,
        start,
        lower,
        upper,
        hessian,
        tolerance=TOLERANCE,
        max_evaluations=MAX_EVALUATIONS,
    )
    learned_kernel, noise = kernel.with_theta(found.x[:-1]), float(np.exp(found.x[-1]))
    # Compare hypotheses by the probability around the mode, not by its height (Laplace). The precisions of prior and
    # observations add up, so while there are few observations the mode is as wide as the prior.
    narrower = 1.0 + CURVATURE * n * deviations[~held] ** 2
    log_posterior = log_odds - found.value - 0.5 * float(np.log(narrower).sum())
    return Learned(learned_kernel, noise, log_posterior, found.evaluations, n)


def _relative(layout: Sequence[Parameter]) -> Array:
    """The logarithms of typical length scales of columns of numbers, relative to their mean in this kernel, (p,)."""
    relative = np.zeros(len(layout))
    numbers = {
        i: math.log(each.column.typical)
        for i, each in enumerate(layout)
        if each.kind == "length_scale" and each.column is not None and not each.column.is_fixed
    }
    if numbers:
        relative[[*numbers]] = np.array([*numbers.values()]) - np.mean([*numbers.values()])
    return relative


def _is_shape(kernel: Kernel) -> NDArray[np.bool_]:
    """Which entries of θ are not the output scale, (p,)."""
    return np.array([parameter.kind != "output_scale" for parameter in kernel.layout])


def _positive(kind: str, value: float) -> float:
    """The quantity whose logarithm is in θ: the value itself, or the odds of a share."""
    return value / (1.0 - value) if kind == "share" else value


# ------------------------------------------------------------------------ the lag


def check_lag(lag: object) -> Lag:
    """A validated lag: 1, 2, …, None or "auto"."""
    if lag is None or (isinstance(lag, str) and lag == "auto"):
        return lag  # type: ignore[return-value]
    if isinstance(lag, int | np.integer) and not isinstance(lag, bool) and lag >= 1:
        return int(lag)
    raise ValueError(f'lag must be a positive whole number, None (never learn) or "auto", not {lag!r}')


def is_due(lag: Lag, learned_at: int, n: int) -> bool:
    """Whether to learn with n observations if the kernel was last learned at ``learned_at`` (0: never).

    - An integer l: every l observations; 1 is standard Bayesian optimisation.
    - None: never, the paper's fully lazy mode.
    - "auto": when the budget covers the work. Each observation since then adds `ALLOWANCE`, and `ALLOWANCE_PER_ENTRY`
      for each of the n² entries of K. While n is small that is every observation; later, learning costs O(n²) a step.
      No clock is used, so runs are repeatable.
    """
    lag = check_lag(lag)
    if lag is None or n < 2 or n <= learned_at:
        return False
    if lag == "auto":
        paid = ALLOWANCE * (n - learned_at) + ALLOWANCE_PER_ENTRY * (_sum_of_squares(n) - _sum_of_squares(learned_at))
        return paid >= learning_work(n)
    return learned_at == 0 or n - learned_at >= lag


def learning_work(n: int) -> int:
    """Multiply-adds to learn once with n observations, by the work model."""
    return LEARNING_PER_POINT_CUBED * min(n, MAX_POINTS) ** 3 + n**3 // 6


def _sum_of_squares(n: int) -> int:
    return n * (n + 1) * (2 * n + 1) // 6
