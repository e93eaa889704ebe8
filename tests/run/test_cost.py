"""optimize() with a cost: measured seconds, or a metric that the objective returns."""

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

import lazybo
from lazybo import optimize
from lazybo.run import worker
from lazybo.run.limits import Budget, Limits
from lazybo.study import StudyView

SPACE = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


def price(x: float) -> float:
    return math.exp(6 * x)


def priced(x: float, y: float) -> dict[str, float]:
    return {"value": (y - 0.5) ** 2, "dollars": price(x)}


def params_of(study: optuna.Study) -> list[dict[str, Any]]:
    return [trial.params for trial in study.trials]


def log_costs(study: optuna.Study) -> float:
    """The mean logarithm of what trials cost after the first five."""
    return sum(math.log(price(trial.params["x"])) for trial in study.trials[5:]) / len(study.trials[5:])


def stop_after(number: int) -> Callable[[optuna.Study, FrozenTrial], None]:
    def callback(study: optuna.Study, trial: FrozenTrial) -> None:
        if trial.number == number:
            study.stop()

    return callback


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], float]:
    """An objective that takes price(x) seconds, on a clock that only it advances."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(worker, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def objective(x: float, y: float) -> float:
        clock.now += round(1024 * price(x)) / 1024  # sums of such numbers are exact
        return (y - 0.5) ** 2

    return objective


def test_a_metric_is_the_cost() -> None:
    cheap = optimize(priced, SPACE, n_trials=16, seed=0, sampler=lazybo.LazySampler(cost="dollars"), progress=False)
    without = optimize(priced, SPACE, n_trials=16, seed=0, progress=False)
    assert log_costs(cheap) < log_costs(without) - 0.5
    assert params_of(cheap)[:5] == params_of(without)[:5]


def test_seconds_are_measured_and_recorded(timed: Callable[[float, float], float]) -> None:
    cheap = optimize(timed, SPACE, n_trials=16, seed=0, sampler=lazybo.LazySampler(cost="seconds"), progress=False)
    assert log_costs(cheap) < log_costs(optimize(timed, SPACE, n_trials=16, seed=0, progress=False)) - 0.5
    seconds = [trial.system_attrs["lazybo:seconds"] for trial in cheap.trials]
    assert seconds == pytest.approx([price(trial.params["x"]) for trial in cheap.trials], abs=1e-3)
    assert [row["cost"] for row in StudyView.of(cheap).model().optimizer.state()["rows"]] == seconds


def test_a_resumed_run_continues_to_the_last_bit(timed: Callable[[float, float], float], tmp_path: Path) -> None:
    storage = tmp_path / "study.db"
    sampler = lazybo.LazySampler(cost="seconds")
    arguments: dict[str, Any] = {"n_trials": 14, "seed": 1, "sampler": sampler, "progress": False}
    whole = optimize(timed, SPACE, **arguments)
    for end in (4, 8, 11):
        optimize(timed, SPACE, **arguments, storage=storage, callbacks=[stop_after(end)])
    resumed = optimize(timed, SPACE, **arguments, storage=storage)
    assert params_of(resumed) == params_of(whole)


def test_pruned_and_failed_trials_teach_no_cost(timed: Callable[[float, float], float]) -> None:
    def objective(x: float, y: float, trial: Any) -> float:
        value = timed(x, y)
        trial.report(value, 1)
        if trial.number in (2, 6):
            raise optuna.TrialPruned
        if trial.number in (3, 7):
            raise RuntimeError("out of memory")
        return value

    study = optimize(objective, SPACE, n_trials=10, seed=0, sampler=lazybo.LazySampler(cost="seconds"), progress=False)
    rows = StudyView.of(study).model().optimizer.state()["rows"]
    taught = [number for number, row in enumerate(rows) if "cost" in row and row["value"] != "failed"]
    assert taught == [0, 1, 4, 5, 8, 9]


# ----------------------------------------------------------------------- budget


def test_the_budget_is_trials_or_time_whichever_ends_first() -> None:
    assert Budget(Limits(), None, 1).left(math.inf) is None
    by_trials = Budget(Limits(confirm=10), 50, 1)
    assert [by_trials.left(left) for left in (50, 30, 10, 4)] == [1.0, 0.5, 0.0, 0.0]
    by_time = Budget(Limits(timeout=100.0), None, 4)
    assert by_time.left(math.inf) == 1.0
    by_time.count(200.0)
    assert by_time.left(math.inf) == 0.5
    by_time.count(999.0)
    assert by_time.left(math.inf) == 0.0
    both = Budget(Limits(timeout=100.0), 10, 1)
    both.count(30.0)
    assert both.left(8) == pytest.approx(0.7)
    assert both.left(2) == pytest.approx(0.2)


def test_a_run_tells_the_optimiser_what_is_left() -> None:
    study = optimize(priced, SPACE, n_trials=6, seed=0, sampler=lazybo.LazySampler(cost="dollars"), progress=False)
    again = optimize(
        priced,
        SPACE,
        n_trials=30,
        seed=0,
        sampler=lazybo.LazySampler(cost="dollars"),
        callbacks=[stop_after(5)],
        progress=False,
    )
    assert params_of(study)[:5] == params_of(again)[:5], "startup points do not depend on the cost"
    assert params_of(study)[5] != params_of(again)[5], "much more is left of 30 trials than of 6"


# -------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("metric", "said"), [(0.0, "not 0.0"), (-1.0, "not -1.0"), ("3", "not '3'"), (True, "not True")]
)
def test_a_metric_that_is_no_cost_ends_the_run(metric: Any, said: str) -> None:
    with pytest.raises(TypeError, match=f"'dollars' is the cost, so the objective must return .* {said}") as caught:
        optimize(
            lambda x, y: {"value": x + y, "dollars": metric},
            SPACE,
            n_trials=5,
            sampler=lazybo.LazySampler(cost="dollars"),
            progress=False,
        )
    assert len(caught.value.study.trials) == 1  # type: ignore[attr-defined]


def test_a_metric_that_could_not_be_measured_fails_its_trial() -> None:
    def sometimes(x: float, y: float) -> dict[str, float]:
        return {"value": y, "dollars": math.nan if x > 0.5 else 1.0 + x}

    study = optimize(
        sometimes,
        SPACE,
        n_trials=8,
        seed=0,
        sampler=lazybo.LazySampler(cost="dollars"),
        limits=lazybo.Limits(max_failures=None),
        progress=False,
    )
    failed = [trial.state == TrialState.FAIL for trial in study.trials]
    assert failed == [trial.params["x"] > 0.5 for trial in study.trials]
    assert any(failed)


def test_wrong_arguments_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    storage = tmp_path / "study.db"
    for cost in (3, "", ["seconds"]):
        with pytest.raises(ValueError, match="cost must be 'seconds' or the name of a metric"):
            optimize(priced, SPACE, n_trials=5, sampler=lazybo.LazySampler(cost=cost), storage=storage)  # type: ignore[arg-type]
    folds = lazybo.kfold(lambda params, fold: params["x"] + fold)
    with pytest.raises(ValueError, match="with kfold the cost can be 'seconds', not the metric 'dollars'"):
        optimize(folds, SPACE, n_trials=5, sampler=lazybo.LazySampler(cost="dollars"), storage=storage)
    assert not storage.exists()
