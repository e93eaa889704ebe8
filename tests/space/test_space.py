import json
import math
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    DiscreteUniformDistribution,
    FloatDistribution,
    IntDistribution,
    IntUniformDistribution,
    UniformDistribution,
)

from lazybo import Mixture
from lazybo.space.distributions import contains
from lazybo.space.space import Condition, Space
from tests.spaces import distributions, spaces

SVM_OR_FOREST = {
    "model": CategoricalDistribution(["svm", "forest"]),
    "C": FloatDistribution(1e-3, 1e3, log=True),
    "kernel": CategoricalDistribution(["rbf", "poly"]),
    "degree": IntDistribution(2, 5),
    "trees": IntDistribution(10, 1000, log=True),
}
CONDITIONS = {
    "C": Condition("model", ("svm",)),
    "kernel": Condition("model", ("svm",)),
    "degree": Condition("kernel", ("poly",)),
    "trees": Condition("model", ("forest",)),
}


@st.composite
def a_value(draw: st.DrawFn, distribution: BaseDistribution) -> object:
    if isinstance(distribution, CategoricalDistribution):
        return draw(st.sampled_from(distribution.choices))
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    if distribution.step is None:
        return draw(st.floats(distribution.low, distribution.high))
    count = round((distribution.high - distribution.low) / distribution.step)
    value = distribution.low + draw(st.integers(0, count)) * distribution.step
    return value if isinstance(distribution, IntDistribution) else min(value, distribution.high)


@given(st.data(), st.lists(distributions(), min_size=1, max_size=5))
def test_decode_of_encode_is_the_same_configuration(data: st.DataObject, parts: list[BaseDistribution]) -> None:
    space = Space({f"p{i}": part for i, part in enumerate(parts)})
    params = {name: data.draw(a_value(part)) for name, part in space.distributions.items()}
    space.check(params)
    x = space.points.encode(params)
    assert ((x >= 0) & ((x <= 1) | ~space.points.numeric)).all()
    again = space.points.decode(x)
    assert list(again) == list(params)
    for name, value in params.items():
        assert type(again[name]) is type(value) or isinstance(value, int | float)
        if isinstance(value, float):
            assert again[name] == pytest.approx(value, rel=1e-9, abs=1e-9)
        else:
            assert again[name] == value
    space.check(again)


@given(st.integers(0, 1000), st.lists(distributions(), min_size=1, max_size=5))
def test_points_are_what_will_really_be_evaluated(seed: int, parts: list[BaseDistribution]) -> None:
    """Sampled, snapped and neighbouring points decode to values whose points they are, discrete ones exactly."""
    space = Space({f"p{i}": part for i, part in enumerate(parts)})
    assume(space.points.dim)
    rng = np.random.default_rng(seed)
    relaxed = np.where(~space.points.numeric, space.points.sample(rng, 6), rng.random((6, space.points.dim)))
    for points in (
        space.points.sample(rng, 6),
        space.points.snap(relaxed),
        space.points.neighbours(space.points.sample(rng, 3), space.points.sample(rng, 2), rng)[0],
    ):
        for x in points:
            params = space.points.decode(x)
            space.check(params)
            again = space.points.encode(params)
            np.testing.assert_allclose(again, x, atol=1e-9)
            discrete = np.isfinite(space.points.levels)
            np.testing.assert_array_equal(again[discrete], x[discrete])


@given(st.integers(0, 1000), st.lists(distributions(), min_size=1, max_size=5))
def test_all_moves_at_once_are_those_of_each_parameter_of_each_point(seed: int, parts: list[BaseDistribution]) -> None:
    points = Space({f"p{i}": part for i, part in enumerate(parts)}).points
    assume(np.where(np.isinf(points.levels), 0, points.levels).max(initial=0) <= 1000)
    rng = np.random.default_rng(seed)
    x = points.sample(rng, 3)
    expected = []
    for i, point in enumerate(x):
        for j in np.flatnonzero(np.isfinite(points.levels)):
            listed = points.axes[points.names[j]].listed()[:, 0]
            level = int(np.flatnonzero(listed == point[j])[0])
            near = [level - 1, level + 1] if points.numeric[j] else [k for k in range(len(listed)) if k != level]
            expected += [
                (i, *np.where(np.arange(points.dim) == j, listed[k], point)) for k in near if 0 <= k < len(listed)
            ]
    moved, row = points.neighbours(x, x, rng)
    assert [(i, *move) for i, move in zip(row.tolist(), moved.tolist(), strict=True)] == expected


