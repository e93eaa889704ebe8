"""`Ledger`, the records it writes, and the steps that all ledgers share."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any, Protocol

from optuna.distributions import BaseDistribution
from optuna.trial import TrialState

from lazybo.core.codec import INVALID
from lazybo.study.attributes import INITIAL_KEY, object_of, parts
from lazybo.study.trial import as_given

Params = dict[str, Any]
Distributions = Mapping[str, BaseDistribution]
# From the number of a trial to its parameters, with all earlier trials known; None if no more trials are needed.
Propose = Callable[[int], Params | None]
# New trials are needed below this number, as far as is known now.
Bound = Callable[[], float]
# From the parameters of a new trial to the attributes that it gets.
Mark = Callable[[Params], Mapping[str, Any]]

# After losing this many races for a number, a trial takes the next number first and is proposed for it afterwards.
# Other drivers then wait for its parameters, so a slow driver is not left behind by fast ones.
MAX_RACES = 3


@dataclass(frozen=True)
class Entry:
    """A trial in the study: its id in the storage, its number, its parameters, and whether it repeats another one."""

    trial_id: int
    number: int
    params: Params
    repeat: bool = False


@dataclass(frozen=True)
class Result:
    """How a trial ended. Its value is finite or None, since databases have no NaN.

    A complete trial with a value that is not finite becomes a failed one; a pruned trial keeps its state. ``several``
    has the values of a trial with several objectives, all finite.
    """

    state: TrialState
    value: float | None
    user_attrs: Mapping[str, Any]
    system_attrs: Mapping[str, Any]
    several: tuple[float, ...] = ()

    @property
    def values(self) -> list[float] | None:
        """The value of each objective; None if there is none."""
        return list(self.several) or (None if self.value is None else [self.value])

    def __post_init__(self) -> None:
        if self.value is not None and not isfinite(self.value):
            if self.state == TrialState.COMPLETE:
                reason = {"fail_reason": f"the value is {self.value}"}
                object.__setattr__(self, "state", TrialState.FAIL)
                object.__setattr__(self, "system_attrs", {**self.system_attrs, **reason})
            object.__setattr__(self, "value", None)


class Overtaken(Exception):
    """All numbers that were asked for are taken; the next free one is ``number``."""

    def __init__(self, number: int) -> None:
        self.number = number


def unmarked(_: Params) -> Mapping[str, Any]:
    """No attributes."""
    return {}


class Ledger(Protocol):
    """Writes the trials of a run to its study. Each call is retried while the storage is locked or unreachable.

    After a kill between any two writes, a trial is queued, or it runs under the name of a driver that is gone.
    """

    driver: str | None

    def enqueue(self, first: Sequence[Params]) -> None:
        """Queue the configurations that the study does not have yet."""

    def begin(
        self, expected: int, params: Params, again: Propose, end: Bound = lambda: inf, mark: Mark = unmarked
    ) -> Entry | None:
        """Create a running trial with these parameters; if its number is not ``expected``, with those of ``again``.

        No trial is created with a number of ``end`` or more, evaluated when the number is taken. None if the study
        needs no more trials: ``again`` returned None, or all numbers below ``end`` are taken.
        """

    def create(self, low: int, high: float, params: Params, marks: Mapping[str, Any]) -> Entry:
        """Create a running trial with a number in [low, high); raise `Overtaken` and change nothing if none is free.

        Without ``params`` it only reserves the number.
        """

    def complete(self, entry: Entry, params: Params, marks: Mapping[str, Any]) -> None:
        """Write the parameters of a trial that has only its number."""

    def claim(self, trial_id: int) -> bool:
        """Take a queued trial; False if another process was faster."""

    def fill_in(self, trial_id: int, known: Mapping[str, Any], params: Params) -> None:
        """Write the parameters that a running trial lacks. Other processes see all of them at once."""

    def put_back(self, trial_id: int, attempts: int, driver: str) -> None:
        """Queue a trial that ``driver`` ran, with its new count of attempts; nothing if another driver has it."""

    def pause(self, entry: Entry, step: int, user_attrs: Mapping[str, Any]) -> bool:
        """Pause a trial that this driver runs, after this step; False if this driver no longer runs it."""

    def unpause(self, trial_id: int) -> None:
        """Mark a paused trial as running again. After a kill before this it is still paused."""

    def report(self, values: Mapping[int, Mapping[int, float]]) -> set[int]:
        """Write intermediate values by step, by the id of their trial; returns the ids of trials that had ended."""

    def finish(self, entry: Entry, result: Result) -> bool:
        """End a trial; False if another process has ended it."""

    def correct(self, entry: Entry, result: Result, corrections: int) -> bool:
        """Change the result of a trial that has ended; the old one is kept as `CORRECTIONS_KEY`.

        The model of the study is learned again. False if the trial does not have this number of ``corrections``:
        another process was faster. Raises a ValueError if the storage cannot do it.
        """

    def note(self, attributes: Mapping[str, Any]) -> None:
        """Write attributes of the study, with the next trial at the latest."""


# ---------------------------------------------------------------- begin a trial


def race(
    ledger: Ledger, expected: int, params: Params, again: Propose, end: Bound, mark: Mark = unmarked
) -> Entry | None:
    """Create a trial with the number it was proposed for; propose again while other processes are faster.

    After MAX_RACES lost races the trial reserves the next number and is proposed for that one.
    """
    for _ in range(MAX_RACES):
        try:
            return ledger.create(expected, min(expected + 1, end()), params, mark(params))
        except Overtaken as overtaken:
            expected = overtaken.number
            proposed = again(expected)
            if proposed is None:
                return None
            params = proposed
    try:
        reserved = ledger.create(0, end(), {}, {})
    except Overtaken:
        return None  # the caller reads the study, and begins again if more trials are needed
    return propose_for(ledger, reserved, params, again, end, mark)


def propose_for(
    ledger: Ledger, reserved: Entry, params: Params, again: Propose, end: Bound, mark: Mark = unmarked
) -> Entry | None:
    """Complete a trial that has only its number with the proposal of ``again``, or else with ``params``.

    A number cannot be given back, so a trial that is not needed after all is queued: nobody evaluates it unless more
    trials are wanted.
    """
    proposed = again(reserved.number)
    if proposed is None and end() <= reserved.number:
        assert ledger.driver is not None, "people need every trial that they ask for"
        ledger.put_back(reserved.trial_id, 0, ledger.driver)
        return None
    chosen = params if proposed is None else proposed
    ledger.complete(reserved, chosen, mark(chosen))
    return replace(reserved, params=chosen)


# -------------------------------------------------------- initial configurations


def internal(params: Mapping[str, Any], space: Distributions) -> dict[str, float]:
    """Parameters as Optuna's internal numbers, which can be compared."""
    return {name: float(space[name].to_internal_repr(value)) for name, value in as_given(params, space).items()}


def configuration_of(params: dict[str, float], attributes: Mapping[str, Any], space: Distributions) -> object:
    """The configuration that a trial was queued with, or else its parameters, as internal numbers.

    None if it is from another space, or cannot be read.
    """
    try:
        if f"{INITIAL_KEY}:0" in attributes:
            return object_of(attributes, INITIAL_KEY)
        return params or internal(attributes.get("fixed_params", {}), space)
    except INVALID:
        return None


def missing(first: Sequence[Params], present: Iterable[object], space: Distributions) -> list[Params]:
    """The configurations that no trial has. One that is listed twice needs two trials."""
    left = list(present)
    result = []
    for params in first:
        numbers = internal(params, space)
        if numbers in left:
            left.remove(numbers)
        else:
            result.append(params)
    return result


def was_enqueued(attributes: Mapping[str, Any]) -> bool:
    """Whether somebody has chosen the configuration of a trial with these attributes."""
    return "fixed_params" in attributes or f"{INITIAL_KEY}:0" in attributes


def initial_mark(params: Params, space: Distributions) -> dict[str, str]:
    """The attributes that mark a trial as queued for this initial configuration."""
    return parts(INITIAL_KEY, json.dumps(internal(params, space)))
