"""Acquisition functions, alone and together with constraints, failures and costs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import approx_fprime
from scipy.stats import norm

from lazybo.search.acquisition import (
    ACQUISITIONS,
    Acquired,
    Acquisition,
    confidence_bound,
    expected_improvement,
    log_confidence_bound,
    log_expected_improvement,
    probability_of_improvement,
)
from lazybo.search.models import CAUTION
from lazybo.search.optimizer import Optimizer
from lazybo.search.output import FailureLabels


@pytest.mark.parametrize("part", ["function", "logarithm"])
@pytest.mark.parametrize("name", ["ei", "pi", "ucb"])
@settings(max_examples=40)
@given(mean=st.floats(-3, 3), std=st.floats(0.05, 3), best=st.floats(-3, 3))
def test_derivatives(name: str, part: str, mean: float, std: float, best: float) -> None:
    function = getattr(ACQUISITIONS[name], part)

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
    got = expected_improvement(np.array([mean]), np.array([std]), best, xi).value[0]
    assert got == pytest.approx(expected, rel=1e-6)
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
    assert expected_improvement(mean, std, 0.5).value[0] < 1e-11
    for acquisition in (log_expected_improvement, probability_of_improvement):
        got = acquisition(mean + 1.0, std, 0.5)
        assert np.isfinite(got.value).all()


def test_exploration_moves_expected_improvement_away_from_the_mean() -> None:
    mean, std = np.array([-0.1, 0.0]), np.array([0.05, 0.5])
    greedy = expected_improvement(mean, std, 0.0, 0.0).value
    bold = expected_improvement(mean, std, 0.0, 0.5).value
    assert bold[1] / bold[0] > greedy[1] / greedy[0]


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
def test_only_logarithms_are_added_to_logarithms(others: set[str]) -> None:
    """The function itself is maximised only if nothing is added to it."""
    used: list[str] = []

    def function(mean: np.ndarray, std: np.ndarray, best: float) -> Acquired:
        used.append("function")
        return confidence_bound(mean, std, best)

    def logarithm(mean: np.ndarray, std: np.ndarray, best: float) -> Acquired:
        used.append("logarithm")
        return log_confidence_bound(mean, std, best)

    acquisition = Acquisition(function, logarithm)
    arguments = {name: name in others for name in ("constraint", "failure", "cost")}
    optimizer = told(acquisition, **arguments)
    used.clear()  # both were tried
    suggestion = optimizer.ask()
    assert set(used) == ({"logarithm"} if others else {"function"})
    assert suggestion == told("ucb", **arguments).ask()


@pytest.mark.parametrize(("constraint", "failure"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("name", ["logei", "ei", "pi", "ucb"])
def test_the_joint_acquisition_is_a_sum_of_logarithms(name: str, constraint: bool, failure: bool) -> None:
    optimizer = told(name, constraint=constraint, failure=failure)
    models, u = optimizer.model.search.models, np.random.default_rng(1).random((7, 2))
    surface, rows = models.surface(0, np.random.default_rng(0), ACQUISITIONS[name])
    limits, success = optimizer.model.limits()
    process, _ = optimizer.model.surrogate()
    mean, variance = process.posterior(u)
    best = float(process.smoothed()[rows[0]])
    expected = ACQUISITIONS[name].logarithm(mean, np.sqrt(variance), best).value
    assert len(limits) == constraint
    assert (success is not None) == failure
    weighted = [(limit, CAUTION) for limit in limits.values()]
    if success is not None:
        weighted.append((success, FailureLabels(optimizer.planner.records).caution))
    for limit, weight in weighted:
        mean, variance = limit.process.posterior(u)
        expected = expected + weight * norm.logcdf((limit.threshold - mean) / np.sqrt(variance))
    np.testing.assert_allclose(surface.exact(u), expected, rtol=1e-9)
