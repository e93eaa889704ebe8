"""`optimize(objective)` without a space: the objective asks its trial for parameters, on every engine."""

import math
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

import lazybo
from lazybo import Belief, LazySampler, Limits, Permutation
from lazybo.study import replay

optuna.logging.set_verbosity(optuna.logging.ERROR)


def objective(trial: Any) -> float:
    lr = trial.suggest_float("lr", 1e-5, 1.0, log=True)
    opt = trial.suggest_categorical("opt", ["sgd", "adam"])
    momentum = trial.suggest_float("momentum", 0.0, 1.0) if opt == "sgd" else 0.5
    layers = trial.suggest_int("layers", 1, 8)
    assert trial.params["lr"] == lr
    return (math.log10(lr) + 3) ** 2 + (momentum - 0.5) ** 2 + 0.1 * abs(layers - 3) + 0.2 * (opt == "adam")


def run(function: Any = objective, n_trials: int = 10, **more: Any) -> optuna.Study:
    return lazybo.optimize(function, **{"n_trials": n_trials, "seed": 1, "progress": False, **more})


def params_of(study: optuna.Study) -> list[dict[str, Any]]:
    return [trial.params for trial in study.trials]


def test_one_worker_does_what_the_sampler_does_and_a_resumed_run_too(tmp_path: Path) -> None:
    whole = run(n_trials=14)
    by_sampler = optuna.create_study(sampler=LazySampler(seed=1))
    by_sampler.optimize(objective, n_trials=14)
    assert params_of(whole) == params_of(by_sampler)
    run(n_trials=6, storage=tmp_path / "study.db")
    parts = run(n_trials=14, storage=tmp_path / "study.db")
    assert params_of(parts) == params_of(whole)
    assert parts.best_value < 1.0


@pytest.mark.parametrize(("executor", "storage"), [("threads", "memory"), ("processes", "file")])
def test_parallel_workers(executor: str, storage: str, tmp_path: Path) -> None:
    where = {} if storage == "memory" else {"storage": tmp_path / "study.db"}
    study = run(executor=executor, n_parallel=2, **where)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 10
    assert [trial.number for trial in study.trials] == list(range(10))
    for trial in study.trials:
        assert ("momentum" in trial.params) == (trial.params["opt"] == "sgd")
        assert trial.value == objective(optuna.trial.FixedTrial(trial.params))


def test_reports_ranges_and_replay_use_the_parameters_of_the_trials(tmp_path: Path) -> None:
    study = run(n_trials=14, storage=tmp_path / "study.db")
    assert set(lazybo.importances(study)) == {"lr", "opt", "momentum", "layers"}
    assert set(lazybo.ranges(study)) == {"lr", "opt", "momentum", "layers"}
    assert lazybo.recommend(study).params.keys() >= {"lr", "opt", "layers"}
    assert 'id="ranges"' in lazybo.write_report(study, tmp_path / "page.html").read_text()
    assert {each.missing for each in replay(study)} == {"what its suggestion had seen was not recorded"}


