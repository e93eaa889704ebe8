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
from lazybo.acquisition import Acquired
from lazybo.fit import Priors
from optuna.distributions import FloatDistribution, IntDistribution

import lazybo
from lazybo import optimize

SPACE = {"x": FloatDistribution(-5, 5), "y": FloatDistribution(-5, 5)}


def bowl(params: dict[str, Any]) -> float:
    return float((params["x"] - 1) ** 2 + params["y"] ** 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_trials": 0}, "n_trials must be"),
        ({"n_trials": None}, "nothing would end this run"),
        ({"n_trials": 2.5}, "n_trials must be"),
        ({"timeout": -1}, "timeout must be"),
        ({"trial_timeout": 1.0}, "use executor='processes'"),
        ({"retries": -1}, "retries must be"),
        ({"patience": 0}, "patience must be"),
        ({"target_value": math.nan}, "target_value must be"),
        ({"initial": [{"x": 1.0}, {"x": 9.0}]}, "initial configuration 1: x must be a number from .*, not 9.0"),
        ({"initial": [{"z": 1.0}]}, "initial configuration 0: unknown parameter 'z'"),
        ({"initial": [3]}, "initial configuration 0: it must be a dict of parameters, not 3"),
        ({"initial": {"x": 1.0}}, "initial must be a list of dicts"),
        ({"initial": 3}, "initial must be a list of dicts"),
        ({"timeout": math.inf, "n_trials": None}, "nothing would end this run"),
        ({"timeout": math.nan}, "timeout must be"),
        ({"target_value": 10**400}, "target_value must be"),
        ({"target_value": 1j}, "target_value must be"),
        ({"seed": 10**400}, "seed must be below"),
        ({"n_parallel": 2.0}, "n_parallel must be"),
        ({"warm_start": [{"x": 1.0, "y": 2.0}]}, "row 0 .* no 'value'"),
        ({"storage": "no/such/folder/s.db"}, "does not exist"),
        ({"n_parallel": 0}, "n_parallel"),
        ({"direction": "up"}, "direction must be"),
        ({"lag": -1}, "lag"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_evaluated(change: dict[str, Any], message: str) -> None:
    calls: list[int] = []
    with pytest.raises(ValueError, match=message):
        optimize(lambda p: calls.append(1) or bowl(p), SPACE, **{"n_trials": 3, **change})
    assert not calls


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"callbacks": print}, "callbacks must be a list of functions"),
        ({"callbacks": "print"}, "callbacks must be a list of functions"),
        ({"callbacks": [3]}, "a callback must be a function"),
        ({"pruner": "median"}, "pruner must be one of optuna.pruners"),
        ({"pruner": optuna.pruners.NopPruner}, "pruner must be one of optuna.pruners"),
        ({"study_name": 3}, "study_name must be a string"),
        ({"conditions": {"y": ("x", 1)}}, r"the condition of 'y' must be lazybo.Condition\(parent, values\)"),
        ({"conditions": 5}, "conditions must be a dict"),
        ({"conditions": ["x"]}, "conditions must be a dict"),
        ({"conditions": {"z": lazybo.Condition("x", (1,))}}, "conditions: .* no parameter 'z'; this space has"),
        ({"conditions": {"y": lazybo.Condition("z", (1,))}}, "conditions: .* no parameter 'z'; this space has"),
        ({"conditions": {"y": lazybo.Condition(["x"], (1,))}}, "conditions: .*: there is no parameter"),
        ({"conditions": {"y": lazybo.Condition("x", 1)}}, "conditions: .*'y' must have a list of values, not 1"),
        ({"conditions": {"y": lazybo.Condition("x", "a")}}, "conditions: .*'y' must have a list of values, not 'a'"),
        ({"conditions": {"y": lazybo.Condition("x", {1})}}, "conditions: .*'y' must have a list of values"),
        ({"conditions": {"y": lazybo.Condition("x", ())}}, "conditions: .*'y' has no values"),
        ({"priors": {"noise": 1e-3}}, "priors must be lazybo.gp.fit.Priors or None, not {'noise'"),
        ({"priors": False}, "priors must be lazybo.gp.fit.Priors"),
        ({"priors": Priors}, "priors must be lazybo.gp.fit.Priors"),
        ({"value_transform": "log"}, r"value_transform must be one of \['warped'"),
        ({"value_transform": math.log}, "value_transform must be one of"),
        ({"value_transform": np.array(["warped", "scaled"])}, "value_transform must be one of"),
        ({"n_startup_trials": -1}, "n_startup_trials must be"),
        ({"kernel": lazybo.Matern52}, "kernel must be one of lazybo.gp.kernels"),
        ({"kernel": "rbf"}, "kernel must be one of"),
        ({"lag": np.array([1, 2])}, "lag must be"),
        ({"direction": np.array(["minimize", "maximize"])}, "direction must be"),
        ({"acquisition": abs}, "acquisition.* must return .*Acquired .*, but raised TypeError"),
        ({"acquisition": lambda mean, std, best: (mean, mean, std)}, r"must return .*Acquired .*, not \(array"),
        ({"acquisition": lambda mean, std, best: Acquired(mean[:1], std, std)}, "must return .*, not Acquired"),
    ],
)
def test_objects_of_the_wrong_kind_are_refused_at_once(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        optimize(bowl, SPACE, n_trials=3, storage=tmp_path / "s.db", **change)
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


NUMBERS = st.one_of(
    st.sampled_from(
        [
            1,
            2,
            0,
            -1,
            True,
            10**400,
            -(10**400),
            2**63,
            2**64,
            1e10,
            1e300,
            math.inf,
            -math.inf,
            math.nan,
            5e-324,
            1j,
            "1",
        ]
    ),
    st.sampled_from([np.int8(2), np.uint64(2**63), np.float32(1.5), np.float64(math.inf), np.bool_(True), None]),
    st.integers(),
    st.floats(),
)
COUNTS = ("n_trials", "patience", "max_failures", "retries", "seed", "n_startup_trials", "lag")
LIMITS = ("timeout", "trial_timeout", "target_value")


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from([*COUNTS, *LIMITS, "n_parallel"]), NUMBERS, max_size=2))
def test_any_number_works_or_is_refused_before_a_study_is_made(numbers: dict[str, Any]) -> None:
    storage = optuna.storages.InMemoryStorage()
    options = {"n_trials": 3, **numbers}
    if "n_parallel" in numbers:
        options["executor"] = "threads"
    try:
        # Whatever was asked for, the third trial is the last.
        study = optimize(
            lambda x, y: x + y, SPACE, storage=storage, callbacks=[lambda s, t: t.number == 2 and s.stop()], **options
        )
    except (TypeError, ValueError):
        assert not storage.get_all_studies()
    else:
        assert study.trials or "timeout" in numbers


