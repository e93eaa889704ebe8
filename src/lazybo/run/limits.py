"""When a run ends: its limits, the counts they are compared with, why it starts no more trials, and its errors."""

import builtins
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from optuna.study import Study
from optuna.trial import TrialState

from lazybo.core import checks, codec
from lazybo.run.goals import Goals
from lazybo.study import Result, Store, StudyView, TrialView

if TYPE_CHECKING:
    from lazybo.run.worker import Outcome
    from lazybo.search import Optimizer

# Why the last run started no more trials, a `StopReason`; None if it had all of them.
STOPPED_KEY = "lazybo:stopped"
# The expected gain that ended the search of a run (``gain``), and the number of trials without repeats (``trials``).
GAIN_KEY = "lazybo:gain"

# ------------------------------------------------------------------------ limits


def check_count(name: str, value: object) -> int | None:
    """``value`` as a positive whole number; None stays None."""
    # No count is larger than sys.maxsize, which a double can hold.
    return None if value is None else min(checks.whole(name, value, 1), sys.maxsize)


def _seconds(name: str, value: object) -> float | None:
    limit = checks.seconds(name, value)
    return limit if math.isfinite(limit) else None


def _optional(check: Callable[[str, Any], float]) -> Callable[[str, object], float | None]:
    return lambda name, value: None if value is None else check(name, value)


_from_zero = partial(checks.whole, least=0)


def _limit(name: str, default: Any, check: Callable[..., Any], text: str, metavar: str) -> Any:
    """A limit with its default, its check, and its help and placeholder for the command."""
    return field(default=default, metadata={"check": partial(check, name), "help": text, "metavar": metavar})


@checks.hinting_class({})
@dataclass(frozen=True, kw_only=True)
class Limits:
    """When a run of `lazybo.optimize` ends, and what it tolerates. None sets no limit.

    - ``timeout``: start no more trials after this many seconds.
    - ``target_value``, ``patience``: stop at this value or a better one; after this many trials without a better value.
    - ``min_gain``: stop when the model expects the next 10 evaluations to improve the best value by less than this.
    - ``max_failures``: stop after this many failures in a row.
    - ``trial_timeout``, ``retries``: an evaluation that takes longer fails; how often a trial is run again after its
      worker or its whole process died.
    - ``confirm``: up to this many of the trials, the last ones, repeat the configurations that may be the best, until
      one of them leads with a probability of 95 %. If the search ends early, the repeats follow then.

    Only feasible trials count for ``target_value`` and ``patience``.
    """

    timeout: float | None = _limit("timeout", None, _seconds, "Start no more trials after this time.", "SECONDS")
    target_value: float | None = _limit(
        "target_value", None, _optional(checks.finite_number), "Stop at this value or a better one.", "NUMBER"
    )
    patience: int | None = _limit(
        "patience", None, check_count, "Stop after this many trials in a row without a better value.", "N"
    )
    min_gain: float | None = _limit(
        "min_gain",
        None,
        _optional(checks.positive),
        "Stop when the next 10 trials should gain less.",
        "NUMBER",
    )
    max_failures: int | None = _limit("max_failures", 10, check_count, "Stop after this many failures in a row.", "N")
    trial_timeout: float | None = _limit(
        "trial_timeout", None, _seconds, "Fail a trial that takes longer than this.", "SECONDS"
    )
    retries: int = _limit("retries", 2, _from_zero, "How often to rerun a trial whose worker died.", "N")
    confirm: int = _limit(
        "confirm", 0, _from_zero, "How many of the last trials may repeat the best configurations.", "N"
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, each.metadata["check"](getattr(self, each.name)))

    @staticmethod
    def reason_of(study: Study) -> Any:
        """The code of why the last run of a study started no more trials; None if it had all of them."""
        return Store(study).attributes().get(STOPPED_KEY)

    @staticmethod
    def keep_reason(study: Study, code: str | None) -> None:
        """Keep the code of why a run starts no more trials with its study."""
        Store(study).set_attributes({STOPPED_KEY: None if code is None else str(code)})

    @staticmethod
    def described(code: str) -> str:
        """The code of a reason in words. Earlier versions stored the words themselves."""
        return next((reason.description for reason in StopReason if reason == code), str(code))

    def check_ends(self, n_trials: int | None) -> None:
        """Raise a ValueError unless a limit can end the run, and its search before the final check."""
        ends_search = not (n_trials is self.patience is self.target_value is self.min_gain is None)
        if not ends_search and self.timeout is None:
            raise ValueError(
                "nothing would end this run: give n_trials, or limits=lazybo.Limits(...) with timeout, target_value, "
                "patience or min_gain"
            )
        if self.confirm and not ends_search:
            raise ValueError(
                "confirm needs to know when the search ends: give n_trials, target_value, patience or min_gain"
            )
        if self.confirm >= or_inf(n_trials):
            raise ValueError(f"confirm is a part of n_trials={n_trials}: it must be less, not {self.confirm}")


