"""What the driver does with the reports of workers: it records intermediate values, and asks the pruner."""

import contextlib
import copy
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from optuna import pruners
from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial

from lazybo.run.channel import READS, WRITES
from lazybo.run.trial import DEVICE, suggested
from lazybo.study import Session, Store, TrialView

# Seconds between two writes of intermediate values.
WRITE_INTERVAL = 0.5
# Pruners that use the parameters and values of a running trial, and of other trials only those that have ended. Ours,
# LazyPruner, says so itself.
BY_VALUES = (pruners.MedianPruner, pruners.PercentilePruner, pruners.ThresholdPruner, pruners.WilcoxonPruner)
# Pruners that also keep attributes with running trials. Any other pruner may look at all that running trials report.
BY_ATTRIBUTES = (pruners.SuccessiveHalvingPruner, pruners.HyperbandPruner)
# Writes values by step, by the id of their trial; returns the ids of the trials that had ended and got none.
Write = Callable[[Mapping[int, Mapping[int, float]]], Collection[int]]
# Is called with a value that a running trial has reported: the study, the trial, the step, the value.
Follower = Callable[[Study, FrozenTrial, int, float], object]


@dataclass
class OpenTrial:
    """A trial that runs here, under this driver's name."""

    entry: TrialView
    deaths: int = 0  # how many evaluations of it died with their worker or driver
    records_begin: bool = False  # whether the study records when a worker starts it
    values: dict[int, float] = field(default_factory=dict)  # what it has reported, by step
    invalid: str = ""  # why it cannot be evaluated
    judged_from: float = 0  # the step before which it is not stopped
    stop_at: float = math.inf  # the step at which it is stopped in any case
    earlier_seconds: float = 0.0  # how long it ran before it was paused, if the time counts
    folds: dict[int | None, float] = field(default_factory=dict)  # the values known so far
    fold_seconds: list[float] = field(default_factory=list)  # of the folds that were evaluated here
    steps: int = 0  # how many values it had reported when it was last started
    known: frozenset[int] = frozenset()  # the steps that an earlier evaluation has reported
    frozen: FrozenTrial | None = None  # as it was when it first reported
    defining: Trial | None = None  # Optuna's own trial, if the objective names its parameters
    asking: threading.Lock = field(default_factory=threading.Lock)


