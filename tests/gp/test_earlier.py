"""Earlier tasks: their common prior mean, how much each is like a new one, and a portfolio that serves all."""

import math
from typing import Any

import numpy as np
import pytest
from optuna.distributions import FloatDistribution
from scipy.stats import multivariate_normal

from lazybo import Matern52, Priors, Space
from lazybo.gp import EarlierTasks, Kernel, Learner, Process
from lazybo.gp import earlier as model_earlier
from lazybo.gp.earlier import RESIDUALS, Task
from lazybo.gp.fit import Data, learn_together
from lazybo.gp.kernels import AdditiveMatern52
from lazybo.gp.posterior import PriorMean

# ---------------------------------------------------------------- the prior mean


def prior_of(rng: np.random.Generator, n: int = 7, dim: int = 2) -> PriorMean:
    kernel = AdditiveMatern52(np.full(dim, 0.6))
    return PriorMean(kernel, kernel.features(rng.random((n, dim))), rng.standard_normal(n), 0.4)


def test_a_prior_mean_is_added_to_the_posterior(rng: np.random.Generator) -> None:
    prior, kernel = prior_of(rng), Matern52([0.5, 0.8])
    x, t, u = rng.random((6, 2)), rng.standard_normal(6), rng.random((4, 2))
    plain = Process(kernel, 1e-4)
    plain.append(x, t - prior(x))
    process = Process(kernel, 1e-4, prior)
    process.append(x[:4], t[:4])
    process.append(x[4:], t[4:])
    np.testing.assert_allclose(process.targets, t, atol=1e-14)
    np.testing.assert_allclose(process.posterior(u).mean, plain.posterior(u).mean + prior(u), atol=1e-12)
    np.testing.assert_allclose(process.posterior(u).variance, plain.posterior(u).variance, atol=1e-14)
    np.testing.assert_allclose(process.mean(u), process.posterior(u).mean, atol=1e-10)
    np.testing.assert_allclose(process.posterior_covariance(u)[0], process.posterior(u).mean, atol=1e-12)
    process.set_targets(2 * t)
    plain.set_targets(2 * t - prior(x))
    np.testing.assert_allclose(process.posterior(u).mean, plain.posterior(u).mean + prior(u), atol=1e-12)
    process.truncate(3)
    plain.truncate(3)
    np.testing.assert_allclose(process.posterior(u).mean, plain.posterior(u).mean + prior(u), atol=1e-12)


def test_its_gradient_is_that_of_finite_differences(rng: np.random.Generator) -> None:
    process = Process(Matern52([0.5, 0.8]), 1e-4, prior_of(rng))
    process.append(rng.random((6, 2)), rng.standard_normal(6))
    u, step = rng.uniform(0.2, 0.8, (3, 2)), 1e-6
    found = process.posterior_gradient(u)
    for j in range(2):
        moved = np.eye(2)[j] * step
        by_mean = (process.mean(u + moved) - process.mean(u - moved)) / (2 * step)
        np.testing.assert_allclose(found.mean_gradient[:, j], by_mean, rtol=1e-5, atol=1e-6)


# -------------------------------------------------------------- the earlier tasks


def test_one_task_is_learned_as_alone(rng: np.random.Generator) -> None:
    x = rng.random((20, 2))
    data, kernel = Data(x, np.sin(4 * x[:, 0]) + x[:, 1], np.zeros(20)), Kernel.chosen(None, [*space_columns()])
    together = learn_together([data], kernel)
    alone = Learner().best(together.kernel, together.noise, *data)
    assert together.log_posterior == pytest.approx(alone.log_posterior, abs=0.05)


