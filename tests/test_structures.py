"""The structured problems of the benchmarks: their optima, their two ways of writing a solution, and their edits."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import BaseDistribution
from scipy.optimize import minimize
from sklearn.linear_model import Ridge

from benchmarks import structured
from benchmarks.structures import (
    BEST,
    FOLDS,
    MIXTURES,
    PROBLEMS,
    RIDGE,
    Problem,
    Shares,
    cities,
    columns,
    feature_selection,
)

# The architectures need tables that are not installed everywhere.
HERE = [name for name in PROBLEMS if not name.startswith(("cells", "gnn"))]


@pytest.fixture(params=HERE)
def problem(request: pytest.FixtureRequest) -> Problem:
    return PROBLEMS[request.param]()


def test_random_solutions_are_worse_than_the_optimum(problem: Problem) -> None:
    rng = np.random.default_rng(1)
    regrets = [problem.regret(problem.value(problem.shape.random(rng))) for _ in range(300)]
    assert min(regrets) > 0
    assert np.median(regrets) == pytest.approx(1.0, abs=0.3)


def is_solution(problem: Problem, solution: tuple) -> bool:
    if problem.family == "permutations":
        return sorted(solution) == list(range(len(solution)))
    if problem.family == "subsets":
        return 1 <= len(set(solution)) == len(solution) <= problem.shape.at_most and list(solution) == sorted(solution)
    assert isinstance(problem.shape, Shares)
    enough = min(solution) >= 0 and abs(sum(solution) - 1) < 1e-9
    return enough and np.count_nonzero(solution) <= problem.shape.at_most


def test_edits_are_other_solutions(problem: Problem) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        solution = problem.shape.random(rng)
        assert is_solution(problem, solution)
        edited = list(problem.shape.neighbours(solution, rng))
        assert edited
        assert all(is_solution(problem, each) for each in edited)
        if problem.family != "mixtures":
            assert len({*edited, solution}) == len(edited) + 1, "no edit does nothing, and none is there twice"


@given(st.sampled_from(HERE), st.randoms(use_true_random=False))
def test_flat_parameters_are_solutions(name: str, random: object) -> None:
    problem = PROBLEMS[name]()
    params = {key: draw(each, random) for key, each in problem.shape.flat.items()}
    assert is_solution(problem, problem.shape.from_flat(params))


def draw(distribution: BaseDistribution, random) -> object:
    if hasattr(distribution, "choices"):
        return random.choice(distribution.choices)
    low, high = distribution.low, distribution.high
    return random.randint(low, high) if isinstance(low, int) else random.uniform(low, high)


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


@pytest.mark.parametrize(("data", "at_most"), [("cancer", 30), ("diabetes", 12)])
def test_errors_are_those_of_scikit_learn(data: str, at_most: int) -> None:
    x, y = columns(data)
    held_out = np.random.default_rng(0).permutation(len(x)) % FOLDS
    chosen = (1, 4, 7)
    total = 0.0
    for k in range(FOLDS):
        train, test = held_out != k, held_out == k
        model = Ridge(RIDGE * train.sum()).fit(x[train][:, chosen], y[train])
        total += ((model.predict(x[test][:, chosen]) - y[test]) ** 2).sum()
    assert feature_selection(data, at_most).value(chosen) == pytest.approx(total / len(y))


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


# ---------------------------------------------------------------------- contestants


@pytest.mark.parametrize("optimizer", ["local", "evolution", "optuna-tpe", "random", "lazybo-flat", "lazybo"])
def test_contestants_play_every_family(optimizer: str) -> None:
    for name in ("permutations-assignment", "subsets-cancer", "mixtures-scheffe"):
        problem = PROBLEMS[name]()
        contestant = structured.OPTIMIZERS[optimizer](problem, 0, 12)
        row = structured.play(problem, contestant, 12)
        assert set(row) == {"seconds"}, "no checkpoint, and not solved"
