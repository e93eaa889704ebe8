"""The chance that an evaluation fails, learned from those that did.

======  ==================================================================  ======
symbol  meaning                                                             shape
======  ==================================================================  ======
y       labels: 1 for an evaluation that failed, 0 for one with a value     (n,)
μ, σ    posterior mean and standard deviation of the scaled labels          (m,)
t       the scaled ½                                                        scalar
σₙ²     noise of the labels: failures that are accidents                    scalar
======  ==================================================================  ======

The labels are one more output with a process of its own, a regression: new labels are cheap rows, while a classifier
would factor K again for each of them. Scaled to mean 0 and variance 1, they make the share of failures the expectation
far from all evaluations: P(success) = Φ(t / s) for a prior deviation s ≈ 1, which is 0.98 if 5 % have failed and 0.67
if 30 % have. Everywhere P(success) = Φ((t - μ) / √(σ² + σₙ²)).

A region that always fails is learned as a step, with little noise. Crashes at random are learned as noise, and
P(success) is flat: it does not change what is suggested.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from lazybo.checks import Array
from lazybo.search.acquisition import MIN_STD, Judge, Judged, probability_of_improvement
from lazybo.search.observations import Observations, State
from lazybo.search.surrogate import Surrogate


@dataclass(frozen=True)
class Outcomes:
    """The observations as labels: every evaluation that has ended has one."""

    observations: Observations

    def __len__(self) -> int:
        return len(self.observations)

    def rows(self, state: State) -> NDArray[np.intp]:
        """The rows in this state; a failure has a label, too, so none has failed."""
        if state is State.COMPLETE:
            return np.flatnonzero(~np.isnan(self.values))
        return self.observations.rows(state) if state is State.PENDING else np.zeros(0, dtype=np.intp)

    @property
    def values(self) -> Array:
        """The labels, NaN where there is none, (n,)."""
        labels = np.full(len(self), np.nan)
        labels[self.observations.rows(State.COMPLETE)] = 0.0
        labels[self.observations.rows(State.FAILED)] = 1.0
        return labels

    def variances(self, rows: slice | NDArray[np.intp] = slice(None)) -> Array:
        """The known variances of some rows: none is known."""
        return np.zeros(len(np.arange(len(self))[rows]))

    def points(self, rows: slice | NDArray[np.intp] = slice(None)) -> Array:
        """The points of some rows, (n, d)."""
        return self.observations.points(rows)

    @property
    def repeated(self) -> list[list[int]]:
        """None: repeats that succeed again are no proof that failures are no accidents."""
        return []


def threshold_of(surrogate: Surrogate) -> float:
    """t."""
    return float(surrogate.warping(np.array([0.5]))[0])


def chance_of_success(surrogate: Surrogate, points: Array) -> Array:
    """P(success) at some rows of the process, (m,)."""
    process = surrogate.sync()
    mean, variance = process.posterior(points)
    return np.asarray(ndtr((threshold_of(surrogate) - mean) / np.sqrt(variance + process.noise)))


def success(threshold: float, noise: float) -> Judge:
    """log P(success): t and σₙ² -> a judge of one output, the labels."""

    def judge(mean: Array, std: Array) -> Judged:
        spread = np.maximum(np.sqrt(std * std + noise), MIN_STD)
        value, by_mean, by_spread = probability_of_improvement(mean[0], spread[0], threshold)
        return Judged(value, by_mean[None], (by_spread * std[0] / spread[0])[None])

    return judge
