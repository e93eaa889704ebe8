"""The near field against the exact posterior."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from lazybo.gp.kernels import Matern52
from lazybo.gp.mixture import Posterior
from lazybo.gp.posterior import NEAR_CENTERS, NEAR_ROWS, NearField, NearMean, PriorMean, told_covariance
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
    np.testing.assert_allclose(Posterior([posterior]).smoothed(), mean, atol=1e-8)
    np.testing.assert_allclose(told_covariance(posterior, posterior.X), covariance, atol=1e-12)


def test_the_near_field_of_few_rows_is_exact(rng: np.random.Generator) -> None:
    process, centers = filled(rng, 60, prior=prior_mean(rng, 20)), rng.random((4, 3))
    field, u, center = NearField(process, centers), rng.random((9, 3)), rng.integers(0, 4, 9)
    mean, std = field.posterior(u, center)
    exact = process.posterior(u)
    np.testing.assert_allclose(mean, exact.mean, atol=1e-6)
    np.testing.assert_allclose(std**2, exact.variance, atol=1e-6)


def test_the_near_field_of_many_rows_is_nearly_exact_around_its_centers(rng: np.random.Generator) -> None:
    process, centers = filled(rng, 4 * NEAR_ROWS), rng.random((3, 3))
    center = np.repeat(np.arange(3), 5)
    u = np.clip(centers[center] + 0.02 * rng.standard_normal((15, 3)), 0, 1)
    mean, std = NearField(process, centers).posterior(u, center)
    exact = process.posterior(u)
    np.testing.assert_allclose(mean, exact.mean, atol=0.1)
    np.testing.assert_allclose(std, np.sqrt(exact.variance), atol=0.1)


@pytest.mark.parametrize("rows", [60, 2 * NEAR_ROWS])
def test_the_slope_of_the_near_field(rng: np.random.Generator, rows: int) -> None:
    process, centers = filled(rng, rows, prior=prior_mean(rng, 2 * NEAR_CENTERS)), rng.random((2, 3))
    field, u, by_mean, by_std = NearField(process, centers), centers + 0.01, np.array([1.0, -2.0]), np.array([3.0, 0.5])
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