def or_inf(limit: float | None) -> float:
    """A limit as a number; infinite if there is none."""
    return math.inf if limit is None else limit


# ----------------------------------------------------------------------- reasons


class StopReason(StrEnum):
    """Why a run starts no more trials, with a description. Studies keep the codes: change none of them."""

    description: str

    def __new__(cls, code: str, description: str) -> "StopReason":
        """A reason with its code and its description."""
        reason = str.__new__(cls, code)
        reason._value_, reason.description = code, description
        return reason

    TARGET = "target_reached", "the target was reached"
    TIMEOUT = "timeout_reached", "the timeout was reached"
    PATIENCE = "no_improvement", "no better value in as many trials as patience allows"
    FAILURES = "too_many_failures", "too many evaluations in a row failed"
    INVALID_VALUE = "invalid_value", "the objective returned something that is not a number"
    NO_FIRST_VALUE = "no_first_value", "the first trial gave no value"
    CALLBACK_FAILED = "callback_failed", "a callback failed"
    STOP_CALLED = "stop_called", "study.stop() was called"
    INTERRUPTED = "interrupted", "it was interrupted"
    GAIN = "small_gain", "the model expects less than min_gain from the next evaluations"
    CONFIRMED = "confirmed", "one configuration leads, so the final check needs no more repeats"
    BUG = "objective_has_bug", "the first evaluations failed with an error that looks like a bug in the objective"


# These end the search. The final check follows, if there is one.
ENDS_SEARCH = frozenset({StopReason.TARGET, StopReason.PATIENCE, StopReason.GAIN})


# ------------------------------------------------------------------------ errors


class RunFailed(RuntimeError):
    """A run ended early: too many evaluations failed, or there is nothing left to run them on.

    ``study`` holds every trial that was recorded.
    """

    study: Study
    nothing_completed = False  # whether the run is over, and all trials of the study have failed


class InvalidValue(RunFailed, TypeError):
    """The result of an evaluation is not a number; retrying cannot help."""


class NothingCompleted(RunFailed):
    """The run is over, and all trials of the study have failed."""

    nothing_completed = True


class RemoteTraceback(Exception):
    """The traceback of an exception in another process, as text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}\n"""'


def raised_elsewhere(kind: str, arguments: tuple[Any, ...], reason: str, traceback: str) -> BaseException:
    """An exception of another process: of its own class if that is built in, or else a RuntimeError."""
    found = getattr(builtins, kind, None)
    error: BaseException = RuntimeError(reason)
    if isinstance(found, type) and issubclass(found, BaseException):
        with suppress(Exception):  # some classes need arguments that are not plain data
            error = found(*arguments)
    error.__cause__ = RemoteTraceback(traceback)
    return error


def attach_study(error: BaseException, study: Study) -> None:
    """Attach the study to an exception that leaves `optimize()`, and mention it in the notes of the exception."""
    with suppress(Exception):  # a class with slots may have room for neither
        error.study = study  # type: ignore[attr-defined]
        if not isinstance(error, RunFailed):
            error.add_note(f"lazybo: {how_to_resume(study)}")


def how_to_resume(study: Study) -> str:
    """A sentence that says where the finished trials are and how to resume, without passwords."""
    store = Store(study)
    if store.in_memory:
        return "The finished trials are in error.study."
    where = f"The study {study.study_name!r} in {store.name}"
    return f"{where} keeps the finished trials; make the same call again to resume."


# ------------------------------------------------------------------------ counts


