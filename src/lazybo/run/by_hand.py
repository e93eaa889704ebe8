"""Experiments that people make: the next configurations of a study, and the measurements.

A configuration that somebody asked for is a running trial without a driver, so no run takes it over. It is pending
until somebody tells its values. Several people may ask at the same time: each gets their own number and configuration,
like several drivers (`lazybo.study.ledger`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from optuna.study import Study
from optuna.trial import TrialState

from lazybo.core import checks
from lazybo.run.goals import Goals
from lazybo.search import Options
from lazybo.space import Space
from lazybo.study import Result, Session, TrialView

TOLD = ("complete", "failed", "skipped")
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
        self.study, self.space, self.goals, self._options = study, space, goals, options
        self._session = Session(study, space)

    # ------------------------------------------------------------------- ask

    def enqueue(self, initial: Sequence[Mapping[str, Any]]) -> None:
        """Queue the configurations that the study does not have yet, to be asked first."""
        self._session.enqueue([dict(params) for params in initial])

    def ask(self, n: int) -> list[TrialView]:
        """The next n configurations: queued ones first, then suggestions of the model. Each is pending."""
        session = Session(self.study, self.space, options=self._options)
        trials = session.sync().trials

        def again(number: int) -> dict[str, Any]:
            """The proposal for ``number``, after others took the numbers before it."""
            session.sync(number)
            return session.propose(number)[0]

        found = self._claim_queued(session, trials, n)
        number = len(trials)
        while len(found) < n:
            for params in session.propose(number, n - len(found)):
                begun = session.begin(number, params, again)
                assert begun is not None, "there is no last number"
                session.model.announce(begun.number, begun.params)
                found.append(begun)
                number = begun.number + 1
                if begun.params is not params:
                    break  # somebody else has asked in the meantime, and the other proposals do not know that
        return found

    def _claim_queued(self, session: Session, trials: Sequence[TrialView], n: int) -> list[TrialView]:
        """Up to n feasible trials of the queue; the model chooses the parameters that they leave open."""
        found: list[TrialView] = []
        for trial in trials:
            if len(found) == n or trial.state != "waiting" or (taken := session.claim(trial)) is None:
                continue  # if it was not taken, somebody else was faster
            claimed, why_not = taken
            if why_not:
                self._finish(claimed, _skipped(why_not))
            else:
                session.model.announce(claimed.number, claimed.params)
                found.append(claimed)
        return found

    def pending(self) -> list[TrialView]:
        """The configurations that were asked for and not told yet, by number."""
        running = (trial for trial in self._session.read().trials if trial.state == "running")
        return [trial for trial in running if trial.handling.driver is None]

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
            raise ValueError(f"trial {number} has no value to correct: it is {trial.state}")
        if not self._session.correct(trial, self.result(_merged(trial, measured, self.goals))):
            raise ValueError(f"trial {number} was corrected by somebody else just now; look at it and try again")

    def says(self, trial: TrialView, measured: Measurement) -> bool:
        """Whether a trial that was told has this result. Raises a ValueError if it cannot be corrected to it."""
        result = self.result(_merged(trial, measured, self.goals))
        known = all(trial.frozen.user_attrs.get(name) == value for name, value in result.metrics.items())
        same = result.state == trial.frozen.state and list(result.values) == trial.values
        return same and known and result.variance == trial.handling.stored_variance

    def add(self, params: Mapping[str, Any], measured: Measurement) -> int:
        """Record an experiment that nobody asked for; its number."""
        return self._session.add(self.space.plain(params), self.result(measured))

    def repeat(self, number: int, measured: Measurement) -> int:
        """Record another measurement with exactly the parameters of an experiment; the number of the new trial."""
        trial = self.trial(number)
        if not trial.has_ended or trial.state == "skipped":
            raise ValueError(f"trial {number} has no result, so this is not a repeat; leave out --repeat")
        return self.add(trial.given_in(self.space), measured)

    def _finish(self, trial: TrialView, result: Result) -> None:
        if not self._session.finish(trial, result):
            raise ValueError(f"trial {trial.number} was told by somebody else just now; nothing was changed")

    # ------------------------------------------------------------------ look

    def trial(self, number: int) -> TrialView:
        """A trial of the study by its number."""
        trials = self._session.read().trials
        if not 0 <= number < len(trials):
            there = f"0 to {len(trials) - 1}" if trials else "none; ask first"
            raise ValueError(f"there is no trial {number} in the study {self.study.study_name!r}; it has {there}")
        return trials[number]

    def pending_trial(self, number: int) -> TrialView:
        """A trial that waits for its value."""
        trial = self.trial(number)
        if trial.has_ended:
            shown = trial.values[0] if len(trial.values) == 1 else trial.values
            had = f"with the value {shown}" if trial.values else f"as {trial.state}"
            again = "" if trial.state == "skipped" else ", or --repeat if it was measured once more"
            raise ValueError(f"trial {number} was told already, {had}; give --correct to change it{again}")
        if trial.state in ("waiting", "paused"):
            raise ValueError(f"trial {number} is queued and was not asked for yet; ask first")
        if trial.handling.driver is not None:
            raise ValueError(f"trial {number} is evaluated by a run, which tells its value itself")
        return trial

    def agrees(self, trial: TrialView, params: Mapping[str, Any]) -> bool:
        """Whether these are the parameters of a trial, perhaps rounded; some may be left out."""
        theirs = trial.given_in(self.space)
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
    def was_told(trial: TrialView) -> bool:
        """Whether the result of a trial is known."""
        return trial.state in TOLD

    def result(self, measured: Measurement) -> Result:
        """The record of a measurement; raises a ValueError if something is missing or wrong."""
        user, seconds = dict(measured.metrics), measured.seconds
        variance = None if measured.variance is None else self._variance(measured.variance)
        if seconds is not None:
            checks.positive("seconds", seconds)
        if measured.values is None:
            known = {bound.metric for bound in self.goals.bounds} <= user.keys()
            constraints = self._violations(user) if known else {}
            return Result(TrialState.FAIL, (), user, constraints, FAILED, variance=variance, seconds=seconds)
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
        constraints = self._violations(user)
        return Result(TrialState.COMPLETE, values, user, constraints, variance=variance, seconds=seconds)

    def _check_cost(self, measured: Measurement) -> None:
        """Raise a ValueError if the cost is missing. The time between asking and telling is not the experiment's."""
        cost = self._options.cost
        if cost == checks.SECONDS and measured.seconds is None:
            raise ValueError("the cost of this study is the time that experiments take: give --seconds NUMBER")
        if cost not in (None, checks.SECONDS) and not checks.is_cost(measured.metrics.get(str(cost))):
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
    return Result(TrialState.FAIL, reason=reason, skipped=True)


