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
# A look needs so much more information than the last one.
STEP = 0.05
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
    """The relative difference of two means (the error is that of a ratio, by its first derivative)."""
    base = max(mean_of(a), SMALLEST_MEAN)
    effect = (mean_of(b) - mean_of(a)) / base
    found = stratified([(after - before - effect * before) / base for before, after in zip(a, b, strict=True)])
    return Estimate(effect, found.error, found.freedom)


def spent(time: float) -> float:
    """The false-positive probability that may be spent up to a time."""
    return ALPHA * min(time, 1.0) ** 2


def critical(times: Sequence[float]) -> list[float]:
    """The critical values of |z| for looks at these times.

    Under no difference the sum of the evidence is a Brownian motion. Its density is carried from look to look on a
    grid; what lies beyond a critical value has stopped.
    """
    grid = np.linspace(-6.0, 6.0, 1201)
    density, before, values = np.zeros_like(grid), 0.0, []
    density[len(grid) // 2] = 1.0
    for time in times:
        steps = norm.pdf(grid[:, None], grid, math.sqrt(time - before))
        density = (steps / steps.sum(axis=0)) @ density
        beyond = np.cumsum(density[::-1])[: len(grid) // 2]  # above grid[-1], grid[-2], …
        bound = float(np.interp((spent(time) - spent(before)) / 2, beyond, grid[::-1][: len(beyond)]))
        density[np.abs(grid) > bound] = 0.0
        values.append(bound / math.sqrt(time))
        before = time
    return values


@cache
def target_error(detect: float) -> float:
    """The standard error with which an effect of ``detect`` is found with POWER."""
    return detect / (critical(np.linspace(0.1, 1.0, 10).tolist())[-1] + float(norm.ppf(POWER)))


@dataclass
class Monitor:
    """The looks so far. Each interval holds together with all others with a probability of 1 - ALPHA."""

    detect: float
    times: list[float] = field(default_factory=list)
    z: float = math.inf

    def time(self, estimate: Estimate) -> float:
        """The information, up to 1."""
        return min(1.0, (target_error(self.detect) / estimate.error) ** 2) if estimate.error else 1.0

    def look(self, estimate: Estimate, *, last: bool = False) -> str | None:
        """The decision: "better", "worse", "equivalent" or "undecided" at the end, None if more runs are needed.

        The last look may be at any time; another one only if there is enough new information.
        """
        time, before = self.time(estimate), self.times[-1] if self.times else 0.0
        if time >= before + (1e-6 if last or time == 1.0 else STEP):
            self.times.append(time)
            self.z = critical(self.times)[-1]
            low, high = estimate.interval(self.z)
            if high < 0 or low > 0:
                return "better" if high < 0 else "worse"
            if -self.detect < low and high < self.detect:
                return "equivalent"
        return "undecided" if last or time == 1.0 else None


def rounds_needed(error: float, rounds: int, detect: float) -> int:
    """How many rounds are needed in all, if so many have this standard error."""
    return max(rounds if not error else 1, math.ceil(rounds * (error / target_error(detect)) ** 2))
