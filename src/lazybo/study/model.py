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

from lazybo.core import checks, codec
from lazybo.search import Optimizer, Options, Suggestion
from lazybo.space import Space
from lazybo.study.attributes import (
    ATTEMPTS_KEY,
    MODEL_KEY,
    PAUSE_KEY,
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
from lazybo.study.seen import Seen
from lazybo.study.store import Store
from lazybo.study.training_curves import Final, TrainingCurves
from lazybo.study.trial import (
    SECONDS,
    State,
    cost_of,
    directions_of,
    ended_at,
    evaluations_of,
    is_paused,
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
# A trial that waits and has one of these attributes has run before.
BEGUN = {ATTEMPTS_KEY, PAUSE_KEY}


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
        self._basis = ""  # `TrainingCurves.basis` when the process was last built for forecasts
        self._told: dict[int, Final] = {}  # the forecasts of stopped and paused trials as they were told
        self._watched: dict[int, int] = {}  # by running trial: the number of values that its forecast was made from
        self._paused: dict[int, int | None] = {}  # the last steps of paused trials, by number
        columns = [[name, str(self.space.parameters[name])] for name in self.space.points.names]
        columns += [["features", str(self.space.points.own)]] if self.space.points.own else []
        self._columns = _short_columns(columns)
        self.seen = Seen()
        self._saved = self.learned()  # as it was last written or read
        self._saved_at = 0  # the number of events then

    def absorb(self, trials: Sequence[FrozenTrial], except_number: int) -> None:
        """Observe the trials that finished; those that run or will run again with known parameters become pending.

        Rows are in the order of numbers. Curves are in the order in which trials ended or were last paused, which is
        another one if trainings are paused. Both are the same as in an uninterrupted run.
        """
        news = [trial for trial in self._feed.news(trials) if trial.number != except_number]
        if any(PAUSE_KEY in trial.system_attrs for trial in news):
            for trial in news:
                self._announce_again(trial)
            news.sort(key=ended_at)
        for trial in news:
            if trial.state.is_finished():
                self.settle(trial)
            elif is_paused(trial):
                self.hold(trial)
            else:
                self._announce_again(trial)
        for trial in news:
            if trial.state == TrialState.RUNNING:
                self.watch(trial.number, trial.intermediate_values)

    def _announce_again(self, trial: FrozenTrial) -> None:
        """Note that a trial of another process, or of an earlier one, has begun, unless that is known."""
        params = announced_params(trial, self.space.distributions) or trial.params
        has_begun = trial.state != TrialState.WAITING or not trial.system_attrs.keys().isdisjoint(BEGUN)
        is_known = trial.number in self._pending and (is_paused(trial) or trial.number not in self._paused)
        if params and has_begun and not is_known and not self._feed.is_settled(trial):
            self.announce(trial.number, params)

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
            if self.pending_params(number) == known:
                return
            self.optimizer.forget(self._pending.pop(number))
        try:
            self._pending[number] = self.optimizer.announce(known, outside=outside)
        except ValueError:
            return  # its parameters are incomplete or from another space: it is observed when it has finished

    def pending_params(self, number: int) -> dict[str, Any]:
        """The parameters of a running trial; empty if unknown."""
        return {**self.space.store(self._pending[number].params)} if number in self._pending else {}

    def next_repeat(self, trials: Sequence[FrozenTrial]) -> tuple[dict[str, Any], int | None] | None:
        """The configuration to repeat in a final check, and the number of its first trial; None if one leads."""
        self.tell_forecasts()
        self.seen.note("x")
        chosen = self.optimizer.planner.propose_repeat(evaluations_of(trials, self.space))
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

    def forget_unsaved(self) -> None:
        """Go back to what was learned when it was last saved, since the suggestion that needed more is not used.

        Only new trials save what was learned. So what a resumed run continues with never depends on what was
        suggested, not used, and then lost.
        """
        if self.learned() != self._saved:
            self.seen.note(f"z{self._saved_at}")
            self.adopt(self._saved)

    def tell_forecasts(self) -> None:
        """Observe the forecasts of stopped and paused trials that are new or have changed.

        Every suggestion begins with this, and nothing else in a run does: so what the model sees depends on the trials
        and their order, not on what happened to be forecast before a kill.
        """
        if self._without_forecast or self._forecast or self._paused:
            forecasts = self.curves.forecasts()
            self._tell_stopped(forecasts)
            self._tell_paused(forecasts)
        elif self._basis:  # the curves count only while there are forecasts
            self._basis = ""
            self.optimizer.planner.rebuild(self.reports)

    def watch(self, number: int, values: Mapping[int, float]) -> None:
        """Learn where a running trial is expected to end, from the values that it has reported so far.

        It stays pending. The forecast is made again when the number of values has grown by a fifth. A trial that
        repeats a configuration has none: it is run to measure the noise, and a forecast says nothing about that.
        """
        suggestion, count = self._pending.get(number), len(values)
        least = max(MIN_WATCHED, WATCHED_GROWTH * self._watched.get(number, 0))
        if not self.watches or suggestion is None or count < least:
            return
        if not math.isfinite(values[max(values)]) or self.optimizer.planner.repeats(suggestion):
            return
        forecast = self.curves.final_forecast(self.pending_params(number), values)
        if forecast is not None:
            self._watched[number] = count
            self.seen.note(f"w{number}.{count}")
            self.optimizer.forecast(suggestion, *forecast, objective=self.reports)

    # -------------------------------------------------------------- finished trials

    def settle(self, trial: FrozenTrial) -> None:
        """Observe a trial that finished; forecasts of others that change with it are not told yet.

        A second call for the same trial does nothing.
        """
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

    def _teach(self, trial: FrozenTrial, value: float | Sequence[float] | None, variance: float) -> None:
        """Observe a value of a trial, its measured constraints, and its cost."""
        measured = {**_measured(trial, self.optimizer.options.cost), "variance": variance}
        params = params_in(self.space.distributions, trial.params)
        pending = self.pending_params(trial.number)
        suggestion = self._pending.pop(trial.number, None)
        if suggestion is not None and pending == params:
            self.optimizer.tell(suggestion, value, **measured)
            return
        if suggestion is not None:
            self.optimizer.forget(suggestion)
        try:
            self.optimizer.observe(params, value, outside=True, **measured)
        except ValueError:
            # It is from another space, or it failed before it had its parameters, and there is nothing to observe.
            self.space_outdated = self.space_outdated or trial.state != TrialState.FAIL

    def _tell_stopped(self, forecasts: Mapping[int, Final]) -> None:
        """Observe the forecasts of stopped trials, and build the process again if the model of curves was.

        So a resumed run gets the same numbers, whichever forecasts were made before it stopped.
        """
        revised = {n: forecasts[n] for n in self._forecast if n in forecasts and forecasts[n] != self._told.get(n)}
        by_suggestion = {self._forecast[number].number: forecast for number, forecast in revised.items()}
        self.optimizer.planner.revise(by_suggestion, objective=self.reports)
        self._told.update(revised)
        basis = self.curves.basis
        if forecasts and basis != self._basis:
            self._basis = basis
            self.optimizer.planner.rebuild(self.reports, noise_range=self.curves.noise())
        for number in [each for each in self._without_forecast if each in forecasts]:
            measured = _measured(self._without_forecast.pop(number), self.optimizer.options.cost)
            suggestion = self._pending.pop(number, None)
            if suggestion is not None:
                self.optimizer.forecast(
                    suggestion, *forecasts[number], objective=self.reports, stopped=True, **measured
                )
                self._forecast[number], self._told[number] = suggestion, forecasts[number]

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
            self._told.pop(number, None)
            self.curves.remove_paused(number)

    def _tell_paused(self, forecasts: Mapping[int, Final]) -> None:
        """Learn the forecasts of paused trials that are new or have changed; without one a trial is only pending."""
        for number in self._paused:
            forecast, suggestion = forecasts.get(number), self._pending.get(number)
            if suggestion is None or forecast == self._told.get(number):
                continue
            if forecast is None:
                del self._told[number]
                self.optimizer.planner.withdraw(suggestion)
            else:
                self._told[number] = forecast
                self.optimizer.forecast(suggestion, *forecast, objective=self.reports)

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
                with codec.readable(where):
                    saved = object_of(stored, key)
                    if not saved or _short_columns(saved["columns"]) != self._columns:
                        continue
                    finished = checks.whole("finished", saved.get("finished", 0), 0)
                    if finished >= latest:
                        self.adopt(saved)
                        latest = finished
            except ValueError as error:
                _logger.warning(f"What this study learned earlier cannot be used ({error}); it is learned again.")
        self._saved = self.learned()

    def adopt(self, saved: Mapping[str, Any]) -> None:
        """Continue with what a model of the same space had `learned`. Raises a ValueError if that is damaged."""
        session, events = saved.get("by", ("", 0))
        recalled = str(session), checks.whole("by", events, 0)
        self.optimizer.planner.restore(saved["model"])
        self._basis, self.seen.recalled = str(saved.get("curves", "")), recalled

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
        learned = self.learned()
        if learned == self._saved:
            return {}
        self._saved, self._saved_at = learned, self.seen.count
        by = {"by": [self.seen.session, self.seen.count]} if self.seen.opening is not None else {}
        return {"finished": self._feed.settled, **by, **learned}

    def learned(self) -> dict[str, Any]:
        """What was learned, as plain data that `adopt` takes."""
        curves = {"curves": self._basis} if self._basis else {}
        found = {"columns": self._columns, "model": self.optimizer.planner.state(), **curves}
        plain: dict[str, Any] = json.loads(json.dumps(found))  # so that it is equal to what a study returns
        return plain


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
    model.tell_forecasts()
    return model
