"""What the model expects of configurations, and which one it recommends."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from lazybo import Condition, Optimizer, Prediction, Recommendation, Space
from lazybo.gp import Warping
from lazybo.search.predictions import BLOCK_POINTS

LINE = {"x": FloatDistribution(-5.0, 5.0)}
PLANE = {"x": FloatDistribution(-5.0, 5.0), "y": FloatDistribution(-5.0, 5.0)}
MIXED = {
    "lr": FloatDistribution(1e-5, 1.0, log=True),
    "opt": CategoricalDistribution(["sgd", "adam"]),
    "momentum": FloatDistribution(0.0, 0.99),
    "fixed": IntDistribution(7, 7),
}


def bowl(params: dict[str, Any]) -> float:
    return float((params["x"] - 1.0) ** 2 + (params["y"] + 2.0) ** 2)


def run(optimizer: Optimizer, objective: Callable[[dict[str, Any]], float], steps: int) -> Optimizer:
    for _ in range(steps):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, objective(suggestion.params))
    return optimizer


# ------------------------------------------------------------------ predictions


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("transform", Warping.KINDS)
def test_predictions_are_quantiles_of_the_posterior_in_the_units_of_the_objective(
    direction: Any, transform: Any
) -> None:
    optimizer = run(Optimizer(PLANE, seed=0, direction=direction, value_transform=transform), bowl, 15)
    _, warping = optimizer.model.surrogate()
    rng = np.random.default_rng(0)
    configurations = [{"x": x, "y": y} for x, y in rng.uniform(-5, 5, (BLOCK_POINTS + 3, 2)).tolist()]
    found = optimizer.predict(configurations)
    points = np.array([optimizer.space.points.encode(params) for params in configurations])
    parts = optimizer.model.predictor().posterior.components(points)
    kernels = rng.choice(len(parts.mean), 4000, p=np.exp(parts.log_weights))
    drawn = parts.mean[kernels] + parts.std[kernels] * rng.standard_normal((4000, 1))
    values = warping.inverse(drawn) * (1 if direction == "minimize" else -1)
    # 2.5 % of the values that the posterior expects are below the interval, half of them below the median.
    for quantile, ends in ((0.025, "low"), (0.5, "value"), (0.975, "high")):
        below = (values <= [getattr(prediction, ends) for prediction in found]).mean()
        assert below == pytest.approx(quantile, abs=0.03)
    one = optimizer.predict(configurations[0])
    assert (one.value, one.low, one.high) == pytest.approx((found[0].value, found[0].low, found[0].high))


def test_a_prediction_is_for_any_configuration_of_the_space() -> None:
    conditions = {"momentum": Condition("opt", ("sgd",))}
    optimizer = Optimizer(Space(MIXED, conditions=conditions), seed=0)
    run(optimizer, lambda params: abs(math.log10(params["lr"]) + 2) + params.get("momentum", 0.5), 12)
    without = {"lr": 0.01, "opt": "adam", "fixed": 7}
    assert isinstance(optimizer.predict(without), Prediction)
    assert len(optimizer.predict((without, {**without, "opt": "sgd", "momentum": 0.1}))) == 2
    assert optimizer.predict([]) == []
    for bad, message in (
        ({"lr": 0.01, "opt": "adam"}, "parameter 'fixed' is missing"),
        ({**without, "momentum": 0.1}, "only active while"),
        ({**without, "lr": 2.0}, "lr must be a number from 1e-05 to 1.0 on a logarithmic scale, not 2.0"),
        ([without, {"lr": 0.01}], "is missing"),
        ("adam", "params must be a configuration or a list of configurations, not 'adam'"),
        (3, "params must be a configuration or a list of configurations, not 3"),
        ([3], "params must be a mapping"),
    ):
        with pytest.raises(ValueError, match=message):
            optimizer.predict(bad)  # type: ignore[call-overload]


def test_without_a_value_there_is_nothing_to_predict_or_to_recommend() -> None:
    optimizer = Optimizer(LINE, seed=0)
    for _ in range(2):
        with pytest.raises(ValueError, match="no evaluation has succeeded"):
            optimizer.predict({"x": 1.0})
        with pytest.raises(ValueError, match="nothing to recommend yet: no evaluation has succeeded"):
            optimizer.recommend()
        optimizer.tell(optimizer.ask(), None)
        optimizer.ask()


# -------------------------------------------------------------- recommendations


def test_a_lucky_value_is_best_and_not_recommended() -> None:
    rng, optimizer = np.random.default_rng(0), Optimizer(LINE, seed=0)
    for x in np.linspace(-5, 5, 41):
        optimizer.observe({"x": float(x)}, x**2 + rng.standard_normal(), variance=1.0)
    optimizer.observe({"x": 4.0}, -5.0, variance=1.0)
    assert optimizer.best.params == {"x": 4.0}
    recommended = optimizer.recommend()
    assert abs(recommended.params["x"]) < 1.5
    assert recommended.low < recommended.params["x"] ** 2 < recommended.high
    assert optimizer.predict({"x": 4.0}).low > 0.0, "far from the -5 that was measured"


def test_under_noise_the_recommended_configuration_is_truly_better_than_the_luckiest() -> None:
    """Over seeds, with known noise: which noise is learned is not the question here."""
    truths = []
    for seed in range(12):
        rng, optimizer = np.random.default_rng(seed), Optimizer(PLANE, seed=seed)
        for x, y in rng.uniform(-5, 5, (60, 2)).tolist():
            params = {"x": x, "y": y}
            optimizer.observe(params, bowl(params) + 6.0 * rng.standard_normal(), variance=36.0)
        truths.append((bowl(optimizer.best.params), bowl(optimizer.recommend().params)))
    lucky, recommended = np.mean(truths, axis=0)
    assert recommended < 0.7 * lucky
    assert sum(r <= b for b, r in truths) >= 9


def test_repeats_of_a_configuration_count_as_one_with_their_mean() -> None:
    optimizer = Optimizer(LINE, seed=0)
    first = optimizer.announce({"x": 0.5})
    for x in np.linspace(-5, 5, 20):
        optimizer.observe({"x": float(x)}, 20.0 + x**2, variance=1.0)
    optimizer.tell(first, 3.0, variance=1.0)
    for value in (5.0, 7.0):
        optimizer.observe({"x": 0.5}, value, variance=1.0)
    recommended = optimizer.recommend()
    assert isinstance(recommended, Recommendation)
    assert (recommended.params, recommended.number) == ({"x": 0.5}, first.number)
    assert (recommended.measured, recommended.evaluations) == (5.0, 3)
    assert optimizer.best.value == 3.0
    assert recommended.value > 4.0


def test_what_failed_or_still_runs_is_never_recommended() -> None:
    optimizer = Optimizer(LINE, seed=0)
    for x in (1.0, 1.5, 2.0, 3.0):
        optimizer.observe({"x": x}, x)
    optimizer.announce({"x": 0.0})
    optimizer.observe({"x": 0.5}, None)
    optimizer.observe({"x": 0.25}, math.nan)
    assert optimizer.recommend().params == {"x": 1.0}


def test_of_equal_configurations_the_earliest_is_recommended() -> None:
    optimizer = Optimizer(LINE, seed=0)
    for x in (3.0, -1.0, 4.0, -1.0):
        optimizer.observe({"x": x}, 2.0)
    assert optimizer.recommend().params == {"x": 3.0}


EXTREMES: dict[str, Callable[[float], float]] = {
    "tiny": lambda x: 1e-300 * (x - 0.3) ** 2,
    "huge": lambda x: 1e307 * ((x - 0.3) ** 2 - 9.0),
    "from tiny to huge": lambda x: 10.0 ** (60.0 * x),
    "of both signs": lambda x: math.copysign(1e308, x) * abs(x) / 5,
    "all the same": lambda _: 1e308,
    "nothing": lambda _: 0.0,
}


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("kind", EXTREMES)
def test_extreme_values_do_not_overflow(kind: str, direction: Any) -> None:
    optimizer = Optimizer(LINE, seed=0, direction=direction)
    run(optimizer, lambda params: EXTREMES[kind](params["x"]), 8)
    optimizer.observe(optimizer.best.params, optimizer.best.value)
    found = [optimizer.recommend(), *optimizer.predict([{"x": -5.0}, {"x": 0.0}, {"x": 5.0}])]
    for each in found:
        assert math.isfinite(each.low)
        assert math.isfinite(each.high)
        assert each.low <= each.value <= each.high
    assert math.isfinite(found[0].value)  # type: ignore[union-attr]


# ------------------------------------------------------------------------- laws

CHOICES = [{"x": float(x), "y": float(y)} for x in (-4, -1, 2, 5) for y in (-5, 0, 3)]
VALUES = st.one_of(st.floats(-1e3, 1e3), st.floats(allow_nan=False, allow_infinity=False), st.none())
ROWS = st.lists(st.tuples(st.sampled_from(CHOICES), VALUES, st.sampled_from([0.0, 1.0])), min_size=1, max_size=12)


@given(ROWS)
@settings(max_examples=30)
def test_laws_of_recommendations(rows: list[tuple[dict[str, float], float | None, float]]) -> None:
    optimizer, mirrored = Optimizer(PLANE, seed=0), Optimizer(PLANE, seed=0, direction="maximize")
    for params, value, variance in rows:
        optimizer.observe(params, value, variance=variance)
        mirrored.observe(params, None if value is None else -value, variance=variance)
    evaluated = [(params, value) for params, value, _ in rows if value is not None]
    if not evaluated:
        return
    found, other = optimizer.recommend(), mirrored.recommend()
    there = [value for params, value in evaluated if params == found.params]
    assert len(there) == found.evaluations >= 1
    assert math.nextafter(min(there), -math.inf) <= found.measured <= math.nextafter(max(there), math.inf)
    assert found.low <= found.value <= found.high
    prediction = optimizer.predict(found.params)
    # The interval of a recommendation also considers what was measured there.
    assert prediction.value == found.value
    assert found.low <= prediction.low <= prediction.high <= found.high
    # Minimising f and maximising -f is the same.
    assert other.params == found.params
    assert (other.measured, other.evaluations) == (-found.measured, found.evaluations)
    assert (other.value, other.low, other.high) == (-found.value, -found.high, -found.low)
