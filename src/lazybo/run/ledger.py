"""The ledger: what `optimize()` writes to a study, and in which order.

A trial exists with all its parameters before its evaluation begins, and has its value before the optimiser is told. In
a database each of the two is one transaction; other storages are written through Optuna's own calls.

Several processes may write to one study. Each proposes for the number that it expects its trial to get; where another
trial came first it learns of that one and proposes again, so that no two evaluate the same.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import RDBStorage
from optuna.storages._cached_storage import _CachedStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from lazybo.study.model import announcement

if TYPE_CHECKING:
    from sqlalchemy import Connection

_logger = logging.getLogger("lazybo")
_T = TypeVar("_T")
Params = dict[str, Any]
# Given the number of a trial: what it shall evaluate, knowing all trials before it; None: no trial is needed any more.
Propose = Callable[[int], Params | None]
# New trials are needed below this number, as far as is known now.
Bound = Callable[[], float]

# Who runs a trial (`lazybo.presence`), and how often it has been begun.
DRIVER_KEY = "lazybo:driver"
ATTEMPTS_KEY = "lazybo:attempts"
# When others have come first this many times, a trial is written as it was proposed: so many processes with such short
# evaluations would only wait for each other.
POLITENESS = 30
# Seconds between attempts to write while a database is locked or away, a restarted server for example.
RETRY_WAITS = (1, 2, 4, 8, 15, 30)


@dataclass(frozen=True)
class Entry:
    """A trial that has been written: its key in the storage, its number, and what it evaluates."""

    trial_id: int
    number: int
    params: Params


@dataclass(frozen=True)
class Result:
    """How a trial ended."""

    state: TrialState
    value: float | None
    user_attrs: Mapping[str, Any]
    system_attrs: Mapping[str, Any]


class Ledger(Protocol):
    """The two writes of an evaluation."""

    def begin(self, expected: int, params: Params, again: Propose, end: Bound = lambda: inf) -> Entry | None:
        """A new running trial with these parameters; if it is not the one that was expected, with those of again.

        None if it would be one too many: ``again`` says so, or there is no number left below ``end``.
        """

    def claim(self, trial_id: int) -> bool:
        """Take a waiting trial; False if another process was faster."""

    def finish(self, entry: Entry, result: Result) -> bool:
        """The end of a trial; False if it has been ended by another."""

    def note(self, attributes: Mapping[str, Any]) -> None:
        """Attributes of the study, to be written no later than with the next trial."""


def open_ledger(study: Study, space: Mapping[str, BaseDistribution], driver: str) -> Ledger:
    """The ledger that suits the study's storage."""
    storage = study._storage
    if isinstance(storage, _CachedStorage):
        storage = storage._backend
    if isinstance(storage, RDBStorage):
        return DatabaseLedger(study, storage, space, driver)
    return StorageLedger(study, space, driver)


def read(study: Study) -> list[FrozenTrial]:
    """All trials as they are now, by number."""
    return study._get_trials(deepcopy=False, use_cache=False)


def put_back(study: Study, trial_id: int, attempts: int) -> None:
    """Let a trial that was running wait to be run again; it has been begun this often."""
    try:
        study._storage.set_trial_system_attr(trial_id, ATTEMPTS_KEY, attempts)
        study._storage.set_trial_state_values(trial_id, TrialState.WAITING)
    except UpdateFinishedTrialError:
        return  # it ended while we looked


def fill_in(
    study: Study, trial_id: int, known: Mapping[str, Any], params: Params, space: Mapping[str, BaseDistribution]
) -> None:
    """Give a running trial the parameters that it does not have yet; others learn of all of them at once."""
    storage = study._storage
    for key, text in announcement(params, space).items():
        storage.set_trial_system_attr(trial_id, key, text)
    for name, value in params.items():
        if name not in known:
            storage.set_trial_param(trial_id, name, space[name].to_internal_repr(value), space[name])


