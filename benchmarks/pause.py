"""Kill trainings many times and count their epochs: ``python -m benchmarks.pause --kills 30 --executor processes``.

A driver process calls `lazybo.optimize()` with a generator function that writes a checkpoint in every epoch and is
paused and resumed. Workers and drivers are killed in turn with SIGKILL, at random moments; a driver is then started
again with the same call. When a study is complete the next one starts, until all kills are used. Every epoch writes a
line to a log when it begins. The study is compared with this log. Values have a random part, which identifies the epoch
that they are from.

``--executor dask`` runs the trainings on a LocalCluster, which outlives the drivers: the trainings of a driver that was
killed run on until they report.
"""

import argparse
import json
import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

import lazybo
from benchmarks.faults import DEADLINE, Report, left_over
from lazybo.run import Process, Trial
from lazybo.study import Definition, TrialView

# The longest random delay before a kill, in seconds, after the first epoch of a driver has begun.
LONGEST_DELAY = 1.5
# An epoch that was begun is lost by a kill, and so is one that was recorded, but whose checkpoint was not copied yet.
LOST_BY_A_KILL = 2


@dataclass(frozen=True)
class Setting:
    """The settings of one study, which the driver process gets."""

    folder: str
    executor: str = "processes"  # or the address of a Dask scheduler
    workers: int = 3
    trials: int = 12
    epochs: int = 15
    seed: int = 0
    seconds: tuple[float, float] = (0.02, 0.08)  # of one epoch

    @property
    def database(self) -> Path:
        return Path(self.folder) / "study.db"

    @property
    def log(self) -> Path:
        return Path(self.folder) / "epochs.log"


# ------------------------------------------------------------------ the driver


def drive(setting: Setting, start: int) -> None:
    """The program of the driver process: the same call each time."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    lazybo.optimize(
        Training(str(setting.log), start, setting.epochs, setting.seconds),
        {"x": (-1.0, 1.0), "rate": (0.1, 1.0)},
        n_trials=setting.trials,
        max_steps=setting.epochs,
        n_parallel=setting.workers,
        executor=setting.executor,
        storage=setting.database,
        seed=setting.seed,
        limits=lazybo.Limits(retries=10_000),
        progress=False,
    )


@dataclass(frozen=True)
class Training:
    """An objective that writes to the log."""

    log: str
    start: int
    epochs: int
    seconds: tuple[float, float]

    def __call__(self, params: dict[str, Any], trial: Trial, checkpoint: Path) -> Iterator[float]:
        state = checkpoint / "epoch"
        first = int(state.read_text()) + 1 if state.exists() else 1
        who = {"number": trial.number, "pid": os.getpid(), "start": self.start}
        self._write({"event": "start", "epoch": first, **who})
        chance = random.SystemRandom()
        for epoch in range(first, self.epochs + 1):
            value = params["x"] ** 2 + 2 * math.exp(-epoch * params["rate"]) + chance.uniform(0.0, 1e-3)
            self._write({"event": "epoch", "epoch": epoch, "value": value, **who})
            time.sleep(chance.uniform(*self.seconds))
            state.write_text(str(epoch))  # not atomic: a kill may leave an empty file
            yield value

    def _write(self, line: dict[str, Any]) -> None:
        """Append a line in one write, so that lines stay complete if processes are killed or write at the same time."""
        file = os.open(self.log, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        try:
            os.write(file, (json.dumps(line) + "\n").encode())
        finally:
            os.close(file)


def launch(setting: Setting, start: int) -> subprocess.Popen[bytes]:
    """Start a driver in its own session, so that it can be killed with all its workers."""
    command = [sys.executable, "-m", "benchmarks.pause", "--drive", json.dumps(asdict(setting)), "--start", str(start)]
    with Path(setting.folder, "drivers.txt").open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - our own program
            command, stdout=output, stderr=output, start_new_session=True, cwd=Path(__file__).parents[1]
        )


# ---------------------------------------------------------------------- kills


def kill_and_check(setting: Setting, kills: int, rng: random.Random) -> Report:
    """Kill workers and drivers of one study up to so many times, run it to its end, and check the result."""
    report = Report()
    snapshots: list[dict[tuple[int, int], float]] = []
    sessions: list[int] = []
    done = 0
    process = launch(setting, 0)
    sessions.append(process.pid)
    while done < kills and _is_training(process, setting, len(sessions) - 1):
        time.sleep(rng.uniform(0.0, LONGEST_DELAY))
        if process.poll() is not None:
            break
        if done % 2:
            done += _kill_worker(setting, rng, report)
            continue
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        done += 1
        report.counts["  of drivers"] += 1
        snapshots.append(recorded(trials_of(setting)))
        process = launch(setting, len(sessions))
        sessions.append(process.pid)
    process.wait(timeout=DEADLINE)
    report.counts["kills"] = done
    report.law("drivers that failed by themselves", [said(setting)] if process.returncode else [])
    report.law("processes left over", left_over(sessions))
    if not process.returncode:
        _examine(setting, snapshots, report)
    return report


def _is_training(process: subprocess.Popen[bytes], setting: Setting, start: int) -> bool:
    """Wait until a training of this start runs; False if the driver has ended by itself."""
    deadline = time.monotonic() + DEADLINE
    while not any(line["start"] == start for line in logged(setting)):
        if process.poll() is not None:
            return False
        if time.monotonic() > deadline:
            os.killpg(process.pid, signal.SIGKILL)
            raise TimeoutError(f"start {start} trains nothing:\n{said(setting)}")
        time.sleep(0.01)
    return True


def _kill_worker(setting: Setting, rng: random.Random, report: Report) -> int:
    """Kill one of the processes that have begun the last epochs; how many were killed."""
    alive = sorted(
        {line["pid"] for line in logged(setting)[-setting.workers :] if Process.of(line["pid"]).born is not None}
    )
    if not alive:
        return 0
    os.kill(rng.choice(alive), signal.SIGKILL)
    report.counts["  of workers"] += 1
    return 1


def logged(setting: Setting) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in setting.log.read_text().splitlines()]
    except FileNotFoundError:
        return []


def trials_of(setting: Setting) -> list[FrozenTrial]:
    if not setting.database.exists():
        return []
    return optuna.load_study(study_name=Definition.DEFAULT_NAME, storage=f"sqlite:///{setting.database}").trials


def recorded(trials: list[FrozenTrial]) -> dict[tuple[int, int], float]:
    """Every value in the study, by trial and epoch."""
    return {(trial.number, epoch): value for trial in trials for epoch, value in trial.intermediate_values.items()}


def said(setting: Setting) -> str:
    return Path(setting.folder, "drivers.txt").read_text()[-2000:]


def _examine(setting: Setting, snapshots: list[dict[tuple[int, int], float]], report: Report) -> None:
    """Compare the study with the log and with its earlier snapshots."""
    log, trials = logged(setting), trials_of(setting)
    epochs = [line for line in log if line["event"] == "epoch"]
    starts = [line for line in log if line["event"] == "start"]
    values = recorded(trials)
    with closing(sqlite3.connect(setting.database)) as database:
        query = "SELECT trial_id, step FROM trial_intermediate_values GROUP BY trial_id, step HAVING COUNT(*) > 1"
        report.law("epochs counted twice", database.execute(query).fetchall())
    gaps = [t for t in trials if sorted(t.intermediate_values) != [*range(1, len(t.intermediate_values) + 1)]]
    report.law("epochs lost before the last checkpoint", [*gaps, *_set_back(log)])
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    report.law("complete without all epochs", [t for t in complete if len(t.intermediate_values) != setting.epochs])
    truth = {(line["number"], line["epoch"], line["value"]) for line in epochs}
    report.law("recorded, but never trained", [key for key, value in values.items() if (*key, value) not in truth])
    changed = [key for before in snapshots for key, value in before.items() if values.get(key) != value]
    report.law("recorded and changed later", changed)
    states = [trial for trial in trials if trial.state != TrialState.COMPLETE and not TrialView(trial).is_paused]
    report.law("trials neither complete nor paused", states)
    report.law("trials too few or too many", [None] * abs(len(trials) - setting.trials))
    report.counts["trials complete"] = len(complete)
    report.counts["trials paused"] = len(trials) - len(complete)
    report.counts["starts of a training"] = len(starts)
    report.counts["  from a checkpoint"] = sum(line["epoch"] > 1 for line in starts)
    report.counts["epochs run"] = len(epochs)
    report.counts["epochs in the study"] = len(values)
    report.counts["epochs wasted"] = len(epochs) - len(values)


def _set_back(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The starts that went further back than a kill explains."""
    reached: dict[int, int] = {}
    found = []
    for line in log:
        number = line["number"]
        if line["event"] == "start" and line["epoch"] <= reached.get(number, 0) - LOST_BY_A_KILL:
            found.append(line)
        reached[number] = max(reached.get(number, 0), line["epoch"] if line["event"] == "epoch" else 0)
    return found


