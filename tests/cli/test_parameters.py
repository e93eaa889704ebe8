"""Tables of parameters in a file."""

import pytest

from lazybo import Condition, Described, Graph, Mixture, Permutation, Subset
from lazybo.cli.parameters import space_of


def test_a_file_describes_kinds() -> None:
    tables = {
        "order": {"type": "permutation", "items": ["a", "b", "c", "d"], "if": {"opt": ["adam"]}},
        "opt": {"type": "choice", "choices": ["sgd", "adam"]},
        "inputs": {"type": "subset", "items": ["a", "b", "c", "d"], "at_least": 1, "at_most": 3},
        "recipe": {"type": "mixture", "parts": ["x", "y", "z"], "at_most": 2},
        "cell": {"type": "graph", "nodes": 3, "operations": ["none", "skip", "conv"]},
        "solvent": {"type": "described", "choices": {"w": [1.0, 2.0], "e": [2.0, 2.5], "d": [5.0, 0.0]}},
    }
    space = space_of(tables)
    assert space.kinds == {
        "order": Permutation(["a", "b", "c", "d"]),
        "inputs": Subset(["a", "b", "c", "d"], at_least=1, at_most=3),
        "recipe": Mixture(["x", "y", "z"], at_most=2),
        "cell": Graph(nodes=3, operations=["none", "skip", "conv"]),
        "solvent": Described({"w": [1.0, 2.0], "e": [2.0, 2.5], "d": [5.0, 0.0]}),
    }
    assert space.conditions == {"order": Condition("opt", ("adam",))}
    for wrong, message in (
        ({"type": "permutation"}, "parameter 'p': a permutation needs items, not"),
        ({"type": "graph", "nodes": 3, "operation": ["a"]}, "unknown key 'operation'"),
        ({"type": "mixture", "parts": ["x"]}, "parameter 'p': the parts of a Mixture must be from 2 to 64"),
    ):
        with pytest.raises(ValueError, match=message):
            space_of({"p": wrong})
