"""What repeated evaluations of the same points say about noise.

======  ============================================================  ======
symbol  meaning                                                       shape
======  ============================================================  ======
ν       repeats: rows beyond the first one at each point              scalar
s²      Σ (t - mean at the point)² / ν, an estimate of the noise σₙ²  scalar
======  ============================================================  ======

With few values a rugged and a noisy function look alike. A repeat tells them apart: equal values show that there is no
noise, different ones measure it. log s² - log σₙ² is distributed as log(χ²_ν / ν), whose mean is ψ(ν/2) - log(ν/2) and
whose variance is ψ'(ν/2).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, polygamma

from lazybo.core.checks import Array

# So many equal repeats are proof that there is no noise. If other points have equal values too, as an error rate over a
# few examples has, they may be equal by chance, and it takes more.
PROOF = 1
PROOF_IF_DISCRETE = 3


@dataclass(frozen=True, slots=True)
class Repeats:
    """Repeated evaluations: how many (``count``, ν), their sum of squares, and whether equal ones are proof."""

    count: int = 0
    square: float = 0.0
    proof: int = PROOF

    @property
    def differ(self) -> bool:
        """Whether any repeat gave another value: there is noise."""
        return self.square > 0.0

    @property
    def agree(self) -> bool:
        """Whether the repeats prove that there is no noise."""
        return not self.differ and self.count >= self.proof

    def log_variance(self) -> tuple[float, float]:
        """An unbiased estimate of log σₙ² from repeats that differ, and its variance."""
        half = 0.5 * self.count
        bias = float(digamma(half)) - math.log(half)
        return math.log(self.square / self.count) - bias, float(polygamma(1, half))


def repeats_of(targets: Array, groups: Iterable[Sequence[int]]) -> Repeats:
    """The repeats among targets, (n,), NaN where there is no value; each group has the rows at one point."""
    count, square = 0, 0.0
    for group in groups:
        values = targets[list(group)]
        values = values[~np.isnan(values)]
        if len(values) > 1:
            count += len(values) - 1
            square += float(np.sum((values - values.mean()) ** 2)) if np.ptp(values) > 0 else 0.0
    if count == 0:
        return Repeats()
    known = targets[~np.isnan(targets)]
    equal = len(known) - len(np.unique(known))
    return Repeats(count, square, PROOF_IF_DISCRETE if square == 0.0 and equal > count else PROOF)
