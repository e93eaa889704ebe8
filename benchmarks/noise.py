"""The suite of noisy problems: ``python -m benchmarks.noise`` runs it and prints the true regret of what is chosen.

Each contestant is judged twice after 25, 50 and 100 evaluations: by the configuration with its best value, and by the
one that our `Optimizer.recommend` chooses from the same evaluations. So the search and the choice are told apart. Each
run is a row of a CSV file; recorded runs are not run again. ``--only-report`` only prints the table.
"""

import argparse
import time
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import wilcoxon

from benchmarks import problems
from benchmarks.optimizers import OPTIMIZERS, Lazy, Make
from benchmarks.problems import SUITES, Problem
from benchmarks.run import RESULTS
from benchmarks.runner import append, log10, read
from lazybo import Optimizer

CHECKPOINTS = (25, 50, 100)
# b: regret of the best value; r: of the recommended configuration.
FIELDS = ("problem", "optimizer", "seed", *(f"{kind}{n}" for kind in "br" for n in CHECKPOINTS), "seconds")
OURS = "lazybo"
CONTESTANTS = (OURS, "optuna-gp", "optuna-tpe", "optuna-cmaes", "random")

Row = dict[str, str]


def recommended(problem: Problem, told: Sequence[tuple[dict[str, Any], float]]) -> dict[str, Any]:
    """What our model recommends for the evaluations of any optimiser."""
    optimizer = Optimizer(problem.space, seed=0)
    for params, value in told:
        optimizer.observe(params, value)
    return optimizer.recommend().params


def run_one(name: str, label: str, make: Make, seed: int) -> dict[str, object]:
    """One run as a row."""
    problem, rng = problems.load(name, instance=1 + seed % 5), np.random.default_rng(seed)
    contestant = make(problem.space, seed, CHECKPOINTS[-1])
    row: dict[str, object] = {"problem": name, "optimizer": label, "seed": seed}
    told: list[tuple[dict[str, Any], float]] = []
    start = time.process_time()
    for n in range(1, CHECKPOINTS[-1] + 1):
        (task,) = contestant.ask(1)
        told.append((dict(task.params), problem.observed(task.params, rng)))
        contestant.tell(task, told[-1][1])
        if n in CHECKPOINTS:
            best, _ = min(told, key=lambda each: each[1])
            if isinstance(contestant, Lazy):
                chosen = contestant.optimizer.recommend().params
            else:
                chosen = recommended(problem, told)
            for kind, params in (("b", best), ("r", chosen)):
                row[f"{kind}{n}"] = f"{problem.regret(problem.objective(params)):.6g}"
    return {**row, "seconds": f"{time.process_time() - start:.2f}"}


def run_all(path: Path, labels: Iterable[str], names: Sequence[str], seeds: Iterable[int]) -> None:
    """Run and append the runs that ``path`` does not have yet."""
    labels = list(labels)
    done = {(row["problem"], row["optimizer"], int(row["seed"])) for row in read(path)}
    for seed in seeds:
        for name in names:
            for label in labels:
                if (name, label, seed) not in done:
                    append(path, FIELDS, run_one(name, label, OPTIMIZERS[label], seed))


def table(rows: Sequence[Row], title: str) -> str:
    """Mean regrets of each contestant, and its pairs with ours: p of Wilcoxon's test on the logarithms at the end."""
    ours = {(row["problem"], row["seed"]): row for row in rows if row["optimizer"] == OURS}
    heads = [f"{kind} {n}" for kind in ("best value", "recommended") for n in CHECKPOINTS]
    lines = [f"| {title} | runs | " + " | ".join(heads) + " | p |", "|---" * (len(heads) + 3) + "|"]
    for label in _labels(rows):
        mine = [row for row in rows if row["optimizer"] == label]
        cells = [f"{np.mean([float(row[f'{kind}{n}']) for row in mine]):.3f}" for kind in "br" for n in CHECKPOINTS]
        lines.append(f"| {label} | {len(mine)} | " + " | ".join(cells) + f" | {_p(mine, ours)} |")
    return "\n".join(lines)


def by_problem(rows: Sequence[Row]) -> str:
    """The regrets after the last checkpoint on each problem."""
    last, labels = CHECKPOINTS[-1], _labels(rows)
    heads = [f"best value {last}, recommended {last}", *labels]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for problem in dict.fromkeys(row["problem"] for row in rows):
        cells = []
        for label in labels:
            mine = [row for row in rows if (row["problem"], row["optimizer"]) == (problem, label)]
            cells.append(", ".join(f"{np.mean([float(row[f'{kind}{last}']) for row in mine]):.3f}" for kind in "br"))
        lines.append(f"| {problem} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def overview(rows: Sequence[Row]) -> str:
    """Both tables."""
    return f"{table(rows, 'all')}\n\n{by_problem(rows)}"


def _labels(rows: Sequence[Row]) -> list[str]:
    """The contestants in a fixed order."""
    found = {row["optimizer"] for row in rows}
    return [label for label in CONTESTANTS if label in found]


def _p(mine: Sequence[Row], ours: dict[tuple[str, str], Row]) -> str:
    """Our recommended configuration against this contestant's best value, on the runs that both have."""
    last = CHECKPOINTS[-1]
    pairs = [
        (row[f"b{last}"], ours[row["problem"], row["seed"]][f"r{last}"])
        for row in mine
        if row["optimizer"] != OURS and (row["problem"], row["seed"]) in ours
    ]
    difference = np.diff(log10(np.array(pairs, dtype=float).reshape(-1, 2)), axis=1)
    return f"{float(wilcoxon(difference[:, 0]).pvalue):.2g}" if difference.any() else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, default=RESULTS / "noise_choice.csv")
    parser.add_argument("--optimizers", nargs="+", default=list(CONTESTANTS), choices=CONTESTANTS)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only-report", action="store_true")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    if not options.only_report:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # peers announce experimental features
            run_all(options.csv, options.optimizers, SUITES["noise"], seeds)
    rows = [row for row in read(options.csv) if int(row["seed"]) in seeds and row["optimizer"] in options.optimizers]
    print(overview(rows))


if __name__ == "__main__":
    main()
