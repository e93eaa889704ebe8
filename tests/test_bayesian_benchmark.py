"""Our model beside a fully Bayesian one: the figures, without BoTorch."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import bayesian, calibration
from benchmarks.runner import append, read
from lazybo.gp.mixture import Components


def mixture(rng: np.random.Generator, m: int) -> tuple[Components, np.ndarray]:
    """Three normal distributions at m points, and a draw from each mixture."""
    weights = np.array([0.5, 0.3, 0.2])
    mean, std = rng.normal(size=(3, m)), rng.uniform(0.2, 2.0, (3, m))
    chosen = rng.choice(3, p=weights, size=m)
    draws = mean[chosen, np.arange(m)] + std[chosen, np.arange(m)] * rng.standard_normal(m)
    return Components(np.log(weights), mean, std), draws


def test_the_levels_of_draws_are_uniform(rng: np.random.Generator) -> None:
    found, draws = mixture(rng, 20_000)
    assert np.quantile(bayesian.levels(found, draws), [0.025, 0.25, 0.5, 0.975]) == pytest.approx(
        [0.025, 0.25, 0.5, 0.975], abs=0.02
    )


def test_the_truth_scores_best(rng: np.random.Generator) -> None:
    found, draws = mixture(rng, 2_000)
    true, narrow, wide = (bayesian.scores(found._replace(std=k * found.std), draws) for k in (1.0, 0.3, 3.0))
    assert true["random"] == pytest.approx(0.95, abs=0.02)
    assert narrow["random"] < 0.8 < 0.97 < wide["random"]
    for other in (narrow, wide):
        assert other["density"] < true["density"]
        assert other["crps"] > true["crps"]


def test_our_coverage_is_that_of_the_intervals_of_predict() -> None:
    data = bayesian.given("levy-2d", 3, 14)
    ours = bayesian.Ours(data.problem.space, 3)
    ours.load(data.points, data.values)
    found = bayesian.scores(ours.predict(data.configurations), bayesian.warping_of(data)(data.truths))
    assert found["random"] == calibration.contains(ours.optimizer.predict(data.configurations), data.truths)


def test_rows_are_resumed_and_continue_the_same_run(tmp_path: Path) -> None:
    path, makers = tmp_path / "bayesian.csv", {"lazybo": bayesian.Ours}
    bayesian.run_all(path, ["levy-2d"], 0, (12,), 2, makers)
    first = path.read_text()
    bayesian.run_all(path, ["levy-2d"], 0, (8, 12), 2, makers)
    assert path.read_text().startswith(first)
    rows = read(path)
    assert [row["n"] for row in rows] == ["12", "8"]
    assert all(float(row["after"]) <= float(row["before"]) for row in rows)
    assert float(rows[0]["before"]) <= float(rows[1]["before"])


def test_means_are_over_problems_that_both_models_have(tmp_path: Path) -> None:
    path = tmp_path / "bayesian.csv"
    for problem, model, figure in (("a", "lazybo", 1), ("a", "NUTS", 0), ("b", "lazybo", 0), ("c", "NUTS", 1)):
        append(
            path,
            bayesian.FIELDS,
            dict.fromkeys(bayesian.FIELDS, figure) | {"problem": problem, "model": model, "n": 50},
        )
    lines = bayesian.table(read(path)).splitlines()
    assert len(lines) == 2 + 4 + 2
    assert [line.split(" | ")[:4] for line in lines[-2:]] == [
        ["| mean of 1", "50", "lazybo", "1.000"],
        ["| mean of 1", "50", "NUTS", "0.000"],
    ]
