"""What a worker does: it calls the objective and turns the result into an `Outcome`.

Only plain data of bounded size is sent back (`lazybo.run.plain`). An exception becomes text, since the driver may not
have its class. This module imports no model, so that workers start fast.
"""

import math
import sys
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from optuna.exceptions import TrialPruned

from lazybo.core import checks, codec
from lazybo.run import plain
from lazybo.run.channel import Reporter
from lazybo.run.checkpoints import Checkpoint, opened
from lazybo.run.devices import Devices
from lazybo.run.goals import ONE_OBJECTIVE, Goals
from lazybo.run.objective import Call
from lazybo.run.trial import DefiningTrial, SpaceError, Trial, TrialPaused

LARGEST = sys.float_info.max
State = Literal["complete", "pruned", "paused", "failed", "invalid"]
# Errors that hardly depend on the parameters: the objective itself has a bug.
BUGS = (NameError, ImportError, AttributeError, TypeError, SyntaxError, SpaceError)


@dataclass(frozen=True)
class Steps:
    """How a run treats trainings that report step by step."""

    max_steps: int | None = None
    checkpoints: Path | None = None  # the common folder of checkpoints; None if the objective takes no checkpoint
    pauses: bool = True  # False: trainings that are stopped are pruned, although they could be continued

    @property
    def pausable(self) -> bool:
        """Whether a training that is stopped can be continued later."""
        return self.pauses and self.checkpoints is not None and self.max_steps is not None


NO_STEPS = Steps()


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
    devices: Devices | None = None  # it owns one of them while it runs
    claims: bool = False  # whether the objective claims its device itself
    defines: bool = False  # whether the objective names its parameters itself


class EvaluationFailed(RuntimeError):
    """A failure that an objective of our own describes.

    ``kind`` is a code for programs. ``where`` is the file or folder that shows more: it is part of the message, but not
    of ``summary``, which is the same for all trials that fail in the same way.
    """

    def __init__(self, summary: str, *, kind: str = "", where: object = "") -> None:
        super().__init__(f"{summary} (see {where})" if where else summary)
        self.summary, self.kind = summary, kind