def space_columns() -> list[Any]:
    return list(Space({"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}).points.columns)


def tasks_of(rng: np.random.Generator, count: int = 3, n: int = 12) -> EarlierTasks:
    tasks = []
    for i in range(count):
        x = rng.random((n, 2))
        t = np.sin(3 * x[:, 0] + 0.3 * i) + x[:, 1]
        tasks.append(Task(f"task {i}", x, (t - t.mean()) / t.std()))
    return EarlierTasks(tasks, Kernel.chosen(None, space_columns()))


def test_the_means_of_tasks_are_those_of_their_processes(rng: np.random.Generator) -> None:
    earlier, u = tasks_of(rng), rng.random((5, 2))
    for i, task in enumerate(earlier.tasks):
        process = Process(earlier.kernel, earlier.learned.noise)
        process.append(task.points, task.targets)
        np.testing.assert_allclose(earlier.means(u)[i], process.mean(u), atol=1e-9)


def test_the_shares_follow_from_the_densities_of_normal_distributions(rng: np.random.Generator) -> None:
    """The fast comparison in the eigenvectors of K, against the density of t with b and s integrated out."""
    earlier, x = tasks_of(rng), rng.random((6, 2))
    n, count, noise = len(x), len(earlier), earlier.learned.noise
    targets, means = np.sin(3 * x[:, 0]) + rng.standard_normal(n), earlier.means(x)
    found = earlier.related(x, targets, means)
    t, z = (targets - targets.mean()) / targets.std(), earlier.kernel.features(x)
    k = earlier.kernel.between(z, z) / earlier.kernel.diagonal(z)[0]
    logs = []
    for g, slope, prior in [
        *((mean, model_earlier.SLOPE, model_earlier.LIKE_ONE / count) for mean in means),
        (means.mean(axis=0), model_earlier.SLOPE, model_earlier.LIKE_ALL),
        (-means.mean(axis=0), model_earlier.SLOPE, model_earlier.REVERSED),
        (np.zeros(n), 0.0, model_earlier.LIKE_NONE),
    ]:
        g = (g - g.mean()) / np.sqrt(g.var() + model_earlier.UNSHARED)
        for residual in RESIDUALS:
            covariance = (
                residual * (k + model_earlier.RUGGED * np.eye(n))
                + noise * np.eye(n)
                + model_earlier.OFFSET_SPREAD**2
                + model_earlier.SLOPE_SPREAD**2 * np.outer(g, g)
            )
            logs.append(math.log(prior) + multivariate_normal(slope * g, covariance).logpdf(t))
    chances = np.exp(np.array(logs) - max(logs)).reshape(count + 3, -1).sum(axis=1)
    chances /= chances.sum()
    np.testing.assert_allclose(found.shares, chances[:count] + chances[count] / count, rtol=1e-7)
    assert found.none == pytest.approx(chances[-2:].sum(), rel=1e-7)


def test_reversed_tasks_are_recognised_and_used_with_the_other_sign(rng: np.random.Generator) -> None:
    earlier, x = tasks_of(rng), rng.random((8, 2))
    means = earlier.means(x)
    related = earlier.related(x, -means.mean(axis=0), means)
    assert related.none > 0.9, "it is like none of them"
    u = rng.random((50, 2))
    agreement = np.corrcoef(earlier.prior(related)(u), -earlier.means(u).mean(axis=0))[0, 1]
    assert agreement > 0.99


def test_the_task_that_fits_gets_the_weight(rng: np.random.Generator) -> None:
    def wave(x: np.ndarray, phase: float) -> np.ndarray:
        return np.sin(5 * x[:, 0] + phase) + np.cos(4 * x[:, 1] + phase)

    tasks = []
    for phase in (0.0, 1.5, 3.0):
        x = rng.random((40, 2))
        tasks.append(Task(f"phase {phase}", x, wave(x, phase)))
    earlier = EarlierTasks(tasks, Kernel.chosen(None, space_columns()))
    x = rng.random((15, 2))
    related = earlier.related(x, 100.0 + 3.0 * wave(x, 1.5), earlier.means(x))
    assert related.shares.argmax() == 1
    assert related.shares[1] > 0.8
    unrelated = earlier.related(x, rng.standard_normal(15), earlier.means(x))
    assert unrelated.none > 0.5


def test_earlier_tasks_fade_as_the_new_one_grows(rng: np.random.Generator) -> None:
    earlier, x = tasks_of(rng), rng.random((90, 2))
    targets, means = np.sin(3 * x[:, 0]) + x[:, 1], earlier.means(x)
    weights = [earlier.related(x[:n], targets[:n], means[:, :n]).weights.sum() for n in (5, 20, 50, 90)]
    assert weights[0] > weights[1] > weights[2] > weights[3] == 0.0
    assert not earlier.related(x, targets, means).counts


def test_a_portfolio_serves_all_tasks() -> None:
    """Two tasks whose best points are far apart: the first two points are one for each."""
    line = np.linspace(0, 1, 21)[:, None]
    columns = list(Space({"x": FloatDistribution(0, 1)}).points.columns)
    tasks = [
        Task("left", line, (line[:, 0] - 0.2) ** 2 * 10 - 1),
        Task("right", line, (line[:, 0] - 0.9) ** 2 * 10 - 1),
    ]
    chosen = EarlierTasks.portfolio([EarlierTasks(tasks, Kernel.chosen(None, columns))], line, 3)[:, 0]
    naive = _naive_portfolio(EarlierTasks(tasks, Kernel.chosen(None, columns)).means(line), 3)
    np.testing.assert_array_equal(chosen, line[naive, 0])


def _naive_portfolio(means: np.ndarray, count: int) -> list[int]:
    chosen: list[int] = []
    for _ in range(count):
        scores = {
            i: float(np.mean(means[:, [*chosen, i]].min(axis=1))) for i in range(means.shape[1]) if i not in chosen
        }
        chosen.append(min(scores, key=lambda i: (scores[i], i)))
    return chosen


def test_fixed_parameters_stay_fixed() -> None:
    kernel, fixed = AdditiveMatern52([0.3, 2.0]), Priors(length_scale_spread=0.0, output_scale_spread=0.0)
    like = fixed.like_others(kernel, 7.0)
    np.testing.assert_array_equal(like.center(kernel)[:3], fixed.center(kernel)[:3])
    assert like.center(kernel)[3] == kernel.theta[3]
