"""The trial that an objective gets, what it reports to, and checks of its ``suggest_*`` calls."""

import difflib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    check_distribution_compatibility,
)
from optuna.exceptions import TrialPruned
from optuna.storages import BaseStorage
from optuna.study import Study

from lazybo.core import checks
from lazybo.run import plain
from lazybo.run.channel import RemoteReporter, Reporter, listening
from lazybo.run.devices import Claim, Devices
from lazybo.space import in_words

# The attributes of a trial that say where it ran.
DEVICE, SLOT = "device", "slot"
# At most this many parameters are named in a message.
SHOWN = 8


class TrialPaused(TrialPruned):
    """A training was stopped for now. Its checkpoint has all that it needs to continue."""


class Trial(optuna.trial.Trial):
    """The trial that an objective gets: Optuna's, except that its parameters are chosen before the evaluation starts.

    ``suggest_*`` look them up. ``study`` and ``storage`` are the study's own in this process; in a worker of another
    process they ask the driver. Reports go to the driver, and user attributes and constraints are sent with the result.
    """

    def __init__(
        self,
        number: int,
        params: Mapping[str, Any],
        reporter: Reporter | None = None,
        devices: Devices | None = None,
    ) -> None:
        # Optuna's own is not initialised: it would read the study, which most objectives do not need.
        self._number = number
        self.device: str | None = None  # the names of the devices that it owns, with commas between them
        self.slot: int | None = None  # the position of its entry in ``devices``
        self._devices = devices
        self._params = dict(params)
        self._user_attrs: dict[str, Any] = {}
        self._constraints: dict[str, float] = {}
        self._reporter = reporter
        self._defined: dict[str, BaseDistribution] = {}  # what an objective without a space has asked for
        self._prune = False
        self.yields = False  # whether the objective is a generator function
        self.space: Mapping[str, Any] = {}  # distributions and kinds; empty if it is not known
        self.reported: tuple[int, float] | None = None  # the last step and value of an earlier evaluation

    @contextmanager
    def offered(self, host: str) -> Iterator[str]:
        """The trial as a text for a program that is no worker of ours, which reaches this process under ``host``.

        It works inside this block, and must stay secret: see `taken`.
        """
        assert self._reporter is not None, "an evaluation reports to its driver"
        with listening(self._reporter, host) as remote:
            yield json.dumps([remote.address, remote.secret.hex(), self.number, self.params])

    @staticmethod
    def taken(text: str) -> "Trial":
        """The trial that another process has offered; it connects with its first report."""
        (host, port), secret, number, params = json.loads(text)
        return Trial(number, params, RemoteReporter((host, port), bytes.fromhex(secret)))

    @property
    def number(self) -> int:
        return self._number

    @property
    def params(self) -> dict[str, Any]:
        return self._params

    @property
    def relative_params(self) -> dict[str, Any]:
        return self._params

    @property
    def user_attrs(self) -> dict[str, Any]:
        """What `set_user_attr` has kept in this evaluation."""
        return self._user_attrs

    @property
    def constraints(self) -> dict[str, float]:
        """What `set_constraint` has kept in this evaluation."""
        return self._constraints

    @property
    def study(self) -> Study:  # type: ignore[override]
        if self._reporter is None:
            raise RuntimeError("this trial belongs to no study: it was made outside of lazybo.optimize()")
        return self._reporter.study()

    @property
    def storage(self) -> BaseStorage:  # type: ignore[override]
        """The storage of the study. Trials are begun and ended by the driver only."""
        return self.study._storage

    @property
    def _trial_id(self) -> int:  # type: ignore[override]
        study = self.study
        return study._storage.get_trial_id_from_study_id_trial_number(study._study_id, self._number)

    @property
    def datetime_start(self) -> datetime | None:
        return self.storage.get_trial(self._trial_id).datetime_start

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        return self.storage.get_trial(self._trial_id).distributions

    def report(self, value: float, step: int) -> None:
        """Record an intermediate value and ask the pruner. With several objectives, it is the one that is reported."""
        if self.yields:
            raise ValueError("trial.report is not for generator functions: yield the value of each step instead")
        self.record(value, step)

    def record(self, value: float, step: int) -> bool:
        """The same for a yielded value; True if the trial should stop."""
        if isinstance(step, bool) or not isinstance(step, int | np.integer) or not 0 <= step <= checks.MAX_STORED:
            raise ValueError(f"step must be a whole number from 0 to {checks.MAX_STORED}, not {plain.short(step)}")
        try:
            number = plain.number(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"report takes a number that a float can hold, not {plain.short(value)}") from None
        if self._reporter is not None:
            self._prune = self._reporter.report(self.number, int(step), number)
        return self._prune

    @contextmanager
    def owning(self, *, alone: bool = False) -> Iterator[Claim]:
        """Own a device in this block, if the run has some. ``alone``: for this process, until it ends."""
        if self._devices is None:
            yield Claim()
            return
        with self._devices.own() if alone else self._devices.claim() as claim:
            self.device, self.slot = claim.device, claim.slot
            self._user_attrs.update({DEVICE: claim.device, SLOT: claim.slot})
            if self._reporter is not None:
                with suppress(OSError, EOFError):  # a driver that cannot be reached still gets the result
                    self._reporter.claim(self.number, claim.device)
            yield claim

    def should_prune(self) -> bool:
        """Whether the pruner wants to end this trial; raise `optuna.TrialPruned` then."""
        return self._prune

    @staticmethod
    def stopped(*, continues: bool) -> TrialPruned:
        """What to raise when an evaluation was stopped: it is paused if it can be continued, and else pruned."""
        return TrialPaused() if continues else TrialPruned()

    def set_user_attr(self, key: str, value: Any) -> None:
        self._user_attrs[key] = value

    def set_constraint(self, key: str, value: float) -> None:
        """Keep the measured value of a constraint. The trial is feasible if all its constraints are at most 0."""
        try:
            number = plain.number(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not isinstance(key, str) or not key.strip() or math.isnan(number):
            given = f"{plain.short(key)} and {plain.short(value)}"
            raise ValueError(f"set_constraint takes a name and a number, not {given}")
        self._constraints[key] = number

    def suggest_float(
        self,
        name: str,
        low: float | None = None,
        high: float | None = None,
        *,
        step: float | None = None,
        log: bool = False,
    ) -> float:
        """The value of a parameter. The range may be left out; one that contradicts the space is a `SpaceError`."""
        return float(self._suggested(name, FloatDistribution, (low, high), {"step": step, "log": log}))

    def suggest_int(
        self, name: str, low: int | None = None, high: int | None = None, *, step: int = 1, log: bool = False
    ) -> int:
        """The value of a parameter. The range may be left out; one that contradicts the space is a `SpaceError`."""
        options = {"step": None if step == 1 else step, "log": log}
        return int(self._suggested(name, IntDistribution, (low, high), options))

    def suggest_categorical(self, name: str, choices: Sequence[Any] | None = None) -> Any:
        """The value of a parameter. The choices may be left out; ones that contradict the space are a `SpaceError`."""
        return self._suggested(name, CategoricalDistribution, (choices,), {})

    def suggest(self, name: str, kind: Any) -> Any:
        """The value of a parameter with structure; a kind that contradicts the space is a `SpaceError`."""
        value = _chosen(name, self)
        if self.space and self.space[name] != kind:
            raise SpaceError(f"{kind} contradicts the space, where {name!r} is {in_words(self.space[name])}")
        return value

    def _suggested(self, name: str, kind: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """The value of a parameter with this kind of distribution; without a range or choices, any will do."""
        value = _chosen(name, self)
        if self.space:
            _check_asked(self.space[name], name, kind, arguments, options)
        return value


class DefiningTrial(Trial):
    """The trial of an objective without a space: ``suggest_*`` asks the study's sampler in the driver's process."""

    def _suggested(self, name: str, kind: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        if None in arguments:
            raise TypeError(f"without a space, {SUGGEST[kind]}({plain.short(name)}) needs its range or its choices")
        return self._asked(name, kind(*arguments, **_given(options)))

    def suggest(self, name: str, kind: Any) -> Any:
        """A parameter with structure: it is stored as several ordinary ones."""
        from lazybo.study import Store

        Store(self.study).keep_kinds({name: kind})
        return kind.read([self._asked(each, distribution) for each, distribution in kind.stored(name).items()])

    def _asked(self, name: str, distribution: BaseDistribution) -> Any:
        assert self._reporter is not None, "an objective that gets a trial reports to its driver"
        if not isinstance(name, str):
            raise ValueError(f"the name of a parameter must be a text, not {plain.short(name)}")
        earlier = self._defined.setdefault(name, distribution)
        if earlier != distribution:
            raise ValueError(
                f"this trial asks for {name!r} twice, for {in_words(earlier)} and then for "
                f"{in_words(distribution)}; use another name for one of them"
            )
        value = distribution.to_external_repr(self._reporter.suggest(self._number, name, distribution))
        self._params[name] = value
        return value


# ----------------------------------------------------------------- suggest_* calls


def suggested(trial: optuna.trial.Trial, name: str, distribution: BaseDistribution) -> float:
    """What the study's sampler suggests in the driver for an objective without a space, as the study stores it."""
    if distribution.single() or name in trial._fixed_params:
        # Optuna writes such a value without reading the trial, which its cache of a database may not know yet.
        trial.study.get_trials(deepcopy=False)
    try:
        return float(distribution.to_internal_repr(trial._suggest(name, distribution)))
    except ValueError as error:
        raise ValueError(_contradiction(trial.study, name, distribution) or str(error)) from error
    except TypeError as error:
        raise ValueError(
            f"the choices of {name!r} cannot be stored: {error}; use texts or numbers, and look up the objects that "
            "they stand for in the objective"
        ) from error


def _contradiction(study: Study, name: str, distribution: BaseDistribution) -> str | None:
    """Another distribution of this name in the study, with which this one cannot be used, in words."""
    for trial in study.get_trials(deepcopy=False):
        earlier = trial.distributions.get(name, distribution)
        try:
            check_distribution_compatibility(earlier, distribution)
        except ValueError:
            return (
                f"{name!r} is {in_words(distribution)} here, but {in_words(earlier)} in trial "
                f"{trial.number}: in all trials of a study it must be the same kind of number or have the same "
                "choices; use another name"
            )
    return None


class SpaceError(ValueError):
    """A ``suggest_*`` call contradicts the space, or asks for a name that is not in it.

    The parameters are chosen from the space before an evaluation starts, so the call would get an unexpected value.
    """


SUGGEST: dict[type[BaseDistribution], str] = {
    FloatDistribution: "suggest_float",
    IntDistribution: "suggest_int",
    CategoricalDistribution: "suggest_categorical",
}


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: option for name, option in options.items() if option is not None and option is not False}


def _chosen(name: str, trial: Trial) -> Any:
    """The value of a parameter; raises a `SpaceError` if the space has no parameter with this name."""
    space = trial.space
    if space and name not in space:
        near = difflib.get_close_matches(str(name), space, n=3)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        names = [*map(repr, space)][:SHOWN] + ["..."] * (len(space) > SHOWN)
        raise SpaceError(f"{plain.short(name)} is not in the space, which has {', '.join(names)}{hint}")
    if name not in trial.params:
        raise KeyError(f"{name!r} is not active in this trial, which has {sorted(trial.params)}")
    return trial.params[name]


def _check_asked(given: Any, name: str, kind: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> None:
    """Raise a `SpaceError` unless ``given``, the parameter in the space, is what a ``suggest_*`` call asks for."""
    options, is_any = _given(options), all(each is None for each in arguments)
    if isinstance(given, kind) and (is_any or _same(given, kind(*arguments, **options))):
        return
    shown = [repr(name), *([] if is_any else map(plain.short, arguments))]
    shown += [f"{key}={plain.short(option)}" for key, option in options.items()]
    raise SpaceError(
        f"{SUGGEST[kind]}({', '.join(shown)}) contradicts the space, where {name!r} is {in_words(given)}; write the "
        f"same in both, or use trial.params[{name!r}]"
    )


def _same(given: Any, asked: Any) -> bool:
    if isinstance(given, CategoricalDistribution):
        return len(given.choices) == len(asked.choices) and all(choice in asked.choices for choice in given.choices)
    ends, asked_ends = ((each.low, each.high, each.step or 0.0) for each in (given, asked))
    close = all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(ends, asked_ends, strict=True))
    return close and given.log == asked.log
