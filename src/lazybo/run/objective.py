"""An objective: what is passed as each of its arguments, its folds, and the trial that it gets."""

import difflib
import inspect
import math
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import BaseStorage
from optuna.study import Study

from lazybo.core.checks import whole
from lazybo.run import plain
from lazybo.run.devices import Claim, Devices
from lazybo.study.attributes import KIND_KEY, MAX_STORED

# An argument with one of these names gets the dict of all parameters, even next to arguments for single parameters.
DICT_NAMES = ("params", "config")
CHECKPOINT = "checkpoint"
# The attributes of a trial that say where it ran.
DEVICE, SLOT = "device", "slot"
# At most this many parameters are named in a message.
SHOWN = 8
# No data set has more parts, and a run keeps a record of each.
MAX_FOLDS = 100_000


class Given(Enum):
    """What an argument may get, apart from one parameter of the space."""

    PARAMS = "the parameters as a dict"
    TRIAL = "the trial"
    FOLD = "the number of the fold"
    CHECKPOINT = "the folder of the trial's checkpoint"


# A parameter of the space is given by its name.
Source: TypeAlias = Given | str


@dataclass(frozen=True)
class Call:
    """An objective, and what is passed as its arguments. Inactive parameters keep their defaults."""

    function: Callable[..., Any]
    positional: tuple[Source, ...] = ()
    keywords: Mapping[str, Source] = field(default_factory=dict)  # by the name of the argument
    rest: bool = False  # whether **kwargs gets the parameters that no other argument gets
    generator: bool = False  # whether it is a generator function, which yields a value after each step
    guessed: str = ""  # the argument that gets the dict of all parameters although its name does not say so
    space: Mapping[str, Any] = field(default_factory=dict)  # what ``suggest_*`` calls are compared with
    claims: bool = False  # whether it claims its device itself, for a program that it starts
    defines: bool = False  # whether it names its parameters itself, by ``suggest_*`` calls

    @property
    def takes_trial(self) -> bool:
        """Whether the objective gets its trial."""
        return Given.TRIAL in (*self.positional, *self.keywords.values())

    @property
    def takes_checkpoint(self) -> bool:
        """Whether the objective gets the folder of its checkpoint."""
        return Given.CHECKPOINT in (*self.positional, *self.keywords.values())

    @property
    def reports(self) -> bool:
        """Whether the objective may report intermediate values."""
        return self.takes_trial or self.generator

    def hint(self, error: BaseException) -> str:
        """A possible reason for an error: the name of a parameter may be misspelt."""
        if not self.guessed or not isinstance(error, TypeError) or "dict" not in str(error):
            return ""
        return f" ({self.guessed!r} is not a parameter of the space, so it got a dict of all parameters)"

    def __call__(
        self, params: Mapping[str, Any], trial: object = None, fold: int | None = None, checkpoint: Path | None = None
    ) -> Any:
        """What the objective returns."""
        given: dict[Source, Any] = {Given.PARAMS: params, Given.TRIAL: trial, Given.FOLD: fold}
        given[Given.CHECKPOINT] = checkpoint
        given.update(params.items())
        named = {argument: given[source] for argument, source in self.keywords.items() if source in given}
        if self.rest:
            named |= {name: value for name, value in params.items() if name not in self.positional}
        return self.function(*(given[source] for source in self.positional), **named)


def call_of(
    objective: Callable[..., Any], names: Collection[str], conditional: Collection[str] = (), *, folds: bool = False
) -> Call:
    """How to call an objective over a space with these names; ``conditional`` ones are not always active.

    - An argument with the name of a parameter of the space gets that parameter. ``**kwargs`` gets the others.
    - ``trial`` gets the trial, ``params`` or ``config`` the dict of all parameters.
    - One argument with any other name gets the dict too, if no argument is a single parameter.
    - With ``folds``, ``fold`` gets the number of the fold, or else the second of two arguments with other names.
    - ``checkpoint`` of a generator function gets the folder of the trial's checkpoint.

    Arguments with other names and a default keep it. A TypeError says why an objective cannot be called like this.
    """
    if not callable(objective):
        raise TypeError(f"the objective must be a function of the parameters, not {objective!r}")
    functions = (objective, type(objective).__call__)
    if any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in functions):
        raise TypeError("the objective is an async function; give one that returns a number: asyncio.run(...) inside")
    generator = any(map(inspect.isgeneratorfunction, functions))
    if generator and folds:
        raise TypeError("the folds of kfold cannot be generator functions: return the value of a fold")
    try:
        signature = inspect.signature(objective)
    except (TypeError, ValueError):
        signature = inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])
    call, wrong = _matched(objective, list(signature.parameters.values()), names, conditional, folds, generator)
    if wrong:
        raise TypeError(_message(objective, signature, wrong, names, folds))
    _check_decorator(call)
    return replace(call, generator=generator)


