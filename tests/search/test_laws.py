"""Laws of an optimiser in any space: what is asked, predicted and saved, and what the slopes of the model are."""

from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fuzz import Session
from lazybo import Optimizer, Permutation, Space
from tests.spaces import Problem, problems

pytestmark = pytest.mark.filterwarnings("ignore:Choices for a categorical")


def worked(problem: Problem, rounds: int = 7) -> Optimizer:
    """An optimiser with some values, a failure and a pending suggestion."""
    optimizer = Optimizer(problem.space, **problem.options)
    for i in range(rounds):
        suggestion = optimizer.ask()
        value = None if i == 2 else problem.value(suggestion.params)
        optimizer.tell(suggestion, value, **problem.measured(suggestion.params))
    optimizer.ask()
    return optimizer


@settings(max_examples=8)
@given(problems(), st.randoms(use_true_random=False))
def test_suggestions_are_configurations_and_a_loaded_optimiser_continues_to_the_last_bit(
    problem: Problem, random: Random
) -> None:
    """The checks are those of `benchmarks.fuzz`, which makes more calls in more orders."""
    session = Session(problem, random)
    for _ in range(4):
        session.ask()
        session.tell()
    session.observe()
    session.predict()
    session.load()
    session.tell()
    session.copy()
    session.load()


def test_parameters_keep_their_order_if_structure_comes_first(tmp_path: Path) -> None:
    """Learned length scales belong to parameters by their order."""
    problem = Problem(Space({"o": Permutation([*"abcd"]), "x": (0.0, 1.0)}), {"seed": 1})
    optimizer = worked(problem, 14)
    optimizer.save(tmp_path / "saved.json")
    loaded = Optimizer.load(tmp_path / "saved.json")
    assert [*loaded.space.parameters] == ["o", "x"]
    assert loaded.ask() == optimizer.ask()


@settings(max_examples=15)
@given(problems(functions=False).filter(lambda problem: problem.space.points.dim > 0), st.integers(0, 99))
def test_slopes_of_the_model_are_those_of_differences(problem: Problem, seed: int) -> None:
    """At random points, in each number that may move continuously."""
    problem.options["direction"] = "minimize"
    optimizer = worked(problem)
    space, (process, _) = optimizer.space, optimizer.model.surrogate()
    x = space.points.sample(np.random.default_rng(seed), 3)
    slopes, step = process.posterior_gradient(space.points.as_rows(x)), 1e-5
    for i, j in np.argwhere(space.points.free(x)):
        down, up = x[[i, i]]
        down[j] -= step
        up[j] += step
        ends = process.posterior(np.vstack((down, up)))
        for what, slope in ((ends.mean, slopes.mean_gradient), (ends.variance, slopes.variance_gradient)):
            assert (what[1] - what[0]) / 2 / step == pytest.approx(slope[i, j], rel=1e-2, abs=1e-4)
