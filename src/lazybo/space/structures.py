"""All kinds of parameters with structure: who imports `Structured` from here knows them by their names."""

from lazybo.space.graphs import Graph
from lazybo.space.kinds import Structured
from lazybo.space.mixtures import Described, Mixture
from lazybo.space.orders import Permutation, Subset

__all__ = ["Described", "Graph", "Mixture", "Permutation", "Structured", "Subset"]
