"""Known constraints: how often suggestions are infeasible, how good they are, what they cost.

``python -m benchmarks.feasible``. Constraints are half-spaces, balls and pairs of balls, at places that depend on the
seed, of a given share of the volume; objectives are bowls and Levy's function. Regret is normalised: 0 is the best
feasible value known, also from a long local search, 1 the median of the feasible set. Random search draws feasible
points only, by rejection. The time of a step is measured beside the same optimiser without a constraint, alternating.
"""

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from operator import mul
from statistics import median
from typing import Any

import numpy as np

from lazybo import Condition, Optimizer, Space

SPACES = ("2", "5", "10", "mixed")
SHARES = (0.5, 0.1, 1e-2, 1e-3)
SAMPLES = 2**17
TIMED_FROM = 20


def space_of(name: str) -> tuple[dict[str, Any], dict[str, Condition]]:
    """2, 5 or 10 numbers; or "mixed": numbers, integers, choices and a conditional parameter."""
    if name != "mixed":
        return {f"x{j}": (0.0, 1.0) for j in range(int(name))}, {}
    space = {
        "lr": (1e-5, 1e-1, "log"),
        "layers": (1, 12),
        "width": (16, 1024, "log"),
        "dropout": (0.0, 0.8),
        "optimiser": ["sgd", "adam", "rmsprop"],
        "momentum": (0.0, 0.99),
    }
    return space, {"momentum": Condition("optimiser", ("sgd",))}


def _mixed_unit(params: dict[str, Any]) -> tuple[float, ...]:
    return (
        math.log(params["lr"] / 1e-5) / math.log(1e4),
        (params["layers"] - 1) / 11,
        math.log(params["width"] / 16) / math.log(64),
        params["dropout"] / 0.8,
        ("sgd", "adam", "rmsprop").index(params["optimiser"]) / 2,
        params.get("momentum", 0.495) / 0.99,
    )


class Problem:
    """A constraint and an objective on the unit cube; an inactive parameter counts as 0.5."""

    def __init__(self, name: str, share: float, seed: int) -> None:
        self.given, self.conditions = space_of(name)
        self.is_cube = name != "mixed"
        self.space = Space(self.given, conditions=self.conditions)
        rng, d = np.random.default_rng((seed, 17)), self.space.dim
        self.weights, self.centers = rng.standard_normal(d), rng.random((2, d))
        self.balls, self.is_bowl = seed % 3, seed % 2 == 0  # no ball: a half-space
        self.plain_weights, self.plain_centers = self.weights.tolist(), self.centers[: self.balls].tolist()
        self.optimum, self.scales = rng.random(d), 10 ** rng.uniform(0.0, 1.0, d)
        points = self.space.sample(rng, SAMPLES)
        excess = self.excess(self.unit(points))
        self.bound = float(np.quantile(excess, share))
        inside = points[excess <= self.bound]
        values = self.values(self.unit(inside))
        self.typical = float(np.median(values))
        self.random = values.tolist()  # in random order
        self.best = min(self.searched(start, rng) for start in inside[np.argsort(values)[:5]])

    def unit(self, points: np.ndarray) -> np.ndarray:
        """Points with their choices scaled to [0, 1] and without gaps."""
        return np.nan_to_num(points / np.where(self.space.numeric, 1.0, self.space.levels - 1), nan=0.5)

    def excess(self, u: np.ndarray) -> np.ndarray:
        """What must be at most ``bound``."""
        if self.balls == 0:
            return np.asarray(u @ self.weights)
        return np.min([np.linalg.norm(u - center, axis=1) for center in self.centers[: self.balls]], axis=0)

    def values(self, u: np.ndarray) -> np.ndarray:
        """The objective."""
        if self.is_bowl:
            return np.asarray(((u - self.optimum) ** 2 * self.scales).sum(axis=1))
        w = 1 + 2.5 * (u - self.optimum)
        waves = ((w[:, :-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:, :-1] + 1) ** 2)).sum(axis=1)
        last = (w[:, -1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[:, -1]) ** 2)
        return np.asarray(np.sin(np.pi * w[:, 0]) ** 2 + waves + last)

    def searched(self, x: np.ndarray, rng: np.random.Generator) -> float:
        """The best value that a long random local search finds from a feasible point."""
        best, width, categorical = float(self.values(self.unit(x[None]))[0]), 0.1, ~self.space.numeric
        for _ in range(200):
            shape = (20, len(x))
            there = np.where(categorical, x, np.clip(x + width * rng.standard_normal(shape), 0.0, 1.0))
            choices = np.floor(rng.random(shape) * np.where(categorical, self.space.levels, 1.0))
            there = np.where(categorical & (rng.random(shape) < 0.2), choices, there)
            there = self.space.repair(self.space.snap(there), rng)
            there = there[self.excess(self.unit(there)) <= self.bound]
            values = self.values(self.unit(there))
            better = len(values) > 0 and values.min() < best
            if better:
                x, best = there[np.argmin(values)], float(values.min())
            width = max(width * (1.5 if better else 0.8), 1e-7)
        return best

    def feasible(self, params: dict[str, Any]) -> bool:
        """The constraint as a user would write it, in plain Python."""
        u = tuple(params.values()) if self.is_cube else _mixed_unit(params)
        if self.balls == 0:
            return sum(map(mul, u, self.plain_weights)) <= self.bound
        return min(math.dist(u, center) for center in self.plain_centers) <= self.bound

    def value(self, params: dict[str, Any]) -> float:
        """The objective of a configuration."""
        return float(self.values(self.unit(self.space.encode(params)[None]))[0])


