"""MLflow: each trial is a run, with its parameters and a curve that grows while it trains."""

from mlflow.tracking import MlflowClient

import lazybo
from lazybo.track.mlflow import MLflow


def train(lr, kind, trial):
    for epoch in range(1, 4):
        loss = abs(lr - 0.01) + (kind == "b") + 1 / epoch
        trial.report(loss, epoch)
    return {"value": loss, "epochs": epoch}


if __name__ == "__main__":
    space = {"lr": (1e-4, 1.0, "log"), "kind": ["a", "b"]}
    tracker = MLflow("sqlite:///mlflow.db")
    study = lazybo.optimize(
        train, space, n_trials=6, seed=0, n_parallel=2, study_name="tuned", callbacks=[tracker], progress=False
    )

    client = MlflowClient("sqlite:///mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("tuned").experiment_id])
    assert len(runs) == 6
    for run in runs:
        history = client.get_metric_history(run.info.run_id, "value")
        trial = study.trials[int(run.data.tags["lazybo.trial"])]
        assert {point.step: point.value for point in history} == trial.intermediate_values
        assert run.data.params == {name: str(value) for name, value in trial.params.items()}
