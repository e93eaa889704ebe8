"""What happens in a worker: the objective is called, and whatever comes of it becomes an Outcome.

Nothing but plain data travels back: an exception is its text, since its class may not exist in the driver.
"""

import json
import math
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np
from optuna.exceptions import TrialPruned

from lazybo.run.call import Call

# The end of a long traceback is what matters; storages may limit the length of a text.
TRACEBACK_LENGTH = 20_000


class Reporter(Protocol):
    """Where a worker's news go."""

    def begin(self, number: int, fold: int | None) -> bool:
        """An evaluation has reached its worker: its time counts from now on; True: nobody waits for it any more."""

    def report(self, number: int, step: int, value: float) -> bool:
        """Record the value of a trial at a step; True: stop this trial."""


class Trial:
    """What an objective sees of its trial: the parts of Optuna's trial that make sense in a worker.

    The parameters are chosen before the evaluation begins; ``suggest_*`` look them up.
    """

    def __init__(self, number: int, params: Mapping[str, Any], reporter: Reporter | None = None) -> None:
        self.number = number
        self.params = dict(params)
        self.user_attrs: dict[str, Any] = {}
        self._reporter = reporter
        self._prune = False

    def report(self, value: float, step: int) -> None:
        """An intermediate value; it is recorded at once and decides whether the trial should be pruned."""
        if isinstance(step, bool) or not isinstance(step, int | np.integer) or step < 0:
            raise ValueError(f"step must be a whole number that is not negative, not {step!r}")
        if self._reporter is not None:
            self._prune = self._reporter.report(self.number, int(step), float(value))

    def should_prune(self) -> bool:
        """Whether the pruner has given this trial up; raise `optuna.TrialPruned` then."""
        return self._prune

    def set_user_attr(self, key: str, value: Any) -> None:
        """Something to keep with the trial."""
        self.user_attrs[key] = value

    def suggest_float(self, name: str, *_: Any, **__: Any) -> float:
        """The value of a parameter."""
        return float(self._chosen(name))

    def suggest_int(self, name: str, *_: Any, **__: Any) -> int:
        """The value of a parameter."""
        return int(self._chosen(name))

    def suggest_categorical(self, name: str, *_: Any, **__: Any) -> Any:
        """The value of a parameter."""
        return self._chosen(name)

    def _chosen(self, name: str) -> Any:
        if name not in self.params:
            raise KeyError(f"{name!r} is not active in this trial, which has {sorted(self.params)}")
        return self.params[name]


@dataclass(frozen=True)
class Task:
    """One evaluation, or one fold of it."""

    number: int
    params: dict[str, Any]
    fold: int | None = None
    reporter: Reporter | None = None
    timed: bool = False  # whether its beginning is to be reported


@dataclass(frozen=True)
class Measured:
    """What an objective of our own returns: a value, the known variance of its noise, and metrics to keep."""

    value: float
    variance: float = 0.0
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """How a task ended. "invalid": the objective returned what is no value, which another evaluation will not mend."""

    state: Literal["complete", "pruned", "failed", "invalid"]
    value: float | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    traceback: str = ""
    seconds: float = 0.0
    variance: float = 0.0  # of the noise in the value, as far as it is known


def evaluate(objective: Call | bytes, task: Task) -> Outcome:
    """Call the objective; never raises but for an interrupt."""
    start = time.perf_counter()
    trial = Trial(task.number, task.params, task.reporter)
    try:
        if task.timed and task.reporter is not None:
            task.reporter.begin(task.number, task.fold)
        call = _load(objective) if isinstance(objective, bytes) else objective
        outcome = _outcome(call(trial.params, trial, task.fold), trial.user_attrs)
    except TrialPruned:
        outcome = Outcome("pruned", metrics=_plain(trial.user_attrs))
    except (Exception, SystemExit) as error:
        reason = "".join(traceback.format_exception_only(error)).strip()
        text = traceback.format_exc()[-TRACEBACK_LENGTH:]
        outcome = Outcome("failed", metrics=_plain(trial.user_attrs), reason=reason, traceback=text)
    return Outcome(**{**outcome.__dict__, "seconds": time.perf_counter() - start})


@lru_cache(maxsize=1)
def _load(payload: bytes) -> Call:
    """The objective as it was sent; a worker that evaluates it again has it already."""
    import cloudpickle

    call: Call = cloudpickle.loads(payload)
    return call


def _outcome(returned: Any, attributes: Mapping[str, Any]) -> Outcome:
    """A returned value, or a dict with ``value`` and metrics."""
    metrics = dict(attributes)
    variance = 0.0
    if isinstance(returned, Measured):
        variance = returned.variance
        returned = {**returned.metrics, "value": returned.value}
    if isinstance(returned, Mapping):
        if "value" not in returned:
            return Outcome("invalid", reason=f"the objective returned a dict without 'value': {_short(returned)}")
        metrics |= {str(name): metric for name, metric in returned.items() if name != "value"}
        returned = returned["value"]
    try:
        if isinstance(returned, str | bytes):
            raise TypeError
        value = float(returned)
    except (TypeError, ValueError):
        hint = " (is a return statement missing?)" if returned is None else ""
        reason = f"the objective must return a number, or a dict with a number as 'value', not {_short(returned)}{hint}"
        return Outcome("invalid", metrics=_plain(metrics), reason=reason)
    if not math.isfinite(value):
        return Outcome("failed", metrics=_plain(metrics), reason=f"the value is {value}")
    return Outcome("complete", value, _plain(metrics), variance=variance)


def _plain(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics as JSON can hold them. A metric is no reason to lose an evaluation: what is no data is kept as text."""
    return {name: json.loads(json.dumps(metric, default=_data)) for name, metric in metrics.items()}


def _data(metric: Any) -> Any:
    return metric.tolist() if hasattr(metric, "tolist") else str(metric)


def _short(thing: Any) -> str:
    text = repr(thing)
    return text if len(text) <= 100 else text[:97] + "..."
