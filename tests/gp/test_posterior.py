"""The pool and the near field against the exact posterior."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from lazybo.gp.kernels import Matern52
from lazybo.gp.kernels.base import PriorMean
from lazybo.gp.posterior import NEAR_CENTERS, NEAR_ROWS, NearMean, Pool, groups_of_rows
from lazybo.gp.process import Process


def filled(rng: np.random.Generator, n: int, dim: int = 3, prior: PriorMean | None = None) -> Process:
    process = Process(Matern52(np.full(dim, 0.4)), 1e-4, prior)
    x = rng.random((n, dim))
    process.append(x, np.sin(7 * x).sum(axis=1))
    return process


def prior_mean(rng: np.random.Generator, centers: int, dim: int = 3) -> PriorMean:
    kernel = Matern52(np.full(dim, 0.6))
    return PriorMean(kernel, kernel.features(rng.random((centers, dim))), rng.standard_normal(centers), 0.4)


def test_the_moments_of_a_process_agree(rng: np.random.Generator) -> None:
    posterior = filled(rng, 30)
    mean, covariance = posterior.posterior_covariance(posterior.X)
    np.testing.assert_allclose(posterior.smoothed(), mean, atol=1e-8)
    np.testing.assert_allclose(posterior.told_covariance(posterior.X), covariance, atol=1e-12)
    np.testing.assert_array_equal(posterior.ranges, np.full(3, 0.4))


def test_the_pool_follows_a_growing_process(rng: np.random.Generator) -> None:
    process = filled(rng, 5, prior=prior_mean(rng, 4))
    pool = Pool(process, rng.random((40, 3)))
    for step in range(12):
        if step == 6:
            process.set_parameters(Matern52(np.full(3, 0.7)), 1e-3)
        if step == 9:
            process.truncate(10)
        if step == 10:
            process.append(rng.random((2, 3)), [np.nan, np.nan])
        mean, std = pool.posterior()
        exact = process.posterior(pool.points)
        np.testing.assert_allclose(mean, exact.mean, atol=1e-8)
        np.testing.assert_allclose(std**2, exact.variance, atol=1e-8)
        process.append(rng.random((step, 3)), rng.random(step))


def test_a_row_costs_the_pool_one_pass_over_its_columns(rng: np.random.Generator) -> None:
    process = filled(rng, 400)
    pool = Pool(process, rng.random((40, 3)))
    pool.posterior()
    process.append(rng.random((1, 3)), [0.0])
    process.whitened  # noqa: B018 - not the pool's work
    work = process.factor.work
    pool.posterior()
    assert process.factor.work - work <= 401 * 40


def grown(x: np.ndarray, stop: int, built: int, process: Process | None = None) -> Process:
    """A process whose first ``built`` rows were added in chunks, and the others one by one."""
    process = process or Process(Matern52(np.full(3, 0.4)), 1e-4)
    for rows in groups_of_rows(process.n, stop, built):
        if rows.start < built:
            process.append(x[rows], x[rows, 0])
        else:
            process.append_alone(x[rows.start], x[rows.start, 0])
    return process


@pytest.mark.parametrize("keep", [128, 155])
def test_a_pool_that_was_cut_and_grew_again_is_the_same_to_the_last_bit(rng: np.random.Generator, keep: int) -> None:
    """Whole chunks stay of the rows that were added together; of the others any number."""
    x, points = rng.random((180, 3)), rng.random((20, 3))
    process = grown(x, 180, 150)
    assert process.built == 150
    pool = Pool(process, points)
    pool.posterior()
    process.truncate(keep)
    pool.truncate(keep)
    grown(x, 180, 150, process)
    assert process.built == 150
    np.testing.assert_array_equal(pool.posterior(), Pool(grown(x, 180, 150), points).posterior())


def test_the_near_field_of_few_rows_is_exact(rng: np.random.Generator) -> None:
    process, centers = filled(rng, 60, prior=prior_mean(rng, 20)), rng.random((4, 3))
    field, u, center = process.around(centers), rng.random((9, 3)), rng.integers(0, 4, 9)
    mean, std = field.posterior(u, center)
    exact = process.posterior(u)
    np.testing.assert_allclose(mean, exact.mean, atol=1e-6)
    np.testing.assert_allclose(std**2, exact.variance, atol=1e-6)


def test_the_near_field_of_many_rows_is_nearly_exact_around_its_centers(rng: np.random.Generator) -> None:
    process, centers = filled(rng, 4 * NEAR_ROWS), rng.random((3, 3))
    center = np.repeat(np.arange(3), 5)
    u = np.clip(centers[center] + 0.02 * rng.standard_normal((15, 3)), 0, 1)
    mean, std = process.around(centers).posterior(u, center)
    exact = process.posterior(u)
    np.testing.assert_allclose(mean, exact.mean, atol=0.1)
    np.testing.assert_allclose(std, np.sqrt(exact.variance), atol=0.1)


@pytest.mark.parametrize("rows", [60, 2 * NEAR_ROWS])
def test_the_slope_of_the_near_field(rng: np.random.Generator, rows: int) -> None:
    process, centers = filled(rng, rows, prior=prior_mean(rng, 2 * NEAR_CENTERS)), rng.random((2, 3))
    field, u, by_mean, by_std = process.around(centers), centers + 0.01, np.array([1.0, -2.0]), np.array([3.0, 0.5])
    mean, std, slope = field.with_slope(u, np.arange(2))
    np.testing.assert_array_equal((mean, std), field.posterior(u, np.arange(2)))
    gradient = slope.by_points(by_mean, by_std)
    for i in range(2):

        def value(x: np.ndarray, i: int = i) -> float:
            mean, std = field.posterior(x[None], np.array([i]))
            return float(by_mean[i] * mean[0] + by_std[i] * std[0])

        np.testing.assert_allclose(gradient[i], approx_fprime(u[i], value, 1e-6), rtol=1e-2, atol=1e-3)


def test_a_prior_mean_of_many_centers_is_nearly_exact_near_the_field_s_own(rng: np.random.Generator) -> None:
    prior, centers = prior_mean(rng, 2 * NEAR_CENTERS), rng.random((3, 3))
    field, u = NearMean(prior, centers), centers + 0.005
    scale = np.abs(prior.weights).sum()
    np.testing.assert_allclose(field(u, np.arange(3)), prior(u), atol=1e-4 * scale)
    np.testing.assert_allclose(field.gradient(u, np.arange(3)), prior.gradient(u), atol=1e-3 * scale)


def test_the_near_field_knows_the_jitter_and_the_variances_of_its_rows(rng: np.random.Generator) -> None:
    process, x = Process(Matern52([0.4, 0.4]), 1e-15), rng.random((5, 2))
    x[4] = x[0]
    process.append(x, np.zeros(5), variance=np.array([0.0, 0.1, 0.2, 0.3, 0.0]))
    assert process.factor.jitter[4] > 0
    lower = process.factor.factor
    identity = process.inverse_among(np.arange(5)) @ lower @ lower.T
    np.testing.assert_allclose(identity, np.eye(5), atol=1e-4)
