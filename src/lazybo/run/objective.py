"""An objective: what is passed as each of its arguments, and its folds."""

import inspect
import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import takewhile
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
    def everything(self) -> tuple[Source, ...]:
        """What all arguments get."""
        return (*self.positional, *self.keywords.values())

    @property
    def takes_trial(self) -> bool:
        """Whether the objective gets its trial."""
        return Given.TRIAL in self.everything

    @property
    def takes_checkpoint(self) -> bool:
        """Whether the objective gets the folder of its checkpoint."""
        return Given.CHECKPOINT in self.everything

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
    objective: Callable[..., Any],
    names: Collection[str],
    conditional: Collection[str] = (),
    *,
    folds: bool = False,
    defines: bool = False,
) -> Call:
    """How to call an objective over a space with these names; ``conditional`` ones are not always active.

    An argument gets what its name says:

    - a parameter of the space, by its name; ``**kwargs`` gets the parameters that have no argument,
    - ``params`` or ``config``: the dict of all parameters; ``trial``: the trial,
    - ``fold`` with ``folds``: the number of the fold,
    - ``checkpoint`` of a generator function: the folder of the trial's checkpoint.

    If nothing of this takes the parameters, the one required argument left gets the dict of all of them. So does the
    fold if two are left. With ``defines``, which is for objectives without a space, it gets the trial. Arguments with
    other names and a default keep it.

    An object that starts programs says so by its attributes: ``claims_device`` if it claims the device of a trial
    itself, by ``trial.owning()``, and ``takes_checkpoint`` if it continues from the folder.

    A TypeError says why an objective cannot be called like this.
    """
    if not callable(objective):
        raise TypeError(f"the objective must be a function of the parameters, not {objective!r}")
    generator, form = _is_generator(objective, folds), _Form.of(objective)
    known = _meanings(names, folds=folds, checkpoint=generator or getattr(objective, "takes_checkpoint", False))
    given = {name: known[name] for name in form.names if name in known}
    # What the objective still needs goes to arguments with other names, if that is clear.
    needed = _needed(given.values(), names, folds=folds, defines=defines)
    others = [name for name in form.names if name not in known and (name in form.required or len(form.names) == 1)]
    if len(others) == len(needed):
        given |= dict(zip(others, needed, strict=True))
    call = replace(
        form.call(objective, given, needed),
        generator=generator,
        guessed=next((name for name in others if given.get(name) == Given.PARAMS), ""),
        claims=getattr(objective, "claims_device", False),
        defines=defines,
    )
    wrong = _wrong(call, form, names, conditional, folds)
    if wrong:
        raise TypeError(_message(call, form.signature, wrong, names, folds))
    _check_decorator(call)
    return call


@dataclass(frozen=True)
class _Form:
    """The arguments that an objective declares."""

    signature: inspect.Signature
    names: list[str]  # of all but *args and **kwargs
    required: list[str]  # those without a default
    by_position: list[str]  # those that are not given by name
    args: bool  # whether there are *args
    kwargs: bool  # whether there are **kwargs

    @staticmethod
    def of(objective: Callable[..., Any]) -> "_Form":
        try:
            signature = inspect.signature(objective)
        except (TypeError, ValueError):  # functions in C may have none
            signature = inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])
        every = signature.parameters.values()
        named = [each for each in every if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
        return _Form(
            signature,
            [each.name for each in named],
            [each.name for each in named if each.default is each.empty],
            [each.name for each in named if each.kind == each.POSITIONAL_ONLY],
            any(each.kind == each.VAR_POSITIONAL for each in every),
            any(each.kind == each.VAR_KEYWORD for each in every),
        )

    def call(self, objective: Callable[..., Any], given: Mapping[str, Source], needed: Sequence[Source]) -> Call:
        """The call that gives these arguments; ``*args`` get what is needed if there are no others."""
        positional = tuple(given[name] for name in takewhile(given.__contains__, self.by_position))
        keywords = {name: source for name, source in given.items() if name not in self.by_position}
        if self.args and not given:
            positional = tuple(needed)
        takes_params = Given.PARAMS in (*positional, *keywords.values())
        return Call(objective, positional, keywords, rest=self.kwargs and not takes_params)

    def missing(self, call: Call) -> list[str]:
        given = {*self.by_position[: len(call.positional)], *call.keywords}
        return [name for name in self.required if name not in given]


def _is_generator(objective: Callable[..., Any], folds: bool) -> bool:
    functions = (objective, type(objective).__call__)
    if any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in functions):
        raise TypeError("the objective is an async function; give one that returns a number: asyncio.run(...) inside")
    generator = any(map(inspect.isgeneratorfunction, functions))
    if generator and folds:
        raise TypeError("the folds of kfold cannot be generator functions: return the value of a fold")
    return generator


def _meanings(names: Collection[str], *, folds: bool, checkpoint: bool) -> dict[str, Source]:
    found: dict[str, Source] = {**dict.fromkeys(DICT_NAMES, Given.PARAMS), "trial": Given.TRIAL}
    if folds:
        found["fold"] = Given.FOLD
    if checkpoint:
        found[CHECKPOINT] = Given.CHECKPOINT
    return found | {name: name for name in names}


def _needed(given: Collection[Source], names: Collection[str], *, folds: bool, defines: bool) -> list[Source]:
    if defines:
        return [] if Given.TRIAL in given else [Given.TRIAL]
    has_params = Given.PARAMS in given or any(name in given for name in names)
    return [*([] if has_params else [Given.PARAMS]), *([Given.FOLD] if folds and Given.FOLD not in given else [])]


def _wrong(call: Call, form: _Form, names: Collection[str], conditional: Collection[str], folds: bool) -> str:
    missing = form.missing(call)
    needed = {*call.positional, *(source for name, source in call.keywords.items() if name in form.required)}
    inactive = [name for name in conditional if name in needed]
    takes_all = call.rest or Given.PARAMS in call.everything or call.takes_trial
    unused = [] if takes_all else [name for name in names if name not in call.everything]
    wrong: dict[str, object] = {
        "only a generator function gets a checkpoint: yield the value of each step": CHECKPOINT in missing,
        "there is no trial for a single fold": folds and call.takes_trial,
        "no argument takes the fold": folds and Given.FOLD not in call.everything,
        f"the space has no parameter {_listed(missing)}": missing,
        f"{_listed(inactive)} is not active in every trial: give its argument a default": inactive,
        f"no argument takes the parameter {_listed(unused)}": unused,
    }
    return next((reason for reason, holds in wrong.items() if holds), "")


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


def _message(call: Call, signature: inspect.Signature, wrong: str, names: Collection[str], folds: bool) -> str:
    name = getattr(call.function, "__name__", type(call.function).__name__)
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


def call_without_space(objective: Callable[..., Any]) -> Call:
    """How to call an objective without a space: it gets the trial, and asks it for its parameters."""
    if isinstance(objective, KFold):
        raise TypeError("kfold needs a space: the parameters of all folds are chosen before they start")
    wanted = "without a space, the objective asks its trial for parameters: def objective(trial), with trial.suggest_*"
    try:
        call = call_of(objective, (), defines=True)
    except TypeError as error:
        raise TypeError(f"{wanted}. {error}") from None
    if not call.takes_trial or Given.PARAMS in call.everything:
        raise TypeError(f"{wanted}; or give the space as the second argument: optimize(objective, {{...}})")
    return call


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
