"""`TrialView`: what a trial of a study says; which of several trials count; `Result`: how one ended.

A trial is in one of these states. Optuna has no paused and no skipped trials: they differ from others by an attribute.

```
waiting ──> running ──> complete   it has values
   ^         │  ^  ├──> pruned     stopped for good: only intermediate values
   │         v  │  ├──> failed     no value
   └─────── paused └──> skipped    nobody made the experiment; the model ignores it
```

Optuna keeps the constraints of a trial as attributes of it; each is satisfied if it is at most 0. A trial that has not
measured a constraint that other trials have is not known to be feasible, and does not count.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from lazybo.core import Array, checks, codec
from lazybo.search import Evaluation
from lazybo.space import Space
from lazybo.study.attributes import OWN_ATTRIBUTES, Key, object_of, of_trial

NO_NAME = "(no name)"  # of a constraint
LEAST_SECONDS = 1e-3  # shorter evaluations count as this long: smaller differences are noise

State: TypeAlias = Literal["waiting", "running", "paused", "complete", "pruned", "failed", "skipped"]
_STATES: dict[TrialState, State] = {
    TrialState.WAITING: "waiting",
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}


@dataclass(frozen=True, slots=True)
class TrialView:
    """A trial as it was when it was read. What is damaged counts as missing."""

    frozen: FrozenTrial

    @property
    def number(self) -> int:
        """Its number in the study."""
        return self.frozen.number

    @property
    def id(self) -> int:
        """Its number in the storage."""
        return self.frozen._trial_id

    @property
    def state(self) -> State:
        """Its state; see the top of this module."""
        if self.is_paused:
            return "paused"
        return "skipped" if self.has_failed and Key.SKIPPED in self.frozen.system_attrs else _STATES[self.frozen.state]

    @property
    def is_paused(self) -> bool:
        """Whether a training was stopped for now and can be continued from its checkpoint."""
        return self.frozen.state == TrialState.WAITING and self.frozen.user_attrs.get(Key.PAUSED) is not None

    @property
    def has_ended(self) -> bool:
        """Whether it is complete, pruned, failed or skipped."""
        return self.frozen.state.is_finished()

    @property
    def has_failed(self) -> bool:
        """Whether it has ended without any value; so have those that were skipped."""
        return self.frozen.state == TrialState.FAIL

    @property
    def params(self) -> dict[str, Any]:
        """Its parameters as the storage has them."""
        return self.frozen.params

    def given_in(self, space: Space) -> dict[str, Any]:
        """Its parameters with the choices of the space."""
        return as_given(self.frozen.params, space.distributions)

    def point_in(self, space: Space) -> Array | None:
        """Its point; None if it is from another space."""
        return point_in(space, self.frozen.params)

    @property
    def values(self) -> list[float]:
        """The value of each objective; empty if there is none."""
        return self.frozen.values or []

    @property
    def value(self) -> float:
        """The value of the only objective. Raises a ValueError if there is none."""
        (value,) = self.values
        return float(value)

    @property
    def is_complete(self) -> bool:
        """Whether it has finite values."""
        found = self.frozen.values
        return self.frozen.state == TrialState.COMPLETE and bool(found) and all(map(math.isfinite, found))

    @property
    def reported(self) -> dict[int, float]:
        """The intermediate values by step."""
        return self.frozen.intermediate_values

    @property
    def last_step(self) -> int | None:
        """The last step that was reported."""
        return self.frozen.last_step

    @property
    def metrics(self) -> dict[str, Any]:
        """What the objective returned beside its value: the user's attributes, without those that lazybo writes."""
        attributes = self.frozen.user_attrs
        return {n: v for n, v in attributes.items() if n not in OWN_ATTRIBUTES and not n.startswith("lazybo:")}

    @property
    def constraints(self) -> dict[str, float]:
        """The constraints that were measured, by name. What is not a number was not measured.

        Optuna and earlier versions accept empty names.
        """
        written: Mapping[str, object] = self.frozen.constraints
        found = {name: checks.as_number(name, value) for name, value in written.items() if checks.is_number(value)}
        return {name if name.strip() else NO_NAME: value for name, value in found.items() if not math.isnan(value)}

    @property
    def is_infeasible(self) -> bool:
        """Whether a measured constraint is violated."""
        return any(value > 0.0 for value in self.constraints.values())

    @property
    def variance(self) -> float:
        """The known variance of its value; 0 if there is none."""
        found = self.frozen.system_attrs.get(Key.VARIANCE)
        variance = checks.as_number("variance", found) if checks.is_number(found) else 0.0
        return variance if 0.0 <= variance < math.inf else 0.0

    @property
    def seconds(self) -> float | None:
        """How long its evaluation took: as its worker measured it, or by the times in the study."""
        measured, start, end = self.handling.measured_seconds, self.frozen.datetime_start, self.frozen.datetime_complete
        if measured is not None or start is None or end is None:
            return measured
        return max((end - start).total_seconds(), 0.0)

    def cost(self, name: str) -> float | None:
        """What it cost, if that is known. A pruned trial has not cost as much as a whole evaluation."""
        if self.frozen.state == TrialState.PRUNED:
            return None
        if name == checks.SECONDS:
            took = self.seconds
            return None if took is None else max(took, LEAST_SECONDS)
        metric = codec.metric_at(self.frozen.user_attrs, name)
        return float(metric) if checks.is_cost(metric) else None

    @property
    def repeat_of(self) -> int | None:
        """The first trial with its configuration, if it repeats that in a final check."""
        return self.frozen.system_attrs.get(Key.REPEAT)

    @property
    def own(self) -> dict[str, Any]:
        """What lazybo writes among the user's attributes: the output folder of a program, and the device."""
        return {name: value for name, value in self.frozen.user_attrs.items() if name in OWN_ATTRIBUTES}

    @property
    def handling(self) -> "Handling":
        """What processes keep with it."""
        return Handling(self.frozen)

    @property
    def failure(self) -> Mapping[str, Any]:
        """How a program failed: a code (``kind``), and the reason without paths (``summary``); empty if unknown."""
        found = self.frozen.system_attrs.get(Key.FAILURE)
        return found if isinstance(found, Mapping) else {}

    @property
    def fail_reason(self) -> Any:
        """Why it failed, as Optuna keeps it; None if it did not."""
        return self.frozen.system_attrs.get("fail_reason")


