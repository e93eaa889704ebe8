"""StudyModel: an optimiser that learns from the trials of a study and is stored with the study.

Finished trials are observations, whichever process ran them. Running trials are pending, with a forecast of where they
end if they report a learning curve; so are paused ones. Stopped trials count with a forecast.

What was learned is stored with the study, so that a resumed study or a second process continues with it: with the
trial whose suggestion needed it (`announcement`), or with the study (`unsaved_attributes`).
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.core.checks import whole
from lazybo.core.codec import readable
from lazybo.search.optimizer import Optimizer, Suggestion
from lazybo.search.options import Options
from lazybo.search.records import repeats
from lazybo.search.results import Values
from lazybo.space.space import Space
from lazybo.study.attributes import (
    MODEL_KEY,
    SUGGESTION_KEY,
    announced_params,
    announcement,
    object_of,
    of_trial,
    read_announcement,
    rewritable_parts,
)
from lazybo.study.definition import check_format, options_of, reporting_of
from lazybo.study.feed import Feed
from lazybo.study.seen import Opening, Seen
from lazybo.study.store import Store
from lazybo.study.training_curves import TrainingCurves
from lazybo.study.trial import (
    SECONDS,
    State,
    cost_of,
    directions_of,
    evaluations_of,
    known_variance,
    measured_constraints,
    params_in,
    state_of,
)

_logger = optuna.logging.get_logger("optuna.samplers.lazybo")

# A running trial gets a forecast after MIN_WATCHED values, and a new one when their number has grown by WATCHED_GROWTH.
MIN_WATCHED = 2
WATCHED_GROWTH = 1.2
# The description of a parameter with thousands of choices is long and written with most trials. Its hash is enough.
LONGEST_COLUMN = 500


class StudyModel:
    """An optimiser, and the trials that it has learned from.

    ``reports`` is the position of the objective that trials report. If ``watches``, running trials have a forecast.
    """

    def __init__(self, optimizer: Optimizer, reports: int = 0, *, watches: bool = True) -> None:
        self.optimizer, self.space = optimizer, optimizer.space
        self.reports, self.watches = reports, watches
        self.space_outdated = False  # a trial was not a configuration of the space
        self.curves = TrainingCurves(self.space, optimizer.directions[reports], objective=reports)
        self._feed = Feed()
        self._pending: dict[int, Suggestion] = {}
        self._without_forecast: dict[int, FrozenTrial] = {}  # stopped when too few had completed
        self._forecast: dict[int, Suggestion] = {}  # stopped trials that have a forecast
        self._forecast_at = 0  # `TrainingCurves.learned_at` when these were made
        self._watched: dict[int, int] = {}  # by running trial: the number of values that its forecast was made from
        self._paused: dict[int, int | None] = {}  # the last steps of paused trials, by number
        self._told_paused: dict[int, tuple[int | None, int]] = {}  # the step and `learned_at` of their forecasts
        self._columns = _short_columns([name, str(self.space.distributions[name])] for name in self.space.names)
        self.seen = Seen()
        self.recalled: tuple[str, int] | None = None  # the session, and its number of events, that this one continues
        self._saved = self.learned()  # as it was last written or read

    def absorb(self, trials: Sequence[FrozenTrial], except_number: int) -> None:
        """Observe the trials that finished; those that run with known parameters become pending."""
        news = [trial for trial in self._feed.news(trials) if trial.number != except_number]
        running = [trial for trial in news if trial.state == TrialState.RUNNING]
        for trial in news:
            if trial.state.is_finished():
                self.settle(trial)
            elif state_of(trial) is State.PAUSED:
                self.hold(trial)
            elif trial.state == TrialState.RUNNING and (
                trial.number not in self._pending or trial.number in self._paused
            ):
                self.announce(trial.number, announced_params(trial, self.space.distributions) or trial.params)
        self.tell_stopped()
        self.tell_paused()
        for trial in running:
            self.watch(trial.number, trial.intermediate_values)

    def announce(self, number: int, params: Mapping[str, Any]) -> None:
        """Note that a trial runs with these parameters. It becomes pending if they are a configuration of the space.

        A trial that was paused keeps the forecast of its value.
        """
        before = number in self._paused, self._pending.get(number)
        self._announce(number, params)
        if before != (False, self._pending.get(number)):
            self.seen.note(f"a{number}")

    def _announce(self, number: int, params: Mapping[str, Any], *, outside: bool = False) -> None:
        """The same as a part of another event. With ``outside``, numbers may lie outside their range."""
        self._unpause(number)
        known = params_in(self.space.distributions, params)
        if number in self._pending:
            if self._pending[number].params == known:
                return
            self.optimizer.forget(self._pending.pop(number))
        try:
            self._pending[number] = self.optimizer.announce(known, outside=outside)
        except ValueError:
            return  # its parameters are incomplete or from another space: it is observed when it has finished

    def pending_params(self, number: int) -> dict[str, Any]:
        """The parameters of a running trial; empty if unknown."""
        return self._pending[number].params if number in self._pending else {}

    def next_repeat(self, trials: Sequence[FrozenTrial]) -> tuple[dict[str, Any], int | None] | None:
        """The configuration to repeat in a final check, and the number of its first trial; None if one leads."""
        self.seen.note("x")
        chosen = self.optimizer.planner.propose_repeat(evaluations_of(trials, self.space))
        return None if chosen is None else (params_in(self.space.distributions, chosen.params), chosen.number)

    def propose(self, number: int, count: int = 1) -> list[dict[str, Any]]:
        """The next configurations, the first with this number (`Planner.propose`)."""
        planner = self.optimizer.planner
        if self.optimizer.options.cost is not None:
            self.seen.note(f"b{planner.budget_left!r}")
        self.seen.note(f"q{number}.{count}")
        return planner.propose(number, count)

    def complete(self, fixed: Mapping[str, Any], number: int) -> dict[str, Any]:
        """A configuration with the ``fixed`` values (`Planner.complete`)."""
        self.seen.note(f"c{number}")
        return self.optimizer.planner.complete(fixed, number)

    def finish(self, trial: FrozenTrial) -> None:
        """Observe a trial that finished. A second call for the same trial does nothing."""
        self.settle(trial)
        self.tell_stopped()
        self.tell_paused()

    def pause(self, trial: FrozenTrial) -> None:
        """Observe the forecast of a trial that was paused, until it ends or is paused again."""
        self.hold(trial)
        self.tell_paused()

    def watch(self, number: int, values: Mapping[int, float]) -> None:
        """Learn where a running trial is expected to end, from the values that it has reported so far.

        It stays pending. The forecast is made again when the number of values has grown by a fifth. A trial that
        repeats a configuration has none: it is run to measure the noise, and a forecast says nothing about that.
        """
        suggestion, count = self._pending.get(number), len(values)
        least = max(MIN_WATCHED, WATCHED_GROWTH * self._watched.get(number, 0))
        if not self.watches or suggestion is None or count < least:
            return
        if not math.isfinite(values[max(values)]) or repeats(self.optimizer.planner.records, suggestion):
            return
        forecast = self.curves.final_forecast(suggestion.params, values)
        if forecast is not None:
            self._watched[number] = count
            self.seen.note(f"w{number}.{count}")
            self.optimizer.forecast(suggestion, *forecast, objective=self.reports)

    # -------------------------------------------------------------- finished trials

    def settle(self, trial: FrozenTrial) -> None:
        """Observe a trial that finished; forecasts of others that change with it are not told yet."""
        if not self._feed.settle(trial):
            return
        self.seen.note(f"f{trial.number}")
        self._unpause(trial.number)
        self._watched.pop(trial.number, None)
        self.curves.add(trial)
        state = state_of(trial)
        if state is State.COMPLETE:
            several = len(self.optimizer.directions) > 1
            self._teach(trial, trial.values if several else trial.value, known_variance(trial))
        elif state is State.STOPPED:
            self._finish_stopped(trial)
        elif state is State.FAILED:
            self._teach(trial, None, 0.0)
        elif trial.number in self._pending:  # skipped
            self.optimizer.forget(self._pending.pop(trial.number))

    def _finish_stopped(self, trial: FrozenTrial) -> None:
        """A stopped trial stays pending until there is a forecast of its final value.

        A trial that reported nothing, or whose last value is not finite, counts as failed.
        """
        step = trial.last_step
        if step is None or not math.isfinite(trial.intermediate_values[step]):
            self._teach(trial, None, 0.0)
            return
        self._without_forecast[trial.number] = trial
        self._announce(trial.number, trial.params)
        if trial.number not in self._pending:
            self.space_outdated = True
            self._announce(trial.number, trial.params, outside=True)

    def _teach(self, trial: FrozenTrial, value: Values, variance: float) -> None:
        """Observe a value of a trial, its measured constraints, and its cost."""
        measured = {**_measured(trial, self.optimizer.options.cost), "variance": variance}
        params = params_in(self.space.distributions, trial.params)
        suggestion = self._pending.pop(trial.number, None)
        if suggestion is not None and suggestion.params == params:
            self.optimizer.tell(suggestion, value, **measured)
            return
        if suggestion is not None:
            self.optimizer.forget(suggestion)
        try:
            self.optimizer.observe(params, value, outside=True, **measured)
        except ValueError:
            # It is from another space, or it failed before it had its parameters, and there is nothing to observe.
            self.space_outdated = self.space_outdated or trial.state != TrialState.FAIL

    def tell_stopped(self) -> None:
        """Observe the forecasts of stopped trials; all of them again if the model of curves was learned again.

        Then the process is built again, too. So a resumed run gets the same numbers, whichever forecasts were made
        before it stopped.
        """
        waiting = self._without_forecast or self._forecast or self._paused
        if waiting or self._forecast_at:
            self.seen.note("t")
        if not waiting:
            if self._forecast_at:  # the curves count only while there are forecasts
                self._forecast_at = 0
                self.optimizer.planner.revise({}, objective=self.reports)
            return
        forecasts = self.curves.forecasts()
        if forecasts and self.curves.learned_at != self._forecast_at:
            self._forecast_at = self.curves.learned_at
            told = {number: suggestion for number, suggestion in self._forecast.items() if number in forecasts}
            revised = {suggestion.number: forecasts[number] for number, suggestion in told.items()}
            self.optimizer.planner.revise(revised, objective=self.reports, noise_range=self.curves.noise())
        for number in [each for each in self._without_forecast if each in forecasts]:
            measured = _measured(self._without_forecast.pop(number), self.optimizer.options.cost)
            suggestion = self._pending.pop(number, None)
            if suggestion is not None:
                self.optimizer.forecast(
                    suggestion, *forecasts[number], objective=self.reports, stopped=True, **measured
                )
                self._forecast[number] = suggestion

    # ---------------------------------------------------------------- paused trials

    def hold(self, trial: FrozenTrial) -> None:
        """A paused trial is pending, and its curve is known to the model of curves; its forecast is not told yet."""
        if self._paused.get(trial.number) != trial.last_step:
            self.seen.note(f"p{trial.number}.{trial.last_step}")
            self._announce(trial.number, trial.params)
            self.curves.add_paused(trial)
            self._paused[trial.number] = trial.last_step

    def _unpause(self, number: int) -> None:
        """A paused trial runs again, or has ended."""
        if self._paused.pop(number, None) is not None:
            self._told_paused.pop(number, None)
            self.curves.remove_paused(number)

    def tell_paused(self) -> None:
        """Learn the forecasts of paused trials that are new, or change since the model of curves was learned again."""
        if not self._paused:
            return
        self.seen.note("u")
        forecasts = self.curves.forecasts()
        for number, step in self._paused.items():
            basis = step, self.curves.learned_at
            if number in forecasts and self._told_paused.get(number) != basis:
                self._told_paused[number] = basis
                if number in self._pending:
                    self.optimizer.forecast(self._pending[number], *forecasts[number], objective=self.reports)

    # ------------------------------------------------------------- what was learned

    def recall(self, attributes: Mapping[str, Any], trials: Sequence[FrozenTrial]) -> None:
        """Restore what another process, or an earlier one, has learned about the same space.

        It is stored with the study, whose ``attributes`` are given, or with a trial; the latest counts.
        """
        last = next((trial for trial in reversed(trials) if "model" in read_announcement(trial)), None)
        candidates = [(f"the attribute {MODEL_KEY!r} of the study", attributes, MODEL_KEY)]
        if last is not None:
            candidates.append((of_trial(SUGGESTION_KEY, last.number), last.system_attrs, SUGGESTION_KEY))
        latest = -1
        for where, stored, key in candidates:
            try:
                with readable(where):
                    saved = object_of(stored, key)
                    if not saved or _short_columns(saved["columns"]) != self._columns:
                        continue
                    finished = whole("finished", saved.get("finished", 0), 0)
                    if finished >= latest:
                        self.adopt(saved)
                        latest = finished
            except ValueError as error:
                _logger.warning(f"What this study learned earlier cannot be used ({error}); it is learned again.")
        self._saved = self.learned()

    def adopt(self, saved: Mapping[str, Any]) -> None:
        """Continue with what a model of the same space had `learned`. Raises a ValueError if that is damaged."""
        learned_at = whole("curves", saved.get("curves", 0), 0)
        session, events = saved.get("by", ("", 0))
        recalled = str(session), whole("by", events, 0)
        self.optimizer.planner.restore(saved["model"])
        self._forecast_at, self.recalled = learned_at, recalled

    def unsaved_attributes(self) -> dict[str, Any]:
        """What has been learned since it was last saved, as attributes of the study. It then counts as saved."""
        learned = self._unsaved()
        return rewritable_parts(MODEL_KEY, json.dumps(learned)) if learned else {}

    def announcement(self, number: int, *, always: bool, extra: Mapping[str, Any] | None = None) -> dict[str, str]:
        """The parameters of a trial, what is not saved yet, and ``extra``, as attributes of the trial.

        Empty if everything learned is saved, unless it is ``always`` needed.
        """
        learned = self._unsaved()
        if not learned and not always:
            return {}
        return announcement(self.pending_params(number), self.space.distributions, {**learned, **(extra or {})})

    def _unsaved(self) -> dict[str, Any]:
        text = self.learned()
        if text == self._saved:
            return {}
        self._saved = text
        by = {"by": [self.seen.session, self.seen.count]} if self.seen.opening is not None else {}
        return {"finished": self._feed.settled, **by, **json.loads(text)}

    def learned(self) -> str:
        """What was learned, as JSON of what `adopt` takes."""
        curves = {"curves": self._forecast_at} if self._forecast_at else {}
        return json.dumps({"columns": self._columns, "model": self.optimizer.planner.state(), **curves})


def record(model: StudyModel, options: str, known: int = 0) -> None:
    """Record from now on what the suggestions of a model have seen; ``known`` results are not in the study."""
    model.seen.opening = Opening(model.recalled, options, known, model.space.feasible is not None)


def _short_columns(columns: Iterable[Sequence[str]]) -> list[list[str]]:
    """Names and descriptions of parameters, with a hash instead of each long description."""
    return [
        [name, text if len(text) <= LONGEST_COLUMN else hashlib.sha256(text.encode()).hexdigest()]
        for name, text in columns
    ]


def _measured(trial: FrozenTrial, cost: str | None) -> dict[str, Any]:
    """The measured constraints of a trial, and its cost, as arguments of `Optimizer.tell`."""
    measured: dict[str, Any] = {"constraints": measured_constraints(trial)}
    if cost is not None:
        measured["seconds" if cost == SECONDS else "cost"] = cost_of(trial, cost)
    return measured


def open_model(study: Study, options: Options, space: Space, trials: Sequence[FrozenTrial]) -> StudyModel:
    """A model with what this study has learned earlier; no trials loaded."""
    check_format(study)
    model = StudyModel(Optimizer.with_options(space, directions_of(study), options), reporting_of(study))
    model.recall(Store(study).attributes(), trials)
    return model


def model_of(study: Study, trials: Sequence[FrozenTrial]) -> StudyModel:
    """The model that the last run or sampler of a study would continue with, with all trials loaded."""
    model = open_model(study, *options_of(study, trials), trials)
    model.absorb(trials, -1)
    return model
