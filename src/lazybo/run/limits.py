"""When a run ends: its limits, the counts that are compared with them, and the reasons to stop."""

import math
from dataclasses import dataclass
from enum import StrEnum

from optuna.trial import TrialState


class StopReason(StrEnum):
    """Why a run starts no more trials. Studies keep these codes: change none of them."""

    TARGET = "target_reached"
    TIMEOUT = "timeout_reached"
    PATIENCE = "no_improvement"
    FAILURES = "too_many_failures"
    INVALID_VALUE = "invalid_value"
    NO_FIRST_VALUE = "no_first_value"
    CALLBACK_FAILED = "callback_failed"
    STOP_CALLED = "stop_called"
    INTERRUPTED = "interrupted"
    GAIN = "small_gain"
    CONFIRMED = "confirmed"


# These end the search. The final check follows, if there is one.
ENDS_SEARCH = frozenset({StopReason.TARGET, StopReason.PATIENCE, StopReason.GAIN})

DESCRIPTIONS = {
    StopReason.TARGET: "the target was reached",
    StopReason.TIMEOUT: "the timeout was reached",
    StopReason.PATIENCE: "no better value in as many trials as patience allows",
    StopReason.FAILURES: "too many evaluations in a row failed",
    StopReason.INVALID_VALUE: "the objective returned something that is not a number",
    StopReason.NO_FIRST_VALUE: "the first trial gave no value",
    StopReason.CALLBACK_FAILED: "a callback failed",
    StopReason.STOP_CALLED: "study.stop() was called",
    StopReason.INTERRUPTED: "it was interrupted",
    StopReason.GAIN: "the model expects less than min_gain of the next evaluations",
    StopReason.CONFIRMED: "one configuration leads, so the final check needs no more repeats",
}


def describe_stop(code: str) -> str:
    """The description of a stored `StopReason`. Earlier versions stored the description itself."""
    return DESCRIPTIONS[StopReason(code)] if code in set(StopReason) else code


@dataclass(frozen=True)
class Limits:
    """When a run ends, and how many failures and deaths it tolerates."""

    n_trials: float = math.inf
    timeout: float = math.inf
    target_value: float | None = None
    patience: float = math.inf
    max_failures: float = math.inf
    trial_timeout: float = math.inf
    retries: int = 2
    min_gain: float | None = None
    confirm: int = 0  # of n_trials, so many may repeat the contenders


class Tally:
    """Counts over the trials of a study that the limits are compared with."""

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

    def count(self, state: TrialState, value: float | None, *, repeat: bool = False) -> None:
        """Add a trial that ended. A repeat is not a search: it neither reaches a target nor uses up patience."""
        failed = state == TrialState.FAIL
        self.failed += failed
        self.failed_in_a_row = self.failed_in_a_row + 1 if failed else 0
        if repeat:
            return
        minimized = math.inf if value is None or state != TrialState.COMPLETE else self._sign * value
        self._since_best = 0 if minimized < self._best else self._since_best + 1
        self._best = min(self._best, minimized)

    def reached(self, limits: Limits, seconds: float) -> StopReason | None:
        """The limit that was reached, if any."""
        if limits.target_value is not None and self._best <= self._sign * limits.target_value:
            return StopReason.TARGET
        if seconds >= limits.timeout:
            return StopReason.TIMEOUT
        if self._since_best >= limits.patience:
            return StopReason.PATIENCE
        return None
