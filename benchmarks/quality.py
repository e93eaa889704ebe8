"""Regret over the open set, ours beside Optuna's: ``python -m benchmarks.quality run``, then ``report``.

Regret is the distance to the optimum in units of the median random point's. Runs are kept in a CSV file, and what is
there already is not run again.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.stats import rankdata, wilcoxon

from benchmarks import problems
from benchmarks.optimizers import OPTIMIZERS
from benchmarks.runner import read, run_all

RESULTS = Path(__file__).parent / "results" / "quality.csv"
BUDGETS = (25, 50, 100, 200)
OURS = "lazybo"

Runs = dict[tuple[str, int], dict[str, dict[int, float]]]


def load(path: Path) -> tuple[Runs, dict[str, str], list[str]]:
    """Regrets by (problem, seed) and optimiser; the family of each problem; the optimisers."""
    runs: Runs = defaultdict(dict)
    families: dict[str, str] = {}
    for row in read(path):
        families[row["problem"]] = row["family"]
        regrets = {n: float(row[f"r{n}"]) for n in BUDGETS if row[f"r{n}"]}
        runs[row["problem"], int(row["seed"])][row["optimizer"]] = regrets
    found = {name for run in runs.values() for name in run}
    return runs, families, [name for name in OPTIMIZERS if name in found]


def report(path: Path) -> None:
    """Markdown tables over the problems and seeds that all optimisers have run."""
    runs, families, names = load(path)
    shared = {key: run for key, run in runs.items() if set(names) <= set(run)}
    count = len({problem for problem, _ in shared})
    print(f"{count} problems, {len(shared)} runs each ({len({seed for _, seed in shared})} seeds at most)\n")
    _table("mean regret", shared, names, lambda values: f"{np.mean(values):.4f}")
    _table("mean log10 regret (from 1e-6)", shared, names, lambda v: f"{np.mean(np.log10(np.maximum(v, 1e-6))):.2f}")
    print("| mean rank | " + " | ".join(map(str, BUDGETS)) + " |\n|---|" + "---|" * len(BUDGETS))
    ranks = {n: rankdata([[run[name][n] for name in names] for run in shared.values()], axis=1) for n in BUDGETS}
    for i, name in enumerate(names):
        print(f"| {name} | " + " | ".join(f"{ranks[n][:, i].mean():.2f}" for n in BUDGETS) + " |")
    print()
    for other in names:
        if other != OURS and OURS in names:
            print(f"{OURS} against {other}: " + "; ".join(_verdict(shared, other, n) for n in BUDGETS))
    print()
    for family in dict.fromkeys(families.values()):
        part = {key: run for key, run in shared.items() if families[key[0]] == family}
        if part:
            _table(f"{family} ({len(part)} runs)", part, names, lambda values: f"{np.mean(values):.4f}")


def _table(title: str, runs: Runs, names: list[str], cell) -> None:  # type: ignore[no-untyped-def]
    print(f"| {title} | " + " | ".join(map(str, BUDGETS)) + " |\n|---|" + "---|" * len(BUDGETS))
    for name in names:
        print(f"| {name} | " + " | ".join(cell([run[name][n] for run in runs.values()]) for n in BUDGETS) + " |")
    print()


def _verdict(runs: Runs, other: str, n: int) -> str:
    """Wins and losses, and the paired test of Wilcoxon on log regrets."""
    difference = np.array(
        [np.log10(max(run[OURS][n], 1e-6)) - np.log10(max(run[other][n], 1e-6)) for run in runs.values()]
    )
    better, worse = int((difference < 0).sum()), int((difference > 0).sum())
    p = wilcoxon(difference).pvalue if difference.any() else 1.0
    return f"{n}: {better} better, {worse} worse, p = {p:.1g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--csv", type=Path, default=RESULTS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--optimizers", nargs="+", default=list(OPTIMIZERS), choices=list(OPTIMIZERS))
    parser.add_argument("--problems", nargs="+", default=problems.names())
    options = parser.parse_args()
    if options.what == "run":
        chosen = {name: OPTIMIZERS[name] for name in options.optimizers}
        run_all(options.csv, chosen, options.problems, range(options.seeds), options.budget)
    else:
        report(options.csv)


if __name__ == "__main__":
    main()
