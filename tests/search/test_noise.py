"""Noise that the optimiser finds by itself, and the repeats by which it is sure."""

import json
import math
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazybo import Priors, Space
from lazybo.search.optimizer import Optimizer
from lazybo.search.options import Options

SPACE = {f"x{j}": (-5.0, 5.0) for j in range(3)}


def rastrigin(x: np.ndarray) -> float:
    """Rugged, and without noise."""
    return float(np.sum(x**2 - 10 * np.cos(2 * np.pi * x)))


def bowl(x: np.ndarray) -> float:
    return float(np.sum((x - 1) ** 2))


def run(optimizer: Optimizer, objective: Callable[[np.ndarray], float], evaluations: int) -> list[tuple[float, ...]]:
    asked = []
    for _ in range(evaluations):
        suggestion = optimizer.ask()
        asked.append(tuple(suggestion.params.values()))
        optimizer.tell(suggestion, objective(np.array(asked[-1])))
    return asked


def repeated(points: list[tuple[float, ...]]) -> int:
    return sum(count - 1 for count in Counter(points).values())


@pytest.mark.parametrize(("dim", "share"), [(2, 0.15), (2, 0.62), (5, 0.15), (5, 0.62)])
def test_noise_of_random_points_is_learned_within_a_factor_of_two(dim: int, share: float) -> None:
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x = rng.random((60, dim))
        signal = ((x - 0.4) ** 2).sum(axis=1)
        variance = dim * (1 / 180 + (0.1**2) / 3)  # of (u - 0.4)² for a uniform u, by column
        noise = variance * share / (1 - share)
        y = signal + np.sqrt(noise) * rng.standard_normal(60)
        optimizer = Optimizer({f"x{j}": (0.0, 1.0) for j in range(dim)}, seed=seed)
        for point, value in zip(x.tolist(), y.tolist(), strict=True):
            optimizer.observe({f"x{j}": u for j, u in enumerate(point)}, value)
        found.append(optimizer.model.surrogate()[0].noise * y.var() / noise)
    assert sum(0.5 <= ratio <= 2.0 for ratio in found) >= 4


def test_a_rugged_objective_is_repeated_at_most_once_and_has_no_noise() -> None:
    for seed in range(2):
        optimizer = Optimizer(SPACE, seed=seed)
        assert repeated(run(optimizer, rastrigin, 35)) <= 1
        assert optimizer.model.surrogate()[0].noise <= Priors.NOISY * (1 + 1e-9)


def test_noise_is_found_shown_by_one_repeat_and_no_longer_doubted() -> None:
    for seed in range(2):
        rng, optimizer = np.random.default_rng(seed), Optimizer(SPACE, seed=seed)
        points = run(optimizer, lambda x, rng=rng: bowl(x) + 15 * rng.standard_normal(), 40)
        assert repeated(points) == 1
        assert optimizer.model.surrogate()[0].noise > Priors.NOISY


def test_while_noise_is_uncertain_quiet_and_noisy_particles_coexist() -> None:
    """A value that was measured twice settles the question."""
    rng, together = np.random.default_rng(2), 0
    for seed in range(6):
        optimizer = Optimizer(SPACE, seed=seed)
        for x in rng.uniform(-5, 5, (22, 3)):
            optimizer.observe(dict(zip(SPACE, x.tolist(), strict=True)), bowl(x) + 6 * rng.standard_normal())
        noises = [process.noise for process in optimizer.model.predictor().posterior.processes]
        together += min(noises) <= Priors.NOISY < max(noises)
        first = optimizer.state()["rows"][0]["params"]
        optimizer.observe(first, 40.0)
        optimizer.observe(first, 60.0)
        noises = [process.noise for process in optimizer.model.predictor().posterior.processes]
        assert min(noises) > Priors.NOISY
    assert together > 0


def test_an_objective_that_is_said_to_be_deterministic_is_never_repeated() -> None:
    optimizer = Optimizer(SPACE, seed=0, priors=Priors(noisy_odds=0.0))
    assert repeated(run(optimizer, rastrigin, 40)) == 0


def test_with_deterministic_nothing_is_repeated_and_the_best_is_recommended(tmp_path: Path) -> None:
    optimizer = Optimizer(SPACE, seed=0, deterministic=True)
    assert repeated(run(optimizer, rastrigin, 40)) == 0
    found, best = optimizer.recommend(), optimizer.best
    assert (found.params, found.number) == (best.params, best.number)
    assert found.measured == best.value
    assert found.value == pytest.approx(best.value, abs=1.0)
    first = optimizer.model.contenders()[0]
    assert (first.params, first.chance, first.measured) == (best.params, 1.0, best.value)
    assert optimizer.confirm() is None
    optimizer.save(tmp_path / "saved.json")
    loaded = Optimizer.load(tmp_path / "saved.json")
    assert loaded.recommend() == optimizer.recommend()
    assert loaded.ask() == optimizer.ask()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": 0.1}, "deterministic=True excludes noise, but noise is 0.1; drop one of them"),
        ({"priors": Priors(noise=0.1)}, "deterministic=True excludes noise, but the priors expect a noise of 0.1"),
    ],
)
def test_what_contradicts_deterministic_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Options(deterministic=True, **options)


