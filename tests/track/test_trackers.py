"""Trials in the real clients of MLflow, TensorBoard and Weights & Biases."""

import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.study import Study
from optuna.trial import FrozenTrial

import lazybo
from lazybo.track.tracker import Tracker

SPACE = {"x": (0.0, 1.0), "kind": ["a", "b"]}


def training(x: float, kind: str, trial: Any) -> dict[str, float]:
    for step in range(1, 4):
        trial.report(x / step, step)
    if kind == "none":
        raise ValueError("never")
    return {"value": x, "size": 7.0}


def run(tracker: Tracker, **options: Any) -> Study:
    return lazybo.optimize(
        training, SPACE, n_trials=3, seed=0, callbacks=[tracker], pruner=optuna.pruners.NopPruner(), progress=False,
        study_name="tracked", **options,
    )  # fmt: skip


# ------------------------------------------------------------------ without a client


class Listed:
    """A run of a tool that keeps everything in a list."""

    def __init__(self, log: list[Any], number: int) -> None:
        self._log, self._number = log, number

    def describe(self, params: Any) -> None:
        self._log.append((self._number, dict(params)))

    def log(self, values: Any, step: int | None) -> None:
        self._log.append((self._number, dict(values), step))

    def end(self, state: str) -> None:
        self._log.append((self._number, state))


class Lists(Tracker):
    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.fails = fails

    def start(self, study: str, trial: FrozenTrial) -> Listed:
        if self.fails:
            raise ConnectionError("no server")
        self.seen.append((study, trial.number))
        return Listed(self.seen, trial.number)


@pytest.mark.parametrize("options", [{}, {"n_parallel": 2, "executor": "threads"}, {"n_parallel": 2}], ids=str)
def test_values_arrive_while_trials_run_and_are_logged_once(options: dict[str, Any]) -> None:
    tracker = Lists()
    study = run(tracker, **options)
    for trial in study.trials:
        x = trial.params["x"]
        found = [entry for entry in tracker.seen if trial.number in entry[:2]]
        assert found[0] == ("tracked", trial.number)
        assert [entry[1:] for entry in found[1:]] == [
            (trial.params,),
            *(({"value": x / step}, step) for step in (1, 2, 3)),
            ({"final_value": x, "size": 7.0}, None),
            ("complete",),
        ]


def test_parameters_that_a_trial_asks_for_after_its_first_report_are_logged_too() -> None:
    def objective(trial: Any) -> float:
        x = trial.suggest_float("x", 0, 1)
        trial.report(x, 1)
        return float(x + trial.suggest_float("y", 0, 1))

    tracker = Lists()
    study = lazybo.optimize(objective, n_trials=1, seed=0, callbacks=[tracker], progress=False)
    (trial,) = study.trials
    described = [entry[1] for entry in tracker.seen if len(entry) == 2 and isinstance(entry[1], dict)]
    assert described == [{name: trial.params[name]} for name in ("x", "y")]


def test_a_tool_that_cannot_be_reached_does_not_end_the_run(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "lazybo"):
        study = run(Lists(fails=True))
    assert len(study.trials) == 3
    assert "Lists could not log trial 0: no server" in caplog.text


class Silent(Lists):
    """A tool whose server is suspended until it is released."""

    patience = 0.1

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def start(self, study: str, trial: FrozenTrial) -> Listed:
        if not self.released.wait(20):
            raise TimeoutError("suspended")
        return super().start(study, trial)


