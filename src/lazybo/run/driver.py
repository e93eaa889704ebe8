"""The loop of `optimize()`: propose -> record -> submit -> record -> tell, on any engine.

A trial is proposed for the number it will get, written to the study, and submitted as one task, or as one for each
fold. When a task ends, the study learns of it first, then the callbacks, then the optimiser, which proposes the next.
With many workers the next trial was proposed while evaluations ran: a worker waits for the disk at most, not for the
optimiser. Ends are handled one by one in their order, which is all that a run with several workers depends on beside
its seed.
"""

import logging
import math
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.run import ledger, plain
from lazybo.run.call import Call
from lazybo.run.channel import StudyReporter
from lazybo.run.evaluate import Outcome, Reporter, Task, evaluate
from lazybo.run.executors import Engine, EngineBroken, WorkerDied
from lazybo.run.failure import InvalidValue, RunFailed, whereabouts
from lazybo.run.kfold import mean_of, variance_of_mean
from lazybo.run.ledger import ATTEMPTS_KEY, DRIVER_KEY, Entry, Ledger, Params, Result
from lazybo.run.limits import Limits, Tally
from lazybo.run.orphans import Orphans
from lazybo.run.progress import Progress
from lazybo.study.attributes import VARIANCE_KEY
from lazybo.study.model import StudyModel, announced_params
from lazybo.study.retry import patiently
from lazybo.study.waiting import Unannounced, wait_for_earlier

_logger = logging.getLogger("lazybo")
Callback = Callable[[Study, FrozenTrial], object]

# From this many workers on the next trial is proposed before a worker is free for it. It does not know the value that
# then comes in, as if there were one worker more: too dear for a few workers, and a few wait little.
MANY_WORKERS = 8
# Seconds between looks at the study while only other processes have evaluations to wait for.
LOOK = 1.0
# So many metrics are named that were dropped; a loop over names must not fill the log.
MANY_DROPPED = 50


@dataclass
class _Open:
    """A trial that runs here."""

    entry: Entry
    died: int  # how often a worker or driver died while it ran
    noted: bool  # whether it is recorded that a worker has it
    folds: dict[int | None, float] = field(default_factory=dict)  # what is known of it so far


@dataclass
class _Running:
    """A task that was submitted."""

    trial: _Open
    fold: int | None
    deadline: float = math.inf  # known once it has reached its worker


@dataclass(frozen=True)
class _Begun:
    """The news that an evaluation has reached its worker."""

    number: int
    fold: int | None


