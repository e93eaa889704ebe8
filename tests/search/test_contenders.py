"""Which evaluated configuration is the best, and which one to repeat."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution, IntDistribution
from scipy.special import ndtr

from lazybo import Optimizer
from lazybo.search.predictions import MOST, NEGLIGIBLE, SURE, chances, next_repeat

PLANE = {"x": FloatDistribution(-5.0, 5.0), "y": FloatDistribution(-5.0, 5.0)}


def bowl(params: dict[str, Any]) -> float:
    return float((params["x"] - 1.0) ** 2 + (params["y"] + 2.0) ** 2)


def searched(noise: float, *, seed: int = 0, steps: int = 30, sign: float = 1.0, **options: Any) -> Optimizer:
    optimizer, rng = Optimizer(PLANE, seed=seed, **options), np.random.default_rng(seed)
    for _ in range(steps):
        suggestion = optimizer.ask()
        value = sign * (bowl(suggestion.params) + noise * rng.standard_normal())
        optimizer.tell(suggestion, value, variance=noise**2)
    return optimizer


# ------------------------------------------------------------------ mathematics


@given(
    difference=st.floats(-2.0, 2.0),
    spreads=st.tuples(st.floats(0.1, 2.0), st.floats(0.1, 2.0)),
    correlation=st.floats(-0.9, 0.9),
)
@settings(max_examples=30, deadline=None)
def test_the_chance_of_two_is_that_of_their_difference(
    difference: float, spreads: tuple[float, float], correlation: float
) -> None:
    a, b = spreads
    covariance = np.array([[a * a, correlation * a * b], [correlation * a * b, b * b]])
    found = chances(np.array([0.0, difference]), covariance, 0.0, np.random.default_rng(0))
    spread = math.sqrt(a * a + b * b - 2 * correlation * a * b)
    assert found[0] == pytest.approx(float(ndtr(difference / spread)), abs=0.04)
    assert found.sum() == pytest.approx(1.0)


def test_equally_good_ones_all_lead() -> None:
    found = chances(np.array([1.0, 1.0, 1.5]), np.full((3, 3), 1e-12), 1e-3, np.random.default_rng(0))
    assert found.tolist() == [1.0, 1.0, 0.0]


@given(seed=st.integers(0, 1000), m=st.integers(2, 8))
@settings(max_examples=40, deadline=None)
def test_the_next_repeat_narrows_the_closest_race_most(seed: int, m: int) -> None:
    """The naive twin: condition the joint normal on one more evaluation of each contender."""
    rng = np.random.default_rng(seed)
    root, mean, noise = rng.normal(size=(m, m)), rng.normal(size=m), rng.uniform(0.1, 1.0, m)
    covariance = root @ root.T + 0.1 * np.eye(m)
    leader = int(np.argmin(mean))

    def variance_of(difference: tuple[int, int], sigma: Any) -> float:
        i, j = difference
        return float(sigma[i, i] + sigma[j, j] - 2 * sigma[i, j])

    others = [j for j in range(m) if j != leader]
    distances = [(mean[j] - mean[leader]) / math.sqrt(variance_of((j, leader), covariance)) for j in others]
    challenger = others[int(np.argmin(distances))]
    after = []
    for i in range(m):
        row = covariance[i]
        conditioned = covariance - np.outer(row, row) / (covariance[i, i] + noise[i])
        after.append(variance_of((challenger, leader), conditioned))
    assert after[next_repeat(mean, covariance, noise)] == pytest.approx(min(after))


# ------------------------------------------------------------------- contenders


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_contenders_are_evaluated_configurations_with_their_chances(direction: Any) -> None:
    optimizer = searched(2.0, direction=direction, sign=1.0 if direction == "minimize" else -1.0)
    state = optimizer.state()
    found = optimizer.model.contenders()
    assert len(found) > 1
    assert [each.chance for each in found] == sorted((each.chance for each in found), reverse=True)
    assert all(NEGLIGIBLE <= each.chance <= 1.0 for each in found)
    assert 0.9 < sum(each.chance for each in found) < 2.0  # ties count for both
    recommended = optimizer.recommend()
    (same,) = [each for each in found if each.number == recommended.number]
    assert same.params == recommended.params
    assert (same.value, same.low, same.high) == pytest.approx((recommended.value, recommended.low, recommended.high))
    assert optimizer.model.contenders() == found
    assert optimizer.state() == state
    assert Optimizer(PLANE).model.contenders() == []


def test_many_configurations_are_cut_to_the_best() -> None:
    optimizer, rng = Optimizer(PLANE, seed=0, lag=None), np.random.default_rng(0)
    for _ in range(MOST + 40):
        params = {"x": float(rng.uniform(-5, 5)), "y": float(rng.uniform(-5, 5))}
        optimizer.observe(params, bowl(params), variance=1.0)
    assert 1 < len(optimizer.model.contenders()) <= MOST


# ---------------------------------------------------------------------- confirm


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_repeats_go_to_contenders_until_one_leads(direction: Any) -> None:
    sign = 1.0 if direction == "minimize" else -1.0
    optimizer, rng = searched(0.3, seed=7, steps=15, direction=direction, sign=sign), np.random.default_rng(1)
    repeated = []
    for _ in range(200):
        suggestion = optimizer.confirm()
        if suggestion is None:
            break
        assert suggestion.params in [each.params for each in optimizer.model.contenders()]
        assert optimizer.pending == [suggestion]
        repeated.append(tuple(suggestion.params.values()))
        value = bowl(suggestion.params) + 0.3 * float(rng.standard_normal())
        optimizer.tell(suggestion, sign * value, variance=0.09)
    assert optimizer.model.contenders()[0].chance >= SURE
    assert 1 < len(set(repeated)) < len(repeated), "several are repeated, some of them more than once"
    assert optimizer.recommend().number == optimizer.model.contenders()[0].number


def test_without_noise_one_repeat_tests_that_and_no_more() -> None:
    optimizer, rng = Optimizer(PLANE, seed=0), np.random.default_rng(0)
    for _ in range(20):
        params = {"x": float(rng.uniform(-5, 5)), "y": float(rng.uniform(-5, 5))}
        optimizer.observe(params, bowl(params))
    repeat = optimizer.confirm()
    assert repeat is not None
    assert repeat.params == optimizer.best.params
    assert optimizer.confirm() is None, "its value is needed first"
    optimizer.tell(repeat, bowl(repeat.params))
    assert optimizer.confirm() is None


def test_a_repeat_with_another_value_shows_the_noise_and_the_check_goes_on() -> None:
    optimizer, rng = Optimizer(PLANE, seed=0), np.random.default_rng(0)
    for _ in range(100):  # so many that the lag alone would not learn at once
        params = {"x": float(rng.uniform(-5, 5)), "y": float(rng.uniform(-5, 5))}
        optimizer.observe(params, bowl(params))
    first = optimizer.confirm()
    assert first is not None
    before = optimizer.planner.state()["noise"]
    optimizer.tell(first, bowl(first.params) + 20.0)
    assert optimizer.confirm() is not None
    assert optimizer.planner.state()["noise"] > 100 * before


def test_if_the_model_never_learns_there_is_nothing_to_test() -> None:
    optimizer = Optimizer(PLANE, seed=0, lag=None, noise=1e-6)
    for x in range(5):
        optimizer.observe({"x": float(x), "y": 0.0}, float(x))
    assert optimizer.confirm() is None


def test_pending_repeats_are_shared_among_several_workers() -> None:
    optimizer = searched(2.0)
    asked = [optimizer.confirm() for _ in range(8)]
    assert len({tuple(each.params.values()) for each in asked if each is not None}) > 1
    chance = optimizer.model.contenders()[0].chance
    assert chance < SURE, "a repeat that was not told is no evidence"


def test_a_repeat_that_fails_counts_as_the_worst_value() -> None:
    optimizer = searched(1.0)
    first = optimizer.confirm()
    assert first is not None
    before = next(each.chance for each in optimizer.model.contenders() if each.params == first.params)
    optimizer.tell(first, None)
    after = [each.chance for each in optimizer.model.contenders() if each.params == first.params]
    assert not after or after[0] < before
    assert optimizer.model.contenders()[0].params != first.params, "another one leads"


def test_what_lies_outside_the_space_is_not_repeated_and_nothing_to_vary_is_decided() -> None:
    optimizer = Optimizer(PLANE, seed=0)
    optimizer.observe({"x": 9.0, "y": 0.0}, 0.0, outside=True)
    assert optimizer.confirm() is None
    assert optimizer.model.contenders()[0].chance == 1.0
    still = Optimizer({"only": IntDistribution(3, 3)})
    assert still.confirm() is None
    still.observe({"only": 3}, 1.0)
    still.observe({"only": 3}, 2.0)
    assert still.confirm() is None
