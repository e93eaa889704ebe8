"""What happens when processes are killed, workers die or hang, and people lose patience: with real processes."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState

import lazybo
from benchmarks import faults
from lazybo.run import Process
from lazybo.run.trial import Trial
from lazybo.study import Definition

SPACE = {"x": FloatDistribution(-1.0, 1.0)}
# Seconds after which something hangs, and does not merely take its time on a busy machine.
DEADLINE = 120.0
# How Python ends after a KeyboardInterrupt: by the signal itself, so that a shell sees 130.
INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)


def trials_of(database: Path) -> list[FrozenTrial]:
    return optuna.load_study(study_name=Definition.DEFAULT_NAME, storage=f"sqlite:///{database}").trials


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)


# ------------------------------------------------------------------ the driver


@pytest.mark.parametrize(("executor", "kills", "trials"), [("threads", 3, 20), ("processes", 2, 12)])
def test_killed_at_any_moment_a_run_loses_nothing_it_has_recorded(
    executor: str, kills: int, trials: int, tmp_path: Path
) -> None:
    rng, report, attempts = random.Random(0), faults.Report(), count()
    while report.is_good and report.counts["kills"] < kills:
        folder = tmp_path / str(next(attempts))  # an attempt may end before its kill
        folder.mkdir()
        setting = faults.Setting(str(folder), executor, workers=2, trials=trials)
        report.add(faults.kill_and_check(setting, kills - report.counts["kills"], rng))
    assert report.is_good, report
    assert report.counts["evaluations returned"] >= report.counts["  recorded"] >= trials


@contextmanager
def driver(setting: faults.Setting, start: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    process = faults.launch(setting, start)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def resume(setting: faults.Setting) -> None:
    """Make the same call again, in this process."""
    verbosity = optuna.logging.get_verbosity()
    try:
        faults.drive(replace(setting, seconds=(0.0, 0.0)), start=1)
    finally:
        optuna.logging.set_verbosity(verbosity)


def events(setting: faults.Setting, event: str) -> list[dict[str, Any]]:
    return [line for line in faults.logged(setting) if line["event"] == event]


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C as a terminal sends it: to the driver and to its workers."""
    os.killpg(process.pid, signal.SIGINT)


@pytest.mark.parametrize("executor", ["serial", "processes"])
def test_ctrl_c_waits_for_what_runs(executor: str, tmp_path: Path) -> None:
    workers = 1 if executor == "serial" else 2
    setting = faults.Setting(str(tmp_path), executor, workers, trials=6, seconds=(0.3, 0.6))
    with driver(setting) as process:
        until(lambda: len(events(setting, "begin")) > workers)
        interrupt(process)
        assert process.wait(timeout=DEADLINE) in INTERRUPTED, faults.said(setting)
    assert "KeyboardInterrupt" in faults.said(setting)
    assert "make the same call again to resume" in faults.said(setting)
    begun = {line["number"] for line in events(setting, "begin")}
    trials = trials_of(setting.database)
    assert {trial.number for trial in trials if trial.state == TrialState.COMPLETE} == begun
    assert len(begun) < setting.trials
    assert not [trial for trial in trials if trial.state == TrialState.RUNNING]
    assert len(events(setting, "return")) == len(events(setting, "begin"))

    resume(setting)
    assert [trial.state for trial in trials_of(setting.database)] == [TrialState.COMPLETE] * setting.trials


@pytest.mark.parametrize("executor", ["serial", "processes"])
def test_ctrl_c_twice_stops_now_and_the_trials_wait_for_the_next_run(executor: str, tmp_path: Path) -> None:
    workers = 1 if executor == "serial" else 2
    setting = faults.Setting(str(tmp_path), executor, workers, trials=5, seconds=(3600.0, 3600.0))
    with driver(setting) as process:
        until(lambda: len(events(setting, "begin")) == workers)
        interrupt(process)
        until(lambda: "Ctrl-C again" in faults.said(setting))
        interrupt(process)
        assert process.wait(timeout=DEADLINE) in INTERRUPTED
    begun = {line["number"]: line["params"] for line in events(setting, "begin")}
    waiting = {trial.number: trial for trial in trials_of(setting.database) if trial.state == TrialState.WAITING}
    assert set(begun) <= set(waiting)
    assert not [trial for trial in trials_of(setting.database) if trial.state == TrialState.RUNNING]

    resume(setting)
    trials = trials_of(setting.database)
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * setting.trials
    assert {number: trials[number].params for number in begun} == begun
    assert faults.left_over([process.pid]) == []