class StorageLedger:
    """Through the calls that every Optuna storage has: the number first, then the parameters."""

    def __init__(self, study: Study, space: Mapping[str, BaseDistribution], driver: str) -> None:
        self._study = study
        self._space = space
        self._driver = driver

    def begin(self, expected: int, params: Params, again: Propose, end: Bound = lambda: inf) -> Entry | None:  # noqa: D102 (Ledger)
        del end  # a number that was given cannot be taken back
        storage = self._study._storage
        blank = create_trial(state=TrialState.RUNNING, system_attrs={DRIVER_KEY: self._driver})
        trial_id = storage.create_new_trial(self._study._study_id, blank)
        number = storage.get_trial_number_from_id(trial_id)
        if number != expected:
            params = again(number) or params  # it has its number, so it is run
        fill_in(self._study, trial_id, {}, params, self._space)
        return Entry(trial_id, number, params)

    def claim(self, trial_id: int) -> bool:  # noqa: D102 (Ledger)
        try:
            if not self._study._storage.set_trial_state_values(trial_id, TrialState.RUNNING):
                return False
        except UpdateFinishedTrialError:
            return False
        self._study._storage.set_trial_system_attr(trial_id, DRIVER_KEY, self._driver)
        return True

    def finish(self, entry: Entry, result: Result) -> bool:  # noqa: D102 (Ledger)
        storage = self._study._storage
        try:
            for key, value in result.user_attrs.items():
                storage.set_trial_user_attr(entry.trial_id, key, value)
            for key, value in result.system_attrs.items():
                storage.set_trial_system_attr(entry.trial_id, key, value)
            values = None if result.value is None else [result.value]
            return bool(storage.set_trial_state_values(entry.trial_id, result.state, values))
        except UpdateFinishedTrialError:
            return False

    def note(self, attributes: Mapping[str, Any]) -> None:  # noqa: D102 (Ledger)
        for key, value in attributes.items():
            self._study._storage.set_study_system_attr(self._study._study_id, key, value)


