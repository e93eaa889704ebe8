"""Trials whose driver died: they wait to be run again, and a death that cost an evaluation counts against the retries.

A trial costs two commits: one more for its beginning in a worker would be too dear. What is known without it:

- A driver that evaluates in its own process begins an evaluation as soon as its trial is written: its death counts.
- A driver with workers may die while they start: the first death of a trial's driver does not count.
- A trial that is run again, and every trial where there are no retries, is noted when a worker has it, before the
  objective is called. Its driver's death counts if, and only if, that note is there.

So a trial never fails without having been evaluated, and one that kills its driver each time does fail in the end.
"""

import logging
from contextlib import suppress
from functools import partial

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.run.ledger import ATTEMPTS_KEY, DRIVER_KEY, Entry, Ledger, Result
from lazybo.run.presence import Drivers
from lazybo.study.retry import patiently

_logger = logging.getLogger("lazybo")

# Who evaluates a trial that is noted, and how often it had died by then.
BEGAN_KEY = "lazybo:began"
# What a driver says in its note: that it evaluates in its own process, and that it notes every beginning.
EVALUATES_HERE = "evaluates_here"
NOTES_ALL = "notes_all"


class Orphans:
    """The trials of drivers that died, as the driver ``name`` finds them."""

    def __init__(self, study: Study, book: Ledger, name: str, retries: int) -> None:
        self._study, self._ledger, self._name, self._retries = study, book, name, retries
        self._drivers = Drivers(study)

    def living(self) -> set[str]:
        """The other drivers that work on the study."""
        return self._drivers.living() - {self._name}

    def take_over(self, trial: FrozenTrial) -> None:
        """Let a trial wait to be run again, or end it when it has died too often."""
        driver = trial.system_attrs[DRIVER_KEY]
        now = patiently(partial(self._study._storage.get_trial, trial._trial_id))
        if now.state != TrialState.RUNNING or now.system_attrs.get(DRIVER_KEY) != driver:
            return  # another process was faster
        died = now.system_attrs.get(ATTEMPTS_KEY, 0)
        if not self._had_begun(now):
            self._ledger.put_back(trial._trial_id, died, driver)
            return
        if died + 1 <= self._retries:
            self._ledger.put_back(trial._trial_id, died + 1, driver)
            return
        reason = f"the process that ran it died, {died + 1} times in all"
        failed = Result(TrialState.FAIL, None, {"traceback": reason}, {"fail_reason": reason})
        self._ledger.finish(Entry(trial._trial_id, trial.number, trial.params), failed)

    def note_begin(self, entry: Entry, died: int) -> None:
        """A worker has a trial that is noted. Called in any thread, before the objective is."""
        # A storage that does not answer is no reason to lose the evaluation: its driver's death will not count.
        with suppress(Exception):
            self._study._storage.set_trial_system_attr(entry.trial_id, BEGAN_KEY, _began(self._name, died))

    def _had_begun(self, trial: FrozenTrial) -> bool:
        driver, died = trial.system_attrs[DRIVER_KEY], trial.system_attrs.get(ATTEMPTS_KEY)
        if trial.system_attrs.get(BEGAN_KEY) == _began(driver, died or 0):
            return True
        here = self._drivers.fact(driver, EVALUATES_HERE)
        if here is None:
            return True  # it has left no note, or one of an earlier version: nobody knows
        return bool(here) and died is None and not self._drivers.fact(driver, NOTES_ALL)


def _began(driver: str, died: int) -> str:
    return f"{driver} {died}"
