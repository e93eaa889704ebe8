"""StudyModel: an optimiser that is told of a study's trials, and what is kept of it with the study.

Trials that ended, whoever ran them, are observations; trials that run, here or elsewhere, are pending. What was learned
is an attribute of the study, so that a resumed study or a second process goes on where the first one is.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from lazybo.search.optimizer import Optimizer, Suggestion
from lazybo.search.space import Condition

_logger = optuna.logging.get_logger("optuna.samplers.lazybo")

# What a trial that runs said it will evaluate; the known variance of its value's noise; what the study has taught.
PARAMS_KEY = "lazybo:params"
VARIANCE_KEY = "lazybo:variance"
MODEL_KEY = "lazybo:model"
# Storages may limit the length of one attribute; what is longer than this is kept in parts.
ATTRIBUTE_LENGTH = 2000
# A trial waits this many seconds for one before it, begun in another process, to make up its mind.
PATIENCE = 2.0


@dataclass(frozen=True)
class Structure:
    """Parameters, and when they are active."""

    distributions: dict[str, BaseDistribution]
    conditions: dict[str, Condition]
    optional: frozenset[str]


@dataclass
class StudyModel:
    """An optimiser and the trials it has been told of."""

    structure: Structure
    optimizer: Optimizer
    surprised: bool = False  # by a trial that does not fit the structure
    _absorbed: int = 0  # trials before this number have ended and were absorbed
    _done: set[int] = field(default_factory=set)
    _pending: dict[int, Suggestion] = field(default_factory=dict)
    _complete: list[float] = field(default_factory=list)
    _written: str = ""

    def absorb(self, trials: Sequence[FrozenTrial], except_number: int) -> None:
        """Observe what has ended and hold as pending what runs and is known."""
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
        """A trial that runs with these parameters, if they are a configuration of the space."""
        if number in self._pending:
            if self._pending[number].params == self._known(params):
                return
            self.optimizer.forget(self._pending.pop(number))
        try:
            self._pending[number] = self.optimizer.announce(self._known(params))
        except ValueError:
            return  # too early to say, or another space: it will be observed when it has ended

    def pending_params(self, number: int) -> dict[str, Any]:
        """What a trial that runs will evaluate, if it is known."""
        return self._pending[number].params if number in self._pending else {}

    def finish(self, trial: FrozenTrial) -> None:
        """What a trial that ended has shown; once."""
        if trial.number in self._done or trial.number < self._absorbed:
            return
        self._done.add(trial.number)
        params = self._known(trial.params)
        value, variance = self._value(trial), trial.system_attrs.get(VARIANCE_KEY, 0.0)
        suggestion = self._pending.pop(trial.number, None)
        if suggestion is not None and suggestion.params == params:
            self.optimizer.tell(suggestion, value, variance=variance)
            return
        if suggestion is not None:
            self.optimizer.forget(suggestion)
        try:
            self.optimizer.observe(params, value, variance=variance, outside=True)
        except ValueError:
            # From another space; or a trial that failed before it had its parameters, which teaches nothing.
            self.surprised = self.surprised or trial.state != TrialState.FAIL

    def _known(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in params.items() if name in self.structure.distributions}

    def _value(self, trial: FrozenTrial) -> float | None:
        """What a trial teaches; None: a failure.

        A pruned trial teaches its last intermediate value, but never that it was better than the median of the
        completed ones: a pruner stops what is worse than that, and early values flatter.
        """
        if trial.state == TrialState.COMPLETE:
            value = trial.value
            if value is not None and math.isfinite(value):
                self._complete.append(value)
            return value
        if trial.state == TrialState.PRUNED and trial.last_step is not None and self._complete:
            ordered = sorted(self._complete)
            median = ordered[len(ordered) // 2]
            worse = max if self.optimizer.direction == "minimize" else min
            last = trial.intermediate_values[trial.last_step]
            return worse(last, median) if math.isfinite(last) else None
        return None

    def recall(self, attributes: Mapping[str, Any]) -> None:
        """Begin with what another process, or an earlier one, has learned of the same space."""
        text = joined(attributes, MODEL_KEY)
        if not text:
            return
        try:
            saved = json.loads(text)
            if saved["columns"] == self._columns():
                self.optimizer.restore_model(saved["model"])
        except (KeyError, TypeError, ValueError) as error:
            _logger.warning(f"What was learned earlier in this study cannot be used ({error}); it is learned anew.")

    def news(self) -> dict[str, Any]:
        """What has been learned since the last call, as attributes of the study."""
        text = json.dumps({"columns": self._columns(), "model": self.optimizer.model_state()})
        if text == self._written:
            return {}
        self._written = text
        return {**parts(MODEL_KEY, text), f"{MODEL_KEY}:length": len(text)}

    def _columns(self) -> list[list[str]]:
        return [[name, str(self.structure.distributions[name])] for name in self.optimizer.space.names]


def is_undecided(trial: FrozenTrial) -> bool:
    """Whether a trial has just begun and not said yet what it evaluates: worth waiting for."""
    if trial.state != TrialState.RUNNING or trial.params or f"{PARAMS_KEY}:0" in trial.system_attrs:
        return False
    assert trial.datetime_start is not None, "a running trial has begun"
    return (datetime.now() - trial.datetime_start).total_seconds() < PATIENCE


# --------------------------------------------------------------- attributes


def announcement(params: Mapping[str, Any], space: Mapping[str, BaseDistribution]) -> dict[str, str]:
    """What a trial will evaluate, as attributes: in Optuna's internal numbers, since choices may be anything."""
    return parts(PARAMS_KEY, json.dumps({name: space[name].to_internal_repr(value) for name, value in params.items()}))


def announced_params(trial: FrozenTrial, space: Mapping[str, BaseDistribution]) -> dict[str, Any]:
    """What a trial said that it will evaluate, as far as it lies in the space."""
    text = joined(trial.system_attrs, PARAMS_KEY)
    written = json.loads(text) if text else {}
    return {name: space[name].to_external_repr(value) for name, value in written.items() if name in space}


def parts(key: str, text: str) -> dict[str, str]:
    """A text as attributes that are short enough for every storage.

    The first part comes last: a text that a kill cuts short while it is written is not there at all.
    """
    starts = range(0, len(text), ATTRIBUTE_LENGTH)
    in_order = {f"{key}:{part}": text[i : i + ATTRIBUTE_LENGTH] for part, i in enumerate(starts)}
    return dict(reversed(in_order.items()))


def joined(attributes: Mapping[str, Any], key: str) -> str:
    """A text that was kept in parts; what is left of a longer one is cut off."""
    text, part = "", 0
    while f"{key}:{part}" in attributes:
        text += attributes[f"{key}:{part}"]
        part += 1
    return text[: attributes.get(f"{key}:length", len(text))]
