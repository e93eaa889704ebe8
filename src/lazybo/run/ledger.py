"""The ledger: what `optimize()` writes to a study, and in which order.

A trial exists with all its parameters before its evaluation begins, and has its value before the optimiser is told. In
a database each of the two is one transaction; other storages are written through Optuna's own calls.

Several processes may write to one study. Each proposes for the number that it expects its trial to get; where another
trial came first it learns of that one and proposes again, so that no two evaluate the same.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import RDBStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from lazybo.study.attributes import joined, parts
from lazybo.study.databases import database_of
from lazybo.study.journal import exclusive, has_lock
from lazybo.study.model import announcement
from lazybo.study.retry import patiently

if TYPE_CHECKING:
    from sqlalchemy import Connection

_T = TypeVar("_T")
Params = dict[str, Any]
# Given the number of a trial: what it shall evaluate, knowing all trials before it; None: no trial is needed any more.
Propose = Callable[[int], Params | None]
# New trials are needed below this number, as far as is known now.
Bound = Callable[[], float]

# Who runs a trial (`lazybo.presence`), and how often it has been begun.
DRIVER_KEY = "lazybo:driver"
ATTEMPTS_KEY = "lazybo:attempts"
# What was given of an initial configuration, by which it is known when its trial has all parameters.
INITIAL_KEY = "lazybo:initial"
# When others have come first this many times, a trial is written as it was proposed: so many processes with such short
# evaluations would only wait for each other.
POLITENESS = 30


@dataclass(frozen=True)
class Entry:
    """A trial that has been written: its key in the storage, its number, and what it evaluates."""

    trial_id: int
    number: int
    params: Params


@dataclass(frozen=True)
class Result:
    """How a trial ended. This decides what is written as its value: a finite number, or none.

    Databases have no NaN. A pruned trial whose last report is not finite has no value; a complete one has failed.
    """

    state: TrialState
    value: float | None
    user_attrs: Mapping[str, Any]
    system_attrs: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.value is not None and not isfinite(self.value):
            if self.state == TrialState.COMPLETE:
                reason = {"fail_reason": f"the value is {self.value}"}
                object.__setattr__(self, "state", TrialState.FAIL)
                object.__setattr__(self, "system_attrs", {**self.system_attrs, **reason})
            object.__setattr__(self, "value", None)


class Ledger(Protocol):
    """What a run writes. Each call waits while the storage is locked or away.

    After a kill between any two writes, the trial waits, or it runs under a name that nobody has any more.
    """

    def enqueue(self, first: Sequence[Params]) -> None:
        """Let configurations wait for their evaluation, but those that the study has already."""

    def begin(self, expected: int, params: Params, again: Propose, end: Bound = lambda: inf) -> Entry | None:
        """A new running trial with these parameters; if it is not the one that was expected, with those of again.

        None if it would be one too many: ``again`` says so, or there is no number left below ``end``.
        """

    def claim(self, trial_id: int) -> bool:
        """Take a waiting trial; False if another process was faster."""

    def fill_in(self, trial_id: int, known: Mapping[str, Any], params: Params) -> None:
        """Give a running trial the parameters that it does not have yet; others learn of all of them at once."""

    def put_back(self, trial_id: int, attempts: int, driver: str) -> None:
        """Let a trial that ran under this name wait to be run again; it has been begun this often."""

    def finish(self, entry: Entry, result: Result) -> bool:
        """The end of a trial; False if it has been ended by another."""

    def note(self, attributes: Mapping[str, Any]) -> None:
        """Attributes of the study, to be written no later than with the next trial."""


def open_ledger(study: Study, space: Mapping[str, BaseDistribution], driver: str) -> Ledger:
    """The ledger that suits the study's storage."""
    database = database_of(study._storage)
    if database is not None:
        return DatabaseLedger(study, database, space, driver)
    return StorageLedger(study, space, driver)


def read(study: Study) -> list[FrozenTrial]:
    """All trials as they are now, by number."""
    return patiently(partial(study._get_trials, deepcopy=False, use_cache=False))


def _numbers(params: Mapping[str, Any], space: Mapping[str, BaseDistribution]) -> dict[str, float]:
    """Parameters in Optuna's internal numbers, to be compared."""
    return {name: float(space[name].to_internal_repr(value)) for name, value in params.items()}


def _given(params: dict[str, float], attributes: Mapping[str, Any], space: Mapping[str, BaseDistribution]) -> object:
    """What a trial was enqueued with, or else what it evaluates; None if that is from another space."""
    text = joined(attributes, INITIAL_KEY)
    if text:
        return json.loads(text)
    try:
        return params or _numbers(attributes.get("fixed_params", {}), space)
    except (KeyError, ValueError):
        return None


