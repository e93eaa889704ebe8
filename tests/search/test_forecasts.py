"""Forecasts of pending evaluations: the model learns them, and forgets them when the value is told."""

from pathlib import Path

import numpy as np
import pytest

from lazybo import Optimizer
from lazybo.gp import Priors
from lazybo.search.optimizer import Suggestion

SPACE = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
AT = {"x": 0.9, "y": 0.9}


def told(**options: object) -> Optimizer:
    """Twelve evaluations of one objective, or of two."""
    optimizer = Optimizer(SPACE, seed=0, **options)  # type: ignore[arg-type]
    for _ in range(12):
        tell(optimizer, optimizer.ask())
    return optimizer


def tell(optimizer: Optimizer, suggestion: Suggestion) -> None:
    x, y = suggestion.params["x"], suggestion.params["y"]
    values = [(x - 0.3) ** 2 + y**2, (x - 0.8) ** 2 + y]
    optimizer.tell(suggestion, values[0] if len(optimizer.directions) == 1 else values)


def test_the_model_learns_a_forecast_which_is_never_the_best() -> None:
    optimizer = told()
    best, before = optimizer.best, optimizer.predict(AT).value
    pending = optimizer.announce(AT)
    for forecast in (-5.0, -3.0):
        optimizer.forecast(pending, forecast, 1e-6)
        assert optimizer.predict(AT).value < 0 < before
    assert optimizer.predict(AT).value == pytest.approx(-3.0, abs=0.5), "a new forecast replaces the earlier one"
    assert optimizer.best == best
    assert optimizer.recommend().number != pending.number
    assert [each.params for each in optimizer.pending] == [AT]
    assert optimizer.planner.records.n_complete == 12


def test_a_sure_forecast_teaches_more_than_an_unsure_one() -> None:
    found = []
    for variance in (1e-6, 1.0):
        optimizer = told()
        optimizer.forecast(optimizer.announce(AT), 5.0, variance)
        found.append(optimizer.predict(AT))
    assert found[0].value > found[1].value
    assert found[0].high - found[0].low < found[1].high - found[1].low


def test_what_is_told_replaces_the_forecast() -> None:
    """The same as if there had been no forecast, to the last bit."""
    with_forecast, without = told(), told()
    for optimizer in (with_forecast, without):
        pending, other = optimizer.announce(AT), optimizer.announce({"x": 0.1, "y": 0.7})
        if optimizer is with_forecast:
            optimizer.forecast(pending, 5.0, 0.1)
            optimizer.predict(AT)
        tell(optimizer, pending)
        tell(optimizer, other)
    assert with_forecast.ask() == without.ask()
    assert with_forecast.state() == without.state()


def test_a_forecast_may_be_forgotten_or_fail() -> None:
    optimizer, without = told(), told()
    optimizer.forecast(pending := optimizer.announce(AT), 5.0, 0.1)
    without.forget(without.announce(AT))
    optimizer.forget(pending)
    assert optimizer.predict(AT) == without.predict(AT)
    optimizer.forecast(pending := optimizer.announce(AT), -5.0, 0.1)
    optimizer.tell(pending, None)
    assert optimizer.predict(AT).value > 0, "a failure counts as the worst value"
    with pytest.raises(ValueError, match="was told already"):
        optimizer.forecast(pending, 1.0, 0.1)


@pytest.mark.parametrize(("value", "variance"), [(float("nan"), 0.1), (float("inf"), 0.1), (1.0, -1.0), ("1", 0.1)])
def test_wrong_forecasts_change_nothing(value: float, variance: float) -> None:
    optimizer = told()
    pending = optimizer.announce(AT)
    before = optimizer.state()
    with pytest.raises(ValueError, match=r"forecast|variance"):
        optimizer.forecast(pending, value, variance)
    assert optimizer.state() == before


