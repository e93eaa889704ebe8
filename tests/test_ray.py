"""LazyScheduler in real Ray Tune runs, whose trainings write and load checkpoints."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from optuna import load_study
from optuna.trial import TrialState

from lazybo.study import Store

pytestmark = [pytest.mark.extra, pytest.mark.filterwarnings("ignore")]
MAX_T = 20


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    import ray
    from ray import cloudpickle

    # One processor: trainings run one after the other, so that a run is repeatable.
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        ray.shutdown()


def loss(config: dict, epoch: int) -> float:
    """From 1 down to an end that is 0.1 for the best rate; half of the way is made in four epochs."""
    import math

    end = 0.1 + 0.3 * abs(math.log10(config["rate"]) + 2)
    return end + (1 - end) * 0.5 ** (epoch / 4)


def log(config: dict, trial_id: str, epoch: int, begins: bool) -> None:
    with Path(config["log"]).open("a") as file:
        file.write(json.dumps([trial_id, epoch, begins]) + "\n")


def train(config: dict) -> None:
    """Saves every ``config["every"]`` epochs, never if that is 0."""
    from ray import tune

    first, every = 1, config.get("every", 1)
    if (saved := tune.get_checkpoint()) is not None:
        with saved.as_directory() as folder:
            first = json.loads((Path(folder) / "state.json").read_text()) + 1
    for epoch in range(first, config.get("epochs", 1000) + 1):
        log(config, tune.get_context().get_trial_id(), epoch, epoch == first)
        if epoch == config.get("fails_at"):
            raise ValueError("out of memory")
        report = {"loss": loss(config, epoch), "epoch": epoch, "nested": {"loss": loss(config, epoch)}}
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "state.json").write_text(json.dumps(epoch))
            saves = every and epoch % every == 0
            tune.report(report, checkpoint=tune.Checkpoint.from_directory(folder) if saves else None)


def fit(folder: Path, trainable: Any = train, *, scheduler: Any = None, space: Any = None, **options: Any) -> Any:
    """The results of a run with 24 samples, its scheduler, and the epochs that were trained by trial."""
    from ray import tune
    from ray.tune.search.basic_variant import BasicVariantGenerator

    from lazybo.ray import LazyScheduler

    scheduler = scheduler or LazyScheduler(max_t=MAX_T)
    search = BasicVariantGenerator(random_state=0, max_concurrent=options.pop("max_concurrent", 0))
    given = {"metric": "loss", "mode": "min", "num_samples": 24, "reuse_actors": True, "search_alg": search}
    run = tune.RunConfig(
        name="run", storage_path=str(folder), verbose=0, failure_config=options.pop("failure", None),
        stop=options.pop("stop", None),
    )  # fmt: skip
    tuner = tune.Tuner(
        trainable,
        param_space={"rate": tune.loguniform(1e-4, 1), "log": str(folder / "log"), **(space or {})},
        tune_config=tune.TuneConfig(scheduler=scheduler, **{**given, **options}),
        run_config=run,
    )
    return tuner.fit(), scheduler, logged(folder)


def logged(folder: Path) -> dict[str, list[tuple[int, bool]]]:
    """The epochs that each trial has trained, and whether the training began or continued with it."""
    found: dict[str, list[tuple[int, bool]]] = {}
    for line in (folder / "log").read_text().splitlines():
        trial_id, epoch, begins = json.loads(line)
        found.setdefault(trial_id, []).append((epoch, begins))
    return found


def check_paused(results: Any, scheduler: Any, epochs: dict[str, list[tuple[int, bool]]], *, trained: int) -> None:
    """The run has paused and resumed trainings, stopped bad ones early, and finished the best."""
    assert results.num_errors == 0
    assert len(results) == len(epochs) == len(scheduler.study.trials) == 24
    for each in epochs.values():
        assert [epoch for epoch, _ in each] == list(range(1, len(each) + 1))  # nothing twice, nothing left out
    assert any(sum(begins for _, begins in each) > 1 for each in epochs.values())
    assert sum(map(len, epochs.values())) < trained
    assert re.fullmatch(r"Using LazyScheduler: \d+ complete, \d+ pruned", scheduler.debug_string())
    best = results.get_best_result("loss", "min")
    assert best.metrics["training_iteration"] == MAX_T
    assert best.metrics["loss"] == scheduler.study.best_value
    assert abs(best.metrics["loss"] - min(loss(each.config, MAX_T) for each in results)) < 0.05
    recorded = {each.user_attrs["lazybo:tune"]: each for each in scheduler.study.trials}
    for result in results:
        trial = recorded[result.metrics["trial_id"]]
        assert trial.last_step == result.metrics["training_iteration"] == len(epochs[result.metrics["trial_id"]])
        assert trial.state == (TrialState.COMPLETE if trial.last_step == MAX_T else TrialState.PRUNED)
        assert trial.params["rate"] == result.config["rate"]


# ------------------------------------------------------------------------------- runs


@pytest.mark.parametrize("reuse", [True, False])
def test_function_with_checkpoints(tmp_path: Path, reuse: bool) -> None:
    results, scheduler, epochs = fit(tmp_path, reuse_actors=reuse)
    check_paused(results, scheduler, epochs, trained=24 * MAX_T // 2)
    kept = load_study(storage=Store.open(Path(results.experiment_path) / "lazybo-study.json"), study_name="tune")
    assert kept.trials == scheduler.study.trials


def test_class_with_checkpoints_to_maximise_a_nested_metric_by_its_own_count(tmp_path: Path) -> None:
    from ray import tune

    from lazybo.ray import LazyScheduler

    class Training(tune.Trainable):
        def setup(self, config: dict) -> None:
            self.config, self.epoch, self.begins = config, 0, True

        def reset_config(self, new_config: dict) -> bool:
            self.setup(new_config)
            return True

        def step(self) -> dict:
            self.epoch += 1
            log(self.config, self.trial_id, self.epoch, self.begins)
            self.begins = False
            value = loss(self.config, self.epoch)
            return {"loss": value, "valid": {"accuracy": 1 - value}, "epochs": 10 * self.epoch}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            (Path(checkpoint_dir) / "state.json").write_text(json.dumps(self.epoch))

        def load_checkpoint(self, checkpoint_dir: str) -> None:
            self.epoch = json.loads((Path(checkpoint_dir) / "state.json").read_text())

    settings = LazyScheduler(max_t=10 * MAX_T, time_attr="epochs", metric="valid/accuracy", mode="max")
    results, scheduler, epochs = fit(tmp_path, Training, scheduler=settings, metric=None, mode=None)
    assert results.num_errors == 0
    assert all([epoch for epoch, _ in each] == list(range(1, len(each) + 1)) for each in epochs.values())
    assert any(sum(begins for _, begins in each) > 1 for each in epochs.values())
    assert sum(map(len, epochs.values())) < 24 * MAX_T // 2
    best = results.get_best_result("valid/accuracy", "max")
    assert best.metrics["epochs"] == 10 * MAX_T
    assert best.metrics["valid"]["accuracy"] == scheduler.study.best_value


def test_failures_retries_and_early_ends(tmp_path: Path) -> None:
    from ray import tune

    space = {
        "fails_at": tune.sample_from(lambda config: 3 if config["rate"] > 0.1 else None),
        "epochs": tune.sample_from(lambda config: 5 if config["rate"] < 1e-3 else 1000),
        "kind": tune.choice([(8, 8), None, "small", 1.5]),
    }
    results, scheduler, epochs = fit(tmp_path, space=space, failure=tune.FailureConfig(max_failures=1))
    errors = [each for each in results if each.error]
    assert {each.metrics["training_iteration"] for each in errors} == {2}
    assert errors
    assert all(each.config["rate"] > 0.1 for each in errors)
    for each in errors:
        attempts = [t for t in scheduler.study.trials if t.user_attrs["lazybo:tune"] == each.metrics["trial_id"]]
        assert {attempt.state for attempt in attempts} == {TrialState.FAIL}
        assert [epoch for epoch, _ in epochs[each.metrics["trial_id"]]] == [1, 2, 3, 3]  # from its checkpoint
    early = [t for t in scheduler.study.trials if t.state == TrialState.COMPLETE and t.last_step == 5]
    assert all(trial.params["rate"] < 1e-3 for trial in early)
    assert results.get_best_result().metrics["training_iteration"] == MAX_T


# ---------------------------------------------------------------------------- restore


DRIVER = """
import sys, ray
from ray import tune
sys.path.insert(0, {tests!r})
import test_ray
from lazybo.ray import LazyScheduler
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
ray.cloudpickle.register_pickle_by_value(test_ray)

