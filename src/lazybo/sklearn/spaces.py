"""Convert the search spaces of scikit-learn users to Optuna distributions.

A parameter is a list of values, a range, a frozen distribution of scipy.stats, or an Optuna distribution. A tuple of
two numbers, with or without "log" after them, is a range, as in scikit-optimize; any other tuple is a list. The
optimiser sees an Optuna distribution of plain numbers and names; a candidate gets the values themselves.

With several sub-spaces, one categorical parameter selects the sub-space. A parameter is active while a sub-space that
has it is selected. Equal parameters of several sub-spaces are one parameter, so that the model shares their data.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from scipy import stats
from sklearn.base import BaseEstimator

from lazybo import Condition, Space

# The parameter that selects the sub-space. No estimator can have a parameter of this name.
WHICH = "sub-space"
# Probability that is cut off at each tail of a scipy.stats distribution, whose support may be infinite.
TAIL = 1e-3
# Share of a uniform range that is cut off at each end. scipy.stats never draws the ends, which may be invalid
# (a penalty of 0), but the optimiser often suggests them.
END = 1e-6
# A list of at least this many numbers is ordered; with two, the order means nothing.
ORDERED_FROM = 3
LABEL_LENGTH = 60
SCALES = ("log", "log-uniform", "uniform")

ACCEPTED = (
    "a list of values, a range (low, high) or (low, high, 'log'), a frozen distribution of scipy.stats, or an Optuna "
    "distribution"
)


@dataclass(frozen=True)
class Axis:
    """One parameter: the distribution for the optimiser, and how to turn its values into the estimator's."""

    distribution: BaseDistribution
    text: str  # describes all values; equal texts mean equal parameters
    values: tuple[Any, ...] | None = None  # by the index of the choice
    quantile: Callable[[float], float] | None = None

    def value(self, inside: Any) -> Any:
        """The estimator's value for a value of the distribution."""
        if self.values is not None:
            return self.values[int(self.distribution.to_internal_repr(inside))]
        return inside if self.quantile is None else float(self.quantile(inside))

    def same(self, other: "Axis") -> bool:
        """Whether two parameters of different sub-spaces are equal."""
        if self.distribution != other.distribution or self.text != other.text:
            return False
        # Two different functions may have the same text. An estimator's text describes it completely.
        pairs = zip(self.values or (), other.values or (), strict=True)
        return all(a is b or _is_plain(a) or hasattr(a, "get_params") for a, b in pairs)


