"""Particles: how they are drawn and weighted, and what they predict together, against naive references."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from lazybo.gp.fit import Data, draw, modes, particles_at
from lazybo.gp.kernels import AdditiveMatern52, Kernel, Matern52
from lazybo.gp.mixture import Particle, Posterior
from lazybo.gp.posterior import PriorMean
from lazybo.gp.priors import Priors
from lazybo.gp.process import Process


def data_of(rng: np.random.Generator, n: int, noise: float = 0.0) -> Data:
    x = rng.random((n, 2))
    targets = np.sin(6 * x[:, 0]) + x[:, 1] + noise * rng.standard_normal(n)
    return Data(x, (targets - targets.mean()) / targets.std(), np.zeros(n))


def process_of(data: Data, kernel: Kernel, noise: float) -> Process:
    process = Process(kernel, noise)
    process.append(data.x, data.targets, variance=data.known)
    return process


@pytest.fixture
def mixture(rng: np.random.Generator) -> Posterior:
    data = data_of(rng, 25, 0.1)
    kernels = [Matern52(np.array([0.4, 0.8])), Matern52(np.array([0.2, 0.3]), 2.0), Matern52(np.array([1.5, 0.5]), 0.5)]
    processes = [process_of(data, kernel, noise) for kernel, noise in zip(kernels, (0.01, 0.1, 1e-3), strict=True)]
    return Posterior(processes, [0.0, -1.0, 2.0])


def test_weights_are_posterior_probabilities(mixture: Posterior) -> None:
    x, targets = mixture.X, mixture.targets
    logs = [
        prior + multivariate_normal(np.zeros(25), each.kernel(x) + each.noise * np.eye(25)).logpdf(targets)
        for prior, each in zip(mixture.log_priors, mixture.processes, strict=True)
    ]
    np.testing.assert_allclose(mixture.log_weights, logs - logsumexp(logs), atol=1e-6)


def test_a_new_value_multiplies_the_weights_by_its_predicted_densities(mixture: Posterior) -> None:
    point, value = np.array([[0.31, 0.62]]), 0.4
    predicted = [each.posterior(point) for each in mixture.processes]
    densities = [
        norm.pdf(value, moments.mean[0], np.sqrt(moments.variance[0] + each.noise))
        for moments, each in zip(predicted, mixture.processes, strict=True)
    ]
    expected = mixture.weights * densities
    for process in mixture.processes:
        process.append(point, [value])
    after = Posterior(mixture.processes, mixture.log_priors)
    np.testing.assert_allclose(after.weights, expected / expected.sum(), rtol=1e-6)


def test_pending_rows_do_not_change_the_weights(mixture: Posterior) -> None:
    before = mixture.weights
    for process in mixture.processes:
        process.append([[0.1, 0.2], [0.8, 0.3]], [np.nan, np.nan])
    np.testing.assert_allclose(Posterior(mixture.processes, mixture.log_priors).weights, before, rtol=1e-6)


def test_moments_and_quantiles_are_those_of_draws(mixture: Posterior, rng: np.random.Generator) -> None:
    u = rng.random((4, 2))
    which = rng.choice(3, size=200_000, p=mixture.weights)
    draws = np.empty((len(which), 4))
    for i, process in enumerate(mixture.processes):
        mean, covariance = process.posterior_covariance(u)
        rows = which == i
        draws[rows] = rng.multivariate_normal(mean, covariance, size=int(rows.sum()), method="eigh")
    mean, covariance = mixture.posterior_covariance(u)
    np.testing.assert_allclose(mean, draws.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(covariance, np.cov(draws.T), atol=0.02)
    np.testing.assert_allclose(mixture.posterior(u).variance, np.diag(covariance), atol=1e-9)
    np.testing.assert_allclose(mixture.mean(u), mean, atol=1e-7)
    np.testing.assert_allclose(mixture.told_covariance(u), covariance, atol=1e-7)
    levels = (0.025, 0.5, 0.975)
    found = mixture.components(u)
    np.testing.assert_allclose(found.quantiles(levels), np.quantile(draws, levels, axis=0), atol=0.03)
    np.testing.assert_allclose(found.middle(), mean, atol=1e-7)


def test_leaving_one_out_is_what_the_others_predict(mixture: Posterior) -> None:
    found = mixture.left_out()
    for row in (0, 11):
        parts = []
        for process in mixture.processes:
            others = np.delete(np.arange(25), row)
            without = Process(process.kernel, process.noise)
            without.append(process.X[others], process.targets[others])
            moments = without.posterior(process.X[row : row + 1])
            parts.append((moments.mean[0], moments.variance[0] + process.noise))
        means, variances = np.array(parts).T
        middle = mixture.weights @ means
        assert found.mean[row] == pytest.approx(middle, abs=1e-6)
        expected = mixture.weights @ (variances + (means - middle) ** 2)
        assert found.deviation[row] ** 2 == pytest.approx(expected, rel=1e-5)


KERNELS = {
    "one": [Matern52(np.full(2, 0.4))],
    "matern": [Matern52(np.full(2, 0.4)), Matern52(np.array([0.2, 0.9]), 2.0)],
    "additive": [AdditiveMatern52(np.full(2, 0.4)), AdditiveMatern52(np.array([0.2, 0.9]), 2.0, 0.3)],
}


def empty(name: str, prior: PriorMean | None = None) -> Posterior:
    return Posterior.of([Particle(kernel, 1e-3, 0.0) for kernel in KERNELS[name]], prior)


def grown(posterior: Posterior, x: np.ndarray, stop: int, built: int) -> Posterior:
    """The first rows of ``x``: the first ``built`` rows together, the others one by one."""
    new = x[posterior.leading.n : stop]
    return posterior.updated(new, np.zeros(len(new)), np.sin(7 * x[:stop]).sum(axis=1), built)


@pytest.mark.parametrize("name", KERNELS)
def test_a_posterior_that_grows_is_that_of_separate_processes(name: str, rng: np.random.Generator) -> None:
    """With pending rows, known variances and a prior mean; also at points that are followed."""
    kernel = Matern52(np.full(2, 0.6))
    prior = PriorMean(kernel, kernel.features(rng.random((4, 2))), rng.standard_normal(4), 0.4)
    x, points, u, known = rng.random((30, 2)), rng.random((40, 2)), rng.random((5, 2)), rng.random(30)
    posterior = empty(name, prior)
    for stop in (12, 13, 20, 30):
        targets = np.where(np.arange(stop) % 7 == 3, np.nan, np.sin(7 * x[:stop]).sum(axis=1))
        new = slice(posterior.leading.n, stop)
        before = posterior.components(u)
        posterior, old = posterior.updated(x[new], known[new], targets, 12), posterior
        expected = []
        for each in KERNELS[name]:
            process = Process(each, 1e-3, prior)
            process.append(x[:stop], targets, variance=known[:stop])
            expected.append(process)
        naive = Posterior(expected)
        for where, found in ((points, posterior.over(points)), (u, posterior.components(u))):
            moments = [process.posterior(where) for process in expected]
            np.testing.assert_allclose(found.mean, [each.mean for each in moments], atol=1e-8)
            np.testing.assert_allclose(found.std**2, [each.variance for each in moments], atol=1e-8)
        np.testing.assert_allclose(posterior.weights, naive.weights, rtol=1e-6)
        np.testing.assert_allclose(posterior.smoothed(), naive.smoothed(), atol=1e-8)
        np.testing.assert_allclose(posterior.mean(u), naive.mean(u), atol=1e-8)
        assert posterior.misfit == pytest.approx(naive.misfit)
        for part, same in zip(before, old.components(u), strict=True):
            np.testing.assert_array_equal(part, same)  # what was given out does not change


@pytest.mark.parametrize("keep", [128, 155])
@pytest.mark.parametrize("name", KERNELS)
def test_what_was_cut_and_grew_again_is_the_same_to_the_last_bit(
    name: str, keep: int, rng: np.random.Generator
) -> None:
    """Whole chunks stay of the rows that were added together; of the others any number."""
    x, points = rng.random((180, 2)), rng.random((20, 2))
    once = grown(empty(name), x, 180, 150)
    posterior = grown(empty(name), x, 160, 150)
    posterior.over(points)
    cut = grown(posterior, x, 180, 150).first(keep)
    assert cut.leading.n == keep if keep > 150 else cut.leading.n == 128
    cut.over(points)
    again = grown(cut, x, 180, 150)
    for part, same in zip(again.over(points), once.over(points), strict=True):
        np.testing.assert_array_equal(part, same)
    for one, other in zip(again.processes, once.processes, strict=True):
        np.testing.assert_array_equal(one.factor.factor, other.factor.factor)


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("name", KERNELS)
def test_a_row_is_the_same_whatever_was_predicted_before(name: str, count: int, rng: np.random.Generator) -> None:
    """A point that was predicted is added in linear time, to the same bits."""
    x = rng.random((71, 2))
    seen, blind = (grown(empty(name), x, 70, 70) for _ in range(2))
    seen.components(np.vstack((rng.random((count - 1, 2)), x[70:])))
    work = seen.leading.factor.work
    seen, blind = (grown(each, x, 71, 70) for each in (seen, blind))
    assert seen.leading.factor.work - work <= 2 * 71
    for one, other in zip(seen.processes, blind.processes, strict=True):
        np.testing.assert_array_equal(one.factor.factor, other.factor.factor)


def test_a_row_costs_one_pass_over_the_columns_of_points_that_are_followed(rng: np.random.Generator) -> None:
    x, points = rng.random((401, 2)), rng.random((40, 2))
    posterior = grown(empty("one"), x, 400, 400)
    posterior.over(points)
    posterior = grown(posterior, x, 401, 400)
    posterior.leading.whitened  # noqa: B018 - not for the points
    work = posterior.leading.factor.work
    posterior.over(points)
    assert posterior.leading.factor.work - work <= 401 * 40


def test_particles_explain_values_that_they_expect_and_no_others(rng: np.random.Generator) -> None:
    x = rng.random((12, 2))
    posterior = grown(empty("additive"), x, 10, 10)
    expected, std = posterior.components(x[10:]).middle(), posterior.components(x[10:]).std.max()
    for away, explained in ((0.0, True), (20.0 * std, False)):
        targets = np.append(posterior.targets, expected + away)
        after = posterior.updated(x[10:], np.zeros(2), targets, 10)
        assert after.weighted(-posterior.log_likelihoods).explains(2, posterior.misfit) is explained


def test_draws_have_the_moments_of_the_posterior() -> None:
    """They lie around the most probable parameters, and the nearer the more values there are."""
    spreads = []
    for n in (8, 120):
        data, (kernel, noise) = data_of(np.random.default_rng(1), n), Priors().start(Matern52(np.ones(2)))
        found = modes(data, kernel, noise, Priors(noisy_odds=0.0))
        particles = draw(found, 64)
        assert len(particles) == 64
        assert logsumexp([each.log_weight for each in particles]) == pytest.approx(0.0)
        np.testing.assert_allclose(particles[0].kernel.theta, found[0].kernel.theta, atol=1e-9)
        spreads.append(np.std([each.kernel.theta for each in particles], axis=0).mean())
    assert spreads[1] < 0.8 * spreads[0]


def test_draws_come_from_both_hypotheses_about_the_noise() -> None:
    data, (kernel, noise) = data_of(np.random.default_rng(5), 24, 0.25), Priors().start(AdditiveMatern52(np.ones(2)))
    noises = [each.noise for each in draw(modes(data, kernel, noise, first=True), 8)]
    assert len(noises) in (7, 8, 9)
    alone = draw(modes(data, kernel, noise, first=True), 1)
    assert len(alone) == 1


def test_the_same_draws_are_made_again() -> None:
    data, (kernel, noise) = data_of(np.random.default_rng(3), 20), Priors().start(Matern52(np.ones(2)))
    one, two = (draw(modes(data, kernel, noise), 8) for _ in range(2))
    assert [each.log_weight for each in one] == [each.log_weight for each in two]
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.kernel.values, b.kernel.values)


def test_there_are_fewer_particles_the_more_observations_there_are() -> None:
    counts = [particles_at(n, 8) for n in (0, 5, 100, 101, 200, 400, 500, 10_000)]
    assert counts == sorted(counts, reverse=True)
    assert (counts[0], counts[-1]) == (8, 1)