def train(config):
    import time
    time.sleep(0.02)
    test_ray.train(config)

if {restore!r}:
    tuner = tune.Tuner.restore({folder!r} + "/run", trainable=train)
else:
    tuner = tune.Tuner(
        train,
        param_space={{"rate": tune.loguniform(1e-4, 1), "log": {folder!r} + "/log"}},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=24, reuse_actors=True,
                                    scheduler=LazyScheduler(max_t=test_ray.MAX_T)),
        run_config=tune.RunConfig(name="run", storage_path={folder!r}, verbose=0),
    )
results = tuner.fit()
print("ended", results.num_errors, sorted(each.metrics["training_iteration"] for each in results))
"""


def test_restore_after_a_kill(tmp_path: Path) -> None:
    def driver(restore: bool) -> subprocess.Popen[str]:
        program = DRIVER.format(tests=str(Path(__file__).parent), folder=str(tmp_path), restore=restore)
        environment = {**os.environ, "TUNE_GLOBAL_CHECKPOINT_S": "0.2", "RAY_ADDRESS": ""}
        return subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )

    def recorded() -> list[Any]:
        """The trials of the study that Tune has copied to its storage, if it is there."""
        copied = tmp_path / "copy.json"
        with contextlib.suppress(OSError, KeyError):
            copied.write_bytes((tmp_path / "run" / "lazybo-study.json").read_bytes())
            return load_study(study_name="tune", storage=Store.open(copied)).trials
        return []

    running = driver(restore=False)
    while not any(trial.state == TrialState.COMPLETE for trial in recorded()):
        assert running.poll() is None, running.communicate()
        time.sleep(0.1)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    before = {trial.user_attrs["lazybo:tune"]: trial for trial in recorded()}
    trained = sum(map(len, logged(tmp_path).values()))
    assert any(trial.state == TrialState.WAITING for trial in before.values())  # paused
    assert len(before) < 24 or trained < 24 * MAX_T

    out, err = driver(restore=True).communicate()
    assert "ended 0" in out, err
    after = {trial.user_attrs["lazybo:tune"]: trial for trial in recorded()}
    assert len(after) == 24
    assert {trial.state for trial in after.values()} == {TrialState.COMPLETE, TrialState.PRUNED}
    for trial_id, trial in before.items():  # nothing was forgotten, and what had ended is as it was
        assert trial.intermediate_values.items() <= after[trial_id].intermediate_values.items()
        if trial.state.is_finished():
            assert (after[trial_id].state, after[trial_id].last_step) == (trial.state, trial.last_step)
    # Paused trainings stay paused until they are worth resuming: most of them never are.
    stayed = [t for i, t in before.items() if t.state == TrialState.WAITING and after[i].last_step == t.last_step]
    assert stayed
    assert sum(map(len, logged(tmp_path).values())) < 24 * MAX_T // 2
    assert any(trial.last_step == MAX_T for trial in after.values())


# ------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_t": 0}, "max_t must be a whole number of at least 1, not 0"),
        ({"max_t": 2.5}, "max_t must be a whole number of at least 1, not 2.5"),
        ({"max_t": 9, "mode": "maximize"}, r"mode must be one of \['min', 'max'\], not 'maximize'"),
        ({"max_t": 9, "metric": 3}, "metric must be the name of a reported value, not 3"),
        ({"max_t": 9, "time_attr": None}, "time_attr must be the name of a reported value, not None"),
    ],
)
def test_wrong_arguments(arguments: dict, message: str) -> None:
    from lazybo.ray import LazyScheduler

    with pytest.raises(ValueError, match=message):
        LazyScheduler(**arguments)


def test_metric_and_mode_are_needed_once(tmp_path: Path) -> None:
    from lazybo.ray import LazyScheduler

    with pytest.raises(ValueError, match="LazyScheduler needs a metric and a mode"):
        fit(tmp_path, metric=None, mode=None)
    with pytest.raises(ValueError, match=r"LazyScheduler needs a metric .* not metric='loss' and mode=None"):
        fit(tmp_path, scheduler=LazyScheduler(max_t=9, metric="loss"), metric=None, mode=None)
    with pytest.raises(ValueError, match="already instantiated with their own `metric` and `mode`"):
        fit(tmp_path, scheduler=LazyScheduler(max_t=9, metric="loss"))
