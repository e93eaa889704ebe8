"""Evaluations of Levy-5D to an accuracy, from one seed point, by lag: ``python -m benchmarks.levy [--seeds 20]``.

The paper's figures are single runs, 1000 iterations: the naive method 479 to -4.1, the lazy one 156 to -0.33 and 611
to -0.01.
"""

import argparse
from statistics import median

import numpy as np

from benchmarks.optimizers import lazybo
from benchmarks.problems import levy
from benchmarks.runner import play
from lazybo.core import Lag, texts

LAGS: tuple[Lag, ...] = (1, 3, 10, None, "auto")
TARGETS = (1.0, 0.1, 0.01)


def one_run(lag: Lag, seed: int, budget: int, n_startup: int) -> tuple[list[float], float]:
    """The best value after each evaluation, and the seconds the optimiser took."""
    problem = levy(5)
    steps = list(play(problem, lazybo(lag=lag, n_startup=n_startup)(problem.space, seed, budget), budget))
    return [problem.scale * step.regret for step in steps], steps[-1].seconds


def first_below(best: list[float], target: float) -> float:
    below = np.flatnonzero(np.array(best) <= target)
    return float(below[0] + 1) if len(below) else float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budget", type=int, default=300)
    parser.add_argument("--startup", type=int, default=1, help="seed points before the model is used")
    parser.add_argument("--lags", nargs="+", default=[str(lag) for lag in LAGS], choices=[str(lag) for lag in LAGS])
    options = parser.parse_args()
    print(f"median evaluations of {options.seeds} seeds to -accuracy; the share that got there within {options.budget}")
    heads = "".join(f"{f'-{target:g}':>16}" for target in TARGETS)
    print(f"{'lag':>6}{heads} {'median end':>12} {'ms a step':>10}")
    for lag in (lag for lag in LAGS if str(lag) in options.lags):
        runs = [one_run(lag, seed, options.budget, options.startup) for seed in range(options.seeds)]
        cells = ""
        for target in TARGETS:
            reached = [first_below(best, target) for best, _ in runs]
            cells += f"{median(reached):9g} ({texts.percent(float(np.mean(np.isfinite(reached)))):>5})"
        end = median(best[-1] for best, _ in runs)
        step = 1e3 * sum(spent for _, spent in runs) / len(runs) / options.budget
        print(f"{lag!s:>6}{cells} {end:12.2g} {step:10.1f}", flush=True)


if __name__ == "__main__":
    main()
