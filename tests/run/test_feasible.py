"""optimize(feasible=…) and LazySampler(feasible=…)."""

import pickle
import threading
from pathlib import Path
from typing import Any

import optuna
import pytest

import lazybo
from lazybo import LazySampler, optimize

SPACE = {"a": (0.0, 1.0), "b": (0.0, 1.0)}


def small(params: dict[str, Any]) -> bool:
    return bool(params["a"] + params["b"] <= 0.3)


SMALL = lazybo.Space(SPACE, feasible=small)


def objective(params: dict[str, Any]) -> float:
    assert small(params), "evaluated although it is not feasible"
    return float((params["a"] - 0.5) ** 2 + (params["b"] - 0.4) ** 2)


def test_only_feasible_configurations_are_evaluated() -> None:
    study = optimize(
        objective,
        SMALL,
        n_trials=20,
        seed=0,
        limits=lazybo.Limits(max_failures=1),
        progress=False,
    )
    assert all(small(trial.params) for trial in study.trials)
    assert study.best_value < 2 * 0.3**2 + 1e-3


def test_the_predicate_stays_in_this_process() -> None:
    lock = threading.Lock()  # cannot be sent to another process

    def feasible(params: dict[str, Any]) -> bool:
        with lock:
            return small(params)

    study = optimize(
        objective, lazybo.Space(SPACE, feasible=feasible), n_trials=8, n_parallel=2, seed=0, progress=False
    )
    assert all(small(trial.params) and trial.state.name == "COMPLETE" for trial in study.trials)


def test_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    def some(n: int, name: str) -> list[dict[str, Any]]:
        study = optimize(
            objective,
            SMALL,
            n_trials=n,
            seed=4,
            storage=tmp_path / f"{name}.db",
            progress=False,
        )
        return [trial.params for trial in study.trials]

    whole = some(14, "whole")
    some(9, "parts")
    assert some(14, "parts") == whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"initial": [{"a": 0.1}, {"a": 0.2, "b": 0.2}]}, "initial configuration 1: .* is not feasible"),
        ({"initial": [{"a": 0.9}]}, "initial configuration 0: no feasible values were found"),
        ({"space": lazybo.Space(SPACE, feasible=lambda params: False)}, "no feasible configuration was found"),
        ({"space": lazybo.Space(SPACE, feasible=lambda params: params["c"])}, "feasible cannot be evaluated"),
    ],
)
def test_errors_come_before_anything_runs(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    with pytest.raises(ValueError, match=message):
        optimize(objective, **{"space": SMALL, "n_trials": 3, "storage": path, **change})
    assert not path.exists()


def test_initial_configurations_are_completed_within_the_feasible_set() -> None:
    study = optimize(
        objective,
        SMALL,
        n_trials=3,
        seed=1,
        initial=[{"a": 0.28}, {"b": 0.29}],
        progress=False,
    )
    assert study.trials[0].params["a"] == 0.28
    assert study.trials[1].params["b"] == 0.29
    assert all(small(trial.params) for trial in study.trials)


def test_a_queued_configuration_that_is_not_feasible_fails_without_being_evaluated() -> None:
    study = optimize(objective, SMALL, n_trials=2, seed=1, progress=False)
    study.enqueue_trial({"a": 0.9, "b": 0.9})
    study.enqueue_trial({"a": 0.25})
    study = optimize(
        objective,
        SMALL,
        n_trials=5,
        storage=study._storage,
        study_name=study.study_name,
        progress=False,
    )
    queued, completed = study.trials[2], study.trials[3]
    assert queued.state.name == "FAIL"
    assert "is not feasible" in str(queued.user_attrs)
    assert completed.params["a"] == 0.25
    assert completed.state.name == "COMPLETE"


def test_known_results_may_be_infeasible() -> None:
    study = optimize(
        objective,
        SMALL,
        n_trials=12,
        seed=1,
        warm_start=[{"a": 0.5, "b": 0.4, "value": 0.0}],
        progress=False,
    )
    assert all(small(trial.params) for trial in study.trials)
    assert study.best_value < 2 * 0.3**2 + 1e-2
    assert lazybo.recommend(study).params in [trial.params for trial in study.trials]


# ------------------------------------------------------------------- sampler


def of_trial(trial: optuna.Trial) -> float:
    params = {"a": trial.suggest_float("a", 0, 1), "b": trial.suggest_float("b", 0, 1)}
    trial.suggest_int("fixed", 3, 3)
    return float((params["a"] - 0.5) ** 2 + (params["b"] - 0.4) ** 2)


def test_the_sampler_suggests_feasible_configurations() -> None:
    def feasible(params: dict[str, Any]) -> bool:
        return small(params) and params["fixed"] == 3  # a parameter that cannot vary

    study = optuna.create_study(sampler=LazySampler(seed=0, feasible=feasible))
    study.enqueue_trial({"a": 0.1, "b": 0.1})
    study.optimize(of_trial, n_trials=20)
    assert all(small(trial.params) for trial in study.trials)
    assert study.best_value < 2 * 0.3**2 + 1e-3


def test_the_first_trial_draws_its_last_parameter_until_it_is_feasible() -> None:
    for seed in range(5):
        study = optuna.create_study(
            sampler=LazySampler(seed=seed, feasible=lambda params: params["a"] * params["b"] <= 0.1)
        )
        study.optimize(of_trial, n_trials=3)
        assert all(trial.params["a"] * trial.params["b"] <= 0.1 for trial in study.trials)


def test_a_parameter_that_no_trial_has_had_yet_does_not_end_the_study(caplog: pytest.LogCaptureFixture) -> None:
    def breaks_first(trial: optuna.Trial) -> float:
        a = trial.suggest_float("a", 0, 1)
        if trial.number < 2:
            raise RuntimeError
        return a + trial.suggest_float("b", 0, 1)

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    optuna.logging.enable_propagation()
    study = optuna.create_study(sampler=LazySampler(seed=0, feasible=small, warn_independent_sampling=False))
    study.optimize(breaks_first, n_trials=8, catch=RuntimeError)
    optuna.logging.disable_propagation()
    optuna.logging.set_verbosity(before)
    assert "feasible needs the parameter 'b'" in caplog.text
    assert all(small(trial.params) for trial in study.trials[3:])


def test_a_study_with_a_lambda_can_be_pickled_and_goes_on() -> None:
    study = optimize(
        objective, lazybo.Space(SPACE, feasible=lambda params: small(params)), n_trials=8, seed=0, progress=False
    )
    copy = pickle.loads(pickle.dumps(study))
    for each in (study, copy):
        each.optimize(of_trial, n_trials=3)
    assert all(small(trial.params) for trial in copy.trials)
    assert [trial.params for trial in copy.trials] == [trial.params for trial in study.trials]


def test_the_sampler_rejects_what_is_no_function() -> None:
    with pytest.raises(ValueError, match="feasible must be a function"):
        LazySampler(feasible="a < 1")  # type: ignore[arg-type]
