"""`Session`: what one process does with a study. It reads the trials, lets the model propose, and writes what happens.

A trial is in the study with all its parameters before its evaluation starts, and has its value there before the
optimiser learns it. In a database each of the two is one transaction. Other storages are written through Optuna.

Several processes may write to one study. Each proposes for the number that it expects its trial to get. If another
trial took that number, the process reads the new trials and proposes again, so no two trials evaluate the same.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from math import inf
from typing import Any, TypeVar

from optuna.distributions import BaseDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from lazybo.core import codec
from lazybo.search import Options
from lazybo.space import Space
from lazybo.study.attributes import Key, object_of, parts, rewritable_parts
from lazybo.study.definition import options_digest
from lazybo.study.feed import Unannounced
from lazybo.study.model import StudyModel, open_model
from lazybo.study.store import Store
from lazybo.study.trial import Result, TrialView, as_given, params_in
from lazybo.study.view import StudyView
from lazybo.study.writing import NumberTaken, StorageCalls, Tables, drop_cache

_T = TypeVar("_T")
Params = dict[str, Any]
Distributions = Mapping[str, BaseDistribution]
# From the number of a trial to its parameters, with all earlier trials known; None if no more trials are needed.
Propose = Callable[[int], Params | None]
Bound = Callable[[], float]  # new trials are needed below this number, as far as is known now
RepeatOf = Callable[[Params], int | None]  # the trial that new parameters repeat, if they repeat one

# After losing this many races for a number, a trial takes the next number first and is proposed for it afterwards.
# Other drivers then wait for its parameters, so a slow driver is not left behind by fast ones.
MAX_RACES = 3
# The system attributes of a trial that belong to its result begin with these.
OF_RESULT = ("fail_reason", Key.VARIANCE, Key.SECONDS, Key.SKIPPED, Key.CONSTRAINT)


class Session:
    """What one process does with a study. Each call is retried while the storage is locked or unreachable.

    In a database each change is one transaction. Elsewhere it holds the lock of the storage, if there is one, and
    writes in an order that survives a kill: after it a trial is queued, or it runs under the name of a driver that is
    gone. ``driver`` is the name of this process; None for people and other tools, whose trials nobody takes over.

    Without ``options`` there is no model, and nothing can be proposed. ``known`` results are told to the model that the
    study does not have.
    """

    def __init__(
        self,
        study: Study,
        space: Space | None = None,
        driver: str | None = None,
        *,
        options: Options | None = None,
        known: Sequence[tuple[Params, Any]] = (),
    ) -> None:
        self.study, self.driver = study, driver
        self.store = Store(study)
        self._space: Distributions = {} if space is None else space.distributions
        self._defines = space is not None and not space.declared  # the objective names its parameters itself
        self._storage: Tables | StorageCalls = (
            StorageCalls(self.store, self._space)
            if self.store.database is None
            else Tables(self.store.study_id, self._space)
        )
        self._unannounced = Unannounced()
        self._model: StudyModel | None = None
        self._notes: dict[str, Any] = {}  # attributes of the study that are written with the next trial
        if options is not None and space is not None:
            self._model = open_model(study, options, space, self.store.trials())
            # The sampler chooses the parameters that an objective names, so there is no proposal to replay.
            if not self._defines:
                self._model.seen.record(options_digest(options), len(known), predicate=space.feasible is not None)
            for params, value in known:
                self._model.optimizer.observe(params, value, outside=True)

    @property
    def model(self) -> StudyModel:
        """The model of the study as this process knows it."""
        assert self._model is not None, "a session that proposes has options"
        return self._model

    # --------------------------------------------------------------------- read

    def read(self) -> StudyView:
        """The study as it is now."""
        return StudyView(self.study, self.store.trials())

    def sync(self, except_number: int = -1) -> StudyView:
        """Read the study and tell the model what is new, except of one trial."""
        view = self.read()
        self.model.absorb(view.frozen, except_number)
        return view

    def wait_for_earlier(self, running: Callable[[], Sequence[TrialView]], sync: Callable[[], object]) -> None:
        """Sync until these trials of other processes have announced what they evaluate, or are not waited for."""
        self._unannounced.wait(lambda: [trial.frozen for trial in running()], sync)

    def propose(self, number: int, count: int = 1) -> list[Params]:
        """The next configurations, the first with this number."""
        return self.model.propose(number, count)

    def _write(self, action: Callable[["Tables | StorageCalls"], _T]) -> _T:
        """The result of one transaction."""
        storage = self._storage
        if isinstance(storage, StorageCalls):
            return self.store.change(lambda: action(storage))
        return self.store.transaction(lambda connection: action(storage.within(connection)))

    def _change(self, action: Callable[["Tables | StorageCalls"], bool]) -> bool:
        """Change a trial in one transaction; False if it was not as expected, or another process has ended it."""
        try:
            return self._write(action)
        except UpdateFinishedTrialError:
            return False

    def enqueue(self, first: Sequence[Params]) -> None:
        """Queue the configurations that the study does not have yet."""

        def add_missing(storage: Tables | StorageCalls) -> None:
            present = [_configuration(trial, self._space) for trial in storage.trials()]
            for params in first:
                numbers = internal(params, self._space)
                if numbers in present:
                    present.remove(numbers)  # a configuration that is listed twice needs two trials
                else:
                    storage.add_trial(TrialState.WAITING, params, parts(Key.INITIAL, json.dumps(numbers)))

        if first:
            self._write(add_missing)

    # ------------------------------------------------------------ begin a trial

    def begin(
        self,
        expected: int,
        params: Params,
        again: Propose,
        end: Bound = lambda: inf,
        repeat_of: RepeatOf = lambda _: None,
    ) -> TrialView | None:
        """Create a running trial with these parameters; if its number is not ``expected``, with those of ``again``.

        No trial is created with a number of ``end`` or more, evaluated when the number is taken. None if the study
        needs no more trials: ``again`` returned None, or all numbers below ``end`` are taken. What was learned for the
        proposal is written with it.

        While other processes are faster, the trial is proposed again. After MAX_RACES lost races it reserves the next
        number and is proposed for that one, as it always does in a storage without a lock.
        """
        if self._model is not None:
            self._notes |= self._model.memory.unsaved_attributes()
        can_refuse = self._storage.can_refuse
        for _ in range(MAX_RACES if can_refuse else 0):
            try:
                begun = self._create(expected, min(expected + 1, end()), params, repeat_of(params))
                # With another number it does not know what others wrote to a journal while this process was suspended.
                return self._needed(begun, end() if begun.number == expected else 0)
            except NumberTaken as taken:
                expected = taken.number
                if (proposed := again(expected)) is None:
                    return None
                params = proposed
        try:
            reserved = self._create(0, end() if can_refuse else inf)
        except NumberTaken:
            return None  # the caller reads the study, and begins again if more trials are needed
        if can_refuse or reserved.number != expected:
            proposed = again(reserved.number)
            if proposed is None and self._needed(reserved, end()) is None:
                return None
            params = params if proposed is None else proposed
        return self._complete(reserved, params, repeat_of(params))

    def _needed(self, begun: TrialView, end: float) -> TrialView | None:
        """A new trial with a number below ``end``. Otherwise None: others have begun some while this was suspended.

        A number cannot be given back, so the trial is queued then. Nobody evaluates it unless it is needed.
        """
        if begun.number < end or self.driver is None:  # people need every trial that they ask for
            return begun
        self.put_back(begun, 0, self.driver)
        return None

    def _create(self, low: int, high: float, params: Params | None = None, repeat: int | None = None) -> TrialView:
        """Create a running trial with a number in [low, high); raise `NumberTaken` and change nothing if none is free.

        Without ``params`` it only reserves the number. ``repeat`` is the trial that it repeats.
        """
        marks = {} if params is None else self._marks(repeat)
        attributes = {Key.DRIVER: self.driver, **marks}

        def add(storage: Tables | StorageCalls) -> tuple[int, int]:
            return storage.add_trial(TrialState.RUNNING, params or {}, attributes, low, high, self._notes)

        created = _running(*self._write(add), params or {}, attributes)
        self._notes = {}
        return self._begun(created)

    def _complete(self, reserved: TrialView, params: Params, repeat: int | None) -> TrialView:
        """Write the parameters of a trial that has only its number."""
        marks = self._marks(repeat)

        def write(storage: Tables | StorageCalls) -> None:
            storage.restart(reserved.id)
            storage.set_trial_attributes(reserved.id, marks)
            storage.set_params(reserved.id, params)

        self._write(write)
        return self._begun(_running(reserved.id, reserved.number, params, marks))

    def _marks(self, repeat: int | None) -> dict[str, Any]:
        """The attributes of a new trial."""
        seen = {} if self._model is None else self._model.seen.attributes()
        return seen if repeat is None else {Key.REPEAT: repeat, **seen}

    def _begun(self, trial: TrialView) -> TrialView:
        """A trial whose marks were written, if it has them already."""
        if self._model is not None and f"{Key.SEEN}:0" in trial.frozen.system_attrs:
            self._model.seen.written()
        return trial

    def claim(self, trial: TrialView) -> tuple[TrialView, str] | None:
        """Take a queued trial; None if another process was faster. The model chooses the parameters that it lacks.

        Returns the trial that now runs, and why it cannot be evaluated; empty if it can.
        """
        name = {Key.DRIVER: self.driver}  # nobody would take over a trial that runs without a name

        def take(storage: Tables | StorageCalls) -> bool:
            if not storage.change_state(trial.id, [TrialState.WAITING], TrialState.RUNNING, system_attrs=name):
                return False
            storage.set_trial_attributes(trial.id, name)  # without a lock, another name may be there now
            return True

        if not self._change(take):
            return None
        fixed = trial.handling.fixed(self._space)
        claimed, why = copy(trial.frozen), ""
        claimed.state, claimed.params = TrialState.RUNNING, {} if self._defines else dict(fixed)
        fills = self._model is not None and not self._defines
        try:
            if fills and not self.model.space.has(fixed):
                claimed.params = self.model.complete(fixed, trial.number)
                self.model.memory.forget_unsaved()
            if self._model is not None:
                self._model.optimizer.planner.check_feasible(claimed.params)
        except ValueError as error:
            why = f"it was enqueued with {fixed}: {error}"

        def fill(storage: Tables | StorageCalls) -> bool:
            if not storage.unfinished([trial.id]):
                return False
            storage.set_params(trial.id, claimed.params, trial.params)
            return True

        # While this process was suspended, another one may have taken the trial over and ended it.
        if fills and not why and not self._change(fill):
            return None
        return TrialView(claimed), why

    # ------------------------------------------------------------ change a trial

    def report(self, values: Mapping[int, Mapping[int, float]]) -> set[int]:
        """Write intermediate values by step, by the id of their trial; returns the ids of trials that had ended."""

        def write(storage: Tables | StorageCalls) -> set[int]:
            unfinished = storage.unfinished(values)
            storage.report({trial_id: steps for trial_id, steps in values.items() if trial_id in unfinished})
            return values.keys() - unfinished

        return self._write(write)

    def note(self, trial: TrialView, *, attempts: int | None = None, steps: int | None = None) -> None:
        """Write how often a running trial has died, or how far it had got then."""
        counts = {Key.ATTEMPTS: attempts, Key.STEPS: steps}
        self.store.set_trial_attributes(trial.id, {key: count for key, count in counts.items() if count is not None})

    def note_start(self, trial: TrialView, deaths: int) -> None:
        """Record that a worker starts a trial. Called in any thread, before the objective is."""
        # If the storage does not answer, the evaluation continues, and a death of its driver will not count.
        with suppress(Exception):
            self.store.storage.set_trial_system_attr(trial.id, Key.BEGAN, f"{self.driver} {deaths}")

    def put_back(self, trial: TrialView, attempts: int, driver: str) -> None:
        """Queue a trial that ``driver`` ran, with its new count of attempts; nothing if another driver has it."""

        def queue(storage: Tables | StorageCalls) -> bool:
            # The state first: a kill in between repeats an attempt, but never counts one that was not made.
            if not storage.change_state(trial.id, [TrialState.RUNNING], TrialState.WAITING, driver=driver):
                return False
            storage.set_trial_attributes(trial.id, {Key.ATTEMPTS: attempts})
            return True

        self._change(queue)

    def pause(self, trial: TrialView, step: int, metrics: Mapping[str, Any], seconds: float | None = None) -> bool:
        """Pause a trial that this driver runs, after this step; False if this driver no longer runs it."""
        if seconds is not None:
            with suppress(UpdateFinishedTrialError):  # another process has ended it
                self.store.set_trial_attributes(trial.id, {Key.SECONDS: seconds})
        paused, at = {**metrics, Key.PAUSED: step}, {Key.PAUSE: [step, time.time()]}
        return self._change(
            lambda storage: storage.change_state(
                trial.id,
                [TrialState.RUNNING],
                TrialState.WAITING,
                driver=self.driver,
                user_attrs=paused,
                system_attrs=at,
            )
        )

    def unpause(self, trial: TrialView) -> None:
        """Mark a paused trial as running again, after `claim`. After a kill before this it is still paused."""
        self._write(lambda storage: storage.set_user_attributes(trial.id, {Key.PAUSED: None}))

    def finish(self, trial: TrialView, result: Result) -> bool:
        """End a trial; False if another process has ended it."""
        return self._change(
            lambda storage: storage.change_state(
                trial.id,
                [TrialState.RUNNING, TrialState.WAITING],
                result.state,
                values=result.values or None,
                user_attrs=result.user_attrs,
                system_attrs=result.system_attrs,
            )
        )

    def add(self, params: Params, result: Result) -> int:
        """Record a trial that nobody asked for; its number."""
        trial = create_trial(
            state=result.state,
            values=result.values or None,
            params=params,
            distributions={name: self._space[name] for name in params},
            user_attrs=result.user_attrs,
            system_attrs=result.system_attrs,
        )
        return self.store.trial(self.store.add(trial)).number

    def correct(self, trial: TrialView, result: Result) -> bool:
        """Change the result of a trial that has ended; the old one is kept as `Key.CORRECTIONS`.

        The model of the study is learned again. False if another process has corrected it since it was read. Raises a
        ValueError if the storage cannot do it.
        """
        kept = {key: value for key, value in trial.frozen.system_attrs.items() if not key.startswith(OF_RESULT)}
        system, corrections = {**kept, **result.system_attrs}, len(trial.handling.corrections)

        def write(storage: Tables | StorageCalls) -> bool:
            if not isinstance(storage, Tables):
                raise ValueError(
                    "a value that was told can be changed in a database only, not in this storage; copy the study with "
                    "optuna.copy_study to an SQLite file and correct it there"
                )
            known = storage.trials()[trial.number]
            had = {"user_attrs": known.user_attrs, "system_attrs": known.system_attrs}
            earlier = had["user_attrs"].pop(Key.CORRECTIONS, [])
            if known.state not in (TrialState.COMPLETE, TrialState.FAIL) or len(earlier) != corrections:
                return False
            storage.replace_result(trial.id, result.state, result.values)
            storage.set_trial_attributes(trial.id, system)
            before = {"state": known.state.name, "values": known.values or []}
            for kind, now in (("user_attrs", result.user_attrs), ("system_attrs", system)):
                before[kind] = {key: value for key, value in had[kind].items() if now.get(key, value) != value}
            record = {**before, "corrected": datetime.now(UTC).isoformat(timespec="seconds")}
            storage.set_user_attributes(trial.id, {**result.user_attrs, Key.CORRECTIONS: [*earlier, record]})
            storage.set_study_attributes(rewritable_parts(Key.MODEL, "{}"))
            return True

        corrected = self._write(write)
        drop_cache(self.store.storage, self.store.study_id)
        return corrected


def _running(trial_id: int, number: int, params: Params, attributes: Mapping[str, Any]) -> TrialView:
    """A trial that this process has begun."""
    return TrialView(
        FrozenTrial(
            number=number,
            state=TrialState.RUNNING,
            value=None,
            datetime_start=None,
            datetime_complete=None,
            params=params,
            distributions={},
            user_attrs={},
            system_attrs=dict(attributes),
            intermediate_values={},
            trial_id=trial_id,
        )
    )


def internal(params: Mapping[str, Any], space: Distributions) -> dict[str, float]:
    """Parameters as Optuna's internal numbers, which can be compared."""
    return {name: float(space[name].to_internal_repr(value)) for name, value in as_given(params, space).items()}


def _configuration(trial: FrozenTrial, space: Distributions) -> object:
    """The configuration that a trial was queued with, or else its parameters, as internal numbers.

    None if it is from another space, or cannot be read.
    """
    try:
        if f"{Key.INITIAL}:0" in trial.system_attrs:
            return object_of(trial.system_attrs, Key.INITIAL)
        return internal(params_in(space, trial.params) or trial.system_attrs.get("fixed_params", {}), space)
    except codec.INVALID:
        return None