def test_logarithms_and_steps_are_where_the_distribution_has_them() -> None:
    space = Space({"lr": FloatDistribution(1e-4, 1.0, log=True), "n": IntDistribution(0, 10, step=5)})
    assert space.points.encode({"lr": 1e-2, "n": 5}) == pytest.approx([0.5, 0.5])
    assert space.points.decode(np.array([0.75, 0.9])) == {"lr": pytest.approx(1e-1), "n": 10}
    assert math.isinf(space.size)


def test_conditional_parameters_are_absent_when_inactive(rng: np.random.Generator) -> None:
    space = Space(SVM_OR_FOREST, conditions=CONDITIONS)
    seen = set()
    for x in space.points.sample(rng, 200):
        params = space.points.decode(x)
        space.check(params)
        np.testing.assert_allclose(space.points.encode(params), x, atol=1e-12)
        seen.add(tuple(params))
    assert seen == {("model", "C", "kernel"), ("model", "C", "kernel", "degree"), ("model", "trees")}


def test_a_changed_parent_activates_its_children(rng: np.random.Generator) -> None:
    space = Space(SVM_OR_FOREST, conditions=CONDITIONS)
    x = space.points.encode({"model": "forest", "trees": 100})
    moved = [space.points.decode(move) for move in space.points.neighbours(x[None], x[None], rng)[0]]
    assert [params["model"] for params in moved] == ["svm", "forest", "forest"]
    assert set(moved[0]) >= {"model", "C", "kernel"}
    assert "trees" not in moved[0]
    assert {params["trees"] for params in moved[1:]} == {99, 101}


def test_a_finite_space_is_listed_without_repetition() -> None:
    space = Space(
        {"a": IntDistribution(0, 2), "b": CategoricalDistribution("xy"), "c": IntDistribution(1, 2)},
        conditions={"c": Condition("b", ("y",))},
    )
    listed = [tuple(space.points.decode(x).items()) for x in space.points.listed()]
    assert len(listed) == len(set(listed)) == 3 * (1 + 2)
    assert space.size == 9


def test_a_condition_on_a_single_valued_parent_holds_always_or_never(rng: np.random.Generator) -> None:
    space = Space(
        {"on": CategoricalDistribution(["yes"]), "x": FloatDistribution(0, 1)},
        conditions={"x": Condition("on", ("yes",))},
    )
    assert set(space.points.decode(space.points.sample(rng, 1)[0])) == {"on", "x"}