class SearchSpace:
    """One or several spaces of an estimator's parameters, as one ``space`` of the optimiser.

    Errors name the argument ``called``.
    """

    def __init__(self, search_spaces: Any, called: str = "search_spaces") -> None:
        subspaces = [dict(_axes(subspace, called)) for subspace in _subspaces(search_spaces, called)]
        self._axes: dict[str, tuple[str, Axis]] = {}  # by the optimiser's name: the estimator's name, and the axis
        conditions: dict[str, Condition] = {}
        if len(subspaces) > 1:
            self._axes[WHICH] = (WHICH, Axis(CategoricalDistribution(range(len(subspaces))), f"{len(subspaces)}"))
        for name in dict.fromkeys(name for subspace in subspaces for name in subspace):
            found = {i: axes[name] for i, axes in enumerate(subspaces) if name in axes}
            conditions |= self._add(name, found, len(subspaces))
        distributions = {inside: axis.distribution for inside, (_, axis) in self._axes.items()}
        self.space = Space(distributions, conditions=conditions)

    def _add(self, name: str, found: Mapping[int, Axis], count: int) -> dict[str, Condition]:
        """Add a parameter, once for all sub-spaces in which it is equal, and return when it is active."""
        groups: list[tuple[Axis, list[int]]] = []
        conditions = {}
        for i, axis in found.items():
            members = next((members for other, members in groups if other.same(axis)), None)
            if members is None:
                groups.append((axis, [i]))
            else:
                members.append(i)
        for axis, members in groups:
            inside = name if len(groups) == 1 else f"{name} ({WHICH} {members[0]})"
            self._axes[inside] = (name, axis)
            if len(members) < count:
                conditions[inside] = Condition(WHICH, tuple(members))
        return conditions

    def candidate(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The estimator's parameters for a configuration of the optimiser, sorted by name as in scikit-learn."""
        active = {name: axis.value(params[key]) for key, (name, axis) in self._axes.items() if key in params}
        return {name: active[name] for name in sorted(active) if name != WHICH}

    def names(self) -> set[str]:
        """The names of the estimator's parameters that are searched."""
        return {name for name, _ in self._axes.values()}

    def examples(self) -> Iterator[dict[str, Any]]:
        """One candidate of each sub-space."""
        anywhere, rng = np.full(self.space.points.dim, np.nan), np.random.default_rng(0)
        for which in getattr(self.space.distributions.get(WHICH), "choices", (None,)):
            fixed = {} if which is None else {WHICH: which}
            yield self.candidate(self.space.complete(fixed, anywhere, rng))

    @property
    def text(self) -> str:
        """A description of the space, to compare it with a stored search."""
        return "; ".join(f"{inside}: {axis.text}" for inside, (_, axis) in self._axes.items())


def described(thing: Any) -> str:
    """A repr without memory addresses, so that it is equal in every process."""
    if isinstance(thing, Mapping):
        return "{" + ", ".join(f"{key!r}: {described(value)}" for key, value in thing.items()) + "}"
    # scikit-learn shortens the repr of an estimator by default.
    text = thing.__repr__(N_CHAR_MAX=10**6) if isinstance(thing, BaseEstimator) else repr(thing)
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def _subspaces(search_spaces: Any, called: str) -> list[Mapping[str, Any]]:
    spaces = [search_spaces] if isinstance(search_spaces, Mapping) else search_spaces
    if not isinstance(spaces, list | tuple) or not spaces:
        raise ValueError(f"{called} must be a dict of parameters, or a list of such dicts, not {search_spaces!r}")
    for space in spaces:
        if isinstance(space, tuple):
            raise ValueError(
                "a sub-space cannot have its own number of iterations: the search itself decides how many candidates "
                "each sub-space gets; give a list of dicts, and n_iter for all of them"
            )
        if not isinstance(space, Mapping) or not all(isinstance(name, str) for name in space):
            raise ValueError(f"a search space must be a dict whose keys are parameter names, not {space!r}")
    if not any(spaces):
        raise ValueError(f"{called} is empty: give at least one parameter")
    return list(spaces)


def _axes(subspace: Mapping[str, Any], called: str) -> Iterator[tuple[str, Axis]]:
    for name, spec in subspace.items():
        try:
            yield name, _axis(spec)
        except ValueError as error:
            raise ValueError(f"{called}: {name!r} {error}") from None


def _axis(spec: Any) -> Axis:
    if isinstance(spec, BaseDistribution) or (isinstance(spec, tuple) and _is_range(spec)):
        distribution = _distribution(spec)
        return Axis(distribution, str(distribution))
    if hasattr(spec, "rvs"):
        return _scipy_axis(spec)
    if isinstance(spec, Sequence | np.ndarray) and not isinstance(spec, str | bytes):
        if len(spec) == 3 and _is_range(spec):
            raise ValueError(f"has the list {spec!r}, whose last value is a scale; a range is a tuple: {tuple(spec)!r}")
        return _list_axis(list(spec))
    if hasattr(spec, "tolist"):  # a pandas column
        return _list_axis(spec.tolist())
    raise ValueError(f"must have {ACCEPTED}, not {spec!r}")


def _is_range(values: Any) -> bool:
    """Whether these are two numbers, or two numbers and a scale."""
    ends = all(isinstance(each, Real) and not isinstance(each, bool) for each in values[:2])
    return ends and len(values) in (2, 3) and (len(values) == 2 or (isinstance(values[2], str) and values[2] in SCALES))


def _distribution(spec: Any) -> BaseDistribution:
    """What an Optuna distribution or a range is for the optimiser. Raises a ValueError that begins with "has"."""
    try:
        return Space({"p": spec}).distributions["p"]
    except ValueError as error:
        raise ValueError(str(error).removeprefix("parameter 'p' ")) from None


# --------------------------------------------------------------------- lists


def _list_axis(values: list[Any]) -> Axis:
    """A list of values. Three or more numbers are ordered, so the model knows which are neighbours."""
    if not values:
        raise ValueError("has an empty list of values")
    text = "[" + ", ".join(map(described, values)) + "]"
    if _are_ordered(values):
        return _ordered_axis(sorted(values), text)
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    if not all(map(_is_plain, plain)) or len(set(plain)) < len(plain) or any(value != value for value in plain):
        plain = [f"{i}: {described(value)[:LABEL_LENGTH]}" for i, value in enumerate(values)]
    return Axis(CategoricalDistribution(plain), text, tuple(values))


def _are_ordered(values: list[Any]) -> bool:
    numbers = [value for value in values if isinstance(value, Real) and not isinstance(value, bool | np.bool_)]
    if len(numbers) < max(len(values), ORDERED_FROM):
        return False
    return all(map(math.isfinite, numbers)) and len(set(numbers)) == len(values)


def _ordered_axis(values: list[Any], text: str) -> Axis:
    """Integers with equal gaps keep their values. Other numbers are modelled by rank, which suits geometric lists."""
    step = values[1] - values[0]
    whole = all(isinstance(value, Integral) for value in values)
    if whole and all(b - a == step for a, b in pairwise(values)):
        return Axis(IntDistribution(int(values[0]), int(values[-1]), step=int(step)), text)
    return Axis(IntDistribution(0, len(values) - 1), text, tuple(values))


def _is_plain(value: Any) -> bool:
    """Whether Optuna accepts the value as a choice and every storage can store it."""
    return value is None or type(value) in (bool, int, float, str)


# --------------------------------------------------------------- scipy.stats


def _scipy_axis(spec: Any) -> Axis:
    """A distribution of scipy.stats. If it is neither uniform nor loguniform, the optimiser sees its quantiles."""
    generic = getattr(spec, "dist", spec)
    text = f"{getattr(generic, 'name', '?')}{getattr(spec, 'args', ())}{getattr(spec, 'kwds', {})}"
    if hasattr(generic, "xk"):
        return _list_axis(list(generic.xk))
    if not isinstance(generic, stats.rv_continuous | stats.rv_discrete):
        raise ValueError(f"must have {ACCEPTED}, not {spec!r}, which has no quantile function (ppf)")
    low, high = map(float, spec.support())
    if not (math.isfinite(low) or low == -math.inf):
        raise ValueError(f"has invalid parameters: {text}")
    if isinstance(generic, stats.rv_discrete):
        low, high = max(low, float(spec.ppf(TAIL))), min(high, float(spec.ppf(1 - TAIL)))
        if generic.name == "randint":
            low, high = map(float, spec.support())
        return Axis(IntDistribution(int(low), int(high)), text)
    if generic.name == "uniform":
        end = END * (high - low)
        return Axis(FloatDistribution(low + end, high - end), text)
    if generic.name in ("loguniform", "reciprocal") and math.isclose(spec.ppf(0.5), math.sqrt(low * high)):
        return Axis(FloatDistribution(low, high, log=True), text)
    return Axis(FloatDistribution(TAIL, 1 - TAIL), text, quantile=spec.ppf)
