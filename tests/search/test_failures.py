"""Failures: where they happen is learned, and what did not fail is not blamed."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from lazybo import Space
from lazybo.search.optimizer import Optimizer
from lazybo.search.output import MOST_CAUTION, FailureLabels
from lazybo.search.records import Records
from lazybo.search.results import PENDING, Result, State

SPACE = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


def bowl(params: dict[str, Any]) -> float:
    """Its optimum is at (0.7, 0.4)."""
    return float((params["x"] - 0.7) ** 2 + (params["y"] - 0.4) ** 2)


def half(params: dict[str, Any]) -> float | None:
    """Fails for x above 0.6, so that the best value is at the border, (0.6, 0.4)."""
    return None if params["x"] > 0.6 else bowl(params)


def run(optimizer: Optimizer, evaluate: Any, n: int) -> list[dict[str, Any]]:
    asked = []
    for _ in range(n):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, evaluate(suggestion.params))
        asked.append(suggestion.params)
    return asked


def observed(evaluate: Any, n: int, seed: int = 0, **options: Any) -> Optimizer:
    """An optimiser that has observed random points."""
    optimizer = Optimizer(SPACE, seed=seed, **options)
    for x, y in np.random.default_rng(seed).random((n, 2)):
        optimizer.observe({"x": float(x), "y": float(y)}, evaluate({"x": x, "y": y}))
    return optimizer


def chances(optimizer: Optimizer, points: np.ndarray) -> np.ndarray:
    success = optimizer.model.limits()[1]
    assert success is not None
    mean, variance = success.posterior.posterior(optimizer.space.points.as_rows(points))
    return norm.cdf((success.threshold - mean) / np.sqrt(variance))


# ------------------------------------------------------------ chance of success


@pytest.mark.parametrize("seed", range(3))
def test_where_everything_failed_success_is_improbable_and_elsewhere_it_is_sure(seed: int) -> None:
    optimizer = observed(half, 60, seed)
    y = np.linspace(0.1, 0.9, 9)
    failing, fine = (np.column_stack((np.full(9, x), y)) for x in (0.8, 0.3))
    assert chances(optimizer, failing).max() < 0.1
    assert chances(optimizer, fine).min() > 0.9


@pytest.mark.parametrize("seed", range(3))
def test_random_crashes_are_noise_and_the_chance_is_flat(seed: int) -> None:
    rng = np.random.default_rng(seed + 100)
    optimizer = observed(lambda p: None if rng.random() < 0.1 else bowl(p), 100, seed)
    found = chances(optimizer, np.random.default_rng(1).random((200, 2)))
    assert found.min() > 0.75
    crashed = optimizer.planner.records.points(optimizer.planner.records.rows(State.FAILED))
    assert len(crashed) >= 5
    assert chances(optimizer, crashed).min() > 0.75, "also where one has crashed"


def test_far_from_all_evaluations_the_chance_is_about_the_share_of_successes() -> None:
    optimizer = Optimizer({"x": (0.0, 1000.0)}, seed=0, lag=None, kernel="matern52")
    for i in range(20):
        optimizer.observe({"x": float(i) / 10}, None if i in (3, 8, 11, 16) else float(i))
    assert chances(optimizer, np.array([[1.0]]))[0] == pytest.approx(0.8, abs=0.1)


FAILED, FINE = Result(State.FAILED), Result(State.COMPLETE, (1.0,), (0.0,))


def caution(*results: Result) -> float:
    records = Records(Space({"x": (0.0, 1.0)}))
    for i, result in enumerate(results):
        records.add({"x": i / 1000}, result, None)
    return FailureLabels(records).caution


@settings(max_examples=30)
@given(results=st.lists(st.sampled_from([FINE, FAILED, PENDING]), max_size=60))
def test_caution_grows_with_failures_and_three_successes_undo_one(results: list[Result]) -> None:
    weight = caution(*results)
    assert 1.0 <= weight <= MOST_CAUTION
    assert caution(*results, PENDING) == weight, "one that still runs says nothing"
    assert caution(*results, FAILED) == min(2 * weight, MOST_CAUTION)
    if weight <= MOST_CAUTION / 2:
        assert caution(*results, FAILED, FINE, FINE, FINE) == pytest.approx(weight)
    assert caution(*results, *[FINE] * 18) == pytest.approx(1.0)


# ------------------------------------------------------------------ suggestions


def test_the_best_value_at_the_border_of_what_fails_is_found() -> None:
    optimizer = Optimizer(SPACE, seed=0)
    run(optimizer, half, 40)
    assert optimizer.best.value == pytest.approx(0.01, abs=1e-3)
    assert optimizer.planner.records.n_complete >= 20


def test_one_crash_near_the_optimum_does_not_keep_the_search_away() -> None:
    """The worst value there would."""
    optimizer = Optimizer(SPACE, seed=0)
    for x in np.linspace(0.05, 0.95, 5):
        for y in np.linspace(0.05, 0.95, 5):
            optimizer.observe({"x": float(x), "y": float(y)}, bowl({"x": x, "y": y}))
    optimizer.observe({"x": 0.69, "y": 0.41}, None)
    run(optimizer, bowl, 8)
    assert optimizer.best.value < 1e-4


def test_the_front_of_two_objectives_is_found_where_evaluations_do_not_fail() -> None:
    optimizer = Optimizer(SPACE, direction=["minimize", "minimize"], seed=0)

    def two(p: dict[str, Any]) -> list[float] | None:
        return None if p["x"] < 0.3 else [p["x"] ** 2 + p["y"], (p["x"] - 1) ** 2 + p["y"]]

    asked = run(optimizer, two, 32)
    assert sum(p["x"] < 0.3 for p in asked[16:]) <= 8
    xs = np.sort([best.params["x"] for best in optimizer.front if best.params["y"] < 0.02])
    assert xs[0] < 0.36
    assert xs[-1] > 0.9


def test_while_nothing_is_feasible_the_search_avoids_failures_too() -> None:
    """What is feasible has x + y of at least 1.5, and most of that fails."""
    optimizer = Optimizer(SPACE, seed=3)
    for _ in range(30):
        suggestion = optimizer.ask()
        p = suggestion.params
        value = half(p)
        optimizer.tell(suggestion, value, constraints={} if value is None else {"c": 1.5 - p["x"] - p["y"]})
    assert optimizer.planner.n_feasible >= 3
    assert optimizer.planner.records.n_complete >= 12


# ------------------------------------------------------------------------ state


def test_a_state_from_before_failures_were_modelled_is_read() -> None:
    optimizer = Optimizer(SPACE, seed=4)
    run(optimizer, half, 20)
    state = optimizer.state()
    del state["model"]["failures"]
    restored = Optimizer(SPACE, seed=4)
    restored.restore(state)
    asked = run(restored, half, 12)
    assert sum(half(p) is None for p in asked) <= 8
    assert restored.best.value <= optimizer.best.value


def test_a_state_that_cannot_be_read_is_refused() -> None:
    optimizer = Optimizer(SPACE, seed=4)
    run(optimizer, half, 12)
    state = {**optimizer.planner.state(), "failures": {"kernel": "additive"}}
    with pytest.raises(ValueError, match="cannot be read"):
        Optimizer(SPACE, seed=4).planner.restore(state)


def test_a_value_after_a_failure_at_the_same_point_counts() -> None:
    """Pending repeats may end in any order: what a failure teaches depends on the rows before it."""
    for order in ((0, 1), (1, 0)):
        optimizer = observed(bowl, 10)
        repeats = [optimizer.announce({"x": 0.5, "y": 0.5}) for _ in range(2)]
        optimizer.planner.propose(0)[0]
        for i in order:
            optimizer.tell(repeats[i], None if i else 0.05)
        process, _ = optimizer.model.surrogate()
        assert process.targets[-1] == np.nanmax(process.targets)
        assert not process.known_variances.any()
        assert math.isfinite(optimizer.ask().params["x"])