def test_the_longest_timeouts_are_none_and_numpys_numbers_count() -> None:
    options = {"timeout": 1e10, "trial_timeout": 10**400, "executor": "threads", "n_parallel": np.int64(2)}
    study = optimize(bowl, SPACE, n_trials=np.int64(3), seed=np.uint8(1), retries=np.int16(1), **options)
    assert len(study.trials) == 3
    study = optimize(bowl, SPACE, n_trials=2, timeout=1e9, trial_timeout=1e9, executor="threads")
    assert len(study.trials) == 2


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
        ("sampler", "has no argument sampler=; it always uses lazybo's model.*study.optimize.*LazySampler"),
        ("n_iter", "use n_trials="),
        ("n_trails", "did you mean n_trials="),
        ("max_failure", "did you mean max_failures="),
        ("something", "has no argument something=; it has objective, space, n_trials, "),
    ],
)
def test_an_unknown_argument_is_refused_with_what_to_use_instead(name: str, message: str) -> None:
    calls: list[int] = []
    with pytest.raises(TypeError, match=message):
        optimize(lambda p: calls.append(1) or bowl(p), SPACE, **{"n_trials": 3, name: 1})
    assert not calls


def test_an_unknown_argument_of_an_optimizer_is_refused_with_what_to_use_instead() -> None:
    with pytest.raises(TypeError, match=r"Optimizer\(\) has no argument n_startup_trials=; use n_startup="):
        lazybo.Optimizer(SPACE, n_startup_trials=3)  # type: ignore[call-arg]


def test_a_space_with_fewer_configurations_than_trials_is_a_warning(tmp_path: Path) -> None:
    space = {"layers": IntDistribution(1, 2), "opt": ["sgd", "adam"]}

    def run(n_trials: int, **options: Any) -> optuna.Study:
        return optimize(lambda layers, opt: layers + len(opt), space, n_trials=n_trials, seed=0, **options)

    with pytest.warns(UserWarning, match="the space has only 4 configurations, so some of 5 trials repeat") as caught:
        run(5)
    assert [warning.filename for warning in caught] == [__file__]
    run(4)
    run(5, confirm=1)
    with pytest.raises(lazybo.RunFailed):
        optimize(lambda **_: math.nan, space, n_trials=3, seed=0, storage=tmp_path / "s.db")
    assert len(run(7, storage=tmp_path / "s.db").trials) == 7, "failed trials may be repeated"
