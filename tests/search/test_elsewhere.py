"""Suggestions that look elsewhere, for a model that may be too sure."""

from typing import Any

import numpy as np
import pytest

from lazybo import Optimizer
from lazybo.search.acquisition import log_expected_improvement, widened
from lazybo.search.decide import DOUBT_AFTER

SPACE = {"kind": ["easy", "hard", "harder"], "x": (0.0, 1.0), "y": (0.0, 1.0)}


def easy(params: dict[str, Any]) -> float:
    """One choice is good right away, and the others are poor nearly everywhere."""
    bowl = (params["x"] - 0.3) ** 2 + (params["y"] - 0.6) ** 2
    return float(bowl if params["kind"] == "easy" else 3.0 + bowl)


def kinds(optimizer: Optimizer, steps: int) -> list[str]:
    found = []
    for _ in range(steps):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, easy(suggestion.params))
        found.append(suggestion.params["kind"])
    return found


def others(**options: Any) -> int:
    """How often another choice was made once the easy one was known to be good."""
    return sum(kind != "easy" for kind in kinds(Optimizer(SPACE, seed=1, **options), 70)[DOUBT_AFTER:])


def test_other_choices_are_tried_again_and_again() -> None:
    assert 3 <= others(deterministic=True) <= 20
    assert others(deterministic=True, acquisition="logei") < 3


def test_a_restored_optimiser_looks_elsewhere_at_the_same_suggestions() -> None:
    first = Optimizer(SPACE, seed=2)
    kinds(first, 30)
    second = Optimizer(SPACE, seed=2)
    second.restore(first.state())
    assert kinds(second, 15) == kinds(first, 15)


def test_a_single_choice_that_is_left_is_no_obstacle() -> None:
    """Every point with another choice has been evaluated: the suggestion is one of the others."""
    optimizer = Optimizer({"kind": ["a", "b"], "level": (0, 30)}, seed=0)
    for level in range(31):
        optimizer.observe({"kind": "b", "level": level}, 5.0 + level)
    for _ in range(31):
        suggestion = optimizer.ask()
        assert suggestion.params["kind"] == "a"
        optimizer.tell(suggestion, float(suggestion.params["level"]))


@pytest.mark.parametrize("std", [0.1, 2.0])
def test_the_wide_one_is_that_of_twice_the_deviation(std: float) -> None:
    mean, stds = np.linspace(-1.0, 1.0, 5), np.full(5, std)
    wide, plain = widened(log_expected_improvement)(mean, stds, 0.2), log_expected_improvement(mean, 2 * stds, 0.2)
    np.testing.assert_array_equal(wide.value, plain.value)
    np.testing.assert_array_equal(wide.by_std, 2 * plain.by_std)