def test_a_study_of_optuna_goes_on(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    optuna.create_study(study_name="s", storage=storage, sampler=LazySampler(seed=1)).optimize(objective, n_trials=5)
    study = run(n_trials=9, storage=tmp_path / "study.db", study_name="s")
    assert len(study.trials) == 9
    with pytest.raises(ValueError, match="has another space"):
        lazybo.optimize(objective, {"x": (0.0, 1.0)}, n_trials=10, storage=tmp_path / "study.db", study_name="s")


def test_initial_configurations_and_beliefs() -> None:
    study = run(n_trials=4, initial=[{"lr": 0.25, "opt": "adam"}], sampler=LazySampler(seed=1))
    assert study.trials[0].params | {"layers": 0} == {"lr": 0.25, "opt": "adam", "layers": 0}
    believing = run(n_trials=2, sampler=LazySampler(seed=1, beliefs={"lr": Belief(around=1e-2, within=2)}))
    assert believing.trials[0].params["lr"] == pytest.approx(1e-2)


@pytest.mark.parametrize("executor", [None, "processes"])
def test_failures_pruning_and_structure(executor: str | None) -> None:
    def mixed(trial: Any) -> float:
        order = lazybo.suggest(trial, "order", Permutation(["a", "b", "c"]))
        x = trial.suggest_float("x", 0.0, 1.0)
        if trial.number == 1:
            raise ValueError("no luck")
        trial.report(x, 1)
        if trial.number == 2:
            raise optuna.TrialPruned
        return float(order.index("a")) + x

    parallel = {} if executor is None else {"executor": executor, "n_parallel": 2}
    study = run(mixed, n_trials=8, limits=Limits(retries=0), **parallel)
    states = [trial.state for trial in study.trials]
    assert states[1:3] == [TrialState.FAIL, TrialState.PRUNED]
    assert states.count(TrialState.COMPLETE) == 6
    assert all("x" in trial.params for trial in study.trials)


def test_choices_that_are_objects_are_the_objectives_own() -> None:
    def objects(trial: Any) -> float:
        choices = [None, (1, 2), True]
        assert trial.suggest_categorical("c", choices) in choices
        return trial.suggest_float("x", 0, 1, step=0.25)

    assert run(objects, n_trials=6, executor="processes", n_parallel=2).best_value >= 0


@pytest.mark.parametrize(
    ("function", "more", "message"),
    [
        (lambda params, trial: 1.0, {}, "without a space, the objective asks its trial"),
        (lambda lr, opt: 1.0, {}, "without a space, the objective asks its trial"),
        (lambda: 1.0, {}, "without a space, the objective asks its trial"),
        (lazybo.kfold(lambda params, fold: 1.0), {}, "kfold needs a space"),
        (objective, {"warm_start": []}, "warm_start needs a space"),
        (objective, {"max_steps": 5}, "max_steps needs a space"),
        (objective, {"limits": Limits(min_gain=0.1)}, "min_gain needs a space"),
        (objective, {"limits": Limits(confirm=2)}, "confirm needs a space"),
        (objective, {"initial": {"lr": 0.1}}, "initial must be a list of dicts of parameters"),
        (objective, {"initial": [3]}, "initial configuration 0: it must be a dict of parameters, not 3"),
        (objective, {"initial": [{"lr": object()}]}, "initial configuration 0: lr must be a text or a number"),
        (objective, {"initial": [{3: 1.0}]}, "the name of a parameter must be a text, not 3"),
    ],
)
def test_what_needs_a_space(function: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        run(function, **more)


def test_an_argument_of_any_name_gets_the_trial() -> None:
    assert run(lambda t: t.suggest_float("x", 0, 1), n_trials=3).best_value >= 0


@pytest.mark.parametrize(("executor", "storage"), [(None, "memory"), ("processes", "file")])
def test_parameters_with_one_value(executor: str | None, storage: str, tmp_path: Path) -> None:
    """Optuna writes them without asking the sampler, so its cache of a database may not know the trial yet."""

    def single(trial: Any) -> float:
        assert trial.suggest_categorical("c", ["a"]) == "a"
        return float(trial.suggest_float("low", 2.0, 2.0) + trial.suggest_float("x", 0.0, 1.0))

    where = {} if storage == "memory" else {"storage": tmp_path / "study.db"}
    study = run(single, n_trials=4, executor=executor, n_parallel=2 if executor else None, **where)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 4
    assert all(trial.params["low"] == 2.0 for trial in study.trials)


def in_one_trial(trial: Any) -> float:
    return float(trial.suggest_float("x", 0, 1) + trial.suggest_float("x", 5, 6))


def as_number_and_choice(trial: Any) -> float:
    return float(trial.suggest_float("x", 0, 1) + trial.suggest_categorical("x", [1, 2]))


def in_two_trials(trial: Any) -> float:
    if trial.number == 0:
        raise ValueError(trial.suggest_categorical("x", ["a", "b"]))
    return float(trial.suggest_categorical("x", ["a", "b", "c"]) == "a")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (in_one_trial, "asks for 'x' twice, for a number from 0.0 to 1.0 and then for a number from 5.0 to 6.0"),
        (as_number_and_choice, "asks for 'x' twice, for a number from 0.0 to 1.0 and then for one of"),
        (in_two_trials, r"'x' is one of \['a', 'b', 'c'\] here, but one of \['a', 'b'\] in trial 0.*use another name"),
        (lambda trial: trial.suggest_float(3, 0, 1), "the name of a parameter must be a text, not 3"),
    ],
)
def test_wrong_names(function: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(lazybo.RunFailed, match=message):
        run(function, n_trials=3, storage=tmp_path / "study.db", n_parallel=1)


@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution")
def test_choices_that_no_file_can_hold(tmp_path: Path) -> None:
    class Thing:
        pass

    with pytest.raises(lazybo.RunFailed, match=r"the choices of 'x' cannot be stored: .*use texts or numbers"):
        run(lambda trial: float(trial.suggest_categorical("x", [Thing, None]) is None), storage=tmp_path / "study.db")


@pytest.mark.parametrize(
    ("function", "more", "message"),
    [
        (lambda trial: 1.0, {}, "the objective has asked its trial for no parameter, so nothing is optimised"),
        (objective, {"initial": [{"rate": 0.1}]}, "initial has 'rate', but the objective has asked for 'layers', 'lr'"),
        (objective, {"sampler": LazySampler(beliefs={"rate": Belief(1, 2)}, seed=1)}, "beliefs has 'rate', but the"),
    ],
)
def test_what_the_objective_never_asks_for_is_a_warning(function: Any, more: dict[str, Any], message: str) -> None:
    with pytest.warns(UserWarning, match=message):
        assert len(run(function, n_trials=2, **more).trials) == 2