def _missing(first: Sequence[Params], there: Iterable[object], space: Mapping[str, BaseDistribution]) -> list[Params]:
    """The configurations that no trial was given; one that stands twice is wanted twice."""
    left = list(there)
    missing = []
    for params in first:
        numbers = _numbers(params, space)
        if numbers in left:
            left.remove(numbers)
        else:
            missing.append(params)
    return missing


def _initial(params: Params, space: Mapping[str, BaseDistribution]) -> dict[str, str]:
    """The mark of an initial configuration."""
    return parts(INITIAL_KEY, json.dumps(_numbers(params, space)))


def _negotiate(
    insert: Callable[[int, float, Params], Entry], expected: int, params: Params, again: Propose, end: Bound
) -> Entry | None:
    """Insert a trial under the number that it was proposed for; where others came first, propose again."""
    for attempt in count():
        # Numbers from and below which the trial is wanted.
        low, high = (expected, expected + 1) if attempt < POLITENESS else (0, end())
        try:
            return insert(low, high, params)
        except _Overtaken as overtaken:
            expected = overtaken.number
            proposed = again(expected)
            if proposed is None:
                return None
            params = proposed
    raise AssertionError("attempts do not end")


class StorageLedger:
    """Through the calls that every Optuna storage has.

    Steps that must not be interrupted by others are made under the lock of the storage (`exclusive`). Where it has
    none, a trial gets its number first, then its parameters.
    """

    def __init__(self, study: Study, space: Mapping[str, BaseDistribution], driver: str) -> None:
        self._study, self._storage = study, study._storage
        self._space = space
        self._driver = driver

    def enqueue(self, first: Sequence[Params]) -> None:  # noqa: D102 (Ledger)
        if first:
            patiently(partial(self._enqueue, first))

    def _enqueue(self, first: Sequence[Params]) -> None:
        with exclusive(self._storage):
            there = [
                _given(_numbers(_inside(trial.params, self._space), self._space), trial.system_attrs, self._space)
                for trial in read(self._study)
            ]
            for params in _missing(first, there, self._space):
                waiting = create_trial(
                    state=TrialState.WAITING,
                    params=params,
                    distributions={name: self._space[name] for name in params},
                    system_attrs=_initial(params, self._space),
                )
                self._storage.create_new_trial(self._study._study_id, waiting)

    def begin(self, expected: int, params: Params, again: Propose, end: Bound = lambda: inf) -> Entry | None:  # noqa: D102 (Ledger)
        if has_lock(self._storage):
            return _negotiate(lambda *trial: patiently(partial(self._create, *trial)), expected, params, again, end)
        # Without a lock a number that was given cannot be taken back.
        blank = create_trial(state=TrialState.RUNNING, system_attrs={DRIVER_KEY: self._driver})
        trial_id = patiently(partial(self._storage.create_new_trial, self._study._study_id, blank))
        number = self._storage.get_trial_number_from_id(trial_id)
        if number != expected:
            params = again(number) or params  # it has its number, so it is run
        self.fill_in(trial_id, {}, params)
        return Entry(trial_id, number, params)

    def _create(self, low: int, high: float, params: Params) -> Entry:
        """A trial under a number in [low, high), all at once."""
        with exclusive(self._storage):
            number = self._storage.get_n_trials(self._study._study_id)
            if not low <= number < high:
                raise _Overtaken(number)
            running = create_trial(
                state=TrialState.RUNNING,
                params=params,
                distributions={name: self._space[name] for name in params},
                system_attrs={DRIVER_KEY: self._driver},
            )
            trial_id = self._storage.create_new_trial(self._study._study_id, running)
        return Entry(trial_id, number, params)

    def claim(self, trial_id: int) -> bool:  # noqa: D102 (Ledger)
        return patiently(partial(self._claim, trial_id))

    def _claim(self, trial_id: int) -> bool:
        """The name first: a trial that ran under none would not be missed if its driver died in between."""
        with exclusive(self._storage):
            if self._storage.get_trial(trial_id).state != TrialState.WAITING:
                return False
            try:
                self._storage.set_trial_system_attr(trial_id, DRIVER_KEY, self._driver)
                if not self._storage.set_trial_state_values(trial_id, TrialState.RUNNING):
                    return False
                # Where there is no lock, another process may have written its name in between.
                self._storage.set_trial_system_attr(trial_id, DRIVER_KEY, self._driver)
            except UpdateFinishedTrialError:
                return False
            return True

    def fill_in(self, trial_id: int, known: Mapping[str, Any], params: Params) -> None:  # noqa: D102 (Ledger)
        for key, text in announcement(params, self._space).items():
            patiently(partial(self._storage.set_trial_system_attr, trial_id, key, text))
        for name, value in params.items():
            if name not in known:
                number = self._space[name].to_internal_repr(value)
                patiently(partial(self._storage.set_trial_param, trial_id, name, number, self._space[name]))

    def put_back(self, trial_id: int, attempts: int, driver: str) -> None:  # noqa: D102 (Ledger)
        patiently(partial(self._put_back, trial_id, attempts, driver))

    def _put_back(self, trial_id: int, attempts: int, driver: str) -> None:
        """The state first: a kill in between costs one attempt more, not one that was never made."""
        with exclusive(self._storage):
            trial = self._storage.get_trial(trial_id)
            if trial.state != TrialState.RUNNING or trial.system_attrs.get(DRIVER_KEY) != driver:
                return
            try:
                self._storage.set_trial_state_values(trial_id, TrialState.WAITING)
                self._storage.set_trial_system_attr(trial_id, ATTEMPTS_KEY, attempts)
            except UpdateFinishedTrialError:
                return  # it ended while we looked

    def finish(self, entry: Entry, result: Result) -> bool:  # noqa: D102 (Ledger)
        return patiently(partial(self._finish, entry.trial_id, result))

    def _finish(self, trial_id: int, result: Result) -> bool:
        try:
            for key, value in result.user_attrs.items():
                self._storage.set_trial_user_attr(trial_id, key, value)
            for key, value in result.system_attrs.items():
                self._storage.set_trial_system_attr(trial_id, key, value)
            values = None if result.value is None else [result.value]
            return bool(self._storage.set_trial_state_values(trial_id, result.state, values))
        except UpdateFinishedTrialError:
            return False

    def note(self, attributes: Mapping[str, Any]) -> None:  # noqa: D102 (Ledger)
        for key, value in attributes.items():
            patiently(partial(self._storage.set_study_system_attr, self._study._study_id, key, value))


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

    def enqueue(self, first: Sequence[Params]) -> None:  # noqa: D102 (Ledger)
        if first:
            self._write(partial(self._insert_missing, first))

    def _insert_missing(self, first: Sequence[Params], connection: "Connection") -> None:
        studies = self._models.StudyModel.__table__
        # A write that changes nothing: other processes that begin now wait for the row, in SQLite for the file.
        same = {"study_name": studies.c.study_name}
        connection.execute(self._sql.update(studies).where(studies.c.study_id == self._study_id).values(same))
        for params in _missing(first, self._trials_given(connection), self._space):
            trial_id, _ = self._insert_blank(connection, TrialState.WAITING)
            self._insert_params(connection, trial_id, params)
            self._replace(connection, "TrialSystemAttributeModel", "trial_id", trial_id, _initial(params, self._space))

    def _trials_given(self, connection: "Connection") -> list[object]:
        """What every trial was given."""
        trials, params, attributes = (
            getattr(self._models, name).__table__
            for name in ("TrialModel", "TrialParamModel", "TrialSystemAttributeModel")
        )
        ids = self._sql.select(trials.c.trial_id).where(trials.c.study_id == self._study_id)
        numbers: dict[int, dict[str, float]] = defaultdict(dict)
        columns = (params.c.trial_id, params.c.param_name, params.c.param_value)
        for trial_id, name, value in connection.execute(self._sql.select(*columns).where(params.c.trial_id.in_(ids))):
            if name in self._space:
                numbers[trial_id][name] = value
        marks: dict[int, dict[str, Any]] = defaultdict(dict)
        wanted = attributes.c.key.like(f"{INITIAL_KEY}:%") | (attributes.c.key == "fixed_params")
        columns = (attributes.c.trial_id, attributes.c.key, attributes.c.value_json)
        found = self._sql.select(*columns).where(attributes.c.trial_id.in_(ids) & wanted)
        for trial_id, key, text in connection.execute(found):
            marks[trial_id][key] = json.loads(text)
        return [_given(numbers[i], marks[i], self._space) for i in connection.execute(ids).scalars()]

    def begin(self, expected: int, params: Params, again: Propose, end: Bound = lambda: inf) -> Entry | None:  # noqa: D102 (Ledger)
        entry = _negotiate(
            lambda *trial: self._write(partial(self._insert_trial, *trial)), expected, params, again, end
        )
        if entry is not None:
            self._notes = {}
        return entry

    def _insert_trial(self, low: int, high: float, params: Params, connection: "Connection") -> Entry:
        """A trial under a number in [low, high)."""
        sql, studies = self._sql, self._models.StudyModel.__table__
        # Where the database has row locks, trials are numbered one after the other, as by Optuna itself; SQLite locks
        # the file with the first insertion.
        this_study = studies.c.study_id == self._study_id
        connection.execute(sql.select(studies.c.study_id).where(this_study).with_for_update())
        trial_id, number = self._insert_blank(connection, TrialState.RUNNING)
        if not low <= number < high:
            raise _Overtaken(number)
        self._insert_params(connection, trial_id, params)
        self._replace(connection, "TrialSystemAttributeModel", "trial_id", trial_id, {DRIVER_KEY: self._driver})
        self._replace(connection, "StudySystemAttributeModel", "study_id", self._study_id, self._notes)
        return Entry(trial_id, number, params)

    def _insert_blank(self, connection: "Connection", state: TrialState) -> tuple[int, int]:
        """A trial without parameters: its key and number."""
        sql, trials = self._sql, self._models.TrialModel.__table__
        start = _now() if state == TrialState.RUNNING else None
        blank = {"study_id": self._study_id, "state": state, "datetime_start": start}
        key = connection.execute(sql.insert(trials).values(blank)).inserted_primary_key
        assert key is not None, "one row was inserted"
        trial_id = int(key[0])
        before = (trials.c.study_id == self._study_id) & (trials.c.trial_id < trial_id)
        number = int(connection.execute(sql.select(sql.func.count()).where(before)).scalar_one())
        connection.execute(sql.update(trials).where(trials.c.trial_id == trial_id).values(number=number))
        return trial_id, number

    def claim(self, trial_id: int) -> bool:  # noqa: D102 (Ledger)
        return self._write(partial(self._take, trial_id))

    def _take(self, trial_id: int, connection: "Connection") -> bool:
        """State and name at once: a trial that ran under no name would not be missed if its driver died."""
        sql, trials = self._sql, self._models.TrialModel.__table__
        waiting = (trials.c.trial_id == trial_id) & (trials.c.state == TrialState.WAITING)
        begun = sql.update(trials).where(waiting).values(state=TrialState.RUNNING, datetime_start=_now())
        if connection.execute(begun).rowcount != 1:
            return False
        self._replace(connection, "TrialSystemAttributeModel", "trial_id", trial_id, {DRIVER_KEY: self._driver})
        return True

    def fill_in(self, trial_id: int, known: Mapping[str, Any], params: Params) -> None:  # noqa: D102 (Ledger)
        new = {name: value for name, value in params.items() if name not in known}
        self._write(partial(self._insert_params, trial_id=trial_id, params=new))

    def put_back(self, trial_id: int, attempts: int, driver: str) -> None:  # noqa: D102 (Ledger)
        self._write(partial(self._release, trial_id, attempts, driver))

    def _release(self, trial_id: int, attempts: int, driver: str, connection: "Connection") -> None:
        sql, trials = self._sql, self._models.TrialModel.__table__
        names = self._models.TrialSystemAttributeModel.__table__
        name = (names.c.trial_id == trial_id) & (names.c.key == DRIVER_KEY) & (names.c.value_json == json.dumps(driver))
        running = (trials.c.trial_id == trial_id) & (trials.c.state == TrialState.RUNNING)
        released = sql.update(trials).where(running & sql.select(names.c.trial_id).where(name).exists())
        if connection.execute(released.values(state=TrialState.WAITING)).rowcount == 1:
            self._replace(connection, "TrialSystemAttributeModel", "trial_id", trial_id, {ATTEMPTS_KEY: attempts})

    def finish(self, entry: Entry, result: Result) -> bool:  # noqa: D102 (Ledger)
        return self._write(partial(self._update_trial, entry.trial_id, result))

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

    def _write(self, write: Callable[["Connection"], _T]) -> _T:
        """One transaction, tried again while the database is locked or away."""

        def transaction() -> _T:
            with self._engine.begin() as connection:
                return write(connection)

        return patiently(transaction)


class _Overtaken(Exception):
    """Other trials were created since the last look; the next number is this one."""

    def __init__(self, number: int) -> None:
        self.number = number


def _inside(params: Params, space: Mapping[str, BaseDistribution]) -> Params:
    return {name: value for name, value in params.items() if name in space}


def _now() -> datetime:
    """Optuna keeps naive times of UTC in databases."""
    return datetime.now(UTC).replace(tzinfo=None)
