"""Earlier studies: what fits a space, how it is used, and that it does no harm."""

import logging
import math
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution
from scipy.stats import multivariate_normal

from lazybo import Matern52, Optimizer, Priors, Space
from lazybo.gp import EarlierTasks, Kernel, Learner, Process, Task
from lazybo.gp import earlier as model_earlier
from lazybo.gp.earlier import RESIDUALS
from lazybo.gp.fit import Data, learn_together
from lazybo.gp.kernels import AdditiveMatern52
from lazybo.gp.kernels.base import PriorMean
from lazybo.search.decide import CONTROL
from lazybo.search.earlier import EarlierStudy, fitting, say, thinned
from lazybo.search.planner import EARLIER_STARTUP

SPACE = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


def bowl(params: dict[str, Any], x: float = 0.3, y: float = 0.7) -> float:
    return float((params["x"] - x) ** 2 + (params["y"] - y) ** 2)


def results(count: int, seed: int = 0, shift: float = 0.0, sign: float = 1.0) -> list[tuple[dict[str, float], float]]:
    """Results of a related problem: a bowl whose minimum is shifted a little, in other units."""
    points = np.random.default_rng(seed).random((count, 2))
    return [
        ({"x": float(x), "y": float(y)}, sign * (40.0 + 7.0 * bowl({"x": x, "y": y}, 0.3 + shift))) for x, y in points
    ]


def best_after(count: int, **options: Any) -> tuple[float, Optimizer]:
    optimizer = Optimizer(SPACE, seed=1, **options)
    for _ in range(count):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, bowl(suggestion.params))
    return optimizer.best.value, optimizer


