"""Earlier studies: ``python -m benchmarks.earlier``. Each data set of LCBench in turn is the new problem.

The 19 others are the earlier studies: 25, 100 or 500 random trainings each, with the accuracies of the table. The new
problem is played through extra trees (`benchmarks.lcbench`; the variable LAZYBO_CURVES names the folder of the data).
"reversed" are earlier studies whose values have the other sign, "unrelated" ones whose values are shuffled, with 100
trainings each. "best of others first" evaluates the best trainings of three others, then starts cold.

Regret is that of the best value so far: 0 is the best value that is known, 1 the median of random configurations. Each
run is a row of a CSV file; recorded runs are not run again. ``--scale`` measures 20 studies of 500 trials instead.
"""

import argparse
import resource
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from scipy.stats import wilcoxon

from benchmarks.lcbench import all_names, finals, table
from benchmarks.optimizers import Lazy, Study
from benchmarks.runner import append, read
from lazybo import Optimizer
from lazybo.search import EarlierStudy

RESULTS = Path(__file__).parent / "results" / "earlier.csv"
BUDGETS = (1, 5, 10, 15, 25, 50)
FIELDS = ("problem", "optimizer", "seed", *(f"b{n}" for n in BUDGETS), "seconds")
DRAWS = 20_000
FIRST = 3
COLD, EARLIER = "cold start", "19 × "


def earlier_of(problem: str, count: int, seed: int, kind: str = "") -> list[EarlierStudy]:
    """The earlier studies of a problem: ``count`` random trainings of each other data set."""
    rng = np.random.default_rng((seed, 99))
    studies = []
    for name in all_names():
        configurations, errors = table(name)
        rows = rng.choice(len(errors), count, replace=False)
        values = errors[rows]
        if kind == "reversed":
            values = -values
        elif kind == "unrelated":
            values = rng.permutation(values)
        if name != problem:
            params = tuple(configurations[row] for row in rows)
            studies.append(EarlierStudy(name, params, tuple((float(value),) for value in values)))
    return studies


def best_of_others(problem: str, seed: int) -> list[Mapping[str, Any]]:
    """The best trainings of three other data sets, each the best of 100."""
    studies = earlier_of(problem, 100, seed)
    chosen = np.random.default_rng(seed).choice(len(studies), FIRST, replace=False)
    return [studies[i].configurations[int(np.argmin(studies[i].values))] for i in chosen]


def contestant(label: str, problem: str, seed: int) -> Lazy | Study:
    """A contestant by its label."""
    space = finals(problem).space
    if label == "GPSampler":
        return Study(space, optuna.samplers.GPSampler(seed=seed, deterministic_objective=True))
    if label == "random":
        return Study(space, optuna.samplers.RandomSampler(seed=seed))
    if not label.startswith(EARLIER):
        return Lazy(space, seed, {})
    count, _, kind = label.removeprefix(EARLIER).partition(" ")
    return Lazy(space, seed, {"earlier": earlier_of(problem, int(count), seed, kind)})


def first_of(label: str, problem: str, seed: int) -> list[Mapping[str, Any]]:
    """What a contestant is made to evaluate first."""
    if label == "best of others first":
        return best_of_others(problem, seed)
    if label == "random start":
        space = Optimizer(finals(problem).space, seed=0).space
        return [
            space.points.decode(point)
            for point in space.points.sample(np.random.default_rng((seed, 7)), space.points.dim)
        ]
    return []


CONTESTANTS = [
    COLD,
    "19 × 25",
    "19 × 100",
    "19 × 500",
    "19 × 100 reversed",
    "19 × 100 unrelated",
    "best of others first",
    "random start",
    "random",
    "GPSampler",
]


def run_one(problem: str, label: str, seed: int, until: int) -> dict[str, object]:
    """One run, up to a number of evaluations."""
    start, one, best = time.process_time(), contestant(label, problem, seed), np.inf
    first = first_of(label, problem, seed)
    row: dict[str, object] = {"problem": problem, "optimizer": label, "seed": seed}
    for n in range(1, until + 1):
        task: Any
        if n <= len(first) and isinstance(one, Lazy):
            task = one.optimizer.announce(first[n - 1])
        else:
            (task,) = one.ask(1)
        value = finals(problem)(task.params)[0]
        one.tell(task, value)
        best = min(best, value)
        if n in BUDGETS:
            row[f"b{n}"] = f"{best:.6g}"
    return {**row, "seconds": f"{time.process_time() - start:.1f}"}


@cache
def median_of(problem: str) -> tuple[float, float]:
    """The best and the median value of many random configurations, and of the table."""
    rng, found = np.random.default_rng(0), finals(problem)
    errors = found.draw(rng.random((DRAWS, len(found.space))))
    return float(min(errors.min(), found.rows[:, 0].min())), float(np.median(errors))