def test_of_several_objectives_one_may_be_known() -> None:
    optimizer = told(direction=["minimize", "minimize"])
    front, (first, second) = optimizer.front, optimizer.model.predict_all(AT)
    optimizer.forecast(optimizer.announce(AT), 7.0, 1e-4, objective=1, constraints={"memory": 2.0})
    learned = optimizer.model.predict_all(AT)
    assert learned[0].value == pytest.approx(first.value), "a pending row does not change the mean"
    assert learned[1].value > second.value + 1
    assert optimizer.front == front or not optimizer.front, "it is not on the front"
    assert optimizer.planner.records.violations["memory"][-1] == 2.0
    optimizer.ask()


def test_forecasts_of_repeats_do_not_count_as_noise() -> None:
    """Two evaluations of a point differ if there is noise. A forecast that differs says nothing about it."""
    optimizer = told(lag=1)
    row = optimizer.best
    optimizer.observe(AT, 1.0)
    pending = optimizer.announce(AT)
    assert optimizer.planner.repeats(pending)
    optimizer.forecast(pending, 3.0, 0.1)
    assert not optimizer.model.predictor().exact, "a forecast that differs is no second measurement either"
    optimizer.learn()
    assert optimizer.planner.state()["noise"] < Priors.NOISY * 1.01
    assert optimizer.best == row
    optimizer.tell(pending, 3.0)
    optimizer.observe(AT, 2.0)
    optimizer.learn()
    assert optimizer.planner.state()["noise"] > Priors.NOISY * 1.01, "values that differ show it"


def test_a_stopped_evaluation_has_a_forecast_and_is_never_told() -> None:
    optimizer = told()
    best, before = optimizer.best, optimizer.predict(AT).value
    suggestion = optimizer.announce(AT)
    optimizer.forecast(suggestion, -5.0, 1e-6, stopped=True)
    assert optimizer.predict(AT).value < 0 < before
    assert optimizer.best == best
    assert optimizer.recommend().number != suggestion.number
    assert optimizer.pending == []
    assert optimizer.planner.records.n_complete == 12
    assert optimizer.records()[-1]["state"] == "PRUNED"
    with pytest.raises(ValueError, match="told already"):
        optimizer.tell(suggestion, 1.0)


@pytest.mark.parametrize("directions", [["minimize"], ["minimize", "maximize"]])
def test_a_saved_optimiser_keeps_what_was_stopped(directions: list[str], tmp_path: Path) -> None:
    optimizer = told(direction=directions[0]) if len(directions) == 1 else told(direction=directions)
    optimizer.forecast(optimizer.announce(AT), 0.5, 0.01, stopped=True)
    optimizer.planner.rebuild(noise_range=(0.02, 0.5))
    optimizer.save(tmp_path / "optimizer.json")
    loaded = Optimizer.load(tmp_path / "optimizer.json")
    assert loaded.records() == optimizer.records()
    assert loaded.state() == optimizer.state()
    assert loaded.ask() == optimizer.ask()


def test_a_stopped_repeat_measures_no_noise() -> None:
    def repeated(forecast: float) -> float:
        optimizer = told()
        again = optimizer.announce(optimizer.best.params)
        optimizer.forecast(again, forecast, 0.1, stopped=True)
        return optimizer.model.surrogate()[0].noise

    assert repeated(0.5) == pytest.approx(told().model.surrogate()[0].noise, rel=0.5)


def bowl_with_noise(noise: float, noise_range: tuple[float, float] | None) -> float:
    """The learned noise, as a variance of values."""
    optimizer, rng = Optimizer(SPACE, seed=0), np.random.default_rng(0)
    for x, y in rng.random((25, 2)).tolist():
        optimizer.observe({"x": x, "y": y}, (x - 0.3) ** 2 + (y - 0.5) ** 2 + noise * rng.standard_normal())
    optimizer.planner.rebuild(noise_range=noise_range)
    process, warping = optimizer.model.surrogate()
    return process.noise / float(warping.variances(np.ones(1))[0])


def test_the_noise_is_learned_within_the_range_that_is_known() -> None:
    assert bowl_with_noise(0.0, None) < 1e-4
    assert bowl_with_noise(0.0, (1e-3, 1.0)) >= 0.99e-3, "at least"
    assert bowl_with_noise(0.1, None) == pytest.approx(1e-2, rel=0.7)
    assert bowl_with_noise(0.1, (1e-6, 1e-3)) <= 1.01e-3, "at most"
