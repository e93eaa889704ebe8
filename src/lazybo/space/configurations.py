"""Configurations: which parameters there are, which values they have, and when each is active.

A configuration has two forms, which differ for parameters with structure (`kinds.py`). Users see *values*: ``{"order":
["b", "a"]}``. Everything else has *params*, as a study stores them: ``{"order[0]": "b", "order[1]": "a"}``.

A conditional parameter has a `Condition`: it is active while its parent is active and has one of certain values. An
*optional* parameter may be missing from an observation for unknown reasons; points to evaluate always have it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from optuna.distributions import BaseDistribution

from lazybo.core import checks
from lazybo.space.distributions import allowed_values, contains, plain_value
from lazybo.space.kinds import Structured
from lazybo.space.shorthand import as_distributions

if TYPE_CHECKING:
    from lazybo.space.axis import Axis


@dataclass(frozen=True)
class Condition:
    """A parameter is active while ``parent`` is active and has one of ``values``.

    With ``outside``, values may lie outside the range of the parent, as those of earlier results may.
    """

    parent: str
    values: tuple[Any, ...]
    outside: bool = field(default=False, compare=False, repr=False)


class Configurations:
    """The configurations of some parameters, and their two forms."""

    def __init__(
        self,
        parameters: Any,
        conditions: Mapping[str, Condition] | None,
        optional: Collection[str],
        *,
        may_be_empty: bool = False,
    ) -> None:
        self.parameters = _parameters(parameters)
        """Every parameter as a distribution or a kind with structure."""
        stored = {
            name: each.stored(name) if isinstance(each, Structured) else {name: each}
            for name, each in self.parameters.items()
        }
        self.stored = {name: tuple(each) for name, each in stored.items()}
        """The names in a study of each parameter."""
        self.kinds = {name: each for name, each in self.parameters.items() if isinstance(each, Structured)}
        self.distributions = _flat(stored)
        """The distributions of all parameters as a study has them."""
        self.conditions = _conditions(conditions)
        self.optional = names_in("optional", optional)
        if not self.parameters and not may_be_empty:
            raise ValueError("the space is empty: give at least one parameter")
        _check(self.parameters, self.conditions, self.optional)
        self.stored_conditions = {
            each: condition for name, condition in self.conditions.items() for each in stored[name]
        }
        """The conditions by the names of stored parameters."""
        self.parents_first = _parents_first(self.parameters, self.conditions)
        """All parameters, parents before children."""
        self.axes: dict[str, Axis] = {}
        """The axes of the parameters that can vary, once the space has made them."""

    def is_active(self, name: str, params: Mapping[str, Any]) -> bool:
        """Whether a parameter is active, given at least its parents."""
        condition = self.conditions.get(name)
        return condition is None or (condition.parent in params and params[condition.parent] in condition.values)

    def check(self, params: Mapping[str, Any], *, outside: bool = False) -> None:
        """Raise a ValueError if this is not a configuration: unknown, missing or inactive parameters, or wrong values.

        These are stored parameters. With ``outside`` a number may lie outside its range (but not below 0 on a
        logarithmic scale).
        """
        if not isinstance(params, Mapping):
            raise ValueError(f"params must be a mapping from parameter names to values, not {params!r}")
        unknown = [name for name in params if name not in self.distributions]
        if unknown:
            raise ValueError(f"unknown parameter {unknown[0]!r}; this space has {sorted(self.distributions)}")
        for name, value in params.items():
            outlier = outside and name in self.axes and self.axes[name].has_place(value)
            if not contains(self.distributions[name], value) and not outlier:
                allowed = allowed_values(self.distributions[name])
                raise ValueError(f"{name} must be {allowed}, not {checks.shortened(value)}")
        for name, stored in self.stored.items():
            active = self.is_active(name, params)
            missing = [each for each in stored if each not in params]
            if active and missing and not (name in self.optional and len(missing) == len(stored)):
                raise ValueError(f"parameter {missing[0] if len(missing) < len(stored) else name!r} is missing")
            if not active and len(missing) < len(stored):
                condition = self.conditions[name]
                raise ValueError(
                    f"parameter {name!r} is only active while {condition.parent!r} is one of {condition.values}"
                )

    def has(self, params: Mapping[str, Any]) -> bool:
        """Whether this is a configuration of the space."""
        try:
            self.check(params)
        except ValueError:
            return False
        return True

    def plain(self, params: Mapping[str, Any], *, outside: bool = False) -> dict[str, Any]:
        """Validate a configuration and convert it to stored parameters with plain Python values."""
        params = self.store(params)
        self.check(params, outside=outside)
        return {name: plain_value(self.distributions[name], value) for name, value in params.items()}

    def store(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Params of values as users give them. Those that are stored parameters already stay as they are."""
        if not self.kinds or not isinstance(values, Mapping):
            return values
        params: dict[str, Any] = {}
        for name, value in values.items():
            kind = self.kinds.get(name)
            if kind is None:
                params[name] = value
                continue
            try:
                params |= zip(self.stored[name], kind.write(value), strict=True)
            except ValueError as error:
                raise ValueError(f"{name} {error}") from None
        return params

    def values(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The values that users see for stored parameters, in the order of the definition."""
        if not self.kinds:
            return dict(params)
        values = {}
        for name, stored in self.stored.items():
            if all(each in params for each in stored):
                read = self.kinds[name].read if name in self.kinds else None
                values[name] = params[name] if read is None else read([params[each] for each in stored])
        return values

    def of(self, name: str, params: Mapping[str, Any]) -> Any:
        """What the axis of a parameter encodes: its value, or all stored values of a kind with structure."""
        return tuple(params[each] for each in self.stored[name]) if name in self.kinds else params[name]

    def as_stored(self, name: str, decoded: Any) -> Iterable[tuple[str, Any]]:
        """What the axis of a parameter has decoded as stored parameters."""
        return zip(self.stored[name], decoded, strict=True) if name in self.kinds else ((name, decoded),)


def _conditions(conditions: Mapping[str, Condition] | None) -> dict[str, Condition]:
    """``conditions`` as a dict, the values of each as a tuple."""
    if conditions is not None and not isinstance(conditions, Mapping):
        raise ValueError(
            "conditions must be a dict from the name of a parameter to its lazybo.Condition(parent, values), not "
            f"{checks.shortened(conditions)}"
        )
    checked = {}
    for name, condition in (conditions or {}).items():
        which = f"conditions: the condition of {name!r}"
        if not isinstance(condition, Condition):
            raise ValueError(f"{which} must be lazybo.Condition(parent, values), not {checks.shortened(condition)}")
        values = condition.values
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ValueError(f"{which} must have a list of values, not {checks.shortened(values)}")
        if not values:
            raise ValueError(f"{which} has no values: the parameter could never be active")
        checked[name] = replace(condition, values=tuple(values))
    return checked


def names_in(argument: str, names: Collection[str]) -> frozenset[str]:
    """Names of parameters as a set."""
    if isinstance(names, str) or not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{argument} must be a list of names of parameters, not {checks.shortened(names)}")
    return frozenset(names)


def _parameters(given: Any) -> dict[str, BaseDistribution | Structured]:
    """The parameters of a space as distributions and kinds with structure."""
    if not isinstance(given, Mapping):
        return {**as_distributions(given)}  # raises
    kinds = {name: each for name, each in given.items() if isinstance(each, Structured)}
    others = as_distributions({name: each for name, each in given.items() if name not in kinds})
    return {name: kinds[name] if name in kinds else others[name] for name in given}


def _flat(stored: Mapping[str, Mapping[str, BaseDistribution]]) -> dict[str, BaseDistribution]:
    """The stored parameters of all parameters."""
    flat: dict[str, BaseDistribution] = {}
    for name, each in stored.items():
        twice = next((inside for inside in each if inside in flat), None)
        if twice is not None:
            raise ValueError(f"parameter {name!r} is stored as {twice!r}, which is another parameter; rename one")
        flat |= each
    return flat


def _check(
    distributions: Mapping[str, BaseDistribution | Structured],
    conditions: dict[str, Condition],
    optional: frozenset[str],
) -> None:
    unknown = optional - distributions.keys()
    if unknown:
        raise ValueError(f"optional names the unknown parameter {min(unknown)!r}; this space has {[*distributions]}")
    for name, condition in conditions.items():
        _check_condition(name, condition, distributions)


def _check_condition(
    name: str, condition: Condition, distributions: Mapping[str, BaseDistribution | Structured]
) -> None:
    parent, which = condition.parent, f"conditions: the condition of {name!r}"
    for known in (name, parent):
        if not isinstance(known, str) or known not in distributions:
            missing = f"there is no parameter {checks.shortened(known)}; this space has {[*distributions]}"
            raise ValueError(f"{which} on {checks.shortened(parent)}: {missing}")
    given = distributions[parent]
    whole = given.stored(parent).get(parent) if isinstance(given, Structured) else given
    if whole is None:
        raise ValueError(f"{which} on {parent!r}: a parameter with structure decides about no others")
    for value in condition.values:
        if not contains(whole, value) and not condition.outside:
            allowed = allowed_values(whole)
            raise ValueError(f"{which} has {parent}={checks.shortened(value)}, but {parent} must be {allowed}")


def _parents_first(distributions: Iterable[str], conditions: dict[str, Condition]) -> list[str]:
    """All parameter names, parents before children."""
    ordered: list[str] = []

    def visit(name: str, below: tuple[str, ...]) -> None:
        if name in below:
            raise ValueError(f"the conditions of {' and '.join(sorted(below))} depend on each other")
        if name not in ordered:
            if name in conditions:
                visit(conditions[name].parent, (*below, name))
            ordered.append(name)

    for name in distributions:
        visit(name, ())
    return ordered
