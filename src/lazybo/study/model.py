"""StudyModel: an optimiser that is told of a study's trials, and what is kept of it with the study.

Trials that ended, whoever ran them, are observations; trials that run, here or elsewhere, are pending. What was learned
is kept with the study, so that a resumed study or a second process goes on where the first one is: as an attribute of
the trial whose suggestion needed it, or of the study itself.
"""

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from lazybo.search.optimizer import Optimizer, Suggestion
from lazybo.search.space import Condition
from lazybo.study.curves import Curves

_logger = optuna.logging.get_logger("optuna.samplers.lazybo")

# What a trial that runs said it will evaluate; the known variance of its value's noise; what the study has taught.
SUGGESTION_KEY = "lazybo:suggestion"
VARIANCE_KEY = "lazybo:variance"
MODEL_KEY = "lazybo:model"
# Databases limit the length of one attribute, MySQL to 64 KiB; what is longer than this is kept in parts.
ATTRIBUTE_LENGTH = 30_000
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
    _unforeseen: dict[int, FrozenTrial] = field(default_factory=dict)  # pruned when too few others had completed
    _written: str = ""  # what was learned, as it was last written or read

    def __post_init__(self) -> None:
        self._curves = Curves(maximize=self.optimizer.direction == "maximize")
        self._written = self._learned()

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
        if trial.state == TrialState.COMPLETE:
            self._teach(trial, trial.value, trial.system_attrs.get(VARIANCE_KEY, 0.0))
            if trial.value is not None and math.isfinite(trial.value):
                self._curves.add(trial.intermediate_values, trial.value)
                for pruned in list(self._unforeseen.values()):
                    self._finish_pruned(pruned)
        elif trial.state == TrialState.PRUNED:
            self._finish_pruned(trial)
        else:
            self._teach(trial, None, 0.0)

    def _finish_pruned(self, trial: FrozenTrial) -> None:
        """A pruned trial teaches a forecast of its end. While none can be made it stays pending.

        One that reported nothing, or ended with a value that is not finite, has failed.
        """
        step = trial.last_step
        if step is None or not math.isfinite(trial.intermediate_values[step]):
            self._teach(trial, None, 0.0)
            return
        forecast = self._curves.forecast(step, trial.intermediate_values[step])
        if forecast is not None:
            self._unforeseen.pop(trial.number, None)
            self._teach(trial, forecast.value, forecast.variance)
        elif trial.number not in self._unforeseen:
            self._unforeseen[trial.number] = trial
            self.announce(trial.number, trial.params)
            self.surprised = self.surprised or trial.number not in self._pending

    def _teach(self, trial: FrozenTrial, value: float | None, variance: float) -> None:
        params = self._known(trial.params)
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

    def recall(self, attributes: Mapping[str, Any], trials: Sequence[FrozenTrial]) -> None:
        """Begin with what another process, or an earlier one, has learned of the same space.

        ``attributes`` are those of the study. The latest counts of what is kept there and with its trials.
        """
        latest = next((said for trial in reversed(trials) if "model" in (said := _said(trial))), {})
        for saved in sorted(
            (_parsed(joined(attributes, MODEL_KEY)), latest), key=lambda saved: saved.get("finished", 0)
        ):
            try:
                if saved and saved["columns"] == self._columns():
                    self.optimizer.restore_model(saved["model"])
            except (KeyError, TypeError, ValueError) as error:
                _logger.warning(f"What was learned earlier in this study cannot be used ({error}); it is learned anew.")
        self._written = self._learned()

    def news(self) -> dict[str, Any]:
        """What has been learned since the last call, as attributes of the study."""
        learned = self._news()
        if not learned:
            return {}
        text = json.dumps(learned)
        return {**parts(MODEL_KEY, text), f"{MODEL_KEY}:length": len(text)}

    def announcement(self, number: int, *, always: bool) -> dict[str, str]:
        """What others need to know of a trial, and what has been learned since the last call, as attributes of it.

        Empty if nothing was learned, unless it shall be said ``always``.
        """
        learned = self._news()
        if not learned and not always:
            return {}
        return announcement(self.pending_params(number), self.structure.distributions, learned)

    def _news(self) -> dict[str, Any]:
        text = self._learned()
        if text == self._written:
            return {}
        self._written = text
        return {"finished": self._absorbed + len(self._done), **json.loads(text)}

    def _learned(self) -> str:
        return json.dumps({"columns": self._columns(), "model": self.optimizer.model_state()})

    def _columns(self) -> list[list[str]]:
        return [[name, str(self.structure.distributions[name])] for name in self.optimizer.space.names]


class Patience:
    """Which trials have just begun and not said yet what they evaluate: worth waiting for, but not for ever.

    The time counts from when a trial was first seen here: clocks of other hosts may differ from ours.
    """

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def is_undecided(self, trial: FrozenTrial) -> bool:
        """Whether to wait for this trial."""
        if trial.state != TrialState.RUNNING or trial.params or f"{SUGGESTION_KEY}:0" in trial.system_attrs:
            self._since.pop(trial.number, None)
            return False
        now = time.monotonic()
        return now - self._since.setdefault(trial.number, now) < PATIENCE

    def any_undecided(self, trials: Iterable[FrozenTrial]) -> bool:
        """Whether to wait for any of these; the time of each begins."""
        return sum(self.is_undecided(trial) for trial in trials) > 0


# --------------------------------------------------------------- attributes


def announcement(
    params: Mapping[str, Any], space: Mapping[str, BaseDistribution], learned: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """What a trial will evaluate, and perhaps what was learned, as attributes: one write if they are short enough.

    Parameters are in Optuna's internal numbers, since choices may be anything.
    """
    internal = {name: space[name].to_internal_repr(value) for name, value in params.items()}
    return parts(SUGGESTION_KEY, json.dumps({"params": internal, **(learned or {})}))


def announced_params(trial: FrozenTrial, space: Mapping[str, BaseDistribution]) -> dict[str, Any]:
    """What a trial said that it will evaluate, as far as it lies in the space."""
    written = _said(trial).get("params", {})
    return {name: space[name].to_external_repr(value) for name, value in written.items() if name in space}


def _said(trial: FrozenTrial) -> dict[str, Any]:
    """The announcement of a trial."""
    return _parsed(joined(trial.system_attrs, SUGGESTION_KEY))


def _parsed(text: str) -> dict[str, Any]:
    """A JSON object; one that cannot be read is empty but for a key that says so."""
    try:
        written = json.loads(text or "{}")
    except ValueError:
        return {"unreadable": True}
    return written if isinstance(written, dict) else {"unreadable": True}


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
