"""Run problems × optimisers × seeds, and append one CSV row for each run. Recorded runs are not run again."""

import csv
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from benchmarks import problems
from benchmarks.optimizers import Contestant, Make
from benchmarks.problems import Problem

CHECKPOINTS = (5, 10, 15, 25, 40, 50, 75, 100, 150, 200)
# r: regret; s: seconds of the optimiser, both after so many evaluations.
FIELDS = (
    *("problem", "family", "optimizer", "seed"),
    *(f"r{n}" for n in CHECKPOINTS),
    *(f"s{n}" for n in CHECKPOINTS),
)


def run_all(
    path: Path,
    optimizers: Mapping[str, Make],
    names: Iterable[str],
    seeds: Iterable[int],
    budget: int,
    limit: float = float("inf"),
    rounds: int | None = None,
) -> None:
    """Run and append the runs that ``path`` does not have yet; start none after ``limit`` seconds.

    Every problem runs with the first seed, then with the second, …; with ``rounds``, so many of `balanced` run instead.
    """
    names, seeds, start = list(names), list(seeds), time.perf_counter()
    done = {(row["problem"], row["optimizer"], int(row["seed"])) for row in read(path)}
    runs = [(name, seed) for seed in seeds for name in names] if rounds is None else balanced(names, seeds, rounds)
    for name, seed in runs:
        for label, make in optimizers.items():
            if (name, label, seed) in done:
                continue
            if time.perf_counter() - start > limit:
                return
            append(path, FIELDS, run_one(name, label, make, seed, budget))


def balanced(names: Iterable[str], seeds: Sequence[int], rounds: int) -> list[tuple[str, int]]:
    """Problems and seeds in rounds of one problem of each family, so that slow optimisers can stop after any round.

    The problems of a family take turns, each with another seed than the one before. No pair is repeated: a family
    whose pairs have all been in a round misses the others.
    """
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(problems.family(name), []).append(name)
    runs = []
    for k in range(rounds):
        for family in families.values():
            turn, place = divmod(k, len(family))
            if turn < len(seeds):
                runs.append((family[place], seeds[(place + turn) % len(seeds)]))
    return runs


# Smaller regrets count as equal: the problem is solved, and only rounding errors are left.
FLOOR = 1e-6


def log10(regrets: ArrayLike) -> np.ndarray:
    """Logarithms of regrets, with a lower limit for solved problems."""
    return np.log10(np.maximum(regrets, FLOOR))


@dataclass(frozen=True)
class Step:
    """The state after n evaluations: the regret, and the CPU seconds of the optimiser itself.

    The regret is that of the configuration with the best value so far, computed without noise.
    """

    n: int
    regret: float
    seconds: float


def play(problem: Problem, contestant: Contestant, budget: int, *, seed: int = 0, at_once: int = 1) -> Iterator[Step]:
    """The steps of a run with ``at_once`` suggestions in each round. The seed is only for the noise."""
    rng = np.random.default_rng(seed)
    best, regret, seconds, n = float("inf"), float("inf"), 0.0, 0
    while n < budget:
        start = contestant.seconds()
        tasks = contestant.ask(at_once)
        seconds += contestant.seconds() - start
        for task in tasks:
            value = problem.observed(task.params, rng)
            if value < best:
                best, regret = value, problem.regret(problem.objective(task.params))
            start = contestant.seconds()
            contestant.tell(task, value)
            seconds += contestant.seconds() - start
            n += 1
            yield Step(n, regret, seconds)


def run_one(name: str, label: str, make: Make, seed: int, budget: int) -> dict[str, object]:
    """One run as a row."""
    problem = problems.load(name, instance=1 + seed % 5)
    row: dict[str, object] = {"problem": name, "family": problem.family, "optimizer": label, "seed": seed}
    space: Any = problem.declared or problem.space
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peers announce experimental features
        for step in play(problem, make(space, seed, budget), budget, seed=seed):
            if step.n in CHECKPOINTS:
                row[f"r{step.n}"], row[f"s{step.n}"] = f"{step.regret:.6g}", f"{step.seconds:.3f}"
    return row


def read(path: Path) -> list[dict[str, str]]:
    """The rows recorded so far."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(path: Path, fields: Iterable[str], row: Mapping[str, object]) -> None:
    """Append a row, and the header if the file is new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists() or path.stat().st_size == 0
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(fields), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)
