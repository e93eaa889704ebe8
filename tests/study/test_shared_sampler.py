"""One model for all processes that sample a study on a machine."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import FrozenTrial

from lazybo import LazySampler
from lazybo.study import shared_sampler
from lazybo.study.store import open_storage

SPACE: dict[str, BaseDistribution] = {name: FloatDistribution(-5, 5) for name in "xy"}
# Asks and tells on the study in its first argument, until it is killed.
CLIENT = """
import sys
import optuna
from optuna.distributions import FloatDistribution
from lazybo import LazySampler
from lazybo.study.store import open_storage
study = optuna.load_study(study_name="s", storage=open_storage(sys.argv[1]), sampler=LazySampler(seed=0))
while True:
    trial = study.ask({name: FloatDistribution(-5, 5) for name in "xy"})
    study.tell(trial, trial.params["x"] ** 2)
    print(trial.number, flush=True)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:  # noqa: ARG001 - made before
    """A folder for the sockets of this test alone. Its path is short, as paths of sockets must be."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        monkeypatch.setattr("tempfile.tempdir", name)
        monkeypatch.setenv("TMPDIR", name)
        yield Path(name)
        for server in list(shared_sampler._servers.values()):
            server.close()


def opened(path: Path, **options: object) -> optuna.Study:
    """The study as another process would open it."""
    sampler = LazySampler(**{"seed": 0, **options})  # type: ignore[arg-type]
    return optuna.create_study(study_name="s", storage=open_storage(path), sampler=sampler, load_if_exists=True)


def step(study: optuna.Study) -> None:
    trial = study.ask(SPACE)
    study.tell(trial, trial.params["x"] ** 2 + abs(trial.params["y"] - 1))


def learned(study: optuna.Study) -> int:
    """How many trials the model of this process knows."""
    assert isinstance(study.sampler, LazySampler)
    model = study.sampler.model(study)
    return 0 if model is None else len(model.optimizer.planner.records)


def different(trials: list[FrozenTrial]) -> int:
    return len({tuple(trial.params.values()) for trial in trials})


@pytest.mark.parametrize("name", ["s.db", "s.log"])
def test_the_second_process_asks_the_first(name: str, tmp_path: Path) -> None:
    first, second = opened(tmp_path / name), opened(tmp_path / name)
    earlier = len(shared_sampler._servers)  # of studies that other tests have used
    step(first)
    assert len(shared_sampler._servers) == earlier, "nobody else is there"
    running, before = second.ask(SPACE), learned(second)
    step(first)
    assert len(shared_sampler._servers) == earlier + 1
    for _ in range(6):
        step(second)
        step(first)
    second.tell(running, 1.0)
    assert learned(first) > 10
    assert learned(second) == before
    assert different(first.trials) == 15


def test_other_options_are_another_model(tmp_path: Path) -> None:
    first, second = opened(tmp_path / "s.db"), opened(tmp_path / "s.db", deterministic=True)
    step(first)
    second.ask(SPACE)
    step(first)
    for _ in range(6):
        step(second)
    assert learned(second) > 0


def test_trials_that_run_at_the_same_time_differ(tmp_path: Path) -> None:
    studies = [opened(tmp_path / "s.db") for _ in range(4)]
    for _ in range(3):
        trials = [study.ask(SPACE) for study in studies for _ in range(2)]
        for trial, study in zip(trials, [study for study in studies for _ in range(2)], strict=True):
            study.tell(trial, trial.params["x"] ** 2)
    assert different(studies[0].trials) == 24


def test_when_the_server_is_killed_another_process_takes_its_place(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "s.db"
    study = opened(path)
    running, before = study.ask(SPACE), learned(study)  # so that the other process sees that it is not alone
    with subprocess.Popen([sys.executable, "-c", CLIENT, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        (socket,) = (path for path in folder.glob("lazybo-samplers-*/*") if path.suffix != ".lock")
        step(study)
        assert learned(study) == before, "the other process has the model"
        os.kill(process.pid, signal.SIGKILL)
    for _ in range(8):
        step(study)
    study.tell(running, 1.0)
    assert socket in shared_sampler._servers
    assert learned(study) > 3


def test_a_server_that_does_not_answer_is_not_awaited_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = opened(tmp_path / "s.db"), opened(tmp_path / "s.db")
    step(first)
    second.ask(SPACE)
    step(first)
    monkeypatch.setattr(shared_sampler, "ANSWER", 0.05)
    sampler = first.sampler
    assert isinstance(sampler, LazySampler)
    reader = sampler._readers.of(first)
    with reader.lock:  # it is busy for long
        step(second)
    assert len(second.trials) == 4
    deadline = time.monotonic() + 20
    while not second.trials[3].params and time.monotonic() < deadline:
        time.sleep(0.01)
    assert second.trials[3].params


def test_a_folder_that_others_may_enter_and_a_path_that_is_too_long_are_not_used() -> None:
    assert shared_sampler.place_of("k" * 100) is None
    place = shared_sampler.place_of("key")
    assert place is not None
    place.parent.chmod(0o755)
    assert shared_sampler.place_of("key") is None
