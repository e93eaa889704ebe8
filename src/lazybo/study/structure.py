"""The structure of a space: its parameters, and when each is active, given by the user or inferred from trials."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from lazybo.space.space import Condition


@dataclass(frozen=True)
class Structure:
    """Parameters, and when they are active."""

    distributions: dict[str, BaseDistribution]
    conditions: dict[str, Condition]
    optional: frozenset[str]


def as_given(params: Mapping[str, Any], space: Mapping[str, BaseDistribution]) -> dict[str, Any]:
    """Parameters from a storage with their choices as the space has them: JSON makes lists of tuples."""
    return {name: _as_given(value, space.get(name)) for name, value in params.items()}


def _as_given(value: Any, distribution: BaseDistribution | None) -> Any:
    if not isinstance(value, list) or not isinstance(distribution, CategoricalDistribution):
        return value
    return next((choice for choice in distribution.choices if _as_lists(choice) == value), value)


def _as_lists(choice: Any) -> Any:
    return [_as_lists(part) for part in choice] if isinstance(choice, list | tuple) else choice


def infer_structure(space: Mapping[str, BaseDistribution], trials: Sequence[FrozenTrial]) -> Structure:
    """When each parameter is active, inferred from the trials that completed or were pruned.

    A parameter that some trials lack depends on the first categorical or integer parameter whose values separate the
    trials that have it from those that do not. If there is no such parameter, it is optional.
    """
    done = (TrialState.COMPLETE, TrialState.PRUNED)
    seen = [trial.params for trial in trials if trial.state in done and trial.params]
    conditions: dict[str, Condition] = {}
    optional = set()
    for name in space:
        if all(name in params for params in seen):
            continue
        for parent in _possible_parents(name, space, conditions):
            # By their texts: choices may be lists, which no set can hold.
            with_it = {repr(params[parent]): params[parent] for params in seen if name in params and parent in params}
            without = {repr(params[parent]) for params in seen if name not in params and parent in params}
            without_parent = any(name in params and parent not in params for params in seen)
            if with_it and with_it.keys().isdisjoint(without) and not without_parent:
                conditions[name] = Condition(parent, tuple(with_it[text] for text in sorted(with_it)), outside=True)
                break
        else:
            optional.add(name)
    return Structure(dict(space), conditions, frozenset(optional))


def _possible_parents(
    name: str, space: Mapping[str, BaseDistribution], conditions: Mapping[str, Condition]
) -> list[str]:
    """Discrete parameters that do not themselves depend on this one."""

    def depends_on_it(child: str) -> bool:
        while child in conditions:
            child = conditions[child].parent
            if child == name:
                return True
        return False

    discrete = (CategoricalDistribution, IntDistribution)
    return [p for p, d in space.items() if p != name and isinstance(d, discrete) and not depends_on_it(p)]
