"""LazySampler with several objectives, ``trial.set_constraint`` and ``constraints_func``."""

import warnings
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from lazybo import recommend
from lazybo.study.model import model_of
from lazybo.study.sampler import LazySampler

optuna.logging.set_verbosity(optuna.logging.ERROR)


def constrained(trial: optuna.Trial) -> float:
    x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
    trial.set_constraint("disk", (x - 0.6) ** 2 + (y - 0.6) ** 2 - 0.09)
    return x + y


def two(trial: optuna.Trial) -> tuple[float, float]:
    x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
    return x**2 + y, (x - 1) ** 2 + y


def feasible(study: optuna.Study) -> list[FrozenTrial]:
    return [t for t in study.trials if all(value <= 0 for value in t.constraints.values())]


def test_constraints_that_trials_set_are_used_without_a_warning() -> None:
    study = optuna.create_study(sampler=LazySampler(seed=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study.optimize(constrained, n_trials=30)
    assert study.best_value == pytest.approx(1.2 - 0.3 * 2**0.5, abs=0.02)
    assert len(feasible(study)) >= 10, "30 random trials have 8"
    assert recommend(study).number in {t.number for t in feasible(study)}


def test_constraints_func_is_called_as_optunas_samplers_call_it() -> None:
    seen: list[TrialState] = []

    def constraints(trial: FrozenTrial) -> tuple[float, ...]:
        seen.append(trial.state)
        return (trial.params["x"] - 0.5, 0.1 - trial.params["x"])

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        if trial.number == 3:
            raise ValueError
        return -x

    study = optuna.create_study(sampler=LazySampler(seed=0, constraints_func=constraints))
    study.optimize(objective, n_trials=15, catch=ValueError)
    assert len(seen) == 14, "not for failed trials"
    assert study.best_value == pytest.approx(-0.5, abs=0.01)
    assert study.trials[-1].constraints.keys() == {"0", "1"}
    with pytest.raises(TypeError, match="constraints_func"):
        LazySampler(constraints_func=3)  # type: ignore[arg-type]


def test_the_model_of_a_study_has_its_front() -> None:
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=LazySampler(seed=0))
    study.optimize(lambda trial: (two(trial)[0], -two(trial)[1]), n_trials=12)
    front = model_of(study, study.trials).optimizer.front
    assert sorted(best.values for best in front) == sorted(tuple(trial.values) for trial in study.best_trials)


@pytest.mark.parametrize("objective", [constrained, two], ids=["constraint", "two objectives"])
def test_a_study_that_is_resumed_makes_the_same_suggestions(
    objective: Callable[[optuna.Trial], float], tmp_path: Path
) -> None:
    directions = ["minimize"] * (2 if objective is two else 1)
    found = []
    for storage, runs in ((optuna.storages.InMemoryStorage(), (14,)), (f"sqlite:///{tmp_path}/s.db", (7, 3, 4))):
        for n in runs:
            study = optuna.create_study(
                storage=storage, study_name="s", directions=directions, load_if_exists=True, sampler=LazySampler(seed=2)
            )
            study.optimize(objective, n_trials=n)
        found.append([trial.params for trial in study.trials])
    assert found[0] == found[1]


def test_a_failed_trial_teaches_the_constraint_that_it_has_measured() -> None:
    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        trial.set_constraint("c", x - 0.5)
        if x > 0.5:
            raise ValueError
        return -x

    study = optuna.create_study(sampler=LazySampler(seed=0))
    study.optimize(objective, n_trials=12, catch=ValueError)
    optimizer = model_of(study, study.trials).optimizer
    assert len(optimizer.planner.records.violations["c"]) == 12
    assert not any(value != value for value in optimizer.planner.records.violations["c"])
