"""Search spaces: parameters, configurations, and points of the unit cube."""

from typing import TYPE_CHECKING

from lazybo.core import lazily

if TYPE_CHECKING:
    from lazybo.space.axis import AXES as AXES
    from lazybo.space.beliefs import Belief as Belief
    from lazybo.space.beliefs import belief_in as belief_in
    from lazybo.space.beliefs import belief_of as belief_of
    from lazybo.space.beliefs import beliefs_of as beliefs_of
    from lazybo.space.derived import Canonical as Canonical
    from lazybo.space.derived import Features as Features
    from lazybo.space.distributions import allowed_values as allowed_values
    from lazybo.space.distributions import contains as contains
    from lazybo.space.distributions import in_words as in_words
    from lazybo.space.distributions import only_value as only_value
    from lazybo.space.feasible import Feasibility as Feasibility
    from lazybo.space.feasible import FeasibleSet as FeasibleSet
    from lazybo.space.graphs import Graph as Graph
    from lazybo.space.kinds import Structured as Structured
    from lazybo.space.kinds import text_of as text_of
    from lazybo.space.mixtures import Described as Described
    from lazybo.space.mixtures import Mixture as Mixture
    from lazybo.space.orders import Permutation as Permutation
    from lazybo.space.orders import Subset as Subset
    from lazybo.space.space import MAX_LISTED as MAX_LISTED
    from lazybo.space.space import Condition as Condition
    from lazybo.space.space import Predicate as Predicate
    from lazybo.space.space import Space as Space
    from lazybo.space.space import Undeclared as Undeclared
    from lazybo.space.space import as_space as as_space
    from lazybo.space.space import believing as believing
    from lazybo.space.space import places_of as places_of
    from lazybo.space.space import sobol as sobol
    from lazybo.space.structures import KINDS as KINDS
    from lazybo.space.structures import grouped as grouped
    from lazybo.space.structures import kind_of as kind_of
    from lazybo.space.tables import MARK as MARK
    from lazybo.space.tables import TABLES as TABLES
    from lazybo.space.tables import csv_rows as csv_rows
    from lazybo.space.tables import csv_text as csv_text
    from lazybo.space.tables import frame_rows as frame_rows
    from lazybo.space.tables import is_empty as is_empty
    from lazybo.space.tables import is_frame as is_frame
    from lazybo.space.tables import parameter_columns as parameter_columns
    from lazybo.space.tables import params_of as params_of
    from lazybo.space.tables import parsed as parsed
else:
    __getattr__ = lazily(
        __name__,
        {
            "AXES": "axis",
            "Belief": "beliefs",
            "Canonical": "derived",
            "Condition": "space",
            "Described": "mixtures",
            "Feasibility": "feasible",
            "FeasibleSet": "feasible",
            "Features": "derived",
            "Graph": "graphs",
            "KINDS": "structures",
            "MARK": "tables",
            "MAX_LISTED": "space",
            "Mixture": "mixtures",
            "Permutation": "orders",
            "Predicate": "space",
            "Space": "space",
            "Structured": "kinds",
            "Subset": "orders",
            "TABLES": "tables",
            "Undeclared": "space",
            "allowed_values": "distributions",
            "as_space": "space",
            "belief_in": "beliefs",
            "belief_of": "beliefs",
            "beliefs_of": "beliefs",
            "believing": "space",
            "contains": "distributions",
            "csv_rows": "tables",
            "csv_text": "tables",
            "frame_rows": "tables",
            "grouped": "structures",
            "in_words": "distributions",
            "is_empty": "tables",
            "is_frame": "tables",
            "kind_of": "structures",
            "only_value": "distributions",
            "parameter_columns": "tables",
            "params_of": "tables",
            "parsed": "tables",
            "places_of": "space",
            "sobol": "space",
            "text_of": "kinds",
        },
    )
