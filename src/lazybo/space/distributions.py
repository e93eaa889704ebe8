"""Values of Optuna distributions: which belong to one, as plain Python values, and in words."""

import re
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from lazybo.core import checks


def contains(distribution: BaseDistribution, value: Any) -> bool:
    """Whether a value from a user belongs to the distribution."""
    numeric = isinstance(distribution, FloatDistribution | IntDistribution)
    try:
        if numeric and not checks.is_float_like(value):
            return False
        return distribution._contains(distribution.to_internal_repr(value))
    except (TypeError, ValueError, OverflowError):
        return False


def plain_value(distribution: BaseDistribution, value: Any) -> Any:
    """A value of the distribution without NumPy types; for choices the object in the distribution."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[int(distribution.to_internal_repr(value))]
    if isinstance(distribution, IntDistribution) and value == int(value):
        return int(value)
    return value if type(value) in (int, float) else float(value)


def only_value(distribution: BaseDistribution) -> Any:
    """The one value of a single-valued distribution."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[0]
    return distribution.low  # type: ignore[attr-defined]


def in_words(given: Any) -> str:
    """The values of a distribution in words; a kind with structure as it was written.

    Also of the text of a distribution as studies store it, perhaps with a condition after it.
    """
    if isinstance(given, CategoricalDistribution):
        return f"one of {checks.shortened(list(given.choices), 200)}"
    text = re.sub(r"^CategoricalDistribution\(choices=(.*?)\)(?=$| if )", r"one of \1", str(given), flags=re.DOTALL)
    match = re.match(r"(Float|Int)Distribution\(high=(.+?), log=(\w+), low=(.+?), step=(.+?)\)", text)
    if match is None:
        return text
    kind, high, log, low, step = match.groups()
    name, usual = ("a whole number", "1") if kind == "Int" else ("a number", "None")
    steps = "" if step == usual else f" in steps of {step}"
    scale = " on a logarithmic scale" if log == "True" else ""
    return f"{name} from {low} to {high}{steps}{scale}{text[match.end() :]}"
