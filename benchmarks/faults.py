"""Kill a run many times and check that nothing is lost: ``python -m benchmarks.faults --kills 100``.

A driver process calls `lazybo.optimize()` on an SQLite file. It is killed with SIGKILL at random moments, alone or with
its workers, and started again with the same call. When a study is complete, the next one starts, until all kills are
used. Every evaluation writes a line to a log when it starts and before it returns. The database is compared with this
log. Values have a random part, which identifies the evaluation that they are from.

Kills happen in three phases: after the launch (imports), after the call of `optimize()` (the study is opened, workers
start), and after the first evaluation has started.

``--drivers 10 --races 5`` kills nothing: ten processes call `optimize()` at the same moment, with the same initial
configurations, on five studies one after the other. Each configuration must be evaluated once, and the number of trials
must be exact.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

import lazybo
from lazybo.run import Trial
from lazybo.study import Definition

# The longest random delay before a kill in each phase, in seconds; starting worker processes takes the longest.
PHASES = {"imports": 0.8, "start": 1.0, "evaluations": 1.5}
SHARES = (0.15, 0.25, 0.6)
# Seconds that a driver may take to reach a phase: long, since only a driver that hangs should exceed it.
DEADLINE = 300.0
SPACE: dict[str, BaseDistribution] = {
    "x": FloatDistribution(-1.0, 1.0),
    "rate": FloatDistribution(1e-4, 1.0, log=True),
    "width": IntDistribution(1, 64),
    "kind": CategoricalDistribution(["a", "b", "c"]),
}
INITIAL = [
    {"x": 0.5, "rate": 0.1, "width": 8, "kind": "a"},
    {"x": -0.5, "rate": 0.01, "width": 32, "kind": "b"},
    {"x": 0.0, "rate": 0.5, "width": 1, "kind": "c"},
    {"x": 0.25, "rate": 0.001, "width": 64, "kind": "a"},
    {"x": -0.75, "rate": 0.02, "width": 16, "kind": "b"},
]


@dataclass(frozen=True)
class Setting:
    """The settings of one study, which the driver process gets."""

    folder: str
    executor: str = "processes"
    workers: int = 4
    trials: int = 150
    seed: int = 0
    seconds: tuple[float, float] = (0.02, 0.06)  # of one evaluation
    drivers: int = 1  # processes that call optimize() at the same moment

    @property
    def database(self) -> Path:
        return Path(self.folder) / "study.db"

    @property
    def log(self) -> Path:
        return Path(self.folder) / "evaluations.log"


# ------------------------------------------------------------------ the driver


def drive(setting: Setting, start: int) -> None:
    """The program of the driver process: the same call each time."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    evaluation = Evaluation(str(setting.log), start, setting.seconds)
    evaluation.write("ready")
    while sum(line["event"] == "ready" for line in logged(setting)) < setting.drivers:
        time.sleep(0.005)
    lazybo.optimize(
        evaluation,
        SPACE,
        n_trials=setting.trials,
        n_parallel=setting.workers,
        executor=setting.executor,
        storage=setting.database,
        seed=setting.seed,
        limits=lazybo.Limits(retries=10_000),
        initial=INITIAL,
        progress=False,
    )


