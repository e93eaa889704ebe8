"""Optimisers with several objectives and with measured constraints."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna._hypervolume import compute_hypervolume
from scipy.stats import norm

from lazybo.search.optimizer import Optimizer
from lazybo.search.results import State

SPACE = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


def two(params: dict[str, Any]) -> list[float]:
    return [params["x"] ** 2 + params["y"], (params["x"] - 1) ** 2 + params["y"]]


def disk(params: dict[str, Any]) -> float:
    """At most 0 within 0.3 of (0.6, 0.6)."""
    return (params["x"] - 0.6) ** 2 + (params["y"] - 0.6) ** 2 - 0.09


def run(optimizer: Optimizer, evaluate: Callable[[dict[str, Any]], tuple[Any, dict[str, Any]]], n: int) -> list[dict]:
    asked = []
    for _ in range(n):
        suggestion = optimizer.ask()
        value, constraints = evaluate(suggestion.params)
        optimizer.tell(suggestion, value, constraints=constraints)
        asked.append(suggestion.params)
    return asked


# ------------------------------------------------------------------ constraints


def test_a_constrained_optimum_is_found_and_only_feasible_observations_are_the_best() -> None:
    optimizer = Optimizer(SPACE, seed=0)
    asked = run(optimizer, lambda p: (p["x"] + p["y"], {"disk": disk(p)}), 40)
    optimum = 1.2 - 0.3 * math.sqrt(2)
    assert optimizer.best.value == pytest.approx(optimum, abs=2e-3)
    assert optimizer.best.constraints["disk"] <= 0
    assert optimizer.recommend().value == pytest.approx(optimum, abs=1e-2)
    assert min(p["x"] + p["y"] for p in asked if disk(p) > 0) < optimum, "infeasible points look better"
    assert all(each.constraints["disk"] <= 0 for each in optimizer.front)


def test_while_nothing_is_feasible_the_search_goes_towards_feasibility() -> None:
    # 0.8 % of the space is feasible, and the objective leads away from it.
    optimizer = Optimizer(SPACE, seed=1)
    run(optimizer, lambda p: (p["x"] + p["y"], {"c": disk(p) + 0.0875}), 30)
    assert optimizer.best.constraints["c"] <= 0


def test_nothing_feasible_is_a_clear_error() -> None:
    optimizer = Optimizer(SPACE, seed=0)
    run(optimizer, lambda p: (p["x"], {"a": 1.0, "b": -1.0}), 7)
    for look in (lambda: optimizer.best, optimizer.recommend):
        with pytest.raises(ValueError, match=r"no evaluation is feasible.*'a', 'b'"):
            look()
    assert optimizer.front == []


def test_a_constraint_that_was_not_measured_is_unknown() -> None:
    optimizer = Optimizer(SPACE, seed=0)
    optimizer.observe({"x": 0.1, "y": 0.1}, 1.0, constraints={"c": -1.0})
    optimizer.observe({"x": 0.2, "y": 0.1}, 0.5)
    optimizer.observe({"x": 0.3, "y": 0.1}, 0.4, constraints={"c": math.nan, "d": None})
    optimizer.observe({"x": 0.4, "y": 0.1}, None, constraints={"c": 2.0})
    optimizer.observe({"x": 0.5, "y": 0.1}, None)
    assert optimizer.best.value == 1.0, "the others have not shown that they are feasible"
    limits, _ = optimizer.model.limits()
    assert list(limits) == ["c"], "d was never measured"
    assert np.isnan(limits["c"].posterior.targets).tolist() == [False, True, True, False, True]


def test_an_infinite_violation_is_a_violation() -> None:
    optimizer = Optimizer(SPACE, seed=0, n_startup=2)
    for i, violation in enumerate([math.inf, -math.inf, 1.0, -1.0, 10**400]):
        optimizer.observe({"x": 0.2 * i, "y": 0.1}, float(i), constraints={"c": violation})
    assert [each.params["x"] for each in optimizer.front] == [0.2]
    optimizer.ask()


@pytest.mark.parametrize("constraints", [[1.0], {"c": "1"}, {3: 1.0}, {"": 1.0}, {" ": 1.0}])
def test_wrong_constraints_are_refused_and_change_nothing(constraints: Any) -> None:
    optimizer = Optimizer(SPACE, seed=0)
    suggestion = optimizer.ask()
    before = optimizer.state()
    with pytest.raises(ValueError, match="constraint"):
        optimizer.tell(suggestion, 1.0, constraints=constraints)
    assert optimizer.state() == before


def test_a_constraint_without_a_name_in_an_old_file_stays_readable() -> None:
    optimizer = Optimizer(SPACE, seed=0)
    for i in range(8):
        optimizer.tell(optimizer.ask(), float(i), constraints={"c": i - 4.0})
    state = optimizer.state()
    for row in state["rows"]:
        row["constraints"] = {"": row["constraints"]["c"]}
    state["model"]["constraints"] = {"": state["model"]["constraints"]["c"]}
    restored = Optimizer(SPACE, seed=0)
    restored.restore(state)
    assert restored.planner.n_feasible == optimizer.planner.n_feasible == 5
    assert restored.ask().params == optimizer.ask().params
    restored.correct(0, 2.0)
    with pytest.raises(ValueError, match="a constraint needs a name"):
        restored.correct(1, 2.0, constraints={"": 1.0})


def test_scaling_a_constraint_does_not_change_suggestions() -> None:
    found = []
    for unit in (1.0, 2.0**40):
        optimizer = Optimizer(SPACE, seed=3)
        found.append(run(optimizer, lambda p, unit=unit: (p["x"] + p["y"], {"c": unit * disk(p)}), 15))
    assert found[0] == found[1]


# ------------------------------------------------------------------- objectives


def test_two_objectives_fill_the_front() -> None:
    optimizer = Optimizer(SPACE, direction=["minimize", "minimize"], seed=0)
    run(optimizer, lambda p: (two(p), None), 35)
    values = np.array([best.values for best in optimizer.front])
    # The front is √f₀ + √f₁ = 1, which dominates 1 - 1/6 of the unit square.
    assert compute_hypervolume(values[(values < 1.0).all(axis=1)], np.ones(2)) > 0.8
    assert len(values) > 15


def test_scaling_an_objective_does_not_change_suggestions() -> None:
    found = []
    for unit in (1.0, 2.0**-30):
        optimizer = Optimizer(SPACE, direction=["minimize", "minimize"], seed=3)
        found.append(run(optimizer, lambda p, unit=unit: ([unit * two(p)[0], two(p)[1]], None), 14))
    assert found[0] == found[1]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(-1, 1)), min_size=1, max_size=12))
@settings(max_examples=30)
def test_the_front_has_no_dominated_and_no_infeasible_point_in_any_order(rows: list[tuple[int, int, int]]) -> None:
    fronts = []
    for order in (1, -1):
        optimizer = Optimizer(SPACE, direction=["minimize", "maximize"][::order], seed=0)
        for i, (a, b, c) in enumerate(rows):
            params = {"x": i / 20, "y": 0.5}
            optimizer.observe(params, [float(a), float(b)][::order], constraints={"c": float(c)})
        fronts.append({best.params["x"]: best.values[::order] for best in optimizer.front})
    assert fronts[0] == fronts[1]
    feasible = [(a, b) for a, b, c in rows if c <= 0]
    for a, b in fronts[0].values():
        assert not any(x <= a and y >= b and (x, y) != (a, b) for x, y in feasible)
    assert bool(fronts[0]) == bool(feasible)


@pytest.mark.parametrize("directions", [["minimize"] * 3, ["minimize"] * 4])
def test_more_objectives(directions: list[Any]) -> None:
    optimizer = Optimizer(SPACE, direction=directions, seed=0)
    corners = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)][: len(directions)]

    def distances(p: dict[str, Any]) -> tuple[list[float], None]:
        return [(p["x"] - a) ** 2 + (p["y"] - b) ** 2 for a, b in corners], None

    asked = run(optimizer, distances, 22)
    assert len(optimizer.front) >= 15
    assert len({(p["x"], p["y"]) for p in asked}) == 22


def test_batches_pending_points_and_failures_with_two_objectives_and_a_constraint() -> None:
    optimizer = Optimizer(SPACE, direction=["minimize", "minimize"], seed=0)
    for i in range(6):
        batch = optimizer.ask(4)
        assert len({tuple(s.params.values()) for s in batch}) == 4
        for suggestion in batch[:-1]:
            failed = i % 3 == 2
            optimizer.tell(
                suggestion, None if failed else two(suggestion.params), constraints={"c": disk(suggestion.params)}
            )
        optimizer.forget(batch[-1])
    assert len(optimizer.planner.records.rows(State.FAILED)) == 6
    assert len(optimizer.ask(12)) == 12


def test_one_best_of_several_objectives_is_a_clear_error() -> None:
    optimizer = Optimizer(SPACE, direction=["minimize", "minimize"], seed=0)
    run(optimizer, lambda p: (two(p), None), 6)
    for look in (lambda: optimizer.best, optimizer.recommend):
        with pytest.raises(ValueError, match="2 objectives; use"):
            look()
    with pytest.raises(ValueError, match="predict_all"):
        optimizer.predict({"x": 0.5, "y": 0.5})
    first, second = optimizer.model.predict_all({"x": 0.5, "y": 0.0})
    assert first.low <= first.value <= first.high
    assert [len(each) for each in optimizer.model.predict_all([{"x": 0.5, "y": 0.0}] * 3)] == [3, 3]
    assert second.value != first.value
    with pytest.raises(ValueError, match="2 objectives; use values"):
        optimizer.front[0].value  # noqa: B018


@pytest.mark.parametrize("value", [1.0, [1.0], [1.0, 2.0, 3.0], ["1", "2"], "12"])
def test_wrong_values_are_refused_and_change_nothing(value: Any) -> None:
    optimizer = Optimizer(SPACE, direction=["minimize", "minimize"], seed=0)
    suggestion = optimizer.ask()
    before = optimizer.state()
    with pytest.raises(ValueError, match="value"):
        optimizer.tell(suggestion, value)
    assert optimizer.state() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"direction": []}, "or a list of them"),
        ({"direction": "smaller"}, "'smaller'"),
        ({"direction": ["minimize", "smaller"]}, "'smaller'"),
        ({"direction": {"loss": "minimize"}}, "or a list of them"),
    ],
)
def test_wrong_directions_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Optimizer(SPACE, **arguments)


def test_known_variances_of_each_objective() -> None:
    optimizer = Optimizer(SPACE, direction=["minimize", "minimize"], seed=0)
    optimizer.observe({"x": 0.1, "y": 0.1}, [1.0, 2.0], variance=[0.0, 0.5])
    assert optimizer.planner.records.variances(objective=1).tolist() == [0.5]
    with pytest.raises(ValueError, match="a list of 2 numbers"):
        optimizer.observe({"x": 0.1, "y": 0.1}, [1.0, 2.0], variance=0.5)


# ------------------------------------------------------------------------ state


def test_a_state_of_the_version_before_is_read() -> None:
    optimizer = Optimizer(SPACE, seed=4)
    run(optimizer, lambda p: (p["x"], None), 7)
    state = {**optimizer.state(), "version": 2}
    for row in state["rows"]:
        del row["constraints"]
    restored = Optimizer(SPACE, seed=4)
    restored.restore(state)
    assert restored.ask() == optimizer.ask()


# ------------------------------------------------------------- the chance of being feasible


def test_the_chance_of_being_feasible_is_the_product_over_the_constraints() -> None:
    optimizer = Optimizer({"x": (0.0, 1.0), "y": (0.0, 1.0)}, seed=0)
    places = [{"x": float(x), "y": float(y)} for x, y in np.random.default_rng(0).random((6, 2))]
    assert optimizer.model.predict_feasible(places) == [1.0] * 6, "no constraint was measured"
    for _ in range(14):
        suggestion = optimizer.ask()
        x, y = suggestion.params["x"], suggestion.params["y"]
        optimizer.tell(suggestion, x + y, constraints={"a": 0.4 - x, "b": np.sin(7 * y)})
    state = optimizer.state()
    chances = optimizer.model.predict_feasible(places)
    assert optimizer.state() == state
    points = np.array([optimizer.space.points.encode(place) for place in places])
    expected = np.ones(6)
    for limit in optimizer.model.limits()[0].values():
        log_weights, mean, std = limit.posterior.components(points)
        expected *= np.exp(log_weights) @ norm.cdf((limit.threshold - mean) / std)
    assert chances == pytest.approx(expected, abs=1e-9)
    assert optimizer.model.predict_feasible(places[0]) == pytest.approx(chances[0], rel=1e-12)
    with pytest.raises(ValueError, match="params must be a configuration"):
        optimizer.model.predict_feasible("x")  # type: ignore[call-overload]
