"""The statistics of `benchmarks.compare`: a paired, stratified estimate and a test that may look at any time.

| symbol | meaning |
|---|---|
| a, b | scores (mean regrets) of the pairs of runs of one family, (pairs,) |
| effect | mean of b / mean of a - 1, where each mean is the mean over families of the family's mean |
| error | standard error of the effect, from the variances within the families |
| t | information: (target error / error)², from 0 to 1; at 1 a true effect of ``detect`` is found with POWER |
| α(t) | the false-positive probability that may be spent up to t: ALPHA t² |
| z | critical value of a look, so that all looks up to t together have a false-positive probability of α(t) |

Lan and DeMets (1983) showed that the times of the looks need not be known in advance, only α. The variance within a
family includes the differences between its problems, so the error is rather too large than too small.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from scipy.stats import norm, t

ALPHA = 0.05
POWER = 0.8
# Before so many rounds the variances are not known well enough.
PILOT = 4
# The share of the information between two looks.
STEP = 0.1
# Smaller mean regrets count as this: relative to nothing every difference is infinite.
SMALLEST_MEAN = 1e-6

Strata = Sequence[np.ndarray]


@dataclass(frozen=True)
class Estimate:
    """An estimate with its standard error and its degrees of freedom."""

    value: float
    error: float
    freedom: float

    def interval(self, z: float) -> tuple[float, float]:
        """The interval for a critical value of the normal distribution, with the tails of Student's t."""
        width = float(t.isf(norm.sf(z), self.freedom)) * self.error if self.error else 0.0
        return self.value - width, self.value + width


def mean_of(strata: Strata) -> float:
    """The mean with equal weights of the families."""
    return float(np.mean([values.mean() for values in strata]))


def stratified(strata: Strata) -> Estimate:
    """The mean with equal weights of the families; degrees of freedom by Welch and Satterthwaite."""
    variances = np.array([values.var(ddof=1) / len(values) for values in strata])
    total, parts = variances.sum(), np.sum(variances**2 / [len(values) - 1 for values in strata])
    return Estimate(mean_of(strata), math.sqrt(total) / len(strata), total**2 / parts if parts else math.inf)


def relative(a: Strata, b: Strata) -> Estimate:
    """The mean difference of the pairs, relative to the mean of a.

    The mean of a counts as known: then the interval excludes 0 exactly if that of the difference does, whichever of the
    two variants is called a. (A ratio's own error made the test reject too often, and one side more than the other.)
    """
    base = max(mean_of(a), SMALLEST_MEAN)
    return stratified([(after - before) / base for before, after in zip(a, b, strict=True)])


def spent(time: float) -> float:
    """The false-positive probability that may be spent up to a time."""
    return ALPHA * min(time, 1.0) ** 2


class Boundary:
    """The critical values of |z|, look after look.

    Without a difference the evidence is a Brownian motion. Its density is carried from look to look on a grid; what
    lies beyond a critical value has stopped.
    """

    def __init__(self) -> None:
        self._grid = np.linspace(-6.0, 6.0, 2401)
        self._density = (self._grid == 0.0).astype(float)
        self._time = 0.0

    def at(self, time: float) -> float:
        """The critical value of the next look."""
        steps = norm.pdf(self._grid, scale=math.sqrt(time - self._time))
        self._density = np.convolve(self._density, steps / steps.sum(), mode="same")
        above = np.cumsum(self._density[::-1])[: len(self._grid) // 2]  # the mass from each point on, from the top
        tail = (spent(time) - spent(self._time)) / 2
        bound = float(np.interp(tail, above, self._grid[::-1][: len(above)]))
        self._density[np.abs(self._grid) > bound] = 0.0
        self._time = time
        return bound / math.sqrt(time)


def critical(times: Sequence[float]) -> list[float]:
    """The critical values of |z| for looks at these times."""
    boundary = Boundary()
    return [boundary.at(time) for time in times]


@cache
def target_error(detect: float) -> float:
    """The standard error with which an effect of ``detect`` is found with POWER."""
    return detect / (critical(np.linspace(0.1, 1.0, 10).tolist())[-1] + float(norm.ppf(POWER)))


@dataclass
class Monitor:
    """The looks so far. All intervals hold together with a probability of 1 - ALPHA.

    Each look says when the next one will be. To look whenever the error seems small enough would prefer errors that are
    too small by chance.
    """

    detect: float
    next_look: int = PILOT
    time: float = 0.0
    z: float = math.inf
    boundary: Boundary = field(default_factory=Boundary)

    def look(self, estimate: Estimate, rounds: int, *, last: bool = False) -> str | None:
        """The decision: "better", "worse", "equivalent" or "undecided" at the end, None if more rounds are needed."""
        if rounds < self.next_look and not last:
            return None
        needed = rounds_needed(estimate.error, rounds, self.detect)
        self.next_look = rounds + max(1, min(math.ceil(STEP * needed), needed - rounds))
        if rounds / needed > self.time:
            self.time = min(1.0, rounds / needed)
            self.z = self.boundary.at(self.time)
            decision = self.decision(*estimate.interval(self.z))
            if decision:
                return decision
        return "undecided" if last or self.time == 1.0 else None

    def decision(self, low: float, high: float) -> str | None:
        """The decision for an interval of the relative difference."""
        if high < 0 or low > 0:
            return "better" if high < 0 else "worse"
        return "equivalent" if -self.detect < low and high < self.detect else None


def rounds_needed(error: float, rounds: int, detect: float) -> int:
    """How many rounds are needed in all, if so many have this standard error."""
    return max(1, math.ceil(rounds * (error / target_error(detect)) ** 2))
