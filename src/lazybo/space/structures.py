"""All kinds of parameters with structure, by the names that files and studies have for them."""

from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any

from optuna.distributions import BaseDistribution

from lazybo.core import checks
from lazybo.space.graphs import Graph
from lazybo.space.kinds import Structured
from lazybo.space.mixtures import Described, Mixture
from lazybo.space.orders import Permutation, Subset

KINDS: dict[str, type[Structured]] = {each.name: each for each in (Permutation, Subset, Mixture, Graph, Described)}


def kind_of(plain: Any) -> Structured:
    """The kind that `Structured.to_plain` wrote, or that a file describes."""
    if not isinstance(plain, Mapping) or plain.get("kind") not in KINDS:
        raise ValueError(
            f"a parameter with structure must have a kind, one of {[*KINDS]}, not {checks.shortened(plain)}"
        )
    given = {name: value for name, value in plain.items() if name != "kind"}
    try:
        return KINDS[plain["kind"]].from_plain(**given)
    except TypeError:
        needed = [name for name, default in KINDS[plain["kind"]].arguments().items() if default is MISSING]
        raise ValueError(f"a {plain['kind']} needs {' and '.join(needed)}, not {sorted(given)}") from None


def grouped(
    distributions: Mapping[str, BaseDistribution], kinds: Mapping[str, Structured]
) -> dict[str, BaseDistribution | Structured]:
    """Stored parameters as parameters of a space, in their order: those of a kind, if all are there, are one."""
    owner = {
        each: name
        for name, kind in kinds.items()
        if all(distributions.get(each) == distribution for each, distribution in kind.stored(name).items())
        for each in kind.stored(name)
    }
    names = dict.fromkeys(owner.get(each, each) for each in distributions)
    return {name: kinds[name] if name in owner.values() else distributions[name] for name in names}