ANOTHER_THREAD = """
import signal, sys, threading, time
from pathlib import Path
import lazybo

def objective(params):
    time.sleep(0.5)  # the main thread waits by now
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    while not Path(sys.argv[1]).exists():
        time.sleep(0.02)
    return params["x"]

lazybo.optimize(objective, {"x": (0.0, 1.0)}, n_trials=9, executor="threads", n_parallel=1, progress=False)
"""


def test_ctrl_c_is_noticed_whichever_thread_gets_the_signal(tmp_path: Path) -> None:
    """The system may give it to any thread, and the main one waits for the evaluation, which does not end by itself."""
    go, said = tmp_path / "go", tmp_path / "said"
    with (
        said.open("wb") as output,
        subprocess.Popen([sys.executable, "-c", ANOTHER_THREAD, str(go)], stderr=output) as process,
    ):
        try:
            until(lambda: "Ctrl-C again" in said.read_text())
        finally:
            go.touch()
        assert process.wait(timeout=DEADLINE) in INTERRUPTED


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_an_interrupt_in_a_callback_ends_the_run_and_loses_nothing(executor: str, tmp_path: Path) -> None:
    def callback(_: optuna.Study, trial: FrozenTrial) -> None:
        if trial.number == 3:
            raise KeyboardInterrupt

    def run(**options: Any) -> optuna.Study:
        where = {"executor": executor, "n_parallel": 1 if executor == "serial" else 2, "storage": tmp_path / "s.db"}
        return lazybo.optimize(lambda params: params["x"] ** 2, SPACE, n_trials=8, progress=False, **where, **options)

    with pytest.raises(KeyboardInterrupt) as caught:
        run(callbacks=[callback])
    trials = caught.value.study.trials  # type: ignore[attr-defined]
    assert trials[3].state == TrialState.COMPLETE
    assert {trial.state for trial in trials} <= {TrialState.COMPLETE, TrialState.WAITING}
    assert [trial.state for trial in run().trials] == [TrialState.COMPLETE] * 8


# ----------------------------------------------------------------- its workers


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_worker_that_died_is_replaced(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def objective(params: dict[str, float], trial: Trial) -> float:
        with log.open("a") as file:
            file.write(json.dumps({"number": trial.number, "pid": os.getpid()}) + "\n")
        if trial.number == 1:
            os._exit(1)
        return params["x"] ** 2

    # One worker: with more, those that live may finish everything before the place of the dead one is filled.
    lazybo.optimize(
        objective,
        SPACE,
        n_trials=4,
        n_parallel=1,
        executor="processes",
        limits=lazybo.Limits(retries=1),
        progress=False,
    )
    seen = [(line["number"], line["pid"]) for line in lines(log)]
    assert [number for number, _ in seen] == [0, 1, 1, 2, 3]
    first, died, died_again, *rest = (pid for _, pid in seen)
    assert first == died
    assert len({died, died_again, *rest}) == 3
    assert len(set(rest)) == 1


def test_an_evaluation_that_hangs_ends_with_its_process(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def objective(params: dict[str, float], trial: Trial) -> float:
        if trial.number == 3:
            log.write_text(str(os.getpid()))
            time.sleep(3600)
        return params["x"] ** 2

    study = lazybo.optimize(
        objective, SPACE, n_trials=8, n_parallel=2, limits=lazybo.Limits(trial_timeout=1), progress=False
    )
    assert [t.number for t in study.trials if t.state == TrialState.FAIL] == [3]
    assert "trial_timeout=1" in study.trials[3].system_attrs["fail_reason"]
    assert len(study.trials) == 8
    until(lambda: Process.of(int(log.read_text())).born is None)


# ------------------------------------------------------------ several drivers


def test_drivers_that_race_for_the_last_trials_begin_no_more_than_are_needed(tmp_path: Path) -> None:
    program = Path(__file__).parents[1] / "programs" / "shared_study.py"
    url = f"sqlite:///{tmp_path}/s.db"
    command = [sys.executable, str(program), url, str(tmp_path / "log"), "14", "0.005", "3"]
    drivers = [subprocess.Popen(command) for _ in range(3)]
    assert [driver.wait(DEADLINE) for driver in drivers] == [0, 0, 0]
    trials = optuna.load_study(study_name="shared", storage=url).trials
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 14
    # An evaluation may be repeated to find out whether there is noise, but only when it has ended.
    same = [(a, b) for a, b in itertools.combinations(trials, 2) if a.params == b.params]
    assert len(same) <= 3
    assert all(a.datetime_complete <= b.datetime_start for a, b in same)
