"""An objective as the mean over folds (paper, equation 1)."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lazybo.core.checks import whole
from lazybo.run.call import call_of

# No data set has more parts, and a run keeps a record of each.
MAX_FOLDS = 100_000


class KFold:
    """The mean of ``objective(params, fold)`` over ``fold`` = 0 … k−1; the parameters may also come by their names.

    `lazybo.optimize` evaluates each fold as its own task, in parallel if there are workers, and takes the variance of
    the folds as the noise of the mean. Anywhere else it is an ordinary function of the parameters.
    """

    def __init__(self, objective: Callable[..., float], k: int = 3) -> None:
        if not callable(objective):
            raise TypeError(f"the objective must be a function of (params, fold), not {objective!r}")
        self.objective = objective
        self.k = whole("k", k, 2)
        if self.k > MAX_FOLDS:
            raise ValueError(f"k must be at most {MAX_FOLDS}, not {self.k}")

    def __call__(self, params: Mapping[str, Any]) -> float:
        """The mean, one fold after the other."""
        call = call_of(self.objective, params, folds=True)
        return mean_of([call(params, fold=fold) for fold in range(self.k)])


def kfold(objective: Callable[..., float], k: int = 3) -> KFold:
    """The mean of ``objective(params, fold)`` over k folds, as an objective for `lazybo.optimize`."""
    return KFold(objective, k)


def mean_of(values: Sequence[float]) -> float:
    """The mean, also if no float can hold the sum."""
    try:
        return statistics.fmean(values)
    except OverflowError:
        return sum(value / len(values) for value in values)


def variance_of_mean(values: Sequence[float]) -> float:
    """The variance of the mean of k folds, from their sample variance: s²/k; 0 if no float can hold it."""
    try:
        variance = statistics.variance(values) / len(values)
    except OverflowError:
        return 0.0
    return variance if math.isfinite(variance) else 0.0