class DatabaseLedger:
    """One transaction to begin a trial, one to end it.

    Optuna commits every parameter, attribute and value by itself. Here a trial is there complete or not at all, and
    the disk is waited for twice instead of eight times. The tables are Optuna's, and so is what it reads from them.
    """

    def __init__(self, study: Study, storage: RDBStorage, space: Mapping[str, BaseDistribution], driver: str) -> None:
        # SQLAlchemy and Optuna's tables take half a second to import, and only databases need them.
        import sqlalchemy
        from optuna.storages._rdb import models

        self._sql, self._models = sqlalchemy, models
        self._study_id, self._engine = study._study_id, storage.engine
        self._space = space
        self._space_json = {name: distribution_to_json(distribution) for name, distribution in space.items()}
        self._driver = driver
        self._notes: dict[str, Any] = {}

    def begin(self, expected: int, params: Params, again: Propose, end: Bound = lambda: inf) -> Entry | None:  # noqa: D102 (Ledger)
        for attempt in count():
            # Numbers from and below which the trial is wanted.
            low, high = (expected, expected + 1) if attempt < POLITENESS else (0, end())
            try:
                entry = self._patiently(partial(self._insert_trial, low, high, params))
            except _Overtaken as overtaken:
                expected = overtaken.number
                proposed = again(expected)
                if proposed is None:
                    return None
                params = proposed
            else:
                self._notes = {}
                return entry
        raise AssertionError("attempts do not end")

    def _insert_trial(self, low: int, high: float, params: Params, connection: "Connection") -> Entry:
        """A trial under a number in [low, high)."""
        sql, trials, studies = self._sql, self._models.TrialModel.__table__, self._models.StudyModel.__table__
        # Where the database has row locks, trials are numbered one after the other, as by Optuna itself; SQLite locks
        # the file with the first insertion.
        this_study = studies.c.study_id == self._study_id
        connection.execute(sql.select(studies.c.study_id).where(this_study).with_for_update())
        blank = {"study_id": self._study_id, "state": TrialState.RUNNING, "datetime_start": _now()}
        key = connection.execute(sql.insert(trials).values(blank)).inserted_primary_key
        assert key is not None, "one row was inserted"
        trial_id = int(key[0])
        before = (trials.c.study_id == self._study_id) & (trials.c.trial_id < trial_id)
        number = int(connection.execute(sql.select(sql.func.count()).where(before)).scalar_one())
        if not low <= number < high:
            raise _Overtaken(number)
        connection.execute(sql.update(trials).where(trials.c.trial_id == trial_id).values(number=number))
        self._insert_params(connection, trial_id, params)
        self._replace(connection, "TrialSystemAttributeModel", "trial_id", trial_id, {DRIVER_KEY: self._driver})
        self._replace(connection, "StudySystemAttributeModel", "study_id", self._study_id, self._notes)
        return Entry(trial_id, number, params)

    def claim(self, trial_id: int) -> bool:  # noqa: D102 (Ledger)
        return self._patiently(partial(self._take, trial_id))

    def _take(self, trial_id: int, connection: "Connection") -> bool:
        """State and name at once: a trial that ran under no name would not be missed if its driver died."""
        sql, trials = self._sql, self._models.TrialModel.__table__
        waiting = (trials.c.trial_id == trial_id) & (trials.c.state == TrialState.WAITING)
        begun = sql.update(trials).where(waiting).values(state=TrialState.RUNNING, datetime_start=_now())
        if connection.execute(begun).rowcount != 1:
            return False
        self._replace(connection, "TrialSystemAttributeModel", "trial_id", trial_id, {DRIVER_KEY: self._driver})
        return True

    def finish(self, entry: Entry, result: Result) -> bool:  # noqa: D102 (Ledger)
        return self._patiently(partial(self._update_trial, entry.trial_id, result))

    def _update_trial(self, trial_id: int, result: Result, connection: "Connection") -> bool:
        sql, trials, values = self._sql, self._models.TrialModel.__table__, self._models.TrialValueModel
        unfinished = trials.c.state.in_([TrialState.RUNNING, TrialState.WAITING])
        ended = sql.update(trials).where((trials.c.trial_id == trial_id) & unfinished)
        if connection.execute(ended.values(state=result.state, datetime_complete=_now())).rowcount != 1:
            return False
        if result.value is not None:
            number, kind = values.value_to_stored_repr(result.value)
            row = {"trial_id": trial_id, "objective": 0, "value": number, "value_type": kind}
            connection.execute(sql.insert(values.__table__).values(row))
        self._replace(connection, "TrialUserAttributeModel", "trial_id", trial_id, result.user_attrs)
        self._replace(connection, "TrialSystemAttributeModel", "trial_id", trial_id, result.system_attrs)
        return True

    def note(self, attributes: Mapping[str, Any]) -> None:  # noqa: D102 (Ledger)
        self._notes.update(attributes)

    def _insert_params(self, connection: "Connection", trial_id: int, params: Params) -> None:
        rows = [
            {
                "trial_id": trial_id,
                "param_name": name,
                "param_value": self._space[name].to_internal_repr(value),
                "distribution_json": self._space_json[name],
            }
            for name, value in params.items()
        ]
        if rows:
            connection.execute(self._sql.insert(self._models.TrialParamModel.__table__), rows)

    def _replace(
        self, connection: "Connection", model: str, owner: str, owner_id: int, attributes: Mapping[str, Any]
    ) -> None:
        """Write attributes over what is there. Upserts differ between databases, deletions and insertions do not."""
        if not attributes:
            return
        table = getattr(self._models, model).__table__
        old = (table.c[owner] == owner_id) & table.c.key.in_(list(attributes))
        connection.execute(self._sql.delete(table).where(old))
        rows = [{owner: owner_id, "key": key, "value_json": json.dumps(value)} for key, value in attributes.items()]
        connection.execute(self._sql.insert(table), rows)

    def _patiently(self, write: Callable[["Connection"], _T]) -> _T:
        """One transaction, tried again while the database is locked or away."""
        for wait in RETRY_WAITS:
            try:
                with self._engine.begin() as connection:
                    return write(connection)
            except self._sql.exc.OperationalError as error:
                _logger.warning(f"the storage does not answer, trying again in {wait} s: {error.orig}")
                time.sleep(wait)
        with self._engine.begin() as connection:
            return write(connection)


class _Overtaken(Exception):
    """Other trials were created since the last look; the next number is this one."""

    def __init__(self, number: int) -> None:
        self.number = number


def _now() -> datetime:
    """Optuna keeps naive times of UTC in databases."""
    return datetime.now(UTC).replace(tzinfo=None)
