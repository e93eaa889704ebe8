"""Spaces as people write them: lists and tuples beside Optuna's distributions."""

import math
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

from lazybo.checks import is_number, shortened

# Whether a range is logarithmic, by its third entry. All but "log" are scikit-optimize's words.
SCALES = {"log": True, "log-uniform": True, "uniform": False}
ACCEPTED = "a list of choices, a range (low, high) or (low, high, 'log'), or an Optuna distribution"


def as_distributions(space: Any) -> dict[str, BaseDistribution]:
    """The Optuna distributions of a space; a ValueError names the first parameter that has none.

    =======================  ===========================================================
    written as               means
    =======================  ===========================================================
    ``["sgd", "adam"]``      one of these choices; a list with one choice is a constant
    ``(0.0, 1.0)``           a number from 0 to 1, both included
    ``(1, 5)``               a whole number from 1 to 5: both ends are written without a point
    ``(1e-5, 0.1, "log")``   the same on a logarithmic scale; whole numbers likewise
    an Optuna distribution   itself
    =======================  ===========================================================

    NumPy's numbers count as Python's. scikit-optimize's words "uniform" and "log-uniform" are understood, too.
    """
    if not isinstance(space, Mapping):
        raise ValueError(f"the space must be a dict from names of parameters to {ACCEPTED}; not {shortened(space)}")
    distributions = {}
    for name, written in space.items():
        if not isinstance(name, str):
            raise ValueError(f"parameter names must be strings, not {shortened(name)}")
        try:
            distributions[name] = _distribution(written)
        except ValueError as error:
            raise ValueError(f"parameter {name!r} {error}") from None
    return distributions


def is_range(written: Any) -> bool:
    """Whether a tuple begins with two numbers, and ends there or with a scale."""
    if not isinstance(written, tuple) or len(written) not in (2, 3) or not all(map(is_number, written[:2])):
        return False
    return len(written) == 2 or (isinstance(written[2], str) and written[2] in SCALES)


def range_of(written: tuple[Any, ...]) -> FloatDistribution | IntDistribution:
    """The distribution of a tuple for which `is_range` holds."""
    low, high = map(_plain, written[:2])
    log = len(written) == 3 and SCALES[written[2]]
    if low > high:
        raise ValueError(f"is {shortened(written)}, which is no range, because its low end is above its high end")
    if log and low <= 0:
        raise ValueError(f"is {shortened(written)}, which is no logarithmic range, because its low end is not above 0")
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
    raise ValueError(f"must be {ACCEPTED}; not {shortened(written)}{_hint(written)}")


def _choices(written: list[Any]) -> CategoricalDistribution:
    if not written:
        raise ValueError("is an empty list; give at least one choice")
    choices = [_plain(choice) for choice in written]
    for i, choice in enumerate(choices):
        # Optuna tells choices apart by ==: the later of two equal ones could never be had, and arrays have no such ==.
        if any(_equal(choice, earlier) for earlier in choices[:i]):
            raise ValueError(f"has the choice {shortened(choice)} twice")
    return CategoricalDistribution(choices)


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except ValueError:
        array = one if hasattr(one, "tolist") else other
        raise ValueError(f"has the choice {shortened(array)}; give tuples or names instead of arrays") from None


def _hint(written: Any) -> str:
    """What else may have been meant."""
    if isinstance(written, set | frozenset):
        return ". A set has no order; write a list"
    if isinstance(written, tuple) and len(written) == 3 and all(map(is_number, written)):
        return ". For steps write IntDistribution or FloatDistribution(low, high, step=...) of optuna.distributions"
    if isinstance(written, tuple) and len(written) == 3 and all(map(is_number, written[:2])):
        return ". The third entry of a range is 'log' or missing"
    if isinstance(written, tuple):
        return ". Tuples are ranges of two numbers; choices are a list"
    if isinstance(written, range | np.ndarray):
        return ". Write list(...) for choices"
    if written is None or isinstance(written, str | bool | Real):
        return f". A constant is a list with one choice, [{shortened(written)}]"
    return ""


def check_ends(distribution: FloatDistribution | IntDistribution) -> None:
    """Refuse a range whose ends are not finite doubles, which is what the optimiser works with."""
    for end in (distribution.low, distribution.high):
        if not math.isfinite(_double(end)):
            raise ValueError(f"has a range with the end {end!r}; both ends must be finite")


def _plain(value: Any) -> Any:
    """NumPy's scalars as Python's: half and single precision would be compared as such."""
    return value.item() if isinstance(value, np.generic) else value


def _double(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:
        raise ValueError("has a range with an end beyond ±1.8e308, the largest double") from None