def test_a_condition_may_have_values_of_results_outside_the_range(rng: np.random.Generator) -> None:
    """Steps of 2 have no place for 2: it must not be taken for its neighbour."""
    space = Space(
        {"layers": IntDistribution(1, 5, step=2), "y": FloatDistribution(0, 1), "z": FloatDistribution(0, 1)},
        conditions={"y": Condition("layers", (2, 5, 9), outside=True), "z": Condition("layers", (7,), outside=True)},
    )
    for x in space.points.sample(rng, 50):
        params = space.points.decode(x)
        assert set(params) == ({"layers", "y"} if params["layers"] == 5 else {"layers"})
        assert np.array_equal(space.points.encode(params), x, equal_nan=True)
    assert not np.isnan(space.points.encode(space.plain({"layers": 7, "z": 0.5}, outside=True))).all()
    with pytest.raises(ValueError, match="'y' is only active while 'layers'"):
        space.plain({"layers": 7, "y": 0.5, "z": 0.5}, outside=True)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"model": "svm", "C": 1.0}, "'kernel' is missing"),
        ({"model": "svm", "C": 1.0, "kernel": "rbf", "gamma": 1}, "unknown parameter 'gamma'"),
        ({"model": "tree"}, "model must be one of .*, not 'tree'"),
        ({"model": "forest", "trees": 5}, "trees must be a whole number from .*, not 5"),
        ({"model": "forest", "trees": "many"}, "trees must be a whole number from .*, not 'many'"),
        ({"model": "forest", "trees": 50, "C": 1.0}, "'C' is only active while 'model'"),
        (["forest"], "must be a mapping"),
    ],
)
def test_what_is_not_a_configuration_is_refused(params: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Space(SVM_OR_FOREST, conditions=CONDITIONS).check(params)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("space", "conditions", "message"),
    [
        ({}, {}, "empty"),
        ({"x": {0, 1}}, {}, "must be a list of choices"),
        ({3: IntDistribution(0, 1)}, {}, "must be strings"),
        ({"x": IntDistribution(0, 1)}, {"x": Condition("y", (1,))}, "there is no parameter 'y'"),
        (
            {"x": IntDistribution(0, 1), "y": IntDistribution(0, 1)},
            {"x": Condition("y", (7,))},
            "has y=7, but y must be a whole number from 0 to 1",
        ),
        (
            {"x": IntDistribution(0, 1), "y": IntDistribution(0, 1)},
            {"x": Condition("y", (1,)), "y": Condition("x", (1,))},
            "depend on each other",
        ),
    ],
)
def test_what_is_not_a_space_is_refused(space: dict, conditions: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Space(space, conditions=conditions)


# ------------------------------------------------------------------ extremes

WIDE = [
    FloatDistribution(-1e308, 1e308),
    FloatDistribution(-1.7e308, 1.7e308),
    FloatDistribution(1e-300, 1e300, log=True),
    FloatDistribution(5e-324, 1.7e308, log=True),
    FloatDistribution(0.0, 1e-320),
    FloatDistribution(-8e307, 8e307, step=1e306),
    FloatDistribution(-1e6, 1e6, step=1e-6),
    FloatDistribution(0.1, 2e6, step=1e-3),
    FloatDistribution(1e-6, 0.3, log=True),
    IntDistribution(0, 2**60 - 1),
    IntDistribution(-(2**60), 2**60 - 1),
    IntDistribution(1, 2**60 - 1, log=True),
    IntDistribution(0, 10**16, step=1000),
]


@pytest.mark.parametrize("distribution", WIDE, ids=str)
@given(u=st.floats(0.0, 1.0))
def test_a_decoded_value_is_one_that_optuna_knows(distribution: BaseDistribution, u: float) -> None:
    space = Space({"p": distribution})
    for place in (u, 0.0, 1.0):
        value = space.points.decode(space.points.snap(np.array([[place]]))[0])["p"]
        internal = distribution.to_internal_repr(value)
        assert contains(distribution, value)
        assert distribution.to_external_repr(internal) == value
        space.check({"p": value})
        assert 0.0 <= space.points.encode({"p": value})[0] <= 1.0


@pytest.mark.parametrize("distribution", WIDE, ids=str)
def test_the_ends_of_a_range_are_themselves(distribution: BaseDistribution) -> None:
    low, high = distribution.low, distribution.high  # type: ignore[attr-defined]
    space = Space({"p": distribution})
    assert space.points.decode(np.array([0.0]))["p"] == low
    assert space.points.decode(np.array([1.0]))["p"] == pytest.approx(high, rel=1e-9)
    if contains(distribution, high):
        assert space.points.decode(np.array([1.0]))["p"] == high
        assert space.points.encode({"p": high})[0] == 1.0
    assert space.points.encode({"p": low})[0] == 0.0


MAGNITUDES = (5e-324, 1e-310, 1e-200, 1e-10, 1.0, 1e10, 1e100, 1e200, 1e308, sys.float_info.max)
EXTREME = st.sampled_from([0.0, *MAGNITUDES, *(-each for each in MAGNITUDES)]) | st.floats(
    allow_nan=False, allow_infinity=False
)


@pytest.mark.parametrize("distribution", [*WIDE, FloatDistribution(0.0, 1.0), IntDistribution(0, 1)], ids=str)
@given(values=st.lists(EXTREME, min_size=2, max_size=2))
def test_every_number_has_a_place_in_order_that_can_be_squared(
    distribution: FloatDistribution | IntDistribution, values: list[float]
) -> None:
    """Results outside of the range may be anywhere."""
    space = Space({"p": distribution})
    least = 0.5 if distribution.log and isinstance(distribution, IntDistribution) else 5e-324
    values = sorted(max(value, least) if distribution.log else value for value in values)
    points = [space.points.encode(space.plain({"p": value}, outside=True))[0] for value in values]
    assert points[0] <= points[1]
    assert max(map(abs, points)) < 1e12
    for value, point in zip(values, points, strict=True):
        assert distribution.low < value or point <= 0.0
        assert distribution.high > value or point >= 1.0 - 1e-9


@pytest.mark.parametrize("log", [False, True])
def test_a_range_between_two_neighbouring_doubles_has_two_ends(log: bool) -> None:
    low, high = 1e300, math.nextafter(1e300, math.inf)
    space = Space({"p": FloatDistribution(low, high, log=log)})
    assert [space.points.encode({"p": value})[0] for value in (low, high)] == [0.0, 1.0]
    assert space.points.decode(np.array([1.0])) == {"p": high}


def test_whole_numbers_beyond_64_bits_have_places() -> None:
    space = Space({"p": IntDistribution(1, 10**30, log=True), "q": IntDistribution(0, 10**300)})
    assert space.points.encode({"p": 10**15, "q": 10**299}) == pytest.approx([0.5, 0.1])
    assert math.isinf(Space({name: IntDistribution(0, 10**300) for name in "ab"}).size)


@pytest.mark.parametrize("value", ["0.2", b"1", True, np.bool_(True), None, 1j, [1], 10**400, math.inf, math.nan])
@pytest.mark.parametrize("distribution", [FloatDistribution(0.0, 5.0), IntDistribution(0, 5)], ids=["float", "int"])
@pytest.mark.parametrize("outside", [False, True])
def test_what_is_no_number_is_refused(distribution: BaseDistribution, value: object, outside: bool) -> None:
    with pytest.raises(ValueError, match="must be "):
        Space({"a": distribution}).check({"a": value}, outside=outside)


def test_configurations_become_plain_python_values() -> None:
    space = Space({"x": FloatDistribution(0, 9), "n": IntDistribution(0, 9), "c": CategoricalDistribution([1, "b"])})
    plain = space.plain({"x": np.float32(0.5), "n": np.int64(3), "c": np.int64(1)})
    assert plain == {"x": 0.5, "n": 3, "c": 1}
    assert [type(value) for value in plain.values()] == [float, int, int]
    assert json.loads(json.dumps(plain)) == plain


@pytest.mark.parametrize(("optional", "message"), [("x", "must be a list of names"), (["z"], "unknown parameter 'z'")])
def test_wrong_optional_parameters_are_refused(optional: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"optional .*{message}"):
        Space({"x": IntDistribution(0, 1)}, optional=optional)  # type: ignore[arg-type]


# ------------------------------------------------------------ what users give


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({"y": ("x", 1)}, r"the condition of 'y' must be lazybo.Condition\(parent, values\)"),
        (5, "conditions must be a dict"),
        (["x"], "conditions must be a dict"),
        ({"z": Condition("x", (1,))}, "conditions: .* no parameter 'z'; this space has"),
        ({"y": Condition("z", (1,))}, "conditions: .* no parameter 'z'; this space has"),
        ({"y": Condition(["x"], (1,))}, "conditions: .*: there is no parameter"),  # type: ignore[arg-type]
        ({"y": Condition("x", 1)}, "conditions: .*'y' must have a list of values, not 1"),  # type: ignore[arg-type]
        ({"y": Condition("x", "a")}, "conditions: .*'y' must have a list of values, not 'a'"),  # type: ignore[arg-type]
        ({"y": Condition("x", {1})}, "conditions: .*'y' must have a list of values"),  # type: ignore[arg-type]
        ({"y": Condition("x", ())}, "conditions: .*'y' has no values"),
    ],
)
def test_wrong_conditions_are_refused(conditions: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Space({"x": (-5.0, 5.0), "y": (-5.0, 5.0)}, conditions=conditions)


def test_a_dict_is_a_space_and_a_space_stays_what_it_is() -> None:
    written = {"x": (0.0, 1.0), "kind": ["a", "b"], "n": IntDistribution(1, 9)}
    space = Space(written)
    assert Space.of(space) is space
    assert Space.of(written) == space
    assert space.distributions == {
        "x": FloatDistribution(0.0, 1.0),
        "kind": CategoricalDistribution(["a", "b"]),
        "n": IntDistribution(1, 9),
    }
    assert (space.conditions, space.optional, space.feasible) == ({}, frozenset(), None)


def test_spaces_are_equal_if_all_that_is_known_about_them_is() -> None:
    def small(params: dict[str, Any]) -> bool:
        return bool(params["x"] < 0.5)

    def given(**known: Any) -> Space:
        return Space({"x": (0.0, 1.0), "kind": ["a", "b"], "n": (1, 9)}, **known)

    known: dict[str, Any] = {
        "conditions": {"n": Condition("kind", ["a"])},  # type: ignore[arg-type]
        "feasible": small,
        "optional": ["n"],
    }
    assert given(**known) == given(**known) != given()
    for name in known:
        assert given(**{key: value for key, value in known.items() if key != name}) != given(**known)
    narrow = given(**known).box(np.array([0.5, 0.0, 0.5]), 0.5)
    assert (narrow.conditions, narrow.feasible, narrow.optional) == (
        {"n": Condition("kind", ("a",))},
        small,
        frozenset({"n"}),
    )


def test_only_active_and_optional_parameters_may_be_missing() -> None:
    parameters = {"x": (0.0, 1.0), "kind": ["a", "b"], "n": (1, 9)}
    conditional = Space(parameters, conditions={"n": Condition("kind", ("a",))})
    assert conditional.has({"x": 0.5, "kind": "b"})
    assert not conditional.has({"x": 0.5, "kind": "a"})
    assert not conditional.has({"x": 0.5, "kind": "b", "n": 1})
    optional = Space(parameters, optional=["n"])
    assert optional.has({"x": 0.5, "kind": "a"})
    assert optional.has({"x": 0.5, "kind": "a", "n": 1})
    assert not optional.has({"kind": "a", "n": 1})


def test_a_predicate_that_is_no_function_is_refused() -> None:
    with pytest.raises(ValueError, match=r"feasible must be a function that takes a configuration .*, not 3"):
        Space({"x": (0.0, 1.0)}, feasible=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "hint"), [("feasable", "did you mean feasible="), ("x", "it has parameters, ")])