def regrets(rows: Sequence[Mapping[str, str]], budgets: Sequence[int]) -> dict[tuple[str, str, int], np.ndarray]:
    """The regrets at each budget, by problem, optimiser and seed."""
    best: dict[str, float] = {}
    for row in rows:
        known = best.get(row["problem"], median_of(row["problem"])[0])
        best[row["problem"]] = min(known, float(row[f"b{max(budgets)}"]))
    found = {}
    for row in rows:
        low, median = best[row["problem"]], median_of(row["problem"])[1]
        values = np.array([float(row[f"b{n}"]) for n in budgets])
        found[row["problem"], row["optimizer"], int(row["seed"])] = (values - low) / (median - low)
    return found


def report(path: Path, seeds: range, until: int) -> str:
    """Mean regrets, and paired differences to a cold start."""
    rows = [row for row in read(path) if int(row["seed"]) in seeds]
    budgets = [n for n in BUDGETS if n <= until]
    found = regrets(rows, budgets)
    lines = [f"| | runs | {' | '.join(map(str, budgets))} | seconds |", f"|---|---|{'---|' * (len(budgets) + 1)}"]
    compared = []
    for label in CONTESTANTS:
        mine = {(problem, seed): each for (problem, other, seed), each in found.items() if other == label}
        if not mine:
            continue
        mean = np.mean(list(mine.values()), axis=0)
        took = np.mean([float(row["seconds"]) for row in rows if row["optimizer"] == label])
        lines.append(f"| {label} | {len(mine)} | {' | '.join(f'{each:.3f}' for each in mean)} | {took:.1f} |")
        pairs = [
            (each, found[problem, COLD, seed])
            for (problem, seed), each in mine.items()
            if (problem, COLD, seed) in found
        ]
        if label != COLD and pairs:
            ours, cold = (np.array(side) for side in zip(*pairs, strict=True))
            better, worse = (ours < cold - 1e-9).sum(axis=0), (ours > cold + 1e-9).sum(axis=0)
            chances = [wilcoxon(a, b).pvalue if (a != b).any() else 1.0 for a, b in zip(ours.T, cold.T, strict=True)]
            cells = [f"{b}/{w} ({p:.1g})" for b, w, p in zip(better, worse, chances, strict=True)]
            compared.append(f"| {label} | {' | '.join(cells)} |")
    heading = [f"| | {' | '.join(map(str, budgets))} |", f"|---|{'---|' * len(budgets)}"]
    return "\n".join(
        [*lines, "", "runs that are better / worse than the cold start, and Wilcoxon's p:", "", *heading, *compared]
    )


def scale() -> None:
    """20 studies of 500 trials with 8 parameters: seconds to take them, seconds a step, memory."""
    rng = np.random.default_rng(0)
    space = {f"x{j}": (0.0, 1.0) for j in range(8)}

    def value(x: np.ndarray, shift: float) -> float:
        return float(((x - 0.4 - shift) ** 2).sum())

    studies = []
    for task in range(20):
        points, shift = rng.random((500, 8)), 0.02 * rng.standard_normal()
        configurations = tuple(dict(zip(space, map(float, x), strict=True)) for x in points)
        studies.append(EarlierStudy(f"task {task}", configurations, tuple((value(x, shift),) for x in points)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    optimizer = Optimizer(space, seed=0, earlier=studies)
    suggestion = optimizer.ask()
    print(f"10,000 earlier trials taken, and the first suggestion: {time.perf_counter() - start:.1f} s")
    times = []
    for _ in range(40):
        optimizer.tell(suggestion, value(np.array(list(suggestion.params.values())), 0.0))
        start = time.perf_counter()
        suggestion = optimizer.ask()
        times.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"a step: {1e3 * np.median(times):.0f} ms (median of 40), the first with the model {1e3 * max(times):.0f} ms")
    print(f"memory: {(peak - before) / 1024:.0f} MB more than before")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, default=RESULTS)
    parser.add_argument("--first-seed", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--problems", nargs="+")
    parser.add_argument("--optimizers", nargs="+", default=CONTESTANTS)
    parser.add_argument("--until", type=int, default=max(BUDGETS), choices=BUDGETS, help="evaluations of a run")
    parser.add_argument("--limit", type=float, default=float("inf"), help="start no run after so many seconds")
    parser.add_argument("--only-report", action="store_true")
    parser.add_argument("--scale", action="store_true")
    options = parser.parse_args()
    if options.scale:
        scale()
        return
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")  # Optuna announces experimental features
    seeds, start = range(options.first_seed, options.first_seed + options.seeds), time.perf_counter()
    done = {(row["problem"], row["optimizer"], int(row["seed"])) for row in read(options.csv)}
    todo = [
        (problem, label, seed)
        for seed in seeds
        for problem in options.problems or all_names()
        for label in options.optimizers
        if (problem, label, seed) not in done
    ]
    for run in () if options.only_report else todo:
        if time.perf_counter() - start < options.limit:
            append(options.csv, FIELDS, run_one(*run, options.until))
            print(*run, file=sys.stderr)
    print(report(options.csv, seeds, options.until))


if __name__ == "__main__":
    main()
