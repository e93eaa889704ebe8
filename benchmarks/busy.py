"""How busy 16 workers are, with evaluations whose times differ tenfold, on SQLite: ``python -m benchmarks.busy``.

An evaluation sleeps for a time drawn log-uniformly. Busy is the share of the workers' time spent in evaluations, from
the first one (and from the 17th, when every worker has had one) until the last one starts. Workers are started and
warmed up before, so the time to start processes does not count. Idle is the time of a worker between two evaluations:
to record one, to propose and record the next, and to wait while this is done for other workers.
"""

import argparse
import json
import math
import os
import random
import tempfile
import time
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import FloatDistribution

import lazybo
from lazybo.run import Trial
from lazybo.run.engines.base import Engine
from lazybo.run.engines.local import ProcessEngine, ThreadEngine

SPACE = {f"x{i}": FloatDistribution(0.0, 1.0) for i in range(5)}
ENGINES: dict[str, type[ProcessEngine] | type[ThreadEngine]] = {"processes": ProcessEngine, "threads": ThreadEngine}


def sleep(log: str, shortest: float, longest: float, params: dict[str, float], trial: Trial) -> float:
    """The objective. Its time depends only on the trial number, so that all runs have the same evaluations."""
    share = random.Random(trial.number).random()  # noqa: S311 - a time, not a secret
    begun = time.time()
    time.sleep(shortest * (longest / shortest) ** share)
    line = json.dumps({"number": trial.number, "begun": begun, "ended": time.time()}) + "\n"
    file = os.open(log, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(file, line.encode())
    os.close(file)
    return sum((x - 0.3) ** 2 for x in params.values())


def warm_up(engine: Engine, folder: Path) -> None:
    """Start a task in every worker at the same time."""
    wait([engine.submit(meet, str(folder), i, engine.workers) for i in range(engine.workers)])


def meet(folder: str, who: int, all_of_us: int) -> None:
    Path(folder, f"worker-{who}").touch()
    while len(list(Path(folder).glob("worker-*"))) < all_of_us:
        time.sleep(0.05)


@dataclass(frozen=True)
class Usage:
    """The use of the workers in one run."""

    evaluations: int
    wall: float  # seconds from the first to the last beginning
    busy: float
    settled: float  # as busy, from the evaluation after the first of every worker
    idle: float  # seconds a worker waits after one of those


def usage(log: Path, workers: int) -> Usage:
    lines = sorted((json.loads(line) for line in log.read_text().splitlines()), key=lambda line: line["begun"])
    begun = [line["begun"] for line in lines]
    busy, settled = (_share(lines, start, begun[-1], workers) for start in (begun[0], begun[workers]))
    idle = (1 - settled) * workers * (begun[-1] - begun[workers]) / (len(lines) - workers)
    return Usage(len(lines), begun[-1] - begun[0], busy, settled, idle)


def _share(lines: list[dict[str, Any]], start: float, stop: float, workers: int) -> float:
    inside = (min(line["ended"], stop) - max(line["begun"], start) for line in lines)
    return sum(max(0.0, seconds) for seconds in inside) / (workers * (stop - start))


def one_run(executor: str, synchronous: bool, options: argparse.Namespace) -> Usage:
    with tempfile.TemporaryDirectory(prefix="busy-", dir=Path.cwd()) as name:
        folder = Path(name)
        engine = ENGINES[executor](options.workers)
        try:
            warm_up(engine, folder)
            lazybo.optimize(
                partial(sleep, str(folder / "log"), *options.seconds),
                SPACE,
                n_trials=options.trials,
                n_parallel=options.workers,
                executor=engine,
                storage=folder / "study.db",
                synchronous=synchronous,
                seed=0,
                progress=False,
            )
        finally:
            engine.shutdown()
        return usage(folder / "log", options.workers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--trials", type=int, default=160)
    parser.add_argument("--seconds", type=float, nargs=2, default=[0.3, 3.0], metavar=("SHORTEST", "LONGEST"))
    parser.add_argument("--executors", nargs="+", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--modes", nargs="+", default=["asynchronous", "synchronous"])
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    shortest, longest = options.seconds
    mean = (longest - shortest) / math.log(longest / shortest)
    print(f"{options.workers} workers, evaluations of {shortest:g} to {longest:g} s, {mean:.2f} s in the mean")
    print(f"{'executor':>12} {'mode':>14} {'trials':>7} {'wall':>8} {'busy':>7} {'from 17th':>10} {'idle':>10}")
    for executor in options.executors:
        for mode in options.modes:
            u = one_run(executor, mode == "synchronous", options)
            shares = f"{100 * u.busy:5.1f} % {100 * u.settled:8.1f} %"
            line = f"{executor:>12} {mode:>14} {u.evaluations:7} {u.wall:6.1f} s {shares} {1e3 * u.idle:7.0f} ms"
            print(line, flush=True)


if __name__ == "__main__":
    main()
