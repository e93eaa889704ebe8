"""The chance that an evaluation succeeds, learned from those that failed.

======  ==================================================================  ======
symbol  meaning                                                             shape
======  ==================================================================  ======
y       labels: 1 for an evaluation that failed, 0 for one with a value     (n,)
μ, σ    posterior mean and standard deviation of the scaled labels          (m,)
t       the scaled ½                                                        scalar
c       the weight of log P(success) in the acquisition                     scalar
======  ==================================================================  ======

The labels are one more output with a process of its own, a regression: new labels are cheap rows, while a classifier
would factor K again for each of them. P(success) = Φ((t - μ) / σ) is the probability that less than half of the
evaluations at a point fail. The labels are scaled to mean 0 and variance 1, so far from all evaluations it follows from
the share of failures: about 0.98 if 5 % have failed, and 0.67 if 30 % have.

The labels have noise (`LABELS`). Without it, a region that always fails would be a step, which a smooth kernel follows
only with length scales near 0. With it the border is somewhat blurred, and crashes at random are noise: P(success) is
near 1 everywhere and does not change what is suggested.

Where the model of the objective is sure that all improvements are beyond the border, log EI elsewhere is so small that
no P(success) would keep the search from trying again and again. So c doubles with each failure, and three successes
undo that: in the long run at most about a quarter of the evaluations fail because of where they are.
"""

import numpy as np
from scipy.special import ndtr

from lazybo.core.checks import Array
from lazybo.gp.fit import Priors
from lazybo.search.acquisition import MIN_STD
from lazybo.search.surrogate import Surrogate

# The noise of the labels, in units of their variance: not small, and the length scales vary less than those of values.
LABELS = Priors(noise=0.2, noise_spread=0.5, length_scale_spread=0.5, noisy_odds=0.0)
# The factors of c after an evaluation, and its limit.
AFTER_FAILURE = 2.0
AFTER_SUCCESS = 2.0 ** (-1.0 / 3.0)
MOST_CAUTION = 64.0


def threshold_of(surrogate: Surrogate) -> float:
    """t."""
    return float(surrogate.warping(np.array([0.5]))[0])


def chance_of_success(surrogate: Surrogate, points: Array) -> Array:
    """P(success) at some points, (m,)."""
    mean, variance = surrogate.sync().posterior(points)
    return np.asarray(ndtr((threshold_of(surrogate) - mean) / np.maximum(np.sqrt(variance), MIN_STD)))


def caution(labels: Array) -> float:
    """c, after these labels, (n,); NaN where there is none yet."""
    weight = 1.0
    for failed in labels[~np.isnan(labels)]:
        weight = min(weight * AFTER_FAILURE, MOST_CAUTION) if failed else max(weight * AFTER_SUCCESS, 1.0)
    return weight
