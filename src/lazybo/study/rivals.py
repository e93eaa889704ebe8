"""What a training must beat if there are several objectives, of which it reports one.

======  =============================================================================================  ==========
symbol  meaning                                                                                        shape
======  =============================================================================================  ==========
n, q    completed and feasible trainings, the rivals; objectives                                       scalar
s       draws of the other objectives of a configuration, from the model                               scalar
u       the last reported values of the rivals                                                         (n,)
o       the other objectives of the rivals, warped                                                     (n, q - 1)
b       the best u of the rivals that are at least as good in all other objectives; ∞ without any      (m, s)
======  =============================================================================================  ==========

A training with the other objectives o' and the end u' is dominated by no rival exactly if u' < b(o'), apart from ties.
The other objectives are known when it has ended; before that the Gaussian processes of the study predict them. So what
a training must beat has a distribution, of which ``s`` values are drawn. In all of them small is good.
"""

import math
from collections.abc import Sequence

import numpy as np
from optuna.study import Study
from optuna.trial import FrozenTrial

from lazybo.core.checks import Array
from lazybo.search.curve_forecasts import Forecast
from lazybo.study.factory import model_of, reporting_of
from lazybo.study.feasible import feasible_trials

# s: the draws of the other objectives.
DRAWS = 32


class Rivals:
    """The rivals among some trials that have ended; raises a ValueError if none of them has completed."""

    def __init__(self, study: Study, ended: Sequence[FrozenTrial]) -> None:
        self.ended = len(ended)
        optimizer, reports = model_of(study, ended).optimizer, reporting_of(study)
        self.space = optimizer.space
        objectives = range(len(optimizer.directions))
        self._predictors = [optimizer.model.predictor(j) for j in objectives if j != reports]
        self._z = np.random.default_rng(0).standard_normal((DRAWS, len(self._predictors)))
        sign = -1.0 if optimizer.directions[reports] == "maximize" else 1.0
        rivals = [t for t in feasible_trials(ended) if t.last_step is not None]
        rivals = [t for t in rivals if math.isfinite(t.intermediate_values[t.last_step])]  # type: ignore[index]
        self.u = np.array([sign * t.intermediate_values[t.last_step] for t in rivals])  # type: ignore[index]
        others = [[t.values[j] for t in rivals] for j in objectives if j != reports]
        self._o = np.column_stack(
            [each.warping(each.sign * np.array(o)) for each, o in zip(self._predictors, others, strict=True)]
        )

    def needed(self, points: Array) -> Array:
        """b at some points, (m, d), for each draw of their other objectives, (m, s)."""
        posteriors = [each.process.posterior(self.space.as_rows(points)) for each in self._predictors]
        means = np.column_stack([each.mean for each in posteriors])[:, None]
        draws = means + np.sqrt(np.column_stack([each.variance for each in posteriors]))[:, None] * self._z
        as_good = (self._o <= draws[:, :, None]).all(axis=3)  # (m, s, n)
        b: Array = np.where(as_good, self.u, np.inf).min(axis=2, initial=np.inf)
        return b

    def chance(self, forecast: Forecast, needed: Array) -> float:
        """The probability that no rival dominates the end of a training, given its b, (s,)."""
        return float(np.mean([forecast.below(b) if math.isfinite(b) else 1.0 for b in needed]))

    def improvement(self, forecast: Forecast, needed: Array) -> float:
        """How much better than its b, (s,), a training is expected to end, in units of the warped values."""
        return float(np.mean([forecast.improvement(b) for b in self.bounded(needed)]))

    def bounded(self, needed: Array) -> Array:
        """b where it is finite, and else the worst u: an improvement on ∞ would be infinite."""
        return np.minimum(needed, self.u.max())
