"""Writing to a study: statements on the tables of databases, and the calls that every other Optuna storage has.

Both have the same methods; `lazybo.study.session` retries them. SQLAlchemy and Optuna's tables take half a second to
import and only databases need them, so they are imported inside functions.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Any

from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.storages._cached_storage import _CachedStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from lazybo.study.attributes import Key, announcement
from lazybo.study.databases import trials_within
from lazybo.study.journal import Journal, gathered, has_lock
from lazybo.study.store import Store

if TYPE_CHECKING:
    from sqlalchemy import Connection


class NumberTaken(Exception):
    """A trial cannot get one of the numbers that were asked for; the next free one is ``number``."""

    def __init__(self, number: int) -> None:
        self.number = number


class Tables:
    """Statements on Optuna's tables for one study, within the transaction of a connection (`within`).

    Optuna commits every parameter, attribute and value by itself: eight commits a trial.
    """

    _connection: "Connection"
    can_refuse = True  # whether `add_trial` knows for certain that a number is free

    def __init__(self, study_id: int, space: Mapping[str, BaseDistribution]) -> None:
        import sqlalchemy
        from optuna.storages._rdb import models

        self._sql, self._models = sqlalchemy, models
        self._study_id = study_id
        self._space = space
        self._space_json = {name: distribution_to_json(distribution) for name, distribution in space.items()}
        self._studies, self._trials = models.StudyModel.__table__, models.TrialModel.__table__
        self._this_study = self._studies.c.study_id == study_id

    def within(self, connection: "Connection") -> "Tables":
        """The same tables in another transaction."""
        tables = copy(self)
        tables._connection = connection
        return tables

    def lock_study(self) -> None:
        """Make other writers wait until this transaction ends: locks the study's row, in SQLite the file."""
        unchanged = {"study_name": self._studies.c.study_name}
        self._connection.execute(self._sql.update(self._studies).where(self._this_study).values(unchanged))

    def trials(self) -> list[FrozenTrial]:
        """All trials. Nobody adds any until this transaction ends."""
        self.lock_study()
        return trials_within(self._connection, self._study_id)

    def add_trial(
        self,
        state: TrialState,
        params: Mapping[str, Any],
        attributes: Mapping[str, Any],
        low: int = 0,
        high: float = inf,
        notes: Mapping[str, Any] | None = None,
    ) -> tuple[int, int]:
        """Add a trial with a number in [low, high): its id and number. Otherwise raise `NumberTaken` to roll back.

        ``notes`` are attributes of the study that are written with it.
        """
        sql, trials = self._sql, self._trials
        # Lock the numbering, as Optuna does. SQLite locks the file with the first insertion.
        self._connection.execute(sql.select(self._studies.c.study_id).where(self._this_study).with_for_update())
        start = _now() if state == TrialState.RUNNING else None
        blank = {"study_id": self._study_id, "state": state, "datetime_start": start}
        key = self._connection.execute(sql.insert(trials).values(blank)).inserted_primary_key
        assert key is not None, "one row was inserted"
        trial_id = int(key[0])
        before = (trials.c.study_id == self._study_id) & (trials.c.trial_id < trial_id)
        number = int(self._connection.execute(sql.select(sql.func.count()).where(before)).scalar_one())
        if not low <= number < high:
            raise NumberTaken(number)
        self._connection.execute(sql.update(trials).where(trials.c.trial_id == trial_id).values(number=number))
        self.set_params(trial_id, params)
        self.set_trial_attributes(trial_id, attributes)
        self.set_study_attributes(notes or {})
        return trial_id, number

    def change_state(
        self,
        trial_id: int,
        before: Sequence[TrialState],
        after: TrialState,
        *,
        driver: str | None = None,
        values: Sequence[float] | None = None,
        user_attrs: Mapping[str, Any] | None = None,
        system_attrs: Mapping[str, Any] | None = None,
    ) -> bool:
        """Change the state of a trial, its values and attributes, if its state is one of ``before``.

        With ``driver``, also only if this driver runs it. Returns whether it was changed.
        """
        sql, trials = self._sql, self._trials
        matching = (trials.c.trial_id == trial_id) & trials.c.state.in_(before)
        if driver is not None:
            names = self._models.TrialSystemAttributeModel.__table__
            name = (names.c.trial_id == trial_id) & (names.c.key == Key.DRIVER)
            name &= names.c.value_json == json.dumps(driver)
            matching &= sql.select(names.c.trial_id).where(name).exists()
        changes: dict[str, Any] = {"state": after}
        if after == TrialState.RUNNING:
            changes["datetime_start"] = _now()
        elif after.is_finished():
            changes["datetime_complete"] = _now()
        if self._connection.execute(sql.update(trials).where(matching).values(changes)).rowcount != 1:
            return False
        self._set_values(trial_id, values)
        self.set_user_attributes(trial_id, user_attrs or {})
        self.set_trial_attributes(trial_id, system_attrs or {})
        return True

    def restart(self, trial_id: int) -> None:
        """Set the start of a trial to now: until now it was only being proposed."""
        statement = self._sql.update(self._trials).where(self._trials.c.trial_id == trial_id)
        self._connection.execute(statement.values(datetime_start=_now()))

    def unfinished(self, trial_ids: Iterable[int]) -> set[int]:
        """The trials among these that have not ended. Nobody can end them until this transaction ends."""
        trials = self._trials
        matching = trials.c.trial_id.in_(list(trial_ids))
        matching &= trials.c.state.in_([TrialState.RUNNING, TrialState.WAITING])
        self._connection.execute(self._sql.update(trials).where(matching).values(state=trials.c.state))
        return set(self._connection.execute(self._sql.select(trials.c.trial_id).where(matching)).scalars())

    def report(self, values: Mapping[int, Mapping[int, float]]) -> None:
        """Write intermediate values by step, by the id of their trial; those at the same steps are replaced."""
        model = self._models.TrialIntermediateValueModel
        table = model.__table__
        for trial_id, steps in values.items():
            of_trial = table.c.trial_id == trial_id
            known = self._sql.select(table.c.step).where(of_trial & table.c.step.between(min(steps), max(steps)))
            for step in steps.keys() & set(self._connection.execute(known).scalars()):
                self._connection.execute(self._sql.delete(table).where(of_trial & (table.c.step == step)))
            stored = {step: model.intermediate_value_to_stored_repr(value) for step, value in steps.items()}
            rows = [
                {"trial_id": trial_id, "step": step, "intermediate_value": number, "intermediate_value_type": kind}
                for step, (number, kind) in stored.items()
            ]
            self._connection.execute(self._sql.insert(table), rows)

    def set_params(self, trial_id: int, params: Mapping[str, Any], known: Collection[str] = ()) -> None:
        """Write the parameters of a trial, without those that it has (``known``)."""
        rows = [
            {
                "trial_id": trial_id,
                "param_name": name,
                "param_value": self._space[name].to_internal_repr(value),
                "distribution_json": self._space_json[name],
            }
            for name, value in params.items()
            if name not in known
        ]
        if rows:
            self._connection.execute(self._sql.insert(self._models.TrialParamModel.__table__), rows)

    def _set_values(self, trial_id: int, values: Sequence[float] | None) -> None:
        model = self._models.TrialValueModel
        stored = [model.value_to_stored_repr(value) for value in values or ()]
        rows = [
            {"trial_id": trial_id, "objective": objective, "value": number, "value_type": kind}
            for objective, (number, kind) in enumerate(stored)
        ]
        if rows:
            self._connection.execute(self._sql.insert(model.__table__), rows)

    def replace_result(self, trial_id: int, state: TrialState, values: Sequence[float] | None) -> None:
        """Replace the state and the values of a trial that has ended, and remove its system attributes."""
        matching = self._trials.c.trial_id == trial_id
        self._connection.execute(self._sql.update(self._trials).where(matching).values(state=state))
        for model in (self._models.TrialValueModel, self._models.TrialSystemAttributeModel):
            table = model.__table__
            self._connection.execute(self._sql.delete(table).where(table.c.trial_id == trial_id))
        self._set_values(trial_id, values)

    def set_study_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Write system attributes of the study."""
        self._replace("StudySystemAttributeModel", "study_id", self._study_id, attributes)

    def set_trial_attributes(self, trial_id: int, attributes: Mapping[str, Any]) -> None:
        """Write system attributes of a trial."""
        self._replace("TrialSystemAttributeModel", "trial_id", trial_id, attributes)

    def set_user_attributes(self, trial_id: int, attributes: Mapping[str, Any]) -> None:
        """Write user attributes of a trial."""
        self._replace("TrialUserAttributeModel", "trial_id", trial_id, attributes)

    def _replace(self, model: str, owner: str, owner_id: int, attributes: Mapping[str, Any]) -> None:
        """Overwrite attributes. Upserts differ between databases, deletions and insertions do not."""
        if not attributes:
            return
        table = getattr(self._models, model).__table__
        old = (table.c[owner] == owner_id) & table.c.key.in_(list(attributes))
        self._connection.execute(self._sql.delete(table).where(old))
        rows = [{owner: owner_id, "key": key, "value_json": json.dumps(value)} for key, value in attributes.items()]
        self._connection.execute(self._sql.insert(table), rows)


def _now() -> datetime:
    """Optuna stores naive UTC times in databases."""
    return datetime.now(UTC).replace(tzinfo=None)


def drop_cache(storage: BaseStorage, study_id: int) -> None:
    """Make Optuna read all trials of a study again: it caches finished ones, and one of them was changed."""
    if isinstance(storage, _CachedStorage):
        with storage._lock:
            storage._studies.pop(study_id, None)


# ---------------------------------------------------------------- storages without transactions


class StorageCalls:
    """The methods of `Tables`, for memory, journal files and any other Optuna storage.

    A process may be killed between any two writes. In a journal, what belongs together is one write.
    """

    def __init__(self, store: Store, space: Mapping[str, BaseDistribution]) -> None:
        self._store, self._storage = store, store.storage
        self._space = space
        self.can_refuse = has_lock(self._storage)

    def trials(self) -> list[FrozenTrial]:
        return self._store.trials()

    def add_trial(
        self,
        state: TrialState,
        params: Mapping[str, Any],
        attributes: Mapping[str, Any],
        low: int = 0,
        high: float = inf,
        notes: Mapping[str, Any] | None = None,
    ) -> tuple[int, int]:
        number = self._storage.get_n_trials(self._store.study_id)
        if not low <= number < high:
            raise NumberTaken(number)
        distributions = {name: self._space[name] for name in params}
        trial = create_trial(state=state, params={**params}, distributions=distributions, system_attrs={**attributes})
        with gathered(self._storage):
            self.set_study_attributes(notes or {})
        trial_id = self._storage.create_new_trial(self._store.study_id, trial)
        return trial_id, self._storage.get_trial_number_from_id(trial_id)

    def change_state(
        self,
        trial_id: int,
        before: Sequence[TrialState],
        after: TrialState,
        *,
        driver: str | None = None,
        values: Sequence[float] | None = None,
        user_attrs: Mapping[str, Any] | None = None,
        system_attrs: Mapping[str, Any] | None = None,
    ) -> bool:
        """Write the state last: it decides whether other processes use the rest, also after a kill in between."""
        trial = self._storage.get_trial(trial_id)
        if trial.state not in before or (driver is not None and trial.system_attrs.get(Key.DRIVER) != driver):
            return False
        with gathered(self._storage):
            self.set_user_attributes(trial_id, user_attrs or {})
            self.set_trial_attributes(trial_id, system_attrs or {})
        return bool(self._storage.set_trial_state_values(trial_id, after, values))

    def restart(self, trial_id: int) -> None:
        """Optuna's calls cannot change the start of a trial."""

    def unfinished(self, trial_ids: Iterable[int]) -> set[int]:
        return {trial_id for trial_id in trial_ids if not self._has_ended(trial_id)}

    def _has_ended(self, trial_id: int) -> bool:
        try:
            return self._storage.get_trial(trial_id).state.is_finished()
        except KeyError:
            return True  # its study was deleted

    def report(self, values: Mapping[int, Mapping[int, float]]) -> None:
        if isinstance(self._storage, Journal):
            self._storage.set_intermediate_values(values)
            return
        for trial_id, steps in values.items():
            try:
                for step, value in steps.items():
                    self._storage.set_trial_intermediate_value(trial_id, step, value)
            except UpdateFinishedTrialError:
                continue  # without a lock, another process may have ended it in between

    def set_params(self, trial_id: int, params: Mapping[str, Any], known: Collection[str] = ()) -> None:
        """Write the announcement first: other processes see all parameters at once."""
        self.set_trial_attributes(trial_id, announcement(params, self._space))
        for name, value in params.items():
            if name not in known:
                number = self._internal(name, value)
                self._storage.set_trial_param(trial_id, name, number, self._space[name])

    def set_study_attributes(self, attributes: Mapping[str, Any]) -> None:
        for key, value in attributes.items():
            self._storage.set_study_system_attr(self._store.study_id, key, value)

    def set_trial_attributes(self, trial_id: int, attributes: Mapping[str, Any]) -> None:
        for key, value in attributes.items():
            self._storage.set_trial_system_attr(trial_id, key, value)

    def set_user_attributes(self, trial_id: int, attributes: Mapping[str, Any]) -> None:
        for key, value in attributes.items():
            self._storage.set_trial_user_attr(trial_id, key, value)

    def _internal(self, name: str, value: Any) -> float:
        return float(self._space[name].to_internal_repr(value))
