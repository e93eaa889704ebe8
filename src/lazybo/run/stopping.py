"""Whether a run starts more trials: its limits, errors, `study.stop()` and Ctrl-C."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.run.evaluate import Outcome
from lazybo.run.failure import NothingCompleted, RunFailed, how_to_resume, raised_elsewhere
from lazybo.run.limits import ENDS_SEARCH, Limits, StopReason, Tally
from lazybo.study import ledger
from lazybo.study.attributes import REPEAT_KEY
from lazybo.study.feasible import measured_constraints, violates
from lazybo.study.ledger import Result
from lazybo.study.paused import is_paused


class Stopping:
    """Why a run starts no more trials, and the error that it ends with; both None while it continues."""

    def __init__(self, study: Study, limits: Limits, *directions: str) -> None:
        self.search_ended: StopReason | None = None  # why the run goes on with its final check
        self.tally = Tally(*directions)
        self.started = time.monotonic()
        self._study, self._limits = study, limits
        self._reason: StopReason | None = None
        self._error: Exception | None = None
        self._bug: RunFailed | None = None  # the first evaluations have failed; withdrawn if another one works
        self._cause: BaseException | None = None  # what the first of the failures in a row has raised
        self._last_failure = ""

    @property
    def reason(self) -> StopReason | None:
        """Why no more trials are started."""
        return self._reason or (StopReason.BUG if self._bug is not None else None)

    @property
    def error(self) -> Exception | None:
        """What the run ends with."""
        return self._error or self._bug

    @property
    def deadline(self) -> float:
        """When to check the timeout of the run, on the monotonic clock; infinite if the run is stopping anyway."""
        return self.started + self._limits.timeout if self.reason is None else math.inf

    def stop(self, reason: StopReason, error: Exception | None = None) -> None:
        """Start no more trials. The first reason and the first error are kept."""
        if self._reason is None:
            self._reason = reason
        if self._error is None:
            self._error = error

    def count_earlier(self, trials: Iterable[FrozenTrial]) -> None:
        """Count the trials of earlier runs for the target and the patience, but not their failures in a row."""
        for trial in trials:
            if trial.state.is_finished():
                feasible, repeat = not violates(measured_constraints(trial)), REPEAT_KEY in trial.system_attrs
                self.tally.count(trial.state, trial.values, feasible=feasible, repeat=repeat)
                self._last_failure = trial.system_attrs.get("fail_reason", "")
            elif is_paused(trial):
                self.tally.count_paused()
        self.tally.failed_in_a_row = 0

    def count(self, outcome: Outcome, result: Result, *, repeat: bool = False) -> None:
        """Count a trial that ended, and stop if it reached a limit."""
        self.tally.count(result.state, result.values, feasible=not violates(outcome.constraints), repeat=repeat)
        if result.state == TrialState.FAIL:
            self._count_failure(outcome)
        else:
            self._withdraw_bug()
        self.check()

    def count_paused(self) -> None:
        """Count a trial that was paused, and stop if it reached a limit."""
        self.tally.count_paused()
        self._withdraw_bug()
        self.check()

    def _count_failure(self, outcome: Outcome) -> None:
        """Stop after too many failures in a row, and at once if nothing has worked yet and the objective has a bug."""
        failures, self._last_failure = self.tally.failed_in_a_row, outcome.reason
        if failures == 1 or self._cause is None:
            self._cause = _cause(outcome)
        keeps = f"{how_to_resume(self._study)} Failed trials have tracebacks: trial.user_attrs['traceback']."
        if failures >= self._limits.max_failures:
            text = f"{failures} evaluations in a row failed; the last one: {outcome.reason}"
            self.stop(StopReason.FAILURES, self._caused(RunFailed(f"{text}\n{keeps}")))
        elif self._fails_for_good and outcome.raised is not None and outcome.raised.bug and not self.tally.succeeded:
            text = f"the objective failed before any evaluation completed, which looks like a bug: {outcome.reason}"
            remedy = (
                "If only some configurations fail like this, return float('nan') for them, or give max_failures=None."
            )
            self._bug = self._bug or self._caused(RunFailed(f"{text}\n{remedy} {keeps}"))

    @property
    def _fails_for_good(self) -> bool:
        """Whether failures may end the run."""
        return math.isfinite(self._limits.max_failures)

    def _withdraw_bug(self) -> None:
        """An evaluation that ran at the same time as the first failure has worked, so the run goes on."""
        self._cause = self._bug = None

    def _caused(self, error: RunFailed) -> RunFailed:
        error.__cause__ = self._cause
        return error

    def end(self) -> None:
        """The run is over: it has failed if nothing in the study has worked, unless somebody has stopped it."""
        stopped = self.reason in (StopReason.INTERRUPTED, StopReason.STOP_CALLED)
        if stopped or self.error is not None or self.tally.succeeded or not self._fails_for_good:
            return
        states = [trial.state for trial in ledger.read(self._study)]
        failed = states.count(TrialState.FAIL)
        if failed and failed + states.count(TrialState.WAITING) == len(states):
            text = f"no trial completed, {failed} failed; the last one: {self._last_failure}"
            remedy = f"{how_to_resume(self._study)} Failed trials count for n_trials: give more, or another study_name."
            self._error = self._caused(NothingCompleted(f"{text}\n{remedy}"))

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


def _cause(outcome: Outcome) -> BaseException | None:
    """What an objective has raised; made again if that was in another process."""
    raised = outcome.raised
    if raised is None or raised.error is not None:
        return None if raised is None else raised.error
    return raised_elsewhere(raised.kind, raised.arguments, outcome.reason, raised.trace)
