"""When a run ends: its limits, the counts that are compared with them, and the reasons to stop."""

import math
from collections.abc import Sequence
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
    BUG = "objective_has_bug"


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
    StopReason.BUG: "the first evaluations failed with an error that looks like a bug in the objective",
}


def describe_stop(code: str) -> str:
    """The description of a stored `StopReason`. Earlier versions stored the description itself."""
    return DESCRIPTIONS[StopReason(code)] if code in [*StopReason] else str(code)


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
    """Counts over the trials of a study that the limits are compared with. Only feasible trials can be the best.

    With several objectives a trial is better if it changes the front.
    """

    def __init__(self, *directions: str) -> None:
        self.failed = 0
        self.succeeded = 0  # trials that have a value, or were pruned or paused
        self.failed_in_a_row = 0
        self.infeasible = 0
        self._signs = [-1.0 if each == "maximize" else 1.0 for each in directions]
        self._front: list[tuple[float, ...]] = []  # small is good
        self._since_best = 0

    @property
    def best(self) -> float | None:
        """The best value so far, if there is one objective."""
        return self._signs[0] * self._front[0][0] if self._front and len(self._signs) == 1 else None

    @property
    def front(self) -> int:
        """How many trials are on the front, if there are several objectives."""
        return len(self._front) if len(self._signs) > 1 else 0

    def count(
        self, state: TrialState, values: Sequence[float] | None, *, feasible: bool = True, repeat: bool = False
    ) -> None:
        """Add a trial that ended. A repeat is not a search: it neither reaches a target nor uses up patience."""
        failed = state == TrialState.FAIL
        self.failed += failed
        self.succeeded += not failed
        self.failed_in_a_row = self.failed_in_a_row + 1 if failed else 0
        complete = state == TrialState.COMPLETE and values is not None
        self.infeasible += complete and not feasible
        if repeat:
            return
        better = complete and feasible and self._add(values or ())
        self._since_best = 0 if better else self._since_best + 1

    def count_paused(self) -> None:
        """Add a trial that was paused: no failure, and no improvement once there is something to improve on."""
        self.succeeded += 1
        self._since_best += bool(self._front)

    def _add(self, values: Sequence[float]) -> bool:
        """Add a trial to the front, unless one there is at least as good in all objectives."""
        new = tuple(sign * value for sign, value in zip(self._signs, values, strict=True))
        if any(all(a <= b for a, b in zip(old, new, strict=True)) for old in self._front):
            return False
        self._front = [old for old in self._front if not all(a <= b for a, b in zip(new, old, strict=True))]
        self._front.append(new)
        return True

    def reached(self, limits: Limits, seconds: float) -> StopReason | None:
        """The limit that was reached, if any."""
        target = limits.target_value
        if target is not None and self._front and self._front[0][0] <= self._signs[0] * target:
            return StopReason.TARGET
        if seconds >= limits.timeout:
            return StopReason.TIMEOUT
        if self._since_best >= limits.patience:
            return StopReason.PATIENCE
        return None