class Driver:
    """One run of one process on a study."""

    def __init__(
        self,
        study: Study,
        model: StudyModel,
        engine: Engine,
        objective: Call | bytes,
        *,
        folds: int | None,
        limits: Limits,
        synchronous: bool,
        callbacks: Sequence[Callback],
        name: str,
        progress: bool,
    ) -> None:
        self.study, self.model, self.engine, self.limits = study, model, engine, limits
        self.stopped: str | None = None  # why no more trials are begun
        self.error: Exception | None = None  # raised when all that runs has ended
        self._objective = objective
        self._folds: tuple[int | None, ...] = (None,) if folds is None else tuple(range(folds))
        self._synchronous = synchronous
        self._callbacks = callbacks
        self.reporter = StudyReporter(study, self._hear)
        self.worker_reporter: Reporter | None = None  # how workers reach it, if they shall
        self.reach: Callable[[], Reporter] = lambda: self.reporter  # opens a way for them
        self._name, self._wants_progress = name, progress
        self._ledger: Ledger = ledger.open_ledger(study, model.structure.distributions, name)
        self._orphans = Orphans(study, self._ledger, name, limits.retries)

        self._news: queue.SimpleQueue[Future[Outcome] | _Begun | None] = queue.SimpleQueue()
        self._running: dict[Future[Outcome], _Running] = {}
        self._open: dict[int, _Open] = {}
        self._tasks: list[tuple[_Open, int | None]] = []  # folds to submit before anything else
        self._waiting: list[FrozenTrial] = []  # trials to be run before new ones are proposed
        self._ahead: list[Params] = []  # proposed, for the numbers from _next on
        self._next = 0  # the number of the next trial
        self._others: set[int] = set()  # trials that run in other processes
        self._unannounced = Unannounced()
        self._undecided = False  # whether one of them has just begun and not said yet what it evaluates
        self._finished = 0
        self._tally = Tally(model.optimizer.direction)
        self._started = time.monotonic()
        self._busy = 0.0  # seconds that this loop worked, not waited
        self._interrupted = False
        self._told: set[str] = set()  # metrics that were said to be dropped

    # ------------------------------------------------------------------- loop

    def run(self) -> None:
        """Go on until the study has its trials, or there is another reason to stop; then wait for what runs."""
        self._count_past()
        self._look()
        self._check_limits()
        total = None if math.isinf(self.limits.n_trials) else int(self.limits.n_trials)
        with Progress(self._wants_progress, total, self._finished) as progress, self._interruptible(progress):
            try:
                while self._step():
                    self._show(progress)
            except BaseException:
                self._give_back()
                raise
        if self.error is not None:
            raise self.error

    def _step(self) -> bool:
        """Submit what can be, wait for one end, and deal with it; False when the run is over."""
        with self._working():
            self._fill()
        if not self._running:
            return self._wait_for_others()
        self._propose_ahead()
        news = self._wait()
        with self._working():
            if isinstance(news, _Begun):
                self._start_clock(news)
            elif news is not None:
                self._settle(news)
            self._end_overdue()
            self._check_limits()
        return True

    def _fill(self) -> None:
        """Give every free worker something to do."""
        if self._synchronous and self._running:
            return
        while len(self._running) < self.engine.workers:
            if not self._tasks and not self._begin_trial():
                return
            self._submit(*self._tasks.pop(0))

    def _wait(self) -> Future[Outcome] | _Begun | None:
        """The next task that ended or began, or None when it is time to look at the clock."""
        moments = [running.deadline for running in self._running.values()]
        moments.append(self._started + self.limits.timeout if self.stopped is None else math.inf)
        seconds = min(moments) - time.monotonic()
        try:
            return self._news.get(timeout=None if seconds == math.inf else max(seconds, 0.0))
        except queue.Empty:
            return None

    def _wait_for_others(self) -> bool:
        """Nothing runs here: over, unless trials of other processes may still need to be run again."""
        if self.stopped is not None or self._finished >= self.limits.n_trials or not self._others:
            return False
        time.sleep(LOOK)
        self._look()
        self._check_limits()
        return True

    # ------------------------------------------------------------------ begin

    def _begin_trial(self) -> bool:
        """Open the next trial: one that waits in the study, or a new one. False if there shall be none."""
        while self.stopped is None:
            if self._others:
                self._look()
            if self._left() <= 0:
                return False
            if not self._waiting:
                if self._begin_new():
                    return True
            elif self._begin_waiting(self._waiting.pop(0)):
                return True
            else:
                self._look()  # another process has it, perhaps the last one that was needed
        return False

    def _left(self) -> float:
        """How many trials are still to be begun, here or elsewhere."""
        return self.limits.n_trials - self._finished - len(self._open) - len(self._others)

    def _end_of_numbers(self) -> float:
        """New trials are needed below this number: of those left, the ones that wait have theirs."""
        return self._next + self._left() - len(self._waiting)

    def _begin_new(self) -> bool:
        if not self._ahead:
            self._ahead = self._propose(self._wanted())
        params = self._ahead.pop(0)
        self._ledger.note(self.model.unsaved_attributes())
        entry = self._ledger.begin(self._next, params, self._propose_again, self._end_of_numbers)
        if entry is None:
            self._ahead = []
            return False
        if entry.params is not params:
            self._ahead = []  # they were proposed without knowing the others
        self._next = entry.number + 1
        self._add(entry)
        return True

    def _wanted(self) -> int:
        """How many new trials there are workers and numbers for."""
        free = (self.engine.workers - len(self._running)) // len(self._folds)
        return int(max(1, min(free, self._left())))

    def _propose(self, count: int) -> list[Params]:
        if count > 1:
            return self.model.optimizer.propose_batch(self._next, count)
        return [self.model.optimizer.propose(self._next)]

    def _propose_again(self, number: int) -> Params | None:
        """Other processes have begun trials: learn of them, then propose."""
        self._look(number)
        if self._end_of_numbers() <= number:
            return None
        wait_for_earlier(lambda: self._undecided, lambda: self._look(number))
        self._next = number
        return self._propose(1)[0]

    def _propose_ahead(self) -> None:
        """While evaluations run: the trial that the next free worker will get."""
        if self._ahead or self._waiting or self._tasks or self._synchronous or self.stopped is not None:
            return
        if self.engine.workers >= MANY_WORKERS and self._left() > 0:
            with self._working():
                self._ahead = self._propose(1)

    def _begin_waiting(self, trial: FrozenTrial) -> bool:
        """Run a trial that somebody enqueued, or whose driver died."""
        if not self._ledger.claim(trial._trial_id):
            return False
        optimizer = self.model.optimizer
        # A driver that died while it wrote the parameters had announced all of them.
        announced = announced_params(trial, self.model.structure.distributions)
        fixed = announced or trial.params or trial.system_attrs.get("fixed_params", {})
        rng = np.random.default_rng((optimizer.seed, trial.number))
        entry = Entry(trial._trial_id, trial.number, dict(fixed))
        try:
            optimizer.space.check(fixed)
        except ValueError:
            proposal = optimizer.space.encode(optimizer.propose(trial.number))
            try:
                entry = Entry(trial._trial_id, trial.number, optimizer.space.complete(fixed, proposal, rng))
            except ValueError as error:
                self._add(entry)
                self._tasks.clear()
                self._end(self._open[entry.number], Outcome("failed", reason=f"it was enqueued with {fixed}: {error}"))
                return False
        self._ledger.fill_in(trial._trial_id, trial.params, entry.params)
        done = trial.intermediate_values
        known: dict[int | None, float] = {fold: done[fold] for fold in self._folds if fold is not None and fold in done}
        self._add(entry, trial.system_attrs.get(ATTEMPTS_KEY), known)
        return True

    def _add(self, entry: Entry, died: int | None = None, known: dict[int | None, float] | None = None) -> None:
        """A trial runs here. ``died`` is None if it has not been run before."""
        trial = _Open(entry, died or 0, died is not None or self.limits.retries == 0, known or {})
        self._open[entry.number] = trial
        self.reporter.open(entry.number, entry.trial_id)
        self.model.announce(entry.number, entry.params)
        self._tasks += [(trial, fold) for fold in self._folds if fold not in trial.folds]

    def _submit(self, trial: _Open, fold: int | None) -> None:
        timed = math.isfinite(self.limits.trial_timeout)
        if trial.noted and self.worker_reporter is None:
            self._open_way()
        task = Task(trial.entry.number, trial.entry.params, fold, self.worker_reporter, timed, trial.noted)
        with self._waiting_for_the_objective():
            future = self.engine.submit(evaluate, self._objective, task)
        self._running[future] = _Running(trial, fold)
        future.add_done_callback(self._news.put)

    def _open_way(self) -> None:
        try:
            self.worker_reporter = self.reach()
        except OSError as error:
            _logger.warning(f"workers cannot say when an evaluation begins: {error}")
            self.worker_reporter = None

    def _hear(self, number: int, fold: int | None) -> None:
        """An evaluation has reached its worker, which waits until this returns. Called in any thread."""
        trial = self._open.get(number)
        if trial is not None and trial.noted:
            self._orphans.note_begin(trial.entry, trial.died)
        self._news.put(_Begun(number, fold))

    def _start_clock(self, begun: _Begun) -> None:
        """The time of an evaluation counts from when a worker has it: engines may queue, and workers must start."""
        for running in self._running.values():
            if (running.trial.entry.number, running.fold) == (begun.number, begun.fold):
                running.deadline = time.monotonic() + self.limits.trial_timeout

    # -------------------------------------------------------------------- end

    def _settle(self, future: Future[Outcome]) -> None:
        """A task has ended."""
        running = self._running.pop(future, None)
        if running is None:
            return  # it was given up
        try:
            outcome = future.result()
        except (WorkerDied, CancelledError) as error:
            self._worker_died(running, error)
            return
        except EngineBroken as error:
            raise RunFailed(f"{error} {whereabouts(self.study)}") from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a result that cannot travel, for example
            outcome = Outcome("failed", reason=plain.reason(error))
        if running.fold is None or outcome.state != "complete":
            self._end(running.trial, outcome, outcome.variance)
            return
        assert outcome.value is not None, "a complete outcome has a value"
        self._add_fold(running, outcome.value, outcome)

    def _add_fold(self, running: _Running, value: float, outcome: Outcome) -> None:
        """One fold is done. It is recorded as an intermediate value, so that a resumed run need not repeat it."""
        trial = running.trial
        trial.folds[running.fold] = value
        storage, fold = self.study._storage, running.fold or 0
        patiently(partial(storage.set_trial_intermediate_value, trial.entry.trial_id, fold, value))
        if len(trial.folds) == len(self._folds):
            values = [trial.folds[fold] for fold in self._folds]
            mean = replace(outcome, value=mean_of(values), metrics={**outcome.metrics, "folds": values})
            self._end(trial, mean, variance_of_mean(values))

    def _worker_died(self, running: _Running, error: BaseException) -> None:
        trial = running.trial
        trial.died += getattr(error, "attempts", 1)
        trial.noted = True
        if trial.died > self.limits.retries:
            self._end(trial, Outcome("failed", reason=f"its worker died, {trial.died} times in all: {error}"))
            return
        _logger.warning(f"trial {trial.entry.number}: its worker died ({error}); it is run again")
        storage = self.study._storage
        patiently(partial(storage.set_trial_system_attr, trial.entry.trial_id, ATTEMPTS_KEY, trial.died))
        self._tasks.append((trial, running.fold))

    def _end_overdue(self) -> None:
        """Give up tasks that have run for too long, and free their workers where the engine can."""
        now = time.monotonic()
        for future, running in list(self._running.items()):
            if running.deadline <= now and future in self._running:
                del self._running[future]
                self.engine.stop(future)
                seconds = self.limits.trial_timeout
                self._end(running.trial, Outcome("failed", reason=f"it ran longer than trial_timeout={seconds:g} s"))

    def _end(self, trial: _Open, outcome: Outcome, variance: float = 0.0) -> None:
        """A trial has ended: record it, go on, learn from it."""
        entry = trial.entry
        self._drop_tasks(trial)
        intermediate = self.reporter.close(entry.number)
        last = intermediate[max(intermediate)] if intermediate else math.nan
        if outcome.state == "pruned" and math.isfinite(last):
            outcome = replace(outcome, value=last)  # as Optuna has it
        result = _result(outcome, variance)
        counted = self._ledger.finish(entry, result)
        del self._open[entry.number]
        if not counted:
            _logger.warning(
                f"trial {entry.number} was ended by another process; its value here, {result.value}, is not used"
            )
            self._look()
            return
        self._finished += 1
        self._tally.count(result.state, result.value)
        if outcome.state in ("failed", "invalid"):
            _logger.warning(f"trial {entry.number} failed with {entry.params}: {outcome.reason}")
        self._tell_of_dropped(entry, outcome)
        if outcome.state == "invalid":
            self._stop("an invalid value", InvalidValue(f"{outcome.reason}\n{whereabouts(self.study)}"))
        self._check_limits(outcome)
        self._call_back(entry)
        if self._ahead and not self._tasks:
            self._fill()  # before the optimiser learns: the worker need not wait for it
        self.model.finish(self._frozen(entry, result, intermediate))

    def _tell_of_dropped(self, entry: Entry, outcome: Outcome) -> None:
        """Metrics that could not be kept, each once."""
        news = [metric for metric in outcome.dropped if metric not in self._told]
        if news and len(self._told) < MANY_DROPPED:
            self._told.update(news)
            _logger.warning(
                f"trial {entry.number}: metrics were dropped, for they are no plain data: {', '.join(news)}"
            )

    def _drop_tasks(self, trial: _Open) -> None:
        """Other folds of a trial that ended are not needed any more."""
        self._tasks = [(other, fold) for other, fold in self._tasks if other is not trial]
        for future, running in list(self._running.items()):
            if running.trial is trial:
                del self._running[future]
                self.engine.stop(future)

    def _frozen(self, entry: Entry, result: Result, intermediate: dict[int, float]) -> FrozenTrial:
        return FrozenTrial(
            number=entry.number,
            state=result.state,
            value=result.value,
            datetime_start=None,
            datetime_complete=None,
            params=entry.params,
            distributions={},
            user_attrs={},
            system_attrs=dict(result.system_attrs),
            intermediate_values=intermediate,
            trial_id=entry.trial_id,
        )

    def _call_back(self, entry: Entry) -> None:
        if not self._callbacks:
            return
        trial = patiently(partial(self.study._storage.get_trial, entry.trial_id))
        self.study._thread_local.in_optimize_loop = True  # so that study.stop() may be called
        try:
            for callback in self._callbacks:
                callback(self.study, trial)
        except Exception as error:
            self._stop("a callback failed", error)
        finally:
            self.study._thread_local.in_optimize_loop = False
        if self.study._stop_flag:
            self.study._stop_flag = False
            self._stop("study.stop() was called")

    # -------------------------------------------------------------- the study

    def _look(self, except_number: int = -1) -> None:
        """Learn what other processes have done, and take over the trials of those that died."""
        trials = ledger.read(self.study)
        elsewhere = [
            trial
            for trial in trials
            if trial.state == TrialState.RUNNING and trial.number != except_number and trial.number not in self._open
        ]
        living = self._orphans.living() if elsewhere else set()
        orphans = [trial for trial in elsewhere if trial.system_attrs.get(DRIVER_KEY) not in {None, *living}]
        if orphans:
            for trial in orphans:
                self._orphans.take_over(trial)
            self._look(except_number)
            return
        self._others = {trial.number for trial in elsewhere if trial.system_attrs.get(DRIVER_KEY) in living}
        self._undecided = self._unannounced.any_awaited(elsewhere)
        self._waiting = [trial for trial in trials if trial.state == TrialState.WAITING]
        self._next = len(trials)
        self._finished = sum(trial.state.is_finished() for trial in trials)
        self.model.absorb(trials, except_number)

    def _give_back(self) -> None:
        """Stop at once: what runs waits to be run again."""
        self.engine.shutdown(wait=False, cancel_futures=True)
        # Where the storage itself is the trouble, the trials are found by the next run: their driver is gone.
        with suppress(Exception):
            for trial in self._open.values():
                self._ledger.put_back(trial.entry.trial_id, trial.died, self._name)

    # ---------------------------------------------------------------- stopping

    def _stop(self, reason: str, error: Exception | None = None) -> None:
        """Begin no more trials; the first reason counts."""
        if self.stopped is None:
            self.stopped = reason
        if self.error is None:
            self.error = error

    def _check_limits(self, last: Outcome | None = None) -> None:
        reason = self._tally.reached(self.limits, time.monotonic() - self._started)
        if reason:
            self._stop(reason)
        if self._tally.failed_in_a_row >= self.limits.max_failures and last is not None:
            text = f"{self._tally.failed_in_a_row} evaluations in a row failed; the last one: {last.reason}"
            remedy = f"{whereabouts(self.study)} Failed trials have tracebacks: trial.user_attrs['traceback']."
            self._stop("too many failures", RunFailed(f"{text}\n{remedy}"))

    def _count_past(self) -> None:
        """Count what earlier runs have shown, for the target and the patience."""
        for trial in ledger.read(self.study):
            if trial.state.is_finished():
                self._tally.count(trial.state, trial.value)
        self._tally.failed_in_a_row = 0

    @contextmanager
    def _interruptible(self, progress: Progress) -> Iterator[None]:
        """Ctrl-C once: begin no more trials; twice: stop now. Only the main thread hears it."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def interrupt(*_: Any) -> None:
            if self._interrupted:
                raise KeyboardInterrupt
            self._interrupted = True
            self._stop("interrupted")
            self._news.put(None)  # wakes the loop
            progress.say(
                f"lazybo: waiting for {len(self._open)} running evaluations, then the study can be resumed; "
                "Ctrl-C again stops them now"
            )

        before = signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    # ----------------------------------------------------------------- clock

    @contextmanager
    def _working(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._busy += time.perf_counter() - start

    @contextmanager
    def _waiting_for_the_objective(self) -> Iterator[None]:
        """A serial engine evaluates in submit: that is not the optimiser's time."""
        start = time.perf_counter()
        yield
        if not self.engine.remote and self.engine.workers == 1:
            self._busy -= time.perf_counter() - start

    def _show(self, progress: Progress) -> None:
        share = self._busy / max(time.monotonic() - self._started, 1e-9)
        progress.show(self._finished, self._tally.best, len(self._open), self._tally.failed, share)


def _result(outcome: Outcome, variance: float) -> Result:
    """What is written of an outcome."""
    states = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED}
    user = dict(outcome.metrics)
    system: dict[str, Any] = {}
    if outcome.reason:
        system["fail_reason"] = outcome.reason
        user["traceback"] = outcome.traceback or outcome.reason
    if variance:
        system[VARIANCE_KEY] = variance
    return Result(states.get(outcome.state, TrialState.FAIL), outcome.value, user, system)