def defining_call(objective: Callable[..., Any]) -> Call:
    """How to call an objective without a space: it gets the trial, and asks it for its parameters."""
    if isinstance(objective, KFold):
        raise TypeError("kfold needs a space: the parameters of all folds are chosen before they start")
    wanted = "without a space, the objective asks its trial for parameters: def objective(trial), with trial.suggest_*"
    try:
        call = call_of(objective, ())
    except TypeError as error:
        raise TypeError(f"{wanted}. {error}") from None
    if not call.takes_trial and call.guessed:  # its only argument has another name
        call = Call(objective, call.positional, {call.guessed: Given.TRIAL}, generator=call.generator)
    if not call.takes_trial or Given.PARAMS in (*call.positional, *call.keywords.values()):
        raise TypeError(f"{wanted}; or give the space as the second argument: optimize(objective, {{...}})")
    return replace(call, defines=True)


def _check_decorator(call: Call) -> None:
    """Raise a TypeError if a decorator takes other arguments than the function that it wraps, as some trackers do."""
    if not hasattr(call.function, "__wrapped__"):
        return
    outer = inspect.signature(call.function, follow_wrapped=False)
    try:
        outer.bind(*call.positional, **call.keywords)
    except TypeError:
        name = getattr(call.function, "__name__", "objective")
        taken = ", ".join(outer.parameters)
        raise TypeError(
            f"the objective {name}{inspect.signature(call.function)} cannot be called: its decorator takes ({taken}) "
            f"only; write def {name}({taken}), with the parameters in trial.params"
        ) from None


def _matched(
    objective: Callable[..., Any],
    arguments: list[inspect.Parameter],
    names: Collection[str],
    conditional: Collection[str],
    folds: bool,
    generator: bool,
) -> tuple[Call, str]:
    """The call, and what is wrong with it, if anything."""
    kinds = {argument.kind for argument in arguments}
    named = [argument for argument in arguments if argument.kind not in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)]
    sources = {argument.name: _source(argument.name, names, folds, generator) for argument in named}
    single = any(isinstance(source, str) for source in sources.values())
    if len(named) > 1 and any(a.name == CHECKPOINT and a.default is a.empty and not sources[a.name] for a in named):
        return Call(objective), "only a generator function gets a checkpoint: yield the value of each step"
    others = [a for a in named if sources[a.name] is None and (a.default is a.empty or len(named) == 1)]
    sources |= dict(zip((a.name for a in others), _meant(len(others), sources, single, folds), strict=False))
    found = {argument.name: source for argument in named if (source := sources[argument.name]) is not None}
    missing = [a.name for a in named if a.name not in found and a.default is a.empty]

    first: tuple[Source, ...] = ()
    if inspect.Parameter.VAR_POSITIONAL in kinds and not found:
        first = (Given.PARAMS, Given.FOLD) if folds else (Given.PARAMS,)
    for argument in named:
        if argument.kind == argument.POSITIONAL_ONLY:
            if argument.name not in found:
                break  # the positional arguments after it cannot be given either
            first = (*first, found[argument.name])
    found = {a.name: found[a.name] for a in named if a.name in found and a.kind != a.POSITIONAL_ONLY}
    everything = (*first, *found.values())
    rest = inspect.Parameter.VAR_KEYWORD in kinds and Given.PARAMS not in everything
    guessed = next((a.name for a in others if sources[a.name] == Given.PARAMS), "")
    call = Call(objective, first, found, rest, guessed=guessed)
    return call, _wrong(call, named, missing, names, conditional, folds)


