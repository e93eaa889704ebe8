"""Forecasts of where learning curves end."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazybo import Column
from lazybo.gp import Warping
from lazybo.gp.curve_forecasts import Clock, Curve, CurveModel, CurveTargets, kept_steps, learn_point

STEPS = 30


def end_of(x: float) -> float:
    return 1.0 + (x - 0.4) ** 2


def curve(
    x: float, length: int = STEPS, *, noise: float = 0.0, seed: int = 0, start: int = 1, stride: int = 1
) -> Curve:
    """A training that falls to `end_of`, of which the first values are known."""
    rng = np.random.default_rng(seed)
    values = {
        start + stride * i: end_of(x) + 2.0 / (1 + i) - 2.0 / STEPS + noise * float(rng.normal()) for i in range(length)
    }
    return Curve(np.array([x]), values, length == STEPS)


def model_of(found: list[Curve], max_step: int | None = None) -> CurveModel:
    model = CurveModel([Column()], max_step=max_step)
    for each in found:
        model.add(*each)
    return model


def test_a_forecast_is_near_the_end_and_says_how_near() -> None:
    model = model_of([curve(x, noise=0.01, seed=i) for i, x in enumerate(np.linspace(0, 1, 9))])
    early, late = (model.forecast(*curve(0.77, length, noise=0.01, seed=99)) for length in (3, 20))
    assert early is not None
    assert late is not None
    for forecast in (early, late):
        assert forecast.value == pytest.approx(end_of(0.77), abs=3 * math.sqrt(forecast.variance) + 0.01)
        assert forecast.below(end_of(0.77) + 0.3) > 0.95
        assert forecast.below(end_of(0.77) - 0.3) < 0.05
    assert late.variance < early.variance


def test_an_interval_has_its_share_of_the_forecast() -> None:
    model = model_of([curve(x, noise=0.01, seed=i) for i, x in enumerate(np.linspace(0, 1, 9))])
    forecast = model.forecast(*curve(0.77, 6, noise=0.01, seed=99))
    assert forecast is not None
    for share in (0.5, 0.95):
        low, high = forecast.interval(share)
        assert low < forecast.value < high
        assert forecast.below(high) - forecast.below(low) == pytest.approx(share, abs=1e-6)


def test_improvements_on_several_values_are_the_means_of_those_on_each() -> None:
    model = model_of([curve(x) for x in np.linspace(0, 1, 9)])
    x, values = np.array([[0.41], [0.95]]), np.array([[1.1, 1.3], [1.2, 1.0]])
    means = [
        np.mean([model.improvements(row[None], value)[0] for value in on]) for row, on in zip(x, values, strict=True)
    ]
    assert model.improvements_on(x, values) == pytest.approx(means)


def test_neighbours_are_a_guide_before_there_are_values() -> None:
    model = model_of([curve(x) for x in np.linspace(0, 1, 9)])
    near, far = model.improvements(np.array([[0.41], [0.95]]), end_of(0.5))
    assert near > 3 * far


def test_there_is_no_forecast_before_two_curves_are_complete() -> None:
    found = [curve(0.1), curve(0.2, 4), curve(0.3, 5)]
    assert model_of(found).forecast(*curve(0.5, 3)) is None
    assert model_of(found).forecasts() == {}
    assert sorted(model_of([*found, curve(0.6)]).forecasts()) == [1, 2]


def test_forecasts_do_not_depend_on_when_they_are_asked_for() -> None:
    """A resumed run makes the same ones, to the last bit."""
    found = [
        curve(x, STEPS if i % 3 == 0 else 2 + i % 7, noise=0.05, seed=i) for i, x in enumerate(np.linspace(0, 1, 23))
    ]
    asked = CurveModel([Column()])
    for each in found:
        asked.add(*each)
        asked.forecast(*curve(0.5, 4))
        asked.forecasts()
    at_once = model_of(found)
    assert asked.learned_at < 23, "some curves came after it was learned"
    for number, forecast in at_once.forecasts().items():
        assert forecast.mean == asked.forecasts()[number].mean
        assert np.array_equal(forecast.deviations, asked.forecasts()[number].deviations)
        assert np.array_equal(forecast.weights, asked.forecasts()[number].weights)


@pytest.mark.parametrize(("start", "stride"), [(0, 1), (1, 1), (100, 100), (-7, 3)])
def test_only_the_order_and_distance_of_steps_matter(start: int, stride: int) -> None:
    def forecast(start: int, stride: int) -> float:
        model = model_of([curve(x, start=start, stride=stride) for x in np.linspace(0, 1, 5)])
        found = model.forecast(*curve(0.6, 5, start=start, stride=stride))
        assert found is not None
        return found.mean

    assert forecast(start, stride) == pytest.approx(forecast(1, 1), abs=1e-9)


def test_the_last_step_is_given_or_the_largest_seen() -> None:
    found = [curve(x) for x in (0.1, 0.5, 0.9)]
    assert model_of(found).left(STEPS // 2) == pytest.approx(0.5)
    assert model_of(found, max_step=2 * STEPS).left(STEPS // 2) == pytest.approx(0.75)
    assert model_of(found).left(2 * STEPS) == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e300])
def test_diverged_trainings_count_as_bad_and_do_no_more_harm(bad: float) -> None:
    found = [curve(x) for x in np.linspace(0, 1, 6)]
    diverged = Curve(np.array([0.97]), {1: 2.0, 2: 50.0, 3: bad}, False)
    model = model_of([*found, diverged])
    assert model.forecasts()[6].value > max(end_of(0), end_of(1)), "worse than all that completed"
    forecast = model.forecast(*curve(0.4, 6))
    assert forecast is not None
    assert forecast.value == pytest.approx(end_of(0.4), abs=0.3)


def test_two_hundred_trainings_of_fifty_epochs_are_some_two_thousand_rows() -> None:
    values = dict.fromkeys(range(1, 51), 0.0)
    assert 9 <= len(kept_steps(Curve(np.zeros(1), values, True), Clock(1, 1, math.log(50)))) <= 12


@given(st.integers(0, 3000))
def test_the_model_is_learned_at_growing_numbers_of_curves(n: int) -> None:
    m = learn_point(n)
    assert m <= n
    assert learn_point(m) == m
    assert n < 1.2 * m + 1 or n == 0


@given(st.floats(-1e12, 1e12))
def test_targets_can_be_converted_back(value: float) -> None:
    ends = np.array([end_of(x) for x in np.linspace(0, 1, 6)])
    targets = CurveTargets(Warping.fit("warped", ends), worst=math.inf, low=ends.min(), high=ends.max())
    assert targets.inverse(targets(np.array([value])))[0] == pytest.approx(value, rel=1e-6, abs=1e-6)
