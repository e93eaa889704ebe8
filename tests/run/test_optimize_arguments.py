"""optimize(): wrong arguments are one clear error, and nothing is made."""

import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution, IntDistribution

import lazybo
from lazybo import LazySampler, optimize
from tests.run.strategies import NUMBERS

SPACE = {"x": FloatDistribution(-5, 5), "y": FloatDistribution(-5, 5)}


def bowl(params: dict[str, Any]) -> float:
    return float((params["x"] - 1) ** 2 + params["y"] ** 2)


class Follower:
    def __call__(self, study: optuna.Study, trial: Any) -> None:
        pass

    def report(self, value: float) -> None:
        pass


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_trials": 0}, "n_trials must be"),
        ({"n_trials": None}, "nothing would end this run"),
        ({"limits": lazybo.Limits(confirm=3)}, "confirm is a part of n_trials=3"),
        ({"limits": lazybo.Limits(trial_timeout=1.0)}, "use executor='processes'"),
        ({"initial": [{"x": 1.0}, {"x": 9.0}]}, "initial configuration 1: x must be a number from .*, not 9.0"),
        ({"initial": [{"z": 1.0}]}, "initial configuration 0: unknown parameter 'z'"),
        ({"initial": [3]}, "initial configuration 0: it must be a dict of parameters, not 3"),
        ({"initial": {"x": 1.0}}, "initial must be a list of dicts"),
        ({"initial": 3}, "initial must be a list of dicts"),
        ({"seed": 10**400}, "seed must be below"),
        ({"seed": 3, "sampler": LazySampler(seed=4)}, "seed=3 here, and seed=4 in the sampler; leave one of them out"),
        ({"sampler": LazySampler(feasible=bool)}, r"give feasible to the space: lazybo.Space\({...}, feasible=...\)"),
        ({"sampler": LazySampler(deterministic=True), "limits": lazybo.Limits(confirm=1)}, "leave one of them out"),
        ({"n_parallel": 2.0}, "n_parallel must be"),
        ({"n_parallel": 0}, "n_parallel must be"),
        ({"warm_start": [{"x": 1.0, "y": 2.0}]}, "row 0 .* no 'value'"),
        ({"storage": "no/such/folder/s.db"}, "does not exist"),
        ({"direction": "up"}, "direction must be"),
        ({"direction": np.array(["minimize", "maximize"])}, "direction must be"),
        ({"direction": None}, "direction must be"),
        ({"callbacks": print}, "callbacks must be a list of functions"),
        ({"callbacks": "print"}, "callbacks must be a list of functions"),
        ({"callbacks": [3]}, "a callback must be a function"),
        ({"callbacks": [lambda study: None]}, r"a callback must be a function of \(study, trial\), not"),
        ({"callbacks": [Follower]}, r"a callback must be a function of \(study, trial\); make one: Follower\(...\)"),
        ({"callbacks": [Follower()]}, r"the report of a callback must be a method of \(study, trial, step, value\)"),
        ({"pruner": "median"}, "pruner must be one of optuna.pruners"),
        ({"pruner": optuna.pruners.NopPruner}, r"pruner is the class NopPruner; write NopPruner\(\), with parentheses"),
        ({"study_name": 3}, "study_name must be a string"),
        ({"limits": 60}, r"limits must be lazybo.Limits\(...\), such as .*, not 60"),
        ({"limits": {"timeout": 60}}, r"limits must be lazybo.Limits\(...\)"),
        ({"sampler": optuna.samplers.TPESampler()}, "must be lazybo.LazySampler.*, not TPESampler: .* study.optimize"),
        ({"sampler": LazySampler}, r"the class LazySampler; write lazybo.LazySampler\(\), with parentheses"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_evaluated_or_written(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    calls: list[int] = []
    arguments = {"n_trials": 3, "storage": tmp_path / "s.db", **change}
    with pytest.raises((TypeError, ValueError), match=message):
        optimize(lambda p: calls.append(1) or bowl(p), SPACE, **arguments)
    assert not calls
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("executor", ["cluster", 3, object()])
def test_an_unknown_executor_is_refused(executor: object) -> None:
    with pytest.raises((TypeError, ValueError), match="threads"):
        optimize(bowl, SPACE, n_trials=3, executor=executor)


@pytest.mark.parametrize("objective", [3, lambda a, b: a, lambda x: x, lazybo.kfold(lambda x, y: x)])
def test_an_objective_that_cannot_be_called_is_refused_and_nothing_is_written(objective: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="objective"):
        optimize(objective, SPACE, n_trials=3, storage=tmp_path / "s.db")
    assert not list(tmp_path.iterdir())


@settings(max_examples=60)
@given(st.sampled_from(["n_trials", "seed", "n_parallel", "max_steps"]), NUMBERS)
def test_any_number_works_or_is_refused_before_a_study_is_made(name: str, number: Any) -> None:
    storage = optuna.storages.InMemoryStorage()
    options: dict[str, Any] = {"n_trials": 2, name: number, "storage": storage}
    if name == "n_parallel":
        options["executor"] = "threads"
    try:
        # Whatever was asked for, the second trial is the last.
        study = optimize(lambda x, y: x + y, SPACE, callbacks=[lambda s, t: t.number == 1 and s.stop()], **options)
    except (TypeError, ValueError):
        assert not storage.get_all_studies()
    else:
        assert study.trials


def test_nothing_is_printed_where_nobody_looks(capfd: pytest.CaptureFixture[str]) -> None:
    optuna.logging.disable_default_handler()
    try:
        logging.getLogger("lazybo").setLevel(logging.ERROR)
        optimize(bowl, SPACE, n_trials=3)
    finally:
        optuna.logging.enable_default_handler()
        logging.getLogger("lazybo").setLevel(logging.NOTSET)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("n_jobs", r"optimize\(\) has no argument n_jobs=; use n_parallel= "),
        ("timeout", r"has no argument timeout=; use limits=lazybo.Limits\(timeout=...\)"),
        ("lag", r"has no argument lag=; use sampler=lazybo.LazySampler\(lag=...\)"),
        ("n_startup_trials", r"use sampler=lazybo.LazySampler\(n_startup_trials=...\)"),
        ("feasible", r"has no argument feasible=; use lazybo.Space\({...}, feasible=...\) as the space"),
        ("conditions", r"use lazybo.Space\({...}, conditions=...\) as the space"),
        ("directions", "has no argument directions=; use direction="),
        ("reports", r"use pruner=lazybo.LazyPruner\(reports=...\)"),
        ("n_iter", "use n_trials="),
        ("belief", r"has no argument belief=; use lazybo.Space\({...}, beliefs=...\) as the space"),
        ("canonical", r"use lazybo.Space\({...}, canonical=...\) as the space"),
        ("track", r"use callbacks=\[...\] with a tracker, such as lazybo.track.mlflow.MLflow\(\)"),
        ("n_trails", "did you mean n_trials="),
        ("something", "has no argument something=; it has objective, space, n_trials, "),
    ],
)
def test_an_unknown_argument_is_refused_with_what_to_use_instead(name: str, message: str) -> None:
    calls: list[int] = []
    with pytest.raises(TypeError, match=message):
        optimize(lambda p: calls.append(1) or bowl(p), SPACE, **{"n_trials": 3, name: 1})
    assert not calls


def test_a_space_with_fewer_configurations_than_trials_is_a_warning(tmp_path: Path) -> None:
    space = {"layers": IntDistribution(1, 2), "opt": ["sgd", "adam"]}

    def run(n_trials: int, **options: Any) -> optuna.Study:
        return optimize(lambda layers, opt: layers + len(opt), space, n_trials=n_trials, seed=0, **options)

    with pytest.warns(UserWarning, match="the space has only 4 configurations, so some of 5 trials repeat") as caught:
        run(5)
    assert [warning.filename for warning in caught] == [__file__]
    run(4)
    run(5, limits=lazybo.Limits(confirm=1))
    with pytest.raises(lazybo.RunFailed):
        optimize(lambda **_: math.nan, space, n_trials=3, seed=0, storage=tmp_path / "s.db")
    assert len(run(7, storage=tmp_path / "s.db").trials) == 7, "failed trials may be repeated"
