"""The study as all its processes change it: what is finished, queued and run elsewhere, and trials whose driver died.

An orphan is a running trial whose driver died. It is run again, until it has died more often than ``retries`` allows. A
trial costs two commits. A third one, to record when a worker starts it, would be too slow. Without it:

- A driver that evaluates in its own process starts an evaluation as soon as its trial is written: its death counts.
- A driver with workers may die while they start: the first death of a trial's driver does not count.
- For a trial that is run again, and for every trial if retries is 0, the start is recorded before the objective is
  called. The death of the driver counts only if that record is there.

A training with a checkpoint continues where it was. Deaths after which it got further do not count.

So a trial never fails without having been evaluated, and a trial that kills its driver each time does fail in the end.
"""

from collections.abc import Container
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING

from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.run.presence import Drivers
from lazybo.study import (
    ATTEMPTS_KEY,
    DRIVER_KEY,
    REPEAT_KEY,
    Entry,
    Ledger,
    Result,
    Store,
    Unannounced,
    count_of,
    is_paused,
)

if TYPE_CHECKING:
    from lazybo.study import StudyModel

# How many values a training with a checkpoint had reported when its driver last died.
STEPS_KEY = "lazybo:steps"
# The driver whose worker started a trial, and the value of ATTEMPTS_KEY then.
BEGAN_KEY = "lazybo:began"
# What a driver writes about itself: it evaluates in its own process; it records the start of every evaluation.
EVALUATES_HERE = "evaluates_here"
RECORDS_ALL = "records_all"


class Orphans:
    """The trials of drivers that died, as the driver ``name`` finds them."""

    def __init__(self, study: Study, ledger: Ledger, name: str, retries: int, *, checkpoints: bool = False) -> None:
        self._store, self._ledger, self._name, self._retries = Store(study), ledger, name, retries
        self._checkpoints = checkpoints
        self._drivers = Drivers(study, name)

    def living(self) -> set[str]:
        """The other drivers that work on the study."""
        return self._drivers.living() - {self._name}

    def is_ours(self, trial: FrozenTrial) -> bool:
        """Whether a trial runs under the name of this driver."""
        return trial.state == TrialState.RUNNING and trial.system_attrs.get(DRIVER_KEY) == self._name

    def take_over(self, trial: FrozenTrial) -> None:
        """Queue a trial to be run again, or fail it if it died too often."""
        driver = trial.system_attrs[DRIVER_KEY]
        now = self._store.trial(trial._trial_id)
        if now.state != TrialState.RUNNING or now.system_attrs.get(DRIVER_KEY) != driver:
            return  # another process was faster
        counts = self._had_begun(now)
        deaths = self._earlier_deaths(now) + counts
        if deaths <= self._retries or not counts:
            self._ledger.put_back(trial._trial_id, deaths, driver)
            return
        reason = f"the process that ran it died, {deaths} times in all"
        failed = Result(TrialState.FAIL, None, {"traceback": reason}, {"fail_reason": reason})
        self._ledger.finish(Entry(trial._trial_id, trial.number, trial.params), failed)

    def _earlier_deaths(self, trial: FrozenTrial) -> int:
        """How often a trial has died before. A training that has got further since it last died is not at fault."""
        steps = len(trial.intermediate_values)
        if not self._checkpoints or steps <= count_of(trial, STEPS_KEY):
            return count_of(trial, ATTEMPTS_KEY)
        with suppress(UpdateFinishedTrialError):
            self._store.set_trial_attributes(trial._trial_id, {STEPS_KEY: steps})
        return 0

    def note_begin(self, entry: Entry, deaths: int) -> None:
        """Record that a worker starts a trial. Called in any thread, before the objective is."""
        # If the storage does not answer, the evaluation continues, and a death of its driver will not count.
        with suppress(Exception):
            self._store.storage.set_trial_system_attr(entry.trial_id, BEGAN_KEY, f"{self._name} {deaths}")

    def _had_begun(self, trial: FrozenTrial) -> bool:
        """Whether the death of a trial's driver counts."""
        driver, deaths = trial.system_attrs[DRIVER_KEY], trial.system_attrs.get(ATTEMPTS_KEY)
        if trial.system_attrs.get(BEGAN_KEY) == f"{driver} {deaths or 0}":
            return True
        here = self._drivers.fact(driver, EVALUATES_HERE)
        if here is None:
            return True  # the driver wrote nothing about itself
        return bool(here) and deaths is None and not self._drivers.fact(driver, RECORDS_ALL)


class SharedStudy:
    """The trials of a study as of the last `sync`. ``own`` has the numbers of the trials that run here."""

    def __init__(self, study: Study, model: "StudyModel", orphans: Orphans, own: Container[int]) -> None:
        self.finished = 0  # how many trials ended
        self.repeats = 0  # how many trials of the final check there are: those after the last other trial
        self.searched = 0  # how many of the finished trials are no repeats
        self.queued: list[FrozenTrial] = []  # trials to run before new ones are proposed
        self.paused: dict[int, FrozenTrial] = {}  # by number
        self.elsewhere: set[int] = set()  # numbers of the trials that other processes run
        self.next_number = 0
        self._store, self._model, self._orphans, self._own = Store(study), model, orphans, own
        self._unannounced = Unannounced()
        self._running_elsewhere: list[FrozenTrial] = []

    def sync(self, except_number: int = -1) -> None:
        """Read what other processes have done, and take over the trials of those that died.

        ``except_number`` is the number of a trial that this process is creating; it may have reserved that number.
        """
        trials = self.read()
        reserved = [each.number for each in trials if each.number == except_number and self._orphans.is_ours(each)]
        others = [trial for trial in trials if trial.number not in reserved]
        elsewhere = [trial for trial in others if trial.state == TrialState.RUNNING and trial.number not in self._own]
        living = self._orphans.living() if elsewhere else set()
        orphans = [trial for trial in elsewhere if trial.system_attrs.get(DRIVER_KEY) not in {None, *living}]
        if orphans:
            for trial in orphans:
                self._orphans.take_over(trial)
            self.sync(except_number)
            return
        self.elsewhere = {trial.number for trial in elsewhere if trial.system_attrs.get(DRIVER_KEY) in living}
        self._running_elsewhere = elsewhere
        # A process that took this one for dead, after a suspension for example, queues trials that still run here.
        waiting = [trial for trial in others if trial.state == TrialState.WAITING and trial.number not in self._own]
        self.queued = [trial for trial in waiting if not is_paused(trial)]
        self.paused = {trial.number: trial for trial in waiting if is_paused(trial)}
        self.next_number = len(others)
        self.finished = sum(trial.state.is_finished() for trial in others)
        repeats = [REPEAT_KEY in trial.system_attrs for trial in others]
        self.repeats = len(list(takewhile(bool, reversed(repeats))))
        self.searched = sum(trial.state.is_finished() and REPEAT_KEY not in trial.system_attrs for trial in others)
        self._model.absorb(trials, except_number if reserved else -1)

    def read(self) -> list[FrozenTrial]:
        """All trials as they are now."""
        return self._store.trials()

    def wait_for_earlier(self, number: int) -> None:
        """Wait until other processes have written the parameters of all trials before ``number``, the next one here.

        They may begin later ones in the meantime. ``number`` is then taken, unless this process has reserved it.
        """
        self._unannounced.wait(
            lambda: [trial for trial in self._running_elsewhere if trial.number < number], lambda: self.sync(number)
        )
        self.next_number = number
