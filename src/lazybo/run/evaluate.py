"""What a worker does: it calls the objective and turns the result into an Outcome.

Only plain data of bounded size is sent back (`lazybo.run.plain`): an exception becomes its text, since the driver may
not have its class.
"""

import math
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Literal, Protocol

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.exceptions import TrialPruned

from lazybo.core.checks import is_number
from lazybo.run import plain, suggest
from lazybo.run.call import Call
from lazybo.run.checkpoints import opened
from lazybo.run.goals import ONE_OBJECTIVE, Goals, metric_at
from lazybo.run.steps import NO_STEPS, InvalidStep, Steps, TrialPaused, follow, is_kept

LARGEST = sys.float_info.max
# Databases keep steps as four-byte integers.
MAX_STEP = 2**31 - 1


State = Literal["complete", "pruned", "paused", "failed", "invalid"]
# What hardly depends on the parameters: the objective itself has a bug.
BUGS = (NameError, ImportError, AttributeError, TypeError, SyntaxError, suggest.SpaceError)


class Reporter(Protocol):
    """What a worker reports to."""

    def begin(self, number: int, fold: int | None) -> None:
        """The evaluation starts: its timeout counts from now on."""

    def report(self, number: int, step: int, value: float) -> bool:
        """Record the value of a trial at a step; True if the trial should stop."""

    def flush(self, number: int) -> None:
        """Wait until all values that were reported are in the study."""


class Trial:
    """The trial that an objective gets: the parts of Optuna's trial that make sense in a worker.

    The parameters are chosen before the evaluation starts; ``suggest_*`` look them up.
    """

    def __init__(self, number: int, params: Mapping[str, Any], reporter: Reporter | None = None) -> None:
        self.number = number
        self.params = dict(params)
        self.user_attrs: dict[str, Any] = {}
        self.constraints: dict[str, float] = {}
        self._reporter = reporter
        self._prune = False
        self.yields = False  # whether the objective is a generator function
        self.space: Mapping[str, BaseDistribution] = {}  # empty if it is not known
        self.reported: tuple[int, float] | None = None  # the last step and value of an earlier evaluation

    def report(self, value: float, step: int) -> None:
        """Record an intermediate value and ask the pruner. Of several objectives it is that of ``reports``."""
        if self.yields:
            raise ValueError("trial.report is not for generator functions: yield the value of each step instead")
        self.record(value, step)

    def record(self, value: float, step: int) -> bool:
        """The same for a value that was yielded; true if the trial should stop."""
        if isinstance(step, bool) or not isinstance(step, int | np.integer) or not 0 <= step <= MAX_STEP:
            raise ValueError(f"step must be a whole number from 0 to {MAX_STEP}, not {plain.short(step)}")
        try:
            number = plain.number(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"report takes a number that a float can hold, not {plain.short(value)}") from None
        if self._reporter is not None:
            self._prune = self._reporter.report(self.number, int(step), number)
        return self._prune

    def flush(self) -> None:
        """Wait until all values that were reported are in the study."""
        if self._reporter is not None:
            self._reporter.flush(self.number)

    def should_prune(self) -> bool:
        """Whether the pruner wants to end this trial; raise `optuna.TrialPruned` then."""
        return self._prune

    def set_user_attr(self, key: str, value: Any) -> None:
        """Keep a value with the trial."""
        self.user_attrs[key] = value

    def set_constraint(self, key: str, value: float) -> None:
        """Keep what was measured of a constraint. The trial is feasible if all its constraints are at most 0."""
        try:
            number = plain.number(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not isinstance(key, str) or not key.strip() or math.isnan(number):
            raise ValueError(
                f"set_constraint takes a name and a number, not {plain.short(key)} and {plain.short(value)}"
            )
        self.constraints[key] = number

    def suggest_float(
        self,
        name: str,
        low: float | None = None,
        high: float | None = None,
        *,
        step: float | None = None,
        log: bool = False,
    ) -> float:
        """The value of a parameter. A range may be left out; one that contradicts the space is a `SpaceError`."""
        value = self._chosen(name)
        if self.space:
            suggest.check_float(self.space[name], name, low, high, step, log)
        return float(value)

    def suggest_int(
        self, name: str, low: int | None = None, high: int | None = None, *, step: int = 1, log: bool = False
    ) -> int:
        """The value of a parameter. A range may be left out; one that contradicts the space is a `SpaceError`."""
        value = self._chosen(name)
        if self.space:
            suggest.check_int(self.space[name], name, low, high, step, log)
        return int(value)

    def suggest_categorical(self, name: str, choices: Sequence[Any] | None = None) -> Any:
        """The value of a parameter. Choices may be left out; others than those of the space are a `SpaceError`."""
        value = self._chosen(name)
        if self.space:
            suggest.check_choices(self.space[name], name, choices)
        return value

    def _chosen(self, name: str) -> Any:
        if self.space:
            suggest.check_name(name, self.space)
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
    timed: bool = False  # whether it has a timeout, so that its start must be reported
    noted: bool = False  # whether its start is reported if the driver can be reached
    goals: Goals = ONE_OBJECTIVE
    steps: Steps = NO_STEPS
    reported: tuple[int, float] | None = None  # the last step and value that an earlier evaluation has reported


@dataclass(frozen=True)
class Measured:
    """What an objective of our own returns: a value, the known variance of its noise, and metrics to keep."""

    value: float
    variance: float = 0.0
    metrics: Mapping[str, Any] = field(default_factory=dict)


class EvaluationFailed(RuntimeError):
    """A failure that an objective of our own describes.

    ``kind`` is a code for programs. ``where`` is the file or folder that shows more: it is part of the message, but not
    of ``summary``, which is the same for all trials that fail in the same way.
    """

    def __init__(self, summary: str, *, kind: str = "", where: object = "") -> None:
        super().__init__(f"{summary} (see {where})" if where else summary)
        self.summary, self.kind = summary, kind


@dataclass(frozen=True)
class Raised:
    """What an objective raised, as plain data. The exception itself is not sent to other processes."""

    kind: str  # the name of its class, with the module unless it is built in
    arguments: tuple[Any, ...]  # if they are short plain data, or else its message
    trace: str  # where it was raised, in a few lines
    bug: bool  # whether it looks like a bug of the objective, which other parameters do not avoid
    error: BaseException | None = field(default=None, compare=False)  # None in other processes

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "error": None}


