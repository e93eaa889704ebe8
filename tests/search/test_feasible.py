"""Known constraints: what is not feasible is never suggested."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from lazybo import Condition, Space
from lazybo.search.acquisition import log_expected_improvement
from lazybo.search.optimizer import Optimizer
from lazybo.space import FeasibleSet

MIXED: dict[str, Any] = {
    "lr": FloatDistribution(1e-5, 1e-1, log=True),
    "layers": IntDistribution(1, 9),
    "width": IntDistribution(16, 512, log=True),
    "dropout": FloatDistribution(0.0, 0.5, step=0.05),
    "optimiser": CategoricalDistribution(["sgd", "adam"]),
    "momentum": FloatDistribution(0.0, 1.0),
    "fixed": IntDistribution(7, 7),
}
CONDITIONS = {"momentum": Condition("optimiser", ("sgd",))}


def cube(dim: int) -> dict[str, Any]:
    return {f"x{j}": (0.0, 1.0) for j in range(dim)}


def run(optimizer: Optimizer, objective, steps: int, at_once: int = 1) -> list[dict[str, Any]]:
    asked = []
    for _ in range(steps):
        for suggestion in optimizer.ask(at_once):
            asked.append(suggestion.params)
            optimizer.tell(suggestion, objective(suggestion.params))
    return asked


def total(params: dict[str, Any]) -> float:
    return float(sum(value for value in params.values() if not isinstance(value, str)))


# --------------------------------------------------------------------- laws


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_many_points_are_decoded_as_one_is(seed: int) -> None:
    space = Space(
        {**MIXED, "far": FloatDistribution(-1e308, 1e308), "tiny": FloatDistribution(1e-300, 1e300, log=True)},
        conditions=CONDITIONS,
    )
    points = space.points.sample(np.random.default_rng(seed), 20)
    points[0] = np.where(np.isnan(points[0]) | ~space.points.numeric, points[0], 0.0)
    points[1] = np.where(np.isnan(points[1]) | ~space.points.numeric, points[1], 1.0)
    one_by_one = [space.points.decode(x) for x in points]
    together = space.points.decode_all(points)
    assert [repr(params) for params in together] == [repr(params) for params in one_by_one]


@given(st.integers(0, 10_000), st.integers(1, 6), st.floats(0.005, 0.6), st.integers(1, 3))
@settings(max_examples=6)
def test_linear_constraints_always_hold(seed: int, dim: int, share: float, at_once: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal(dim)
    bound = float(np.quantile(rng.random((4096, dim)) @ weights, share))

    def feasible(params: dict[str, Any]) -> bool:
        return math.fsum(w * x for w, x in zip(weights, params.values(), strict=True)) <= bound

    center = rng.random(dim)
    optimizer = Optimizer(Space(cube(dim), feasible=feasible), seed=seed)
    asked = run(
        optimizer, lambda params: float(((np.array([*params.values()]) - center) ** 2).sum()), 9, at_once=at_once
    )
    assert all(map(feasible, asked))
    assert all(feasible(params) for params, _ in optimizer.model.maxima())


@given(st.integers(0, 10_000), st.floats(0.02, 0.5))
@settings(max_examples=4)
def test_constraints_of_mixed_and_conditional_parameters_always_hold(seed: int, share: float) -> None:
    space, rng = Space(MIXED, conditions=CONDITIONS), np.random.default_rng(seed)
    weights = rng.standard_normal(5)

    def score(params: dict[str, Any]) -> float:
        numbers = (math.log10(params["lr"]), params["layers"], math.log2(params["width"]), 10 * params["dropout"])
        bonus = 3.0 * params["momentum"] if params["optimiser"] == "sgd" else 1.0
        return float(np.dot(weights, (*numbers, bonus)))

    bound = float(
        np.quantile([score(params) for params in space.points.decode_all(space.points.sample(rng, 2000))], share)
    )
    optimizer = Optimizer(
        Space(MIXED, conditions=CONDITIONS, feasible=lambda params: score(params) <= bound), seed=seed
    )
    asked = run(optimizer, lambda params: params["layers"] + params["lr"] - params["dropout"], 12)
    assert all(score(params) <= bound for params in asked)
    assert {"fixed"} <= set.intersection(*map(set, asked))


@pytest.mark.parametrize("dim", [2, 10])
def test_a_thousandth_of_the_volume_is_enough(dim: int) -> None:
    radius = {2: 0.0179, 10: 0.455}[dim]  # of a ball around (0.6, …): πr² and π⁵r¹⁰/120

    def feasible(params: dict[str, Any]) -> bool:
        return math.dist([*params.values()], [0.6] * dim) <= radius

    optimizer = Optimizer(Space(cube(dim), feasible=feasible), seed=3)
    asked = run(optimizer, total, 25)
    assert all(map(feasible, asked))
    lowest = dim * 0.6 - radius * math.sqrt(dim)
    assert optimizer.best.value - lowest < 0.02 * radius * math.sqrt(dim)


@pytest.mark.parametrize("space", [cube(3), MIXED])
def test_a_constraint_that_always_holds_changes_nothing(space: dict[str, Any]) -> None:
    free, constrained = (
        Optimizer(Space(space, feasible=feasible), seed=5) for feasible in (None, lambda params: len(params) > 0)
    )
    assert run(free, total, 20) == run(constrained, total, 20)


# --------------------------------------------------------------- the border


def test_steps_that_leave_the_feasible_set_end_at_its_border(rng: np.random.Generator) -> None:
    space = Space({f"x{j}": FloatDistribution(0.0, 1.0) for j in range(3)})
    feasible = FeasibleSet(space, lambda params: sum(params.values()) <= 1.2).contains
    start, end = 0.4 * rng.random((200, 3)), rng.random((200, 3))
    there = feasible.shortened(start, end)
    inside = end.sum(axis=1) <= 1.2
    assert inside.any()
    assert not inside.all()
    np.testing.assert_array_equal(there[inside], end[inside])
    assert (there.sum(axis=1) <= 1.2).all()
    part = ((there - start) / (end - start))[~inside]
    np.testing.assert_allclose(part - part[:, :1], 0.0, atol=1e-9)
    exact = ((1.2 - start.sum(axis=1)) / (end - start).sum(axis=1))[~inside]
    assert (exact - part[:, 0] < 1e-2).all()


@pytest.mark.parametrize("dim", [2, 5])
def test_the_maximum_is_better_than_all_of_many_feasible_points(dim: int) -> None:
    optimizer = Optimizer(Space(cube(dim), feasible=lambda params: sum(params.values()) <= 0.4 * dim), seed=2)
    run(optimizer, lambda params: sum((value - 0.9) ** 2 for value in params.values()), 15)
    found = optimizer.model.maxima()
    process, _ = optimizer.model.surrogate()
    points = np.random.default_rng(0).random((40_000, dim))
    points = points[points.sum(axis=1) <= 0.4 * dim]
    mean, variance = process.posterior(points)
    best = process.posterior(process.X).mean.min()
    values = log_expected_improvement(mean, np.sqrt(variance), float(best)).value
    assert found[0][1] > values.max() - 0.05


def test_the_optimum_on_the_border_is_found() -> None:
    optimizer = Optimizer(Space(cube(4), feasible=lambda params: sum(v * v for v in params.values()) <= 1.0), seed=0)
    run(optimizer, lambda params: -sum(params.values()), 30)
    assert optimizer.best.value < -2.0 + 0.01


# --------------------------------------------------------- points of the set


def test_a_set_of_a_millionth_of_the_volume_is_found_at_a_corner() -> None:
    """The simplex in 10-D has 1/10! = 3e-7 of the volume; the mean of each coordinate is 1/11."""
    space = Space({f"x{j}": FloatDistribution(0.0, 1.0) for j in range(10)})
    points = FeasibleSet(space, lambda params: sum(params.values()) <= 1.0).spread(0, np.random.default_rng(1), 512)
    assert (points.sum(axis=1) <= 1.0).all()
    np.testing.assert_allclose(points.mean(axis=0), 1 / 11, atol=0.02)


def test_all_feasible_points_of_a_finite_space_are_suggested_once() -> None:
    optimizer = Optimizer(
        Space({"a": (1, 9), "b": (1, 9)}, feasible=lambda params: params["a"] + params["b"] == 10), seed=0
    )
    asked = run(optimizer, lambda params: params["a"], 9)
    assert sorted(params["a"] for params in asked) == list(range(1, 10))
    again = run(optimizer, lambda params: params["a"], 4)
    assert all(params["a"] + params["b"] == 10 for params in again)


def test_a_few_feasible_points_of_a_large_space_are_not_left() -> None:
    optimizer = Optimizer(
        Space({"a": (1, 1000), "b": (1, 1000)}, feasible=lambda params: params["a"] <= 3 and params["b"] <= 2), seed=0
    )
    asked = run(optimizer, lambda params: params["a"], 9)
    assert {tuple(params.values()) for params in asked} == {(a, b) for a in (1, 2, 3) for b in (1, 2)}


def test_startup_points_go_on_after_the_sequence_has_ended() -> None:
    optimizer = Optimizer(Space(cube(2), feasible=lambda params: params["x0"] < 0.01), seed=0, n_startup=3)
    for number in (0, 1_000, 100_000):
        assert optimizer.planner.propose(number)[0]["x0"] < 0.01


def test_a_space_without_a_choice_is_checked_too() -> None:
    assert Optimizer(Space({"a": [1]}, feasible=lambda params: params["a"] == 1)).ask().params == {"a": 1}
    with pytest.raises(ValueError, match=r"the only configuration of this space, \{'a': 1\}, is not feasible"):
        Optimizer(Space({"a": [1]}, feasible=lambda params: params["a"] == 2))


# ------------------------------------------------------------ what is observed


def test_results_that_are_not_feasible_are_facts_but_not_recommended() -> None:
    optimizer = Optimizer(Space(cube(2), feasible=lambda params: params["x0"] >= 0.5), seed=0)
    optimizer.observe({"x0": 0.1, "x1": 0.1}, 0.2)
    assert optimizer.recommend().params["x0"] == 0.1
    asked = run(optimizer, lambda params: params["x0"] + params["x1"], 15)
    assert all(params["x0"] >= 0.5 for params in asked)
    assert optimizer.best.value == 0.2
    assert optimizer.recommend().params["x0"] >= 0.5
    assert min(params["x0"] + params["x1"] for params in asked) < 0.51


def test_missing_parameters_are_completed_to_a_feasible_configuration() -> None:
    optimizer = Optimizer(Space(cube(3), feasible=lambda params: params["x0"] + params["x1"] <= 1.0), seed=0)
    for number in range(5):
        params = optimizer.planner.complete({"x0": 0.95}, number)
        assert params["x0"] == 0.95
        assert params["x1"] <= 0.05 + 1e-12
    with pytest.raises(ValueError, match=r"'x1': 0.5.* is not feasible"):
        optimizer.planner.complete({"x0": 0.95, "x1": 0.5, "x2": 0.0}, 0)
    with pytest.raises(ValueError, match=r"no feasible values were found for the parameters other than .*'x1': 0.5"):
        optimizer.planner.complete({"x0": 0.95, "x1": 0.5}, 0)


def test_a_space_of_constants_is_completed() -> None:
    space = Space({"a": [1], "b": (2, 2)}, feasible=lambda params: params["a"] < params["b"])
    assert Optimizer(space).planner.complete({"a": 1}, 0) == {"a": 1, "b": 2}


# -------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("feasible", "message"),
    [
        (3, "feasible must be a function .*, not 3"),
        (lambda params: params["c"] < 1, r"feasible cannot be evaluated for \{'x0': .*\}: KeyError: 'c'"),
        (lambda params: 1, r"must return True or False, but returned 1 \(int\) for \{'x0'"),
        (lambda params: None, r"must return True or False, but returned None \(NoneType\) for \{'x0'"),
        (lambda params: False, "none of 81,920 points that were tried is feasible. Loosen the constraint"),
        (lambda params: next(iter(())), "feasible cannot be evaluated"),
    ],
)
def test_a_predicate_that_cannot_be_used_is_one_clear_error(feasible: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Optimizer(Space(cube(2), feasible=feasible), seed=0)


def test_a_finite_space_without_a_feasible_point_is_counted() -> None:
    with pytest.raises(ValueError, match="none of the 12 configurations is feasible"):
        Optimizer(Space({"a": (1, 4), "b": ["x", "y", "z"]}, feasible=lambda params: params["a"] > 4))


def test_numpy_bools_are_bools_and_a_predicate_may_change_its_dict() -> None:
    def feasible(params: dict[str, Any]) -> np.bool_:
        return np.bool_(params.pop("x0") < 0.5)

    asked = run(Optimizer(Space(cube(2), feasible=feasible), seed=0), total, 8)  # type: ignore[arg-type]
    assert all(params["x0"] < 0.5 for params in asked)
