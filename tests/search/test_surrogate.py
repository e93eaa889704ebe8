from typing import Any

import numpy as np
import pytest
from optuna.distributions import FloatDistribution

from lazybo.search.acquisition import Acquired, log_expected_improvement
from lazybo.search.optimizer import Optimizer

LINE = {"x": FloatDistribution(-5.0, 5.0)}
PLANE = {"x": FloatDistribution(-5.0, 5.0), "y": FloatDistribution(-5.0, 5.0)}


def test_the_incumbent_is_the_best_posterior_mean_and_not_the_luckiest_value() -> None:
    rng, given = np.random.default_rng(0), []

    def acquisition(mean: np.ndarray, std: np.ndarray, best: float) -> Acquired:
        given.append(best)
        return log_expected_improvement(mean, std, best)

    optimizer = Optimizer(LINE, seed=3, acquisition=acquisition)
    for x in np.linspace(-5, 5, 41):
        optimizer.observe({"x": float(x)}, x**2 + 3 * rng.standard_normal())
    optimizer.observe({"x": 4.0}, -8.0)
    given.clear()  # the optimiser has tried the function
    optimizer.planner.propose(0)[0]
    posterior = optimizer.model.predictor().posterior
    np.testing.assert_allclose(given, posterior.mean(posterior.X).min(), atol=1e-6)
    assert given[0] > posterior.targets.min() + 1.0, "the lucky value is far below"


def test_a_failure_says_nothing_about_values() -> None:
    optimizers = [Optimizer(LINE, seed=0) for _ in range(2)]
    for optimizer in optimizers:
        for x in (-4.0, -1.0, 0.5, 3.0):
            optimizer.observe({"x": x}, x**2)
    optimizers[1].observe({"x": 2.0}, None)
    grid = np.linspace(-5, 5, 50)
    found = [optimizer.predict([{"x": x} for x in grid]) for optimizer in optimizers]
    for without, failed in zip(*found, strict=True):
        assert (failed.value, failed.low, failed.high) == pytest.approx((without.value, without.low, without.high))


def test_a_repeat_that_failed_is_as_bad_as_the_worst_value() -> None:
    optimizer = Optimizer(LINE, seed=0)
    for x in (-4.0, -1.0, 0.5, 3.0):
        optimizer.observe({"x": x}, x**2)
    optimizer.observe({"x": 0.5}, None)
    process, warping = optimizer.model.surrogate()
    assert process.targets[-1] == process.targets[:-1].max() == warping(np.array([16.0]))[0]
    assert not process.known_variances.any()


def test_known_variances_follow_the_scale_of_the_values_and_small_changes_cost_nothing() -> None:
    optimizer = Optimizer(LINE, seed=0, lag=None, n_startup=0, value_transform="scaled")

    def observe(xs: np.ndarray, factor: float) -> Any:
        for x in xs:
            optimizer.observe({"x": float(x)}, factor * np.sin(x), variance=0.01)
        optimizer.planner.propose(0)[0]
        return optimizer.model.surrogate()[0]

    built = observe(np.linspace(-5, 5, 20), 1.0)
    grown = observe(np.linspace(-4.9, 4.9, 4), 1.2)
    np.testing.assert_array_equal(grown.known_variances[:20], built.known_variances, "their scale has hardly changed")
    rebuilt = observe(np.linspace(-4.8, 4.8, 20), 100.0)
    assert (rebuilt.known_variances[:20] != built.known_variances).all()
    _, warping = optimizer.model.surrogate()
    np.testing.assert_allclose(rebuilt.known_variances, warping.variances(np.full(44, 0.01)))