@dataclass(frozen=True)
class Outcome:
    """How a task ended. "invalid": the result is not a number; retrying cannot help.

    ``values`` has the values of several objectives; ``value`` that of one. ``constraints`` are those that the trial
    has measured, also if it failed. ``dropped`` names the metrics that have no plain form.
    """

    state: State
    value: float | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    traceback: str = ""
    seconds: float = 0.0
    variance: float = 0.0  # of the noise in the value, if known
    dropped: tuple[str, ...] = ()
    failure: dict[str, str] = field(default_factory=dict)  # the kind and the summary of an EvaluationFailed
    raised: Raised | None = None  # what the objective raised, unless that is an EvaluationFailed
    values: tuple[float, ...] = ()
    constraints: dict[str, float] = field(default_factory=dict)


def evaluate(objective: Call | bytes, task: Task) -> Outcome:
    """Call the objective. Raises nothing but KeyboardInterrupt."""
    start = time.perf_counter()
    trial = Trial(task.number, task.params, task.reporter)
    call: Call | None = None
    try:
        _report_begin(task)
        call = _load(objective) if isinstance(objective, bytes) else objective
        outcome = _outcome(_called(call, trial, task), trial.user_attrs, task.goals)
    except KeyboardInterrupt:
        raise
    except TrialPruned:
        outcome = _ended("pruned", trial.user_attrs)
    except TrialPaused:
        outcome = _ended("paused", trial.user_attrs)
    except InvalidStep as error:
        outcome = _ended("invalid", trial.user_attrs, reason=str(error))
    except EvaluationFailed as error:
        failed = _ended("failed", trial.user_attrs)
        described = {"kind": error.kind, "summary": plain.cut(error.summary, plain.REASON_LENGTH)}
        reason = plain.cut(str(error), plain.REASON_LENGTH)
        outcome = replace(failed, reason=reason, traceback=plain.trace(error), failure=described)
    except BaseException as error:  # an objective may call sys.exit(), or be cancelled by asyncio
        failed = _ended("failed", trial.user_attrs)
        reason = plain.reason(error) + (call.hint(error) if call is not None else "")
        raised = _raised(error)
        outcome = replace(failed, reason=reason, traceback=plain.trace(error), raised=raised)
    outcome = costed(bounded(outcome, task.goals, trial.constraints), task.goals.cost)
    return replace(outcome, seconds=time.perf_counter() - start)