class Budget:
    """How much of a run is left, for the weight of the cost.

    ======  ============================================================================
    symbol  meaning
    ======  ============================================================================
    N       the trials of the search: ``n_trials`` without the final check
    k       the trials that have ended, run or are queued for others
    T       ``timeout``
    s, s'   what the trials of this run, and of earlier ones, took, divided by the workers
    ======  ============================================================================

    The share is (N - k)/N or (T - s)/(T + s'), whichever is smaller. Both depend only on what the study has recorded,
    not on a clock, so a resumed run makes the same suggestions.
    """

    def __init__(self, limits: Limits, n_trials: int | None, workers: int) -> None:
        self._limits, self._n_trials, self._workers = limits, n_trials, max(workers, 1)
        self._earlier = self._now = 0.0

    def count_earlier(self, trials: Iterable[TrialView]) -> None:
        """Count the trials of earlier runs, including paused ones."""
        ended = (trial for trial in trials if trial.has_ended or trial.is_paused)
        self._earlier = sum(trial.seconds or 0.0 for trial in ended)

    def count(self, elapsed: float) -> None:
        """Count the seconds of a trial of this run."""
        self._now += elapsed

    def left(self, trials_left: float) -> float | None:
        """The share that is left when ``trials_left`` are still to be started, including those of the final check.

        None if neither the trials nor the time are limited.
        """
        shares = []
        if self._n_trials is not None:
            search = self._n_trials - self._limits.confirm
            shares.append((trials_left - self._limits.confirm) / search)
        if self._limits.timeout is not None:
            timeout = self._limits.timeout
            shares.append((timeout - self._now / self._workers) / (timeout + self._earlier / self._workers))
        return min(max(min(shares), 0.0), 1.0) if shares else None


class GainLimit:
    """The limit ``min_gain``: whether the model expects enough from the search to continue.

    The gain of the next HORIZON evaluations is computed after FIRST values, then each time the number of values passes
    a multiple of EVERY. The gain that ended the search is kept with the study.
    """

    HORIZON, FIRST, EVERY = 10, 20, 5

    def __init__(self, study: Study, optimizer: "Optimizer", min_gain: float | None) -> None:
        self._study, self._optimizer, self._min_gain = study, optimizer, min_gain
        self._checked: int | None = None  # the number of values at the last check

    def is_reached(self, searched: int) -> bool:
        """Whether the expected gain is below the limit. ``searched`` trials have ended, not counting repeats.

        A search that has ended is not continued by a later run with the same limit.
        """
        if self._min_gain is None:
            return False
        if self._checked is None and self._earlier(searched) < self._min_gain:
            return True
        if not self._is_due() or not self._optimizer.planner.n_feasible:
            return False
        gain = self._optimizer.model.expected_gain(self.HORIZON)
        if gain >= self._min_gain:
            return False
        Store(self._study).set_attributes({GAIN_KEY: {"trials": searched, "gain": gain}})
        return True

    def _is_due(self) -> bool:
        n = self._optimizer.planner.records.n_complete
        # A run that resumes at a multiple repeats that check, since nobody knows whether it was made before.
        before = (n - 1 if n % self.EVERY == 0 else n) if self._checked is None else self._checked
        self._checked = n
        return n >= self.FIRST and n // self.EVERY > before // self.EVERY

    def _earlier(self, searched: int) -> float:
        """The expected gain that ended the search of an earlier run after as many trials; infinite if there is none."""
        with Store(self._study).reading(GAIN_KEY, "search without min_gain") as stored:
            kept = codec.as_object({} if stored is None else stored)
            return checks.finite_number("gain", kept["gain"]) if kept.get("trials") == searched else math.inf


# ---------------------------------------------------------------------- stopping


