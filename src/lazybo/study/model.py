"""StudyModel: an optimiser that learns from the trials of a study and is stored with the study.

Finished trials are observations, whichever process ran them. Running trials are pending, with a forecast of where they
end if they report a learning curve; so are paused ones. Stopped trials count with a forecast.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.core import checks
from lazybo.search import Optimizer, Options, Suggestion
from lazybo.space import Space
from lazybo.study.attributes import Key, announcement
from lazybo.study.definition import check_format, directions_of, options_of, reporting_of
from lazybo.study.feed import Feed
from lazybo.study.memory import Memory
from lazybo.study.store import Store
from lazybo.study.training_curves import Final, TrainingCurves
from lazybo.study.trial import TrialView, evaluations_of, feasible_of, params_in

# A running trial gets a forecast after MIN_WATCHED values, and a new one when their number has grown by WATCHED_GROWTH.
MIN_WATCHED = 2
WATCHED_GROWTH = 1.2
# A trial that waits and has one of these attributes has run before.
BEGUN = {Key.ATTEMPTS, Key.PAUSE}


@dataclass(frozen=True)
class _Open:
    """A trial whose value the model does not know.

    It is pending as a suggestion, unless its parameters are from another space. A stopped trial waits until there is a
    forecast of its final value, which then counts as its value.
    """

    state: Literal["running", "paused", "stopped", "forecast"] = "running"
    suggestion: Suggestion | None = None
    watched: int = 0  # the number of reported values that the forecast of a running trial was made from
    step: int | None = None  # after which it was paused
    told: Final | None = None  # the forecast of a paused or stopped trial as it was told
    ended: FrozenTrial | None = None  # a stopped trial


class StudyModel:
    """An optimiser, and the trials that it has learned from.

    ``reports`` is the position of the objective that trials report. If ``watches``, running trials have a forecast.
    """

    def __init__(self, optimizer: Optimizer, reports: int = 0) -> None:
        self.optimizer, self.space = optimizer, optimizer.space
        self.reports, self.watches = reports, True
        self.space_outdated = False  # a trial was not a configuration of the space
        self.curves = TrainingCurves(self.space, optimizer.directions[reports], objective=reports)
        self.memory = Memory(optimizer)
        self.seen = self.memory.seen
        self._feed = Feed()
        self._open: dict[int, _Open] = {}  # by number, in the order in which they came to their states

    def absorb(self, trials: Sequence[FrozenTrial], except_number: int) -> None:
        """Observe the trials that finished; those that run or will run again with known parameters become pending.

        Rows are in the order of numbers. Curves are in the order in which trials ended or were last paused, which is
        another one if trainings are paused. Both are the same as in an uninterrupted run.
        """
        news = [TrialView(trial) for trial in self._feed.news(trials) if trial.number != except_number]
        if any(Key.PAUSE in trial.frozen.system_attrs for trial in news):
            for trial in news:
                self._announce_again(trial)
            news.sort(key=lambda trial: trial.handling.ended_at)
        for trial in news:
            if trial.has_ended:
                self.settle(trial.frozen)
            elif trial.is_paused:
                self.hold(trial.frozen)
            else:
                self._announce_again(trial)
        for trial in news:
            if trial.state == "running":
                self.watch(trial.number, trial.reported)

    def _announce_again(self, trial: TrialView) -> None:
        """Note that a trial of another process, or of an earlier one, has begun, unless that is known."""
        params, known = trial.handling.announced(self.space.distributions), self._open.get(trial.number, _Open())
        has_begun = trial.frozen.state != TrialState.WAITING or not trial.frozen.system_attrs.keys().isdisjoint(BEGUN)
        is_known = known.suggestion is not None and (trial.is_paused or known.state != "paused")
        if params and has_begun and not is_known and not self._feed.is_settled(trial.frozen):
            self.announce(trial.number, params)

    def announce(self, number: int, params: Mapping[str, Any]) -> None:
        """Note that a trial runs with these parameters. It becomes pending if they are a configuration of the space.

        A trial that was paused keeps the forecast of its value.
        """
        before = self._open.get(number, _Open())
        self._announce(number, params)
        if before.state == "paused" or before.suggestion is not self._open[number].suggestion:
            self.seen.note(f"a{number}")

    def _announce(self, number: int, params: Mapping[str, Any], *, outside: bool = False) -> None:
        """The same as a part of another event. With ``outside``, numbers may lie outside their range."""
        known, params = self._open.get(number, _Open()), params_in(self.space.distributions, params)
        if known.state == "paused":
            self.curves.remove_paused(number)
        pending = known.suggestion
        if pending is not None and self.pending_params(number) != params:
            self.optimizer.forget(pending)
            pending = None
        if pending is None:
            # If they are incomplete or from another space, the trial is observed when it has finished.
            with suppress(ValueError):
                pending = self.optimizer.announce(params, outside=outside)
        self._enter(number, _Open("running", pending, known.watched))

    def _enter(self, number: int, known: _Open) -> None:
        """A trial comes to a state, as the last one."""
        self._open.pop(number, None)
        self._open[number] = known

    def pending_params(self, number: int) -> dict[str, Any]:
        """The parameters of a running trial; empty if unknown."""
        suggestion = self._open.get(number, _Open()).suggestion
        return {} if suggestion is None else {**self.space.store(suggestion.params)}

    # ------------------------------------------------------------------- proposals

    def next_repeat(self, trials: Sequence[FrozenTrial]) -> tuple[dict[str, Any], int | None] | None:
        """The configuration to repeat in a final check, and the number of its first trial; None if one leads."""
        self.tell_forecasts()
        self.seen.note("x")
        evaluations = evaluations_of(feasible_of(map(TrialView, trials)), self.space)
        chosen = self.optimizer.planner.propose_repeat(evaluations)
        return None if chosen is None else (params_in(self.space.distributions, chosen.params), chosen.number)

    def propose(self, number: int, count: int = 1) -> list[dict[str, Any]]:
        """The next configurations, the first with this number (`Planner.propose`)."""
        self.tell_forecasts()
        planner = self.optimizer.planner
        if self.optimizer.options.cost is not None:
            self.seen.note(f"b{planner.budget_left!r}")
        self.seen.note(f"q{number}.{count}")
        return planner.propose(number, count)

    def complete(self, fixed: Mapping[str, Any], number: int) -> dict[str, Any]:
        """A configuration with the ``fixed`` values (`Planner.complete`)."""
        self.tell_forecasts()
        self.seen.note(f"c{number}")
        return self.optimizer.planner.complete(fixed, number)

    def announcement(self, number: int, *, always: bool, extra: Mapping[str, Any] | None = None) -> dict[str, str]:
        """The parameters of a trial, what is not saved yet, and ``extra``, as attributes of the trial.

        Empty if everything learned is saved, unless it is ``always`` needed.
        """
        learned = self.memory.unsaved()
        if not learned and not always:
            return {}
        return announcement(self.pending_params(number), self.space.distributions, {**learned, **(extra or {})})

    # ------------------------------------------------------------------- forecasts

    def tell_forecasts(self) -> None:
        """Observe the forecasts of stopped and paused trials that are new or have changed.

        Every suggestion begins with this, and nothing else in a run does: so what the model sees depends on the trials
        and their order, not on what happened to be forecast before a kill.
        """
        if any(known.state != "running" for known in self._open.values()):
            forecasts = self.curves.forecasts()
            self._tell_stopped(forecasts)
            self._tell_paused(forecasts)
        elif self.memory.basis:  # the curves count only while there are forecasts
            self.memory.basis = ""
            self.optimizer.planner.rebuild(self.reports)

    def _tell_stopped(self, forecasts: Mapping[int, Final]) -> None:
        """Observe the forecasts of stopped trials, and build the process again if the model of curves was.

        So a resumed run gets the same numbers, whichever forecasts were made before it stopped.
        """
        revised = {}
        for number, known in self._open.items():
            if known.state == "forecast" and number in forecasts and forecasts[number] != known.told:
                assert known.suggestion is not None, "a forecast was told for it"
                revised[known.suggestion.number] = forecasts[number]
                self._open[number] = replace(known, told=forecasts[number])
        self.optimizer.planner.revise(revised, objective=self.reports)
        basis = self.curves.basis
        if forecasts and basis != self.memory.basis:
            self.memory.basis = basis
            self.optimizer.planner.rebuild(self.reports, noise_range=self.curves.noise())
        stopped = [n for n, known in self._open.items() if known.state == "stopped" and n in forecasts]
        for number in stopped:
            known = self._open.pop(number)
            if known.suggestion is not None and known.ended is not None:
                measured = _measured(TrialView(known.ended), self.optimizer.options.cost)
                self.optimizer.forecast(
                    known.suggestion, *forecasts[number], objective=self.reports, stopped=True, **measured
                )
                self._enter(number, _Open("forecast", known.suggestion, told=forecasts[number]))

    def _tell_paused(self, forecasts: Mapping[int, Final]) -> None:
        """Learn the forecasts of paused trials that are new or have changed; without one a trial is only pending."""
        for number, known in self._open.items():
            forecast, suggestion = forecasts.get(number), known.suggestion
            if known.state != "paused" or suggestion is None or forecast == known.told:
                continue
            self._open[number] = replace(known, told=forecast)
            if forecast is None:
                self.optimizer.planner.withdraw(suggestion)
            else:
                self.optimizer.forecast(suggestion, *forecast, objective=self.reports)

    def watch(self, number: int, values: Mapping[int, float]) -> None:
        """Learn where a running trial is expected to end, from the values that it has reported so far.

        It stays pending. The forecast is made again when the number of values has grown by a fifth. A trial that
        repeats a configuration has none: it is run to measure the noise, and a forecast says nothing about that.
        """
        known, count = self._open.get(number, _Open()), len(values)
        if not self.watches or known.suggestion is None or count < max(MIN_WATCHED, WATCHED_GROWTH * known.watched):
            return
        if not math.isfinite(values[max(values)]) or self.optimizer.planner.repeats(known.suggestion):
            return
        forecast = self.curves.final_forecast(self.pending_params(number), values)
        if forecast is not None:
            self._open[number] = replace(known, watched=count)
            self.seen.note(f"w{number}.{count}")
            self.optimizer.forecast(known.suggestion, *forecast, objective=self.reports)

    # -------------------------------------------------------------- finished trials

    def settle(self, trial: FrozenTrial) -> None:
        """Observe a trial that finished; forecasts of others that change with it are not told yet.

        A second call for the same trial does nothing.
        """
        if not self._feed.settle(trial):
            return
        self.memory.finished = len(self._feed)
        self.seen.note(f"f{trial.number}")
        self.curves.remove_paused(trial.number)
        self.curves.add(trial)
        view, step = TrialView(trial), trial.last_step
        if view.state == "pruned" and step is not None and math.isfinite(trial.intermediate_values[step]):
            self._announce(trial.number, trial.params)
            if self._open[trial.number].suggestion is None:
                self.space_outdated = True
                self._announce(trial.number, trial.params, outside=True)
            # It stays pending until there is a forecast of its final value.
            self._enter(trial.number, _Open("stopped", self._open[trial.number].suggestion, ended=trial))
        elif view.state == "complete":
            several = len(self.optimizer.directions) > 1
            self._teach(view, view.values if several else view.value, view.variance)
        elif view.state == "skipped":
            known = self._open.pop(trial.number, _Open())
            if known.suggestion is not None:
                self.optimizer.forget(known.suggestion)
        else:
            self._teach(view, None, 0.0)

    def _teach(self, trial: TrialView, value: float | Sequence[float] | None, variance: float) -> None:
        """Observe a value of a trial, its measured constraints, and its cost."""
        measured = {**_measured(trial, self.optimizer.options.cost), "variance": variance}
        params = params_in(self.space.distributions, trial.params)
        pending = self.pending_params(trial.number)
        suggestion = self._open.pop(trial.number, _Open()).suggestion
        if suggestion is not None and pending == params:
            self.optimizer.tell(suggestion, value, **measured)
            return
        if suggestion is not None:
            self.optimizer.forget(suggestion)
        try:
            self.optimizer.observe(params, value, outside=True, **measured)
        except ValueError:
            # It is from another space, or it failed before it had its parameters, and there is nothing to observe.
            self.space_outdated = self.space_outdated or not trial.has_failed

    def hold(self, trial: FrozenTrial) -> None:
        """A paused trial is pending, and its curve is known to the model of curves; its forecast is not told yet."""
        known = self._open.get(trial.number, _Open())
        if known.step != trial.last_step:
            self.seen.note(f"p{trial.number}.{trial.last_step}")
            self._announce(trial.number, trial.params)
            self.curves.add_paused(trial)
            known = self._open[trial.number]
            self._enter(trial.number, _Open("paused", known.suggestion, known.watched, trial.last_step))


def _measured(trial: TrialView, cost: str | None) -> dict[str, Any]:
    """The measured constraints of a trial, and its cost, as arguments of `Optimizer.tell`."""
    measured: dict[str, Any] = {"constraints": trial.constraints}
    if cost is not None:
        measured["seconds" if cost == checks.SECONDS else "cost"] = trial.cost(cost)
    return measured


def open_model(study: Study, options: Options, space: Space, trials: Sequence[FrozenTrial]) -> StudyModel:
    """A model with what this study has learned earlier; no trials loaded."""
    check_format(study)
    model = StudyModel(Optimizer.with_options(space, directions_of(study), options), reporting_of(study))
    model.memory.recall(Store(study).attributes(), trials)
    return model


def model_of(study: Study, trials: Sequence[FrozenTrial]) -> StudyModel:
    """The model that the last run or sampler of a study would continue with, with all trials loaded."""
    model = open_model(study, *options_of(study, trials), trials)
    model.absorb(trials, -1)
    model.tell_forecasts()
    return model
