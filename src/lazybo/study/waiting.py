"""Waiting for trials that have just begun in another process and have not announced yet what they evaluate.

Suggestions are then made one after the other in the order of the trials' numbers, and each knows those before it.
"""

import time
from collections.abc import Callable, Iterable

from optuna.trial import FrozenTrial, TrialState

from lazybo.study.attributes import DRIVER_KEY, SUGGESTION_KEY

# Seconds to wait for the announcement of a trial, and of one that a driver of ours has begun: that driver is computing
# its proposal, and if it dies, the trial runs no more.
ANNOUNCE_TIMEOUT, DRIVER_TIMEOUT = 2.0, 30.0
# Seconds between syncs with the study while waiting, at first and at most.
FIRST_PAUSE, LAST_PAUSE = 0.0005, 0.02


class Unannounced:
    """Running trials without an announcement, and since when each is waited for.

    The time counts from when a trial was first seen here: clocks of other hosts may differ from ours. So a trial whose
    process died is waited for once.
    """

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def is_awaited(self, trial: FrozenTrial) -> bool:
        """Whether to wait for this trial."""
        if trial.state != TrialState.RUNNING or trial.params or f"{SUGGESTION_KEY}:0" in trial.system_attrs:
            self._since.pop(trial.number, None)
            return False
        now = time.monotonic()
        timeout = ANNOUNCE_TIMEOUT if trial.system_attrs.get(DRIVER_KEY) is None else DRIVER_TIMEOUT
        return now - self._since.setdefault(trial.number, now) < timeout

    def any_awaited(self, trials: Iterable[FrozenTrial]) -> bool:
        """Whether to wait for any of these. The time of all of them begins."""
        return sum(self.is_awaited(trial) for trial in trials) > 0


def wait_for_earlier(is_awaited: Callable[[], bool], sync: Callable[[], object]) -> None:
    """Sync with the study until no earlier trial is awaited any more, or the time is over."""
    deadline, pause = time.monotonic() + DRIVER_TIMEOUT, FIRST_PAUSE
    while time.monotonic() < deadline and is_awaited():
        time.sleep(pause)
        pause = min(2 * pause, LAST_PAUSE)
        sync()
