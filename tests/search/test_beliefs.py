"""Beliefs in a search: they guide the first suggestions, fade, and are saved with an optimiser."""

from typing import Any

import numpy as np
import pytest

from lazybo import Belief, Optimizer, Space
from lazybo.search.acquisition import check_acquisition

PARAMETERS = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


def believing(x: float, y: float, within: float = 0.1, **more: Any) -> Space:
    beliefs = {"x": Belief(around=x, within=within), "y": Belief(around=y, within=within)}
    return Space(PARAMETERS, beliefs=beliefs, **more)


def bowl(params: dict[str, float]) -> float:
    return (params["x"] - 0.2) ** 2 + (params["y"] - 0.7) ** 2


def search(space: Space | dict[str, Any], count: int, seed: int = 0, **options: Any) -> Optimizer:
    optimizer = Optimizer(space, seed=seed, **options)
    for _ in range(count):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, bowl(suggestion.params))
    return optimizer


def best(optimizer: Optimizer) -> float:
    return float(optimizer.best.value)


def test_the_first_suggestion_is_where_the_optimum_is_expected() -> None:
    first = Optimizer(believing(0.3, 0.6), seed=4).ask()
    assert first.params == pytest.approx({"x": 0.3, "y": 0.6})


def test_half_of_the_startup_points_are_spread_as_without_beliefs() -> None:
    told, plain = (search(space, 5).records() for space in (believing(0.3, 0.6), PARAMETERS))
    assert [row["params_x"] for row in told[1::2]] == [row["params_x"] for row in plain[1::2]]
    assert all(row["params_x"] != other["params_x"] for row, other in zip(told[::2], plain[::2], strict=True))


def test_a_good_belief_helps_and_a_wrong_one_does_no_lasting_harm() -> None:
    seeds = range(4)
    plain, good, wrong = (
        [search(space, 12, seed) for seed in seeds]
        for space in (PARAMETERS, believing(0.22, 0.68), believing(0.9, 0.1))
    )
    assert np.mean([best(each) for each in good]) <= np.mean([best(each) for each in plain])
    assert max(best(each) for each in wrong) < 0.01
    assert max(best(search(believing(0.9, 0.1), 25, seed)) for seed in seeds) < 1e-3


def test_the_density_is_added_to_the_acquisition_and_fades() -> None:
    u = np.random.default_rng(0).random((16, 2))
    believed = believing(0.3, 0.6).believed
    assert believed is not None
    density, slope = believed.log_density(u)
    for count in (6, 12):
        terms = (None, believed.term(count))
        plain, with_belief = (
            _search_of(optimizer).models.surface(0, np.random.default_rng(0), check_acquisition("logei"), term)[0]
            for optimizer, term in zip(_same_rows(count), terms, strict=True)
        )
        weight = 3.0 / count
        np.testing.assert_allclose(with_belief.exact(u) - plain.exact(u), weight * density, rtol=1e-6)
        center = np.zeros(len(u), dtype=np.intp)
        near, near_plain = (each.around(u[:1]).gradient(u, center)[1] for each in (with_belief, plain))
        np.testing.assert_allclose(near - near_plain, weight * slope, rtol=1e-6, atol=1e-9)


def _same_rows(count: int) -> list[Optimizer]:
    rng, found = np.random.default_rng(1), []
    points = [dict(zip("xy", map(float, x), strict=True)) for x in rng.random((count, 2))]
    for space in (Space(PARAMETERS), believing(0.3, 0.6)):
        optimizer = Optimizer(space, seed=0)
        for point in points:
            optimizer.observe(point, bowl(point))
        optimizer.planner.settle()
        found.append(optimizer)
    return found


def _search_of(optimizer: Optimizer) -> Any:
    return optimizer.planner._search


def test_suggestions_are_feasible_even_if_the_belief_is_not() -> None:
    optimizer = search(believing(0.9, 0.9, feasible=lambda params: params["x"] + params["y"] <= 1), 12)
    assert all(row["params_x"] + row["params_y"] <= 1 for row in optimizer.records())


def test_an_optimiser_says_where_beliefs_belong() -> None:
    with pytest.raises(TypeError, match=r"lazybo.Space\(\{...\}, beliefs=...\)"):
        Optimizer(PARAMETERS, beliefs={})  # type: ignore[call-arg]