def _source(argument: str, names: Collection[str], folds: bool, generator: bool) -> Source | None:
    """What an argument with this name gets."""
    if argument in names:
        return argument
    if argument == "trial":
        return Given.TRIAL
    if argument == "fold" and folds:
        return Given.FOLD
    if argument == CHECKPOINT and generator:
        return Given.CHECKPOINT
    return Given.PARAMS if argument in DICT_NAMES else None


def _meant(count: int, sources: Mapping[str, Source | None], single: bool, folds: bool) -> list[Source]:
    """What ``count`` required arguments with other names get; empty if that is not clear."""
    left: list[Source] = [] if single or Given.PARAMS in sources.values() else [Given.PARAMS]
    if folds and Given.FOLD not in sources.values():
        left.append(Given.FOLD)
    return left if count == len(left) else []


def _wrong(
    call: Call,
    named: list[inspect.Parameter],
    missing: list[str],
    names: Collection[str],
    conditional: Collection[str],
    folds: bool,
) -> str:
    everything = (*call.positional, *call.keywords.values())
    if folds and call.takes_trial:
        return "there is no trial for a single fold"
    if folds and Given.FOLD not in everything:
        return "no argument takes the fold"
    if missing:
        return f"the space has no parameter {_listed(missing)}"
    required = {argument.name for argument in named if argument.default is argument.empty} | set(call.positional)
    inactive = [name for name in conditional if name in required and name in everything]
    if inactive:
        return f"{_listed(inactive)} is not active in every trial: give its argument a default"
    unused = [name for name in names if name not in everything]
    if unused and not call.rest and not {Given.PARAMS, Given.TRIAL} & set(everything):
        return f"no argument takes the parameter {_listed(unused)}"
    return ""


def _message(
    objective: Callable[..., Any], signature: inspect.Signature, wrong: str, names: Collection[str], folds: bool
) -> str:
    name = getattr(objective, "__name__", type(objective).__name__)
    shown = f"{'lambda' if name == '<lambda>' else name}{signature}"
    fold = ", fold" if folds else ""
    dicts = "(params, fold)" if folds else "(params), (trial), (params, trial)"
    some = [*names][:SHOWN] + ["..."] * (len(names) > SHOWN)
    return (
        f"the objective {shown} cannot be called: {wrong}. It may take {dicts}, or the parameters of the space by "
        f"their names, ({', '.join(some)}{fold}){'' if folds else ', with or without trial'}"
    )


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names))


# ------------------------------------------------------------------------- folds


class KFold:
    """The mean of ``objective(params, fold)`` over ``fold`` = 0 … k−1 (paper, equation 1).

    The objective may also take the parameters by their names. `lazybo.optimize` evaluates each fold as its own task, in
    parallel if there are workers, and takes the variance of the folds as the noise of the mean. Anywhere else it is an
    ordinary function of the parameters.
    """

    def __init__(self, objective: Callable[..., float], k: int = 3) -> None:
        if not callable(objective):
            raise TypeError(f"the objective must be a function of (params, fold), not {objective!r}")
        self.objective = objective
        self.k = whole("k", k, 2, MAX_FOLDS)

    def __call__(self, params: Mapping[str, Any]) -> float:
        """The mean, one fold after the other."""
        call = call_of(self.objective, params, folds=True)
        return mean_of([call(params, fold=fold) for fold in range(self.k)])


def kfold(objective: Callable[..., float], k: int = 3) -> KFold:
    """The mean of ``objective(params, fold)`` over k folds, as an objective for `lazybo.optimize`."""
    return KFold(objective, k)


def mean_of(values: Sequence[float]) -> float:
    """The mean, even if no float can hold the sum."""
    try:
        return statistics.fmean(values)
    except OverflowError:
        return sum(value / len(values) for value in values)


def variance_of_mean(values: Sequence[float]) -> float:
    """The variance of the mean of k folds, from their sample variance: s²/k; 0 if no float can hold it."""
    try:
        variance = statistics.variance(values) / len(values)
    except OverflowError:
        return 0.0
    return variance if math.isfinite(variance) else 0.0


# ------------------------------------------------------------------------- trial


