"""The tables of real trainings that problems are made of."""

from typing import Any

import numpy as np
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from scipy.stats import spearmanr

from benchmarks import trained

NAMES = trained.names()


def test_the_tables_are_one_small_file() -> None:
    assert trained.FILE.stat().st_size < 2_000_000
    with np.load(trained.FILE) as file:
        assert set(file) == set(NAMES)
    assert len(NAMES) == len(set(NAMES)) >= 40


def _contains(dist: BaseDistribution, value: Any) -> bool:
    if isinstance(dist, CategoricalDistribution):
        return value in dist.choices
    assert isinstance(dist, IntDistribution | FloatDistribution)
    return isinstance(value, type(dist.low)) and dist.low <= value <= dist.high


@pytest.mark.parametrize("name", NAMES)
def test_configurations_lie_in_their_space(name: str) -> None:
    table = trained.table(name)
    assert len(table.configurations) == len(table.errors) >= 500
    assert 4 <= len(table.space) <= 10
    for params in table.configurations:
        assert list(params) == list(table.space)
        assert all(_contains(dist, params[key]) for key, dist in table.space.items())
    for key, dist in table.space.items():
        values = {params[key] for params in table.configurations}
        assert len(values) == len(dist.choices) if isinstance(dist, CategoricalDistribution) else len(values) > 1


@pytest.mark.parametrize("name", NAMES)
def test_the_errors_of_a_table_are_worth_a_search(name: str) -> None:
    errors = trained.table(name).errors
    assert np.all(np.isfinite(errors))
    assert np.all(errors >= 0.0)
    assert np.min(errors) < 0.9 * np.median(errors)
    # Error rates are coarse, and failures all alike.
    assert len(np.unique(errors)) > 0.1 * len(errors)


@pytest.mark.parametrize("name", NAMES)
def test_a_condition_names_values_of_its_parent(name: str) -> None:
    table = trained.table(name)
    for child, (parent, values) in table.conditions.items():
        assert child in table.space
        seen = {params[parent] for params in table.configurations}
        assert set(values) < seen


@pytest.mark.parametrize("name", ["svm-wine", "elastic-friedman", "forest-moons", "mlp-sparse", "boosting-cancer"])
def test_a_training_is_reproduced(name: str) -> None:
    """Other versions of scikit-learn may differ a bit."""
    rows = 12
    again, table = trained.record(name, rows), trained.table(name)
    stored = [[table.space[k].to_internal_repr(v) for k, v in p.items()] for p in table.configurations[:rows]]
    np.testing.assert_allclose(again[:, :-1], stored, rtol=1e-6)
    assert spearmanr(again[:, -1], table.errors[:rows]).statistic > 0.9
    assert np.median(np.abs(again[:, -1] - table.errors[:rows])) < 0.02


@pytest.mark.parametrize("name", ["svm-wine", "svm-diabetes", "elastic-friedman", "mlp-wine", "boosting-friedman"])
def test_an_inactive_parameter_changes_nothing(name: str, rng: np.random.Generator) -> None:
    from benchmarks.trained_models import error

    model, data = name.split("-")
    table = trained.table(name)
    for params in table.configurations[:6]:
        idle = [child for child, (parent, values) in table.conditions.items() if params[parent] not in values]
        other = table.configurations[int(rng.integers(100, 500))]
        changed = {**params, **{child: other[child] for child in idle}}
        assert error(model, data, changed) == error(model, data, params)
