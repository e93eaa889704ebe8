"""Orphans: running trials whose driver died. They are run again, until they have died more often than retries allow.

A trial costs two commits. A third one, to record when a worker starts it, would be too slow. Without it:

- A driver that evaluates in its own process starts an evaluation as soon as its trial is written: its death counts.
- A driver with workers may die while they start: the first death of a trial's driver does not count.
- For a trial that is run again, and for every trial if retries is 0, the start is recorded before the objective is
  called. The death of the driver counts only if that record is there.

A training with a checkpoint continues where it was. Deaths after which it got further do not count.

So a trial never fails without having been evaluated, and a trial that kills its driver each time does fail in the end.
"""

from contextlib import suppress
from functools import partial

from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.run.presence import Drivers
from lazybo.study.attributes import ATTEMPTS_KEY, BEGAN_KEY, DRIVER_KEY, STEPS_KEY, count_of
from lazybo.study.ledger import Entry, Ledger, Result
from lazybo.study.retry import with_retries

# What a driver writes about itself: it evaluates in its own process; it records the start of every evaluation.
EVALUATES_HERE = "evaluates_here"
RECORDS_ALL = "records_all"


class Orphans:
    """The trials of drivers that died, as the driver ``name`` finds them."""

    def __init__(self, study: Study, ledger: Ledger, name: str, retries: int, *, checkpoints: bool = False) -> None:
        self._study, self._ledger, self._name, self._retries = study, ledger, name, retries
        self._checkpoints = checkpoints
        self._drivers = Drivers(study)

    def living(self) -> set[str]:
        """The other drivers that work on the study."""
        return self._drivers.living() - {self._name}

    def is_ours(self, trial: FrozenTrial) -> bool:
        """Whether a trial runs under the name of this driver."""
        return trial.state == TrialState.RUNNING and trial.system_attrs.get(DRIVER_KEY) == self._name

    def take_over(self, trial: FrozenTrial) -> None:
        """Queue a trial to be run again, or fail it if it died too often."""
        driver = trial.system_attrs[DRIVER_KEY]
        now = with_retries(partial(self._study._storage.get_trial, trial._trial_id))
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
            with_retries(partial(self._study._storage.set_trial_system_attr, trial._trial_id, STEPS_KEY, steps))
        return 0

    def note_begin(self, entry: Entry, deaths: int) -> None:
        """Record that a worker starts a trial. Called in any thread, before the objective is."""
        # If the storage does not answer, the evaluation continues: a death of its driver will not count.
        with suppress(Exception):
            self._study._storage.set_trial_system_attr(entry.trial_id, BEGAN_KEY, _began(self._name, deaths))

    def _had_begun(self, trial: FrozenTrial) -> bool:
        """Whether the death of a trial's driver counts."""
        driver, deaths = trial.system_attrs[DRIVER_KEY], trial.system_attrs.get(ATTEMPTS_KEY)
        if trial.system_attrs.get(BEGAN_KEY) == _began(driver, deaths or 0):
            return True
        here = self._drivers.fact(driver, EVALUATES_HERE)
        if here is None:
            return True  # the driver wrote nothing about itself
        return bool(here) and deaths is None and not self._drivers.fact(driver, RECORDS_ALL)


def _began(driver: str, deaths: int) -> str:
    return f"{driver} {deaths}"
