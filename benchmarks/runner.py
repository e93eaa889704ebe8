"""Runs problems × optimisers × seeds and appends one CSV row a run; what is in the file already is not run again."""

import csv
import time
import warnings
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from benchmarks import problems
from benchmarks.optimizers import Optimizer

CHECKPOINTS = (10, 15, 25, 40, 50, 75, 100, 150, 200)
FIELDS = ("problem", "family", "optimizer", "seed", *(f"r{n}" for n in CHECKPOINTS), "seconds")


def run_all(
    path: Path, optimizers: dict[str, Optimizer], names: Iterable[str], seeds: Iterable[int], budget: int
) -> None:
    """Fill ``path`` with the normalised regrets of each run at the checkpoints up to ``budget``."""
    names = list(names)
    done = {(row["problem"], row["optimizer"], int(row["seed"])) for row in read(path)}
    path.parent.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for name in names:
            for label, optimizer in optimizers.items():
                if (name, label, seed) not in done:
                    _append(path, run_one(name, label, optimizer, seed, budget))


def run_one(name: str, label: str, optimizer: Optimizer, seed: int, budget: int) -> dict[str, object]:
    """One run: the regret of the best value so far at each checkpoint, and the seconds of all steps together."""
    problem = problems.load(name, instance=1 + seed % 5)
    row: dict[str, object] = {"problem": name, "family": problem.family, "optimizer": label, "seed": seed}
    best = float("inf")
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peers announce experimental features
        for n, value in enumerate(islice(optimizer(problem, seed), budget), start=1):
            best = min(best, value)
            if n in CHECKPOINTS:
                row[f"r{n}"] = f"{problem.regret(best):.6g}"
    row["seconds"] = f"{time.perf_counter() - start:.3f}"
    return row


def read(path: Path) -> list[dict[str, str]]:
    """The rows recorded so far."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _append(path: Path, row: dict[str, object]) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if new:
            writer.writeheader()
        writer.writerow(row)
