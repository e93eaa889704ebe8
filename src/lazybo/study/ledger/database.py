"""The ledger of databases: one transaction to begin a trial, one to end it.

Optuna commits every parameter, attribute and value by itself: eight commits a trial. Here a trial needs two, and after
each it is complete in the database or not there at all. The tables are Optuna's, and Optuna reads them as its own.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import wraps
from math import inf
from typing import Any, Concatenate, ParamSpec, TypeVar

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
from lazybo.study.databases import Tables
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
    missing,
    race,
    unmarked,
)
from lazybo.study.store import Store

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _transaction(
    method: Callable[Concatenate["DatabaseLedger", Tables, _P], _T],
) -> Callable[Concatenate["DatabaseLedger", _P], _T]:
    """A method that is one transaction; it gets the tables within it."""

    @wraps(method)
    def write(self: "DatabaseLedger", /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._store.transaction(
            lambda connection: method(self, self._tables.within(connection), *args, **kwargs)
        )

    return write


class DatabaseLedger:
    """A `Ledger` of transactions."""

    def __init__(self, store: Store, space: Distributions, driver: str | None) -> None:
        self._store = store
        self._tables = Tables(store.study_id, space)
        self._space = space
        self._notes: dict[str, Any] = {}
        self.driver = driver

    def enqueue(self, first: Sequence[Params]) -> None:  # noqa: D102 (Ledger)
        if first:
            self._enqueue(first)

    @_transaction
    def _enqueue(self, tables: Tables, first: Sequence[Params]) -> None:
        tables.lock_study()
        configurations = tables.configurations(f"{INITIAL_KEY}:%")
        present = [configuration_of(numbers, marks, self._space) for numbers, marks in configurations]
        for params in missing(first, present, self._space):
            trial_id, _ = tables.insert_trial(TrialState.WAITING)
            tables.insert_params(trial_id, params)
            tables.set_trial_attributes(trial_id, initial_mark(params, self._space))

    def begin(  # noqa: D102 (Ledger)
        self, expected: int, params: Params, again: Propose, end: Bound = lambda: inf, mark: Mark = unmarked
    ) -> Entry | None:
        entry = race(self, expected, params, again, end, mark)
        if entry is not None:
            self._notes = {}
        return entry

    @_transaction
    def create(  # noqa: D102 (Ledger)
        self, tables: Tables, low: int, high: float, params: Params, marks: Mapping[str, Any]
    ) -> Entry:
        tables.lock_numbers()
        trial_id, number = tables.insert_trial(TrialState.RUNNING)
        if not low <= number < high:
            raise Overtaken(number)  # rolls the transaction back
        tables.insert_params(trial_id, params)
        tables.set_trial_attributes(trial_id, {DRIVER_KEY: self.driver, **marks})
        tables.set_study_attributes(self._notes)
        return Entry(trial_id, number, params)

    @_transaction
    def complete(self, tables: Tables, entry: Entry, params: Params, marks: Mapping[str, Any]) -> None:  # noqa: D102 (Ledger)
        tables.restart(entry.trial_id)
        tables.insert_params(entry.trial_id, params)
        tables.set_trial_attributes(entry.trial_id, marks)

    @_transaction
    def claim(self, tables: Tables, trial_id: int) -> bool:
        """Write state and driver together: nobody would take over a trial that runs without a name."""
        if not tables.change_state(trial_id, [TrialState.WAITING], TrialState.RUNNING):
            return False
        tables.set_trial_attributes(trial_id, {DRIVER_KEY: self.driver})
        return True

    @_transaction
    def fill_in(self, tables: Tables, trial_id: int, known: Mapping[str, Any], params: Params) -> None:  # noqa: D102 (Ledger)
        tables.insert_params(trial_id, {name: value for name, value in params.items() if name not in known})

    @_transaction
    def put_back(self, tables: Tables, trial_id: int, attempts: int, driver: str) -> None:  # noqa: D102 (Ledger)
        if tables.change_state(trial_id, [TrialState.RUNNING], TrialState.WAITING, driver):
            tables.set_trial_attributes(trial_id, {ATTEMPTS_KEY: attempts})

    @_transaction
    def pause(self, tables: Tables, entry: Entry, step: int, user_attrs: Mapping[str, Any]) -> bool:  # noqa: D102 (Ledger)
        if not tables.change_state(entry.trial_id, [TrialState.RUNNING], TrialState.WAITING, self.driver):
            return False
        tables.set_user_attributes(entry.trial_id, {**user_attrs, PAUSED_KEY: step})
        return True

    @_transaction
    def unpause(self, tables: Tables, trial_id: int) -> None:  # noqa: D102 (Ledger)
        tables.set_user_attributes(trial_id, {PAUSED_KEY: None})

    @_transaction
    def report(self, tables: Tables, values: Mapping[int, Mapping[int, float]]) -> set[int]:  # noqa: D102 (Ledger)
        unfinished = tables.lock_unfinished(list(values))
        for trial_id in unfinished:
            tables.set_intermediate_values(trial_id, values[trial_id])
        return set(values) - unfinished

    @_transaction
    def finish(self, tables: Tables, entry: Entry, result: Result) -> bool:  # noqa: D102 (Ledger)
        if not tables.change_state(entry.trial_id, [TrialState.RUNNING, TrialState.WAITING], result.state):
            return False
        tables.insert_values(entry.trial_id, result.values or [])
        tables.set_user_attributes(entry.trial_id, result.user_attrs)
        tables.set_trial_attributes(entry.trial_id, result.system_attrs)
        return True

    @_transaction
    def correct(self, tables: Tables, entry: Entry, result: Result, corrections: int) -> bool:  # noqa: D102 (Ledger)
        trial_id = entry.trial_id
        tables.lock_study()
        before = tables.recorded(trial_id)
        earlier = before["user_attrs"].pop(CORRECTIONS_KEY, [])
        if before["state"] not in (TrialState.COMPLETE.name, TrialState.FAIL.name) or len(earlier) != corrections:
            return False
        tables.set_state(trial_id, result.state)
        tables.remove_result(trial_id)
        tables.insert_values(trial_id, result.values or [])
        tables.set_trial_attributes(trial_id, result.system_attrs)
        for kind, now in (("user_attrs", result.user_attrs), ("system_attrs", result.system_attrs)):
            before[kind] = {key: value for key, value in before[kind].items() if now.get(key, value) != value}
        record = {**before, "corrected": datetime.now(UTC).isoformat(timespec="seconds")}
        tables.set_user_attributes(trial_id, {**result.user_attrs, CORRECTIONS_KEY: [*earlier, record]})
        tables.set_study_attributes(rewritable_parts(MODEL_KEY, "{}"))
        return True

    def note(self, attributes: Mapping[str, Any]) -> None:  # noqa: D102 (Ledger)
        self._notes.update(attributes)
