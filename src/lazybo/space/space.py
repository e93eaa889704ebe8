"""Search spaces: which parameters there are, which values they have, and when each is active.

A configuration has two forms, which differ for parameters with structure (`kinds.py`). Users see *values*: ``{"order":
["b", "a"]}``. Everything else has *params*, as a study stores them: ``{"order[0]": "b", "order[1]": "a"}``.

A conditional parameter has a `Condition`: it is active while its parent is active and has one of certain values. An
*optional* parameter may be missing from an observation for unknown reasons; points to evaluate always have it.

How configurations become points of the unit cube is in `points.py`.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
from optuna.distributions import BaseDistribution

from lazybo.core import Array, checks
from lazybo.space.beliefs import Belief, Believed
from lazybo.space.derived import Canonical, Features
from lazybo.space.distributions import contains, in_words, plain_value
from lazybo.space.kinds import Structured
from lazybo.space.points import Points, distances, narrowed
from lazybo.space.shorthand import as_distributions, warn_of_misreading
from lazybo.space.tables import Cells

# Whether a configuration may be evaluated.
Predicate: TypeAlias = Callable[[dict[str, Any]], bool]
Parameter: TypeAlias = BaseDistribution | Structured
# Spaces with more configurations than this are never listed.
MAX_LISTED = 100_000


@dataclass(frozen=True)
class Condition:
    """A parameter is active while ``parent`` is active and has one of ``values``.

    With ``outside``, values may lie outside the range of the parent, as those of earlier results may.
    """

    parent: str
    values: tuple[Any, ...]
    outside: bool = field(default=False, compare=False, repr=False)


class Space:
    """The parameters of a problem, and what is known about them; immutable.

    - ``parameters``: a dict of lists of choices, ranges ``(low, high)`` or ``(low, high, "log")``, and Optuna
      distributions (`lazybo.space.shorthand`), and kinds with structure such as `lazybo.Permutation`.
    - ``conditions``: when a parameter is active: ``{"momentum": Condition("optimizer", ("sgd",))}``.
    - ``feasible``: a function of a configuration (a dict of its active parameters) that says whether it may be
      evaluated: ``lambda params: params["a"] + params["b"] <= 1``. Only feasible configurations are suggested.
    - ``beliefs``: where you expect the best values: ``{"lr": lazybo.Belief(around=1e-3, within=3)}``. They guide the
      first suggestions and fade as values arrive.
    - ``optional``: names of parameters that observations may lack for other reasons.
    - ``features``: a function of a configuration that returns extra inputs of the model. ``instead_of`` names the
      parameters that they replace.
    - ``canonical``: a function of a configuration that returns a key. Configurations with equal keys are equivalent:
      only one of them is suggested, and what was measured for one holds for all. If it returns the configuration that
      stands for the equivalent ones, a dict, the model also knows which others are near it.

    ``points`` converts configurations to points of the unit cube and back.
    """

    KNOWLEDGE = ("conditions", "feasible", "optional", "features", "canonical", "instead_of", "beliefs")
    """The arguments besides the parameters."""
    declared: ClassVar[bool] = True
    """False for the space of a run whose objective names its parameters."""

    @checks.hinting({})
    def __init__(
        self,
        parameters: Mapping[str, Any],
        *,
        conditions: Mapping[str, Condition] | None = None,
        feasible: Predicate | None = None,
        optional: Collection[str] = (),
        features: Features | None = None,
        canonical: Canonical | None = None,
        instead_of: Collection[str] = (),
        beliefs: Mapping[str, Belief] | None = None,
    ) -> None:
        self.parameters = _parameters(parameters)
        """Every parameter as a distribution or a kind with structure."""
        if self.declared and not self.parameters:
            raise ValueError("the space is empty: give at least one parameter")
        self.conditions = _conditions(conditions)
        self.optional = _names_in("optional", optional)
        self.kinds = {name: each for name, each in self.parameters.items() if isinstance(each, Structured)}
        """The parameters with structure."""
        stored = {
            name: each.stored(name) if isinstance(each, Structured) else {name: each}
            for name, each in self.parameters.items()
        }
        self.stored = {name: tuple(each) for name, each in stored.items()}
        """The names in a study of each parameter."""
        self.distributions = _flat(stored)
        """The distributions of all parameters as a study has them."""
        unknown = self.optional - self.parameters.keys()
        if unknown:
            raise ValueError(f"optional names the unknown parameter {min(unknown)!r}; this space has {[*parameters]}")
        for name, condition in self.conditions.items():
            _check_condition(name, condition, self.parameters)
        self.stored_conditions = {
            each: condition for name, condition in self.conditions.items() for each in stored[name]
        }
        """The conditions by the names of stored parameters."""
        self.parents_first = _parents_first(self.parameters, self.conditions)
        """All parameters, parents before children."""
        self.feasible = _predicate(feasible)
        self.beliefs = Belief.checked(beliefs, self.parameters)
        warn_of_misreading(parameters)
        self.features, self.canonical = features, canonical
        self.instead_of = _replaced(instead_of, self.parameters, features)
        self.points = Points(self)
        """The points of its configurations."""
        self.believed = Believed(self.beliefs, self.points) if self.beliefs else None
        """The density of the beliefs; None if there are none."""

    @classmethod
    def of(cls, given: Any) -> "Space":
        """``given`` itself if it is a space, or the space of a dict of parameters."""
        return given if isinstance(given, Space) else cls(given)

    @staticmethod
    def undeclared() -> "Space":
        """The space of a run whose objective names its parameters: the sampler infers them from trials."""
        return _Undeclared({})

    @staticmethod
    def grouped(distributions: Mapping[str, BaseDistribution], kinds: Mapping[str, Structured]) -> dict[str, Parameter]:
        """Stored parameters as parameters of a space, in their order: those of a kind, if all are there, are one."""
        owner = {
            each: name
            for name, kind in kinds.items()
            if all(distributions.get(each) == distribution for each, distribution in kind.stored(name).items())
            for each in kind.stored(name)
        }
        names = dict.fromkeys(owner.get(each, each) for each in distributions)
        return {name: kinds[name] if name in owner.values() else distributions[name] for name in names}

    def __eq__(self, other: object) -> bool:
        """Whether another space has the same parameters, conditions and predicate."""
        return isinstance(other, Space) and self._arguments() == other._arguments()

    __hash__ = None  # type: ignore[assignment]

    def changed(self, **changes: Any) -> "Space":
        """The same space with other arguments."""
        return Space(**self._arguments() | changes)

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("parameters", *self.KNOWLEDGE)}

    def believing(self, beliefs: Mapping[str, Belief]) -> "Space":
        """The same space with these beliefs, except for those that do not fit it."""
        found = Belief.fitting(beliefs, self.parameters)
        return self if found == self.beliefs else self.changed(beliefs=found)

    def box(self, center: Array, side: float) -> "Space":
        """The part of the space around a point, (d,), as wide as ``side`` in each number.

        Choices, and parameters that others depend on, keep all values.
        """
        parents = {condition.parent for condition in self.conditions.values()}
        narrow = narrowed(self.points, center, side)
        parameters = {
            name: each if name in parents else narrow.get(name, each) for name, each in self.parameters.items()
        }
        return self.changed(parameters=parameters, beliefs={})  # a local model refines what was found

    def distances(self, x: Array, center: Array) -> Array:
        """How far points, (m, d), are from another one: the largest difference between numbers, plus other ones."""
        return distances(self.points, x, center)

    @cached_property
    def size(self) -> float:
        """The number of configurations; infinity if a parameter is continuous.

        Configurations that differ only in inactive parameters count once, unless there are too many to list.
        """
        product_of_levels = math.prod(axis.levels for axis in self.points.axes.values())
        if self.conditions and product_of_levels <= MAX_LISTED:
            return float(sum(1 for _ in self.points.listed()))
        return product_of_levels

    @property
    def is_small(self) -> bool:
        """Whether all configurations can be listed."""
        return self.size <= MAX_LISTED

    @property
    def cells(self) -> Cells:
        """Reads tables of its configurations."""
        return Cells(self.distributions, self.stored_conditions)

    # -------------------------------------------------------------- configurations

    def is_active(self, name: str, params: Mapping[str, Any]) -> bool:
        """Whether a parameter is active, given at least its parents."""
        condition = self.conditions.get(name)
        return condition is None or (condition.parent in params and params[condition.parent] in condition.values)

    def allows(self, name: str, value: Any) -> bool:
        """Whether a stored parameter may have this value."""
        return contains(self.distributions[name], value)

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
        axes = self.points.axes if outside else {}
        for name, value in params.items():
            if not self.allows(name, value) and not (name in axes and axes[name].has_place(value)):
                raise ValueError(f"{name} must be {in_words(self.distributions[name])}, not {checks.shortened(value)}")
        for name in self.stored:
            self._check_presence(name, params)

    def _check_presence(self, name: str, params: Mapping[str, Any]) -> None:
        """Raise a ValueError unless a parameter is there if it is active, and only then."""
        stored = self.stored[name]
        missing = [each for each in stored if each not in params]
        is_absent = len(missing) == len(stored)
        if not self.is_active(name, params):
            if not is_absent:
                condition = self.conditions[name]
                raise ValueError(
                    f"parameter {name!r} is only active while {condition.parent!r} is one of {condition.values}"
                )
        elif missing and not (is_absent and name in self.optional):
            raise ValueError(f"parameter {name if is_absent else missing[0]!r} is missing")

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
                kind = self.kinds.get(name)
                values[name] = params[name] if kind is None else kind.read([params[each] for each in stored])
        return values

    def complete(self, fixed: Mapping[str, Any], x: Array, rng: np.random.Generator) -> dict[str, Any]:
        """A configuration with the ``fixed`` values; the others are those of a point, or random if it has none."""
        params: dict[str, Any] = {}
        for name in self.parents_first:
            if not self.is_active(name, params):
                continue
            stored = self.stored[name]
            if not all(each in fixed for each in stored):
                params |= self.points.chosen(name, x, rng)
            params |= {each: fixed[each] for each in stored if each in fixed}
        complete = {name: params[name] for name in self.distributions if name in params} | dict(fixed)
        self.check(complete)
        return complete


class _Undeclared(Space):
    """No parameters at all."""

    declared = False


# ------------------------------------------------------------------------------ arguments


def _predicate(feasible: Any) -> Predicate | None:
    if feasible is not None and not callable(feasible):
        raise ValueError(
            "feasible must be a function that takes a configuration (a dict) and returns True or False, not "
            f"{checks.shortened(feasible)}"
        )
    return feasible


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


def _names_in(argument: str, names: Collection[str]) -> frozenset[str]:
    """Names of parameters as a set."""
    if isinstance(names, str) or not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{argument} must be a list of names of parameters, not {checks.shortened(names)}")
    return frozenset(names)


def _replaced(names: Collection[str], parameters: Mapping[str, Any], features: Features | None) -> tuple[str, ...]:
    """The names of parameters that the model does not see, in the order of the parameters."""
    for name in _names_in("instead_of", names):
        if name not in parameters:
            raise ValueError(
                f"instead_of names {checks.shortened(name)}; the parameters are {checks.shortened([*parameters], 200)}"
            )
    if names and features is None:
        raise ValueError("instead_of needs features, which the model sees instead of these parameters")
    return tuple(name for name in parameters if name in names)


def _parameters(given: Any) -> dict[str, Parameter]:
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


def _check_condition(name: str, condition: Condition, parameters: Mapping[str, Parameter]) -> None:
    parent, which = condition.parent, f"conditions: the condition of {name!r}"
    for known in (name, parent):
        if not isinstance(known, str) or known not in parameters:
            missing = f"there is no parameter {checks.shortened(known)}; this space has {[*parameters]}"
            raise ValueError(f"{which} on {checks.shortened(parent)}: {missing}")
    given = parameters[parent]
    whole = given.stored(parent).get(parent) if isinstance(given, Structured) else given
    if whole is None:
        raise ValueError(f"{which} on {parent!r}: a parameter with structure decides about no others")
    for value in condition.values:
        if not contains(whole, value) and not condition.outside:
            allowed = in_words(whole)
            raise ValueError(f"{which} has {parent}={checks.shortened(value)}, but {parent} must be {allowed}")


def _parents_first(parameters: Iterable[str], conditions: dict[str, Condition]) -> list[str]:
    """All parameter names, parents before children."""
    ordered: list[str] = []

    def visit(name: str, below: tuple[str, ...]) -> None:
        if name in below:
            raise ValueError(f"the conditions of {' and '.join(sorted(below))} depend on each other")
        if name not in ordered:
            if name in conditions:
                visit(conditions[name].parent, (*below, name))
            ordered.append(name)

    for name in parameters:
        visit(name, ())
    return ordered
