"""The trials that run in this process's workers: their tasks, folds, deadlines and retries."""

import logging
import math
import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import FrozenTrial

from lazybo.run import plain
from lazybo.run.channel import Reporter
from lazybo.run.devices import Devices
from lazybo.run.engines import Engine, EngineBroken, WorkerDied
from lazybo.run.goals import ONE_OBJECTIVE, Goals
from lazybo.run.limits import Limits, RunFailed, how_to_resume, or_inf
from lazybo.run.objective import Call, mean_of, variance_of_mean
from lazybo.run.reports import OpenTrial, StudyReporter
from lazybo.run.worker import NO_STEPS, Outcome, Steps, Task, evaluate
from lazybo.study import Session

_logger = logging.getLogger("lazybo")
Callback = Callable[[Study, FrozenTrial], object]


@dataclass(frozen=True)
class RunOptions:
    """What a run evaluates, and how."""

    objective: Call | bytes
    folds: int | None
    n_trials: int | None
    limits: Limits
    synchronous: bool
    callbacks: Sequence[Callback]
    progress: bool
    reports: bool  # whether workers report to the driver from the start
    goals: Goals = ONE_OBJECTIVE
    steps: Steps = NO_STEPS
    values: Callable[[Mapping[str, Any]], dict[str, Any]] = dict  # what an objective gets for stored parameters
    devices: Devices | None = None
    claims: bool = False  # whether the objective claims its device itself
    defines: bool = False  # whether the objective names its parameters itself


@dataclass
class _Running:
    """A task that was submitted."""

    trial: OpenTrial
    fold: int | None
    deadline: float = math.inf  # set when a worker starts it


# A signal that the system gives to another thread is handled when this one runs again, after so many seconds at most.
LONGEST_WAIT = 1.0
# A task that ended, the trial and fold that a worker starts, or None: something else changed.
Event: TypeAlias = Future[Outcome] | tuple[int, int | None] | None
# A trial whose evaluation ended, and how.
Ended: TypeAlias = tuple[OpenTrial, Outcome]