class Reporter(Protocol):
    """What a worker reports to."""

    def begin(self, number: int, fold: int | None) -> None:
        """The evaluation starts; its timeout counts from now on."""

    def report(self, number: int, step: int, value: float) -> bool:
        """Record the value of a trial at a step; True if the trial should stop."""

    def flush(self, number: int) -> None:
        """Wait until all reported values are in the study."""

    def claim(self, number: int, device: str) -> None:
        """The evaluation owns a device from now on."""

    def study(self) -> Study:
        """The study, as an objective may use it."""

    def suggest(self, number: int, name: str, distribution: BaseDistribution) -> float:
        """A parameter of a trial without a space, as the study stores it."""


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
        self._prune = False
        self.yields = False  # whether the objective is a generator function
        self.space: Mapping[str, Any] = {}  # distributions and kinds; empty if it is not known
        self.reported: tuple[int, float] | None = None  # the last step and value of an earlier evaluation

    @property
    def number(self) -> int:
        """The number of the trial in its study."""
        return self._number

    @property
    def params(self) -> dict[str, Any]:
        """The parameters."""
        return self._params

    @property
    def relative_params(self) -> dict[str, Any]:
        """The parameters: all of them are chosen together."""
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
        """The study."""
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
        """When the trial began."""
        return self.storage.get_trial(self._trial_id).datetime_start

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """The distributions of the parameters as the study has them."""
        return self.storage.get_trial(self._trial_id).distributions

    def report(self, value: float, step: int) -> None:
        """Record an intermediate value and ask the pruner. With several objectives, it is the one that is reported."""
        if self.yields:
            raise ValueError("trial.report is not for generator functions: yield the value of each step instead")
        self.record(value, step)

    def record(self, value: float, step: int) -> bool:
        """The same for a yielded value; True if the trial should stop."""
        if isinstance(step, bool) or not isinstance(step, int | np.integer) or not 0 <= step <= MAX_STORED:
            raise ValueError(f"step must be a whole number from 0 to {MAX_STORED}, not {plain.short(step)}")
        try:
            number = plain.number(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"report takes a number that a float can hold, not {plain.short(value)}") from None
        if self._reporter is not None:
            self._prune = self._reporter.report(self.number, int(step), number)
        return self._prune

    def flush(self) -> None:
        """Wait until all reported values are in the study."""
        if self._reporter is not None:
            self._reporter.flush(self.number)

    @contextmanager
    def owning(self, *, alone: bool = False) -> Iterator[Claim | None]:
        """Own a device in this block, if the run has some. ``alone``: for this process, until it ends."""
        if self._devices is None:
            yield None
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

    def set_user_attr(self, key: str, value: Any) -> None:
        """Keep a value with the trial."""
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
        value = self._chosen(name)
        if self.space:
            check_range(self.space, name, FloatDistribution, low, high, step, log)
        return float(value)

    def suggest_int(
        self, name: str, low: int | None = None, high: int | None = None, *, step: int = 1, log: bool = False
    ) -> int:
        """The value of a parameter. The range may be left out; one that contradicts the space is a `SpaceError`."""
        value = self._chosen(name)
        if self.space:
            check_range(self.space, name, IntDistribution, low, high, None if step == 1 else step, log)
        return int(value)

    def suggest_categorical(self, name: str, choices: Sequence[Any] | None = None) -> Any:
        """The value of a parameter. The choices may be left out; ones that contradict the space are a `SpaceError`."""
        value = self._chosen(name)
        if self.space:
            check_choices(self.space, name, choices)
        return value

    def suggest(self, name: str, kind: Any) -> Any:
        """The value of a parameter with structure; a kind that contradicts the space is a `SpaceError`."""
        value = self._chosen(name)
        if self.space and self.space[name] != kind:
            raise SpaceError(f"{kind} contradicts the space, where {name!r} is {described(self.space[name])}")
        return value

    def _chosen(self, name: str) -> Any:
        if self.space:
            check_name(name, self.space)
        if name not in self.params:
            raise KeyError(f"{name!r} is not active in this trial, which has {sorted(self.params)}")
        return self.params[name]


