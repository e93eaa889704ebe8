"""Milliseconds a trial in an Optuna study with LazySampler, TPE and GPSampler: ``python -m benchmarks.sampler``.

Levy in 5-D, 1000 trials, in memory and on SQLite. A slow sampler is stopped after --limit seconds, and the table says
so. The time outside the sampler is Optuna's own: creating the trial, storing parameters and values.

``--stored 1000 10000`` measures instead the first suggestion in a study with so many trials, of which one never ended,
and the median of the next ones, in CPU seconds. For SQLite it also has the time to read all trials.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from statistics import median
from typing import Any

import numpy as np
import optuna
import sqlalchemy
from optuna.distributions import BaseDistribution, FloatDistribution, distribution_to_json
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from benchmarks.optimizers import gp_sampler
from benchmarks.problems import levy
from lazybo import LazySampler
from lazybo.core import texts

SAMPLERS: dict[str, Callable[[int], BaseSampler]] = {
    "lazybo": lambda seed: LazySampler(seed=seed),
    "optuna-tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "optuna-gp": gp_sampler,
}
TIMED = ("infer_relative_search_space", "sample_relative", "sample_independent", "before_trial", "after_trial")


class Stopwatch:
    """Seconds spent inside the methods of a sampler."""

    def __init__(self, sampler: BaseSampler) -> None:
        self.seconds = 0.0
        self._running = False
        for name in TIMED:
            setattr(sampler, name, self._timed(getattr(sampler, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            if self._running:  # one method of a sampler may call another
                return method(*arguments)
            self._running, start = True, time.perf_counter()
            try:
                return method(*arguments)
            finally:
                self._running = False
                self.seconds += time.perf_counter() - start

        return run


def one_study(make: Callable[[int], BaseSampler], storage: str | None, trials: int, limit: float) -> dict[str, float]:
    problem, sampler = levy(5), make(0)
    stopwatch = Stopwatch(sampler)
    study = optuna.create_study(sampler=sampler, storage=storage)
    evaluating, done, start = 0.0, 0, time.perf_counter()
    while done < trials and time.perf_counter() - start < limit:
        trial = study.ask()
        params = {name: trial.suggest_float(name, -10.0, 10.0) for name in problem.space}
        before = time.perf_counter()
        value = problem.objective(params)
        evaluating += time.perf_counter() - before
        study.tell(trial, value)
        done += 1
    total = time.perf_counter() - start - evaluating
    return {"trials": done, "total": total, "sampler": stopwatch.seconds, "best": study.best_value}


# ------------------------------------------------------------- large studies


def fill(storage: BaseStorage, n: int) -> optuna.Study:
    """A study with n trials at random points. One of them still runs."""
    problem, rng = levy(5), np.random.default_rng(0)
    study = optuna.create_study(study_name="stored", storage=storage)
    space: dict[str, BaseDistribution] = {name: FloatDistribution(-10.0, 10.0) for name in problem.space}
    trials = []
    for number in range(n):
        params = {name: float(rng.uniform(-10, 10)) for name in space}
        running = number == n // 100
        state, value = (TrialState.RUNNING, None) if running else (TrialState.COMPLETE, problem.objective(params))
        trials.append(create_trial(state=state, value=value, params=params, distributions=space))
    if isinstance(storage, InMemoryStorage):
        study.add_trials(trials)
    else:
        assert isinstance(storage, RDBStorage)
        insert(storage, study._study_id, trials)
    return study


def insert(storage: RDBStorage, study_id: int, trials: list[FrozenTrial]) -> None:
    """Add trials in one transaction: Optuna would need minutes for thousands."""
    from optuna.storages._rdb import models

    numbered = list(enumerate(trials))
    times = {"datetime_start": datetime.now(), "datetime_complete": datetime.now()}
    with storage.engine.begin() as connection:
        connection.execute(
            sqlalchemy.insert(models.TrialModel.__table__),
            [{"trial_id": i + 1, "number": i, "study_id": study_id, "state": t.state, **times} for i, t in numbered],
        )
        connection.execute(
            sqlalchemy.insert(models.TrialParamModel.__table__),
            [
                {
                    "trial_id": i + 1,
                    "param_name": name,
                    "param_value": value,
                    "distribution_json": distribution_to_json(trial.distributions[name]),
                }
                for i, trial in numbered
                for name, value in trial.params.items()
            ],
        )
        finite = models.TrialValueModel.TrialValueType.FINITE
        connection.execute(
            sqlalchemy.insert(models.TrialValueModel.__table__),
            [
                {"trial_id": i + 1, "objective": 0, "value": trial.value, "value_type": finite}
                for i, trial in numbered
                if trial.value is not None
            ],
        )


def in_large_study(name: str, n: int, kind: str, folder: str) -> str:
    """One row: the first suggestion, the next ones, and the time to read all trials."""
    storage = RDBStorage(f"sqlite:///{folder}/{name}-{n}.db") if kind == "sqlite" else InMemoryStorage()
    fill(storage, n)
    reading = 0.0
    if kind == "sqlite":
        start = time.process_time()
        optuna.load_study(study_name="stored", storage=storage).get_trials(deepcopy=False)
        reading = time.process_time() - start
    study = optuna.load_study(study_name="stored", storage=storage, sampler=SAMPLERS[name](0))
    problem, seconds = levy(5), []
    for _ in range(21):
        start = time.process_time()
        trial = study.ask()
        params = {name: trial.suggest_float(name, -10.0, 10.0) for name in problem.space}
        seconds.append(time.process_time() - start)
        study.tell(trial, problem.objective(params))
    cells = (n, kind, name, f"{seconds[0]:.2f} s", f"{1e3 * median(seconds[1:]):.0f} ms", f"{reading:.2f} s")
    return "".join(f"{cell!s:>12}" for cell in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stored", nargs="+", type=int, default=[], help="sizes of large studies")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which a study is stopped")
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS), choices=list(SAMPLERS))
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if options.stored:
        print("".join(f"{title:>12}" for title in ("trials", "storage", "sampler", "first", "next", "reading")))
        for kind in ("memory", "sqlite"):
            for n in options.stored:
                with tempfile.TemporaryDirectory() as folder:
                    for name in options.samplers:
                        print(in_large_study(name, n, kind, folder), flush=True)
        return
    titles = ("storage", "sampler", "trials", "ms/trial", "in sampler", "in Optuna", "best")
    print("".join(f"{title:>12}" for title in titles))
    for kind in ("memory", "sqlite"):
        for name in options.samplers:
            with tempfile.TemporaryDirectory() as folder:
                storage = f"sqlite:///{folder}/study.db" if kind == "sqlite" else None
                r = one_study(SAMPLERS[name], storage, options.trials, options.limit)
            step, inside = 1e3 * r["total"] / r["trials"], 1e3 * r["sampler"] / r["trials"]
            stopped = "" if r["trials"] == options.trials else f"  (stopped after {options.limit:.0f} s)"
            numbers = (
                r["trials"],
                f"{step:.1f}",
                f"{inside:.1f}",
                texts.percent(1 - inside / step),
                f"{r['best']:.2g}",
            )
            print("".join(f"{cell:>12}" for cell in (kind, name, *numbers)) + stopped, flush=True)


if __name__ == "__main__":
    main()
