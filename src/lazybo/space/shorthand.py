"""Short notation for spaces: lists and tuples besides Optuna's distributions."""

import math
import sys
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from lazybo.core import checks

# The third entry of a range, and whether it means logarithmic. All but "log" are scikit-optimize's names.
SCALES = {"log": True, "log-uniform": True, "uniform": False}
ACCEPTED = (
    "a list of choices, a range (low, high) or (low, high, 'log'), an Optuna distribution, or a kind such as "
    "lazybo.Permutation([...])"
)


def as_distributions(space: Any) -> dict[str, BaseDistribution]:
    """Convert a space to Optuna distributions. A ValueError names the first parameter that is not valid.

    =======================  ===========================================================
    written as               means
    =======================  ===========================================================
    ``["sgd", "adam"]``      one of these choices; a list with one choice is a constant
    ``(0.0, 1.0)``           a number from 0 to 1, both included
    ``(1, 5)``               a whole number from 1 to 5, since both ends are integers
    ``(1e-5, 0.1, "log")``   the same on a logarithmic scale; whole numbers likewise
    an Optuna distribution   itself
    =======================  ===========================================================

    NumPy's numbers are treated like Python's. scikit-optimize's "uniform" and "log-uniform" also work.
    """
    if not isinstance(space, Mapping):
        raise ValueError(
            f"the space must be a dict with {ACCEPTED} for each parameter name, not {checks.shortened(space)}"
        )
    distributions = {}
    for name, written in space.items():
        if not isinstance(name, str):
            raise ValueError(f"parameter names must be strings, not {checks.shortened(name)}")
        try:
            distributions[name] = _distribution(written)
        except ValueError as error:
            raise ValueError(f"parameter {name!r} {error}") from None
    return distributions


def warn_of_misreading(space: Mapping[str, Any]) -> None:
    """Warn of parameters that are probably meant in another way than `as_distributions` reads them."""
    for name, written in space.items():
        reading = ""
        if is_range(written) and len(written) == 2:
            reading = _as_integers(written, *map(_plain, written))
        elif isinstance(written, list) and len(written) in (2, 3) and all(map(checks.is_number, written[:2])):
            reading = _as_choices(written, *map(_plain, written))
        if reading:
            checks.warn(f"parameter {name!r}: {reading}")


def _as_integers(written: Any, low: Any, high: Any) -> str:
    """How a range from 0 to 1 is read, which may be meant for floats; empty for other ranges."""
    if not (isinstance(low, int) and isinstance(high, int) and -1 <= low < high <= 1):
        return ""
    numbers = [*range(low, high + 1)]
    reading = f"{checks.shortened(written)} is read as the integers {', '.join(map(str, numbers))}"
    return f"{reading}; write ({low}.0, {high}.0) for a range of floats, or {numbers} for choices"


def _as_choices(written: Any, low: Any, high: Any, scale: Any = None) -> str:
    """How a list is read that may be meant as a range; empty for other lists."""
    shown, as_range = checks.shortened(written), checks.shortened(tuple(written))
    if isinstance(scale, str) and scale in SCALES:
        return f"{shown} is read as three choices; write {as_range} for a range"
    if scale is None and len(written) == 2 and isinstance(low, float) and isinstance(high, float) and low < high:
        choices = f"optuna.distributions.CategoricalDistribution({shown}) for these two choices"
        return f"{shown} is read as two choices; write {as_range} for a range, or {choices}"
    return ""


def is_range(written: Any) -> bool:
    """Whether this is a tuple of two numbers, or of two numbers and a scale such as "log"."""
    if not isinstance(written, tuple) or len(written) not in (2, 3) or not all(map(checks.is_number, written[:2])):
        return False
    return len(written) == 2 or (isinstance(written[2], str) and written[2] in SCALES)


def range_of(written: tuple[Any, ...]) -> FloatDistribution | IntDistribution:
    """The distribution of a tuple for which `is_range` holds."""
    low, high = map(_plain, written[:2])
    log = len(written) == 3 and SCALES[written[2]]
    if low > high:
        raise ValueError(f"has the range {checks.shortened(written)}, but the low end must not be above the high end")
    if log and low <= 0:
        raise ValueError(
            f"has the range {checks.shortened(written)}, but the low end of a logarithmic range must be above 0"
        )
    distribution: FloatDistribution | IntDistribution
    if isinstance(low, Integral) and isinstance(high, Integral):
        distribution = IntDistribution(int(low), int(high), log)
    else:
        distribution = FloatDistribution(_double(low), _double(high), log)
    check_ends(distribution)
    return distribution


def _distribution(written: Any) -> BaseDistribution:
    if isinstance(written, FloatDistribution | IntDistribution):
        check_ends(written)
        return written
    if isinstance(written, CategoricalDistribution):
        return written
    if isinstance(written, list):
        return _choices(written)
    if is_range(written):
        return range_of(written)
    raise ValueError(f"must be {ACCEPTED}, not {checks.shortened(written)}{_hint(written)}")


def _choices(written: list[Any]) -> CategoricalDistribution:
    if not written:
        raise ValueError("is an empty list; give at least one choice")
    choices = [_plain(choice) for choice in written]
    for i, choice in enumerate(choices):
        # Optuna compares choices by ==: the second of two equal choices could never be suggested, and arrays fail.
        if any(_equal(choice, earlier) for earlier in choices[:i]):
            raise ValueError(f"has the choice {checks.shortened(choice)} twice")
    return CategoricalDistribution(choices)


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except ValueError:
        array = one if hasattr(one, "tolist") else other
        raise ValueError(f"has the choice {checks.shortened(array)}; give tuples or names instead of arrays") from None


def _hint(written: Any) -> str:
    """A hint at what the user may have meant."""
    if isinstance(written, set | frozenset):
        return ". A set has no order; write a list"
    if isinstance(written, tuple) and len(written) == 3 and all(map(checks.is_number, written)):
        return ". For steps write IntDistribution or FloatDistribution(low, high, step=...) of optuna.distributions"
    if isinstance(written, tuple) and len(written) == 3 and all(map(checks.is_number, written[:2])):
        return ". The third entry of a range is 'log' or missing"
    if isinstance(written, tuple):
        return ". Tuples are ranges of two numbers; choices are a list"
    if isinstance(written, range | np.ndarray):
        return ". Write list(...) for choices"
    if written is None or isinstance(written, str | bool | Real):
        return f". A constant is a list with one choice, [{checks.shortened(written)}]"
    return ""


def check_ends(distribution: FloatDistribution | IntDistribution) -> None:
    """Raise a ValueError if the ends of a range are not finite doubles."""
    for end in (distribution.low, distribution.high):
        if not math.isfinite(_double(end)):
            raise ValueError(f"has a range with the end {end!r}; both ends must be finite")
    if isinstance(distribution, IntDistribution) and distribution.high - distribution.low >= sys.float_info.max:
        raise ValueError("has more whole numbers than the largest double, 1.8e308; give a range of floats")


def _plain(value: Any) -> Any:
    """Convert NumPy scalars to Python numbers: half and single precision would be compared with low precision."""
    return value.item() if isinstance(value, np.generic) else value


def _double(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:
        raise ValueError("has a range with an end beyond ±1.8e308, the largest double") from None
