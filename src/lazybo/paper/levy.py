"""The negative Levy function from 1 and from 100 random seed points (paper, section 4.1 and its first table).

A run is recorded when it has ended: one CSV row for each iteration that improved, and for every twentieth. Recorded
runs are not run again.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from optuna.distributions import FloatDistribution

from lazybo.core.checks import Array
from lazybo.demo import levy
from lazybo.paper.presets import optimizer_options
from lazybo.paper.records import append_rows, first_at, read_rows
from lazybo.paper.reference import Reference
from lazybo.search.optimizer import Optimizer

BOUND = 10.0
METHODS = ("naive", "lag3", "lazy", "lazy-scaled", "lazy-random", "naive-random", "ours-naive", "ours-lazy", "ours")
# The values whose first iteration is reported: about the range of the paper's tables.
TARGETS = (-5.0, -1.0, -0.3, -0.1, -0.04, -0.01)
GRID = 20
FIELDS = ("dim", "seed_points", "method", "seed", "iteration", "best", "seconds")


@dataclass(frozen=True)
class Run:
    """One run: a method from some random seed points, for some iterations."""

    method: str
    seed_points: int
    seed: int
    iterations: int = 1000
    dim: int = 5


@dataclass(frozen=True)
class Course:
    """The best value after each iteration, (n,), and the optimiser's total CPU seconds so far, (n,)."""

    best: Array
    seconds: Array


def space(dim: int) -> dict[str, FloatDistribution]:
    """The space [-10, 10]ᵈ."""
    return {f"x{j}": FloatDistribution(-BOUND, BOUND) for j in range(dim)}


def negative_levy(params: Mapping[str, float]) -> float:
    """The negative Levy function; its maximum is 0 at (1, …, 1)."""
    return -levy(np.array(list(params.values())))


def seeded_optimizer(
    options: Mapping[str, Any], dim: int, seed_points: int, seed: int, *, paper_search: bool = False
) -> Optimizer | Reference:
    """An optimiser that has observed random seed points; every method gets the same points."""
    optimizer: Optimizer | Reference
    if paper_search:
        optimizer = Reference(space(dim), options, seed)
    else:
        optimizer = Optimizer(space(dim), direction="maximize", seed=seed, n_startup=0, **options)
    for x in np.random.default_rng((seed, seed_points)).uniform(-BOUND, BOUND, (seed_points, dim)):
        params = dict(zip(space(dim), map(float, x), strict=True))
        optimizer.observe(params, negative_levy(params))
    return optimizer


def play(optimizer: Optimizer | Reference, iterations: int, until: float = np.inf) -> Course:
    """Ask and tell until a value is reached, or for so many iterations. Seed points do not count as iterations."""
    best, seconds, spent = [], [], 0.0
    for _ in range(iterations):
        start = time.process_time()
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, negative_levy(suggestion.params))
        spent += time.process_time() - start
        best.append(optimizer.best.value)
        seconds.append(spent)
        if best[-1] >= until:
            break
    return Course(np.array(best), np.array(seconds))


def run_one(run: Run) -> Course:
    """Run one run and return its course."""
    options = optimizer_options(run.method, space(run.dim))
    paper_search = run.method.endswith("-random")
    optimizer = seeded_optimizer(options, run.dim, run.seed_points, run.seed, paper_search=paper_search)
    return play(optimizer, run.iterations)


def run_all(path: Path, runs: Sequence[Run], say: Callable[[str], None]) -> None:
    """Run and record the runs that are not recorded yet."""
    done = recorded(path)
    missing = [run for run in runs if run not in done]
    for number, run in enumerate(missing, 1):
        start = time.perf_counter()
        course = run_one(run)
        append_rows(path, FIELDS, rows_of(run, course))
        label = f"{run.seed_points} seed points, {run.method}, seed {run.seed}"
        say(f"{number}/{len(missing)}  {label}: {course.best[-1]:.4g} in {time.perf_counter() - start:.0f} s")


def rows_of(run: Run, course: Course) -> list[dict[str, Any]]:
    """The rows to record: where the best value changed in three digits, every twentieth, and the last."""
    rows, kept = [], ""
    for i, (best, seconds) in enumerate(zip(course.best, course.seconds, strict=True), 1):
        text = f"{best:.3g}"
        if text != kept or i % GRID == 0 or i == len(course.best):
            head = {"dim": run.dim, "seed_points": run.seed_points, "method": run.method, "seed": run.seed}
            rows.append({**head, "iteration": i, "best": float(best), "seconds": float(seconds)})
        kept = text
    return rows


def recorded(path: Path) -> dict[Run, Course]:
    """The courses in a file; iterations between recorded rows are filled in."""
    by_run: dict[tuple[str, int, int, int], list[tuple[int, float, float]]] = defaultdict(list)
    for row in read_rows(path):
        key = row["method"], int(row["seed_points"]), int(row["seed"]), int(row["dim"])
        by_run[key].append((int(row["iteration"]), float(row["best"]), float(row["seconds"])))
    found = {}
    for (method, seed_points, seed, dim), points in by_run.items():
        iterations, best, seconds = (np.array(column) for column in zip(*points, strict=True))
        every = np.arange(1, iterations[-1] + 1)
        last = np.searchsorted(iterations, every, side="right") - 1
        run = Run(method, seed_points, seed, int(iterations[-1]), dim)
        found[run] = Course(best[np.maximum(last, 0)], np.interp(every, iterations, seconds))
    return found


def plan(methods: Iterable[str], seed_points: Iterable[int], seeds: int, iterations: int, dim: int) -> list[Run]:
    """All runs, the cheap methods of every setting first."""
    slow = ("lag3", "lazy-random", "naive", "naive-random", "ours-naive")
    ordered = sorted(methods, key=lambda method: slow.index(method) if method in slow else -1)
    return [
        Run(method, points, seed, iterations, dim)
        for method in ordered
        for seed in range(seeds)
        for points in seed_points
    ]


def reached(courses: Iterable[Course], target: float) -> list[float]:
    """The iteration at which each course reached a value; infinity if it never did."""
    return [first_at(list(course.best), target) for course in courses]
