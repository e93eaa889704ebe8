"""How far the model of an objective can be trusted: its predictions of values that it has not seen, and its noise."""

from dataclasses import dataclass

import numpy as np

from lazybo.core.blas import one_thread
from lazybo.core.checks import Array
from lazybo.gp.process import leave_one_out
from lazybo.search.prediction import HALF_WIDTH, Predictor

# Values that are left out, one at a time: each takes a triangular solve.
MOST_LEFT_OUT = 1000


@dataclass(frozen=True)
class Quality:
    """What the model predicts of each value from all others, in the units of the objective.

    ``low`` and ``high`` are the 95 % interval of a measurement, with its noise. ``explained`` is the share of the
    variance of the warped values that these predictions explain: 1 is perfect, 0 is as good as their mean. ``covered``
    is the share of values within their intervals.
    """

    measured: list[float]
    expected: list[float]
    low: list[float]
    high: list[float]
    explained: float
    covered: float


@dataclass(frozen=True)
class Noise:
    """The noise of one measurement by the model: its share of the variance of the warped values, and its size.

    ``deviation`` is in the units of the objective, near the best values.
    """

    share: float
    deviation: float


@one_thread()
def quality_of(predictor: Predictor) -> Quality | None:
    """Leave-one-out predictions of the values that the model has learned from; None if there are fewer than three."""
    process, warping, sign = predictor.process, predictor.warping, predictor.sign
    found = leave_one_out(process, MOST_LEFT_OUT)
    targets = process.targets[found.rows]
    if len(targets) < 3 or not np.ptp(targets):
        return None
    reach = HALF_WIDTH * found.deviation

    def values(warped: Array) -> list[float]:
        return (sign * warping.inverse(warped) + 0.0).tolist()

    ends = values(found.mean - sign * reach), values(found.mean + sign * reach)
    return Quality(
        values(targets),
        values(found.mean),
        *ends,
        explained=float(1.0 - np.sum((targets - found.mean) ** 2) / np.sum((targets - targets.mean()) ** 2)),
        covered=float(np.mean(np.abs(targets - found.mean) <= reach)),
    )


@one_thread()
def noise_of(predictor: Predictor) -> Noise | None:
    """The noise of one measurement; None if all values are equal, or there is only one. Exact values have none."""
    process, warping = predictor.process, predictor.warping
    targets = process.targets[~np.isnan(process.targets)]
    if len(targets) < 2 or not np.ptp(targets):
        return None
    if predictor.exact:
        return Noise(0.0, 0.0)
    measured = np.delete(predictor.known_variances, predictor.forecasts)
    variance = process.noise + float(np.median(measured))
    center = np.quantile(targets, 0.1)
    low, high = warping.inverse(center + np.sqrt(variance) * np.array([-1.0, 1.0]))
    # Halves, since the difference of two doubles may overflow.
    return Noise(min(variance / float(targets.var()), 1.0), float(high / 2 - low / 2))
