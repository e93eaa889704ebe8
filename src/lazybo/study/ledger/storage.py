"""The ledger of storages without transactions: memory, journal files, and any other Optuna storage."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import TrialState, create_trial

from lazybo.study.attributes import ATTEMPTS_KEY, DRIVER_KEY, PAUSED_KEY
from lazybo.study.journal import Journal, exclusive, has_lock
from lazybo.study.ledger.base import (
    Bound,
    Entry,
    Mark,
    Overtaken,
    Params,
    Propose,
    Result,
    Space,
    configuration_of,
    initial_mark,
    internal,
    missing,
    propose_for,
    race,
    read,
    unmarked,
)
from lazybo.study.model import announcement
from lazybo.study.retry import with_retries


class StorageLedger:
    """Writes through the calls that every Optuna storage has.

    Steps that read and then write hold the lock of the storage (`exclusive`). In a storage without one, a trial gets
    its number first and its parameters after it.
    """

    def __init__(self, study: Study, space: Space, driver: str | None) -> None:
        self._study, self._storage = study, study._storage
        self._space = space
        self._driver = driver

    def enqueue(self, first: Sequence[Params]) -> None:  # noqa: D102 (Ledger)
        if first:
            with_retries(partial(self._enqueue, first))

    def _enqueue(self, first: Sequence[Params]) -> None:
        with exclusive(self._storage):
            there = [
                configuration_of(
                    internal(_inside(trial.params, self._space), self._space), trial.system_attrs, self._space
                )
                for trial in read(self._study)
            ]
            for params in missing(first, there, self._space):
                waiting = create_trial(
                    state=TrialState.WAITING,
                    params=params,
                    distributions={name: self._space[name] for name in params},
                    system_attrs=initial_mark(params, self._space),
                )
                self._storage.create_new_trial(self._study._study_id, waiting)

    def begin(  # noqa: D102 (Ledger)
        self, expected: int, params: Params, again: Propose, end: Bound = lambda: inf, mark: Mark = unmarked
    ) -> Entry | None:
        if has_lock(self._storage):
            return race(self, expected, params, again, end, mark)
        # Without a lock nothing can be refused.
        blank = create_trial(state=TrialState.RUNNING, system_attrs={DRIVER_KEY: self._driver})
        trial_id = with_retries(partial(self._storage.create_new_trial, self._study._study_id, blank))
        reserved = Entry(trial_id, self._storage.get_trial_number_from_id(trial_id), {})
        if reserved.number != expected:
            return propose_for(self, reserved, params, again, end, mark)
        self.complete(reserved, params, mark(params))
        return replace(reserved, params=params)

    def create(self, low: int, high: float, params: Params, marks: Mapping[str, Any]) -> Entry:  # noqa: D102 (Numbering)
        return with_retries(partial(self._create, low, high, params, marks))

    def _create(self, low: int, high: float, params: Params, marks: Mapping[str, Any]) -> Entry:
        """Create a trial in one step."""
        with exclusive(self._storage):
            number = self._storage.get_n_trials(self._study._study_id)
            if not low <= number < high:
                raise Overtaken(number)
            running = create_trial(
                state=TrialState.RUNNING,
                params=params,
                distributions={name: self._space[name] for name in params},
                system_attrs={DRIVER_KEY: self._driver, **marks},
            )
            trial_id = self._storage.create_new_trial(self._study._study_id, running)
        return Entry(trial_id, number, params)

    def complete(self, entry: Entry, params: Params, marks: Mapping[str, Any]) -> None:  # noqa: D102 (Numbering)
        for key, value in marks.items():
            with_retries(partial(self._storage.set_trial_system_attr, entry.trial_id, key, value))
        self.fill_in(entry.trial_id, {}, params)

    def release(self, entry: Entry) -> None:  # noqa: D102 (Numbering)
        assert self._driver is not None, "people need every trial that they ask for"
        self.put_back(entry.trial_id, 0, self._driver)

    def claim(self, trial_id: int) -> bool:  # noqa: D102 (Ledger)
        return with_retries(partial(self._claim, trial_id))

    def _claim(self, trial_id: int) -> bool:
        """Write the driver's name first: nobody would take over a trial that runs without a name."""
        with exclusive(self._storage):
            if self._storage.get_trial(trial_id).state != TrialState.WAITING:
                return False
            try:
                self._storage.set_trial_system_attr(trial_id, DRIVER_KEY, self._driver)
                if not self._storage.set_trial_state_values(trial_id, TrialState.RUNNING):
                    return False
                # Without a lock, another process may have written its name in between.
                self._storage.set_trial_system_attr(trial_id, DRIVER_KEY, self._driver)
            except UpdateFinishedTrialError:
                return False
            return True

    def fill_in(self, trial_id: int, known: Mapping[str, Any], params: Params) -> None:  # noqa: D102 (Ledger)
        for key, text in announcement(params, self._space).items():
            with_retries(partial(self._storage.set_trial_system_attr, trial_id, key, text))
        for name, value in params.items():
            if name not in known:
                number = self._space[name].to_internal_repr(value)
                with_retries(partial(self._storage.set_trial_param, trial_id, name, number, self._space[name]))

    def put_back(self, trial_id: int, attempts: int, driver: str) -> None:  # noqa: D102 (Ledger)
        with_retries(partial(self._put_back, trial_id, attempts, driver))

    def _put_back(self, trial_id: int, attempts: int, driver: str) -> None:
        """Write the state first: a kill in between repeats an attempt, but never counts one that was not made."""
        with exclusive(self._storage):
            trial = self._storage.get_trial(trial_id)
            if trial.state != TrialState.RUNNING or trial.system_attrs.get(DRIVER_KEY) != driver:
                return
            try:
                self._storage.set_trial_state_values(trial_id, TrialState.WAITING)
                self._storage.set_trial_system_attr(trial_id, ATTEMPTS_KEY, attempts)
            except UpdateFinishedTrialError:
                return  # it ended in the meantime

    def pause(self, entry: Entry, step: int, user_attrs: Mapping[str, Any]) -> bool:  # noqa: D102 (Ledger)
        return with_retries(partial(self._pause, entry.trial_id, {**user_attrs, PAUSED_KEY: step}))

    def _pause(self, trial_id: int, user_attrs: Mapping[str, Any]) -> bool:
        """Write the state last: after a kill in between, the trial is taken over and is paused then."""
        with exclusive(self._storage):
            trial = self._storage.get_trial(trial_id)
            if trial.state != TrialState.RUNNING or trial.system_attrs.get(DRIVER_KEY) != self._driver:
                return False
            try:
                for key, value in user_attrs.items():
                    self._storage.set_trial_user_attr(trial_id, key, value)
                return bool(self._storage.set_trial_state_values(trial_id, TrialState.WAITING))
            except UpdateFinishedTrialError:
                return False

    def unpause(self, trial_id: int) -> None:  # noqa: D102 (Ledger)
        with_retries(partial(self._storage.set_trial_user_attr, trial_id, PAUSED_KEY, None))

    def report(self, values: Mapping[int, Mapping[int, float]]) -> set[int]:  # noqa: D102 (Ledger)
        return with_retries(partial(self._report, values))

    def _report(self, values: Mapping[int, Mapping[int, float]]) -> set[int]:
        with exclusive(self._storage):
            ended = {trial_id for trial_id in values if self._has_ended(trial_id)}
            unfinished = {trial_id: steps for trial_id, steps in values.items() if trial_id not in ended}
            if isinstance(self._storage, Journal):
                self._storage.set_intermediate_values(unfinished)
                return ended
            for trial_id, steps in unfinished.items():
                try:
                    for step, value in steps.items():
                        self._storage.set_trial_intermediate_value(trial_id, step, value)
                except UpdateFinishedTrialError:
                    ended.add(trial_id)
            return ended

    def _has_ended(self, trial_id: int) -> bool:
        try:
            return self._storage.get_trial(trial_id).state.is_finished()
        except KeyError:
            return True  # its study was deleted

    def finish(self, entry: Entry, result: Result) -> bool:  # noqa: D102 (Ledger)
        return with_retries(partial(self._finish, entry.trial_id, result))

    def _finish(self, trial_id: int, result: Result) -> bool:
        try:
            for key, value in result.user_attrs.items():
                self._storage.set_trial_user_attr(trial_id, key, value)
            for key, value in result.system_attrs.items():
                self._storage.set_trial_system_attr(trial_id, key, value)
            return bool(self._storage.set_trial_state_values(trial_id, result.state, result.values))
        except UpdateFinishedTrialError:
            return False

    def correct(self, entry: Entry, result: Result, corrections: int) -> bool:  # noqa: ARG002, D102 (Ledger)
        raise ValueError(
            "a value that was told can be changed in a database only, not in this storage; copy the study with "
            "optuna.copy_study to an SQLite file and correct it there"
        )

    def note(self, attributes: Mapping[str, Any]) -> None:  # noqa: D102 (Ledger)
        for key, value in attributes.items():
            with_retries(partial(self._storage.set_study_system_attr, self._study._study_id, key, value))


def _inside(params: Params, space: Space) -> Params:
    return {name: value for name, value in params.items() if name in space}
