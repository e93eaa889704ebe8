import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from lazybo.model.kernels import Column, Matern52

NUMERIC, CHOICE = Column(), Column(categories=3)
MIXED = (NUMERIC, Column(conditional=True), CHOICE, Column(categories=5, conditional=True))


def mixed_points(rng: np.random.Generator, n: int, columns: tuple[Column, ...] = MIXED) -> np.ndarray:
    parts = [rng.integers(0, c.categories, n) if c.categories else rng.random(n) for c in columns]
    x = np.column_stack(parts).astype(float)
    for j, column in enumerate(columns):
        if column.conditional:
            x[rng.random(n) < 0.4, j] = np.nan
    return x


def mixed_kernel(rng: np.random.Generator, columns: tuple[Column, ...] = MIXED) -> Matern52:
    return Matern52(np.exp(rng.normal(0, 1, len(columns))), float(np.exp(rng.normal())), columns)


def test_numeric_columns_equal_scikit_learn(rng: np.random.Generator) -> None:
    scales = np.array([0.3, 1.0, 4.0])
    x, u = rng.random((30, 3)), rng.random((20, 3))
    theirs = ConstantKernel(2.5) * Matern(scales, nu=2.5)
    np.testing.assert_allclose(Matern52(scales, 2.5)(x, u), theirs(x, u), atol=1e-13)
    np.testing.assert_allclose(Matern52(scales, 2.5)(x), theirs(x), atol=1e-13)


def test_mixed_distance_follows_its_definition(rng: np.random.Generator) -> None:
    """The textbook double loop: differences, equal or not, inactive or not."""
    x = mixed_points(rng, 40)
    kernel = mixed_kernel(rng)
    for a in range(0, 40, 3):
        for b in range(40):
            squares = 0.0
            for j, column in enumerate(MIXED):
                va, vb = x[a, j], x[b, j]
                if np.isnan(va) or np.isnan(vb):
                    if np.isnan(va) and np.isnan(vb):
                        continue
                    active = vb if np.isnan(va) else va
                    inside = 0.5 * (1 - 1 / column.categories) if column.categories else (active - 0.5) ** 2
                    square = 1.0 + inside
                else:
                    square = float(va != vb) if column.categories else (va - vb) ** 2
                squares += square / kernel.length_scales[j] ** 2
            s = np.sqrt(5 * squares)
            expected = kernel.output_scale * (1 + s + s**2 / 3) * np.exp(-s)
            assert kernel(x[[a]], x[[b]])[0, 0] == pytest.approx(expected, rel=1e-12)


def test_inactive_entries_are_equal_to_each_other_and_far_from_active_ones() -> None:
    for column in (Column(conditional=True), Column(categories=4, conditional=True)):
        kernel = Matern52([0.7], 1.0, [column])
        inactive, active = np.array([[np.nan]]), np.array([[0.0], [1.0]])
        assert kernel(inactive, inactive)[0, 0] == 1.0
        assert kernel(inactive, active).max() <= kernel(active)[0, 1]


@given(st.integers(0, 10_000))
def test_positive_semidefinite_on_random_mixed_data(seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = tuple(Column(int(rng.choice([0, 0, 2, 7])), bool(rng.random() < 0.5)) for _ in range(rng.integers(1, 7)))
    kernel = mixed_kernel(rng, columns)
    x = mixed_points(rng, 60, columns)
    x = np.vstack((x, x[:10]))
    k = kernel(x)
    np.testing.assert_array_equal(k, k.T)
    assert np.linalg.eigvalsh(k).min() >= -1e-12 * kernel.output_scale * len(k)
    np.testing.assert_allclose(np.diagonal(k), kernel.output_scale)


def test_gradient_by_the_inputs(rng: np.random.Generator) -> None:
    kernel, x, u = mixed_kernel(rng), mixed_points(rng, 25), mixed_points(rng, 8)
    weights = rng.standard_normal((8, 25))
    z = kernel.features(x)
    _, h = kernel.with_slope(kernel.features(u), z)
    gradient = kernel.input_gradient(u, z, weights * h)
    for i in range(len(u)):
        for j, column in enumerate(MIXED):
            if column.categories or np.isnan(u[i, j]):
                assert gradient[i, j] == 0.0
                continue

            def along(value: np.ndarray, i: int = i, j: int = j) -> float:
                point = u[[i]].copy()
                point[0, j] = value[0]
                return float(weights[i] @ kernel(point, x)[0])

            assert gradient[i, j] == pytest.approx(approx_fprime(u[i, [j]], along, 1e-7)[0], abs=1e-5)


def test_gradient_by_the_parameters(rng: np.random.Generator) -> None:
    kernel, x = mixed_kernel(rng), mixed_points(rng, 25)
    weights = rng.standard_normal((25, 25))
    weights += weights.T
    z = kernel.features(x)
    gradient = kernel.parameter_gradient(z, weights, *kernel.with_slope(z, z))
    numeric = approx_fprime(kernel.theta, lambda theta: np.vdot(weights, kernel.with_theta(theta)(x)), 1e-7)
    np.testing.assert_allclose(gradient, numeric, atol=1e-4)


def test_a_copy_is_as_immutable_as_its_original() -> None:
    kernel = Matern52([1.0, 2.0])
    for same in (kernel, copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        with pytest.raises(ValueError, match="read-only"):
            same.length_scales[0] = 3.0


def test_theta_round_trip(rng: np.random.Generator) -> None:
    kernel = mixed_kernel(rng)
    again = kernel.with_theta(kernel.theta)
    np.testing.assert_allclose(again.length_scales, kernel.length_scales, rtol=1e-14)
    assert again.columns == kernel.columns


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros(3), "must have 2 dimension"),
        (np.zeros((2, 3)), "must have 4 columns"),
        ([[np.nan, 0.5, 0, 0]], "row 0, column 0 is nan .*not conditional"),
        ([[0.1, np.inf, 0, 0]], "row 0, column 1 is inf"),
        ([[0.1, 0.5, np.nan, 0]], "column 2 is nan"),
        ([[0.1, 0.5, 3, 0]], "column 2 holds a choice from 0 to 2, not 3"),
        ([[0.1, 0.5, 0.5, 0]], "column 2 holds a choice"),
        ([[0.1, 0.5, -1, 0]], "column 2 holds a choice"),
        ([["a", 0, 0, 0]], "array of numbers"),
    ],
)
def test_points_that_do_not_fit_are_refused(x: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Matern52(np.ones(4), 1.0, MIXED)(x)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "length_scales"),
        (([1.0, 0.0],), "length_scales"),
        (([1.0, np.nan],), "length_scales"),
        (([1.0], -1.0), "output_scale"),
        (([1.0], "big"), "output_scale"),
        (([1.0], 1.0, [Column(), Column()]), "1 length scales but 2 columns"),
        (([1.0], 1.0, [3]), "must be Column objects"),
    ],
)
def test_parameters_that_make_no_kernel_are_refused(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Matern52(*arguments)  # type: ignore[arg-type]


def test_a_column_needs_a_number_of_choices() -> None:
    with pytest.raises(ValueError, match="number of choices"):
        Column(categories=-2)