# ---------------------------------------------------------------------- command


@contextmanager
def engine(executor: str, workers: int) -> Iterator[str]:
    """What the drivers run on: "processes", or the address of a Dask cluster that outlives them."""
    if executor != "dask":
        yield executor
        return
    import dask
    import distributed

    # By default a cluster gives a worker up for good if it is down 15 s after a kill, as it is if it was killed twice.
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 day"}),
        distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
    ):
        yield cluster.scheduler_address.replace("tcp://", "dask://")


def run(executor: str, kills: int, *, workers: int = 3, trials: int = 12, seed: int = 0) -> tuple[Report, int]:
    """Kill studies until all kills are used; the report, and how many studies there were."""
    rng, report, studies = random.Random(seed), Report(), 0  # noqa: S311 - moments, not secrets
    with engine(executor, workers) as where:
        while report.counts["kills"] < kills and report.is_good:
            with tempfile.TemporaryDirectory() as folder:
                setting = Setting(folder, where, workers, trials, seed=seed + studies)
                report.add(kill_and_check(setting, kills - report.counts["kills"], rng))
            studies += 1
    return report, studies


def show(report: Report, studies: int) -> None:
    order = [
        *("kills", "  of drivers", "  of workers", "trials complete", "trials paused", "starts of a training"),
        *("  from a checkpoint", "epochs run", "epochs in the study", "epochs wasted"),
    ]
    print(f"{'studies':<48}{studies:>6}")
    for name in order:
        print(f"{name:<48}{report.counts[name]:>6}")
    print("\nmust be zero")
    for name, violations in report.broken.items():
        print(f"{name:<48}{violations:>6}" + (f"   e.g. {report.examples[name]}" if violations else ""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--executor", default="processes", choices=["processes", "dask"])
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--trials", type=int, default=12, help="trials of one study")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        drive(Setting(**json.loads(options.drive)), options.start)
        return 0
    report, studies = run(
        options.executor, options.kills, workers=options.workers, trials=options.trials, seed=options.seed
    )
    show(report, studies)
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