@dataclass(frozen=True)
class Run:
    """What one run of an optimiser gave."""

    infeasible: int
    regret: float
    random: float
    ratio: float  # of the time of a step to the one without the constraint; NaN if not measured


def steps_of(problem: Problem, seed: int, *, constrained: bool) -> Iterator[tuple[float, float, bool]]:
    """Steps of an optimiser: seconds for the suggestion, its value, whether it is feasible."""
    feasible = problem.feasible if constrained else None
    optimizer = Optimizer(Space(problem.given, conditions=problem.conditions, feasible=feasible), seed=seed)
    while True:
        start = time.perf_counter()
        suggestion = optimizer.ask()
        seconds = time.perf_counter() - start
        value = problem.value(suggestion.params)
        optimizer.tell(suggestion, value)
        yield seconds, value, problem.feasible(suggestion.params)


def one_run(name: str, share: float, seed: int, n: int, *, timed: bool) -> Run:
    """``n`` suggestions for one problem."""
    problem = Problem(name, share, seed)
    ours = steps_of(problem, seed, constrained=True)
    free = steps_of(problem, seed, constrained=False)
    steps, others = [], []
    for _ in range(n):
        steps.append(next(ours))
        others += [next(free)[0]] if timed else []
    values = [value for _, value, inside in steps if inside]
    best = min([problem.best, *values])
    unit = problem.typical - best
    ratio = median(s for s, *_ in steps[TIMED_FROM:]) / median(others[TIMED_FROM:]) if timed else math.nan
    return Run(
        n - len(values), (min(values) - best) / unit, (min(problem.random[:n]) - best) / unit if unit else 0.0, ratio
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--spaces", nargs="+", default=SPACES, choices=SPACES)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--evaluations", type=int, default=64)
    parser.add_argument("--timed", type=int, default=2, help="the first so many seeds measure the time of a step, too")
    options = parser.parse_args()
    total, wrong = 0, 0
    print("| space | feasible share | infeasible | regret | of random search | time of a step, ratio |")
    print("|---|---|---|---|---|---|")
    for name in options.spaces:
        for share in SHARES:
            seeds = range(options.first_seed, options.first_seed + options.seeds)
            runs = [
                one_run(name, share, seed, options.evaluations, timed=i < options.timed) for i, seed in enumerate(seeds)
            ]
            infeasible, count = sum(run.infeasible for run in runs), options.seeds * options.evaluations
            total, wrong = total + count, wrong + infeasible
            ratio = median(run.ratio for run in runs[: options.timed]) if options.timed else math.nan
            regret, random = (median(getattr(run, key) for run in runs) for key in ("regret", "random"))
            shown = name if name == "mixed" else f"{name}-D"
            print(
                f"| {shown} | {share:g} | {infeasible} of {count} | {regret:.4f} | {random:.3f} | {ratio:.1f} |",
                flush=True,
            )
    print(f"\n{wrong} of {total:,} suggestions were infeasible")


if __name__ == "__main__":
    main()
