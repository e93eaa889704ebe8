"""Strategies for parameters with structure, and for their values."""

from typing import Any

from hypothesis import strategies as st

from lazybo import Described, Graph, Mixture, Permutation, Subset
from lazybo.space.kinds import Structured

names = st.lists(st.one_of(st.text(max_size=3), st.integers(-3, 99)), min_size=2, max_size=5, unique_by=str)


@st.composite
def kinds(draw: st.DrawFn) -> Structured:
    """Any kind, small enough to be listed."""
    which = draw(st.sampled_from(["permutation", "subset", "mixture", "described", "edges", "nodes", "inputs"]))
    some = draw(names)
    if which == "permutation":
        return Permutation(some)
    if which == "subset":
        at_least = draw(st.integers(0, len(some) - 1))
        return Subset(some, at_least=at_least, at_most=draw(st.integers(max(at_least, 1), len(some))))
    if which == "mixture":
        return Mixture(some, total=draw(st.sampled_from([1.0, 100.0, 0.3])), at_most=draw(st.integers(1, len(some))))
    if which == "described":
        count = draw(st.integers(1, 20))
        return Described({each: draw(st.lists(st.floats(-9, 9), min_size=count, max_size=count)) for each in some})
    operations = draw(st.sampled_from([["none", "skip", "a"], ["a", "b"], ["zero", "conv", "identity", "pool"]]))
    if which == "edges":
        return Graph(nodes=draw(st.integers(2, 4)), operations=operations)
    if which == "nodes":
        return Graph(
            nodes=draw(st.integers(3, 4)), operations=operations, labels="nodes", at_most=draw(st.integers(1, 3))
        )
    return Graph(nodes=draw(st.integers(3, 5)), operations=operations, labels="nodes", inputs=1)


@st.composite
def stored_values(draw: st.DrawFn, kind: Structured) -> list[Any]:
    """Any values of the parameters that a kind is stored as."""
    return [
        draw(st.sampled_from(each.choices) if hasattr(each, "choices") else st.floats(each.low, each.high))  # type: ignore[attr-defined]
        for each in kind.stored("p").values()
    ]
