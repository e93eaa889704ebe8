"""Callbacks of optuna-integration in `optimize()`: LightGBM's pruning, MLflow's tracking."""

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

import lazybo

# Optuna calls these callbacks deprecated and experimental, and MLflow uses what SQLAlchemy deprecates.
pytestmark = [pytest.mark.extra, pytest.mark.filterwarnings("ignore")]
ENGINES = [None, "threads", "processes"]


def run(objective: Any, space: Any, executor: str | None, **more: Any) -> optuna.Study:
    parallel = {} if executor is None else {"executor": executor, "n_parallel": 2}
    return lazybo.optimize(objective, space, seed=0, progress=False, **parallel, **more)


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("executor", ENGINES)
def test_lightgbm_prunes(executor: str | None, declared: bool) -> None:

    def objective(trial: Any) -> float:
        import lightgbm
        import numpy as np
        from optuna_integration import LightGBMPruningCallback

        rng = np.random.default_rng(0)
        x = rng.random((120, 3))
        data = lightgbm.Dataset(x, label=(x[:, 0] > 0.5).astype(int))
        rate = trial.suggest_float("rate", 1e-4, 0.5, log=True)
        settings = {"objective": "binary", "learning_rate": rate, "verbosity": -1, "num_threads": 1, "metric": "auc"}
        callback = LightGBMPruningCallback(trial, "auc")
        held_out = data.create_valid(x, label=(x[:, 1] > 0.5).astype(int))
        found = lightgbm.train(settings, data, 12, valid_sets=[held_out], callbacks=[callback])
        return float(found.best_score["valid_0"]["auc"])

    space = {"rate": (1e-4, 0.5, "log")} if declared else None
    pruner = optuna.pruners.ThresholdPruner(lower=0.0, n_warmup_steps=4)
    study = run(objective, space, executor, n_trials=3, direction="maximize", pruner=pruner)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 3
    assert all(len(trial.intermediate_values) == 12 for trial in study.trials)
    never = optuna.pruners.ThresholdPruner(lower=2.0, n_warmup_steps=4)
    study = run(objective, space, executor, n_trials=2, direction="maximize", pruner=never)
    assert [trial.state for trial in study.trials] == [TrialState.PRUNED] * 2
    assert all(max(trial.intermediate_values) == 4 for trial in study.trials)


def tracker(folder: Path) -> Any:
    import optuna_integration as integration

    return integration.MLflowCallback(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}", metric_name="loss")


def mlflow_client(folder: Path) -> Any:
    import mlflow

    return mlflow.tracking.MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")


def logging(trial: Any) -> float:
    import mlflow

    mlflow.log_metric("extra", trial.number)
    return float(trial.params["x"] ** 2)


@pytest.mark.parametrize("executor", ENGINES)
def test_mlflow_tracks(executor: str | None, tmp_path: Path) -> None:
    callback = tracker(tmp_path)
    objective = callback.track_in_mlflow()(logging)
    if executor == "processes":  # the callback holds a lock, so each worker makes its own
        mlflow_client(tmp_path).search_experiments()  # two processes cannot create the database at the same time

        def objective(trial: Any) -> Any:
            return tracker(tmp_path).track_in_mlflow()(logging)(trial)

    study = run(objective, {"x": (0.0, 1.0)}, executor, n_trials=3, callbacks=[callback], study_name="tracked")
    assert all("mlflow_run_id" in trial.system_attrs for trial in study.trials)
    client = mlflow_client(tmp_path)
    runs = client.search_runs([client.get_experiment_by_name("tracked").experiment_id])
    assert sorted(each.data.metrics["extra"] for each in runs) == [0.0, 1.0, 2.0]
    assert sorted(each.data.metrics["loss"] for each in runs) == sorted(trial.value for trial in study.trials)


def test_a_tracker_that_cannot_be_sent_is_refused_before_the_first_evaluation(tmp_path: Path) -> None:
    objective = tracker(tmp_path).track_in_mlflow()(logging)
    with pytest.raises(ValueError, match=r"the objective cannot be sent to workers.*use executor='threads'"):
        run(objective, {"x": (0.0, 1.0)}, "processes", n_trials=1)
