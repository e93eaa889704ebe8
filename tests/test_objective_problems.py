"""The benchmark problems with several objectives and constraints: their fronts and optima are those that they claim."""

import math

import numpy as np
import pytest

from benchmarks.objective_problems import Measured, Problem, load

MIDDLE = {f"x{i}": 0.5 for i in range(6)}
LOWEST = {f"x{i}": 0.0 for i in range(6)}


def share(problem: Problem, found: list[Measured]) -> float:
    """The share of the largest hypervolume that these evaluations have."""
    return 1.0 - problem.regret(found)


@pytest.mark.parametrize("name", ["ZDT1", "ZDT3"])
def test_the_front_of_zdt_has_the_published_hypervolume(name: str) -> None:
    problem = load(name)
    found = [problem.evaluate({**LOWEST, "x0": float(x)}) for x in np.linspace(0, 1, 2001)]
    assert share(problem, found) == pytest.approx(1.0, abs=1e-4)


def test_the_front_of_dtlz2_has_the_published_hypervolume() -> None:
    problem = load("DTLZ2")
    grid = np.linspace(0, 1, 25)
    found = [problem.evaluate({**MIDDLE, "x0": float(a), "x1": float(b)}) for a in grid for b in grid]
    assert 0.93 < share(problem, found) < 1.0
    assert all(math.hypot(*each.values) == pytest.approx(1.0) for each in found)


def test_the_feasible_front_of_c2dtlz2_has_the_published_hypervolume() -> None:
    problem = load("C2DTLZ2")
    found = [problem.evaluate({**MIDDLE, "x0": float(x)}) for x in np.linspace(0, 1, 4001)]
    assert share(problem, found) == pytest.approx(1.0, abs=2e-3)
    assert 0 < sum(each.feasible for each in found) < len(found)


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("Gardner", 0.7704346, 0.97489466),
        ("GardnerNarrow", 0.78537137, 0.20887266),
        ("Gramacy", 0.19510658, 0.40468149),
    ],
)
def test_the_optimum_is_at_the_edge_of_what_is_feasible(name: str, x: float, y: float) -> None:
    problem = load(name)
    near = [problem.evaluate({"x0": x + dx, "x1": y + dy}) for dx in (-1e-4, 0.0, 1e-4) for dy in (-1e-4, 0.0, 1e-4)]
    best = min(each.values[0] for each in near if each.feasible)
    assert best == pytest.approx(problem.best, abs=1e-3)
    assert best >= problem.best - 1e-9
    assert not all(each.feasible for each in near)


# -------------------------------------------------------------------- LCBench
