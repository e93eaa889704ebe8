"""Milliseconds a trial in an Optuna study with LazySampler, TPE and GPSampler: ``python -m benchmarks.sampler``.

Levy in 5-D, 1000 trials, in memory and on SQLite. A slow sampler is stopped after --limit seconds, and the table says
so. The time outside the sampler is Optuna's own: creating the trial, storing parameters and values.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from typing import Any

import optuna
from optuna.samplers import BaseSampler

from benchmarks.optimizers import gp_sampler
from benchmarks.problems import levy
from lazybo.study.sampler import LazySampler

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which a study is stopped")
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS), choices=list(SAMPLERS))
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    titles = ("storage", "sampler", "trials", "ms/trial", "in sampler", "in Optuna", "best")
    print("".join(f"{title:>12}" for title in titles))
    for kind in ("memory", "sqlite"):
        for name in options.samplers:
            with tempfile.TemporaryDirectory() as folder:
                storage = f"sqlite:///{folder}/study.db" if kind == "sqlite" else None
                r = one_study(SAMPLERS[name], storage, options.trials, options.limit)
            step, inside = 1e3 * r["total"] / r["trials"], 1e3 * r["sampler"] / r["trials"]
            stopped = "" if r["trials"] == options.trials else f"  (stopped after {options.limit:.0f} s)"
            numbers = (r["trials"], f"{step:.1f}", f"{inside:.1f}", f"{1 - inside / step:.0%}", f"{r['best']:.2g}")
            print("".join(f"{cell:>12}" for cell in (kind, name, *numbers)) + stopped, flush=True)


if __name__ == "__main__":
    main()