def test_nothing_is_suggested_next_to_a_pending_point() -> None:
    """With much noise the best place stays the best one, although it is being evaluated already."""
    optimizer = Optimizer(LINE, seed=0, lag=None, noise=1.0, n_startup=0)
    for x in np.linspace(-5, 5, 21):
        optimizer.observe({"x": float(x)}, x**2)
    length = optimizer.model.surrogate()[0].kernel.ranges[0] * 10.0
    asked = np.sort([optimizer.ask().params["x"] for _ in range(8)])
    assert np.diff(asked).min() >= 0.0199 * length
    assert np.diff(asked).min() < 0.1 * length, "the gap is what keeps them apart"


def answers(optimizer: Optimizer, at: np.ndarray) -> list[Any]:
    """What was given out, and what it says."""
    process, warping = optimizer.model.surrogate()
    limits, success = optimizer.model.limits()
    return [optimizer.model.predictor(), process, warping, limits["c"], success, at]


def said(kept: list[Any]) -> list[Any]:
    predictor, process, warping, limit, success, at = kept
    posteriors = [each.posterior for each in (predictor, limit, success)]
    return [
        predictor.predictions(at),
        *(each.posterior(at) for each in (process, *posteriors)),
        *(each.X for each in posteriors),
        *(each.targets for each in posteriors),
        process.n,
        process.targets,
        warping,
        [each.threshold for each in (limit, success)],
    ]


@pytest.mark.parametrize("lag", [50, None])
@pytest.mark.parametrize("before", [20, 250])
def test_what_the_model_gave_out_does_not_change(lag: int | None, before: int) -> None:
    """Whatever follows: values, forecasts that cut rows out, failures, corrections, and 300 rows in one panel."""
    optimizer = Optimizer(PLANE, seed=1, lag=lag, n_startup=0, local_after=None)
    at, kept = np.random.default_rng(2).random((4, 2)), []

    def step(i: int) -> None:
        suggestion = optimizer.ask() if i % 5 == 0 and i >= before else optimizer.announce(somewhere(i))
        x, y = suggestion.params.values()
        if i % 4 == 3:
            optimizer.forecast(suggestion, x**2 + y, 4.0)
        value = None if i % 7 == 6 else x**2 + np.sin(3 * y)
        optimizer.tell(suggestion, value, variance=0.1 * (i % 2), constraints={"c": x + y})

    def somewhere(i: int) -> dict[str, float]:
        return dict(zip("xy", np.random.default_rng(i).uniform(-5, 5, 2).tolist(), strict=True))

    for i in range(before):
        step(i)
    for i in range(before, before + 12):
        step(i)
        found = answers(optimizer, at)
        kept.append((found, said(found)))
    optimizer.correct(3, 2.0)
    optimizer.ask()
    for found, expected in kept:
        for now, then in zip(said(found), expected, strict=True):
            np.testing.assert_equal(now, then)


def test_a_process_that_was_given_out_can_be_changed_without_changing_the_optimiser() -> None:
    changed, other = (Optimizer(LINE, seed=0, lag=None) for _ in range(2))
    for optimizer in (changed, other):
        for x in np.linspace(-5, 5, 8):
            optimizer.observe({"x": float(x)}, np.sin(x))
    process, _ = changed.model.surrogate()
    process.append([[0.3], [0.4]], [3.0, 4.0])
    process.truncate(2)
    process.append([[0.1]], [-5.0])
    for _ in range(3):
        suggestion = changed.ask()
        assert suggestion == other.ask()
        for optimizer in (changed, other):
            optimizer.tell(suggestion, np.sin(suggestion.params["x"]))


def test_forecasts_do_not_change_the_warping_of_measured_values() -> None:
    optimizers = [Optimizer(LINE, seed=0, lag=None, n_startup=0) for _ in range(2)]
    for optimizer in optimizers:
        for x in np.linspace(-5, 5, 8):
            optimizer.observe({"x": float(x)}, x**2)
    for x in np.linspace(-4.9, 4.9, 40):
        optimizers[0].forecast(optimizers[0].announce({"x": float(x)}), 9.0, 4.0, stopped=True)
    with_forecasts, without = (optimizer.model.surrogate()[1] for optimizer in optimizers)
    assert with_forecasts == without
