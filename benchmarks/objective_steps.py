"""`python -m benchmarks.objective_steps`: seconds of a step with several outputs, ours beside TPE's.

A step is ask and tell with n observations. All contestants get the same random observations; steps alternate between
them, and the median of the ratios counts.
"""

import argparse
import statistics
import time
from typing import Any

import numpy as np
import optuna
from optuna.distributions import FloatDistribution

from lazybo import Optimizer

DIM = 6
# Objectives, constraints.
CASES = ((1, 0), (2, 0), (3, 0), (1, 2), (2, 2))


def measured(x: np.ndarray, objectives: int, constraints: int) -> tuple[list[float], list[float]]:
    centers = np.linspace(0.2, 0.8, objectives + constraints)
    values = [float(((x - center) ** 2).sum() + 0.1 * np.sin(5 * x).sum()) for center in centers]
    return values[:objectives], [value - 0.6 for value in values[objectives:]]


class Lazy:
    def __init__(self, objectives: int) -> None:
        space = {f"x{i}": (0.0, 1.0) for i in range(DIM)}
        self.optimizer = Optimizer(space, direction=["minimize"] * objectives, seed=0)

    def load(self, x: np.ndarray, values: list[float], constraints: dict[str, float]) -> None:
        params = {f"x{i}": float(each) for i, each in enumerate(x)}
        self.optimizer.observe(params, values if len(values) > 1 else values[0], constraints=constraints)

    def ask(self) -> Any:
        return self.optimizer.ask()

    def tell(self, task: Any, values: list[float], constraints: dict[str, float]) -> None:
        self.optimizer.tell(task, values if len(values) > 1 else values[0], constraints=constraints)


class Tpe:
    def __init__(self, objectives: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space = {f"x{i}": FloatDistribution(0.0, 1.0) for i in range(DIM)}
        sampler = optuna.samplers.TPESampler(seed=0)
        self.study = optuna.create_study(directions=["minimize"] * objectives, sampler=sampler)

    def load(self, x: np.ndarray, values: list[float], constraints: dict[str, float]) -> None:
        params = {f"x{i}": float(each) for i, each in enumerate(x)}
        self.study.add_trial(
            optuna.create_trial(
                params=params, distributions=dict(self.space), values=values, constraints=constraints or None
            )
        )

    def ask(self) -> Any:
        return self.study.ask(dict(self.space))

    def tell(self, task: Any, values: list[float], constraints: dict[str, float]) -> None:
        for name, value in constraints.items():
            task.set_constraint(name, value)
        self.study.tell(task, values)


def steps(n: int, objectives: int, constraints: int, repeats: int) -> tuple[float, float]:
    """The median seconds of a step: ours, TPE's."""
    rng = np.random.default_rng(0)
    contestants: list[Any] = [Lazy(objectives), Tpe(objectives)]
    for x in rng.random((n, DIM)):
        values, bounds = measured(x, objectives, constraints)
        for contestant in contestants:
            contestant.load(x, values, {f"c{i}": value for i, value in enumerate(bounds)})
    seconds: list[list[float]] = [[], []]
    for step in range(repeats + 1):
        for contestant, mine in zip(contestants, seconds, strict=True):
            start = time.process_time()
            task = contestant.ask()
            taken = time.process_time() - start
            values, bounds = measured(np.array(list(task.params.values())), objectives, constraints)
            start = time.process_time()
            contestant.tell(task, values, {f"c{i}": value for i, value in enumerate(bounds)})
            if step:  # the first step of ours learns and builds
                mine.append(taken + time.process_time() - start)
    ours, theirs = (statistics.median(each) for each in seconds)
    return ours, theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    print("| objectives | constraints | lazybo, ms | TPE, ms | ratio |\n|---|---|---|---|---|")
    for objectives, constraints in CASES:
        ours, theirs = steps(arguments.n, objectives, constraints, arguments.repeats)
        print(
            f"| {objectives} | {constraints} | {1e3 * ours:.1f} | {1e3 * theirs:.1f} | {ours / theirs:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
