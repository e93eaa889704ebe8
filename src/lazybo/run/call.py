"""How an objective is called: what is passed as each of its arguments."""

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

from optuna.distributions import BaseDistribution

# An argument under one of these names is the dict of all parameters, also beside arguments for single parameters.
DICT_NAMES = ("params", "config")
# At most this many parameters are named in a message.
SHOWN = 8
ASYNC = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
CHECKPOINT = "checkpoint"


class Given(Enum):
    """What may be passed as an argument, besides one parameter of the space."""

    PARAMS = "the parameters as a dict"
    TRIAL = "the trial"
    FOLD = "the number of the fold"
    CHECKPOINT = "the folder of the trial's checkpoint"


# A parameter of the space is its name.
Source: TypeAlias = Given | str


@dataclass(frozen=True)
class Call:
    """An objective, and what is passed as its arguments. Inactive parameters keep their defaults."""

    function: Callable[..., Any]
    positional: tuple[Source, ...] = ()
    keywords: Mapping[str, Source] = field(default_factory=dict)  # by the name of the argument
    rest: bool = False  # whether **kwargs get the parameters that no other argument gets
    generator: bool = False  # whether it is a generator function: it yields a value after each step
    guessed: str = ""  # the argument that gets the dict of all parameters although its name does not say so
    space: Mapping[str, BaseDistribution] = field(default_factory=dict)  # what ``suggest_*`` are compared with

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
        """What may be the reason of an error: the name of a parameter may be misspelt."""
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
    """How to call an objective over a space with these names, some of which are not always active.

    - An argument with the name of a parameter of the space is that parameter. The others go to ``**kwargs``.
    - ``trial`` is the trial, ``params`` or ``config`` the dict of all parameters.
    - One argument under any other name is the dict, too, if no argument is a single parameter.
    - With ``folds``, ``fold`` is the number of the fold, or the second of two arguments under other names.
    - ``checkpoint`` of a generator function is the folder of the trial's checkpoint.

    Arguments with other names and a default keep it. A TypeError says why an objective cannot be called so.
    """
    if not callable(objective):
        raise TypeError(f"the objective must be a function of the parameters, not {objective!r}")
    if any(is_async(each) for is_async in ASYNC for each in (objective, type(objective).__call__)):
        raise TypeError("the objective is an async function; give one that returns a number: asyncio.run(...) inside")
    generator = any(map(inspect.isgeneratorfunction, (objective, type(objective).__call__)))
    if generator and folds:
        raise TypeError("the folds of kfold cannot be generator functions: return the value of a fold")
    try:
        signature = inspect.signature(objective)
    except (TypeError, ValueError):
        signature = inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])
    arguments = list(signature.parameters.values())
    call, wrong = _matched(objective, arguments, names, conditional, folds, generator)
    if wrong:
        raise TypeError(_message(objective, signature, wrong, names, folds))
    return replace(call, generator=generator)


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
    """What is passed as an argument with this name."""
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
    """What is passed as so many required arguments with other names; empty if that is not clear."""
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
