"""Laws of all parameters with structure, and one clear error for each wrong definition or value."""

import json
import math
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution

from lazybo import Condition, Described, Graph, Mixture, Permutation, Space, Subset
from lazybo.space.axis import Perturbation
from lazybo.space.structures import Structured
from tests.spaces import kinds, stored_values

of_plain = Structured.of_plain


def is_inside(kind: Structured, x: np.ndarray) -> None:
    """Coordinates belong to a value, and are those of this value."""
    value = kind.read(kind.axis.decode(x))
    again = kind.axis.encode(kind.write(value))
    np.testing.assert_allclose(again, x, atol=1e-9)
    if math.isfinite(kind.axis.levels):
        np.testing.assert_array_equal(again, x)


@given(st.data(), kinds())
def test_any_stored_values_are_a_value_that_is_written_and_read_back(data: st.DataObject, kind: Structured) -> None:
    stored = data.draw(stored_values(kind))
    value = kind.read(stored)
    assert kind.read(kind.write(value)) == value
    space = Space({"p": kind})
    params = space.plain({"p": value})
    assert space.values(params) == {"p": value}
    space.check(params)
    np.testing.assert_allclose(
        space.points.encode(params), space.points.encode(dict(zip(params, stored, strict=True))), atol=1e-12
    )


@given(st.data(), kinds())
def test_decode_of_encode_is_the_same_value(data: st.DataObject, kind: Structured) -> None:
    stored = kind.write(kind.read(data.draw(stored_values(kind))))
    decoded = kind.axis.decode(kind.axis.encode(stored))
    for there, here in zip(decoded, stored, strict=True):
        assert there == (pytest.approx(here, rel=1e-12, abs=1e-12) if isinstance(here, float) else here)


@given(st.integers(0, 1000), kinds())
def test_random_points_steps_and_moves_stay_inside(seed: int, kind: Structured) -> None:
    axis, rng = kind.axis, np.random.default_rng(seed)
    x = axis.from_uniform(rng.random((8, axis.draws)))
    draws = Perturbation(
        rng.random((8, axis.draws)) < 0.5,
        0.3 * rng.standard_normal((8, axis.draws)),
        rng.random((8, axis.draws)) < 0.3,
        rng.random((8, axis.draws)),
    )
    moves = [axis.next_to(each, x, rng) for each in x]
    for each in (*x, *axis.perturbed(x, draws), *axis.snap(x + 0.4 * rng.standard_normal(x.shape))):
        is_inside(kind, each)
    for start, ends in zip(x, moves, strict=True):
        assert len(ends)
        for end in ends:
            is_inside(kind, np.array(end))
            assert not np.array_equal(end, start)


