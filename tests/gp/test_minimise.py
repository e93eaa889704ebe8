import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize, rosen, rosen_der

from lazybo.gp.marginal import minimise


def quadratic(rng: np.random.Generator, dim: int) -> tuple[np.ndarray, np.ndarray]:
    a = rng.standard_normal((dim, dim))
    return a @ a.T + 0.1 * np.eye(dim), rng.standard_normal(dim)


@given(seed=st.integers(0, 10_000))
def test_a_quadratic_function_in_a_box_has_the_minimum_that_scipy_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dim = int(rng.integers(1, 8))
    hessian, center = quadratic(rng, dim)
    lower = rng.uniform(-2.0, 0.0, dim)
    upper = lower + np.where(rng.random(dim) < 0.2, 0.0, rng.uniform(0.1, 3.0, dim))  # some variables are fixed

    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        return 0.5 * float((x - center) @ hessian @ (x - center)), hessian @ (x - center)

    start = rng.uniform(-3.0, 3.0, dim)
    found = minimise(function, start, lower, upper, np.eye(dim), tolerance=1e-10, max_evaluations=500)
    twin = minimize(
        function, np.clip(start, lower, upper), jac=True, method="L-BFGS-B", bounds=np.column_stack((lower, upper))
    )
    assert ((lower <= found.x) & (found.x <= upper)).all()
    assert found.value == function(found.x)[0]
    assert found.value <= twin.fun + 1e-5


def test_a_curved_valley_is_followed_to_its_end() -> None:
    bounds = np.full(2, -5.0), np.full(2, 5.0)
    found = minimise(
        lambda x: (rosen(x), rosen_der(x)),
        np.array([-1.2, 1.0]),
        *bounds,
        np.eye(2),
        tolerance=1e-9,
        max_evaluations=200,
    )
    np.testing.assert_allclose(found.x, 1.0, atol=1e-3)


@pytest.mark.parametrize("wall", [np.inf, np.nan])
def test_values_that_are_no_numbers_are_walls(wall: float) -> None:
    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        value = float((x[0] - 2.0) ** 2) if x[0] < 0.5 else wall
        return value, 2.0 * (x - 2.0)

    bounds = np.array([-3.0]), np.array([3.0])
    found = minimise(function, np.array([0.0]), *bounds, np.eye(1), tolerance=1e-6, max_evaluations=30)
    assert 0.0 < found.x[0] < 0.5
    assert found.evaluations <= 30


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e12, 1e30, 1e200])
def test_any_scale_is_survived(rng: np.random.Generator, scale: float) -> None:
    """A Hessian that is singular in doubles must not end the ascent with an error, or lead up."""
    hessian, center = quadratic(rng, 4)
    hessian[0] *= 1e-9
    hessian[:, 0] *= 1e-9

    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        gradient = scale * hessian @ (x - center)
        return 0.5 * float((x - center) @ gradient), gradient

    start, bounds = np.full(4, 2.0), (np.full(4, -9.0), np.full(4, 9.0))
    found = minimise(function, start, *bounds, np.eye(4), tolerance=1e-3, max_evaluations=40)
    assert np.isfinite(found.x).all()
    assert found.value <= function(start)[0]
