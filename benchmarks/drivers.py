"""Several processes on one study: ``python -m benchmarks.drivers --storage sqlite --drivers 8 --trials 800``.

The drivers call `lazybo.optimize()` at the same moment with the same arguments. Evaluations take no time, so the
drivers race for every trial. A line of the table is one study:

- trials: how many ended; this must be ``--trials``. Evaluations, and trials that did not end, are counted as well.
- duplicates: trials with the parameters of another one that had not ended when they began; this must be 0.
- fewest, most: evaluations of the driver with the fewest, and with the most.

``--storage postgresql`` starts a server of its own (it needs the programs of PostgreSQL, and psycopg).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.trial import FrozenTrial

import lazybo
from lazybo.study import Definition

SPACE = dict.fromkeys(("x", "y", "z"), (-5.0, 5.0))
# Seconds that one driver may take: long, since only a driver that hangs should exceed it.
DEADLINE = 3600.0


@dataclass(frozen=True)
class Race:
    """What the drivers of one study did."""

    trials: int
    unfinished: int
    evaluations: tuple[int, ...]  # by driver
    duplicates: int
    failed_drivers: int
    seconds: float

    def is_exact(self, wanted: int) -> bool:
        """Whether every trial that was wanted was evaluated once, and no other."""
        counts = (self.trials, sum(self.evaluations), self.unfinished, self.duplicates, self.failed_drivers)
        return counts == (wanted, wanted, 0, 0, 0)


def drive(url: str, folder: Path, number: int, drivers: int, trials: int) -> None:
    """The program of one driver: wait for the others, then optimise."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    evaluations = 0

    def objective(params: dict[str, Any]) -> float:
        nonlocal evaluations
        evaluations += 1
        return float((params["x"] - 1) ** 2 + (params["y"] + 2) ** 2 + abs(params["z"]))

    (folder / f"ready-{number}").touch()
    while len(list(folder.glob("ready-*"))) < drivers:
        time.sleep(0.005)
    try:
        lazybo.optimize(objective, SPACE, n_trials=trials, storage=url, seed=0, progress=False)
    finally:
        (folder / f"evaluations-{number}").write_text(str(evaluations))


def race(url: str, drivers: int, trials: int) -> Race:
    """Start all drivers on an empty storage, and count when they have ended."""
    with tempfile.TemporaryDirectory() as name:
        folder, environment = Path(name), {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        start = time.monotonic()
        processes = [
            subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", "benchmarks.drivers", "--drive", json.dumps([url, name, i, drivers, trials])],
                cwd=Path(__file__).parents[1],
                env=environment,
            )
            for i in range(drivers)
        ]
        codes = [process.wait(DEADLINE) for process in processes]
        seconds = time.monotonic() - start
        evaluations = tuple(int(path.read_text()) for path in sorted(folder.glob("evaluations-*")))
    storage = optuna.storages.RDBStorage(url)
    try:
        found = optuna.load_study(study_name=Definition.DEFAULT_NAME, storage=storage).trials
    finally:
        storage.engine.dispose()
    finished = [trial for trial in found if trial.state.is_finished()]
    return Race(
        trials=len(finished),
        unfinished=len(found) - len(finished),
        evaluations=evaluations,
        duplicates=duplicates(finished),
        failed_drivers=sum(code != 0 for code in codes),
        seconds=seconds,
    )


def duplicates(trials: list[FrozenTrial]) -> int:
    """How many trials evaluate what another one did that had not ended. A later repeat measures noise."""
    groups: dict[tuple[Any, ...], list[FrozenTrial]] = {}
    for trial in trials:
        groups.setdefault(tuple(trial.params.values()), []).append(trial)
    return sum(
        any(_ended_after_start(other, trial) for other in group if other.number < trial.number)
        for group in groups.values()
        for trial in group
    )


def _ended_after_start(one: FrozenTrial, other: FrozenTrial) -> bool:
    assert one.datetime_complete is not None, "finished trials have both times"
    assert other.datetime_start is not None, "finished trials have both times"
    return one.datetime_complete > other.datetime_start


@contextmanager
def databases(kind: str) -> Iterator[Iterator[str]]:
    """URLs of empty databases, one after the other."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield (f"sqlite:///{folder}/{i}.db" for i in range(sys.maxsize))
        return
    from tests import postgres

    def created(server: str) -> Iterator[str]:
        for i in range(sys.maxsize):
            engine = sqlalchemy.create_engine(server, isolation_level="AUTOCOMMIT")
            with engine.connect() as connection:
                connection.execute(sqlalchemy.text(f"CREATE DATABASE race{i}"))
            engine.dispose()
            yield server.rpartition("/")[0] + f"/race{i}"

    with postgres.server() as server:
        yield created(server)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--drivers", type=int, default=8)
    parser.add_argument("--trials", type=int, default=800)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        url, folder, *numbers = json.loads(options.drive)
        drive(url, Path(folder), *numbers)
        return 0
    print(f"{options.storage}: {options.drivers} drivers, {options.trials} trials")
    columns = ("study", "trials", "evaluations", "unfinished", "duplicates", "fewest", "most", "failed", "seconds")
    print("".join(f"{column:>12}" for column in columns), flush=True)
    outcomes: Counter[bool] = Counter()
    with databases(options.storage) as urls:
        for study, url in zip(range(options.repeat), urls, strict=False):
            ran = race(url, options.drivers, options.trials)
            outcomes[ran.is_exact(options.trials)] += 1
            cells = [study, ran.trials, sum(ran.evaluations), ran.unfinished, ran.duplicates]
            cells += [min(ran.evaluations), max(ran.evaluations), ran.failed_drivers, round(ran.seconds)]
            print("".join(f"{cell:>12}" for cell in cells), flush=True)
    print(f"exact: {outcomes[True]} of {options.repeat}")
    return 0 if outcomes[True] == options.repeat else 1


if __name__ == "__main__":
    sys.exit(main())