@dataclass(frozen=True, slots=True)
class Handling:
    """What processes keep with a trial, to agree on who evaluates it and to continue where it was."""

    frozen: FrozenTrial

    @property
    def driver(self) -> str | None:
        """The driver that runs it; None if a person or another program does."""
        return self.frozen.system_attrs.get(Key.DRIVER)

    @property
    def began(self) -> Any:
        """The driver whose worker has started it, and its attempts then, if that was recorded."""
        return self.frozen.system_attrs.get(Key.BEGAN)

    @property
    def attempts(self) -> int | None:
        """How many evaluations of it died with their worker or driver; None if that was never counted."""
        return self._count(Key.ATTEMPTS) if Key.ATTEMPTS in self.frozen.system_attrs else None

    @property
    def steps_at_death(self) -> int:
        """How many values a training with a checkpoint had reported when its driver last died."""
        return self._count(Key.STEPS)

    def _count(self, key: str) -> int:
        found = self.frozen.system_attrs.get(key)
        return found if isinstance(found, int) and 0 <= found <= checks.MAX_STORED else 0

    @property
    def paused_step(self) -> int:
        """The last step at which a training was paused, also if it runs again; 0 if it never was."""
        return self._pause[0] or (self.frozen.last_step or 0 if TrialView(self.frozen).is_paused else 0)

    @property
    def ended_at(self) -> float:
        """When it ended or was last paused, in seconds since 1970; infinite if it runs or waits, or nobody knows."""
        if TrialView(self.frozen).is_paused:
            return self._pause[1]
        if not self.frozen.state.is_finished():
            return math.inf
        return self.frozen.datetime_complete.timestamp() if self.frozen.datetime_complete else 0.0

    @property
    def _pause(self) -> tuple[int, float]:
        """The step and the time of the last pause; 0 and ∞ if there is none."""
        with suppress(KeyError, TypeError, ValueError):
            step, seconds = self.frozen.system_attrs[Key.PAUSE]
            return checks.whole("step", step, 0), checks.finite_number("seconds", seconds)
        return 0, math.inf

    @property
    def runs_to_end(self) -> bool:
        """Whether it was resumed by hand, so that it is not paused again."""
        return bool(self.frozen.system_attrs.get(Key.TO_END))

    @property
    def was_enqueued(self) -> bool:
        """Whether somebody has chosen its configuration."""
        return "fixed_params" in self.frozen.system_attrs or f"{Key.INITIAL}:0" in self.frozen.system_attrs

    @property
    def announcement(self) -> dict[str, Any]:
        """What its process has announced; empty if it has not."""
        try:
            return object_of(self.frozen.system_attrs, Key.SUGGESTION)
        except ValueError:
            return {}

    def announced(self, space: Mapping[str, BaseDistribution]) -> dict[str, Any]:
        """The parameters of this space that were announced, or else those that it has."""
        try:
            written = self.announcement.get("params", {})
            found = {name: space[name].to_external_repr(value) for name, value in written.items() if name in space}
        except codec.INVALID:
            found = {}
        return found or self.frozen.params

    def fixed(self, space: Mapping[str, BaseDistribution]) -> dict[str, Any]:
        """The parameters that a queued trial has, or that somebody has chosen for it."""
        # A driver that died while it wrote the parameters had announced all of them.
        return as_given(self.announced(space) or self.frozen.system_attrs.get("fixed_params", {}), space)

    @property
    def measured_seconds(self) -> float | None:
        """How long its evaluation took in its worker, if that was measured."""
        measured = self.frozen.system_attrs.get(Key.SECONDS)
        seconds = checks.as_number("seconds", measured) if checks.is_number(measured) else math.nan
        return max(seconds, 0.0) if math.isfinite(seconds) else None

    @property
    def stored_variance(self) -> Any:
        """The known variance as it is stored: a list if there are several objectives; None if there is none."""
        return self.frozen.system_attrs.get(Key.VARIANCE)

    @property
    def corrections(self) -> list[Any]:
        """What it had before each correction by hand. Raises a ValueError if that is damaged."""
        found = self.frozen.user_attrs.get(Key.CORRECTIONS, [])
        if not isinstance(found, list):
            where = of_trial(Key.CORRECTIONS, self.frozen.number)
            raise ValueError(f"{where} must be a list, not {checks.shortened(found)}; set it to [] with set_user_attr")
        return found


