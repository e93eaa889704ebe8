"""Milliseconds of ask + tell at n observations, beside Optuna's samplers: ``python -m benchmarks.overhead [--json]``.

All contestants see the same random points of Levy's function and take turns, step by step; medians. Ours twice: the
usual step, and the mean over steps with learning included. The last table is a whole run.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from statistics import mean, median
from typing import Any

import numpy as np
import optuna

from benchmarks.optimizers import gp_sampler
from benchmarks.problems import Problem, levy
from lazybo.optimizer import Optimizer

SIZES = ((100, 5), (300, 5), (1000, 5), (1000, 20), (3000, 5), (10_000, 5))
GP_SAMPLER_UP_TO = 1000
STEPS = 21
GP_SAMPLER_STEPS = 3


def ours(problem: Problem, points: list[dict[str, Any]]) -> Iterator[None]:
    optimizer = Optimizer(problem.space, seed=0)
    for params in points:
        optimizer.observe(params, problem.objective(params))
    while True:
        # The first time factors what was observed and learns the kernel; the clock runs from the second.
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, problem.objective(suggestion.params))
        yield


def sampler(
    make: Callable[[int], optuna.samplers.BaseSampler],
) -> Callable[[Problem, list[dict[str, Any]]], Iterator[None]]:
    def steps(problem: Problem, points: list[dict[str, Any]]) -> Iterator[None]:
        study = optuna.create_study(sampler=make(0))
        study.add_trials(
            [
                optuna.create_trial(params=params, distributions=problem.space, value=problem.objective(params))
                for params in points
            ]
        )
        while True:
            trial = study.ask(problem.space)
            study.tell(trial, problem.objective(trial.params))
            yield

    return steps


def at_size(n: int, dim: int) -> dict[str, Any]:
    """Median milliseconds a step with n observations, contestants in turn."""
    problem, rng = levy(dim), np.random.default_rng(n)
    points = [{key: float(rng.uniform(-10, 10)) for key in problem.space} for _ in range(n)]
    contestants = {"lazybo": ours, "tpe": sampler(lambda seed: optuna.samplers.TPESampler(seed=seed))}
    if n <= GP_SAMPLER_UP_TO:
        contestants["gp_sampler"] = sampler(gp_sampler)
    running = {name: steps(problem, points) for name, steps in contestants.items()}
    for steps in running.values():
        next(steps)
    seconds: dict[str, list[float]] = {name: [] for name in running}
    for step in range(STEPS):
        for name, steps in running.items():
            if name != "gp_sampler" or step < GP_SAMPLER_STEPS:
                start = time.perf_counter()
                next(steps)
                seconds[name].append(time.perf_counter() - start)
    row: dict[str, Any] = {"n": n, "dim": dim}
    for name, values in seconds.items():
        row[f"{name}_ms"] = 1e3 * median(values)
    row["lazybo_mean_ms"] = 1e3 * mean(seconds["lazybo"])
    return row


def whole_run(steps: int = 1000) -> dict[str, Any]:
    """A sequential run on Levy in 5-D: mean milliseconds a step, learning included."""
    problem, optimizer = levy(5), Optimizer(levy(5).space, seed=0)
    spent = 0.0
    for _ in range(steps):
        start = time.perf_counter()
        suggestion = optimizer.ask()
        spent += time.perf_counter() - start
        value = problem.objective(suggestion.params)
        start = time.perf_counter()
        optimizer.tell(suggestion, value)
        spent += time.perf_counter() - start
    return {"steps": steps, "mean_ms": 1e3 * spent / steps, "best": optimizer.best.value}


def show(results: dict[str, Any]) -> None:
    print(f"{'n':>6} {'dim':>4} {'lazybo':>10} {'(mean)':>10} {'TPE':>10} {'GPSampler':>11} {'TPE/us':>9} {'GP/us':>8}")
    for r in results["sizes"]:
        gp = r.get("gp_sampler_ms")
        print(
            f"{r['n']:6} {r['dim']:4} {r['lazybo_ms']:7.1f} ms {r['lazybo_mean_ms']:7.1f} ms {r['tpe_ms']:7.1f} ms "
            + (f"{gp:8.0f} ms" if gp else f"{'':>11}")
            + f" {r['tpe_ms'] / r['lazybo_ms']:9.2f}"
            + (f" {gp / r['lazybo_ms']:8.0f}" if gp else "")
        )
    w = results["whole_run"]
    print(f"\n{w['steps']} sequential evaluations of Levy-5D: {w['mean_ms']:.1f} ms a step, best {w['best']:.2g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--most", type=int, default=10_000, help="leave out sizes above this")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sizes = [at_size(n, dim) for n, dim in SIZES if n <= options.most]
    results = {"sizes": sizes, "whole_run": whole_run()}
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        show(results)


if __name__ == "__main__":
    main()
