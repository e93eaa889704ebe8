"""Objectives that are generator functions: each value that they yield is a report of the next step.

An objective that takes ``checkpoint`` can be stopped after any step and continued from there later, by another process.
"""

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from optuna.exceptions import TrialPruned

from lazybo.run import plain
from lazybo.run.checkpoints import Checkpoint
from lazybo.run.goals import Goals, metric_at


class InvalidStep(Exception):
    """What an objective yielded is no report; retrying cannot help."""


class TrialPaused(Exception):
    """A training was stopped for now. Its checkpoint has all that it needs to continue."""


@dataclass(frozen=True)
class Steps:
    """How a run treats trainings that report step by step."""

    max_steps: int | None = None
    checkpoints: Path | None = None  # the common folder of checkpoints; None: the objective takes no checkpoint
    pauses: bool = True  # False: what is stopped is pruned, although it could be continued

    @property
    def pausable(self) -> bool:
        """Whether a training that is stopped can be continued later."""
        return self.pauses and self.checkpoints is not None and self.max_steps is not None


NO_STEPS = Steps()


def follow(
    steps: Generator[Any, None, Any],
    report: Callable[[float, int], bool],
    options: Steps,
    goals: Goals,
    checkpoint: Checkpoint | None = None,
) -> Any:
    """Run a generator, and report what it yields: what it returns, or else what it yielded last.

    If ``report`` is true, it is stopped: raises TrialPaused if it can be continued, otherwise TrialPruned.
    """
    step, last = (0, None) if checkpoint is None else (checkpoint.step, checkpoint.value)
    limit = math.inf if options.max_steps is None else options.max_steps
    while True:
        try:
            yielded = next(steps)
        except StopIteration as end:
            if end.value is None and last is None:
                raise InvalidStep("the objective has yielded nothing; yield a value after each step") from None
            return last if end.value is None else end.value
        try:
            step, last = _numbered(yielded, step, goals)
            value = _reported(last, goals)
            if step > limit:
                raise InvalidStep(
                    f"the objective yielded a value for step {step}, but max_steps={options.max_steps}; "
                    "end it earlier, or give a larger max_steps"
                )
            stop, kept = report(value, step), _kept(last, value)
            if checkpoint is not None:
                checkpoint.save(step, kept)
        except BaseException:
            steps.close()
            raise
        if stop and step < limit:
            steps.close()  # it may save its state in a finally clause
            if checkpoint is not None:
                checkpoint.save(step, kept)
            raise TrialPaused if options.pausable and math.isfinite(value) else TrialPruned


def _numbered(yielded: Any, step: int, goals: Goals) -> tuple[int, Any]:
    """The step and the value of what was yielded: ``value`` is that of the next step, ``(step, value)`` of any.

    With several objectives a tuple of numbers is their values, so the value of a pair is a dict, a list or a tuple.
    """
    if not isinstance(yielded, tuple) or (goals.several and not _is_pair(yielded)):
        return step + 1, yielded
    given = yielded[0] if len(yielded) == 2 else None
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or not 1 <= given < 2**31:
        raise InvalidStep(
            f"the objective must yield a number, or a pair of a step (1, 2, …) and a number, not {plain.short(yielded)}"
        )
    return int(given), yielded[1]


def _is_pair(yielded: tuple[Any, ...]) -> bool:
    return len(yielded) == 2 and (isinstance(yielded[1], Mapping) or _is_list(yielded[1]))


def _reported(yielded: Any, goals: Goals) -> float:
    """The number to report: what was yielded, a value of a dict, or one of a list of all objectives."""
    value, name = yielded, goals.names[goals.reports] if goals.names else "value"
    if isinstance(value, Mapping):
        value = metric_at(value, name)
    elif goals.several and _is_list(value) and len(value) == len(goals.directions):
        value = value[goals.reports]
    try:
        return plain.number(value)
    except (TypeError, ValueError, OverflowError):
        what = f"a number after each step, or a dict with a number as {name!r}"
        if goals.several and not goals.names:
            what = f"after each step a list of {len(goals.directions)} numbers, or the one that is reported"
        raise InvalidStep(f"the objective must yield {what}, not {plain.short(yielded)}") from None


def _kept(yielded: Any, value: float) -> Any:
    """What was yielded, as it is kept with a checkpoint: it may have been the last one, and then it is the result."""
    if isinstance(yielded, Mapping):
        return plain.metrics(yielded)[0]
    return plain.metrics({"values": yielded})[0].get("values") if _is_list(yielded) else value


def is_kept(value: Any, goals: Goals) -> bool:
    """Whether this may be what was kept of a step. JSON has no NaN in metrics: there it is None."""
    if isinstance(value, Mapping):
        value = {name: math.nan if each is None else each for name, each in value.items()}
    elif isinstance(value, list):
        value = [math.nan if each is None else each for each in value]
    try:
        _reported(value, goals)
    except InvalidStep:
        return False
    return True


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)