class NoResult(Exception):
    """What an objective returned or yielded is no result; "invalid" means that retrying cannot help."""

    def __init__(self, reason: str, state: State = "invalid") -> None:
        super().__init__(reason)
        self.state = state


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
    """How a task ended. "invalid" means that the result is not a number, so retrying cannot help.

    ``value`` is for one objective, ``values`` for several. ``constraints`` are those that the trial has measured, even
    if it failed. ``dropped`` names the metrics that have no plain form.
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


# --------------------------------------------------------------------- evaluation


def evaluate(objective: Call | bytes, task: Task) -> Outcome:
    """Call the objective, which owns a device meanwhile if there are some.

    Raises only KeyboardInterrupt, and an OSError or ValueError if no device can be claimed.
    """
    with ExitStack() as stack:
        kind = DefiningTrial if task.defines else Trial
        trial = kind(task.number, task.params, task.reporter, task.devices)
        if not task.claims:
            # Before the objective is loaded: what it imports looks for devices once.
            stack.enter_context(trial.owning(alone=True))
        return _evaluated(objective, task, trial)


def _evaluated(objective: Call | bytes, task: Task, trial: Trial) -> Outcome:
    start = time.perf_counter()
    call: Call | None = None
    try:
        _report_begin(task)
        call = _load(objective) if isinstance(objective, bytes) else objective
        outcome = _outcome(_called(call, trial, task), trial.user_attrs, task.goals)
    except KeyboardInterrupt:
        raise
    except TrialPruned as stopped:
        outcome = _ended("paused" if isinstance(stopped, TrialPaused) else "pruned", trial.user_attrs)
    except NoResult as error:
        outcome = _ended(error.state, trial.user_attrs, reason=str(error))
    except EvaluationFailed as error:
        described = {"kind": error.kind, "summary": plain.cut(error.summary, plain.REASON_LENGTH)}
        reason, trace = plain.cut(str(error), plain.REASON_LENGTH), plain.trace(error)
        outcome = _ended("failed", trial.user_attrs, reason=reason, traceback=trace, failure=described)
    except BaseException as error:  # an objective may call sys.exit(), or be cancelled by asyncio
        reason = plain.reason(error) + (call.hint(error) if call is not None else "")
        raised = _raised(error)
        outcome = _ended("failed", trial.user_attrs, reason=reason, traceback=plain.trace(error), raised=raised)
    outcome = costed(bounded(outcome, task.goals, trial.constraints), task.goals.cost)
    return replace(outcome, seconds=time.perf_counter() - start)


def _raised(error: BaseException) -> Raised:
    """An exception of an objective. Its traceback begins with the objective and keeps no variables alive."""
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
        if task.reporter is not None:  # a checkpoint is never ahead of the study
            checkpoint.before_copy = partial(task.reporter.flush, task.number)
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
    import cloudpickle

    call: Call = cloudpickle.loads(payload)
    return call


# ------------------------------------------------------------------------ results


def _outcome(returned: Any, attributes: Mapping[str, Any], goals: Goals) -> Outcome:
    """The outcome for a returned value, several values, or a dict with ``value`` and metrics."""
    metrics: dict[Any, Any] = dict(attributes)
    try:
        if isinstance(returned, Mapping):
            # The value is kept as the trial's value. Objectives with names are metrics too.
            metrics |= {
                name: metric
                for name, metric in returned.items()
                if goals.names or not (isinstance(name, str) and name == "value")
            }
            returned = _in_dict(returned, goals)
        elif goals.names:
            names = " and ".join(map(repr, goals.names))
            raise NoResult(f"the objective must return a dict with {names}, not {plain.short(returned)}")
        if goals.several:
            return _ended("complete", metrics, values=_several(returned, len(goals.directions)))
        return _ended("complete", metrics, value=_one(returned, alone=True))
    except NoResult as error:
        return _ended(error.state, metrics, reason=str(error))


def _in_dict(returned: Mapping[Any, Any], goals: Goals) -> Any:
    """The value in a dict, or a list of the values of all objectives."""
    wanted = goals.names or ("value",)
    found = {name: codec.metric_at(returned, name) for name in wanted}
    missing = [name for name in wanted if found[name] is None and name not in returned]
    if missing:
        raise NoResult(f"the objective returned a dict without {missing[0]!r}: {plain.short(returned)}")
    return [*found.values()] if goals.several and goals.names else found[wanted[0]]


def _several(returned: Any, count: int) -> tuple[float, ...]:
    if not _is_list(returned) or len(returned) != count:
        shown = plain.short(returned)
        raise NoResult(
            f"the objective must return {count} numbers, one for each objective, as a tuple or a list, not {shown}"
        )
    values, wrong = [], []
    for each in returned:
        try:
            values.append(_one(each))
        except NoResult as error:
            wrong.append(error)
    if wrong:  # retrying cannot help if any of them is not a number
        raise min(wrong, key=lambda error: error.state != "invalid")
    return tuple(values)


def _one(returned: Any, *, alone: bool = False) -> float:
    """A returned value as a finite number; ``alone``: there is one objective."""
    try:
        value = plain.number(returned)
    except (TypeError, ValueError):
        hint = " (is a return statement missing?)" if returned is None else ""
        if alone and _is_list(returned):
            hint = " (several objectives need several directions, such as direction=['minimize', 'maximize'])"
        shown = plain.short(returned)
        raise NoResult(
            f"the objective must return a number, or a dict with a number as 'value', not {shown}{hint}"
        ) from None
    except OverflowError:
        raise NoResult(f"the value is too large for a float: {plain.short(returned)}", "failed") from None
    if not math.isfinite(value):
        raise NoResult(f"the value is {value}", "failed")
    return value


def bounded(outcome: Outcome, goals: Goals, measured: Mapping[str, float]) -> Outcome:
    """The outcome with its constraints: those that the trial has set, and the bounds on its metrics.

    A complete evaluation that lacks a metric with a bound is invalid, since nobody can know whether it is feasible.
    """
    found = dict(measured)
    try:
        found |= goals.violations(outcome.metrics)
    except KeyError as error:
        if outcome.state == "complete":
            name = error.args[0]
            text = f"there is a constraint on the metric {name!r}, so the objective must return it as a number"
            outcome = _without_value(
                outcome, name, f"{text}, not {plain.short(codec.metric_at(outcome.metrics, name))}"
            )
    return replace(outcome, constraints={name: min(max(each, -LARGEST), LARGEST) for name, each in found.items()})


def costed(outcome: Outcome, cost: str | None) -> Outcome:
    """The outcome itself; invalid if it is complete but its cost is missing or not positive."""
    if cost is None or outcome.state != "complete":
        return outcome
    found = codec.metric_at(outcome.metrics, cost)
    if checks.is_number(found) and found > 0.0:  # metrics are finite
        return outcome
    text = f"the metric {cost!r} is the cost, so the objective must return it as a positive number"
    if found is None:
        return _without_value(outcome, cost, f"{text}, but did not")
    return replace(outcome, state="invalid", value=None, values=(), reason=f"{text}, not {plain.short(found)}")


def _without_value(outcome: Outcome, metric: str, reason: str) -> Outcome:
    """The outcome if a metric is missing, or None: NaN becomes None in metrics, and could not be measured here."""
    state: State = "failed" if metric in outcome.metrics else "invalid"
    return replace(outcome, state=state, value=None, values=(), reason=reason)


def _ended(state: State, metrics: Mapping[Any, Any], **details: Any) -> Outcome:
    kept, dropped = plain.metrics(metrics)
    return Outcome(state, metrics=kept, dropped=dropped, **details)


# -------------------------------------------------------------------------- steps


def follow(
    steps: Generator[Any, None, Any],
    report: Callable[[float, int], bool],
    options: Steps,
    goals: Goals,
    checkpoint: Checkpoint | None = None,
) -> Any:
    """Run an objective that is a generator, and report each yielded value. Returns what it returns or yielded last.

    If ``report`` returns True, the generator is stopped: raises TrialPaused if it can be continued, otherwise
    TrialPruned.
    """
    step, last = (0, None) if checkpoint is None else (checkpoint.step, checkpoint.value)
    save = checkpoint.save if checkpoint is not None else lambda *_: None
    limit = math.inf if options.max_steps is None else options.max_steps
    with closing(steps):
        if 0 < step < limit:
            # A kill after this step was recorded may have come before the answer: it is asked for again.
            value = _reported(_with_nan(last), goals)
            if report(value, step):
                raise _stopped(value, options)
        while True:
            try:
                yielded = next(steps)
            except StopIteration as end:
                if end.value is None and last is None:
                    raise NoResult("the objective has yielded nothing; yield a value after each step") from None
                return last if end.value is None else end.value
            step, last = _numbered(yielded, step, goals)
            value = _reported(last, goals)
            if step > limit:
                raise NoResult(
                    f"the objective yielded a value for step {step}, but max_steps={options.max_steps}; "
                    "end it earlier, or give a larger max_steps"
                )
            stop, kept = report(value, step), _kept(last, value)
            save(step, kept)
            if stop and step < limit:
                steps.close()  # it may save its state in a finally clause
                save(step, kept)
                raise _stopped(value, options)


def _stopped(value: float, options: Steps) -> TrialPruned:
    """How a training stops whose last value is this one: it is paused if it can be continued."""
    return Trial.stopped(continues=options.pausable and math.isfinite(value))


def _numbered(yielded: Any, step: int, goals: Goals) -> tuple[int, Any]:
    """The step and the value of what was yielded: a ``value`` belongs to the next step, ``(step, value)`` to any.

    With several objectives, a tuple of numbers is their values, so the value in a pair is a dict, a list or a tuple.
    """
    is_pair = isinstance(yielded, tuple) and len(yielded) == 2
    is_pair_of_several = is_pair and (isinstance(yielded[1], Mapping) or _is_list(yielded[1]))
    if not isinstance(yielded, tuple) or (goals.several and not is_pair_of_several):
        return step + 1, yielded
    given = yielded[0] if is_pair else None
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or not 1 <= given <= checks.MAX_STORED:
        raise NoResult(
            f"the objective must yield a number, or a pair of a step (1, 2, …) and a number, not {plain.short(yielded)}"
        )
    return int(given), yielded[1]


def _reported(yielded: Any, goals: Goals) -> float:
    """The number to report: what was yielded, a value of a dict, or one of a list of all objectives."""
    value, name = yielded, goals.names[goals.reports] if goals.names else "value"
    if isinstance(value, Mapping):
        value = codec.metric_at(value, name)
    elif goals.several and _is_list(value) and len(value) == len(goals.directions):
        value = value[goals.reports]
    try:
        return plain.number(value)
    except (TypeError, ValueError, OverflowError):
        what = f"a number after each step, or a dict with a number as {name!r}"
        if goals.several and not goals.names:
            what = f"after each step a list of {len(goals.directions)} numbers, or the one that is reported"
        raise NoResult(f"the objective must yield {what}, not {plain.short(yielded)}") from None


def _kept(yielded: Any, value: float) -> Any:
    """A yielded value as it is kept with a checkpoint: if it was the last one, it is the result."""
    if isinstance(yielded, Mapping):
        return plain.metrics(yielded)[0]
    return plain.metrics({"values": yielded})[0].get("values") if _is_list(yielded) else value


def is_kept(value: Any, goals: Goals) -> bool:
    """Whether ``value`` may have been kept with a step."""
    try:
        _reported(_with_nan(value), goals)
    except NoResult:
        return False
    return True


def _with_nan(value: Any) -> Any:
    """A value that was kept with a step. JSON has no NaN in metrics: there it is None."""
    if isinstance(value, Mapping):
        return {name: math.nan if each is None else each for name, each in value.items()}
    return [math.nan if each is None else each for each in value] if isinstance(value, list) else value


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)