@pytest.fixture(autouse=True)
def _say_again() -> None:
    say.cache_clear()


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
    return list(Space({"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}).columns)


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
    columns = list(Space({"x": FloatDistribution(0, 1)}).columns)
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


# ------------------------------------------------------------------- what fits


def test_sources_become_results() -> None:
    study = optuna.create_study(direction="maximize", study_name="old")
    study.add_trial(optuna.create_trial(params={"x": 0.5}, distributions={"x": FloatDistribution(0, 1)}, value=3.0))
    study.add_trial(
        optuna.create_trial(
            params={"x": 0.1}, distributions={"x": FloatDistribution(0, 1)}, state=optuna.trial.TrialState.FAIL
        )
    )
    table = [
        {"params_x": 0.2, "number": 7, "state": "COMPLETE", "value": 4.0},
        {"x": 0.3, "value": None},
        {"x": 0.4, "value": math.nan},
    ]
    pairs = [({"x": 0.5}, 6.0)]
    found = EarlierStudy.read([study, table, pairs], ["maximize"])
    assert found == (
        EarlierStudy("old", ({"x": 0.5},), ((-3.0,),)),
        EarlierStudy("table 2", ({"x": 0.2},), ((-4.0,),)),
        EarlierStudy("table 3", ({"x": 0.5},), ((-6.0,),)),
    )


@pytest.mark.parametrize(
    ("sources", "reason"),
    [
        (3, "a list of studies"),
        ("study", "a list of studies"),
        ([3], "each of earlier"),
        ([[1, 2]], "row 0 of the earlier table 1"),
        ([[{"x": 1.0}]], "with 'value'"),
        ([[({"x": 1.0}, "low")]], "must be a number"),
        ([[({"x": 1.0}, [1.0, 2.0])]], "must have 1 values"),
    ],
)
def test_wrong_sources_are_rejected(sources: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Optimizer(SPACE, earlier=sources)


def test_a_study_with_other_objectives_is_rejected() -> None:
    study = optuna.create_study(directions=["minimize", "maximize"], study_name="two")
    with pytest.raises(ValueError, match="'two' has 2 objectives"):
        Optimizer(SPACE, earlier=[study])


def test_what_does_not_fit_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    space = Space(Optimizer({"x": (0.0, 1.0), "lr": (1e-4, 1e-1, "log"), "kind": ["a", "b"]}).space.distributions)
    good = [({"x": 3.0, "lr": 1e-6, "kind": "a", "old": 7}, 1.0), ({"x": 0.1, "lr": 0.1, "kind": "b", "old": 1}, 2.0)]
    bad = [({"x": 0.1, "lr": -1.0, "kind": "a"}, 1.0), ({"x": 0.1, "lr": 0.1, "kind": "c"}, 1.0)]
    (study,) = EarlierStudy.read([good * 2 + bad], ["minimize"])
    with caplog.at_level(logging.WARNING, "lazybo"):
        found = fitting([study], space)
    assert found.points[0].shape == (4, 3)
    assert found.points[0][0, 0] == 3.0  # outside of the range, where it is
    assert "2 of its 6 results do not fit" in caplog.text
    assert "ignored, since this space has no such parameters: 'old'" in caplog.text


def test_a_study_that_lacks_what_others_have_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    lacking = [({"x": params["x"]}, value) for params, value in results(5, 2)]
    with caplog.at_level(logging.WARNING, "lazybo"):
        found = fitting(EarlierStudy.read([results(5), results(5, 1), lacking], ["minimize"]), Optimizer(SPACE).space)
    assert found.names == ["table 1", "table 2"]
    assert "'table 3' is not used: it has no parameter 'y'" in caplog.text


def test_unknown_parameters_make_no_difference(rng: np.random.Generator) -> None:
    optimizer = Optimizer({**SPACE, "new": (0.0, 1.0)}, earlier=[results(30)], seed=0)
    (earlier,) = (each.earlier for each in optimizer.model.search.models.objectives)
    assert earlier is not None
    u = rng.random((5, 3))
    moved = u.copy()
    moved[:, 2] = rng.random(5)
    np.testing.assert_allclose(earlier.means(u), earlier.means(moved), atol=1e-6)


def test_too_many_trials_are_thinned(rng: np.random.Generator) -> None:
    values = rng.standard_normal(200)
    rows = thinned(values, 40)
    assert len(set(rows.tolist())) == 40
    assert set(np.argsort(values)[:10].tolist()) <= set(rows.tolist())
    np.testing.assert_array_equal(rows, thinned(values, 40))


@settings(max_examples=30, deadline=None)
@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), most=st.integers(1, 80))
def test_thinning_keeps_the_best(values: list[float], most: int) -> None:
    rows = thinned(np.array(values), most)
    assert len(rows) == min(len(values), most)
    assert min(values) in np.array(values)[rows]


# ------------------------------------------------------------------ how it is used


def test_a_related_study_saves_evaluations() -> None:
    cold, _ = best_after(6)
    warm, optimizer = best_after(6, earlier=[results(40, shift=0.02)])
    assert optimizer.model.search.n_startup == EARLIER_STARTUP
    assert warm < cold / 3


def test_the_first_suggestion_is_good_in_the_earlier_studies() -> None:
    optimizer = Optimizer(SPACE, seed=0, earlier=[results(60), results(60, seed=1, shift=0.05)])
    assert bowl(optimizer.ask().params) < 0.02
    assert bowl(optimizer.ask().params) < 0.05
    cold = Optimizer(SPACE, seed=0)
    assert optimizer.ask().params == [cold.ask().params for _ in range(CONTROL + 1)][CONTROL]


def test_a_reversed_study_does_no_harm() -> None:
    cold, _ = best_after(20)
    misled, _ = best_after(20, earlier=[results(60, sign=-1.0)])
    assert misled < 1e-3
    assert cold < 1e-3


def test_a_study_with_the_other_direction_is_turned() -> None:
    """It maximised what this one minimises, with the sign changed: the same good regions."""
    study = optuna.create_study(direction="maximize")
    spaces = {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}
    for params, value in results(40):
        study.add_trial(optuna.create_trial(params=params, distributions=spaces, value=-value))
    assert bowl(Optimizer(SPACE, seed=0, earlier=[study]).ask().params) < 0.02


def test_only_feasible_points_are_suggested() -> None:
    optimizer = Optimizer(Space(SPACE, feasible=lambda params: params["x"] > 0.5), seed=0, earlier=[results(30)])
    assert all(optimizer.ask().params["x"] > 0.5 for _ in range(6))


def test_studies_of_which_nothing_fits_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "lazybo"):
        optimizer = Optimizer(SPACE, seed=0, earlier=[[({"z": 1.0}, 2.0)] * 5, [({"x": 0.1, "y": 0.2}, 1.0)] * 5])
    assert optimizer.ask() == Optimizer(SPACE, seed=0).ask()
    assert "is not used" in caplog.text


def test_earlier_studies_that_no_longer_count_cost_nothing() -> None:
    optimizer = Optimizer(SPACE, seed=1, earlier=[results(20)], lag=20)
    for params, _ in results(70, seed=5):
        optimizer.observe(params, bowl(params))
    optimizer.ask()
    process, _ = optimizer.model.surrogate()
    assert process.prior is None
    assert optimizer.model.related()[0].name == "table 1"


def test_fixed_parameters_stay_fixed() -> None:
    kernel, fixed = AdditiveMatern52([0.3, 2.0]), Priors(length_scale_spread=0.0, output_scale_spread=0.0)
    like = fixed.like_others(kernel, 7.0)
    np.testing.assert_array_equal(like.center(kernel)[:3], fixed.center(kernel)[:3])
    assert like.center(kernel)[3] == kernel.theta[3]
