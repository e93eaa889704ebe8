"""Trials whose driver was killed: real processes, killed before and while they evaluate."""

import signal
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState, create_trial

from lazybo import Limits, kfold, optimize
from lazybo.run.next_trial import EVALUATES_HERE, RECORDS_ALL, Orphans
from lazybo.run.presence import HEARTBEAT_KEY, present
from lazybo.study import Session, Store, TrialView

SPACE = {"x": FloatDistribution(-1, 1)}

# A driver that is killed: by itself before its workers have begun, or by what it evaluates.
PROGRAM = """
import os, signal, sys, threading
from concurrent.futures import Executor, Future
import lazybo
from optuna.distributions import FloatDistribution

folder, how, retries = sys.argv[1:]
DRIVER = os.getpid()

class Busy(Executor):
    "A cluster where every worker has something else to do."
    def submit(self, *_, **__):
        threading.Timer(0.2, os.kill, (DRIVER, signal.SIGKILL)).start()
        return Future()

def objective(params):
    with open(f"{folder}/calls", "a") as file:
        file.write("called\\n")
    os.kill(DRIVER, signal.SIGKILL)
    threading.Event().wait()

executor = {"before": Busy(), "serial": None, "processes": "processes"}[how]
lazybo.optimize(objective, {"x": FloatDistribution(-1, 1)}, n_trials=2, n_parallel=2 if how == "before" else 1,
    executor=executor, storage=f"{folder}/s.db", progress=False,
    limits=lazybo.Limits(retries=int(retries)))
"""


def kill(folder: Path, how: str, retries: int) -> None:
    """Run a driver that is killed."""
    program = [sys.executable, "-c", PROGRAM, folder, how, str(retries)]
    assert subprocess.run(program, check=False, timeout=120).returncode == -signal.SIGKILL


def resume(folder: Path, retries: int) -> list[optuna.trial.FrozenTrial]:
    return optimize(lambda p: p["x"], SPACE, n_trials=2, storage=folder / "s.db", limits=Limits(retries=retries)).trials


def calls(folder: Path) -> int:
    log = folder / "calls"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_deaths_before_an_evaluation_began_do_not_count(tmp_path: Path) -> None:
    for _ in range(2):
        kill(tmp_path, "before", retries=1)
    trials = resume(tmp_path, retries=1)
    assert [t.state for t in trials] == [TrialState.COMPLETE] * 2
    assert [t.system_attrs["lazybo:attempts"] for t in trials] == [0, 0]


def test_without_retries_a_trial_that_was_not_begun_is_still_run(tmp_path: Path) -> None:
    kill(tmp_path, "before", retries=0)
    assert [t.state for t in resume(tmp_path, retries=0)] == [TrialState.COMPLETE] * 2


def test_a_trial_that_kills_its_own_process_each_time_fails_after_its_retries(tmp_path: Path) -> None:
    for _ in range(2):
        kill(tmp_path, "serial", retries=1)
    trials = resume(tmp_path, retries=1)
    assert [t.state for t in trials] == [TrialState.FAIL, TrialState.COMPLETE]
    assert "died, 2 times in all" in trials[0].system_attrs["fail_reason"]
    assert calls(tmp_path) == 2


def test_a_trial_is_only_noted_when_it_is_run_again(tmp_path: Path) -> None:
    """A note costs a commit, which the first run of a trial does not pay."""
    study = optuna.create_study(storage=Store.open(tmp_path / "s.db"), study_name="lazybo")
    with present(study, **{EVALUATES_HERE: True}) as name:
        attributes = {"lazybo:driver": name, "lazybo:attempts": 0}
        running = optuna.trial.create_trial(state=TrialState.RUNNING, system_attrs=attributes)
        study._storage.create_new_trial(study._study_id, running)
    trials = resume(tmp_path, retries=2)
    assert ["lazybo:began" in t.system_attrs for t in trials] == [True, False]


HERE, ALL = {EVALUATES_HERE: True, RECORDS_ALL: False}, {EVALUATES_HERE: True, RECORDS_ALL: True}
WORKERS = {EVALUATES_HERE: False, RECORDS_ALL: False}


@pytest.mark.parametrize(
    ("facts", "attempts", "began", "counts"),
    [
        (HERE, None, None, True),  # it evaluates as soon as the trial is written
        (HERE, 0, None, False),  # run again: the start would be recorded
        (ALL, None, None, False),  # the same without retries
        (WORKERS, None, None, False),
        (WORKERS, None, "dead 0", True),
        (WORKERS, 1, "dead 1", True),
        (WORKERS, 1, "dead 0", False),  # the start of an earlier attempt
        (WORKERS, 1, "other 1", False),
        ({}, None, None, True),  # a driver that wrote nothing about itself
    ],
)
@pytest.mark.parametrize("retries", [0, 1, 2])
def test_a_death_counts_if_an_evaluation_had_begun(
    facts: dict[str, bool], attempts: int | None, began: str | None, counts: bool, retries: int
) -> None:
    study = optuna.create_study()
    study._storage.set_study_system_attr(study._study_id, f"{HEARTBEAT_KEY}:dead", {"machine": "gone", **facts})
    recorded = {"lazybo:driver": "dead", "lazybo:attempts": attempts, "lazybo:began": began}
    attributes = {key: value for key, value in recorded.items() if value is not None}
    trial_id = study._storage.create_new_trial(
        study._study_id, optuna.trial.create_trial(state=TrialState.RUNNING, system_attrs=attributes)
    )
    orphan = TrialView(study._storage.get_trial(trial_id))
    Orphans(Session(study, driver="ours"), retries).take_over(orphan)
    deaths, trial = (attempts or 0) + counts, study.trials[0]
    if counts and deaths > retries:
        assert trial.state == TrialState.FAIL
        assert f"died, {deaths} times in all" in trial.system_attrs["fail_reason"]
    else:
        assert trial.state == TrialState.WAITING
        assert trial.system_attrs["lazybo:attempts"] == deaths


def test_a_trial_that_was_killed_after_its_last_fold_is_completed() -> None:
    study = optuna.create_study(storage=(storage := InMemoryStorage()), study_name="folds")
    space = {"x": FloatDistribution(0.0, 1.0)}
    values = {0: 1.0, 1: 2.0, 2: 3.0}
    study.add_trial(
        create_trial(state=TrialState.WAITING, params={"x": 0.5}, distributions=dict(space), intermediate_values=values)
    )
    evaluated: list[int] = []

    def fold_of(params: dict[str, float], fold: int) -> float:
        evaluated.append(fold)
        return 2 * params["x"] + fold

    optimize(kfold(fold_of), space, n_trials=1, storage=storage, study_name="folds", progress=False)
    assert study.trials[0].value == 2.0
    assert evaluated == [2]
