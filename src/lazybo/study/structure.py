"""The structure of a space: its parameters, and when each is active, given by the user or inferred from trials."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from lazybo.search.space import Condition


@dataclass(frozen=True)
class Structure:
    """Parameters, and when they are active."""

    distributions: dict[str, BaseDistribution]
    conditions: dict[str, Condition]
    optional: frozenset[str]


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
            with_it = {params[parent] for params in seen if name in params and parent in params}
            without = {params[parent] for params in seen if name not in params and parent in params}
            without_parent = any(name in params and parent not in params for params in seen)
            if with_it and not with_it & without and not without_parent:
                conditions[name] = Condition(parent, tuple(sorted(with_it, key=repr)))
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