class OpenTrials:
    """The trials that run here. An engine evaluates each as one task, or as one task for each fold.

    ``connect`` gives what workers report to.
    """

    def __init__(
        self,
        session: Session,
        engine: Engine,
        options: RunOptions,
        *,
        connect: Callable[[Reporter], Reporter],
    ) -> None:
        self.engine, self.options = engine, options
        self.trials: dict[int, OpenTrial] = {}  # by number
        self._session, self._limits = session, options.limits
        self._has_checkpoints = options.steps.checkpoints is not None
        self._folds: tuple[int | None, ...] = (None,) if options.folds is None else tuple(range(options.folds))
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._tasks: list[tuple[OpenTrial, int | None]] = []  # to submit before any other trial starts
        self._running: dict[Future[Outcome], _Running] = {}
        followers = [callback.report for callback in options.callbacks if hasattr(callback, "report")]
        self.reporter = StudyReporter(session.study, self._on_begin, followers, defines=options.defines)
        self._connect = partial(connect, self.reporter)
        self._worker_reporter = self._connect() if options.reports else None

    @property
    def has_tasks(self) -> bool:
        """Whether tasks wait to be submitted."""
        return bool(self._tasks)

    @property
    def are_running(self) -> bool:
        """Whether tasks were submitted that have not ended."""
        return bool(self._running)

    @property
    def free_workers(self) -> int:
        """How many more tasks the engine can run now."""
        return self.engine.workers - len(self._running)

    def reported(self) -> dict[int, dict[int, float]]:
        """What the trials that run here have reported so far, by number."""
        return {number: self.reporter.values_of(number) for number in list(self.trials)}  # workers report in threads

    def add(self, trial: OpenTrial) -> None:
        """Open a trial."""
        known = [fold for fold in self._folds if fold is not None and fold in trial.values]
        if len(known) == len(self._folds):
            known.pop()  # a kill before the end was recorded: the last fold again, for its metrics and its time
        trial.folds, trial.steps = {fold: trial.values[fold] for fold in known}, len(trial.values)
        trial.records_begin |= self._limits.retries == 0
        if not self._has_checkpoints:
            trial.values = {}  # it starts from its first step, and reports all values again
        if trial.entry.repeat_of is not None and self.options.steps.pausable:
            trial.judged_from = math.inf
        self.trials[trial.entry.number] = trial
        self.reporter.open(trial)
        self._tasks += [(trial, fold) for fold in self._folds if fold not in trial.folds]

    def stop(self, trial: OpenTrial) -> dict[int, float]:
        """Stop the other folds of a trial that ended. Returns its reported values."""
        self._tasks = [(other, fold) for other, fold in self._tasks if other is not trial]
        for future, running in list(self._running.items()):
            if running.trial is trial:
                self._stop_task(future)
        return self.reporter.close(trial.entry.number)

    def _stop_task(self, future: Future[Outcome]) -> None:
        del self._running[future]
        self.engine.stop(future)

    def submit(self) -> None:
        """Submit the next task."""
        trial, fold = self._tasks.pop(0)
        if trial.records_begin and self._worker_reporter is None:
            try:
                self._worker_reporter = self._connect()
            except OSError as error:
                _logger.warning(f"workers cannot report when an evaluation starts: {error}")
        entry, options = trial.entry, self.options
        earlier = self.reporter.values_of(entry.number) if self._has_checkpoints else None
        task = Task(
            entry.number,
            options.values(entry.params),
            fold,
            self._worker_reporter,
            timed=self._limits.trial_timeout is not None,
            noted=trial.records_begin,
            goals=options.goals,
            steps=options.steps,
            reported=max(earlier.items()) if earlier else None,
            devices=options.devices,
            claims=options.claims,
            defines=options.defines,
        )
        future = self.engine.submit(evaluate, options.objective, task)
        self._running[future] = _Running(trial, fold)
        future.add_done_callback(self._events.put)

    def _on_begin(self, number: int, fold: int | None) -> None:
        """A worker starts an evaluation, and waits until this returns. Called in any thread."""
        trial = self.trials.get(number)
        if trial is not None and trial.records_begin:
            self._session.note_start(trial.entry, trial.deaths)
        self._events.put((number, fold))

    def wake(self) -> None:
        """Let `wait` return."""
        self._events.put(None)

    def wait(self, until: float) -> Event:
        """The next event; None at the next deadline, or at ``until`` on the monotonic clock."""
        until = min([until, *(running.deadline for running in self._running.values())])
        while True:
            seconds = max(until - time.monotonic(), 0.0)
            try:
                return self._events.get(timeout=min(seconds, LONGEST_WAIT))
            except queue.Empty:
                if seconds <= LONGEST_WAIT:
                    return None

    def handle(self, event: Event) -> Iterator[Ended]:
        """The trials that end by this event, or because their time is over."""
        if isinstance(event, tuple):
            # The timeout counts from here: engines may queue tasks, and workers take time to start.
            for running in self._running.values():
                if (running.trial.entry.number, running.fold) == event:
                    running.deadline = time.monotonic() + or_inf(self._limits.trial_timeout)
        elif event is not None:
            ended = self._settle(event)
            if ended is not None:
                yield ended
        yield from self._overdue()

    def _settle(self, future: Future[Outcome]) -> Ended | None:
        """A task has ended; returns the trial if it ends too."""
        running = self._running.pop(future, None)
        if running is None:
            return None  # its trial has ended
        try:
            outcome = future.result()
        except (WorkerDied, CancelledError) as error:
            return self._worker_died(running, error)
        except EngineBroken as error:
            raise RunFailed(f"{error} {how_to_resume(self._session.study)}") from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # for example, a result that cannot be pickled
            outcome = Outcome("failed", reason=plain.reason(error))
        if running.fold is None or outcome.state != "complete":
            return running.trial, outcome
        return self._add_fold(running.trial, running.fold, outcome)

    def _add_fold(self, trial: OpenTrial, fold: int, outcome: Outcome) -> Ended | None:
        """Record a fold as an intermediate value, so that a resumed run need not repeat it."""
        assert outcome.value is not None, "a complete outcome has a value"
        trial.folds[fold] = outcome.value
        trial.fold_seconds.append(outcome.seconds)
        if self._session.report({trial.entry.id: {fold: outcome.value}}):
            return trial, outcome  # another process ended it, as the session will say
        if len(trial.folds) < len(self._folds):
            return None
        values = [trial.folds[fold] for fold in self._folds]
        metrics = {**outcome.metrics, "folds": values}
        seconds = len(values) * mean_of(trial.fold_seconds)  # an earlier run may have evaluated the others
        mean, variance = mean_of(values), variance_of_mean(values)
        return trial, replace(outcome, value=mean, variance=variance, metrics=metrics, seconds=seconds)

    def _worker_died(self, running: _Running, error: BaseException) -> Ended | None:
        """Submit the task again, or fail the trial if it used up its retries."""
        trial = running.trial
        if self._has_checkpoints:
            # A training that gets further each time is not at fault, however often its workers are killed.
            steps = len(self.reporter.values_of(trial.entry.number))
            trial.deaths, trial.steps = (trial.deaths, steps) if steps <= trial.steps else (0, steps)
        trial.deaths += getattr(error, "attempts", 1)
        trial.records_begin = True
        failed = Outcome("failed", reason=f"its worker died, {trial.deaths} times in all: {error}")
        if trial.deaths > self._limits.retries:
            return trial, failed
        try:
            self._session.note(trial.entry, attempts=trial.deaths)
        except UpdateFinishedTrialError:
            return trial, failed  # another process ended it, as the session will say
        _logger.warning(f"trial {trial.entry.number}: its worker died ({error}); it is run again")
        self._tasks.append((trial, running.fold))
        return None

    def _overdue(self) -> Iterator[Ended]:
        """Trials with a task that ran longer than allowed. Its worker is freed where the engine can do so."""
        now = time.monotonic()
        for future, running in list(self._running.items()):
            if running.deadline <= now and future in self._running:
                self._stop_task(future)
                seconds = or_inf(self._limits.trial_timeout)
                reason = f"it ran longer than trial_timeout={seconds:g} s"
                yield running.trial, Outcome("failed", reason=reason, seconds=seconds)
