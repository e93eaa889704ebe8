"""When a run ends, and the count that decides it."""

import math
from dataclasses import dataclass

from optuna.trial import TrialState


@dataclass(frozen=True)
class Limits:
    """When a run ends, and what it puts up with."""

    n_trials: float = math.inf
    timeout: float = math.inf
    target: float | None = None
    patience: float = math.inf
    max_failures: float = math.inf
    trial_timeout: float = math.inf
    retries: int = 2


class Tally:
    """What the trials of a study have shown, as far as a run's end depends on it."""

    def __init__(self, direction: str) -> None:
        self.failed = 0
        self.failed_in_a_row = 0
        self._sign = -1.0 if direction == "maximize" else 1.0
        self._best = math.inf  # small is good
        self._since_best = 0

    @property
    def best(self) -> float | None:
        """The best value so far."""
        return None if math.isinf(self._best) else self._sign * self._best

    def count(self, state: TrialState, value: float | None) -> None:
        """A trial has ended."""
        failed = state == TrialState.FAIL
        self.failed += failed
        self.failed_in_a_row = self.failed_in_a_row + 1 if failed else 0
        inside = math.inf if value is None or state != TrialState.COMPLETE else self._sign * value
        self._since_best = 0 if inside < self._best else self._since_best + 1
        self._best = min(self._best, inside)

    def reached(self, limits: Limits, seconds: float) -> str | None:
        """Which limit was reached, if any."""
        if limits.target is not None and self._best <= self._sign * limits.target:
            return "the target was reached"
        if seconds >= limits.timeout:
            return "the timeout was reached"
        if self._since_best >= limits.patience:
            return f"there was no better value in {self._since_best} trials"
        return None
