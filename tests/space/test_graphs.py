"""Graphs: which are equivalent, by brute force, and what their values look like."""

from collections import defaultdict
from functools import cache
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazybo import Graph
from lazybo.space.graphs import LabelledGraph

# The operations and the number of cells of NAS-Bench-201.
OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
CELL = Graph(nodes=4, operations=OPERATIONS)


@cache
def cells() -> list[LabelledGraph]:
    return [CELL.of(operations) for operations in product(OPERATIONS, repeat=6)]


def computed(graph: LabelledGraph) -> bytes:
    """What a graph computes from a vector, if its operations are random functions that map 0 to 0."""
    rng = np.random.default_rng(7)
    matrices = {each: rng.standard_normal((3, 3)) for each in graph.kind.operations}

    def apply(operation: object, x: np.ndarray) -> np.ndarray:
        if operation in ("none", "skip_connect", "skip"):
            return 0.0 * x if operation == "none" else x
        return np.tanh(matrices[operation] @ x)

    values = [np.array([0.3, -0.5, 0.2])]
    for node in range(1, graph.kind.nodes):
        before = graph.before(node)
        if graph.kind.labels == "edges":
            values.append(sum((apply(graph.operation(i, node), values[i]) for i in before), np.zeros(3)))
        else:
            total = sum((values[i] for i in before), np.zeros(3))
            values.append(apply(graph.operation(node), total) if node < graph.kind.nodes - 1 else total)
    return (np.round(values[-1], 9) + 0.0).tobytes()


def test_canonical_forms_of_all_cells_of_nasbench201_are_equal_exactly_for_equivalent_cells() -> None:
    """Two cells are equivalent if they compute the same function whatever the convolutions and the pooling are."""
    by_form, by_function = defaultdict(set), defaultdict(set)
    for i, cell in enumerate(cells()):
        by_form[cell.canonical()].add(i)
        by_function[computed(cell)].add(i)
    assert len(cells()) == 15_625
    assert len(by_form) == 4_930
    assert {frozenset(each) for each in by_form.values()} == {frozenset(each) for each in by_function.values()}


@given(st.data())
def test_graphs_with_operations_on_nodes_are_equivalent_exactly_if_they_compute_the_same(data: st.DataObject) -> None:
    inputs = data.draw(st.sampled_from([None, 1]))
    kind = Graph(nodes=5, operations=["none", "skip", "a", "b"], labels="nodes", inputs=inputs)
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    x = kind.axis.from_uniform(rng.random((40, kind.axis.draws)))
    graphs = [kind.read(kind.axis.decode(each)) for each in x]
    forms = [(each.canonical(), computed(each)) for each in graphs]
    for (one, one_computes), (other, other_computes) in product(forms, forms):
        assert (one == other) == (one_computes == other_computes)


@pytest.mark.parametrize("nodes", [12])
def test_features_of_the_largest_graphs_are_finite(nodes: int) -> None:
    kind = Graph(nodes=nodes, operations=["skip", "conv"], labels="nodes")
    everything = kind.of(["skip"] * 5 + ["conv"] * 5, kind.pairs)
    assert np.isfinite(kind.axis.encode(kind.write(everything))).all()


def test_equivalent_graphs_have_equal_features_and_different_codes() -> None:
    one = CELL.of(["none", "none", "nor_conv_1x1", "nor_conv_3x3", "none", "none"])
    other = CELL.of(["none", "none", "none", "nor_conv_3x3", "none", "none"])
    a, b = (np.array(CELL.axis.encode(CELL.write(each))) for each in (one, other))
    assert one.canonical() == other.canonical()
    assert (a[:6] != b[:6]).any()
    np.testing.assert_array_equal(a[6:], b[6:])


@given(st.integers(3, 6), st.booleans(), st.data())
def test_the_search_sees_one_of_the_graphs_that_differ_only_in_the_numbers_of_their_nodes(
    nodes: int, tree: bool, data: st.DataObject
) -> None:
    kind = Graph(nodes=nodes, operations=["a", "b"], labels="nodes", inputs=1 if tree else None)
    one = kind.read([data.draw(st.sampled_from(each.choices)) for each in kind.stored("").values()])  # type: ignore[attr-defined]
    every = renumbered(one)
    (seen,) = {point(each) for each in every}
    assert seen in {tuple(kind.axis.encode(kind.write(each))) for each in every}


def point(graph: LabelledGraph) -> tuple[float, ...]:
    """Where the search sees a graph."""
    axis = graph.kind.axis
    return tuple(axis.snap(np.array([axis.encode(graph.kind.write(graph))]))[0])


def renumbered(graph: LabelledGraph) -> list[LabelledGraph]:
    """All graphs that are the same but for the numbers of their inner nodes."""
    kind, found = graph.kind, []
    for order in permutations(range(1, kind.nodes - 1)):
        number = {0: 0, **{old: new for new, old in enumerate(order, 1)}, kind.nodes - 1: kind.nodes - 1}
        edges = sorted((number[i], number[j]) for i, j in graph.edges)
        if all(i < j for i, j in edges):
            before = [i for j in range(1, kind.nodes - 1) for i, end in edges if end == j]
            found.append(kind.of([graph.operation(old) for old in order], before if kind.inputs else edges))
    return found


def nested(node: int, operations: tuple[str, ...], links: tuple[int, ...]) -> tuple[object, ...]:
    """A tree as its operation and the sorted trees below it."""
    below = sorted(nested(child, operations, links) for child, parent in enumerate(links, 1) if parent == node)
    return (operations[node - 1] if node else "", *below)


def test_a_graph_as_text_and_as_plain_data() -> None:
    cell = Graph(nodes=3, operations=["none", "skip", "conv"]).of(["conv", "skip", "none"])
    assert str(cell) == "conv~0 + skip~0|none~1"
    assert cell.operation(0, 2) == "skip"
    assert cell.to_plain() == {"operations": ["conv", "skip", "none"], "edges": [[0, 1], [0, 2], [1, 2]]}
    tree = Graph(nodes=5, operations=["gcn", "gat"], labels="nodes", inputs=1).of(["gcn", "gat", "gcn"], [0, 1, 0])
    assert str(tree) == "1=gcn 2=gat 3=gcn; 0>1 1>2 0>3 2>4 3>4"


def walks(graph: LabelledGraph, node: int) -> list[tuple[str, ...]]:
    """The operations along each path from a node to the output, without those that are identities."""
    if node == graph.kind.nodes - 1:
        return [()]
    found = []
    for i, j in graph.edges:
        operation = graph.operation(i, j)
        if i == node and operation != "none":
            own = () if operation == "skip_connect" else (operation,)
            found += [(*own, *rest) for rest in walks(graph, j)]
    return found
