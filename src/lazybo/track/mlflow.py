"""Trials in MLflow. The only module that imports it (extra ``mlflow``)."""

import re
from collections.abc import Mapping
from typing import Any

from optuna.trial import FrozenTrial

from lazybo.track.tracker import TrackedRun, Tracker

try:
    from mlflow.tracking import MlflowClient
except ImportError as error:
    raise ImportError(f"this tracker needs MLflow ({error}): pip install mlflow-skinny") from error

# The tag by which a resumed study finds the run of a trial.
TRIAL_TAG = "lazybo.trial"
STATES = {"complete": "FINISHED", "pruned": "KILLED", "fail": "FAILED"}


class MLflow(Tracker):
    """Logs each trial as a run of an experiment with the name of the study.

    ``tracking_uri`` is the address of a server, a database or a folder; by default what MLflow itself uses.
    """

    def __init__(self, tracking_uri: str | None = None) -> None:
        super().__init__()
        if not isinstance(tracking_uri, str | None):
            raise TypeError(f"tracking_uri must be a text such as 'sqlite:///mlflow.db', not {tracking_uri!r}")
        try:
            self._client = MlflowClient(tracking_uri)
        except Exception as error:  # what it raises depends on the address
            wrong = f"MLflow cannot use the address {tracking_uri!r}; give one such as 'sqlite:///mlflow.db': {error}"
            raise ValueError(wrong) from error

    def start(self, study: str, trial: FrozenTrial) -> TrackedRun:
        """The run of a trial: the one that it has, or a new one."""
        found = self._client.get_experiment_by_name(study)
        experiment = self._client.create_experiment(study) if found is None else found.experiment_id
        earlier = self._client.search_runs([experiment], f"tags.`{TRIAL_TAG}` = '{trial.number}'", max_results=1)
        if earlier:
            return _FlowRun(self._client, earlier[0].info.run_id)
        tags = {TRIAL_TAG: str(trial.number)}
        run = self._client.create_run(experiment, run_name=f"trial {trial.number}", tags=tags).info.run_id
        return _FlowRun(self._client, run)


class _FlowRun:
    def __init__(self, client: MlflowClient, run: str) -> None:
        self._client, self._run = client, run

    def describe(self, params: Mapping[str, Any]) -> None:
        for name, value in params.items():
            self._client.log_param(self._run, _allowed(name), value)

    def log(self, values: Mapping[str, float], step: int | None) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run, _allowed(name), value, step=step)

    def end(self, state: str) -> None:
        self._client.set_terminated(self._run, STATES[state])


def _allowed(name: str) -> str:
    """A name with the letters that MLflow takes: parameters with structure are called ``cell[0>1]`` in a study."""
    return re.sub(r"[^\w .:/-]+", "_", name).strip("_") or "_"
