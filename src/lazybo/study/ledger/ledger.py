"""`Ledger`: what a run writes to its study, and the records it writes."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf, isfinite
from typing import Any, TypeVar

from optuna.distributions import BaseDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import TrialState

from lazybo.core import codec
from lazybo.study.attributes import (
    ATTEMPTS_KEY,
    CORRECTIONS_KEY,
    DRIVER_KEY,
    INITIAL_KEY,
    MODEL_KEY,
    PAUSE_KEY,
    PAUSED_KEY,
    object_of,
    parts,
    rewritable_parts,
)
from lazybo.study.databases import NumberTaken, Tables
from lazybo.study.ledger.storage import StorageCalls
from lazybo.study.store import Store
from lazybo.study.trial import as_given

_T = TypeVar("_T")
Params = dict[str, Any]
Distributions = Mapping[str, BaseDistribution]
# From the number of a trial to its parameters, with all earlier trials known; None if no more trials are needed.
Propose = Callable[[int], Params | None]
# New trials are needed below this number, as far as is known now.
Bound = Callable[[], float]
# From the parameters of a new trial to the attributes that it gets.
Mark = Callable[[Params], Mapping[str, Any]]

# After losing this many races for a number, a trial takes the next number first and is proposed for it afterwards.
# Other drivers then wait for its parameters, so a slow driver is not left behind by fast ones.
MAX_RACES = 3


@dataclass(frozen=True)
class Entry:
    """A trial in the study: its id in the storage, its number, its parameters, and whether it repeats another one."""

    trial_id: int
    number: int
    params: Params
    repeat: bool = False


@dataclass(frozen=True)
class Result:
    """How a trial ended. Its value is finite or None, since databases have no NaN.

    A complete trial with a value that is not finite becomes a failed one; a pruned trial keeps its state. ``several``
    has the values of a trial with several objectives, all finite.
    """

    state: TrialState
    value: float | None
    user_attrs: Mapping[str, Any]
    system_attrs: Mapping[str, Any]
    several: tuple[float, ...] = ()

    @property
    def values(self) -> list[float] | None:
        """The value of each objective; None if there is none."""
        return list(self.several) or (None if self.value is None else [self.value])

    def __post_init__(self) -> None:
        if self.value is not None and not isfinite(self.value):
            if self.state == TrialState.COMPLETE:
                reason = {"fail_reason": f"the value is {self.value}"}
                object.__setattr__(self, "state", TrialState.FAIL)
                object.__setattr__(self, "system_attrs", {**self.system_attrs, **reason})
            object.__setattr__(self, "value", None)


def unmarked(_: Params) -> Mapping[str, Any]:
    """No attributes."""
    return {}


class Ledger:
    """Writes the trials of a run to its study. Each call is retried while the storage is locked or unreachable.

    In a database each call is one transaction. Elsewhere it holds the lock of the storage, if there is one, and writes
    in an order that survives a kill: after it a trial is queued, or it runs under the name of a driver that is gone.
    """

    def __init__(self, store: Store, space: Distributions, driver: str | None) -> None:
        self._store, self._space, self._driver = store, space, driver
        self._calls = StorageCalls(store, space) if store.database is None else None
        self._tables = None if store.database is None else Tables(store.study_id, space)
        self._notes: dict[str, Any] = {}

    def _write(self, action: Callable[["Tables | StorageCalls"], _T]) -> _T:
        """The result of one transaction."""
        if (calls := self._calls) is not None:
            return self._store.change(lambda: action(calls))
        tables = self._tables
        assert tables is not None, "a storage is a database, or is written by its calls"
        return self._store.transaction(lambda connection: action(tables.within(connection)))

    def _change(self, action: Callable[["Tables | StorageCalls"], bool]) -> bool:
        """Change a trial in one transaction; False if it was not as expected, or another process has ended it."""
        try:
            return self._write(action)
        except UpdateFinishedTrialError:
            return False

    def enqueue(self, first: Sequence[Params]) -> None:
        """Queue the configurations that the study does not have yet."""

        def add_missing(storage: Tables | StorageCalls) -> None:
            there = storage.configurations(INITIAL_KEY)
            present = [_configuration(numbers, attributes, self._space) for numbers, attributes in there]
            for params in first:
                numbers = internal(params, self._space)
                if numbers in present:
                    present.remove(numbers)  # a configuration that is listed twice needs two trials
                else:
                    storage.add_trial(TrialState.WAITING, params, parts(INITIAL_KEY, json.dumps(numbers)))

        if first:
            self._write(add_missing)

    # ------------------------------------------------------------ begin a trial

    def begin(
        self, expected: int, params: Params, again: Propose, end: Bound = lambda: inf, mark: Mark = unmarked
    ) -> Entry | None:
        """Create a running trial with these parameters; if its number is not ``expected``, with those of ``again``.

        No trial is created with a number of ``end`` or more, evaluated when the number is taken. None if the study
        needs no more trials: ``again`` returned None, or all numbers below ``end`` are taken.

        While other processes are faster, the trial is proposed again. After MAX_RACES lost races it reserves the next
        number and is proposed for that one, as it always does in a storage without a lock.
        """
        can_refuse = self._store.database is not None or self._store.has_lock
        for _ in range(MAX_RACES if can_refuse else 0):
            try:
                entry = self._create(expected, min(expected + 1, end()), params, mark(params))
                # With another number it does not know what others wrote to a journal while this process was suspended.
                return self._needed(entry, end() if entry.number == expected else 0)
            except NumberTaken as taken:
                expected = taken.number
                proposed = again(expected)
                if proposed is None:
                    return None
                params = proposed
        try:
            reserved = self._create(0, end() if can_refuse else inf, {}, {})
        except NumberTaken:
            return None  # the caller reads the study, and begins again if more trials are needed
        if can_refuse or reserved.number != expected:
            proposed = again(reserved.number)
            if proposed is None and self._needed(reserved, end()) is None:
                return None
            params = params if proposed is None else proposed
        self._complete(reserved.trial_id, params, mark(params))
        return replace(reserved, params=params)

    def _needed(self, entry: Entry, end: float) -> Entry | None:
        """A new trial with a number below ``end``. Otherwise None: others have begun some while this was suspended.

        A number cannot be given back, so the trial is queued then. Nobody evaluates it unless it is needed.
        """
        if entry.number < end or self._driver is None:  # people need every trial that they ask for
            return entry
        self.put_back(entry.trial_id, 0, self._driver)
        return None

    def _create(self, low: int, high: float, params: Params, marks: Mapping[str, Any]) -> Entry:
        """Create a running trial with a number in [low, high); raise `NumberTaken` and change nothing if none is free.

        Without ``params`` it only reserves the number.
        """

        def add(storage: Tables | StorageCalls) -> tuple[int, int]:
            attributes = {DRIVER_KEY: self._driver, **marks}
            return storage.add_trial(TrialState.RUNNING, params, attributes, low, high, self._notes)

        entry = Entry(*self._write(add), params)
        self._notes = {}
        return entry

    def _complete(self, trial_id: int, params: Params, marks: Mapping[str, Any]) -> None:
        """Write the parameters of a trial that has only its number."""

        def write(storage: Tables | StorageCalls) -> None:
            storage.restart(trial_id)
            storage.set_trial_attributes(trial_id, marks)
            storage.set_params(trial_id, params)

        self._write(write)

    def note(self, attributes: Mapping[str, Any]) -> None:
        """Write attributes of the study together with the next trial."""
        self._notes.update(attributes)

    # ------------------------------------------------------------ change a trial

    def claim(self, trial_id: int) -> bool:
        """Take a queued trial; False if another process was faster."""
        name = {DRIVER_KEY: self._driver}  # nobody would take over a trial that runs without a name

        def take(storage: Tables | StorageCalls) -> bool:
            if not storage.change_state(trial_id, [TrialState.WAITING], TrialState.RUNNING, system_attrs=name):
                return False
            storage.set_trial_attributes(trial_id, name)  # without a lock, another name may be there now
            return True

        return self._change(take)

    def fill_in(self, trial_id: int, known: Mapping[str, Any], params: Params) -> None:
        """Write the parameters that a running trial lacks. Other processes see all of them at once."""
        self._write(lambda storage: storage.set_params(trial_id, params, known))

    def put_back(self, trial_id: int, attempts: int, driver: str) -> None:
        """Queue a trial that ``driver`` ran, with its new count of attempts; nothing if another driver has it."""

        def queue(storage: Tables | StorageCalls) -> bool:
            # The state first: a kill in between repeats an attempt, but never counts one that was not made.
            if not storage.change_state(trial_id, [TrialState.RUNNING], TrialState.WAITING, driver=driver):
                return False
            storage.set_trial_attributes(trial_id, {ATTEMPTS_KEY: attempts})
            return True

        self._change(queue)

    def pause(self, entry: Entry, step: int, user_attrs: Mapping[str, Any]) -> bool:
        """Pause a trial that this driver runs, after this step; False if this driver no longer runs it."""
        paused, at = {**user_attrs, PAUSED_KEY: step}, {PAUSE_KEY: [step, time.time()]}
        return self._change(
            lambda storage: storage.change_state(
                entry.trial_id,
                [TrialState.RUNNING],
                TrialState.WAITING,
                driver=self._driver,
                user_attrs=paused,
                system_attrs=at,
            )
        )

    def unpause(self, trial_id: int) -> None:
        """Mark a paused trial as running again. After a kill before this it is still paused."""
        self._write(lambda storage: storage.set_user_attributes(trial_id, {PAUSED_KEY: None}))

    def report(self, values: Mapping[int, Mapping[int, float]]) -> set[int]:
        """Write intermediate values by step, by the id of their trial; returns the ids of trials that had ended."""

        def write(storage: Tables | StorageCalls) -> set[int]:
            unfinished = storage.unfinished(values)
            storage.report({trial_id: steps for trial_id, steps in values.items() if trial_id in unfinished})
            return values.keys() - unfinished

        return self._write(write)

    def finish(self, entry: Entry, result: Result) -> bool:
        """End a trial; False if another process has ended it."""
        return self._change(
            lambda storage: storage.change_state(
                entry.trial_id,
                [TrialState.RUNNING, TrialState.WAITING],
                result.state,
                values=result.values,
                user_attrs=result.user_attrs,
                system_attrs=result.system_attrs,
            )
        )

    def correct(self, entry: Entry, result: Result, corrections: int) -> bool:
        """Change the result of a trial that has ended; the old one is kept as `CORRECTIONS_KEY`.

        The model of the study is learned again. False if the trial does not have this number of ``corrections``:
        another process was faster. Raises a ValueError if the storage cannot do it.
        """
        trial_id = entry.trial_id

        def write(storage: Tables | StorageCalls) -> bool:
            if not isinstance(storage, Tables):
                raise ValueError(
                    "a value that was told can be changed in a database only, not in this storage; copy the study with "
                    "optuna.copy_study to an SQLite file and correct it there"
                )
            storage.lock_study()
            before = storage.recorded(trial_id)
            earlier = before["user_attrs"].pop(CORRECTIONS_KEY, [])
            if before["state"] not in (TrialState.COMPLETE.name, TrialState.FAIL.name) or len(earlier) != corrections:
                return False
            storage.replace_result(trial_id, result.state, result.values)
            storage.set_trial_attributes(trial_id, result.system_attrs)
            for kind, now in (("user_attrs", result.user_attrs), ("system_attrs", result.system_attrs)):
                before[kind] = {key: value for key, value in before[kind].items() if now.get(key, value) != value}
            record = {**before, "corrected": datetime.now(UTC).isoformat(timespec="seconds")}
            storage.set_user_attributes(trial_id, {**result.user_attrs, CORRECTIONS_KEY: [*earlier, record]})
            storage.set_study_attributes(rewritable_parts(MODEL_KEY, "{}"))
            return True

        return self._write(write)


def internal(params: Mapping[str, Any], space: Distributions) -> dict[str, float]:
    """Parameters as Optuna's internal numbers, which can be compared."""
    return {name: float(space[name].to_internal_repr(value)) for name, value in as_given(params, space).items()}


def _configuration(params: dict[str, float], attributes: Mapping[str, Any], space: Distributions) -> object:
    """The configuration that a trial was queued with, or else its parameters, as internal numbers.

    None if it is from another space, or cannot be read.
    """
    try:
        if f"{INITIAL_KEY}:0" in attributes:
            return object_of(attributes, INITIAL_KEY)
        return params or internal(attributes.get("fixed_params", {}), space)
    except codec.INVALID:
        return None


def was_enqueued(attributes: Mapping[str, Any]) -> bool:
    """Whether somebody has chosen the configuration of a trial with these attributes."""
    return "fixed_params" in attributes or f"{INITIAL_KEY}:0" in attributes
