"""How much more evaluations are expected to gain."""

from typing import Any

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from lazybo import Matern52, Optimizer
from lazybo.gp import Posterior, Process, Warping
from lazybo.search.acquisition import log_expected_improvement
from lazybo.search.gain import LEAST_SHARE, GainParts, earlier_gains, play, played_gains

PLANE = {"x": FloatDistribution(-5.0, 5.0), "y": FloatDistribution(-5.0, 5.0)}


def bowl(params: dict[str, Any]) -> float:
    return float((params["x"] - 1.0) ** 2 + (params["y"] + 2.0) ** 2)


def searched(steps: int, sign: float = 1.0, scale: float = 1.0, **options: Any) -> Optimizer:
    optimizer = Optimizer(PLANE, seed=0, **options)
    for _ in range(steps):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, sign * scale * bowl(suggestion.params))
    return optimizer


def small_process(noise: float) -> tuple[Process, Any]:
    rng = np.random.default_rng(0)
    x = rng.random((6, 2))
    process = Process(Matern52([0.4, 0.6]), noise)
    process.append(x, rng.normal(size=6))
    return process, np.vstack((x, rng.random((10, 2))))


def test_the_gain_of_one_evaluation_without_noise_is_the_expected_improvement() -> None:
    process, points = small_process(1e-9)
    best = play(Posterior([process]), points, 6, 1, np.random.default_rng(0), futures=20_000)
    mean, variance = process.posterior(points[6:])
    expected = np.exp(log_expected_improvement(mean, np.sqrt(variance), float(best[0, 0])).value.max())
    assert float(np.mean(best[:, 0] - best[:, 1])) == pytest.approx(float(expected), rel=0.05)


@pytest.mark.parametrize("noise", [1e-6, 0.3])
def test_a_future_is_what_a_process_would_be_told(noise: float) -> None:
    """The naive twin: after all points were evaluated in one future, their means follow from the values drawn."""
    process, points = small_process(noise)
    rng = np.random.default_rng(3)
    best = play(Posterior([process]), points, 6, 12, rng, futures=4)
    assert best.shape == (4, 13)
    assert (best[:, 10:] == best[:, 10:11]).all(), "no candidate is left after ten"
    drawn = np.random.default_rng(3).spawn(1)[0].standard_normal((10, 4))
    for future in range(4):
        told = Process(process.kernel, noise)
        told.append(process.X, process.targets)
        left = list(range(6, 16))
        for step in range(10):
            mean, variance = told.posterior(points[left])
            acquired = log_expected_improvement(mean, np.sqrt(variance), best[future, step]).value
            i = int(np.argmax(acquired))
            value = mean[i] + np.sqrt(variance[i] + noise) * drawn[step, future]
            told.append(points[left[i]][None], [value])
            left.pop(i)
            seen = [j for j in range(16) if j not in left]
            assert best[future, step + 1] == pytest.approx(told.mean(points[seen]).min(), abs=1e-6)


def test_gains_are_in_the_units_of_the_objective() -> None:
    warping = Warping.fit("scaled", np.array([10.0, 30.0]))
    best = warping(np.array([20.0, 16.0, 8.0]))[None]
    assert played_gains(best, warping, [1, 2]).tolist() == pytest.approx([4.0, 12.0])


def test_earlier_gains_are_those_of_the_same_proportion() -> None:
    values = np.array([30.0, 20.0, 25.0, 12.0, 9.0, 10.0, 8.0, 8.5, 9.0, 7.0])
    warping = Warping.fit("scaled", values)
    # Of ten evaluations: the last 5 of 10 are to 5 what 10 more are to 10.
    assert earlier_gains(warping(values), warping, [10, 1000]).tolist() == pytest.approx([2.0, 23.0])
    parts = GainParts(np.array([4.0, 4.0]), np.array([1.0, 0.0]))
    assert parts.expected() == pytest.approx([2.0, 4.0 * LEAST_SHARE**0.5])


def test_differences_of_the_largest_doubles_do_not_overflow() -> None:
    optimizer = Optimizer(PLANE, seed=0)
    for x, value in ((0.0, 1e308), (1.0, -1e308), (2.0, 1.5e308), (3.0, 0.0)):
        optimizer.observe({"x": x, "y": 0.0}, value)
    assert all(np.isfinite(optimizer.model.gain_parts([1, 10]).expected()))


def test_more_evaluations_gain_more_and_a_search_that_has_ended_little() -> None:
    early, late = searched(8), searched(40)
    few, more, most = early.model.gain_parts([1, 10, 50]).expected()
    assert 0 < few < more <= 1.2 * most
    assert late.model.expected_gain() < 0.01 * more


@pytest.mark.parametrize("seed", range(6))
def test_more_evaluations_never_gain_less(seed: int) -> None:
    """However noisy, and whether the counts are asked for together or one by one."""
    optimizer, rng = Optimizer(PLANE, seed=seed), np.random.default_rng(seed)
    for _ in range(3 + 3 * seed):
        params = {name: float(rng.uniform(-5, 5)) for name in PLANE}
        optimizer.observe(params, bowl(params) / 10 + 3.0 * float(rng.standard_normal()))
    counts = [1, 5, 10, 50, 100]
    gains = optimizer.model.gain_parts(counts).expected()
    assert gains == sorted(gains)
    assert [optimizer.model.expected_gain(count) for count in counts] == gains


def test_both_directions_and_any_scale_expect_the_same() -> None:
    one = searched(10).model.expected_gain(5)
    assert searched(10, sign=-1.0, direction="maximize").model.expected_gain(5) == one
    assert searched(10, scale=2.0**40).model.expected_gain(5) == pytest.approx(2.0**40 * one)


def test_spaces_that_are_small_or_do_not_vary() -> None:
    space = {"kind": CategoricalDistribution(["a", "b"]), "n": IntDistribution(1, 3)}
    optimizer = Optimizer(space, seed=0)
    for n in (1, 2, 3):
        optimizer.observe({"kind": "a", "n": n}, float(n))
    assert optimizer.model.expected_gain(100) >= 0.0
    for n in (1, 2, 3):
        optimizer.observe({"kind": "b", "n": n}, float(n))
    assert optimizer.model.expected_gain(10) == pytest.approx(0.0, abs=0.1)
    still = Optimizer({"only": IntDistribution(3, 3)})
    still.observe({"only": 3}, 1.0)
    assert still.model.expected_gain() == 0.0


def test_wrong_numbers_and_no_values_are_refused() -> None:
    with pytest.raises(ValueError, match="no evaluation has succeeded"):
        Optimizer(PLANE).model.expected_gain()
    optimizer = searched(3)
    for wrong in (0, -1, 1.5, "3"):
        with pytest.raises(ValueError, match="n must be"):
            optimizer.model.expected_gain(wrong)  # type: ignore[arg-type]
