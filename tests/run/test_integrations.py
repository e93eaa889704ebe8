"""Optuna's callback for MLflow, with the real client. The one for LightGBM is in examples/with_lightgbm.py."""

from pathlib import Path
from typing import Any

import optuna
import pytest

import lazybo

# Optuna calls these callbacks deprecated and experimental, and MLflow uses what SQLAlchemy deprecates.
pytestmark = [pytest.mark.extra, pytest.mark.filterwarnings("ignore")]
ENGINES = [None, "threads", "processes"]


def run(objective: Any, space: Any, executor: str | None, **more: Any) -> optuna.Study:
    parallel = {} if executor is None else {"executor": executor, "n_parallel": 2}
    return lazybo.optimize(objective, space, seed=0, progress=False, **parallel, **more)


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
