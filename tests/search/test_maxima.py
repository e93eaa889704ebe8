"""The search for maxima of an acquisition function."""

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from lazybo import Matern52, Optimizer, Permutation, Space
from lazybo.gp import Posterior, Process
from lazybo.search.acquisition import improvement, log_expected_improvement
from lazybo.search.maximise import Maximum, Surface, find_maxima

Taken: TypeAlias = Callable[[np.ndarray], np.ndarray]


def cube(dim: int) -> Space:
    return Space({f"x{j}": FloatDistribution(0.0, 1.0) for j in range(dim)})


def nothing_taken(points: np.ndarray) -> np.ndarray:
    return np.zeros(len(points), dtype=bool)


def found_on(
    gp: Process, space: Space, pool: int, incumbents: np.ndarray, taken: Taken, rng: np.random.Generator, **options: Any
) -> list[Maximum]:
    """The maxima of log EI, or of another acquisition, with a pool of this many points."""
    joint = options.pop("joint", improvement(log_expected_improvement, float(gp.targets.min())))
    mixture, points = Posterior([gp]), space.points.spread(rng, pool)
    surface = Surface(gp.kernel, [mixture], points, joint)
    return find_maxima(surface, space, incumbents, taken, rng, **options)


def test_all_local_maxima_of_a_known_curve_are_found(rng: np.random.Generator) -> None:
    """One dimension, against a fine grid: the paper's figure 3."""
    space, gp = cube(1), Process(Matern52([0.08]), 1e-6)
    x = np.linspace(0.03, 0.97, 8)[:, None]
    gp.append(x, np.sin(9 * x[:, 0]))
    best = float(gp.targets.min())
    grid = np.linspace(0, 1, 4001)[:, None]
    mean, variance = gp.posterior(grid)
    curve = log_expected_improvement(mean, np.sqrt(variance), best).value
    inner = np.flatnonzero((curve[1:-1] > curve[:-2]) & (curve[1:-1] > curve[2:])) + 1
    edges = [i for i, j in ((0, 1), (4000, 3999)) if curve[i] > curve[j]]
    tops = grid[[*inner, *edges], 0]
    found = found_on(gp, space, 256, x[:2], nothing_taken, rng, starts=40)
    places = np.array([maximum.x[0] for maximum in found])
    for top in tops:
        assert np.abs(places - top).min() < 0.01, f"the maximum at {top} is missing"
    for place in places:
        assert np.abs(tops - place).min() < 0.01, f"{place} is no maximum"
    values = [maximum.value for maximum in found]
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(curve.max(), abs=1e-2)


def test_discrete_moves_find_the_best_of_a_small_space(rng: np.random.Generator) -> None:
    space = Space(
        {"a": IntDistribution(0, 9), "b": CategoricalDistribution("pqrs"), "c": IntDistribution(1, 64, log=True)}
    )
    gp = Process(Matern52([0.3, 1.0, 0.5], columns=space.points.columns), 1e-4)
    x = space.points.sample(rng, 30)
    gp.append(x, np.sin(3 * x).sum(axis=1))
    best = float(gp.targets.min())
    every = np.array(list(space.points.listed()))
    mean, variance = gp.posterior(every)
    values = log_expected_improvement(mean, np.sqrt(variance), best).value
    known = {point.tobytes() for point in x}

    def taken(points: np.ndarray) -> np.ndarray:
        return np.array([point.tobytes() in known for point in points])

    values[taken(every)] = -np.inf
    found = found_on(gp, space, 128, x[:4], taken, rng)
    assert found[0].value == pytest.approx(values.max(), abs=1e-6)
    assert not taken(np.array([maximum.x for maximum in found])).any()


@pytest.mark.parametrize("seed", range(3))
def test_a_maximum_is_to_the_last_bit_the_point_of_its_configuration(seed: int) -> None:
    """So the solution of the point that is chosen is that of the row appended next."""
    rng = np.random.default_rng(seed)
    space = Space({"a": FloatDistribution(1e-5, 0.3, log=True), "b": FloatDistribution(1e-9, 11.0, log=True)})
    gp, x = Process(Matern52([0.08, 0.08]), 1e-4), rng.random((40, 2))
    gp.append(x, np.sin(7 * x).sum(axis=1))
    for maximum in found_on(gp, space, 64, x[:2], nothing_taken, rng):
        np.testing.assert_array_equal(maximum.x, space.points.encode(space.points.decode(maximum.x)))


@pytest.mark.parametrize("seed", range(4))
def test_every_maximum_of_a_mixed_space_is_one_along_its_numbers(seed: int) -> None:
    """Each choice has its optimum elsewhere: after a move to another choice there is more to climb."""
    rng = np.random.default_rng(seed)
    space = Space({"c": CategoricalDistribution("pqrst"), "x": FloatDistribution(0.0, 1.0)})
    gp = Process(Matern52([2.0, 0.15], columns=space.points.columns), 1e-4)
    x = space.points.sample(rng, 25)
    gp.append(x, np.sin(9 * x[:, 1] + 2 * x[:, 0]) + 0.3 * x[:, 0])
    best = float(gp.targets.min())

    def acquisition(points: np.ndarray) -> np.ndarray:
        mean, variance = gp.posterior(points)
        return log_expected_improvement(mean, np.sqrt(variance), best).value

    for maximum in found_on(gp, space, 64, x[:4], nothing_taken, rng):
        beside = np.repeat(maximum.x[None], 2, axis=0)
        beside[:, 1] = np.clip(beside[:, 1] + [-0.03, 0.03], 0, 1)
        assert acquisition(beside).max() < maximum.value + 0.05


def test_a_batch_of_maxima_with_an_order_a_predicate_and_a_cost_is_no_long_search() -> None:
    """Calls are counted, not seconds: half a second of them, where it once were thirteen seconds."""
    space = Space(
        {"o": Permutation(list("abcdefgh")), "x": (0.0, 1.0), "y": (1, 100, "log"), "k": ["a", "b", "c"]},
        feasible=lambda params: params["x"] <= 0.8 or params["k"] != "a",
    )
    optimizer = Optimizer(space, seed=0, acquisition="pi", batch="maxima", cost="seconds")
    for point in space.points.sample(np.random.default_rng(0), 47):
        params = space.values(space.points.decode(point))
        value = params["x"] ** 2 + params["y"] / 100 + params["o"].index("a")
        optimizer.observe(params, value, seconds=1.0 + params["y"])
    calls = 0

    def count(frame: Any, event: str, arg: object) -> None:  # noqa: ARG001
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        asked = optimizer.ask(4)
    finally:
        sys.setprofile(before)
    assert len(asked) == 4
    assert calls < 2_000_000