class StudyReporter:
    """Records intermediate values and asks the study's pruner. Used by several threads at once.

    ``on_begin`` is called when a worker starts an evaluation, and each of ``followers`` for every new value.
    """

    def __init__(
        self,
        study: Study,
        on_begin: Callable[[int, int | None], object],
        followers: Sequence[Follower] = (),
        *,
        defines: bool = False,
    ) -> None:
        self._study, self._store, self._on_begin, self._followers = study, Store(study), on_begin, followers
        self._defines = defines
        interval = 0.0 if self._store.in_memory else WRITE_INTERVAL  # in memory nothing is gained by waiting
        self._writer = BatchedWriter(Session(study).report, interval)
        self._open: dict[int, OpenTrial] = {}  # by number

    def open(self, trial: OpenTrial) -> None:
        """Accept reports of a trial from now on. Its values were reported by an earlier evaluation, and stay."""
        trial.known = frozenset(trial.values)
        if self._defines:  # made when the trial begins: its sampler does not wait for trials of its own
            trial.defining = Store.retried(partial(Trial, self._study, trial.entry.id))
        self._open[trial.entry.number] = trial

    def close(self, number: int) -> dict[int, float]:
        """Accept no more reports of a trial, and write those that wait; returns its intermediate values."""
        closed = self._open.pop(number, None)
        if closed is None:
            return {}
        self._writer.flush()
        self._writer.forget(closed.entry.id)
        return closed.values

    def values_of(self, number: int) -> dict[int, float]:
        trial = self._open.get(number)
        return {} if trial is None else dict(trial.values)

    def flush(self, number: int = -1) -> None:  # noqa: ARG002 (Reporter)
        self._writer.flush()

    def suggest(self, number: int, name: str, distribution: BaseDistribution) -> float:
        trial = self._open.get(number)
        if trial is None or trial.defining is None:
            raise ValueError(f"trial {number} has ended")
        with trial.asking:  # an objective may have threads of its own
            return suggested(trial.defining, name, distribution)

    def study(self) -> Study:
        """The study itself: the evaluation is in this process. What trials have reported can be read."""
        self._writer.flush()
        return self._study

    def study_name(self) -> str:
        return self._study.study_name

    def storage(self, method: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """What a method of the storage returns, for a worker that cannot reach it."""
        if method not in (*READS, *WRITES):
            raise ValueError(f"workers cannot call {method} of the storage")
        self._writer.flush()  # what a trial has reported can be read
        return Store.retried(partial(getattr(self._store.storage, method), *arguments, **named))

    def begin(self, number: int, fold: int | None) -> None:
        self._on_begin(number, fold)

    def claim(self, number: int, device: str) -> None:
        trial = self._open.get(number)
        if trial is not None:
            with contextlib.suppress(Exception):  # the result will have it too
                self._store.storage.set_trial_user_attr(trial.entry.id, DEVICE, device)

    def report(self, number: int, step: int, value: float) -> bool:
        """Record a value; True if the trial should stop: the pruner says so, or it has ended in the study."""
        trial = self._open.get(number)
        if trial is None:
            return True
        if step in trial.known:
            # A training that was killed repeats the steps after its last checkpoint. The answer for its last value may
            # not have been obeyed yet.
            if step < max(trial.known):
                return False
        elif not self._writer.add(trial.entry.id, step, value):
            return True
        else:
            trial.values[step] = value
            for follow in self._followers:
                follow(self._study, self._frozen(trial), step, value)
        if step >= trial.stop_at:
            return True
        return step >= trial.judged_from and self._is_pruned(trial)

    def _is_pruned(self, trial: OpenTrial) -> bool:
        pruner = self._study.pruner
        kind = type(pruner)  # a subclass may do anything
        if kind is pruners.NopPruner:
            return False
        by_values = kind in BY_VALUES or "BY_VALUES" in vars(kind)
        if not by_values and kind not in BY_ATTRIBUTES:
            self._writer.flush()
        if not by_values:
            trial.frozen = None
        frozen = copy.copy(self._frozen(trial))
        frozen.intermediate_values = {**frozen.intermediate_values, **trial.values}
        return bool(Store.retried(partial(pruner.prune, self._study, frozen)))

    def _frozen(self, trial: OpenTrial) -> FrozenTrial:
        """A trial as it was when it first reported."""
        if trial.frozen is None:
            trial.frozen = self._store.trial(trial.entry.id)
        return trial.frozen


class BatchedWriter:
    """Writes intermediate values to a study, several at once, at most every ``interval`` seconds.

    A value that arrives after a quiet time is written at once; those that follow within the interval are written
    together. So a slow training waits for no timer, and a fast one does not wait for a commit after each step. A
    process that is killed loses the values of the last interval. Used by several threads at once.
    """

    def __init__(self, write: Write, interval: float = WRITE_INTERVAL) -> None:
        self._write, self._interval = write, interval
        self._waiting: dict[int, dict[int, float]] = {}
        self._ended: set[int] = set()
        self._due = -math.inf  # when the next write may be made, on the monotonic clock
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # held during a write, so that whoever flushes waits for it

    def add(self, trial_id: int, step: int, value: float) -> bool:
        """Write a value now or soon; False if the trial is known to have ended."""
        with self._lock:
            if trial_id in self._ended:
                return False
            self._waiting.setdefault(trial_id, {})[step] = value
            wait = self._due - time.monotonic()
            if wait > 0:
                if self._timer is None:
                    self._timer = threading.Timer(wait, self._on_time)
                    self._timer.daemon = True
                    self._timer.start()
                return True
        self.flush()
        return trial_id not in self._ended

    def _on_time(self) -> None:
        # The values are kept, and the next report, or the end of the trial, meets the error.
        with contextlib.suppress(Exception):
            self.flush()

    def flush(self) -> None:
        """Write all values that wait. If that fails, they continue to wait."""
        with self._writing:
            with self._lock:
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                written, self._waiting = self._waiting, {}
            if not written:
                return
            try:
                ended = self._write(written)
            except BaseException:
                with self._lock:
                    for trial_id, values in written.items():
                        self._waiting[trial_id] = {**values, **self._waiting.get(trial_id, {})}
                raise
            finally:
                self._due = time.monotonic() + self._interval
            self._ended.update(ended)

    def forget(self, trial_id: int) -> None:
        """Note that no more values of a trial will come."""
        self._ended.discard(trial_id)