def _merged(trial: TrialView, measured: Measurement, goals: Goals) -> Measurement:
    """A measurement, completed with what the trial has where nothing new is given."""
    known = {name: value for name, value in trial.frozen.user_attrs.items() if isinstance(value, int | float | str)}
    metrics, values, names = {**known, **measured.metrics}, measured.values, goals.names or ()
    if values is not None and len(values) == len(goals.directions):
        values = _merged_values(trial, values, names)
        now = dict(zip(names, values or (), strict=False))
        metrics |= {name: value for name, value in now.items() if name in metrics and value is not None}
    variance, stored = measured.variance, trial.handling.stored_variance
    if variance is None and stored is not None:
        variance = (stored,) if len(goals.directions) == 1 else tuple(stored)
    seconds = trial.handling.measured_seconds if measured.seconds is None else measured.seconds
    return Measurement(values, metrics, variance, seconds)


def _merged_values(
    trial: TrialView, given: Sequence[float | None], names: Sequence[str]
) -> tuple[float | None, ...] | None:
    """Values, completed with those of the trial; None if it failed and nothing new is given.

    An experiment that failed may have the values of some objectives as metrics.
    """
    failed = [trial.frozen.user_attrs.get(name) for name in names] or [None] * len(given)
    there: Sequence[float | None] = trial.values or failed
    merged = tuple(old if new is None else new for old, new in zip(there, given, strict=True))
    return None if not trial.values and merged == tuple(there) else merged
