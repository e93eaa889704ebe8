"""The ledger of storages without transactions: memory, journal files, and any other Optuna storage."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from math import inf
from typing import Any, Concatenate, ParamSpec, TypeVar

from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import TrialState, create_trial

from lazybo.study.attributes import ATTEMPTS_KEY, DRIVER_KEY, PAUSED_KEY, announcement
from lazybo.study.journal import Journal
from lazybo.study.ledger.base import (
    Bound,
    Distributions,
    Entry,
    Mark,
    Overtaken,
    Params,
    Propose,
    Result,
    configuration_of,
    initial_mark,
    internal,
    missing,
    propose_for,
    race,
    unmarked,
)
from lazybo.study.store import Store

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _locked(
    method: Callable[Concatenate["StorageLedger", _P], _T],
) -> Callable[Concatenate["StorageLedger", _P], _T]:
    """A method that reads and then writes: it holds the lock of the storage, if there is one, and is retried."""

    @wraps(method)
    def change(self: "StorageLedger", /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._store.change(lambda: method(self, *args, **kwargs))

    return change


class StorageLedger:
    """Writes through the calls that every Optuna storage has.

    In a storage without a lock, a trial gets its number first and its parameters after it.
    """

    def __init__(self, store: Store, space: Distributions, driver: str | None) -> None:
        self._store, self._storage = store, store.storage
        self._space = space
        self.driver = driver

    def enqueue(self, first: Sequence[Params]) -> None:  # noqa: D102 (Ledger)
        if first:
            self._enqueue(first)

    @_locked
    def _enqueue(self, first: Sequence[Params]) -> None:
        space, present = self._space, []
        for trial in self._store.trials():
            numbers = internal({name: value for name, value in trial.params.items() if name in space}, space)
            present.append(configuration_of(numbers, trial.system_attrs, space))
        for params in missing(first, present, space):
            self._add(TrialState.WAITING, params, initial_mark(params, space))

    def _add(self, state: TrialState, params: Params, attributes: Mapping[str, Any]) -> int:
        distributions = {name: self._space[name] for name in params}
        trial = create_trial(state=state, params=params, distributions=distributions, system_attrs={**attributes})
        return int(self._storage.create_new_trial(self._store.study_id, trial))

    def begin(  # noqa: D102 (Ledger)
        self, expected: int, params: Params, again: Propose, end: Bound = lambda: inf, mark: Mark = unmarked
    ) -> Entry | None:
        if self._store.has_lock:
            return race(self, expected, params, again, end, mark)
        # Without a lock no number can be refused.
        trial_id = self._store.add(create_trial(state=TrialState.RUNNING, system_attrs={DRIVER_KEY: self.driver}))
        reserved = Entry(trial_id, self._storage.get_trial_number_from_id(trial_id), {})
        if reserved.number != expected:
            return propose_for(self, reserved, params, again, end, mark)
        self.complete(reserved, params, mark(params))
        return replace(reserved, params=params)

    @_locked
    def create(self, low: int, high: float, params: Params, marks: Mapping[str, Any]) -> Entry:  # noqa: D102 (Ledger)
        number = self._storage.get_n_trials(self._store.study_id)
        if not low <= number < high:
            raise Overtaken(number)
        return Entry(self._add(TrialState.RUNNING, params, {DRIVER_KEY: self.driver, **marks}), number, params)

    def complete(self, entry: Entry, params: Params, marks: Mapping[str, Any]) -> None:  # noqa: D102 (Ledger)
        self._store.set_trial_attributes(entry.trial_id, marks)
        self.fill_in(entry.trial_id, {}, params)

    @_locked
    def claim(self, trial_id: int) -> bool:
        """Write the driver's name first: nobody would take over a trial that runs without a name."""
        if self._storage.get_trial(trial_id).state != TrialState.WAITING:
            return False
        try:
            self._storage.set_trial_system_attr(trial_id, DRIVER_KEY, self.driver)
            if not self._storage.set_trial_state_values(trial_id, TrialState.RUNNING):
                return False
            # Without a lock, another process may have written its name in between.
            self._storage.set_trial_system_attr(trial_id, DRIVER_KEY, self.driver)
        except UpdateFinishedTrialError:
            return False
        return True

    def fill_in(self, trial_id: int, known: Mapping[str, Any], params: Params) -> None:  # noqa: D102 (Ledger)
        self._store.set_trial_attributes(trial_id, announcement(params, self._space))
        for name, value in params.items():
            if name not in known:
                self._store.set_param(trial_id, name, value, self._space[name])

    @_locked
    def put_back(self, trial_id: int, attempts: int, driver: str) -> None:
        """Write the state first: a kill in between repeats an attempt, but never counts one that was not made."""
        if not self._is_run_by(driver, trial_id):
            return
        try:
            self._storage.set_trial_state_values(trial_id, TrialState.WAITING)
            self._storage.set_trial_system_attr(trial_id, ATTEMPTS_KEY, attempts)
        except UpdateFinishedTrialError:
            return  # it has ended in the meantime

    @_locked
    def pause(self, entry: Entry, step: int, user_attrs: Mapping[str, Any]) -> bool:
        """Write the state last: after a kill in between, the trial is taken over and is paused then."""
        if not self._is_run_by(self.driver, entry.trial_id):
            return False
        try:
            for key, value in {**user_attrs, PAUSED_KEY: step}.items():
                self._storage.set_trial_user_attr(entry.trial_id, key, value)
            return bool(self._storage.set_trial_state_values(entry.trial_id, TrialState.WAITING))
        except UpdateFinishedTrialError:
            return False

    def _is_run_by(self, driver: str | None, trial_id: int) -> bool:
        trial = self._storage.get_trial(trial_id)
        return trial.state == TrialState.RUNNING and trial.system_attrs.get(DRIVER_KEY) == driver

    def unpause(self, trial_id: int) -> None:  # noqa: D102 (Ledger)
        self._store.set_user_attributes(trial_id, {PAUSED_KEY: None})

    @_locked
    def report(self, values: Mapping[int, Mapping[int, float]]) -> set[int]:  # noqa: D102 (Ledger)
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
        try:
            self._store.set_user_attributes(entry.trial_id, result.user_attrs)
            self._store.set_trial_attributes(entry.trial_id, result.system_attrs)
            return self._store.set_state(entry.trial_id, result.state, result.values)
        except UpdateFinishedTrialError:
            return False

    def correct(self, entry: Entry, result: Result, corrections: int) -> bool:  # noqa: ARG002, D102 (Ledger)
        raise ValueError(
            "a value that was told can be changed in a database only, not in this storage; copy the study with "
            "optuna.copy_study to an SQLite file and correct it there"
        )

    def note(self, attributes: Mapping[str, Any]) -> None:  # noqa: D102 (Ledger)
        self._store.set_attributes(attributes)
