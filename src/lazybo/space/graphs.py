"""Graphs as a kind of parameter: directed, without cycles, with operations on their edges or on their nodes.

Node 0 is the input and the last node the output; edges lead from lower to higher numbers. What a graph computes is a
sum of terms (`algebra.py`):

- operations on edges (NAS-Bench-201): a node is the sum of its incoming edges, each the operation of the node before;
- operations on nodes (NAS-Bench-101, NAS-Bench-Graph): a node is the operation of the sum of the nodes before it.

Two graphs are equivalent if these sums are equal, that is, if they compute the same function whatever the operations
are, as long as they map 0 to 0. The kernel sees the operations themselves, and features of the sum.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution

from lazybo.core import Array, checks
from lazybo.gp import Column
from lazybo.space.algebra import BUCKETS, INPUT, Algebra, Counts, Sum, added
from lazybo.space.axis import Perturbation
from lazybo.space.coded import CodedAxis
from lazybo.space.kinds import Structured, names_of

# What operations that add nothing, and the identity, are usually called.
NONE_NAMES = ("none", "zero", "zeroize")
SKIP_NAMES = ("skip", "skip_connect", "skip-connect", "identity")
MAX_NODES = 12
# What is remembered: the features of so many graphs, and so many terms.
MAX_KNOWN = 2**15
MAX_TERMS = 2**17
# The neighbours of so many graphs: a search visits the best ones again and again.
MAX_MOVED = 2**10


@dataclass(frozen=True, repr=False)
class LabelledGraph:
    """A value of `Graph`. ``operations`` are those of the edges, or of the inner nodes, in the order of ``kind``.

    ``edges`` are pairs of nodes. With operations on edges all pairs are there, and absent ones have ``none``.
    """

    kind: "Graph"
    operations: tuple[Any, ...]
    edges: tuple[tuple[int, int], ...]

    def before(self, node: int) -> list[int]:
        """The nodes with an edge to this one."""
        return [i for i, j in self.edges if j == node]

    def operation(self, *place: int) -> Any:
        """The operation of an edge (two nodes), or of an inner node."""
        if self.kind.labels == "edges":
            return self.operations[self.edges.index((place[0], place[1]))]
        return self.operations[place[0] - 1]

    def output(self, algebra: Algebra) -> Sum:
        """What the graph computes; empty if the input does not reach the output."""
        into: list[list[tuple[int, int]]] = [[] for _ in range(self.kind.nodes)]
        for place, (i, j) in enumerate(self.edges):
            into[j].append((i, place))
        sums, operations, applied = [INPUT], self.operations, algebra.applied
        if self.kind.labels == "edges":
            for edges in into[1:]:
                sums.append(added([applied(operations[place], sums[i]) for i, place in edges]))
            return sums[-1]
        for operation, edges in zip(operations, into[1:], strict=False):
            sums.append(applied(operation, added([sums[i] for i, _ in edges])))
        return added([sums[i] for i, _ in into[-1]])

    def canonical(self) -> tuple[tuple[str, int], ...]:
        """A key that equivalent graphs share, for ``canonical=lambda params: params["cell"].canonical()``."""
        algebra = self.kind.algebra()
        return algebra.key(self.output(algebra))

    def to_plain(self) -> dict[str, Any]:
        """The graph as plain data for JSON."""
        return {"operations": list(self.operations), "edges": [list(edge) for edge in self.edges]}

    def __str__(self) -> str:
        if self.kind.labels == "nodes":
            inner = [f"{i}={op}" for i, op in enumerate(self.operations, 1)]
            return f"{' '.join(inner)}; {' '.join(f'{i}>{j}' for i, j in self.edges)}"
        nodes = range(1, self.kind.nodes)
        return " + ".join("|".join(f"{self.operation(i, j)}~{i}" for i in self.before(j)) for j in nodes)

    def __repr__(self) -> str:
        return f"<LabelledGraph {self}>"


@checks.hinting_class({"ops": "use operations=", "edges": "use labels='edges' or labels='nodes', and at_most="})
@dataclass(frozen=True)
class Graph(Structured):
    """A graph of ``nodes`` nodes, input and output included: ``lazybo.Graph(nodes=4, operations=["none", "skip", …])``.

    - ``labels="edges"``: every edge has an operation. Its values print as ``conv~0 + skip~0|none~1 + …``: for each
      node the operations from the nodes before it.
    - ``labels="nodes"``: every inner node has an operation, and any edges may be there, at most ``at_most``. With
      ``inputs=1`` every inner node has one edge to it, and the output has edges from all nodes that no other uses.
    - ``none`` and ``skip`` are the operations that add nothing and that are the identity, if they have other names.

    A study has a parameter for each edge, ``cell[0>1]``, and for each node with an operation, ``cell[1]``.
    """

    nodes: int
    operations: Sequence[Any]
    labels: Literal["edges", "nodes"] = "edges"
    inputs: int | None = None
    at_most: int | None = None
    none: Any = None
    skip: Any = None

    name: ClassVar[str] = "graph"

    def __post_init__(self) -> None:
        checks.one_of("labels of a Graph", self.labels, ("edges", "nodes"))
        checks.whole("nodes of a Graph", self.nodes, 2 if self.labels == "edges" else 3, MAX_NODES)
        object.__setattr__(self, "operations", names_of("the operations of a Graph", self.operations, 2, BUCKETS))
        if self.inputs is not None:
            checks.whole("inputs of a Graph", self.inputs, 1, 1)
        if self.at_most is not None:
            checks.whole("at_most of a Graph", self.at_most, 1, len(self.pairs))
        if self.labels == "edges" and (self.inputs is not None or self.at_most is not None):
            raise ValueError("inputs and at_most of a Graph need labels='nodes'; with operations on edges, use none")
        if self.inputs is not None and self.at_most is not None:
            raise ValueError("give either inputs or at_most of a Graph: with inputs=1 the number of edges is given")
        for which in ("none", "skip"):
            given = getattr(self, which)
            if given is not None and given not in self.operations:
                raise ValueError(f"{which} of a Graph must be one of its operations, not {checks.shortened(given)}")
        if self.none is not None and self.none == self.skip:
            raise ValueError(
                f"none and skip of a Graph are both {checks.shortened(self.none)}: one adds nothing, the "
                "other is the identity"
            )

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """All possible edges, by the node that they lead to."""
        return [(i, j) for j in range(1, self.nodes) for i in range(j)]

    @property
    def none_name(self) -> Any:
        """The operation that adds nothing."""
        return self.none if self.none is not None else _known(self.operations, NONE_NAMES)

    @property
    def skip_name(self) -> Any:
        """The operation that is the identity."""
        return self.skip if self.skip is not None else _known(self.operations, SKIP_NAMES)

    # ------------------------------------------------------------------------ values

    def of(self, operations: Sequence[Any], edges: Sequence[Any] | None = None) -> LabelledGraph:
        """The graph with these operations.

        ``edges`` are pairs of nodes if any may be there, and the node before each inner node if ``inputs=1``.
        """
        return self.read(self.write({"operations": operations, "edges": edges}))

    def stored(self, parameter: str) -> dict[str, BaseDistribution]:
        operations = CategoricalDistribution(self.operations)
        if self.labels == "edges":
            return {f"{parameter}[{i}>{j}]": operations for i, j in self.pairs}
        labelled: dict[str, BaseDistribution] = {f"{parameter}[{i}]": operations for i in self._inner}
        if self.inputs is None:
            return labelled | {f"{parameter}[{i}>{j}]": CategoricalDistribution([False, True]) for i, j in self.pairs}
        # Node 1 can only follow the input.
        return labelled | {f"{parameter}[>{j}]": CategoricalDistribution([*range(j)]) for j in self._inner if j > 1}

    def write(self, value: Any) -> tuple[Any, ...]:
        operations, edges = self._parts(value)
        count = len(self.pairs) if self.labels == "edges" else self.nodes - 2
        known = [each for each in operations if each in self.operations] if _is_list(operations) else []
        if not known or not len(known) == len(operations) == count:
            some = f"{count} of the operations {checks.shortened([*self.operations])}"
            raise ValueError(
                f"must be a graph with {some}, one for each {self.labels[:-1]}, not {checks.shortened(operations)}"
            )
        return (*operations, *self._written(edges))

    def _parts(self, value: Any) -> tuple[Any, Any]:
        """The operations and edges of a value, however it is written."""
        if isinstance(value, LabelledGraph):
            before = [value.before(j)[0] for j in self._inner if value.before(j)] if self.inputs else value.edges
            return value.operations, None if self.labels == "edges" else before
        if self.labels == "edges" and _is_list(value):
            return value, None
        if not isinstance(value, Mapping) or not {"operations"} <= value.keys() <= {"operations", "edges"}:
            raise ValueError(f"must be a graph, made by the of() of its lazybo.Graph, not {checks.shortened(value)}")
        return value["operations"], value.get("edges")

    def _written(self, edges: Any) -> tuple[Any, ...]:
        """Edges as they are stored."""
        if self.labels == "edges":
            if edges is not None:
                raise ValueError("must be a graph without edges: where there is none, its operation says so")
            return ()
        given: list[Any] = list(edges) if isinstance(edges, Sequence) else [None]
        if self.inputs is not None:
            before = [i for i, j in zip(given, self._inner, strict=False) if checks.is_whole(i) and 0 <= i < j]
            if not len(before) == len(given) == self.nodes - 2:
                some = f"the node before each of the {self.nodes - 2} inner nodes"
                raise ValueError(f"must be a graph whose edges are {some}, not {checks.shortened(edges)}")
            return tuple(map(int, before[1:]))
        pairs = {tuple(each) if isinstance(each, Sequence) else each for each in given}
        most = self.at_most or len(self.pairs)
        if not pairs <= set(self.pairs) or len(pairs) > most:
            some = f"at most {most} pairs (i, j) with i < j < {self.nodes}"
            raise ValueError(f"must be a graph whose edges are {some}, not {checks.shortened(edges)}")
        return tuple(pair in pairs for pair in self.pairs)

    def read(self, stored: Sequence[Any]) -> LabelledGraph:
        """The graph; of too many edges the first ones count."""
        count = len(self.pairs) if self.labels == "edges" else self.nodes - 2
        operations, rest = tuple(stored[:count]), stored[count:]
        if self.labels == "edges":
            return LabelledGraph(self, operations, tuple(self.pairs))
        if self.inputs is None:
            there = [pair for pair, present in zip(self.pairs, rest, strict=True) if present]
            return LabelledGraph(self, operations, tuple(there[: self.at_most]))
        inner = list(zip((0, *rest), self._inner, strict=True))
        used = {i for i, _ in inner}
        leaves = [(j, self.nodes - 1) for j in self._inner if j not in used]
        return LabelledGraph(self, operations, (*inner, *leaves))

    @property
    def _inner(self) -> range:
        return range(1, self.nodes - 1)

    def algebra(self) -> Algebra:
        return Algebra(self.none_name, self.skip_name)

    def make_axis(self) -> "GraphAxis":
        return GraphAxis(self)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _known(operations: Sequence[Any], names: Sequence[str]) -> Any:
    return next((each for each in operations if isinstance(each, str) and each.lower() in names), None)


# --------------------------------------------------------------------------------- axis


class GraphAxis(CodedAxis):
    """The stored values of a graph as positions of choices, and features of its expression."""

    kind: Graph

    def __init__(self, kind: Graph) -> None:
        self._choices = [each.choices for each in kind.stored("").values() if isinstance(each, CategoricalDistribution)]
        self._counts = np.array([len(each) for each in self._choices], dtype=np.float64)
        each = self._counts.astype(np.intp)
        self._edits = np.repeat(np.arange(len(each)), each), np.concatenate([np.arange(count) for count in each])
        self._known: dict[bytes, Array] = {}
        self._neighbours = lru_cache(maxsize=MAX_MOVED)(self._neighbours_of)
        self.kind = kind
        self._forget()
        self.draws = len(self._choices)
        self.levels = float(np.prod(self._counts))
        if kind.at_most is not None:
            edges = sum(math.comb(len(kind.pairs), k) for k in range(kind.at_most + 1))
            self.levels = float(len(kind.operations) ** (kind.nodes - 2) * edges)
        if kind.labels == "nodes" and self.levels <= MAX_KNOWN:
            self.levels = float(len(self._codes_listed()))
        blocks = [Column(size=size, unit=1.0) for size in self._counted.sizes]
        super().__init__(kind, self.draws, 1.0, (*(Column(len(each)) for each in self._choices), *blocks))

    def _forget(self) -> None:
        self._known.clear()
        self._algebra = self.kind.algebra()
        real = [each for each in self.kind.operations if each not in (self.kind.none_name, self.kind.skip_name)]
        self._counted = Counts(self._algebra, real, self.kind.nodes - (1 if self.kind.labels == "edges" else 2))

    def code_of(self, stored: Sequence[Any]) -> Sequence[float]:
        codes = [float(choices.index(each)) for each, choices in zip(stored, self._choices, strict=True)]
        found: list[float] = self._within(np.array([codes]))[0].tolist()
        return found

    def stored_of(self, code: Array) -> tuple[Any, ...]:
        return tuple([choices[int(i)] for i, choices in zip(code.tolist(), self._choices, strict=True)])

    def features(self, codes: Array) -> Array:
        keys = [each.tobytes() for each in codes]
        new = {key: code for key, code in zip(keys, codes, strict=True) if key not in self._known}
        if new:
            if len(self._known) + len(new) > MAX_KNOWN or len(self._algebra.terms) >= MAX_TERMS:
                self._forget()
                new = dict(zip(keys, codes, strict=True))
            outputs = [self.kind.read(self.stored_of(code)).output(self._algebra) for code in new.values()]
            self._known.update(zip(new, self._counted.of(outputs), strict=True))
        return np.array([self._known[key] for key in keys]).reshape(len(codes), self.width - self.code)

    def drawn(self, u: Array) -> Array:
        return self.repaired(np.minimum(np.floor(u * self._counts), self._counts - 1))

    def repaired(self, codes: Array) -> Array:
        """Positions within the lists; of too many edges the first ones stay. Nodes are numbered in a fixed order.

        So of all graphs that differ only in the numbers of their nodes, the search suggests one.
        """
        codes = self._within(codes)
        if self.kind.labels == "edges":
            return codes
        inner = self.kind.nodes - 2
        edges = self._adjacency(codes)
        order = numbering(codes[:, :inner].astype(np.intp), edges)
        nodes = np.pad(order + 1, ((0, 0), (1, 1)), constant_values=(0, inner + 1))
        there = np.take_along_axis(np.take_along_axis(edges, nodes[:, :, None], axis=1), nodes[:, None], axis=2)
        if self.kind.inputs is None:
            i, j = np.array(self.kind.pairs).T
            links = there[:, i, j]
        else:
            links = there[:, :-1, 2:-1].argmax(axis=1)  # node 1 can only follow the input
        return np.hstack((np.take_along_axis(codes[:, :inner], order, axis=1), links))

    def _within(self, codes: Array) -> Array:
        """Positions within the lists; of too many edges the first ones stay."""
        codes = np.clip(np.rint(codes), 0.0, self._counts - 1)
        if self.kind.at_most is not None:
            edges = codes[:, self.kind.nodes - 2 :]
            edges[np.cumsum(edges, axis=1) > self.kind.at_most] = 0.0
        return codes

    def _adjacency(self, codes: Array) -> NDArray[np.bool_]:
        """Which edges between nodes are there, (n, nodes, nodes), but for those of leaves to the output."""
        size, links = self.kind.nodes, codes[:, self.kind.nodes - 2 :].astype(np.intp)
        edges = np.zeros((len(codes), size, size), dtype=bool)
        if self.kind.inputs is None:
            i, j = np.array(self.kind.pairs).T
            edges[:, i, j] = links
        else:
            edges[:, 0, 1] = True
            edges[np.arange(len(codes))[:, None], links, np.arange(2, size - 1)] = True
        return edges

    def varied(self, codes: Array, draws: Perturbation) -> Array:
        return np.where(draws.flipped, np.floor(draws.fresh * self._counts), codes)

    def neighbours(self, code: Array, rng: np.random.Generator) -> Array:  # noqa: ARG002
        """One other choice; with a limit, also one edge instead of another."""
        return self._neighbours(code.tobytes()).copy()

    def _neighbours_of(self, key: bytes) -> Array:
        code, (place, choice) = np.frombuffer(key), self._edits
        different = code[place] != choice
        moves = np.repeat(code[None], np.count_nonzero(different), axis=0)
        moves[np.arange(len(moves)), place[different]] = choice[different]
        if self.kind.at_most is not None:
            first = self.kind.nodes - 2
            edges = range(first, self.code)
            moves = moves[moves[:, first:].sum(axis=1) <= self.kind.at_most]
            swaps = [[i, j] for i, j in product(edges, edges) if code[i] and not code[j]]
            others = np.repeat(code[None], len(swaps), axis=0)
            for other, swap in zip(others, swaps, strict=True):
                other[swap] = 0.0, 1.0
            moves = np.vstack((moves, others))
        if self.kind.labels == "edges":
            return moves
        moves = np.unique(self.repaired(moves), axis=0)
        return moves[(moves != code).any(axis=1)]

    def listed(self) -> Array:
        return self._at(self._codes_listed())

    def _codes_listed(self) -> Array:
        codes = np.array([*product(*(range(len(each)) for each in self._choices))], dtype=np.float64)
        return np.unique(self.repaired(codes), axis=0)


def numbering(operations: NDArray[np.intp], edges: NDArray[np.bool_]) -> NDArray[np.intp]:
    """An order of the inner nodes of graphs, (n, k), that does not depend on their numbers.

    ``operations``, (n, k), are those of the inner nodes; ``edges``, (n, k + 2, k + 2), lead to higher numbers, and
    still do in the new order. Nodes are sorted by their depth, what the graph looks like from them without operations,
    the nodes before them, their operation, and what the graph looks like from them with operations.
    """
    count, k = operations.shape
    depth = np.zeros((count, k + 2), dtype=np.int64)
    for node in range(1, k + 2):
        depth[:, node] = np.where(edges[:, :node, node], depth[:, :node] + 1, 0).max(axis=1)
    shape = _refined(depth, edges)
    look = _refined(shape + _mixed(np.pad(operations + 1, ((0, 0), (1, 1)))), edges)
    inner = slice(1, k + 1)
    order = np.tile(np.arange(k), (count, 1))
    for _ in range(k):  # the nodes of each depth have their places after those of lower depths have theirs
        place = np.argsort(order, axis=1)
        before = (edges[:, 1:-1, inner] << place[:, :, None]).sum(axis=1) * 2 + edges[:, 0, inner]
        again = np.lexsort((look[:, inner], operations, before, shape[:, inner], depth[:, inner]), axis=1)
        if np.array_equal(again, order):
            break
        order = again
    return order


def _refined(colours: NDArray[np.int64], edges: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Colours of nodes that also tell the colours of all nodes before and after them apart (Weisfeiler and Lehman)."""
    forth = edges.astype(np.int64)
    back = forth.transpose(0, 2, 1)
    for _ in range(colours.shape[1]):
        mixed = _mixed(colours)[:, :, None]
        colours = _mixed(colours + 3 * (back @ mixed)[:, :, 0] + 5 * (forth @ mixed)[:, :, 0])
    return colours


def _mixed(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """A hash of each number, the same on every machine (the last steps of MurmurHash3)."""
    x = numbers.astype(np.uint64)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ (x >> np.uint64(33))) * np.uint64(factor)
    return (x ^ (x >> np.uint64(33))).astype(np.int64)