def _raised(error: BaseException) -> Raised:
    """An exception of an objective, whose traceback begins with the objective and keeps no variables alive."""
    frames = error.__traceback__
    while frames is not None and str(frames.tb_frame.f_globals.get("__name__")).startswith("lazybo.run."):
        frames = frames.tb_next
    error = BaseException.with_traceback(error, frames or error.__traceback__)
    causes, seen = [error], {id(error)}
    for cause in causes:
        # A model in the memory of a GPU would stay there for as long as the exception does.
        traceback.clear_frames(cause.__traceback__)
        others = [each for each in (cause.__cause__, cause.__context__) if each is not None and id(each) not in seen]
        causes += others
        seen |= set(map(id, others))
    return Raised(plain.kind(error), plain.arguments(error), plain.short_trace(error), isinstance(error, BUGS), error)


def _called(call: Call, trial: Trial, task: Task) -> Any:
    """What the objective returns; a generator is run to its end."""
    trial.yields, trial.reported, trial.space = call.generator, task.reported, call.space
    if not call.takes_checkpoint or task.steps.checkpoints is None:
        returned = call(trial.params, trial, task.fold)
        return follow(returned, trial.record, task.steps, task.goals) if call.generator else returned
    is_value = partial(is_kept, goals=task.goals)
    with opened(task.steps.checkpoints, task.number, copies=call.generator, is_value=is_value) as checkpoint:
        trial.set_user_attr("checkpoint", str(checkpoint.folder))
        returned = call(trial.params, trial, task.fold, checkpoint.folder)
        if not call.generator:
            return returned
        checkpoint.before_copy = trial.flush  # a checkpoint is never ahead of the study
        return follow(returned, trial.record, task.steps, task.goals, checkpoint)


def _report_begin(task: Task) -> None:
    """Report that the evaluation starts, if the driver needs to know."""
    if task.reporter is None:
        return
    if task.timed:
        task.reporter.begin(task.number, task.fold)
    elif task.noted:
        with suppress(OSError, EOFError):  # a driver that cannot be reached still gets the result
            task.reporter.begin(task.number, task.fold)


@lru_cache(maxsize=1)
def _load(payload: bytes) -> Call:
    """The objective as it was sent. A worker loads it once."""
    import cloudpickle

    call: Call = cloudpickle.loads(payload)
    return call


def _outcome(returned: Any, attributes: Mapping[str, Any], goals: Goals) -> Outcome:
    """The outcome for a returned value, several of them, or a dict with ``value`` and metrics."""
    metrics: dict[Any, Any] = dict(attributes)
    variance = 0.0
    if isinstance(returned, Measured):
        variance = returned.variance
        returned = {**returned.metrics, "value": returned.value}
    if isinstance(returned, Mapping):
        wanted = goals.names or ("value",)
        missing = [name for name in wanted if metric_at(returned, name) is None and name not in returned]
        if missing:
            reason = f"the objective returned a dict without {missing[0]!r}: {plain.short(returned)}"
            return _ended("invalid", metrics, reason=reason)
        # The value is that of the trial. Objectives with names are metrics, too.
        metrics |= {name: metric for name, metric in returned.items() if goals.names or not _is_value(name)}
        found = [metric_at(returned, name) for name in wanted]
        returned = found if goals.several and goals.names else found[0]
    elif goals.names:
        reason = (
            f"the objective must return a dict with {' and '.join(map(repr, goals.names))}, not {plain.short(returned)}"
        )
        return _ended("invalid", metrics, reason=reason)
    if goals.several:
        return _several(returned, metrics, len(goals.directions))
    value = _one(returned, metrics, alone=True)
    return value if isinstance(value, Outcome) else _ended("complete", metrics, value=value, variance=variance)


