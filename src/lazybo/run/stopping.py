"""Whether a run starts more trials: its limits, errors, `study.stop()` and Ctrl-C."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial

from lazybo.run.evaluate import Outcome
from lazybo.run.failure import RunFailed, how_to_resume
from lazybo.run.ledger import Result
from lazybo.run.limits import ENDS_SEARCH, Limits, StopReason, Tally
from lazybo.study.attributes import REPEAT_KEY
from lazybo.study.feasible import measured_constraints, violates
from lazybo.study.paused import is_paused


class Stopping:
    """Why a run starts no more trials, and the error that it ends with; both None while it continues."""

    def __init__(self, study: Study, limits: Limits, *directions: str) -> None:
        self.reason: StopReason | None = None
        self.error: Exception | None = None
        self.search_ended: StopReason | None = None  # why the run goes on with its final check
        self.tally = Tally(*directions)
        self.started = time.monotonic()
        self._study, self._limits = study, limits

    @property
    def deadline(self) -> float:
        """When to check the timeout of the run, on the monotonic clock; infinite if the run is stopping anyway."""
        return self.started + self._limits.timeout if self.reason is None else math.inf

    def stop(self, reason: StopReason, error: Exception | None = None) -> None:
        """Start no more trials. The first reason and the first error are kept."""
        if self.reason is None:
            self.reason = reason
        if self.error is None:
            self.error = error

    def count_earlier(self, trials: Iterable[FrozenTrial]) -> None:
        """Count the trials of earlier runs for the target and the patience, but not their failures in a row."""
        for trial in trials:
            if trial.state.is_finished():
                feasible, repeat = not violates(measured_constraints(trial)), REPEAT_KEY in trial.system_attrs
                self.tally.count(trial.state, trial.values, feasible=feasible, repeat=repeat)
            elif is_paused(trial):
                self.tally.count_paused()
        self.tally.failed_in_a_row = 0

    def count(self, outcome: Outcome, result: Result, *, repeat: bool = False) -> None:
        """Count a trial that ended, and stop if it reached a limit."""
        self.tally.count(result.state, result.values, feasible=not violates(outcome.constraints), repeat=repeat)
        self.check()
        failures = self.tally.failed_in_a_row
        if failures >= self._limits.max_failures:
            text = f"{failures} evaluations in a row failed; the last one: {outcome.reason}"
            remedy = f"{how_to_resume(self._study)} Failed trials have tracebacks: trial.user_attrs['traceback']."
            self.stop(StopReason.FAILURES, RunFailed(f"{text}\n{remedy}"))

    def count_paused(self) -> None:
        """Count a trial that was paused, and stop if it reached a limit."""
        self.tally.count_paused()
        self.check()

    def check(self) -> None:
        """Stop if a limit was reached."""
        seconds = time.monotonic() - self.started
        reason = self.tally.reached(self._limits, seconds)
        if reason is not None:
            self.end_search(reason)
        if self.search_ended is not None and seconds >= self._limits.timeout:
            self.stop(StopReason.TIMEOUT)

    def end_search(self, reason: StopReason) -> None:
        """A limit was reached: stop, or go on with the final check if the limit is one of the search only."""
        if not (self._limits.confirm and reason in ENDS_SEARCH):
            self.stop(reason)
        elif self.search_ended is None:
            self.search_ended = reason

    @contextmanager
    def interruptible(self, on_interrupt: Callable[[], object]) -> Iterator[None]:
        """The first Ctrl-C stops the run and calls ``on_interrupt``; the second raises. Only in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        interrupted = False

        def handle(*_: Any) -> None:
            nonlocal interrupted
            if interrupted:
                raise KeyboardInterrupt
            interrupted = True
            self.stop(StopReason.INTERRUPTED)
            on_interrupt()

        before = signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
