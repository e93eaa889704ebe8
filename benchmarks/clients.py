"""Many processes on one study: ``python -m benchmarks.clients --clients 100 --storage postgresql``.

Each client calls ``study.ask(distributions)`` and ``study.tell(trial, value)`` with a `LazySampler`, again and again,
until the study has ``--trials`` trials. Evaluations take no time, so all clients ask for suggestions all the time. The
clients are forks of one process that has imported everything. A line of the table is one study:

- twice: trials with the parameters of another one that had not ended when they began; this must be 0.
- ask, tell: milliseconds, the median and the 99th percentile over all trials after the first of each client.
- a second: trials for each second, from the first ask to the last tell.
- CPU: seconds of all clients for each trial, without the database's.
- MB: memory of a client that it does not share with others, on average at the end.

``--sampler random`` shows what Optuna and the database cost alone. ``--profile FILE`` writes a profile of the first
client.
"""

import argparse
import cProfile
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import psutil
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.storages import BaseStorage

import lazybo
from benchmarks.drivers import databases, duplicates
from lazybo.study import Store

SPACE: dict[str, BaseDistribution] = {name: FloatDistribution(-5.0, 5.0) for name in ("x", "y", "z")}
STUDY = "clients"
# Seconds that a study may take: long, since only a client that hangs should exceed it.
DEADLINE = 1800.0


@dataclass(frozen=True)
class Setting:
    """What every client gets."""

    url: str
    folder: str
    clients: int
    trials: int
    sampler: str
    profile: str | None


def opened(url: str) -> BaseStorage:
    return Store.open(url)


def client(setting: Setting, number: int) -> None:
    """The program of one client: wait for the others, then ask and tell."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.RandomSampler() if setting.sampler == "random" else lazybo.LazySampler(seed=0)
    study = optuna.load_study(study_name=STUDY, storage=opened(setting.url), sampler=sampler)
    folder = Path(setting.folder)
    (folder / f"ready-{number}").touch()
    while not (folder / "go").exists():
        time.sleep(0.02)
    profile = cProfile.Profile() if setting.profile and number == 0 else None
    times: list[tuple[float, float, float]] = []
    before = time.process_time()
    with profile or nullcontext():
        ask_and_tell(study, setting.trials, times)
    if profile is not None:
        profile.dump_stats(str(setting.profile))
    memory = psutil.Process().memory_full_info()
    found = {"times": times, "cpu": time.process_time() - before, "own": memory.uss, "rss": memory.rss}
    (folder / f"done-{number}").write_text(json.dumps(found))


def ask_and_tell(study: optuna.Study, trials: int, times: list[tuple[float, float, float]]) -> None:
    """Begin trials until the study has enough; their beginnings, and the seconds of ask and tell."""
    number = -1
    while number < trials - 1:
        start = time.monotonic()
        trial = study.ask(SPACE)
        asked = time.monotonic()
        number = trial.number
        if number >= trials:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            return
        study.tell(trial, sum((value - i) ** 2 for i, value in enumerate(trial.params.values())))
        times.append((start, asked - start, time.monotonic() - asked))


def run(setting: Setting) -> dict[str, Any]:
    """Run all clients on an empty storage; the cells of a line of the table."""
    storage = opened(setting.url)
    optuna.create_study(study_name=STUDY, storage=storage)
    _dispose(storage)
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=client, args=(setting, i), daemon=True) for i in range(setting.clients)]
    folder = Path(setting.folder)
    for process in processes:
        process.start()
    while len(list(folder.glob("ready-*"))) < setting.clients:
        time.sleep(0.05)
    (folder / "go").touch()
    deadline = time.monotonic() + DEADLINE
    for process in processes:
        process.join(max(deadline - time.monotonic(), 0.1))
    hung = sum(process.is_alive() for process in processes)
    for process in processes:
        process.kill()
    storage = opened(setting.url)
    study = optuna.load_study(study_name=STUDY, storage=storage)
    trials = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.COMPLETE]
    _dispose(storage)
    done = [json.loads(path.read_text()) for path in folder.glob("done-*")]
    return {"hung": hung, "twice": duplicates(trials), **_cells(done, len(trials))}


def _dispose(storage: BaseStorage) -> None:
    """Close the connections, which forked processes must not share."""
    database = getattr(storage, "_backend", storage)
    if isinstance(database, optuna.storages.RDBStorage):
        database.engine.dispose()


def _cells(done: list[dict[str, Any]], trials: int) -> dict[str, Any]:
    everything = [each for one in done for each in one["times"]]
    later = np.array([each for one in done for each in one["times"][1:]] or everything)
    span = max(sum(each) for each in everything) - min(each[0] for each in everything)
    cells: dict[str, Any] = {"trials": trials}
    for name, column in (("ask", 1), ("tell", 2)):
        for percent in (50, 99):
            cells[f"{name} p{percent}"] = f"{1e3 * np.percentile(later[:, column], percent):.0f}"
    cells["a second"] = f"{trials / span:.1f}"
    cells["CPU"] = f"{sum(one['cpu'] for one in done) / trials:.3f}"
    cells["MB"] = f"{sum(one['own'] for one in done) / len(done) / 1e6:.0f}"
    return cells


@contextmanager
def storages(kind: str) -> Iterator[Iterator[str]]:
    """Places of empty storages, one after the other."""
    if kind == "journal":
        with tempfile.TemporaryDirectory() as folder:
            yield (f"{folder}/{i}.log" for i in range(sys.maxsize))
        return
    with databases(kind) as urls:
        yield urls


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[100])
    parser.add_argument("--trials", type=int, default=600)
    parser.add_argument("--storage", choices=["postgresql", "sqlite", "journal"], default="postgresql")
    parser.add_argument("--sampler", choices=["lazy", "random"], default="lazy")
    parser.add_argument("--profile")
    options = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warm = optuna.create_study(sampler=lazybo.LazySampler(seed=0))  # imports what is imported late
    warm.optimize(lambda trial: sum(trial.suggest_float(name, -5, 5) for name in SPACE), n_trials=8)
    good, heading = True, ""
    with storages(options.storage) as urls:
        for clients, url in zip(options.clients, urls, strict=False):
            with tempfile.TemporaryDirectory() as folder:
                cells = run(Setting(url, folder, clients, options.trials, options.sampler, options.profile))
            if not heading:
                heading = "".join(f"{name:>10}" for name in ("storage", "sampler", "clients", *cells))
                print(heading, flush=True)
            row = [options.storage, options.sampler, clients, *cells.values()]
            print("".join(f"{cell:>10}" for cell in row), flush=True)
            good = good and not cells["hung"] and not cells["twice"] and cells["trials"] == options.trials
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
