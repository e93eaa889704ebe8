"""The cost of evaluations in the optimiser."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from lazybo.search.acquisition import (
    ACQUISITIONS,
    Joint,
    constrained,
    feasibility,
    improvement,
    log_expected_improvement,
    per_cost,
)
from lazybo.search.optimizer import Optimizer
from lazybo.search.output import Cost
from lazybo.search.results import State

SPACE = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
GRID = {"a": (0, 9), "b": (0, 9), "c": ["p", "q", "r"]}


def flat(params: dict[str, Any]) -> float:
    """An objective that does not depend on x: only the cost does."""
    return (params["y"] - 0.5) ** 2


def price(params: dict[str, Any]) -> float:
    return math.exp(6 * params["x"])


def run(optimizer: Optimizer, n: int, *, left: float | None = None, unit: float = 1.0) -> list[dict[str, Any]]:
    asked = []
    for i in range(n):
        suggestion = optimizer.ask(budget_left=1 - i / n if left is None else left)
        optimizer.tell(suggestion, flat(suggestion.params), seconds=unit * price(suggestion.params))
        asked.append(suggestion.params)
    return asked


# ------------------------------------------------------------------------- laws


@pytest.mark.parametrize("acquisition", ["auto", "logei", "ei", "ucb", "pi"])
def test_cheap_evaluations_are_preferred_while_much_of_the_budget_is_left(acquisition: str) -> None:
    def spent(cost: str | None, left: float) -> float:
        asked = run(Optimizer(SPACE, seed=2, cost=cost, acquisition=acquisition), 16, left=left)
        return float(np.mean([math.log(price(params)) for params in asked[5:]]))

    without = spent(None, 1.0)
    assert spent("seconds", 1.0) < min(without, spent("seconds", 0.05)) - 0.5


@given(seed=st.integers(0, 2**16))
@settings(max_examples=2, deadline=None)
def test_at_the_end_of_the_budget_the_cost_has_no_influence_at_all(seed: int) -> None:
    assert run(Optimizer(SPACE, seed=seed, cost="seconds"), 12, left=0.0) == run(Optimizer(SPACE, seed=seed), 12)


@given(exponent=st.integers(-40, 40), seed=st.integers(0, 99))
@settings(max_examples=3, deadline=None)
def test_the_unit_of_the_cost_does_not_matter(exponent: int, seed: int) -> None:
    def grid(unit: float) -> list[dict[str, Any]]:
        optimizer = Optimizer(GRID, seed=seed, cost="seconds")
        asked = []
        for _ in range(11):
            suggestion = optimizer.ask(budget_left=1.0)
            a, b = suggestion.params["a"], suggestion.params["b"]
            optimizer.tell(suggestion, math.sin(a + 1.7 * b), seconds=unit * math.exp(0.7 * a))
            asked.append(suggestion.params)
        return asked

    assert grid(2.0**exponent) == grid(1.0)


def test_a_state_with_a_cost_is_readable_without_one_and_the_reverse() -> None:
    with_cost, without = Optimizer(SPACE, seed=6, cost="seconds"), Optimizer(SPACE, seed=6)
    run(with_cost, 8)
    run(without, 8)
    without_now, with_now = Optimizer(SPACE, seed=6), Optimizer(SPACE, seed=6, cost="seconds")
    without_now.restore(with_cost.state())
    with_now.restore(without.state())
    assert with_now.ask().params == without.ask().params, "no cost is known yet"
    assert without_now.planner.records.n_complete == 8


# ------------------------------------------------------------------ acquisition


def check_derivatives(joint: Joint, outputs: int, seed: int) -> None:
    """The derivatives of an acquisition are its finite differences."""
    rng = np.random.default_rng(seed)
    at = np.concatenate((rng.normal(size=outputs), rng.uniform(0.2, 1.0, outputs)))

    def value(u: np.ndarray) -> float:
        return float(joint(u[:outputs, None], u[outputs:, None]).value[0])

    got = joint(at[:outputs, None], at[outputs:, None])
    found = np.concatenate((got.by_mean[:, 0], got.by_std[:, 0]))
    np.testing.assert_allclose(found, approx_fprime(at, value, 1e-7), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_derivatives_per_cost(seed: int, weight: float) -> None:
    objective = improvement(log_expected_improvement, 0.3)
    check_derivatives(per_cost(objective, weight), 2, seed)
    check_derivatives(per_cost(constrained(objective, 1, feasibility([0.2])), weight), 3, seed)


@pytest.mark.parametrize("objectives", [1, 2, 4])
@pytest.mark.parametrize("bound", [None, 0.6, -1.0])
def test_several_objectives_and_constraints_per_cost(objectives: int, bound: float | None) -> None:
    """Whatever is maximised, α times the expected logarithm of the cost is subtracted; nothing is feasible with -1."""
    optimizer = Optimizer(SPACE, direction=["minimize"] * objectives, seed=7, cost="seconds")
    for suggestion in optimizer.ask(12):
        values = [(suggestion.params["y"] - j / 4) ** 2 for j in range(objectives)]
        measured = {} if bound is None else {"y": suggestion.params["y"] - bound}
        value = values if objectives > 1 else values[0]
        optimizer.tell(suggestion, value, constraints=measured, seconds=price(suggestion.params))
    u = np.random.default_rng(0).random((6, 2))

    def acquired(left: float) -> np.ndarray:
        optimizer.planner.budget_left = left
        rng = np.random.default_rng(1)  # several objectives draw their weights
        surface, _ = optimizer.model.search.models.surface(0, rng, ACQUISITIONS["logei"])
        return surface.exact(u)

    optimizer.planner.budget_left = 1.0
    optimizer.learn()
    surrogate = optimizer.model.search.models.cost
    assert surrogate is not None
    now = surrogate.current()
    log_cost = now.warping.inverse(now.posterior.mean(u))
    np.testing.assert_allclose(log_cost, 6 * u[:, 0], atol=0.3)
    for left in (1.0, 0.25):
        difference = acquired(0.0) - acquired(left)
        np.testing.assert_allclose(np.diff(difference), left * np.diff(log_cost), rtol=1e-6, atol=1e-9)


# ------------------------------------------------------------ what is not known


def test_costs_that_are_not_known_are_pending() -> None:
    optimizer = Optimizer(SPACE, seed=9, cost="dollars")
    for i, suggestion in enumerate(optimizer.ask(6)):
        optimizer.tell(suggestion, flat(suggestion.params), cost=price(suggestion.params) if i % 2 else None)
    optimizer.ask()
    assert Cost(optimizer.planner.records).rows(State.COMPLETE).tolist() == [1, 3, 5]
    assert Cost(optimizer.planner.records).rows(State.PENDING).tolist() == [0, 2, 4, 6]


def test_a_failure_teaches_its_cost_only_if_it_cost_more_than_all_others() -> None:
    optimizer = Optimizer(SPACE, seed=10, cost="seconds")
    told = [(1.0, 10.0), (None, 2.0), (2.0, 20.0), (None, 60.0), (None, None)]
    for suggestion, (value, seconds) in zip(optimizer.ask(5), told, strict=True):
        optimizer.tell(suggestion, value, seconds=seconds)
    view = Cost(optimizer.planner.records)
    np.testing.assert_array_equal(np.exp(view.values).round(9), [10.0, np.nan, 20.0, 60.0, np.nan])
    optimizer.observe({"x": 0.5, "y": 0.5}, 1.0, seconds=99.0)
    assert view.rows(State.COMPLETE).tolist() == [0, 2, 5], "60 s is no longer more than all others"
    optimizer.ask()


def test_only_failures_have_a_cost() -> None:
    optimizer = Optimizer(SPACE, seed=11, cost="seconds")
    for suggestion in optimizer.ask(6):
        optimizer.tell(suggestion, None, seconds=1.0)
    optimizer.observe({"x": 0.5, "y": 0.5}, 1.0)
    assert set(optimizer.ask().params) == {"x", "y"}


def test_a_value_that_is_revised_keeps_its_cost() -> None:
    optimizer = Optimizer(SPACE, seed=12, cost="seconds")
    run(optimizer, 6)
    before = Cost(optimizer.planner.records).values
    optimizer.planner.revise({2: (0.1, 0.01)})
    np.testing.assert_array_equal(Cost(optimizer.planner.records).values, before)


# -------------------------------------------------------------------- bad input


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf, "3", [1.0]])
def test_a_wrong_cost_is_refused_and_changes_nothing(seconds: Any) -> None:
    for name, key in (("seconds", "seconds"), ("dollars", "cost"), (None, "seconds")):
        optimizer = Optimizer(SPACE, seed=0, cost=name)
        suggestion = optimizer.ask()
        with pytest.raises(ValueError, match=r"(seconds|'dollars',) must be a (positive finite )?number"):
            optimizer.tell(suggestion, 1.0, **{key: seconds})
        assert [each.number for each in optimizer.pending] == [0]


def test_the_weight_falls_if_the_end_is_not_known() -> None:
    optimizer = Optimizer(SPACE, seed=13, cost="seconds")
    weights = []
    for _ in range(8):
        weights.append(optimizer.model.search.models.cost_weight)
        optimizer.ask()
    np.testing.assert_allclose(weights, [1.0] * 5 + [math.sqrt(5 / k) for k in (6, 7, 8)])
    optimizer.planner.budget_left = 0.9
    assert optimizer.model.search.models.cost_weight == 0.9
