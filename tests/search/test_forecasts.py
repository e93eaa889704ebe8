"""Forecasts of pending evaluations: the model learns them, and forgets them when the value is told."""

import json

import numpy as np
import pytest

from lazybo import Optimizer
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
    assert optimizer.n_complete == 12


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
    optimizer = told(directions=["minimize", "minimize"])
    front, (first, second) = optimizer.front, optimizer.predict_all(AT)
    optimizer.forecast(optimizer.announce(AT), 7.0, 1e-4, objective=1, constraints={"memory": 2.0})
    learned = optimizer.predict_all(AT)
    assert learned[0].value == pytest.approx(first.value), "a pending row does not change the mean"
    assert learned[1].value > second.value + 1
    assert optimizer.front == front or not optimizer.front, "it is not on the front"
    assert optimizer._observations.violations("memory")[-1] == 2.0
    optimizer.ask()


@pytest.mark.parametrize("directions", [["maximize"], ["minimize", "maximize"]])
def test_forecasts_are_part_of_the_state(directions: list[str]) -> None:
    optimizer = told(directions=directions)
    optimizer.forecast(optimizer.announce(AT), 0.5, 0.1, objective=len(directions) - 1)
    optimizer.ask()
    restored = Optimizer(SPACE, directions=directions)  # type: ignore[arg-type]
    restored.restore(json.loads(json.dumps(optimizer.state())))
    assert restored.predict_all(AT) == optimizer.predict_all(AT)
    assert restored.ask() == optimizer.ask()


def test_a_forecast_of_another_objective_replaces_the_first_one() -> None:
    optimizer = told(directions=["minimize", "minimize"])
    pending = optimizer.announce(AT)
    optimizer.forecast(pending, -9.0, 5.0, objective=0)
    optimizer.propose(99)
    optimizer.forecast(pending, -5.0, 0.1, objective=1)
    restored = Optimizer(SPACE, directions=["minimize", "minimize"])
    restored.restore(json.loads(json.dumps(optimizer.state())))
    assert restored.predict_all(AT) == optimizer.predict_all(AT)
    assert restored.propose(99) == optimizer.propose(99)


def test_forecasts_of_repeats_do_not_count_as_noise() -> None:
    """Two evaluations of a point differ if there is noise. A forecast that differs says nothing about it."""
    optimizer = told()
    row = optimizer.best
    optimizer.observe(AT, 1.0)
    pending = optimizer.announce(AT)
    assert optimizer.repeats(pending)
    optimizer.forecast(pending, 3.0, 0.1)
    surrogate = optimizer._outputs.objectives[0]
    repeats = surrogate._repeats(np.where(np.isnan(t := surrogate._targets()), np.nan, t))
    assert not repeats.differ
    assert optimizer.best == row