def test_repeats_that_agree_make_the_best_value_the_recommended_one_and_others_do_not() -> None:
    points = np.random.default_rng(6).uniform(0, 1, 14).tolist()

    def rugged(x: float) -> float:
        return x * x + 0.2 * math.sin(60 * x) ** 2 + 0.003 * math.cos(900 * x)

    best = min(points, key=rugged) + 1e-4
    for other, exact in ((0.0, True), (0.02, False)):
        optimizer = Optimizer({"x": (0.0, 1.0)}, seed=0)
        for x, more in [*((x, 0.0) for x in points), (points[3], other), (points[3], 0.0), (best, 0.0)]:
            optimizer.observe({"x": x}, rugged(x) + more)
        assert optimizer.model.predictor().exact == exact
        assert not exact or optimizer.recommend().measured == optimizer.best.value
    optimizer = Optimizer({"x": (0.0, 1.0)}, seed=0, deterministic=True)
    for x, value in ((0.1, 1.0), (0.2, 0.5), (0.1, 2.0)):
        optimizer.observe({"x": x}, value)
    assert not optimizer.model.predictor().exact, "a repeat has shown that it is not deterministic"


def test_known_variances_are_believed_and_nothing_is_repeated() -> None:
    rng, optimizer = np.random.default_rng(0), Optimizer(SPACE, seed=0)
    points = []
    for _ in range(30):
        suggestion = optimizer.ask()
        points.append(tuple(suggestion.params.values()))
        optimizer.tell(suggestion, bowl(np.array(points[-1])) + 15 * rng.standard_normal(), variance=225.0)
    assert repeated(points) == 0


def test_a_repeat_that_fails_is_tried_again_but_not_for_ever() -> None:
    rng, optimizer = np.random.default_rng(3), Optimizer(SPACE, seed=3)
    for x in rng.uniform(-5, 5, (40, 3)):
        optimizer.observe(dict(zip(SPACE, x.tolist(), strict=True)), bowl(x) + 15 * rng.standard_normal())
    known = {tuple(row["params"].values()) for row in optimizer.state()["rows"]}
    failures = 0
    for _ in range(8):
        suggestion = optimizer.ask()
        again = tuple(suggestion.params.values()) in known
        failures += again
        optimizer.tell(suggestion, None if again else bowl(np.array(list(suggestion.params.values()))))
    assert 1 <= failures <= 3


def test_a_run_that_is_restored_before_and_after_its_repeat_goes_on_as_if_never_stopped() -> None:
    def noisy(x: np.ndarray) -> float:
        return bowl(x) + 15 * float(np.random.default_rng(zlib.crc32(x.tobytes())).standard_normal())

    whole = Optimizer(SPACE, seed=1)
    expected = run(whole, noisy, 24)
    stopped, asked = Optimizer(SPACE, seed=1), []
    for _ in range(24):
        stopped_state = json.loads(json.dumps(stopped.state()))
        stopped = Optimizer(SPACE, seed=1)
        stopped.restore(stopped_state)
        asked += run(stopped, noisy, 1)
    assert asked == expected


def in_doubt(space: Space | dict[str, tuple[float, float]]) -> Optimizer:
    """An optimiser that takes all values for noisy."""
    return Optimizer(space, seed=0, lag=None, noise=0.3, n_startup=0)


def test_a_suggestion_where_no_row_has_measured_all_constraints() -> None:
    rng, optimizer = np.random.default_rng(0), in_doubt({"a": (0.0, 1.0), "b": (0.0, 1.0)})
    for i, (a, b, value) in enumerate(rng.random((10, 3)).tolist()):
        optimizer.observe({"a": a, "b": b}, value, constraints={"pq"[i % 2]: 1.0 + value})
    assert optimizer.ask().params.keys() == {"a", "b"}


def test_a_repeat_is_the_same_configuration_to_the_last_bit() -> None:
    for value in np.random.default_rng(0).uniform(0.1, 0.7, 64).tolist():
        optimizer = in_doubt({"a": (0.1, 0.7)})
        optimizer.observe({"a": value}, 0.0)
        assert optimizer.planner.propose(0)[0] == {"a": value}
        assert optimizer.ask().params == {"a": value}


def test_a_few_known_variances_do_not_hide_the_noise_of_the_other_values() -> None:
    """As in a study with pruned trials, which teach forecasts with their variances."""
    rng, optimizer = np.random.default_rng(3), Optimizer(SPACE, seed=3)
    for i, x in enumerate(rng.uniform(-5, 5, (60, 3))):
        params = dict(zip(SPACE, x.tolist(), strict=True))
        optimizer.observe(params, bowl(x) + 15 * rng.standard_normal(), variance=1.0 if i % 6 == 0 else 0.0)
    assert optimizer.model.surrogate()[0].noise > Priors.NOISY


@pytest.mark.parametrize("n", [41, 58, 437])
def test_noise_is_found_however_many_values_are_known_from_the_start(n: int) -> None:
    """As with earlier results, or in a study of another sampler."""
    rng, optimizer = np.random.default_rng(n), Optimizer({"x": (0.0, 1.0), "y": (0.0, 1.0)}, seed=0)
    for x, y in rng.random((n, 2)).tolist():
        optimizer.observe({"x": x, "y": y}, (x - 0.3) ** 2 + (y - 0.5) ** 2 + 0.1 * rng.standard_normal())
    assert optimizer.model.surrogate()[0].noise > 0.1
