"""optimize() with several objectives and with bounds on metrics."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

import lazybo
from lazybo import optimize
from lazybo.run.trial import Trial
from lazybo.study import TrialView

SPACE = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
# Storages with and without transactions.
STORAGES = ["study.db"]


def sized(x: float, y: float) -> dict[str, float]:
    return {"value": (x - 0.8) ** 2 + y, "memory": 3000 + 2000 * x}


def two(x: float, y: float) -> tuple[float, float]:
    return x**2 + y, (x - 1) ** 2 + y


def open_storage(name: str, folder: Path) -> Any:
    path = str(folder / name)
    if name.endswith(".journal"):
        return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(path))
    return path


def feasible(trials: list[FrozenTrial]) -> list[int]:
    return [t.number for t in trials if all(value <= 0 for value in t.constraints.values())]


# ------------------------------------------------------------------ constraints


@pytest.mark.parametrize("name", STORAGES)
def test_a_bound_on_a_metric_is_kept_and_resumed(name: str, tmp_path: Path) -> None:
    bound = {"memory": 4000}
    whole = optimize(sized, SPACE, n_trials=18, constraints=bound, seed=1)
    for n in (8, 18):
        study = optimize(sized, SPACE, n_trials=n, constraints=bound, seed=1, storage=open_storage(name, tmp_path))
    assert [t.params for t in study.trials] == [t.params for t in whole.trials], "resumed to the last bit"
    assert study.best_value == pytest.approx(0.09, abs=0.01)
    assert study.best_trial.user_attrs["memory"] <= 4000
    assert study.trials[0].constraints == {"memory<=4000": study.trials[0].user_attrs["memory"] - 4000}
    assert lazybo.recommend(study).number in feasible(study.trials)
    with pytest.raises(ValueError, match=r"other constraints: there memory<=4000, here memory<=5000"):
        optimize(sized, SPACE, n_trials=19, constraints={"memory": 5000}, storage=open_storage(name, tmp_path))


@pytest.mark.parametrize("executor", [None, "processes"], indirect=True)
def test_a_trial_may_set_constraints(executor: str | None) -> None:
    def objective(x: float, y: float, trial: Trial) -> float:
        trial.set_constraint("x is small", x - 0.5)
        if y > 0.9:
            raise RuntimeError("too much")
        return -x

    study = optimize(objective, SPACE, n_trials=12, seed=0, executor=executor)
    assert all(t.constraints == {"x is small": t.params["x"] - 0.5} for t in study.trials), "also of failed trials"
    assert study.best_params["x"] <= 0.5


@pytest.mark.parametrize(("name", "value"), [("c", math.nan), ("c", "many"), ("c", None), ("", 1.0), (" ", 1.0)])
def test_a_constraint_without_a_name_or_number_fails_the_trial(name: str, value: Any) -> None:
    def objective(params: dict[str, float], trial: Trial) -> float:
        trial.set_constraint(name, value)
        return params["x"]

    with pytest.raises(lazybo.RunFailed, match="set_constraint takes a name and a number"):
        optimize(objective, SPACE, n_trials=5, limits=lazybo.Limits(max_failures=2))


def test_a_study_with_a_constraint_without_a_name_is_read() -> None:
    study = optuna.create_study(sampler=lazybo.LazySampler(seed=0))
    for i in range(6):
        attributes = {"constraints:": i - 3.0}
        distributions = {"x": optuna.distributions.FloatDistribution(0, 10)}
        study.add_trial(
            optuna.trial.create_trial(
                value=-float(i), params={"x": float(i)}, distributions=distributions, system_attrs=attributes
            )
        )
    assert TrialView(study.trials[4]).constraints == {"(no name)": 1.0}
    assert lazybo.recommend(study).number == 3
    study.optimize(lambda trial: trial.suggest_float("x", 0, 10), n_trials=1)


def test_a_metric_with_a_bound_must_be_returned() -> None:
    with pytest.raises(
        lazybo.RunFailed, match=r"constraint on the metric 'disk'.* must return it as a number"
    ) as caught:
        optimize(sized, SPACE, n_trials=5, constraints={"disk": 1})
    assert len(caught.value.study.trials) == 1  # type: ignore[attr-defined]


def test_a_metric_that_was_not_measured_makes_a_failed_trial() -> None:
    def objective(x: float, y: float) -> dict[str, float]:
        return {"value": x, "memory": math.nan if y > 0.5 else x}

    study = optimize(objective, SPACE, n_trials=8, constraints={"memory": 0.7}, seed=0)
    for trial in study.trials:
        assert trial.state == (TrialState.FAIL if trial.params["y"] > 0.5 else TrialState.COMPLETE)
        assert bool(trial.constraints) == (trial.state == TrialState.COMPLETE)


def test_targets_and_patience_count_feasible_trials_only() -> None:
    study = optimize(
        sized, SPACE, n_trials=40, limits=lazybo.Limits(target_value=0.2), constraints={"memory": 3800}, seed=1
    )
    assert len(study.trials) < 40
    *before, last = study.trials
    assert last.number in feasible(study.trials)
    assert not any(t.number in feasible(before) and t.value <= 0.2 for t in before)


# ------------------------------------------------------------------- objectives


@pytest.mark.parametrize("name", STORAGES)
def test_two_objectives_are_kept_and_resumed(name: str, tmp_path: Path) -> None:
    directions: Any = ["minimize", "minimize"]
    whole = optimize(two, SPACE, n_trials=16, direction=directions, seed=1)
    for n in (7, 16):
        study = optimize(two, SPACE, n_trials=n, direction=directions, seed=1, storage=open_storage(name, tmp_path))
    assert [t.params for t in study.trials] == [t.params for t in whole.trials], "resumed to the last bit"
    assert len(study.best_trials) > 5
    assert study.trials[3].values == list(two(**study.trials[3].params))
    with pytest.raises(ValueError, match="has 2 objectives, not 1"):
        optimize(sized, SPACE, n_trials=17, storage=open_storage(name, tmp_path))


def test_objectives_by_name_come_from_the_metrics(tmp_path: Path) -> None:
    def objective(x: float, y: float) -> dict[str, Any]:
        return {"accuracy": 1 - (x - 0.3) ** 2, "time": {"ms": 1 + x + y}, "memory": 10 * x}

    options: dict[str, Any] = {"constraints": {"memory": 5}, "storage": tmp_path / "study.db", "seed": 0}
    study = optimize(objective, SPACE, n_trials=9, direction={"accuracy": "maximize", "time.ms": "minimize"}, **options)
    trial = study.trials[0]
    assert study.metric_names == ["accuracy", "time.ms"]
    assert trial.values == [trial.user_attrs["accuracy"], trial.user_attrs["time"]["ms"]]
    with pytest.raises(ValueError, match=r"has the objectives accuracy, time.ms, not accuracy, seconds"):
        optimize(objective, SPACE, n_trials=9, direction={"accuracy": "maximize", "seconds": "minimize"}, **options)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (1.0, "must return 2 numbers"),
        ((1.0,), "must return 2 numbers"),
        ((1.0, None), "must return a number"),
        ((math.nan, "x"), "must return a number"),
        ({"loss": 1.0}, "a dict without 'value'"),
    ],
)
def test_a_result_that_is_not_all_values_ends_the_run(returned: Any, message: str) -> None:
    with pytest.raises(lazybo.RunFailed, match=message):
        optimize(lambda x, y: returned, SPACE, n_trials=3, direction=["minimize", "minimize"])


# ------------------------------------------------------- one of several objectives reports


EPOCHS = 12
SIZE_AND_LOSS: dict[str, Any] = {"direction": {"size": "minimize", "loss": "minimize"}}
LOSS = lazybo.LazyPruner(reports="loss")


def loss_after(params: dict[str, Any], epoch: int) -> float:
    """Larger networks end lower; a rate far from 0.3 ends higher."""
    return 1 / (1 + 3 * params["x"]) + 2 * (params["y"] - 0.3) ** 2 + math.exp(-0.4 * epoch)


def train(params: dict[str, Any], trial: Trial) -> dict[str, float]:
    for epoch in range(1, EPOCHS + 1):
        trial.report(loss_after(params, epoch), epoch)
        if epoch < EPOCHS and trial.should_prune():
            raise optuna.TrialPruned
    return {"size": params["x"], "loss": loss_after(params, EPOCHS)}


@pytest.mark.parametrize("executor", [None, "threads", "processes"], indirect=True)
def test_a_training_that_would_end_behind_the_front_is_stopped(executor: str | None) -> None:
    bad = [{"x": 0.5, "y": 1.0}, {"x": 0.9, "y": 0.9}, {"x": 0.3, "y": 1.0}]
    good = [{"x": x, "y": 0.3} for x in (0.0, 0.25, 0.5, 0.75, 1.0)]
    parallel = {} if executor is None else {"executor": executor, "n_parallel": 2}
    study = optimize(train, SPACE, n_trials=12, seed=0, initial=[*good, *bad], pruner=LOSS, **SIZE_AND_LOSS, **parallel)  # type: ignore[arg-type]
    stopped = {trial.number for trial in study.trials if trial.state == TrialState.PRUNED}
    assert stopped & {5, 6, 7}, "these end far behind the front"
    assert not stopped & {0, 1, 2, 3, 4}, "small ones end with a larger loss, but on the front"
    for trial in study.trials:
        if trial.number in stopped:
            assert trial.values is None, "what the others would have been is not known"
            assert len(trial.intermediate_values) < EPOCHS
        else:
            assert trial.values == [trial.params["x"], loss_after(trial.params, EPOCHS)]


@pytest.mark.parametrize("kind", ["dict", "pair"])
def test_a_generator_yields_the_values_of_all_objectives(kind: str) -> None:
    """What would end behind the front is pruned, and never paused: there is no single best that it could beat."""

    def steps(params: dict[str, Any], checkpoint: Path) -> Iterator[Any]:
        for epoch in range(1, EPOCHS + 1):
            (checkpoint / "epoch").write_text(str(epoch))
            values = {"size": params["x"], "loss": loss_after(params, epoch)}
            pair = tuple(values.values())
            yield {"dict": values, "list": [*pair], "tuple": pair, "pair": (epoch, pair)}[kind]

    bad = [{"x": 0.5, "y": 1.0}, {"x": 0.9, "y": 0.9}]
    good = [{"x": x, "y": 0.3} for x in (0.0, 0.25, 0.5, 0.75, 1.0)]
    goals = SIZE_AND_LOSS if kind == "dict" else {"direction": ["minimize", "minimize"]}
    pruner = lazybo.LazyPruner(reports="loss" if kind == "dict" else 1)
    study = optimize(steps, SPACE, n_trials=9, seed=0, initial=[*good, *bad], max_steps=EPOCHS, pruner=pruner, **goals)
    stopped = {trial.number for trial in study.trials if trial.state == TrialState.PRUNED}
    assert stopped & {5, 6}
    for trial in study.trials:
        last = len(trial.intermediate_values)
        assert trial.intermediate_values[last] == loss_after(trial.params, last)
        if trial.number not in stopped:
            assert trial.values == [trial.params["x"], loss_after(trial.params, EPOCHS)]


@pytest.mark.parametrize("several", [False, True])
def test_a_resumed_run_with_stopped_trials_continues_to_the_last_bit(several: bool) -> None:
    """The kernel is learned rarely, so that rows are appended one by one to a process that was built at once."""

    def every_third_is_stopped(params: dict[str, Any], trial: Trial) -> Any:
        for epoch in range(1, 6):
            trial.report(loss_after(params, epoch), epoch)
            if epoch == 3 and trial.number % 3 == 2:
                raise optuna.TrialPruned
        return (loss_after(params, epoch), params["x"]) if several else loss_after(params, epoch)

    options: dict[str, Any] = {"direction": ["minimize", "minimize"]} if several else {}
    options |= {
        "seed": 3,
        "sampler": lazybo.LazySampler(lag=9),
        "pruner": optuna.pruners.NopPruner(),
        "progress": False,
    }
    whole = optimize(every_third_is_stopped, SPACE, n_trials=27, **options)
    storage = optuna.storages.InMemoryStorage()
    for n_trials in (9, 17, 24, 27):
        parts = optimize(every_third_is_stopped, SPACE, n_trials=n_trials, storage=storage, **options)
    assert [trial.params for trial in whole.trials] == [trial.params for trial in parts.trials]


@pytest.mark.parametrize("reports", ["accuracy", 2])
def test_an_objective_that_reports_must_exist(reports: Any) -> None:
    with pytest.raises(ValueError, match="'size', 'loss', or a position from 0 to 1"):
        optimize(
            train,
            SPACE,
            n_trials=1,
            direction={"size": "minimize", "loss": "minimize"},
            pruner=lazybo.LazyPruner(reports=reports),
        )


def test_pruners_of_one_objective_are_refused() -> None:
    with pytest.raises(ValueError, match="MedianPruner compares one objective"):
        optimize(train, SPACE, n_trials=1, pruner=optuna.pruners.MedianPruner(), **SIZE_AND_LOSS)
    study = optimize(train, SPACE, n_trials=3, pruner=optuna.pruners.NopPruner(), **SIZE_AND_LOSS)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 3


# -------------------------------------------------------------------- arguments

TWO = ["minimize"] * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"constraints": ["memory"]}, "constraints must be a dict"),
        ({"constraints": {"memory": "4e9"}}, "constraint on 'memory' must be a finite number"),
        ({"constraints": {"memory": math.inf}}, "constraint on 'memory' must be a finite number"),
        ({"constraints": {"memory": (1, 2, 3)}}, "a pair"),
        ({"constraints": {"memory": None}}, "a pair"),
        ({"constraints": {"memory": (3, 1)}}, "3 is more than 1"),
        ({"constraints": {3: 1}}, "names of metrics"),
        ({"direction": {}}, "a dict of names"),
        ({"direction": {"a": "up"}}, "the direction of 'a' must be one of"),
        ({"direction": TWO, "limits": lazybo.Limits(target_value=1.0)}, "target_value is for one objective"),
        ({"direction": TWO, "limits": lazybo.Limits(min_gain=1.0)}, "min_gain is for one objective"),
        ({"direction": TWO, "limits": lazybo.Limits(confirm=2)}, "confirm is for one objective"),
        ({"direction": TWO, "warm_start": []}, "warm_start has the values of one objective"),
    ],
)
def test_wrong_goals_are_refused_before_anything_is_evaluated(options: dict[str, Any], message: str) -> None:
    def never(_params: dict[str, float]) -> float:
        raise AssertionError("evaluated")

    with pytest.raises(ValueError, match=message):
        optimize(never, SPACE, n_trials=3, **options)


@pytest.mark.parametrize("options", [{"direction": TWO}, {"constraints": {"m": 1}}])
def test_folds_are_for_one_objective_without_bounds(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="kfold is for one objective without constraints"):
        optimize(lazybo.kfold(lambda params, fold: 1.0), SPACE, n_trials=3, **options)