@given(kinds())
def test_all_values_are_listed_once(kind: Structured) -> None:
    if not kind.axis.levels < 5000:
        return
    listed = kind.axis.listed()
    assert len(np.unique(listed, axis=0)) == len(listed) == kind.axis.levels
    for x in listed[:: max(len(listed) // 50, 1)]:
        is_inside(kind, x)


@given(st.integers(0, 1000), kinds())
def test_inactive_values_stay_inactive(seed: int, kind: Structured) -> None:
    space = Space({"on": [False, True], "p": kind}, conditions={"p": Condition("on", (True,))})
    rng = np.random.default_rng(seed)
    points = space.points
    x = points.sample(rng, 12)
    mixed = np.where(rng.random(x.shape) < 0.5, x, x[rng.permutation(len(x))])  # of some values only a part is known
    mixed[:, 0] = x[:, 0]
    for rows in (mixed, points.perturbed(x, np.ones(points.dim), rng)):
        x = np.vstack((x, points.repair(points.snap(rows), rng)))
    for params in points.decode_all(x):
        space.check(params)
        assert ("p" in space.values(params)) == params["on"]
        assert space.values(space.plain(space.values(params))) == space.values(params)


@given(kinds())
def test_a_kind_is_read_back_from_json(kind: Structured) -> None:
    again = Structured.of_plain(json.loads(json.dumps(kind.to_plain())))
    assert again == kind
    assert hash(again) == hash(kind)


@given(kinds(), kinds(), st.permutations(["x", "p", "q"]))
def test_stored_parameters_are_grouped_in_their_order(kind: Structured, other: Structured, names: list[str]) -> None:
    parameters = {name: {"x": FloatDistribution(0, 1), "p": kind, "q": other}[name] for name in names}
    stored = Space(parameters).distributions
    found = Space.grouped(stored, {"p": kind, "q": other})
    assert [*found.items()] == [*parameters.items()]
    # What is not there as a whole stays as it is.
    alone = {"p": kind}
    rest = {name: each for name, each in stored.items() if name not in other.stored("q")}
    assert [*Space.grouped(rest, {**alone, "q": other})] == [name for name in names if name != "q"]
    assert Space.grouped(stored, alone).keys() == {"x", "p", *other.stored("q")}


@given(st.integers(0, 1000), st.integers(2, 6), st.data())
def test_shares_are_projected_on_the_nearest_ones(seed: int, n: int, data: st.DataObject) -> None:
    """The projection satisfies the conditions of Karush, Kuhn and Tucker: one shift for all shares that are not 0."""
    axis = Mixture([*range(n)], at_most=data.draw(st.integers(2, n))).axis
    rng = np.random.default_rng(seed)
    x = axis.from_uniform(rng.random((1, axis.draws)))
    free = axis.free(x)
    there = np.where(free, x + rng.standard_normal(x.shape), x)
    near = axis.project(there, free)[0, :n]
    assert near.sum() == pytest.approx(1.0)
    assert near.min() >= 0
    if free[0, :n].any():
        shift = (there[0, :n] - near)[near > 1e-12]
        np.testing.assert_allclose(shift, shift[0], atol=1e-9)
        zero = free[0, :n] & (near <= 1e-12)
        assert (there[0, :n][zero] <= shift[0] + 1e-9).all()
    np.testing.assert_array_equal(near[~free[0, :n]], x[0, :n][~free[0, :n]])


def test_values_are_what_users_expect() -> None:
    assert Permutation(["abc", "b", "c"]).read(["c", "c", "b"]) == ["c", "abc", "b"]
    assert Subset(["a", "b", "c"], at_most=1).read([True, False, True]) == ["c"]
    assert Subset(["a", "b", "c"], at_least=2).read([False, False, True]) == ["a", "c"]
    assert Mixture(["x", "y"], total=10).read([1.0, 3.0]) == {"x": 2.5, "y": 7.5}
    assert Mixture(["x", "y"], at_most=1).read([0.4, 0.6]) == {"x": 0.0, "y": 1.0}
    assert Mixture(["x", "y"]).read([0.0, 0.0]) == {"x": 0.5, "y": 0.5}


SPACE = Space(
    {
        "lr": (0.0, 1.0),
        "order": Permutation(["a", "b", "c"]),
        "inputs": Subset(["a", "b", "c"], at_least=1, at_most=2),
        "recipe": Mixture(["x", "y", "z"], total=1.0, at_most=2),
        "cell": Graph(nodes=3, operations=["none", "conv"]),
        "tree": Graph(nodes=4, operations=["a", "b"], labels="nodes", inputs=1),
        "net": Graph(nodes=4, operations=["a", "b"], labels="nodes", at_most=3),
        "solvent": Described({"w": [1.0], "e": [2.0]}),
    }
)
RIGHT = {
    "lr": 0.5,
    "order": ["b", "a", "c"],
    "inputs": ["c"],
    "recipe": {"x": 0.25, "z": 0.75},
    "cell": ["conv", "none", "conv"],
    "tree": {"operations": ["a", "b"], "edges": [0, 1]},
    "net": {"operations": ["a", "b"], "edges": [(0, 1), (1, 3)]},
    "solvent": "e",
}

WRONG_DEFINITIONS: list[tuple[Callable[[], Any], str]] = [
    (lambda: Permutation("abc"), "the items of a Permutation must be a list of names, not 'abc'"),
    (lambda: Permutation(["a"]), "the items of a Permutation must be from 2 to 64 names, not 1"),
    (lambda: Permutation(["a", "b", "a"]), "the items of a Permutation have 'a' twice; give each once"),
    (lambda: Permutation(["a", 0.5]), "the items of a Permutation must be texts or whole numbers, not 0.5"),
    (lambda: Permutation([1, "1"]), "the items of a Permutation have 1 and '1', which look the same in a study"),
    (lambda: Subset({"a", "b"}), "the items of a Subset must be a list: a set has another order in every process"),
    (lambda: Subset([]), "the items of a Subset must be from 1 to 256 names, not 0"),
    (lambda: Subset(["a", "b"], at_least=2), "at_least of a Subset is 2, so it has only one value: all items"),
    (lambda: Subset(["a", "b", "c"], at_least=2, at_most=1), "at_most of a Subset must be a whole number from 2 to 3"),
    (lambda: Mixture(["x"]), "the parts of a Mixture must be from 2 to 64 names, not 1"),
    (lambda: Mixture(["x", "y"], total=0), "total of a Mixture must be a positive finite number, not 0"),
    (lambda: Mixture(["x", "y"], at_most=3), "at_most of a Mixture must be a whole number from 1 to 2, not 3"),
    (lambda: Graph(nodes=1, operations=["a", "b"]), "nodes of a Graph must be a whole number from 2 to 12, not 1"),
    (lambda: Graph(nodes=3, operations=["a"]), "the operations of a Graph must be from 2 to 64 names, not 1"),
    (lambda: Graph(nodes=3, operations=["a", "b"], labels="both"), "labels of a Graph must be one of"),
    (lambda: Graph(nodes=3, operations=["a", "b"], at_most=2), "inputs and at_most of a Graph need labels='nodes'"),
    (lambda: Graph(nodes=3, operations=["a", "b"], skip="c"), "skip of a Graph must be one of its operations, not 'c'"),
    (lambda: Graph(nodes=3, operations=["a", "b"], none="a", skip="a"), "none and skip of a Graph are both 'a'"),
    (
        lambda: of_plain({"kind": "described", "choices": ["a", "b"]}),
        "Described takes a table from choices to numbers",
    ),
    (
        lambda: of_plain({"kind": "described", "choices": [["a", [1], 3]]}),
        "or a list of such pairs, not ['a', [1], 3]",
    ),
    (lambda: Space({"p": Permutation}), "or a kind such as lazybo.Permutation([...]), not <class"),
    (lambda: Space({"a": (0.0, 1.0)}, canonical=lambda p: [p["a"]]), "canonical must return a configuration, or a key"),
    (lambda: Space({"a": (0.0, 1.0)}, canonical=lambda p: None), "such as a text or a tuple, not None"),
    (lambda: Space({"a": (0.0, 1.0)}, canonical=lambda p: (1, [2])), "such as a text or a tuple, not (1, [2])"),
    (lambda: Space({"a": (0.0, 1.0)}, canonical=lambda p: p["b"]), "canonical cannot be computed for {'a': "),
    (lambda: Space({"a": (0.0, 1.0)}, canonical=lambda p: {"a": 9}), "which is no configuration: a must be"),
    (lambda: Space({"a": (0.0, 1.0)}, canonical=lambda p: {"a": p["a"] / 2}), "canonical must always return the same"),
    (lambda: Space({"a": (0.0, 1.0)}, canonical=lambda p: random.random()), "canonical must always return the same"),
    (lambda: Described(["w", "e"]), "Described takes a dict from choices to numbers"),
    (lambda: Described({"w": [1.0], "e": [1.0, 2.0]}), "all choices of Described must have as many numbers: 'w' has 1"),
    (lambda: Described({"w": [1.0], "e": [math.nan]}), "the descriptors of 'e' must be a finite number, not nan"),
    (lambda: Space({"p": Permutation(["a", "b"]), "p[0]": (0, 5)}), "is stored as 'p[0]', which is another parameter"),
    (
        lambda: Space({"p": Permutation(["a", "b"]), "q": (0, 5)}, conditions={"q": Condition("p", (1,))}),
        "a parameter with structure decides about no others",
    ),
    (lambda: Space({"a": (0.0, 1.0)}, instead_of=["a"]), "instead_of needs features, which the model sees"),
    (lambda: Space({"a": [0, 1]}, features=len, instead_of=["b"]), "instead_of names 'b'; the parameters are ['a']"),
    (lambda: Space({"a": [0, 1]}, features=len, instead_of="a"), "instead_of must be a list of names of parameters"),
    (lambda: Space({"a": [0, 1]}, features=lambda _: []), "features must return at least one number"),
    (lambda: Space({"a": (0.0, 1.0)}, features=3), "features must be a function that takes a configuration"),
    (lambda: Space({"a": (0.0, 1.0)}, features=lambda _: ["x"]), "features must return finite numbers, not 'x'"),
    (lambda: Space({"a": (0.0, 1.0)}, features=lambda p: p["b"]), "features cannot be computed for {'a': "),
    (lambda: of_plain({"kind": "permutations"}), "a parameter with structure must have a kind, one of"),
    (
        lambda: of_plain({"kind": "graph", "operations": ["a", "b"]}),
        "a graph needs nodes and operations, not",
    ),
]

WRONG_VALUES: list[tuple[str, Any, str]] = [
    ("order", ["a", "b"], "order must be a list of ['a', 'b', 'c'] in any order, not ['a', 'b']"),
    ("order", "abc", "order must be a list of ['a', 'b', 'c'] in any order, not 'abc'"),
    ("inputs", [], "inputs must be a list of 1 to 2 of ['a', 'b', 'c'], each at most once, not []"),
    ("inputs", ["a", "a"], "inputs must be a list of 1 to 2 of"),
    ("inputs", ["d"], "inputs must be a list of 1 to 2 of"),
    ("recipe", {"x": 0.5, "y": 0.2}, "that add up to 1, not to 0.7"),
    ("recipe", {"x": 0.5, "y": 0.2, "z": 0.3}, "of which at most 2 are not 0"),
    ("recipe", {"x": 1.5, "y": -0.5}, "each from 0 to 1, not"),
    ("recipe", {"w": 1.0}, "recipe must be a dict of shares of ['x', 'y', 'z']"),
    (
        "cell",
        ["conv", "pool", "none"],
        "cell must be a graph with 3 of the operations ['none', 'conv'], one for each edge",
    ),
    ("cell", 3, "cell must be a graph, made by the of() of its lazybo.Graph, not 3"),
    ("tree", {"operations": ["a", "b"], "edges": [0, 2]}, "edges are the node before each of the 2 inner nodes"),
    ("net", {"operations": ["a", "b"], "edges": [(1, 0)]}, "edges are at most 3 pairs (i, j) with i < j < 4"),
    ("solvent", "ethanol", "solvent must be one of ['w', 'e'], not 'ethanol'"),
    ("solvent", ["w"], "solvent must be one of ['w', 'e'], not ['w']"),
]


@pytest.mark.parametrize(("make", "message"), WRONG_DEFINITIONS, ids=[message for _, message in WRONG_DEFINITIONS])
def test_a_wrong_definition_is_one_clear_error(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


@pytest.mark.parametrize(("name", "value", "message"), WRONG_VALUES, ids=[f"{n}={v}" for n, v, _ in WRONG_VALUES])
def test_a_wrong_value_is_one_clear_error(name: str, value: Any, message: str) -> None:
    SPACE.plain(RIGHT)
    with pytest.raises(ValueError, match=re.escape(message)):
        SPACE.plain({**RIGHT, name: value})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Permutation(items=["a", "b"], length=1),
            "Permutation() has no argument length=; a value has all items",
        ),  # type: ignore[call-arg]
        (lambda: Subset(["a", "b"], size=1), "Subset() has no argument size=; use at_least= and at_most="),  # type: ignore[call-arg]
        (lambda: Mixture(["a", "b"], at_mots=1), "Mixture() has no argument at_mots=; did you mean at_most=?"),  # type: ignore[call-arg]
        (lambda: Graph(nodes=3, ops=["a", "b"]), "Graph() has no argument ops=; use operations="),  # type: ignore[call-arg]
        (lambda: Described({"a": [1]}, units=[1]), "Described() has no argument units=; it has choices"),  # type: ignore[call-arg]
    ],
)
def test_an_unknown_argument_is_refused_with_what_to_use_instead(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        make()
