"""An objective: what is passed as each of its arguments, and its folds."""

import inspect
import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

from lazybo.core import checks

# An argument with one of these names gets the dict of all parameters, even next to arguments for single parameters.
DICT_NAMES = ("params", "config")
CHECKPOINT = "checkpoint"
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
        self.k = checks.whole("k", k, 2, MAX_FOLDS)

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