@pytest.mark.parametrize("options", [{}, {"n_parallel": 2, "executor": "threads"}], ids=str)
def test_a_tool_that_is_silent_holds_no_training_and_gets_everything_when_it_answers(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Every value waited until the client gave up: for minutes, under a lock that all trainings needed."""
    tracker = Silent()
    with caplog.at_level(logging.WARNING, "lazybo"):
        study = run(tracker, **options)
    assert not tracker.seen, "the run has not waited"
    assert [record.message for record in caplog.records] == ["Silent has not answered for 0.1 s; the run goes on"]
    tracker.released.set()
    deadline = time.monotonic() + 60
    while sum(entry[-1] == "complete" for entry in tracker.seen) < 3:
        assert time.monotonic() < deadline, tracker.seen
        time.sleep(0.01)
    for trial in study.trials:
        found = [entry[1:] for entry in tracker.seen if entry[0] == trial.number]
        assert found[-1] == ("complete",)
        assert [step for *_, step in found if isinstance(step, int)] == [1, 2, 3]
    released = Silent()
    released.released.set()
    run(released)
    assert released.seen[-1] == (2, "complete"), "a tool that answers is waited for"


# --------------------------------------------------------------------- real clients


def client_test(function: Any) -> Any:
    """A test with a real client, which may warn of what it uses itself."""
    return pytest.mark.extra(pytest.mark.filterwarnings("ignore")(function))


@client_test
def test_mlflow(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    from lazybo.track.mlflow import MLflow

    address = f"sqlite:///{tmp_path / 'mlflow.db'}"
    study = run(MLflow(address), n_parallel=2)
    client = MlflowClient(address)
    experiment = client.get_experiment_by_name("tracked")
    runs = {each.data.tags["lazybo.trial"]: each for each in client.search_runs([experiment.experiment_id])}
    for trial in study.trials:
        found = runs[str(trial.number)]
        assert found.info.status == "FINISHED"
        assert found.data.params == {name: str(value) for name, value in trial.params.items()}
        assert found.data.metrics["final_value"] == trial.value
        history = client.get_metric_history(found.info.run_id, "value")
        assert {each.step: each.value for each in history} == trial.intermediate_values
    # A resumed study continues the runs that it has.
    MLflow(address)(study, study.trials[0])
    assert len(client.search_runs([experiment.experiment_id])) == 3


@client_test
def test_mlflow_gets_names_that_it_accepts(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    from lazybo.track.mlflow import MLflow

    address = f"sqlite:///{tmp_path / 'mlflow.db'}"
    lazybo.optimize(
        lambda order: {"value": 1.0, "f1@5": 0.5}, {"order": lazybo.Permutation(["a", "b", "c"])}, n_trials=1,
        seed=0, callbacks=[MLflow(address)], study_name="order", progress=False,
    )  # fmt: skip
    client = MlflowClient(address)
    (run,) = client.search_runs([client.get_experiment_by_name("order").experiment_id])
    assert run.data.params.keys() == {"order_0", "order_1", "order_2"}
    assert run.data.metrics == {"final_value": 1.0, "f1_5": 0.5}


@client_test
def test_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from lazybo.track.tensorboard import TensorBoard

    study = run(TensorBoard(tmp_path), n_parallel=2)
    for trial in study.trials:
        events = EventAccumulator(str(tmp_path / "tracked" / f"trial-{trial.number:04}"))
        events.Reload()
        logged = {event.step: event.value for event in events.Scalars("value")}
        assert logged == pytest.approx(trial.intermediate_values)
        assert events.Scalars("final_value")[-1].value == pytest.approx(trial.value)
        assert any("hparams" in tag for tag in events.summary_metadata)


@pytest.fixture
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield
    import wandb

    wandb.teardown()


def records(data: bytes) -> Iterator[bytes]:
    """The records of a file of Weights & Biases, which has the format of LevelDB's log after a header of 7 bytes."""
    place, parts = 7, b""
    while place + 7 < len(data):
        if 32768 - place % 32768 < 7:  # the rest of a block is padding
            place += 32768 - place % 32768
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            yield parts
            parts = b""


@client_test
@pytest.mark.usefixtures("_offline")
def test_weights_and_biases(tmp_path: Path) -> None:
    from wandb.proto.wandb_internal_pb2 import Record

    from lazybo.track.wandb import WandB

    study = run(WandB("project", mode="offline", dir=str(tmp_path)), n_parallel=2)
    for trial in study.trials:
        (path,) = tmp_path.glob(f"wandb/offline-run-*-tracked-{trial.number}/*.wandb")
        logged, ended = {}, None
        for data in records(path.read_bytes()):
            record = Record.FromString(data)
            items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            if "value" in items:
                logged[items["_step"]] = items["value"]
            if record.WhichOneof("record_type") == "exit":
                ended = record.exit.exit_code
        assert logged == pytest.approx(trial.intermediate_values)
        assert ended == 0


@client_test
def test_wrong_arguments(tmp_path: Path) -> None:
    from lazybo.track.mlflow import MLflow
    from lazybo.track.tensorboard import TensorBoard
    from lazybo.track.wandb import WandB

    (tmp_path / "file").write_text("")
    wrong: list[tuple[Any, Any, str]] = [
        (MLflow, [3], "tracking_uri must be a text such as 'sqlite:///mlflow.db', not 3"),
        (MLflow, ["nonsense://x"], "MLflow cannot use the address 'nonsense://x'"),
        (TensorBoard, [3], "folder must be the path of a folder, such as 'runs', not 3"),
        (TensorBoard, [tmp_path / "file" / "runs"], "cannot be a folder, since .* is a file"),
        (WandB, [3], "project must be the name of a project, not 3"),
        (lambda: WandB("p", mode="off"), [], "mode must be one of .*, not 'off'"),
        (lambda: WandB("p", ofline=True), [], "takes the arguments of wandb.init, but no ofline="),
        (lambda: WandB("p", id="x"), [], "no id=: the tracker gives it to each run"),
    ]
    for make, arguments, message in wrong:
        with pytest.raises((TypeError, ValueError), match=message):
            make(*arguments)