def test_an_unknown_argument_of_a_space_is_an_error_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(TypeError, match=rf"Space\(\) has no argument {name}=; {hint}"):
        Space({"x": (0.0, 1.0)}, **{name: None})


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_older_kinds_of_distributions_are_read_like_the_newer_ones() -> None:
    older = [UniformDistribution(0.0, 1.0), IntUniformDistribution(1, 9), DiscreteUniformDistribution(0.0, 1.0, 0.25)]
    newer = [FloatDistribution(0.0, 1.0), IntDistribution(1, 9), FloatDistribution(0.0, 1.0, step=0.25)]
    one, other = (Space({f"x{i}": each for i, each in enumerate(kinds)}) for kinds in (older, newer))
    points = one.points.sample(np.random.default_rng(0), 10)
    np.testing.assert_array_equal(points, other.points.sample(np.random.default_rng(0), 10))
    assert one.points.decode_all(points) == other.points.decode_all(points)
    middle = np.full(3, 0.5)
    boxes = one.box(middle, 0.5), other.box(middle, 0.5)
    assert boxes[0].points.decode_all(points) == boxes[1].points.decode_all(points)


# ------------------------------------------------------------ laws of all spaces


def points_of(space: Space, seed: int, count: int = 8) -> np.ndarray:
    """Random points, some of which have moved."""
    rng = np.random.default_rng(seed)
    x = space.points.sample(rng, count)
    if not space.points.dim:
        return x
    moved = space.points.repair(
        space.points.snap(space.points.perturbed(x[: count // 2], np.ones(space.points.dim), rng)), rng
    )
    return np.vstack((moved, x[count // 2 :]))


@given(spaces(), st.integers(0, 99))
def test_configurations_are_written_read_and_placed(space: Space, seed: int) -> None:
    """Also at once; with canonical forms, the point is that of the configuration that stands for it."""
    for x, params in zip(points := points_of(space, seed), space.points.decode_all(points), strict=True):
        space.check(params)
        assert space.points.decode(x) == params
        values = space.values(params)
        assert space.values(space.plain(values)) == values
        again = space.points.encode(params)
        if space.canonical is None:
            np.testing.assert_allclose(again, x, atol=1e-9)
        np.testing.assert_allclose(space.points.encode(space.points.decode(again)), again, atol=1e-9)
        some = space.points.encode_some(params)
        assert np.isnan(some[space.points.dim - space.points.own :]).all()


@given(spaces(finite=True))
def test_small_spaces_are_listed_once_and_everything_drawn_is_listed(space: Space) -> None:
    listed = [*space.points.listed()]
    keys = {x.tobytes() for x in listed}
    assert len(keys) == len(listed)
    assert {x.tobytes() for x in points_of(space, 0, 40)} <= keys
    if not (space.conditions or space.canonical):
        assert space.size == len(listed)
    for x in listed:
        space.check(space.points.decode(x))


@given(spaces(functions=False), st.integers(0, 99))
def test_the_order_of_parameters_is_that_of_the_definition(space: Space, seed: int) -> None:
    (params,) = space.points.decode_all(points_of(space, seed, 2)[:1])
    assert [name for name in space.parameters if name in space.values(params)] == [*space.values(params)]
    assert [name for name in space.distributions if name in params] == [*params]


def test_a_mixture_that_was_read_can_be_written(rng: np.random.Generator) -> None:
    """Shares are rounded: none is above the total."""
    kind = Mixture([*"abcd"], total=100.0)
    for _ in range(300):
        stored = [0.0, 0.0, 0.0, float(rng.uniform(0, 100))]
        space = Space({"m": kind})
        params = space.plain({"m": kind.read(stored)})
        space.check(params)


def test_parents_of_conditions_are_not_narrowed() -> None:
    space = Space({"n": IntDistribution(1, 9), "x": FloatDistribution(0, 1)}, conditions={"x": Condition("n", (9,))})
    narrow = space.box(np.array([0.1, 0.5]), 0.2)
    assert narrow.distributions["n"] == IntDistribution(1, 9)
    assert narrow.distributions["x"] == FloatDistribution(0.4, 0.6)
