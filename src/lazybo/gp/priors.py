"""What is believed about kernel parameters and noise before any value is seen: `Priors`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from lazybo.core import Array, checks
from lazybo.gp.kernels.base import Kernel, Parameter
from lazybo.gp.targets import Repeats, repeats_of

K = TypeVar("K", bound=Kernel)

# Less noise than this is none: the values are rugged, not noisy.
NOISY = 1e-3
# The prior of noise that repeats have shown: median, and spread of the logarithm. However many repeats there are, the
# spread stays at least LEAST_MEASURED_SPREAD, since the noise may differ elsewhere.
MEASURED_NOISE = 0.05
MEASURED_SPREAD = 2.0
LEAST_MEASURED_SPREAD = 0.4
# If the kernel of similar functions is known, spreads around its parameters are this share of the usual spreads.
LIKE_SPREAD = 0.5
# With more columns than this, the median of the length scales grows more slowly.
MANY_COLUMNS = 10

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

    # Less noise than this is none: the values are rugged, not noisy.
    NOISY: ClassVar[float] = NOISY

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "like" and not (
                field.name.endswith(("spread", "odds")) and getattr(self, field.name) == 0
            ):
                given = checks.positive(f"the prior's {field.name}", getattr(self, field.name))
                if field.name.endswith("spread") and not SMALLEST_SPREAD <= given <= LARGEST_SPREAD:
                    limits = f"0, or from {SMALLEST_SPREAD:g} to {LARGEST_SPREAD:g}"
                    raise ValueError(f"the prior's {field.name} must be {limits}, not {given:g}")
        for name, kind in (*((kind, kind) for kind in _LOWER), ("noisy", "noise")):
            median, low, high = getattr(self, name), _LOWER[kind], _UPPER[kind]
            if not low <= median <= high:
                raise ValueError(f"the prior's {name} must be between {low:g} and {high:g}, not {median:g}")

    @staticmethod
    def check(priors: object) -> "Priors | None":
        """Return ``priors``; raise a ValueError if they are neither priors nor None."""
        if not isinstance(priors, Priors | None):
            raise ValueError(f"priors must be lazybo.Priors(...) or None, not {checks.shortened(priors)}")
        return priors

    def within(self, least: float, most: float) -> "Priors":
        """The priors of noise within this range. Noise that is excluded, fixed or measured stays as it is."""
        if not self.may_be_noisy:
            return self
        limit = max(min(most, self.noise_limit), self.noise)
        floor = max(min(least, limit), self.noise_floor)
        odds = self.noisy_odds if limit > NOISY else 0.0
        return replace(self, noise=max(self.noise, floor), noise_floor=floor, noise_limit=limit, noisy_odds=odds)

    @staticmethod
    def noise_shown(targets: Array, groups: Sequence[Sequence[int]]) -> bool | None:
        """Whether repeated evaluations have shown noise, None if they have shown neither that nor its absence.

        The ``targets`` are NaN where nothing was measured, (n,); each group has the rows at one point.
        """
        repeats = repeats_of(targets, groups)
        return True if repeats.differ else False if repeats.agree else None

    def given(self, targets: Array, groups: Sequence[Sequence[int]]) -> "Priors":
        """The priors after repeated evaluations as in `noise_shown`."""
        return self.after(repeats_of(targets, groups))

    def after(self, repeats: Repeats) -> "Priors":
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

    def deterministic(self, noise: float | None) -> "Priors":
        """The priors without noise; a ValueError if these expect some, or if learning starts from some ``noise``."""
        if self.noise >= NOISY:
            raise ValueError(
                f"deterministic=True excludes noise, but the priors expect a noise of {self.noise:g}; drop one of them"
            )
        if noise is not None and noise >= NOISY:
            raise ValueError(f"deterministic=True excludes noise, but noise is {noise:g}; drop one of them")
        return self.without_noise()

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

    def start(self, kernel: K) -> tuple[K, float]:
        """The kernel and the noise at the medians, to start with."""
        center = self.center(kernel)
        return kernel.with_theta(center[:-1]), float(np.exp(center[-1]))

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
            shorter = min(max(MANY_COLUMNS / dim, 0.5), 1.0)
            return (self.choice_length_scale if choice else self.length_scale * shorter) * float(np.sqrt(dim))
        return _positive(parameter.kind, getattr(self, parameter.kind))


class Hypothesis(NamedTuple):
    """Priors, and the logarithm of the odds that they are right."""

    priors: Priors
    log_odds: float


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
