"""StudyModel: an optimiser that learns from the trials of a study and is stored with the study.

Finished trials are observations, whichever process ran them; running trials are pending, with a forecast of where they
end if they report a learning curve. What was learned is kept
with the study, so that a resumed study or a second process continues with it: as an attribute of the trial whose
suggestion needed it (`announcement`), or of the study (`unsaved_attributes`).
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from lazybo.core.checks import as_number, is_number, whole
from lazybo.core.codec import INVALID, readable
from lazybo.search.optimizer import Optimizer, Suggestion
from lazybo.search.records import repeats
from lazybo.search.results import Values
from lazybo.study.attributes import (
    MODEL_KEY,
    SKIPPED_KEY,
    SUGGESTION_KEY,
    VARIANCE_KEY,
    object_of,
    of_trial,
    parts,
    rewritable_parts,
)
from lazybo.study.costs import SECONDS, cost_of
from lazybo.study.curves import Forecast, StudyCurves, best_to_resume
from lazybo.study.evaluated import evaluations_of
from lazybo.study.feasible import measured_constraints
from lazybo.study.paused import is_paused
from lazybo.study.structure import Structure, as_given
from lazybo.study.unsettled import Unsettled

_logger = optuna.logging.get_logger("optuna.samplers.lazybo")

# A running trial has a forecast from so many values on; a new one when there are so many times as many.
MIN_WATCHED = 2
WATCHED_GROWTH = 1.2
# The text of a parameter with thousands of choices is long, and it is written with most trials: its hash is enough.
LONGEST_COLUMN = 500


@dataclass
class StudyModel:
    """An optimiser and the trials it has been told of."""

    structure: Structure
    optimizer: Optimizer
    reports: int = 0  # the objective whose curves the trials report
    watches: bool = True  # whether running trials teach where they are expected to end
    structure_outdated: bool = False  # a trial was not a configuration of the structure
    _done: set[int] = field(default_factory=set)  # finished trials that were absorbed
    _unsettled: Unsettled = field(default_factory=Unsettled)
    _pending: dict[int, Suggestion] = field(default_factory=dict)
    _without_forecast: dict[int, FrozenTrial] = field(default_factory=dict)  # pruned when too few had completed
    _forecast: dict[int, Suggestion] = field(default_factory=dict)  # pruned trials that were told a forecast
    _forecast_at: int = 0  # when the model of curves had been learned that made them
    _watched: dict[int, int] = field(default_factory=dict)  # by running trial: how many values made its forecast
    _paused: dict[int, int | None] = field(default_factory=dict)  # the last steps of paused trials, by number
    _told_paused: dict[int, tuple[int | None, int]] = field(default_factory=dict)  # what their forecasts depend on
    _recalled: dict[str, Any] | None = None  # the state of the model that was recalled, until trials are absorbed
    _saved: str = ""  # what was learned, as it was last written or read

    def __post_init__(self) -> None:
        direction = self.optimizer.directions[self.reports]
        self.curves = StudyCurves(self.optimizer.space, direction, objective=self.reports)
        self._saved = self._learned()

    @property
    def _several(self) -> bool:
        return len(self.optimizer.directions) > 1

    def absorb(self, trials: Sequence[FrozenTrial], except_number: int) -> None:
        """Observe the trials that finished; those that run with known parameters become pending."""
        unsettled = self._unsettled.among(trials)
        for trial in unsettled:
            if trial.number == except_number:
                continue
            if trial.state.is_finished():
                self._finish(trial)
            elif is_paused(trial):
                self._pause(trial)
            elif trial.state == TrialState.RUNNING and (
                trial.number not in self._pending or trial.number in self._paused
            ):
                self.announce(trial.number, announced_params(trial, self.structure.distributions) or trial.params)
        self._unsettled.note(trials, except_number)
        self._tell_forecasts()
        self._recall_process()
        self._tell_paused()
        for trial in unsettled:
            if trial.state == TrialState.RUNNING and trial.number != except_number:
                self.watch(trial.number, trial.intermediate_values)

    def announce(self, number: int, params: Mapping[str, Any], *, outside: bool = False) -> None:
        """A trial runs with these parameters. It becomes pending if they are a configuration of the space.

        With ``outside``, numbers may lie outside their range. A trial that was paused keeps the forecast of its value.
        """
        self._unpause(number)
        if number in self._pending:
            if self._pending[number].params == self._in_space(params):
                return
            self.optimizer.forget(self._pending.pop(number))
        try:
            self._pending[number] = self.optimizer.announce(self._in_space(params), outside=outside)
        except ValueError:
            return  # its parameters are not complete yet, or of another space: it is observed when it has finished

    def pending_params(self, number: int) -> dict[str, Any]:
        """What a running trial will evaluate, if it is known."""
        return self._pending[number].params if number in self._pending else {}

    def next_repeat(self, trials: Sequence[FrozenTrial]) -> tuple[dict[str, Any], int | None] | None:
        """The configuration to repeat in a final check, and the number of its first trial; None if one leads."""
        chosen = self.optimizer.planner.propose_repeat(evaluations_of(trials, self.optimizer.space))
        return None if chosen is None else (self._in_space(chosen.params), chosen.number)

    def finish(self, trial: FrozenTrial) -> None:
        """Observe a trial that finished. A second call for the same trial does nothing."""
        self._finish(trial)
        self._tell_forecasts()
        self._tell_paused()

    def pause(self, trial: FrozenTrial) -> None:
        """Observe the forecast of a trial that was paused, until it ends or is paused again."""
        self._pause(trial)
        self._tell_paused()

    def worth_resuming(self, paused: Sequence[FrozenTrial], proposal: Mapping[str, Any] | None) -> FrozenTrial | None:
        """The paused trial that is worth more than a new one, for the steps that it still needs; None if there is none.

        ``proposal`` are the parameters of the new one; None if there will be none.
        """
        return best_to_resume(self.curves, paused, proposal)

    def _pause(self, trial: FrozenTrial) -> None:
        """A paused trial is pending, and its curve is known to the model of curves."""
        if self._paused.get(trial.number) != trial.last_step:
            self.announce(trial.number, trial.params)
            self.curves.add_paused(trial)
            self._paused[trial.number] = trial.last_step

    def _unpause(self, number: int) -> None:
        """A paused trial runs again, or has ended."""
        if self._paused.pop(number, None) is not None:
            self._told_paused.pop(number, None)
            self.curves.remove_paused(number)

    def _tell_paused(self) -> None:
        """Learn the forecasts of paused trials; anew when the model of curves was learned again."""
        forecasts = self.curves.forecasts() if self._paused else {}
        for number, step in self._paused.items():
            basis = step, self.curves.learned_at
            if number in forecasts and self._told_paused.get(number) != basis:
                self._told_paused[number] = basis
                self._forecast_one(number, forecasts[number])

    def _finish(self, trial: FrozenTrial) -> None:
        if trial.number in self._done:
            return
        self._done.add(trial.number)
        self._unpause(trial.number)
        self._watched.pop(trial.number, None)
        self.curves.add(trial)
        if trial.state == TrialState.COMPLETE:
            values = trial.values if self._several else trial.value
            self._teach(trial, values, _known_variance(trial))
        elif trial.state == TrialState.PRUNED:
            self._finish_pruned(trial)
        elif SKIPPED_KEY in trial.system_attrs:
            if trial.number in self._pending:
                self.optimizer.forget(self._pending.pop(trial.number))
        else:
            self._teach(trial, None, 0.0)

    def _finish_pruned(self, trial: FrozenTrial) -> None:
        """A pruned trial stays pending until there is a forecast of its final value.

        A trial that reported nothing, or whose last value is not finite, counts as failed.
        """
        step = trial.last_step
        if step is None or not math.isfinite(trial.intermediate_values[step]):
            self._teach(trial, None, 0.0)
            return
        self._without_forecast[trial.number] = trial
        self.announce(trial.number, trial.params)
        if trial.number not in self._pending:
            self.structure_outdated = True
            self.announce(trial.number, trial.params, outside=True)

    def _recall_process(self) -> None:
        """Continue with the process that was recalled. Telling forecasts has cut it, as if they were new.

        They are new only if the model of curves has been learned again since: then the process is built anew.
        """
        state, self._recalled = self._recalled, None
        if state is not None:
            self.optimizer.planner.restore(state["model"])
            if self._forecast_at != state.get("curves", 0):
                self.optimizer.planner.revise({}, objective=self.reports, noise_range=self.curves.noise())

    def _tell_forecasts(self) -> None:
        """Observe the forecasts of pruned trials; all of them anew if the model of curves was learned again.

        Then the process is built anew too. So the numbers of a resumed run do not depend on which forecasts were made
        before it stopped.
        """
        if not (self._without_forecast or self._forecast or self._paused):
            if self._forecast_at:  # what the curves say counts only while there are forecasts
                self._forecast_at = 0
                self.optimizer.planner.revise({}, objective=self.reports)
            return
        forecasts = self.curves.forecasts()
        if forecasts and self.curves.learned_at != self._forecast_at:
            self._forecast_at = self.curves.learned_at
            told = {number: suggestion for number, suggestion in self._forecast.items() if number in forecasts}
            revised = {suggestion.number: forecasts[number] for number, suggestion in told.items()}
            self.optimizer.planner.revise(revised, objective=self.reports, noise_range=self.curves.noise())
        for number, trial in list(self._without_forecast.items()):
            if number in forecasts:
                del self._without_forecast[number]
                suggestion = self._pending.pop(number, None)
                if suggestion is not None:
                    measured = self._measured(trial)
                    self.optimizer.forecast(
                        suggestion, *forecasts[number], objective=self.reports, stopped=True, **measured
                    )
                    self._forecast[number] = suggestion

    def _forecast_one(self, number: int, forecast: Forecast) -> None:
        """Tell the forecast of a trial that has not ended. It stays pending."""
        if number in self._pending:
            self.optimizer.forecast(self._pending[number], *forecast, objective=self.reports)

    def watch(self, number: int, values: Mapping[int, float]) -> None:
        """Learn where a running trial is expected to end, by the values that it has reported so far.

        It stays pending. The forecast is made anew when the number of values has grown by a fifth. A trial that repeats
        a configuration has none: what it measures of the noise counts, and a forecast tells nothing of that.
        """
        suggestion, count = self._pending.get(number), len(values)
        if (
            not self.watches
            or suggestion is None
            or count < max(MIN_WATCHED, WATCHED_GROWTH * self._watched.get(number, 0))
        ):
            return
        if not math.isfinite(values[max(values)]) or repeats(self.optimizer.planner.records, suggestion):
            return
        forecast = self.curves.final_forecast(suggestion.params, values)
        if forecast is not None:
            self._watched[number] = count
            self._forecast_one(number, forecast)

    def _teach(self, trial: FrozenTrial, value: Values, variance: float) -> None:
        """Observe a value of a trial, what it has measured of its constraints, and its cost."""
        measured = {**self._measured(trial), "variance": variance}
        params = self._in_space(trial.params)
        suggestion = self._pending.pop(trial.number, None)
        if suggestion is not None and suggestion.params == params:
            self.optimizer.tell(suggestion, value, **measured)
            return
        if suggestion is not None:
            self.optimizer.forget(suggestion)
        try:
            self.optimizer.observe(params, value, outside=True, **measured)
        except ValueError:
            # From another space; or the trial failed before it had its parameters, and there is nothing to observe.
            self.structure_outdated = self.structure_outdated or trial.state != TrialState.FAIL

    def _measured(self, trial: FrozenTrial) -> dict[str, Any]:
        """What a trial has measured of its constraints, and its cost, as arguments of `Optimizer.tell`."""
        measured: dict[str, Any] = {"constraints": measured_constraints(trial)}
        if self.optimizer.options.cost is not None:
            key = "seconds" if self.optimizer.options.cost == SECONDS else "cost"
            measured[key] = cost_of(trial, self.optimizer.options.cost)
        return measured

    def _in_space(self, params: Mapping[str, Any]) -> dict[str, Any]:
        space = self.structure.distributions
        return as_given({name: value for name, value in params.items() if name in space}, space)

    def recall(self, attributes: Mapping[str, Any], trials: Sequence[FrozenTrial]) -> None:
        """Restore what another process, or an earlier one, has learned about the same space.

        ``attributes`` are those of the study. Of what is kept there and with the trials, the latest counts.
        """
        last = next((trial for trial in reversed(trials) if "model" in read_announcement(trial)), None)
        candidates = [(f"the attribute {MODEL_KEY!r} of the study", attributes, MODEL_KEY)]
        if last is not None:
            candidates.append((of_trial(SUGGESTION_KEY, last.number), last.system_attrs, SUGGESTION_KEY))
        finished = -1
        for where, kept, key in candidates:
            try:
                with readable(where):
                    finished = self._recall(object_of(kept, key), finished)
            except ValueError as error:
                _logger.warning(f"What was learned earlier in this study cannot be used ({error}); it is learned anew.")
        self._saved = self._learned()

    def _recall(self, saved: dict[str, Any], finished: int) -> int:
        """Restore what was saved if it is of this space, and of more than ``finished`` trials; how many it is of."""
        if not saved or _short_columns(saved["columns"]) != self._columns:
            return finished
        count = whole("finished", saved.get("finished", 0), 0)
        curves = whole("curves", saved.get("curves", 0), 0)
        if count < finished:
            return finished
        self.optimizer.planner.restore(saved["model"])
        self._forecast_at, self._recalled = curves, saved
        return count

    def unsaved_attributes(self) -> dict[str, Any]:
        """What has been learned since it was last saved, as attributes of the study. It then counts as saved."""
        learned = self._unsaved()
        return rewritable_parts(MODEL_KEY, json.dumps(learned)) if learned else {}

    def announcement(self, number: int, *, always: bool, extra: Mapping[str, Any] | None = None) -> dict[str, str]:
        """What other processes need to know of a trial, what is not saved yet, and ``extra``, as attributes of it.

        Empty if all that was learned is saved, unless it is ``always`` needed.
        """
        learned = self._unsaved()
        if not learned and not always:
            return {}
        return announcement(self.pending_params(number), self.structure.distributions, {**learned, **(extra or {})})

    def _unsaved(self) -> dict[str, Any]:
        text = self._learned()
        if text == self._saved:
            return {}
        self._saved = text
        return {"finished": len(self._done), **json.loads(text)}

    def _learned(self) -> str:
        curves = {"curves": self._forecast_at} if self._forecast_at else {}
        return json.dumps({"columns": self._columns, "model": self.optimizer.planner.state(), **curves})

    @cached_property
    def _columns(self) -> list[list[str]]:
        return _short_columns([name, str(self.structure.distributions[name])] for name in self.optimizer.space.names)


def _short_columns(columns: Iterable[Sequence[str]]) -> list[list[str]]:
    """Names and texts of parameters, with a hash instead of each long text."""
    return [
        [name, text if len(text) <= LONGEST_COLUMN else hashlib.sha256(text.encode()).hexdigest()]
        for name, text in columns
    ]


def _known_variance(trial: FrozenTrial) -> float:
    """The known variance of a trial's value; 0 if there is none, or if it cannot be read."""
    found = trial.system_attrs.get(VARIANCE_KEY)
    variance = as_number("variance", found) if is_number(found) else 0.0
    return variance if 0.0 <= variance < math.inf else 0.0


# ------------------------------------------------------------- announcements


def announcement(
    params: Mapping[str, Any], space: Mapping[str, BaseDistribution], extra: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """What a trial will evaluate, and more to keep with it, as attributes: one write if they are short enough.

    Parameters are in Optuna's internal numbers, since choices may be anything.
    """
    internal = {name: space[name].to_internal_repr(value) for name, value in params.items()}
    return parts(SUGGESTION_KEY, json.dumps({"params": internal, **(extra or {})}))


def announced_params(trial: FrozenTrial, space: Mapping[str, BaseDistribution]) -> dict[str, Any]:
    """What a trial has announced to evaluate; only parameters of the space. Empty if that cannot be read."""
    try:
        written = read_announcement(trial).get("params", {})
        return {name: space[name].to_external_repr(value) for name, value in written.items() if name in space}
    except INVALID:
        return {}


def read_announcement(trial: FrozenTrial) -> dict[str, Any]:
    """The announcement of a trial; empty if there is none, or if it cannot be read."""
    try:
        return object_of(trial.system_attrs, SUGGESTION_KEY)
    except ValueError:
        return {}
