"""The ledger of databases: one transaction to begin a trial, one to end it.

Optuna commits every parameter, attribute and value by itself: eight commits a trial. Here a trial is either complete in
the database or not there at all, after two commits. The tables are Optuna's, and Optuna reads them as its own.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from optuna.distributions import distribution_to_json
from optuna.storages import RDBStorage
from optuna.study import Study
from optuna.trial import TrialState

from lazybo.study.attributes import (
    ATTEMPTS_KEY,
    CORRECTIONS_KEY,
    DRIVER_KEY,
    INITIAL_KEY,
    MODEL_KEY,
    PAUSED_KEY,
    rewritable_parts,
)
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
    missing,
    race,
    unmarked,
)
from lazybo.study.retry import with_retries

if TYPE_CHECKING:
    from sqlalchemy import Connection

_T = TypeVar("_T")


class DatabaseLedger:
    """A `Ledger` of transactions."""

    def __init__(self, study: Study, storage: RDBStorage, space: Space, driver: str | None) -> None:
        self._tables = _Tables(study._study_id, space)
        self._engine = storage.engine
        self._space = space
        self._driver = driver
        self._notes: dict[str, Any] = {}

    def enqueue(self, first: Sequence[Params]) -> None:  # noqa: D102 (Ledger)
        if first:
            self._write(partial(self._insert_missing, first))

    def _insert_missing(self, first: Sequence[Params], connection: "Connection") -> None:
        tables = self._tables
        tables.lock_study(connection)
        for params in missing(first, tables.configurations(connection), self._space):
            trial_id, _ = tables.insert_trial(connection, TrialState.WAITING)
            tables.insert_params(connection, trial_id, params)
            tables.set_trial_attributes(connection, trial_id, initial_mark(params, self._space))

    def begin(  # noqa: D102 (Ledger)
        self, expected: int, params: Params, again: Propose, end: Bound = lambda: inf, mark: Mark = unmarked
    ) -> Entry | None:
        entry = race(self, expected, params, again, end, mark)
        if entry is not None:
            self._notes = {}
        return entry

    def create(self, low: int, high: float, params: Params, marks: Mapping[str, Any]) -> Entry:  # noqa: D102 (Numbering)
        return self._write(partial(self._create, low, high, params, marks))

    def _create(
        self, low: int, high: float, params: Params, marks: Mapping[str, Any], connection: "Connection"
    ) -> Entry:
        tables = self._tables
        tables.lock_numbers(connection)
        trial_id, number = tables.insert_trial(connection, TrialState.RUNNING)
        if not low <= number < high:
            raise Overtaken(number)  # rolls the transaction back
        tables.insert_params(connection, trial_id, params)
        tables.set_trial_attributes(connection, trial_id, {DRIVER_KEY: self._driver, **marks})
        tables.set_study_attributes(connection, self._notes)
        return Entry(trial_id, number, params)

    def complete(self, entry: Entry, params: Params, marks: Mapping[str, Any]) -> None:  # noqa: D102 (Numbering)
        self._write(partial(self._complete, entry.trial_id, params, marks))

    def _complete(self, trial_id: int, params: Params, marks: Mapping[str, Any], connection: "Connection") -> None:
        self._tables.restart(connection, trial_id)
        self._tables.insert_params(connection, trial_id, params)
        self._tables.set_trial_attributes(connection, trial_id, marks)

    def release(self, entry: Entry) -> None:  # noqa: D102 (Numbering)
        assert self._driver is not None, "people need every trial that they ask for"
        self.put_back(entry.trial_id, 0, self._driver)

    def claim(self, trial_id: int) -> bool:  # noqa: D102 (Ledger)
        return self._write(partial(self._claim, trial_id))

    def _claim(self, trial_id: int, connection: "Connection") -> bool:
        """Write state and driver together: nobody would take over a trial that runs without a name."""
        if not self._tables.change_state(connection, trial_id, [TrialState.WAITING], TrialState.RUNNING):
            return False
        self._tables.set_trial_attributes(connection, trial_id, {DRIVER_KEY: self._driver})
        return True

    def fill_in(self, trial_id: int, known: Mapping[str, Any], params: Params) -> None:  # noqa: D102 (Ledger)
        new = {name: value for name, value in params.items() if name not in known}
        self._write(lambda connection: self._tables.insert_params(connection, trial_id, new))

    def put_back(self, trial_id: int, attempts: int, driver: str) -> None:  # noqa: D102 (Ledger)
        self._write(partial(self._put_back, trial_id, attempts, driver))

    def _put_back(self, trial_id: int, attempts: int, driver: str, connection: "Connection") -> None:
        running, waiting = [TrialState.RUNNING], TrialState.WAITING
        if self._tables.change_state(connection, trial_id, running, waiting, driver=driver):
            self._tables.set_trial_attributes(connection, trial_id, {ATTEMPTS_KEY: attempts})

    def pause(self, entry: Entry, step: int, user_attrs: Mapping[str, Any]) -> bool:  # noqa: D102 (Ledger)
        return self._write(partial(self._pause, entry.trial_id, {**user_attrs, PAUSED_KEY: step}))

    def _pause(self, trial_id: int, user_attrs: Mapping[str, Any], connection: "Connection") -> bool:
        running, waiting = [TrialState.RUNNING], TrialState.WAITING
        if not self._tables.change_state(connection, trial_id, running, waiting, driver=self._driver):
            return False
        self._tables.set_user_attributes(connection, trial_id, user_attrs)
        return True

    def unpause(self, trial_id: int) -> None:  # noqa: D102 (Ledger)
        self._write(lambda connection: self._tables.set_user_attributes(connection, trial_id, {PAUSED_KEY: None}))

    def report(self, values: Mapping[int, Mapping[int, float]]) -> set[int]:  # noqa: D102 (Ledger)
        return self._write(partial(self._report, values))

    def _report(self, values: Mapping[int, Mapping[int, float]], connection: "Connection") -> set[int]:
        unfinished = self._tables.lock_unfinished(connection, list(values))
        for trial_id in unfinished:
            self._tables.set_intermediate_values(connection, trial_id, values[trial_id])
        return set(values) - unfinished

    def finish(self, entry: Entry, result: Result) -> bool:  # noqa: D102 (Ledger)
        return self._write(partial(self._finish, entry.trial_id, result))

    def _finish(self, trial_id: int, result: Result, connection: "Connection") -> bool:
        tables = self._tables
        if not tables.change_state(connection, trial_id, [TrialState.RUNNING, TrialState.WAITING], result.state):
            return False
        tables.insert_values(connection, trial_id, result.values or [])
        tables.set_user_attributes(connection, trial_id, result.user_attrs)
        tables.set_trial_attributes(connection, trial_id, result.system_attrs)
        return True

    def correct(self, entry: Entry, result: Result, corrections: int) -> bool:  # noqa: D102 (Ledger)
        return self._write(partial(self._correct, entry.trial_id, result, corrections))

    def _correct(self, trial_id: int, result: Result, corrections: int, connection: "Connection") -> bool:
        tables = self._tables
        tables.lock_study(connection)
        before = tables.recorded(connection, trial_id)
        earlier = before["user_attrs"].pop(CORRECTIONS_KEY, [])
        if before["state"] not in (TrialState.COMPLETE.name, TrialState.FAIL.name) or len(earlier) != corrections:
            return False
        tables.replace_result(connection, trial_id, result)
        for kind, now in (("user_attrs", result.user_attrs), ("system_attrs", result.system_attrs)):
            before[kind] = {key: value for key, value in before[kind].items() if now.get(key, value) != value}
        record = {**before, "corrected": datetime.now(UTC).isoformat(timespec="seconds")}
        tables.set_user_attributes(connection, trial_id, {**result.user_attrs, CORRECTIONS_KEY: [*earlier, record]})
        tables.set_study_attributes(connection, rewritable_parts(MODEL_KEY, "{}"))
        return True

    def note(self, attributes: Mapping[str, Any]) -> None:  # noqa: D102 (Ledger)
        self._notes.update(attributes)

    def _write(self, write: Callable[["Connection"], _T]) -> _T:
        """One transaction, retried while the database is locked or unreachable."""

        def transaction() -> _T:
            with self._engine.begin() as connection:
                return write(connection)

        return with_retries(transaction)


class _Tables:
    """Statements on Optuna's tables, for one study."""

    def __init__(self, study_id: int, space: Space) -> None:
        # SQLAlchemy and Optuna's tables take half a second to import, and only databases need them.
        import sqlalchemy
        from optuna.storages._rdb import models

        self._sql, self._models = sqlalchemy, models
        self._study_id = study_id
        self._space = space
        self._space_json = {name: distribution_to_json(distribution) for name, distribution in space.items()}
        self._studies, self._trials = models.StudyModel.__table__, models.TrialModel.__table__
        self._this_study = self._studies.c.study_id == study_id

    def lock_study(self, connection: "Connection") -> None:
        """Make other writers wait until this transaction ends, with a lock on the study's row (SQLite: on the file)."""
        unchanged = {"study_name": self._studies.c.study_name}
        connection.execute(self._sql.update(self._studies).where(self._this_study).values(unchanged))

    def lock_numbers(self, connection: "Connection") -> None:
        """Lock the numbering of trials, as Optuna does. SQLite locks the file with the first insertion."""
        connection.execute(self._sql.select(self._studies.c.study_id).where(self._this_study).with_for_update())

    def configurations(self, connection: "Connection") -> list[object]:
        """What every trial was queued with or evaluates."""
        sql, params = self._sql, self._models.TrialParamModel.__table__
        attributes = self._models.TrialSystemAttributeModel.__table__
        ids = sql.select(self._trials.c.trial_id).where(self._trials.c.study_id == self._study_id)
        numbers: dict[int, dict[str, float]] = defaultdict(dict)
        columns = (params.c.trial_id, params.c.param_name, params.c.param_value)
        for trial_id, name, value in connection.execute(sql.select(*columns).where(params.c.trial_id.in_(ids))):
            if name in self._space:
                numbers[trial_id][name] = value
        marks: dict[int, dict[str, Any]] = defaultdict(dict)
        wanted = attributes.c.key.like(f"{INITIAL_KEY}:%") | (attributes.c.key == "fixed_params")
        columns = (attributes.c.trial_id, attributes.c.key, attributes.c.value_json)
        for trial_id, key, text in connection.execute(
            sql.select(*columns).where(attributes.c.trial_id.in_(ids) & wanted)
        ):
            marks[trial_id][key] = json.loads(text)
        return [configuration_of(numbers[i], marks[i], self._space) for i in connection.execute(ids).scalars()]

    def insert_trial(self, connection: "Connection", state: TrialState) -> tuple[int, int]:
        """A trial without parameters: its id and number."""
        sql, trials = self._sql, self._trials
        start = _now() if state == TrialState.RUNNING else None
        blank = {"study_id": self._study_id, "state": state, "datetime_start": start}
        key = connection.execute(sql.insert(trials).values(blank)).inserted_primary_key
        assert key is not None, "one row was inserted"
        trial_id = int(key[0])
        before = (trials.c.study_id == self._study_id) & (trials.c.trial_id < trial_id)
        number = int(connection.execute(sql.select(sql.func.count()).where(before)).scalar_one())
        connection.execute(sql.update(trials).where(trials.c.trial_id == trial_id).values(number=number))
        return trial_id, number

    def change_state(
        self,
        connection: "Connection",
        trial_id: int,
        before: Sequence[TrialState],
        after: TrialState,
        driver: str | None = None,
    ) -> bool:
        """Change the state of a trial if it is one of ``before`` (and ``driver`` runs it); whether it was changed."""
        sql, trials = self._sql, self._trials
        matching = (trials.c.trial_id == trial_id) & trials.c.state.in_(before)
        if driver is not None:
            names = self._models.TrialSystemAttributeModel.__table__
            name = (names.c.trial_id == trial_id) & (names.c.key == DRIVER_KEY)
            name &= names.c.value_json == json.dumps(driver)
            matching &= sql.select(names.c.trial_id).where(name).exists()
        values: dict[str, Any] = {"state": after}
        if after == TrialState.RUNNING:
            values["datetime_start"] = _now()
        elif after.is_finished():
            values["datetime_complete"] = _now()
        return bool(connection.execute(sql.update(trials).where(matching).values(values)).rowcount == 1)

    def restart(self, connection: "Connection", trial_id: int) -> None:
        """A trial starts now: the time before was that of its proposal."""
        statement = self._sql.update(self._trials).where(self._trials.c.trial_id == trial_id)
        connection.execute(statement.values(datetime_start=_now()))

    def lock_unfinished(self, connection: "Connection", trial_ids: Sequence[int]) -> set[int]:
        """Which of these trials have not ended. Nobody ends them until this transaction ends."""
        trials = self._trials
        matching = trials.c.trial_id.in_(trial_ids) & trials.c.state.in_([TrialState.RUNNING, TrialState.WAITING])
        connection.execute(self._sql.update(trials).where(matching).values(state=trials.c.state))
        return set(connection.execute(self._sql.select(trials.c.trial_id).where(matching)).scalars())

    def set_intermediate_values(self, connection: "Connection", trial_id: int, values: Mapping[int, float]) -> None:
        """Intermediate values of a trial; those at the same steps are replaced."""
        model = self._models.TrialIntermediateValueModel
        table = model.__table__
        of_trial = table.c.trial_id == trial_id
        known = self._sql.select(table.c.step).where(of_trial & table.c.step.between(min(values), max(values)))
        for step in values.keys() & set(connection.execute(known).scalars()):
            connection.execute(self._sql.delete(table).where(of_trial & (table.c.step == step)))
        stored = {step: model.intermediate_value_to_stored_repr(value) for step, value in values.items()}
        rows = [
            {"trial_id": trial_id, "step": step, "intermediate_value": number, "intermediate_value_type": kind}
            for step, (number, kind) in stored.items()
        ]
        connection.execute(self._sql.insert(table), rows)

    def insert_params(self, connection: "Connection", trial_id: int, params: Params) -> None:
        """Parameters of a trial."""
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

    def insert_values(self, connection: "Connection", trial_id: int, values: Sequence[float]) -> None:
        """The values of a trial, one for each objective."""
        model = self._models.TrialValueModel
        stored = [model.value_to_stored_repr(value) for value in values]
        rows = [
            {"trial_id": trial_id, "objective": objective, "value": number, "value_type": kind}
            for objective, (number, kind) in enumerate(stored)
        ]
        if rows:
            connection.execute(self._sql.insert(model.__table__), rows)

    def recorded(self, connection: "Connection", trial_id: int) -> dict[str, Any]:
        """The state of a trial, its values, and its attributes, as plain data."""
        sql, models = self._sql, self._models
        state = sql.select(self._trials.c.state).where(self._trials.c.trial_id == trial_id)
        values = models.TrialValueModel.__table__
        ordered = sql.select(values.c.value).where(values.c.trial_id == trial_id).order_by(values.c.objective)
        attributes = {}
        for name in ("TrialUserAttributeModel", "TrialSystemAttributeModel"):
            table = getattr(models, name).__table__
            rows = connection.execute(sql.select(table.c.key, table.c.value_json).where(table.c.trial_id == trial_id))
            attributes[name] = {key: json.loads(text) for key, text in rows}
        return {
            "state": connection.execute(state).scalar_one().name,
            "values": list(connection.execute(ordered).scalars()),
            "user_attrs": attributes["TrialUserAttributeModel"],
            "system_attrs": attributes["TrialSystemAttributeModel"],
        }

    def replace_result(self, connection: "Connection", trial_id: int, result: Result) -> None:
        """Replace the state, the values and the system attributes of a trial that has ended; it keeps its times."""
        sql, values = self._sql, self._models.TrialValueModel.__table__
        attributes = self._models.TrialSystemAttributeModel.__table__
        state = sql.update(self._trials).where(self._trials.c.trial_id == trial_id).values(state=result.state)
        connection.execute(state)
        connection.execute(sql.delete(values).where(values.c.trial_id == trial_id))
        connection.execute(sql.delete(attributes).where(attributes.c.trial_id == trial_id))
        self.insert_values(connection, trial_id, result.values or [])
        self.set_trial_attributes(connection, trial_id, result.system_attrs)

    def set_study_attributes(self, connection: "Connection", attributes: Mapping[str, Any]) -> None:
        """System attributes of the study."""
        self._replace(connection, "StudySystemAttributeModel", "study_id", self._study_id, attributes)

    def set_trial_attributes(self, connection: "Connection", trial_id: int, attributes: Mapping[str, Any]) -> None:
        """System attributes of a trial."""
        self._replace(connection, "TrialSystemAttributeModel", "trial_id", trial_id, attributes)

    def set_user_attributes(self, connection: "Connection", trial_id: int, attributes: Mapping[str, Any]) -> None:
        """User attributes of a trial."""
        self._replace(connection, "TrialUserAttributeModel", "trial_id", trial_id, attributes)

    def _replace(
        self, connection: "Connection", model: str, owner: str, owner_id: int, attributes: Mapping[str, Any]
    ) -> None:
        """Overwrite attributes. Upserts differ between databases, deletions and insertions do not."""
        if not attributes:
            return
        table = getattr(self._models, model).__table__
        old = (table.c[owner] == owner_id) & table.c.key.in_(list(attributes))
        connection.execute(self._sql.delete(table).where(old))
        rows = [{owner: owner_id, "key": key, "value_json": json.dumps(value)} for key, value in attributes.items()]
        connection.execute(self._sql.insert(table), rows)


def _now() -> datetime:
    """Optuna keeps naive times of UTC in databases."""
    return datetime.now(UTC).replace(tzinfo=None)
