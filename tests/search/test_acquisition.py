"""Acquisition functions, alone and together with constraints, failures and costs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import approx_fprime
from scipy.special import logsumexp
from scipy.stats import norm

from lazybo.search.acquisition import (
    ACQUISITIONS,
    Acquired,
    Acquisition,
    Function,
    log_confidence_bound,
    log_expected_improvement,
    probability_of_improvement,
)
from lazybo.search.models import CAUTION
from lazybo.search.optimizer import Optimizer
from lazybo.search.output import FailureLabels


@pytest.mark.parametrize("function", [each.function for each in ACQUISITIONS.values()])
@settings(max_examples=40)
@given(mean=st.floats(-3, 3), std=st.floats(0.05, 3), best=st.floats(-3, 3))
def test_derivatives(function: Function, mean: float, std: float, best: float) -> None:
    def value(at: np.ndarray) -> float:
        return float(function(at[:1], at[1:], best).value[0])

    got = function(np.array([mean]), np.array([std]), best)
    numeric = approx_fprime(np.array([mean, std]), value, 1e-7)
    np.testing.assert_allclose([got.by_mean[0], got.by_std[0]], numeric, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("mean", "std", "best", "xi"), [(0.0, 1.0, 0.5, 0.0), (1.0, 0.3, 0.0, 0.01), (-2.0, 2.0, 0.0, 0.1)]
)
def test_expected_improvement_is_the_expectation_of_the_improvement(
    mean: float, std: float, best: float, xi: float
) -> None:
    expected = quad(lambda f: max(best - xi - f, 0.0) * norm.pdf(f, mean, std), mean - 9 * std, best - xi)[0]
    log = log_expected_improvement(np.array([mean]), np.array([std]), best, xi).value[0]
    assert log == pytest.approx(np.log(expected), abs=1e-6)


def test_log_expected_improvement_is_smooth_far_into_the_tail() -> None:
    z = -np.unique(np.concatenate((np.linspace(0, 5, 2001), np.geomspace(5, 1e8, 4001))))
    got = log_expected_improvement(-z, np.ones_like(z), 0.0)
    assert np.isfinite(got.value).all()
    assert (np.diff(got.value) < 0).all(), "always falling"
    # In the tail log h = -z²/2 - log √(2π) - 2 log|z| + log(1 - 3/z² + 15/z⁴ …).
    tail = (z < -50) & (z > -1e6)
    w = z[tail]
    series = -0.5 * w**2 - 0.5 * np.log(2 * np.pi) - 2 * np.log(-w) + np.log1p(-3 / w**2 + 15 / w**4)
    np.testing.assert_allclose(got.value[tail], series, rtol=1e-10)
    np.testing.assert_allclose(-got.by_mean[tail], -w, rtol=1e-2)


def test_a_known_point_is_never_an_improvement() -> None:
    mean, std = np.array([0.5]), np.array([0.0])
    assert log_expected_improvement(mean, std, 0.5).value[0] < np.log(1e-11)
    for acquisition in (log_expected_improvement, probability_of_improvement):
        got = acquisition(mean + 1.0, std, 0.5)
        assert np.isfinite(got.value).all()


def test_exploration_moves_expected_improvement_away_from_the_mean() -> None:
    mean, std = np.array([-0.1, 0.0]), np.array([0.05, 0.5])
    greedy = log_expected_improvement(mean, std, 0.0, 0.0).value
    bold = log_expected_improvement(mean, std, 0.0, 0.5).value
    assert bold[1] - bold[0] > greedy[1] - greedy[0]


# ------------------------------------------------- together with other outputs


def told(acquisition: str | Acquisition, *, constraint: bool, failure: bool, cost: bool = False) -> Optimizer:
    optimizer = Optimizer(
        {"x": (0.0, 1.0), "y": (0.0, 1.0)}, seed=0, acquisition=acquisition, cost="seconds" if cost else None
    )
    for i, (x, y) in enumerate(np.random.default_rng(0).random((10, 2)).tolist()):
        value = None if failure and i % 4 == 3 else (x - 0.7) ** 2 + y
        constraints = {"c": 0.4 - x} if constraint else None
        optimizer.observe({"x": x, "y": y}, value, constraints=constraints, seconds=1.0 + i)
    return optimizer


@pytest.mark.parametrize("others", [{"constraint"}, {"failure"}, {"cost"}, {"constraint", "failure", "cost"}, set()])
def test_a_function_of_the_user_is_used_as_one_of_ours(others: set[str]) -> None:
    def function(mean: np.ndarray, std: np.ndarray, best: float) -> Acquired:
        return log_confidence_bound(mean, std, best)

    arguments = {name: name in others for name in ("constraint", "failure", "cost")}
    assert told(Acquisition(function), **arguments).ask() == told("ucb", **arguments).ask()


@pytest.mark.parametrize(("constraint", "failure"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("name", ["logei", "ei", "pi", "ucb"])
def test_the_joint_acquisition_is_a_sum_of_logarithms(name: str, constraint: bool, failure: bool) -> None:
    optimizer = told(name, constraint=constraint, failure=failure)
    models, u = optimizer.model.search.models, np.random.default_rng(1).random((7, 2))
    surface, rows = models.surface(0, np.random.default_rng(0), ACQUISITIONS[name])
    limits, success = optimizer.model.limits()
    posterior = optimizer.model.predictor().posterior
    best = float(posterior.smoothed()[rows[0]])
    weights, mean, std = posterior.components(u)
    expected = logsumexp(weights[:, None] + ACQUISITIONS[name].function(mean, std, best).value, axis=0)
    assert len(limits) == constraint
    assert (success is not None) == failure
    weighted = [(limit, CAUTION) for limit in limits.values()]
    if success is not None:
        weighted.append((success, FailureLabels(optimizer.planner.records).caution))
    for limit, weight in weighted:
        weights, mean, std = limit.posterior.components(u)
        chances = weight * norm.logcdf((limit.threshold - mean) / std)
        expected = expected + logsumexp(weights[:, None] + chances, axis=0)
    np.testing.assert_allclose(surface.exact(u), expected, rtol=1e-9)