@dataclass(frozen=True)
class Evaluation:
    """An objective that writes to the log."""

    log: str
    start: int
    seconds: tuple[float, float]

    def __call__(self, params: dict[str, Any], trial: Trial) -> float:
        who = {"id": uuid.uuid4().hex, "number": trial.number, "params": params}
        self.write("begin", **who)
        chance = random.SystemRandom()
        time.sleep(chance.uniform(*self.seconds))
        badness = params["x"] ** 2 + abs(params["rate"] - 0.03) + (params["kind"] != "b") + params["width"] / 64
        value = badness + chance.uniform(0.0, 1e-3)
        self.write("return", value=value, **who)
        return float(value)

    def write(self, event: str, **what: Any) -> None:
        """Append a line in one write, so that lines stay complete if processes are killed or write at the same time."""
        line = json.dumps({"event": event, "start": self.start, "time": time.time(), **what}) + "\n"
        file = os.open(self.log, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


# ---------------------------------------------------------------------- kills


@dataclass
class Report:
    """What happened to one study or to several. The counts of violated laws must be zero."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    longest_wait: float = 0.0  # seconds from the return of an evaluation to the kill before which it was not recorded

    def law(self, name: str, violations: list[Any]) -> None:
        self.broken[name] += len(violations)
        if violations:
            self.examples.setdefault(name, str(violations[0])[:2000])

    def add(self, other: "Report") -> None:
        self.counts += other.counts
        self.broken.update(other.broken)
        self.examples = {**other.examples, **self.examples}
        self.longest_wait = max(self.longest_wait, other.longest_wait)

    @property
    def is_good(self) -> bool:
        return not any(self.broken.values())


def kill_and_check(setting: Setting, kills: int, rng: random.Random) -> Report:
    """Kill the driver of one study up to so many times, run the study to its end, and check the result."""
    report, complete = Report(), False
    snapshots: list[dict[int, Any]] = []
    sessions: list[int] = []
    killed_at: dict[int, float] = {}
    while not complete:
        start = len(sessions)
        process = launch(setting, start)
        sessions.append(process.pid)
        if len(killed_at) < kills:
            phase = rng.choices(list(PHASES), SHARES)[0]
            complete = _ended_before(process, setting, start, phase, rng.uniform(0.005, PHASES[phase]))
        else:
            process.wait(timeout=DEADLINE + setting.trials)
            complete = True
        if process.returncode:
            report.law("drivers that failed by themselves", [said(setting)])
            report.counts["starts"] += len(sessions)
            return report
        if not complete:
            whole = rng.random() < 0.5
            (os.killpg if whole else os.kill)(process.pid, signal.SIGKILL)
            process.wait()
            killed_at[start] = time.time()
            journal = setting.database.with_name(setting.database.name + "-journal")
            report.counts["  in the middle of a transaction"] += journal.exists() and journal.stat().st_size > 0
            report.counts[f"  during {phase}"] += 1
            report.counts["  with the workers"] += whole
            snapshots.append(finished(setting))
    report.counts["kills"] = len(killed_at)
    report.counts["starts"] = len(sessions)
    report.law("drivers that failed by themselves", [])
    report.law("processes left over", left_over(sessions))
    _examine(setting, snapshots, killed_at, report)
    return report


def race(setting: Setting) -> Report:
    """Start all drivers of a study at the same moment, and check the result when they have ended."""
    report = Report()
    processes = [launch(setting, start) for start in range(setting.drivers)]
    for process in processes:
        process.wait(timeout=DEADLINE + setting.trials)
    report.counts["starts"] = len(processes)
    report.law("drivers that failed by themselves", [said(setting) for process in processes if process.returncode])
    _examine(setting, [], {}, report)
    begun = [line["params"] for line in logged(setting) if line["event"] == "begin"]
    report.law("initial configurations not evaluated once", [params for params in INITIAL if begun.count(params) != 1])
    report.law("evaluations beside those of the trials", [None] * abs(len(begun) - setting.trials))
    return report


def launch(setting: Setting, start: int) -> subprocess.Popen[bytes]:
    """Start a driver in its own session, so that it can be killed with all its workers."""
    command = [sys.executable, "-m", "benchmarks.faults", "--drive", json.dumps(asdict(setting)), "--start", str(start)]
    with Path(setting.folder, "drivers.txt").open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - our own program
            command, stdout=output, stderr=output, start_new_session=True, cwd=Path(__file__).parents[1]
        )


def _ended_before(process: subprocess.Popen[bytes], setting: Setting, start: int, phase: str, delay: float) -> bool:
    """Wait for the phase and then for the delay. Returns True if the driver has ended by itself."""
    awaited = {"start": "ready", "evaluations": "begin"}.get(phase)
    deadline = time.monotonic() + DEADLINE
    while awaited and not any(line["event"] == awaited and line["start"] == start for line in logged(setting)):
        if process.poll() is not None:
            return True
        if time.monotonic() > deadline:
            os.killpg(process.pid, signal.SIGKILL)
            raise TimeoutError(f"start {start} did not get to its {phase}:\n{said(setting)}")
        time.sleep(0.01)
    try:
        process.wait(timeout=delay)
    except subprocess.TimeoutExpired:
        return False
    return True


def left_over(sessions: list[int], patience: float = 30.0) -> list[int]:
    """The processes that are left of these sessions, after workers had time to notice that their driver is gone."""
    deadline = time.monotonic() + patience
    while left := [pid for pid, session in _sessions() if session in sessions]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.1)
    return []


def _sessions() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # After the name in brackets: state, parent, group, session.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended in the meantime
        if fields[0] != "Z":
            yield int(folder.name), int(fields[3])


# --------------------------------------------------------------- what there is


def logged(setting: Setting) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in setting.log.read_text().splitlines()]
    except FileNotFoundError:
        return []


def finished(setting: Setting) -> dict[int, tuple[str, float | None]]:
    """State and value of the trials that have ended, as a reader sees them now.

    It reads a copy: opening the file itself would roll back an interrupted transaction, which the next driver must do.
    """
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("", "-journal"):
            part = setting.database.with_name(setting.database.name + suffix)
            if part.exists():
                shutil.copy(part, folder)
        with closing(sqlite3.connect(Path(folder, setting.database.name))) as copy:
            if not copy.execute("SELECT 1 FROM sqlite_master WHERE name = 'trial_values'").fetchone():
                return {}
            rows = copy.execute(
                "SELECT number, state, value FROM trials LEFT JOIN trial_values USING (trial_id) "
                "WHERE state NOT IN ('RUNNING', 'WAITING')"
            )
            return {number: (state, value) for number, state, value in rows}


def _examine(setting: Setting, snapshots: list[dict[int, Any]], killed_at: dict[int, float], report: Report) -> None:
    """Compare the database with the log and with its earlier snapshots."""
    log = logged(setting)
    begun = [line for line in log if line["event"] == "begin"]
    returned = [line for line in log if line["event"] == "return"]
    trials = optuna.load_study(study_name=Definition.DEFAULT_NAME, storage=f"sqlite:///{setting.database}").trials
    with closing(sqlite3.connect(setting.database)) as database:
        verdict = [row[0] for row in database.execute("PRAGMA integrity_check") if row[0] != "ok"]
        twice = database.execute("SELECT trial_id FROM trial_values GROUP BY trial_id HAVING COUNT(*) > 1").fetchall()
    recorded = {trial.number: (trial.state.name, trial.value) for trial in trials if trial.state.is_finished()}

    report.law("trials recorded twice", [*twice, *_repeated([trial.number for trial in trials])])
    report.law(
        "recorded and lost or changed later",
        [
            (number, was, recorded.get(number))
            for snapshot in snapshots
            for number, was in snapshot.items()
            if recorded.get(number) != was
        ],
    )
    truth = {(line["number"], line["value"]): line["params"] for line in returned}
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    report.law("recorded, but never returned", [t for t in complete if truth.get((t.number, t.value)) != t.params])
    report.law("evaluated with other parameters", [e for e in begun if e["params"] != trials[e["number"]].params])
    report.law("trials left running or waiting", [t for t in trials if not t.state.is_finished()])
    report.law("trials that failed", [t for t in trials if t.state not in (TrialState.COMPLETE, TrialState.RUNNING)])
    report.law("trials too few or too many", [None] * abs(len(recorded) - setting.trials))
    report.law("complaints of PRAGMA integrity_check", verdict)

    kept = {(trial.number, trial.value) for trial in complete}
    lost = [line for line in returned if (line["number"], line["value"]) not in kept]
    report.counts["evaluations begun"] = len(begun)
    report.counts["evaluations returned"] = len(returned)
    report.counts["  recorded"] = len(complete)
    report.counts["  run again: the kill came before the record"] = len(lost)
    in_time = [killed_at[e["start"]] - e["time"] for e in lost if e["start"] in killed_at]
    report.longest_wait = max([0.0, *in_time])


def _repeated(numbers: list[int]) -> list[int]:
    return [number for number, times in Counter(numbers).items() if times > 1]


def said(setting: Setting) -> str:
    return Path(setting.folder, "drivers.txt").read_text()[-2000:]


# ---------------------------------------------------------------------- command


def show(report: Report, studies: int) -> None:
    counts = report.counts
    order = [
        *("kills", *(f"  during {phase}" for phase in PHASES), "  with the workers"),
        *("  in the middle of a transaction", "starts", "evaluations begun", "evaluations returned", "  recorded"),
        "  run again: the kill came before the record",
    ]
    print(f"{'studies':<48}{studies:>6}")
    for name in order:
        print(f"{name:<48}{counts[name]:>6}")
    print(f"{'  longest wait of those for their record':<48}{1e3 * report.longest_wait:>6.0f} ms")
    print("\nmust be zero")
    for name, violations in report.broken.items():
        print(f"{name:<48}{violations:>6}" + (f"   e.g. {report.examples[name]}" if violations else ""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument(
        "--drivers", type=int, default=1, help="processes that start at the same moment; nothing is killed"
    )
    parser.add_argument("--races", type=int, default=5, help="number of studies that they start, one after the other")
    parser.add_argument("--executor", default="processes", choices=["serial", "threads", "processes"])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--trials", type=int, default=150, help="trials of one study")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        drive(Setting(**json.loads(options.drive)), options.start)
        return 0
    rng, report, studies = random.Random(options.seed), Report(), 0  # noqa: S311 - moments, not secrets
    workers = 1 if options.executor == "serial" else options.workers
    while options.drivers > 1 and studies < options.races and report.is_good:
        with tempfile.TemporaryDirectory() as folder:
            setting = Setting(folder, "serial", 1, options.trials, options.seed + studies, drivers=options.drivers)
            report.add(race(setting))
        studies += 1
    while options.drivers == 1 and report.counts["kills"] < options.kills and report.is_good:
        with tempfile.TemporaryDirectory() as folder:
            setting = Setting(folder, options.executor, workers, options.trials, options.seed + studies)
            report.add(kill_and_check(setting, options.kills - report.counts["kills"], rng))
        studies += 1
    show(report, studies)
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
