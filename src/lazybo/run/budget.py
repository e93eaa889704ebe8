"""How much of a run's budget is left, for the weight of the cost: by the trials that are left, and by the time.

======  ============================================================================
symbol  meaning
======  ============================================================================
N       the trials of the search: ``n_trials`` without the final check
k       the trials that have ended, run or are queued for others
T       ``timeout``
s, s'   what the trials of this run, and of earlier ones, took, divided by the workers
======  ============================================================================

The share is (N - k)/N or (T - s)/(T + s'), whichever is smaller. Both depend only on what the study has recorded, not
on a clock, so that a resumed run makes the same suggestions.
"""

import math
from collections.abc import Iterable

from optuna.trial import FrozenTrial

from lazybo.run.limits import Limits
from lazybo.study.costs import seconds_of
from lazybo.study.paused import is_paused


class Budget:
    """The time that the trials of a study took, and what is left of a run's limits."""

    def __init__(self, limits: Limits, workers: int) -> None:
        self._limits, self._workers = limits, max(workers, 1)
        self._earlier = self._now = 0.0

    def count_earlier(self, trials: Iterable[FrozenTrial]) -> None:
        """Count the trials of earlier runs, also those that are paused."""
        ended = (trial for trial in trials if trial.state.is_finished() or is_paused(trial))
        self._earlier = sum(seconds_of(trial) or 0.0 for trial in ended)

    def count(self, seconds: float) -> None:
        """Count a trial of this run that took so long."""
        self._now += seconds

    def left(self, trials_left: float) -> float | None:
        """The share that is left when so many trials are still to be started, those of the final check included.

        None if neither the trials nor the time are limited.
        """
        shares = []
        if math.isfinite(self._limits.n_trials):
            search = self._limits.n_trials - self._limits.confirm
            shares.append((trials_left - self._limits.confirm) / search)
        if math.isfinite(self._limits.timeout):
            timeout = self._limits.timeout
            shares.append((timeout - self._now / self._workers) / (timeout + self._earlier / self._workers))
        return min(max(min(shares), 0.0), 1.0) if shares else None