class DefiningTrial(Trial):
    """The trial of an objective without a space: ``suggest_*`` asks the study's sampler in the driver's process."""

    def suggest_float(  # type: ignore[override]
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A number."""
        return float(self._asked(name, FloatDistribution(low, high, log=log, step=step)))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:  # type: ignore[override]
        """A whole number."""
        return int(self._asked(name, IntDistribution(low, high, log=log, step=step)))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:  # type: ignore[override]
        """One of some choices."""
        return self._asked(name, CategoricalDistribution(choices))

    def suggest(self, name: str, kind: Any) -> Any:
        """A parameter with structure: it is stored as several ordinary ones."""
        if f"{KIND_KEY}:{name}" not in self.study.user_attrs:
            self.study.set_user_attr(f"{KIND_KEY}:{name}", kind.to_plain())
        return kind.read([self._asked(each, distribution) for each, distribution in kind.stored(name).items()])

    def _asked(self, name: str, distribution: BaseDistribution) -> Any:
        assert self._reporter is not None, "an objective that gets a trial reports to its driver"
        value = distribution.to_external_repr(self._reporter.suggest(self._number, name, distribution))
        self._params[name] = value
        return value


# ----------------------------------------------------------------- suggest_* calls


class SpaceError(ValueError):
    """A ``suggest_*`` call contradicts the space, or asks for a name that is not in it.

    The parameters are chosen from the space before an evaluation starts, so the call would get an unexpected value.
    """


def check_name(name: str, space: Mapping[str, Any]) -> None:
    """Raise a `SpaceError` if the space has no parameter with this name."""
    if name not in space:
        near = difflib.get_close_matches(str(name), space, n=3)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        names = [*map(repr, space)][:SHOWN] + ["..."] * (len(space) > SHOWN)
        raise SpaceError(f"{plain.short(name)} is not in the space, which has {', '.join(names)}{hint}")


def check_range(
    space: Mapping[str, Any],
    name: str,
    kind: type[FloatDistribution] | type[IntDistribution],
    low: float | None,
    high: float | None,
    step: float | None,
    log: bool,
) -> None:
    """Raise a `SpaceError` unless the space has this range of floats or integers. Without a range, any will do."""
    integer = kind is IntDistribution
    ends = [] if low is None and high is None else [plain.short(low), plain.short(high)]
    options = [f"step={plain.short(step)}"] * (step is not None) + ["log=True"] * bool(log)
    arguments: Any = (low, high, log, (1 if step is None else step) if integer else step)
    asked = kind(*arguments) if ends else None
    function = "suggest_int" if integer else "suggest_float"
    _compare(space[name], kind, asked, f"{function}({', '.join([repr(name), *ends, *options])})", name)


def check_choices(space: Mapping[str, Any], name: str, choices: Sequence[Any] | None) -> None:
    """Raise a `SpaceError` unless the space has these choices, in any order. Without choices, any will do."""
    asked = None if choices is None else CategoricalDistribution(choices)
    written = f"suggest_categorical({name!r}{'' if choices is None else f', {plain.short(choices)}'})"
    _compare(space[name], CategoricalDistribution, asked, written, name)


def _compare(given: Any, kind: type[BaseDistribution], asked: BaseDistribution | None, written: str, name: str) -> None:
    if not isinstance(given, kind) or (asked is not None and not _same(given, asked)):
        raise SpaceError(
            f"{written} contradicts the space, where {name!r} is {described(given)}; write the same in both, or use "
            f"trial.params[{name!r}]"
        )


def _same(given: Any, asked: Any) -> bool:
    if isinstance(given, CategoricalDistribution):
        return len(given.choices) == len(asked.choices) and all(choice in asked.choices for choice in given.choices)
    ends, asked_ends = ((each.low, each.high, each.step or 0.0) for each in (given, asked))
    close = all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(ends, asked_ends, strict=True))
    return close and given.log == asked.log


def described(distribution: Any) -> str:
    """A distribution in words; a kind with structure as it was written."""
    if isinstance(distribution, CategoricalDistribution):
        return f"one of {plain.short(list(distribution.choices))}"
    if not isinstance(distribution, FloatDistribution | IntDistribution):
        return str(distribution)
    kind = "a float" if isinstance(distribution, FloatDistribution) else "an integer"
    plain_step = None if isinstance(distribution, FloatDistribution) else 1
    step = "" if distribution.step == plain_step else f" in steps of {distribution.step}"
    log = " on a logarithmic scale" if distribution.log else ""
    return f"{kind} from {distribution.low} to {distribution.high}{step}{log}"
