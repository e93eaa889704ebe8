"""The suite of real trainings, as far as it needs no data of others."""

from collections import Counter

import numpy as np
import pytest

from benchmarks import problems, trained, trainings
from lazybo import Space

# A small one of each kind: classes and numbers, with and without choices that turn parameters off.
NAMES = ["svm-wine", "elastic-friedman"]


def test_the_suite_has_nine_families_in_turn() -> None:
    names = problems.SUITES["trainings"]
    count = Counter(problems.family(name) for name in names)
    assert len(names) == len(set(names)) == 98
    assert len(count) == 9
    assert {family: count[family] for family in trained.MODELS} == dict.fromkeys(trained.MODELS, 10)
    assert len({problems.family(name) for name in names[:9]}) == 9


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


@pytest.mark.parametrize("name", NAMES)
def test_errors_of_rows_and_of_configurations_are_the_same(name: str, rng: np.random.Generator) -> None:
    training = trainings.load(name)
    rows = training.values(rng.random((20, len(training.space))))
    one_by_one = [training.error(training.params(row)) for row in rows]
    assert one_by_one == pytest.approx(training.errors(rows))


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_that_does_not_matter_changes_no_error(name: str, rng: np.random.Generator) -> None:
    training = trainings.load(name)
    assert training.conditions
    changes = 0
    for row, other in rng.random((2, 20, len(training.space))).transpose(1, 0, 2):
        params, others = (training.params(training.values(u[None])[0]) for u in (row, other))
        idle = [key for key, (parent, values) in training.conditions.items() if params[parent] not in values]
        without = {key: value for key, value in params.items() if key not in idle}
        assert training.error({**params, **{key: others[key] for key in idle}}) == training.error(params)
        assert training.error(without) == training.error(params), "it may be missing"
        changes += len(idle)
    assert changes > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_declared_space_has_the_conditions(name: str) -> None:
    plain, declared = problems.load(name, 1), problems.load(f"{name}~declared", 1)
    assert plain.declared is None
    assert isinstance(declared.declared, Space)
    assert set(declared.declared.conditions) == set(trainings.load(name).conditions)
    assert (declared.name, declared.family) == (f"{name}~declared", plain.family)
    assert (declared.optimum, declared.scale) == (plain.optimum, plain.scale)


def test_the_data_of_others_is_named_by_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYBO_CURVES", "nowhere")
    with pytest.raises(SystemExit, match="LAZYBO_CURVES"):
        trainings.finals("not loaded before")
