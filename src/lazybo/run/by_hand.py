"""Experiments that people make: the next configurations of a study, and the measurements.

A configuration that somebody asked for is a running trial without a driver, so no run takes it over. It is pending
until somebody tells its values. Several people may ask at the same time: each gets their own number and configuration,
like several drivers (`lazybo.study.ledger`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from lazybo.core import checks
from lazybo.run.goals import Goals
from lazybo.search import Options
from lazybo.space import Space
from lazybo.study import (
    CORRECTIONS_KEY,
    DRIVER_KEY,
    SECONDS,
    SECONDS_KEY,
    SKIPPED_KEY,
    VARIANCE_KEY,
    Entry,
    Result,
    Store,
    StudyModel,
    as_attributes,
    as_given,
    is_cost,
    is_paused,
    of_trial,
    open_ledger,
    open_model,
    options_digest,
)

TOLD = (TrialState.COMPLETE, TrialState.FAIL)
FAILED = "the experiment failed"
SKIPPED = "nobody made this experiment"
# A table that names a trial may have rounded its parameters: by at most this share of their ranges.
ROUNDING = 0.01


@dataclass(frozen=True)
class Measurement:
    """The result of an experiment; ``values`` is None if it failed. A correction has None for values that stay.

    ``metrics`` has other numbers and notes by name: for constraints, the cost, anything to keep. ``variance`` is the
    known variance of the noise in each value, ``seconds`` the time that the experiment took.
    """

    values: tuple[float | None, ...] | None
    metrics: Mapping[str, float | str] = field(default_factory=dict)
    variance: tuple[float, ...] | None = None
    seconds: float | None = None


class ByHand:
    """A study whose experiments are made by hand."""

    def __init__(self, study: Study, options: Options, space: Space, goals: Goals) -> None:
        self.study, self.space, self.goals = study, space, goals
        self._options, self._store = options, Store(study)
        self._ledger = open_ledger(study, space.distributions, None)

    # ------------------------------------------------------------------- ask

    def enqueue(self, initial: Sequence[Mapping[str, Any]]) -> None:
        """Queue the configurations that the study does not have yet, to be asked first."""
        self._ledger.enqueue([dict(params) for params in initial])

    def ask(self, n: int) -> list[Entry]:
        """The next n configurations: queued ones first, then suggestions of the model. Each is pending."""
        trials = self._store.trials()
        model = open_model(self.study, self._options, self.space, trials)
        model.seen.record(options_digest(self._options), predicate=self.space.feasible is not None)
        model.absorb(trials, -1)
        found = self._claim_queued(model, trials, n)
        number = len(trials)
        while len(found) < n:
            for params in model.propose(number, n - len(found)):
                self._ledger.note(model.unsaved_attributes())
                again = partial(self._propose_again, model)
                entry = self._ledger.begin(number, params, again, mark=lambda _: model.seen.attributes())
                assert entry is not None, "there is no last number"
                model.seen.written()
                model.announce(entry.number, entry.params)
                found.append(entry)
                number = entry.number + 1
                if entry.params is not params:
                    break  # somebody else has asked in the meantime, and the other proposals do not know that
        return found

    def _propose_again(self, model: StudyModel, number: int) -> dict[str, Any]:
        """The proposal for ``number``, after others took the numbers before it."""
        model.absorb(self._store.trials(), number)
        return model.propose(number)[0]

    def _claim_queued(self, model: StudyModel, trials: Sequence[FrozenTrial], n: int) -> list[Entry]:
        """Up to n feasible trials of the queue; the model chooses the parameters that they leave open."""
        found: list[Entry] = []
        for trial in trials:
            if len(found) == n or trial.state != TrialState.WAITING or is_paused(trial):
                continue
            if not self._ledger.claim(trial._trial_id):
                continue  # somebody else was faster
            fixed = as_given(trial.params or trial.system_attrs.get("fixed_params", {}), self.space.distributions)
            try:
                params = dict(fixed) if self.space.has(fixed) else model.complete(fixed, trial.number)
                model.optimizer.planner.check_feasible(params)
            except ValueError as error:
                self._finish(trial, _skipped(f"it was enqueued with {fixed}: {error}"))
                continue
            self._ledger.fill_in(trial._trial_id, trial.params, params)
            model.announce(trial.number, params)
            found.append(Entry(trial._trial_id, trial.number, params))
        return found

    def pending(self) -> list[Entry]:
        """The configurations that were asked for and not told yet, by number."""
        running = [trial for trial in self._store.trials() if trial.state == TrialState.RUNNING]
        ours = [trial for trial in running if trial.system_attrs.get(DRIVER_KEY) is None]
        return [Entry(trial._trial_id, trial.number, trial.params) for trial in ours]

    # ------------------------------------------------------------------ tell

    def tell(self, number: int, measured: Measurement) -> None:
        """Record the result of an experiment that somebody asked for."""
        self._finish(self.pending_trial(number), self.result(measured))

    def skip(self, number: int) -> None:
        """Nobody will make this experiment. It is no longer pending, and the model learns nothing from it."""
        self._finish(self.pending_trial(number), _skipped(SKIPPED))

    def correct(self, number: int, measured: Measurement) -> None:
        """Change the result of an experiment. What is not given stays; the old result is kept."""
        trial = self.trial(number)
        if trial.state not in TOLD:
            raise ValueError(f"trial {number} has no value to correct: it is {trial.state.name.lower()}")
        result = self._corrected(trial, measured)
        system = {key: value for key, value in trial.system_attrs.items() if not _is_result(key)}
        result = Result(result.state, None, result.user_attrs, {**system, **result.system_attrs}, result.several)
        corrections = trial.user_attrs.get(CORRECTIONS_KEY, [])
        if not isinstance(corrections, list):
            where = of_trial(CORRECTIONS_KEY, number)
            raise ValueError(
                f"{where} must be a list, not {checks.shortened(corrections)}; set it to [] with set_user_attr"
            )
        if not self._ledger.correct(Entry(trial._trial_id, number, trial.params), result, len(corrections)):
            raise ValueError(f"trial {number} was corrected by somebody else just now; look at it and try again")
        self._store.forget()

    def _corrected(self, trial: FrozenTrial, measured: Measurement) -> Result:
        """The result of a trial that was told, with what is given in place of what it has."""
        return self.result(_merged(trial, measured, self.goals))

    def says(self, trial: FrozenTrial, measured: Measurement) -> bool:
        """Whether a trial that was told has this result. Raises a ValueError if it cannot be corrected to it."""
        result = self._corrected(trial, measured)
        variance = result.system_attrs.get(VARIANCE_KEY) == trial.system_attrs.get(VARIANCE_KEY)
        known = all(trial.user_attrs.get(name) == value for name, value in result.user_attrs.items())
        return result.state == trial.state and result.values == trial.values and known and variance

    def add(self, params: Mapping[str, Any], measured: Measurement) -> int:
        """Record an experiment that nobody asked for; its number."""
        plain, result = self.space.plain(params), self.result(measured)
        trial = create_trial(
            state=result.state,
            values=result.values,
            params=plain,
            distributions={name: self.space.distributions[name] for name in plain},
            user_attrs=dict(result.user_attrs),
            system_attrs=dict(result.system_attrs),
        )
        return self._store.trial(self._store.add(trial)).number

    def repeat(self, number: int, measured: Measurement) -> int:
        """Record another measurement with exactly the parameters of an experiment; the number of the new trial."""
        trial = self.trial(number)
        if not trial.state.is_finished() or SKIPPED_KEY in trial.system_attrs:
            raise ValueError(f"trial {number} has no result, so this is not a repeat; leave out --repeat")
        return self.add(as_given(trial.params, self.space.distributions), measured)

    def _finish(self, trial: FrozenTrial, result: Result) -> None:
        if not self._ledger.finish(Entry(trial._trial_id, trial.number, trial.params), result):
            raise ValueError(f"trial {trial.number} was told by somebody else just now; nothing was changed")

    # ------------------------------------------------------------------ look

    def trial(self, number: int) -> FrozenTrial:
        """A trial of the study by its number."""
        trials = self._store.trials()
        if not 0 <= number < len(trials):
            there = f"0 to {len(trials) - 1}" if trials else "none; ask first"
            raise ValueError(f"there is no trial {number} in the study {self.study.study_name!r}; it has {there}")
        return trials[number]

    def pending_trial(self, number: int) -> FrozenTrial:
        """A trial that waits for its value."""
        trial = self.trial(number)
        if trial.state.is_finished():
            shown = trial.values[0] if trial.values and len(trial.values) == 1 else trial.values
            skipped = SKIPPED_KEY in trial.system_attrs
            had = f"with the value {shown}" if trial.values else "as skipped" if skipped else "as failed"
            again = "" if skipped else ", or --repeat if it was measured once more"
            raise ValueError(f"trial {number} was told already, {had}; give --correct to change it{again}")
        if trial.state == TrialState.WAITING:
            raise ValueError(f"trial {number} is queued and was not asked for yet; ask first")
        if trial.system_attrs.get(DRIVER_KEY) is not None:
            raise ValueError(f"trial {number} is evaluated by a run, which tells its value itself")
        return trial

    def agrees(self, trial: FrozenTrial, params: Mapping[str, Any]) -> bool:
        """Whether these are the parameters of a trial, perhaps rounded; some may be left out."""
        theirs = as_given(trial.params, self.space.distributions)
        if not params.keys() <= theirs.keys():
            return False
        try:
            given, known = (self.space.points.encode(each) for each in ({**theirs, **params}, theirs))
        except ValueError:  # a choice that the space does not have
            return False
        numeric = self.space.points.numeric
        close = np.allclose(given[numeric], known[numeric], rtol=0, atol=ROUNDING, equal_nan=True)
        return bool(close and np.array_equal(given[~numeric], known[~numeric], equal_nan=True))

    @staticmethod
    def was_told(trial: FrozenTrial) -> bool:
        """Whether the result of a trial is known."""
        return trial.state in TOLD

    def result(self, measured: Measurement) -> Result:
        """The record of a measurement; raises a ValueError if something is missing or wrong."""
        system: dict[str, Any] = {}
        if measured.variance is not None:
            system[VARIANCE_KEY] = self._variance(measured.variance)
        if measured.seconds is not None:
            system[SECONDS_KEY] = checks.positive("seconds", measured.seconds)
        user = dict(measured.metrics)
        if measured.values is None:
            known = {bound.metric for bound in self.goals.bounds} <= user.keys()
            violations = self._violations(user) if known else {}
            return Result(TrialState.FAIL, None, user, {"fail_reason": FAILED, **system, **as_attributes(violations)})
        count, names = len(self.goals.directions), self.goals.names or ()
        if len(measured.values) != count:
            expected = f"{count} values, one for each objective" if count > 1 else "one value"
            raise ValueError(f"expected {expected}{': ' * bool(names)}{', '.join(names)}, not {len(measured.values)}")
        if None in measured.values:
            lacking = [names[i] if names else f"number {i}" for i, each in enumerate(measured.values) if each is None]
            raise ValueError(
                f"the value of {' and of '.join(lacking)} is missing; if it cannot be measured, the "
                "experiment failed: what was measured all the same is kept with it"
            )
        values = tuple(checks.finite_number("the value", value) for value in measured.values)
        self._check_cost(measured)
        return Result(TrialState.COMPLETE, None, user, {**system, **as_attributes(self._violations(user))}, values)

    def _check_cost(self, measured: Measurement) -> None:
        """Raise a ValueError if the cost is missing. The time between asking and telling is not the experiment's."""
        cost = self._options.cost
        if cost == SECONDS and measured.seconds is None:
            raise ValueError("the cost of this study is the time that experiments take: give --seconds NUMBER")
        if cost not in (None, SECONDS) and not is_cost(measured.metrics.get(str(cost))):
            raise ValueError(f"the cost {cost!r} is missing or not a positive number: give {cost}=NUMBER")

    def _violations(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        try:
            return self.goals.violations(metrics)
        except KeyError as error:
            name = error.args[0]
            bounds = ", ".join(bound.name for bound in self.goals.bounds)
            raise ValueError(
                f"{name!r} was not measured, but there is the constraint {bounds}: give {name}=NUMBER"
            ) from None

    def _variance(self, given: Sequence[float]) -> float | list[float]:
        count = len(self.goals.directions)
        if len(given) != count:
            raise ValueError(f"expected {count} variance{'s' * (count > 1)}, one for each objective, not {len(given)}")
        for each in given:
            if not (math.isfinite(each) and each >= 0.0):
                raise ValueError(f"a variance must be a number of at least 0, not {checks.shortened(each)}")
        return given[0] if count == 1 else list(given)


def _skipped(reason: str) -> Result:
    return Result(TrialState.FAIL, None, {}, {"fail_reason": reason, SKIPPED_KEY: True})


def _is_result(key: str) -> bool:
    """Whether a system attribute of a trial belongs to its result."""
    return key in ("fail_reason", VARIANCE_KEY, SECONDS_KEY, SKIPPED_KEY) or key.startswith("constraints")


def _merged(trial: FrozenTrial, measured: Measurement, goals: Goals) -> Measurement:
    """A measurement, completed with what the trial has where nothing new is given."""
    known = {name: value for name, value in trial.user_attrs.items() if isinstance(value, int | float | str)}
    variance = trial.system_attrs.get(VARIANCE_KEY)
    if variance is not None:
        variance = (variance,) if len(goals.directions) == 1 else tuple(variance)
    seconds, names = trial.system_attrs.get(SECONDS_KEY), goals.names or ()
    values, metrics = measured.values, {**known, **measured.metrics}
    if values is not None and len(values) == len(goals.directions):
        # An experiment that failed may have the values of some objectives.
        there = trial.values or [trial.user_attrs.get(name) for name in names] or [None] * len(values)
        values = tuple(old if new is None else new for old, new in zip(there, values, strict=True))
        values = None if trial.values is None and values == tuple(there) else values
        now = dict(zip(names, values or (), strict=False))
        metrics |= {name: value for name, value in now.items() if name in metrics and value is not None}
    return Measurement(
        values,
        metrics,
        variance if measured.variance is None else measured.variance,
        seconds if measured.seconds is None else measured.seconds,
    )
