"""StudyModel: an optimiser that learns from the trials of a study and is stored with the study.

Finished trials are observations, whichever process ran them; running trials are pending. What was learned is kept
with the study, so that a resumed study or a second process continues with it: as an attribute of the trial whose
suggestion needed it (`announcement`), or of the study (`unsaved_attributes`).
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from lazybo.search.optimizer import Optimizer, Suggestion, Values
from lazybo.study.attributes import MODEL_KEY, SUGGESTION_KEY, VARIANCE_KEY, joined, parts, rewritable_parts
from lazybo.study.curves import Curves
from lazybo.study.evaluated import evaluations_of
from lazybo.study.feasible import measured_constraints
from lazybo.study.structure import Structure, as_given

_logger = optuna.logging.get_logger("optuna.samplers.lazybo")


@dataclass
class StudyModel:
    """An optimiser and the trials it has been told of."""

    structure: Structure
    optimizer: Optimizer
    structure_outdated: bool = False  # a trial was not a configuration of the structure
    _absorbed: int = 0  # all trials before this number have finished and were absorbed
    _done: set[int] = field(default_factory=set)
    _pending: dict[int, Suggestion] = field(default_factory=dict)
    _without_forecast: dict[int, FrozenTrial] = field(default_factory=dict)  # pruned when too few had completed
    _saved: str = ""  # what was learned, as it was last written or read

    def __post_init__(self) -> None:
        # Only a study with one objective has pruned trials.
        self._curves = Curves(maximize=self.optimizer.directions[0] == "maximize")
        self._saved = self._learned()

    def absorb(self, trials: Sequence[FrozenTrial], except_number: int) -> None:
        """Observe the trials that finished; those that run with known parameters become pending."""
        for trial in trials[self._absorbed :]:
            if trial.number == except_number:
                continue
            if trial.state.is_finished():
                self.finish(trial)
            elif trial.state == TrialState.RUNNING and trial.number not in self._pending:
                self.announce(trial.number, announced_params(trial, self.structure.distributions) or trial.params)
        while self._absorbed in self._done:
            self._done.discard(self._absorbed)
            self._absorbed += 1

    def announce(self, number: int, params: Mapping[str, Any]) -> None:
        """A trial runs with these parameters. It becomes pending if they are a configuration of the space."""
        if number in self._pending:
            if self._pending[number].params == self._in_space(params):
                return
            self.optimizer.forget(self._pending.pop(number))
        try:
            self._pending[number] = self.optimizer.announce(self._in_space(params))
        except ValueError:
            return  # its parameters are not complete yet, or of another space: it is observed when it has finished

    def pending_params(self, number: int) -> dict[str, Any]:
        """What a running trial will evaluate, if it is known."""
        return self._pending[number].params if number in self._pending else {}

    def next_repeat(self, trials: Sequence[FrozenTrial]) -> tuple[dict[str, Any], int | None] | None:
        """The configuration to repeat in a final check, and the number of its first trial; None if one leads."""
        chosen = self.optimizer.propose_repeat(evaluations_of(trials, self.optimizer.space))
        return None if chosen is None else (self._in_space(chosen.params), chosen.number)

    def finish(self, trial: FrozenTrial) -> None:
        """Observe a trial that finished. A second call for the same trial does nothing."""
        if trial.number in self._done or trial.number < self._absorbed:
            return
        self._done.add(trial.number)
        if trial.state == TrialState.COMPLETE:
            several = len(self.optimizer.directions) > 1
            self._teach(trial, trial.values if several else trial.value, trial.system_attrs.get(VARIANCE_KEY, 0.0))
            if not several and trial.value is not None and math.isfinite(trial.value):
                self._curves.add(trial.intermediate_values, trial.value)
                for pruned in list(self._without_forecast.values()):
                    self._finish_pruned(pruned)
        elif trial.state == TrialState.PRUNED:
            self._finish_pruned(trial)
        else:
            self._teach(trial, None, 0.0)

    def _finish_pruned(self, trial: FrozenTrial) -> None:
        """Observe the forecast of a pruned trial's final value. Until there is one the trial stays pending.

        A trial that reported nothing, or whose last value is not finite, counts as failed.
        """
        step = trial.last_step
        if step is None or not math.isfinite(trial.intermediate_values[step]):
            self._teach(trial, None, 0.0)
            return
        forecast = self._curves.forecast(step, trial.intermediate_values[step])
        if forecast is not None:
            self._without_forecast.pop(trial.number, None)
            self._teach(trial, forecast.value, forecast.variance)
        elif trial.number not in self._without_forecast:
            self._without_forecast[trial.number] = trial
            self.announce(trial.number, trial.params)
            self.structure_outdated = self.structure_outdated or trial.number not in self._pending

    def _teach(self, trial: FrozenTrial, value: Values, variance: float) -> None:
        """Observe a value of a trial, and what it has measured of its constraints."""
        constraints = measured_constraints(trial)
        params = self._in_space(trial.params)
        suggestion = self._pending.pop(trial.number, None)
        if suggestion is not None and suggestion.params == params:
            self.optimizer.tell(suggestion, value, constraints=constraints, variance=variance)
            return
        if suggestion is not None:
            self.optimizer.forget(suggestion)
        try:
            self.optimizer.observe(params, value, constraints=constraints, variance=variance, outside=True)
        except ValueError:
            # From another space; or the trial failed before it had its parameters, and there is nothing to observe.
            self.structure_outdated = self.structure_outdated or trial.state != TrialState.FAIL

    def _in_space(self, params: Mapping[str, Any]) -> dict[str, Any]:
        space = self.structure.distributions
        return as_given({name: value for name, value in params.items() if name in space}, space)

    def recall(self, attributes: Mapping[str, Any], trials: Sequence[FrozenTrial]) -> None:
        """Restore what another process, or an earlier one, has learned about the same space.

        ``attributes`` are those of the study. Of what is kept there and with the trials, the latest counts.
        """
        latest = next((said for trial in reversed(trials) if "model" in (said := read_announcement(trial))), {})
        of_study = parse_object(joined(attributes, MODEL_KEY))
        for saved in sorted((of_study, latest), key=lambda saved: saved.get("finished", 0)):
            try:
                if saved and saved["columns"] == self._columns():
                    self.optimizer.restore_model(saved["model"])
            except (KeyError, TypeError, ValueError) as error:
                _logger.warning(f"What was learned earlier in this study cannot be used ({error}); it is learned anew.")
        self._saved = self._learned()

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
        return {"finished": self._absorbed + len(self._done), **json.loads(text)}

    def _learned(self) -> str:
        return json.dumps({"columns": self._columns(), "model": self.optimizer.model_state()})

    def _columns(self) -> list[list[str]]:
        return [[name, str(self.structure.distributions[name])] for name in self.optimizer.space.names]


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
    """What a trial has announced to evaluate; only parameters of the space."""
    written = read_announcement(trial).get("params", {})
    return {name: space[name].to_external_repr(value) for name, value in written.items() if name in space}


def read_announcement(trial: FrozenTrial) -> dict[str, Any]:
    """The announcement of a trial, empty if there is none."""
    return parse_object(joined(trial.system_attrs, SUGGESTION_KEY))


def parse_object(text: str) -> dict[str, Any]:
    """A JSON object, empty if there is no text. One that cannot be read has only the key "unreadable"."""
    try:
        written = json.loads(text or "{}")
    except ValueError:
        return {"unreadable": True}
    return written if isinstance(written, dict) else {"unreadable": True}
