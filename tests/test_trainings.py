"""The suite of real trainings, as far as it needs no data of others."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from benchmarks import problems, trained, trainings

# A small one of each kind: classes and numbers, with and without choices that turn parameters off.
NAMES = ["svm-wine", "elastic-friedman"]


@pytest.mark.parametrize("name", NAMES)
def test_the_optimum_is_not_above_what_the_table_has(name: str) -> None:
    problem, table = problems.load(name, 1), trained.table(name)
    played = np.array([problem.objective(params) for params in table.configurations])
    assert problem.optimum <= played.min()
    assert problem.optimum >= table.errors.min(), "trees never predict less than they have seen"
    assert np.corrcoef(played, table.errors)[0, 1] > 0.8


@pytest.mark.parametrize("name", NAMES)
def test_the_unit_is_what_random_search_reaches(name: str, rng: np.random.Generator) -> None:
    problem, training = problems.load(name, 1), trainings.load(name)
    ends = [problem.regret(training.draw(rng, trainings.UNIT).min()) for _ in range(100)]
    assert np.mean(np.array(ends) < 1) == pytest.approx(0.5, abs=0.2)


def test_the_tables_are_one_small_file() -> None:
    assert trained.FILE.stat().st_size < 2_000_000
    with np.load(trained.FILE) as file:
        assert set(file) == set(trained.names())
    assert len(trained.names()) == len(set(trained.names())) >= 40


@pytest.mark.parametrize("name", ["svm-wine", "mlp-sparse", "boosting-cancer"])
def test_a_training_is_reproduced(name: str) -> None:
    """Other versions of scikit-learn may differ a bit."""
    rows = 12
    again, table = trained.record(name, rows), trained.table(name)
    stored = [[table.space[k].to_internal_repr(v) for k, v in p.items()] for p in table.configurations[:rows]]
    np.testing.assert_allclose(again[:, :-1], stored, rtol=1e-6)
    assert spearmanr(again[:, -1], table.errors[:rows]).statistic > 0.9
    assert np.median(np.abs(again[:, -1] - table.errors[:rows])) < 0.02