class Stopping:
    """Why a run starts no more trials, and the error that it ends with; both None while it continues."""

    def __init__(self, study: Study, limits: Limits, goals: Goals) -> None:
        self.search_ended: StopReason | None = None  # why the run is in its final check
        self.tally = goals.tally()
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
        return self.started + or_inf(self._limits.timeout) if self.reason is None else math.inf

    def stop(self, reason: StopReason, error: Exception | None = None) -> None:
        """Start no more trials. The first reason and the first error are kept."""
        if self._reason is None:
            self._reason = reason
        if self._error is None:
            self._error = error

    def count_earlier(self, trials: Iterable[TrialView]) -> None:
        """Count the trials of earlier runs for the target and the patience, but not their failures in a row."""
        for trial in trials:
            if trial.has_ended:
                feasible, repeat = not trial.is_infeasible, trial.repeat_of is not None
                self.tally.count(trial.frozen.state, trial.frozen.values, feasible=feasible, repeat=repeat)
                self._last_failure = trial.fail_reason or ""
            elif trial.is_paused:
                self.tally.count_paused()
        self.tally.failed_in_a_row = 0

    def count(self, outcome: "Outcome", result: Result, *, repeat: bool = False) -> None:
        """Count a trial that ended, and stop if it reached a limit."""
        feasible = not any(value > 0.0 for value in result.constraints.values())
        self.tally.count(result.state, result.values or None, feasible=feasible, repeat=repeat)
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

    def _count_failure(self, outcome: "Outcome") -> None:
        """Stop after too many failures in a row, and at once if nothing has worked yet and the objective has a bug."""
        failures, self._last_failure = self.tally.failed_in_a_row, outcome.reason
        if failures == 1 or self._cause is None:
            self._cause = _cause(outcome)
        keeps = f"{how_to_resume(self._study)} Failed trials have tracebacks: trial.user_attrs['traceback']."
        if failures >= or_inf(self._limits.max_failures):
            text = f"{failures} evaluations in a row failed; the last one: {outcome.reason}"
            self.stop(StopReason.FAILURES, self._caused(RunFailed(f"{text}\n{keeps}")))
        elif (
            self._limits.max_failures is not None
            and outcome.raised is not None
            and outcome.raised.bug
            and not self.tally.succeeded
        ):
            text = f"the objective failed before any evaluation completed, which looks like a bug: {outcome.reason}"
            remedy = (
                "If only some configurations fail like this, return float('nan') for them, or give "
                "limits=lazybo.Limits(max_failures=None)."
            )
            self._bug = self._bug or self._caused(RunFailed(f"{text}\n{remedy} {keeps}"))

    def _withdraw_bug(self) -> None:
        """An evaluation that ran at the same time as the first failure has worked, so the run continues."""
        self._cause = self._bug = None

    def _caused(self, error: RunFailed) -> RunFailed:
        error.__cause__ = self._cause
        return error

    def end(self) -> None:
        """The run is over. It has failed if nothing in the study has worked, unless somebody has stopped it."""
        stopped = self.reason in (StopReason.INTERRUPTED, StopReason.STOP_CALLED)
        if stopped or self.error is not None or self.tally.succeeded or self._limits.max_failures is None:
            return
        trials = StudyView.of(self._study).trials
        failed = sum(trial.has_failed for trial in trials)
        if failed and all(trial.has_failed or trial.state in ("waiting", "paused") for trial in trials):
            text = f"no trial completed, {failed} failed; the last one: {self._last_failure}"
            remedy = f"{how_to_resume(self._study)} Failed trials count for n_trials: give more, or another study_name."
            self._error = self._caused(NothingCompleted(f"{text}\n{remedy}"))

    def check(self) -> None:
        """Stop if a limit was reached."""
        elapsed = time.monotonic() - self.started
        if self.tally.reaches(self._limits.target_value):
            self.end_search(StopReason.TARGET)
        elif elapsed >= or_inf(self._limits.timeout):
            self.end_search(StopReason.TIMEOUT)
        elif self.tally.since_best >= or_inf(self._limits.patience):
            self.end_search(StopReason.PATIENCE)
        if self.search_ended is not None and elapsed >= or_inf(self._limits.timeout):
            self.stop(StopReason.TIMEOUT)

    def end_search(self, reason: StopReason) -> None:
        """A limit was reached: stop, or start the final check if only the search has this limit."""
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


def _cause(outcome: "Outcome") -> BaseException | None:
    """What an objective has raised; rebuilt if that was in another process."""
    raised = outcome.raised
    if raised is None or raised.error is not None:
        return None if raised is None else raised.error
    return raised_elsewhere(raised.kind, raised.arguments, outcome.reason, raised.trace)