def _several(returned: Any, metrics: Mapping[Any, Any], count: int) -> Outcome:
    """The outcome for the values of several objectives."""
    if not isinstance(returned, list | tuple | np.ndarray) or len(returned) != count:
        shown = plain.short(returned)
        reason = f"the objective must return {count} numbers, one for each objective, as a tuple or a list, not {shown}"
        return _ended("invalid", metrics, reason=reason)
    values = [_one(each, metrics) for each in returned]
    wrong = [value for value in values if isinstance(value, Outcome)]
    # Retrying cannot help if any of them is not a number.
    worst = sorted(wrong, key=lambda outcome: outcome.state != "invalid")
    return worst[0] if worst else _ended("complete", metrics, values=tuple(values))


def _one(returned: Any, metrics: Mapping[Any, Any], *, alone: bool = False) -> float | Outcome:
    """A returned value as a finite number, or the outcome if it is none; ``alone``: there is one objective."""
    try:
        value = plain.number(returned)
    except (TypeError, ValueError):
        hint = " (is a return statement missing?)" if returned is None else ""
        if alone and isinstance(returned, list | tuple | np.ndarray):
            hint = " (several objectives need directions, such as directions=['minimize', 'maximize'])"
        shown = plain.short(returned)
        reason = f"the objective must return a number, or a dict with a number as 'value', not {shown}{hint}"
        return _ended("invalid", metrics, reason=reason)
    except OverflowError:
        return _ended("failed", metrics, reason=f"the value is too large for a float: {plain.short(returned)}")
    if not math.isfinite(value):
        return _ended("failed", metrics, reason=f"the value is {value}")
    return value


def bounded(outcome: Outcome, goals: Goals, measured: Mapping[str, float]) -> Outcome:
    """The outcome with its constraints: those that the trial has set, and the bounds on its metrics.

    A complete evaluation that lacks a metric with a bound is invalid: whether it is feasible cannot be known.
    """
    found = dict(measured)
    try:
        found |= goals.violations(outcome.metrics)
    except KeyError as error:
        if outcome.state == "complete":
            name = error.args[0]
            text = f"there is a constraint on the metric {name!r}, so the objective must return it as a number"
            value = plain.short(metric_at(outcome.metrics, name))
            # NaN and None become None in metrics: this evaluation could not measure it.
            state: State = "failed" if name in outcome.metrics else "invalid"
            outcome = replace(outcome, state=state, value=None, values=(), reason=f"{text}, not {value}")
    return replace(outcome, constraints={name: min(max(each, -LARGEST), LARGEST) for name, each in found.items()})


def costed(outcome: Outcome, cost: str | None) -> Outcome:
    """The outcome itself; invalid if it is complete but lacks the metric that is its cost, or that is not positive."""
    if cost is None or outcome.state != "complete":
        return outcome
    found = metric_at(outcome.metrics, cost)
    if is_number(found) and found > 0.0:  # metrics are finite
        return outcome
    reason = f"the metric {cost!r} is the cost, so the objective must return it as a positive number"
    # NaN and None become None in metrics: this evaluation could not measure it.
    state: State = "failed" if found is None and cost in outcome.metrics else "invalid"
    given = "but did not" if found is None else f"not {plain.short(found)}"
    return replace(outcome, state=state, value=None, values=(), reason=f"{reason}, {given}")


def _ended(state: State, metrics: Mapping[Any, Any], **details: Any) -> Outcome:
    kept, dropped = plain.metrics(metrics)
    return Outcome(state, metrics=kept, dropped=dropped, **details)


def _is_value(name: object) -> bool:
    return isinstance(name, str) and name == "value"
