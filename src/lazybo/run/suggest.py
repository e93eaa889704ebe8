"""Whether a ``suggest_*`` call of an objective agrees with the space of its run.

The parameters are chosen before an evaluation starts, from the space. A call that asks for something else would get a
value that it does not expect.
"""

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from lazybo.run import plain

# At most this many names are listed in a message.
SHOWN = 8


class SpaceError(ValueError):
    """A ``suggest_*`` call contradicts the space, or asks for a name that is not in it."""


def check_name(name: str, space: Mapping[str, BaseDistribution]) -> None:
    """Raise a `SpaceError` if the space has no parameter of this name."""
    if name not in space:
        near = difflib.get_close_matches(str(name), space, n=3)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        names = [*map(repr, space)][:SHOWN] + ["..."] * (len(space) > SHOWN)
        raise SpaceError(f"{plain.short(name)} is not in the space, which has {', '.join(names)}{hint}")


def check_float(
    given: BaseDistribution, name: str, low: float | None, high: float | None, step: float | None, log: bool
) -> None:
    """Raise a `SpaceError` unless the space has this range of floats. Without a range any floats will do."""
    asked = None if low is None and high is None else FloatDistribution(low, high, log, step)  # type: ignore[arg-type]
    written = _call("suggest_float", name, low, high, step, log)
    _compare(given, FloatDistribution, asked, written, name)


def check_int(given: BaseDistribution, name: str, low: int | None, high: int | None, step: int, log: bool) -> None:
    """Raise a `SpaceError` unless the space has this range of integers. Without a range any integers will do."""
    asked = None if low is None and high is None else IntDistribution(low, high, log, step)  # type: ignore[arg-type]
    written = _call("suggest_int", name, low, high, None if step == 1 else step, log)
    _compare(given, IntDistribution, asked, written, name)


def check_choices(given: BaseDistribution, name: str, choices: Sequence[Any] | None) -> None:
    """Raise a `SpaceError` unless the space has these choices, in any order. Without choices any will do."""
    asked = None if choices is None else CategoricalDistribution(choices)
    written = f"suggest_categorical({name!r}{'' if choices is None else f', {plain.short(choices)}'})"
    _compare(given, CategoricalDistribution, asked, written, name)


def _compare(
    given: BaseDistribution, kind: type[BaseDistribution], asked: BaseDistribution | None, written: str, name: str
) -> None:
    if not isinstance(given, kind) or (asked is not None and not _same(given, asked)):
        raise SpaceError(
            f"{written} contradicts the space, where {name!r} is {described(given)}; write the same in both, or use "
            f"trial.params[{name!r}]"
        )


def _same(given: BaseDistribution, asked: BaseDistribution) -> bool:
    if isinstance(given, CategoricalDistribution):
        ours, theirs = given.choices, asked.choices  # type: ignore[attr-defined]
        return len(ours) == len(theirs) and all(choice in theirs for choice in ours)
    one, other = ((each.low, each.high, each.step or 0.0) for each in (given, asked))  # type: ignore[attr-defined]
    close = all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(one, other, strict=True))
    return close and given.log == asked.log  # type: ignore[attr-defined]


def _call(function: str, name: str, low: float | None, high: float | None, step: float | None, log: bool) -> str:
    """A call as it is written in the objective."""
    ends = [] if low is None and high is None else [plain.short(low), plain.short(high)]
    options = [f"step={plain.short(step)}"] * (step is not None) + ["log=True"] * bool(log)
    return f"{function}({', '.join([repr(name), *ends, *options])})"


def described(distribution: BaseDistribution) -> str:
    """A distribution in words."""
    if isinstance(distribution, CategoricalDistribution):
        return f"one of {plain.short(list(distribution.choices))}"
    assert isinstance(distribution, FloatDistribution | IntDistribution), "the space has three kinds of parameters"
    kind = "a float" if isinstance(distribution, FloatDistribution) else "an integer"
    plain_step = None if isinstance(distribution, FloatDistribution) else 1
    step = "" if distribution.step == plain_step else f" in steps of {distribution.step}"
    log = " on a logarithmic scale" if distribution.log else ""
    return f"{kind} from {distribution.low} to {distribution.high}{step}{log}"
