import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution

from lazybo.search.interior import Interior
from lazybo.search.space import Condition, Space

SPACE = Space({"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1), "c": CategoricalDistribution(["a", "b"])})


def test_the_gradient_is_that_of_the_value(rng: np.random.Generator) -> None:
    prior, u, step = Interior(SPACE, 7), np.column_stack((rng.random((20, 2)), np.zeros(20))), 1e-6
    for j in range(2):
        moved = [u + sign * step * np.eye(3)[j] for sign in (1, -1)]
        difference = (prior.value(moved[0]) - prior.value(moved[1])) / (2 * step)
        np.testing.assert_allclose(prior.gradient(u)[:, j], difference, rtol=1e-4, atol=1e-6)
    assert not prior.gradient(u)[:, 2].any(), "choices have no ends"


def test_faces_are_less_likely_and_the_prior_vanishes() -> None:
    middle, face = np.array([[0.5, 0.5, 0.0]]), np.array([[0.0, 0.5, 0.0]])
    gaps = [float((Interior(SPACE, n).value(middle) - Interior(SPACE, n).value(face))[0]) for n in (1, 10, 1000)]
    assert gaps[0] > gaps[1] > gaps[2] > 0
    assert gaps[0] == pytest.approx(10 * gaps[1])


def test_inactive_parameters_count_as_inside() -> None:
    space = Space(
        {"c": CategoricalDistribution(["a", "b"]), "x": FloatDistribution(0, 1)}, {"x": Condition("c", ("a",))}
    )
    value = Interior(space, 1).value(np.array([[1.0, np.nan], [0.0, 0.5]]))
    assert value[0] == value[1]