@dataclass(frozen=True)
class Result:
    """How a trial ended. Its values are finite or missing, since databases have no NaN.

    A complete trial with one value that is not finite becomes a failed one; a pruned trial keeps its state. ``metrics``
    are the user's attributes. ``reason`` says why it failed, and ``failure`` how a program did.
    """

    state: TrialState
    values: Sequence[float] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
    constraints: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    traceback: str = ""
    failure: Mapping[str, Any] = field(default_factory=dict)
    variance: float | Sequence[float] | None = None
    seconds: float | None = None
    skipped: bool = False

    def __post_init__(self) -> None:
        if len(self.values) == 1 and not math.isfinite(self.values[0]):
            if self.state == TrialState.COMPLETE:
                object.__setattr__(self, "state", TrialState.FAIL)
                object.__setattr__(self, "reason", f"the value is {self.values[0]}")
            object.__setattr__(self, "values", ())

    @property
    def user_attrs(self) -> dict[str, Any]:
        """What users see."""
        return {**self.metrics, **({"traceback": self.traceback} if self.traceback else {})}

    @property
    def system_attrs(self) -> dict[str, Any]:
        """The rest, as a study keeps it."""
        kept = {
            "fail_reason": self.reason or None,
            Key.FAILURE: self.failure or None,
            Key.VARIANCE: self.variance,
            Key.SECONDS: self.seconds,
            Key.SKIPPED: self.skipped or None,
        }
        known = {key: value for key, value in kept.items() if value is not None}
        return known | {f"{Key.CONSTRAINT}:{name}": value for name, value in self.constraints.items()}

    def of(self, trial: TrialView, reported: Mapping[int, float]) -> FrozenTrial:
        """A trial that has ended with this result, as the model reads it."""
        ended = copy(trial.frozen)
        ended.state, ended.values, ended.intermediate_values = self.state, self.values or None, dict(reported)
        ended.user_attrs, ended.system_attrs = self.user_attrs, self.system_attrs
        return ended


# ------------------------------------------------------------------ configuration


def as_given(params: Mapping[str, Any], space: Mapping[str, BaseDistribution]) -> dict[str, Any]:
    """Parameters from a storage with the choices of the space: JSON turns tuples into lists."""
    return {
        name: _choice(value, space.get(name)) if isinstance(value, list) else value for name, value in params.items()
    }


def _choice(value: list[Any], distribution: BaseDistribution | None) -> Any:
    choices = distribution.choices if isinstance(distribution, CategoricalDistribution) else ()
    return next((choice for choice in choices if _as_lists(choice) == value), value)


def _as_lists(choice: Any) -> Any:
    return [_as_lists(part) for part in choice] if isinstance(choice, list | tuple) else choice


def params_in(space: Mapping[str, BaseDistribution], params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that the space has, with its choices."""
    return as_given({name: value for name, value in params.items() if name in space}, space)


def point_in(space: Space, params: Mapping[str, Any]) -> Array | None:
    """The point of a configuration without parameters that the space does not have; None if it is from another space.

    Numbers may lie outside their range.
    """
    try:
        return space.points.encode(space.plain(params_in(space.distributions, params), outside=True))
    except ValueError:
        return None


# ------------------------------------------------------------- trials that count


def feasible_of(trials: Iterable[TrialView]) -> list[TrialView]:
    """The trials with finite values that have measured and satisfied all constraints that any trial has measured."""
    measured = [(trial, trial.constraints) for trial in trials]
    names = {name for _, constraints in measured for name in constraints}
    return [
        trial
        for trial, constraints in measured
        if trial.is_complete and all(constraints.get(name, math.inf) <= 0.0 for name in names)
    ]


def evaluations_of(feasible: Iterable[TrialView], space: Space) -> list[Evaluation]:
    """Those in the space, which may be recommended or repeated."""
    points = [(trial, trial.point_in(space)) for trial in feasible]
    return [Evaluation(trial.params, point, trial.value, trial.number) for trial, point in points if point is not None]
