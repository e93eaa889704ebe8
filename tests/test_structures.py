"""The structured problems of the benchmarks have the optima that they claim."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize

from benchmarks.structures import (
    BEST,
    MIXTURES,
    PROBLEMS,
    cities,
)


def test_the_shortest_tour_by_dynamic_programming() -> None:
    """Held and Karp: the shortest way from the last city through a set of others to one of them."""
    between = cities()
    last = len(between) - 1
    lengths = np.full((1 << last, last), np.inf)
    for first in range(last):
        lengths[1 << first, first] = between[last, first]
    for seen in range(1, 1 << last):
        shortest = (lengths[seen][:, None] + between[:last, :last]).min(axis=0)
        for city in range(last):
            if not seen >> city & 1:
                after = seen | 1 << city
                lengths[after, city] = min(lengths[after, city], shortest[city])
    assert (lengths[-1] + between[:last, last]).min() == pytest.approx(PROBLEMS["permutations-salesman"]().optimum)


def test_the_assignment_has_the_optimum_that_its_library_states() -> None:
    places = tuple(i - 1 for i in (7, 5, 1, 3, 10, 4, 8, 6, 9, 11, 2, 12))
    assert PROBLEMS["permutations-assignment"]().value(places) == 11156


@pytest.mark.parametrize("data", BEST)
def test_no_edit_of_the_best_columns_is_better(data: str) -> None:
    problem, best = PROBLEMS[f"subsets-{data}"](), BEST[data]
    assert problem.solved(problem.value(best))
    edited = problem.shape.neighbours(best, np.random.default_rng(0))
    assert min(map(problem.value, edited)) > problem.optimum - 1e-9, "a column of two levels and its square are equal"


@pytest.mark.parametrize("name", MIXTURES)
def test_no_recipe_is_better_than_the_optimum(name: str) -> None:
    function, n, at_most, optimum = MIXTURES[name]
    rng, best = np.random.default_rng(0), np.inf
    for face in combinations(range(n), at_most):

        def on_face(shares: np.ndarray, face: tuple[int, ...] = face) -> float:
            recipe = np.zeros(n)
            recipe[list(face)] = shares
            return function(recipe)

        for _ in range(3 if at_most < n else 40):
            start = rng.dirichlet(np.ones(at_most))
            total = {"type": "eq", "fun": lambda shares: shares.sum() - 1}
            found = minimize(on_face, start, bounds=[(0, 1)] * at_most, constraints=total, method="SLSQP")
            best = min(best, found.fun)
    assert best > optimum - 1e-5
    if name != "ackley":  # its gradient leads to the next of many local optima
        assert best == pytest.approx(optimum, abs=1e-4)
