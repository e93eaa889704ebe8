"""What happens in a worker: the objective is called, and whatever comes of it becomes an Outcome.

Nothing but plain data of bounded size travels back (`lazybo.run.plain`): an exception is its text, since its class may
not exist in the driver.
"""

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np
from optuna.exceptions import TrialPruned

from lazybo.run import plain
from lazybo.run.call import Call

# Databases keep steps as whole numbers of four bytes.
MAX_STEP = 2**31 - 1


State = Literal["complete", "pruned", "failed", "invalid"]


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
        if isinstance(step, bool) or not isinstance(step, int | np.integer) or not 0 <= step <= MAX_STEP:
            raise ValueError(f"step must be a whole number from 0 to {MAX_STEP}, not {plain.short(step)}")
        try:
            number = _number(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"report takes a number that a float can hold, not {plain.short(value)}") from None
        if self._reporter is not None:
            self._prune = self._reporter.report(self.number, int(step), number)

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
    timed: bool = False  # whether its time is limited, so that its beginning must be reported
    noted: bool = False  # whether its beginning is to be reported if the driver can be reached


@dataclass(frozen=True)
class Measured:
    """What an objective of our own returns: a value, the known variance of its noise, and metrics to keep."""

    value: float
    variance: float = 0.0
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """How a task ended. "invalid": the objective returned what is no value, which another evaluation will not mend.

    ``dropped`` are metrics that are no plain data.
    """

    state: State
    value: float | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    traceback: str = ""
    seconds: float = 0.0
    variance: float = 0.0  # of the noise in the value, as far as it is known
    dropped: tuple[str, ...] = ()


def evaluate(objective: Call | bytes, task: Task) -> Outcome:
    """Call the objective; never raises but for an interrupt."""
    start = time.perf_counter()
    trial = Trial(task.number, task.params, task.reporter)
    try:
        _announce(task)
        call = _load(objective) if isinstance(objective, bytes) else objective
        outcome = _outcome(call(trial.params, trial, task.fold), trial.user_attrs)
    except KeyboardInterrupt:
        raise
    except TrialPruned:
        outcome = _ended("pruned", trial.user_attrs)
    except BaseException as error:  # an objective may call sys.exit(), or be cancelled by asyncio
        failed = _ended("failed", trial.user_attrs)
        outcome = replace(failed, reason=plain.reason(error), traceback=plain.trace(error))
    return replace(outcome, seconds=time.perf_counter() - start)


def _announce(task: Task) -> None:
    """Say that the evaluation begins, where somebody wants to know."""
    if task.reporter is None:
        return
    if task.timed:
        task.reporter.begin(task.number, task.fold)
    elif task.noted:
        with suppress(OSError, EOFError):  # a driver that cannot be reached from here gets its result all the same
            task.reporter.begin(task.number, task.fold)


@lru_cache(maxsize=1)
def _load(payload: bytes) -> Call:
    """The objective as it was sent; a worker that evaluates it again has it already."""
    import cloudpickle

    call: Call = cloudpickle.loads(payload)
    return call


def _outcome(returned: Any, attributes: Mapping[str, Any]) -> Outcome:
    """A returned value, or a dict with ``value`` and metrics."""
    metrics: dict[Any, Any] = dict(attributes)
    variance = 0.0
    if isinstance(returned, Measured):
        variance = returned.variance
        returned = {**returned.metrics, "value": returned.value}
    if isinstance(returned, Mapping):
        if "value" not in returned:
            reason = f"the objective returned a dict without 'value': {plain.short(returned)}"
            return _ended("invalid", metrics, reason=reason)
        metrics |= {name: metric for name, metric in returned.items() if not _is_value(name)}
        returned = returned["value"]
    try:
        value = _number(returned)
    except (TypeError, ValueError):
        hint = " (is a return statement missing?)" if returned is None else ""
        shown = plain.short(returned)
        reason = f"the objective must return a number, or a dict with a number as 'value', not {shown}{hint}"
        return _ended("invalid", metrics, reason=reason)
    except OverflowError:
        return _ended("failed", metrics, reason=f"the value is too large for a float: {plain.short(returned)}")
    if not math.isfinite(value):
        return _ended("failed", metrics, reason=f"the value is {value}")
    return _ended("complete", metrics, value=value, variance=variance)


def _ended(state: State, metrics: Mapping[Any, Any], **details: Any) -> Outcome:
    kept, dropped = plain.metrics(metrics)
    return Outcome(state, metrics=kept, dropped=dropped, **details)


def _is_value(name: object) -> bool:
    return isinstance(name, str) and name == "value"


def _number(thing: Any) -> float:
    """A float; texts are none, though Python would read them."""
    if isinstance(thing, str | bytes):
        raise TypeError("a text is no number")
    return float.__pos__(float(thing))
