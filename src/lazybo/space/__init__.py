"""Search spaces: parameters, configurations, and points of the unit cube."""

from typing import TYPE_CHECKING

from lazybo.core import lazily

if TYPE_CHECKING:
    from lazybo.space.beliefs import Belief as Belief
    from lazybo.space.distributions import in_words as in_words
    from lazybo.space.feasible import FeasibleSet as FeasibleSet
    from lazybo.space.graphs import Graph as Graph
    from lazybo.space.mixtures import Described as Described
    from lazybo.space.mixtures import Mixture as Mixture
    from lazybo.space.orders import Permutation as Permutation
    from lazybo.space.orders import Subset as Subset
    from lazybo.space.space import Condition as Condition
    from lazybo.space.space import Space as Space
    from lazybo.space.structures import Structured as Structured
    from lazybo.space.tables import Cells as Cells
else:
    __getattr__ = lazily(
        __name__,
        {
            "Belief": "beliefs",  # where a user expects the best value of a parameter (public)
            "Cells": "tables",  # rows of CSV files, spreadsheets and data frames, read and written
            "Condition": "space",  # when a parameter is active (public)
            "Described": "mixtures",  # a choice whose values have descriptors (public)
            "FeasibleSet": "feasible",  # the configurations for which a predicate is true, and points of them
            "Graph": "graphs",  # a directed graph with operations, such as a neural architecture (public)
            "Mixture": "mixtures",  # shares that add up to a total (public)
            "Permutation": "orders",  # an order of items (public)
            "Space": "space",  # parameters, conditions and constraints; its `points` are the unit cube (public)
            "Structured": "structures",  # what the five kinds of parameters with structure have in common
            "Subset": "orders",  # some of the items (public)
            "in_words": "distributions",  # the values of a parameter, for messages
        },
    )
