"""Problems with many parameters, ours beside its peers: ``python -m benchmarks.many``.

The problems are COCO's: bbob in 20-D and 40-D, mixed integers (bbob-mixint) in 5-D to 40-D, and bbob-largescale in
80-D. Each run is a row of a CSV file. A run that was recorded with the same budget or a larger one is not run again.
``--only-report`` prints the tables without running anything.

The tables have the mean log10 of the distance to the optimum, over all runs of an optimiser. Optimisers may have
different runs, so the last columns are paired by problem and seed: the runs in which ours is better and worse, and the
mean difference of the logarithms (negative: ours is better).
"""

import argparse
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import optuna

from benchmarks import problems
from benchmarks.optimizers import OPTIMIZERS, Make, optuna_sampler
from benchmarks.paper.tables import markdown
from benchmarks.problems import SUITES
from benchmarks.run import RESULTS
from benchmarks.runner import append, play, read

OURS = "lazybo"
CONTESTANTS: dict[str, Make] = {
    **{name: OPTIMIZERS[name] for name in (OURS, "optuna-cmaes", "optuna-tpe")},
    "optuna-tpe-multivariate": optuna_sampler(lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=True)),
    **{name: OPTIMIZERS[name] for name in ("optuna-gp", "botorch", "random")},
}
CHECKPOINTS = (10, 25, 50, 75, 100, 150, 200, 300, 400, 500)
# d: distance to the optimum; s: seconds of the optimiser, both after so many evaluations.
FIELDS = (
    *("problem", "family", "optimizer", "seed", "budget"),
    *(f"d{n}" for n in CHECKPOINTS),
    *(f"s{n}" for n in CHECKPOINTS),
)
# Columns of the tables, and the checkpoint at which pairs are counted besides the last one.
SHOWN, EARLY = (50, 100, 200, 500), 100
# Smaller distances count as equal. COCO counts a problem as solved there.
FLOOR = 1e-8


@dataclass(frozen=True)
class Plan:
    """What to run."""

    optimizers: Mapping[str, Make]
    problems: Sequence[str]
    seeds: Iterable[int]
    budget: int
    limit: float = float("inf")
    patience: float = float("inf")


def run_all(path: Path, plan: Plan) -> None:
    """Run and append the runs that ``path`` does not have yet; start none after ``plan.limit`` seconds."""
    start = time.perf_counter()
    done = {key: int(row["budget"]) for key, row in longest(read(path)).items()}
    for seed in plan.seeds:
        for name in plan.problems:
            for label, make in plan.optimizers.items():
                if done.get((label, name, seed), 0) >= plan.budget:
                    continue
                if time.perf_counter() - start > plan.limit:
                    return
                append(path, FIELDS, run_one(name, label, make, seed, plan.budget, plan.patience))


def run_one(name: str, label: str, make: Make, seed: int, budget: int, patience: float) -> dict[str, object]:
    """One run as a row. It ends early when the optimiser has used more than ``patience`` CPU seconds."""
    problem = problems.load(name, instance=1 + seed % 5)
    row: dict[str, object] = {"problem": name, "family": problem.family, "optimizer": label}
    row |= {"seed": seed, "budget": budget}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peers announce experimental features
        for step in play(problem, make(problem.space, seed, budget), budget, seed=seed):
            if step.n in CHECKPOINTS:
                row[f"d{step.n}"], row[f"s{step.n}"] = f"{step.regret * problem.scale:.6g}", f"{step.seconds:.3f}"
            if step.seconds > patience:
                break
    return row


# ------------------------------------------------------------------------ report

Row = dict[str, str]
Key = tuple[str, str, int]  # optimiser, problem, seed


def longest(rows: Iterable[Row]) -> dict[Key, Row]:
    """The rows by optimiser, problem and seed; of several for the same run, the one with the largest budget."""
    found: dict[Key, Row] = {}
    for row in sorted(rows, key=lambda row: int(row["budget"])):
        found[row["optimizer"], row["problem"], int(row["seed"])] = row
    return found


def report(path: Path, seeds: Iterable[int] | None = None, ours: str = OURS) -> str:
    """A table for each group of problems, and one for all of them; only of ``seeds`` if given."""
    wanted = None if seeds is None else set(seeds)
    rows = {key: row for key, row in longest(read(path)).items() if wanted is None or key[2] in wanted}
    found = {row["family"] for row in rows.values()}
    usual = [f"{family} {dim}-D" for family, dim, _ in problems.MANY]
    groups = [*(group for group in usual if group in found), *sorted(found - set(usual))]
    parts = [_table(group, {key: row for key, row in rows.items() if row["family"] == group}, ours) for group in groups]
    return "\n\n".join([*parts, _table("all", rows, ours)])


def _table(title: str, rows: Mapping[Key, Row], ours: str) -> str:
    recorded = dict.fromkeys(name for name, *_ in rows)
    names = [*(name for name in CONTESTANTS if name in recorded), *(n for n in recorded if n not in CONTESTANTS)]
    body = []
    for name in names:
        own = {key[1:]: row for key, row in rows.items() if key[0] == name}
        mine = {key[1:]: row for key, row in rows.items() if key[0] == ours}
        both = [] if name == ours else [(mine[run], own[run]) for run in mine if run in own]
        last = max((n for n in CHECKPOINTS if any(_reach(pair, n) for pair in both)), default=EARLY)
        means = [_mean(list(own.values()), n) for n in SHOWN]
        body.append([name, str(len(own)), *means, _seconds(own.values()), _pairs(both, EARLY), _pairs(both, last)])
    head = [f"{title}: log10 distance after", "runs", *map(str, SHOWN), "CPU s a run"]
    return markdown([*head, f"{ours} better : worse at {EARLY}", "at the last of both"], body)


def _reach(pair: Iterable[Row], n: int) -> bool:
    return all(row[f"d{n}"] for row in pair)


def _logs(rows: Iterable[Row], n: int) -> np.ndarray:
    return np.log10(np.maximum([float(row[f"d{n}"]) for row in rows], FLOOR))


def _mean(rows: Sequence[Row], n: int) -> str:
    """The mean over the runs that reach n; their number follows if not all do."""
    reached = [row for row in rows if row[f"d{n}"]]
    if not reached:
        return ""
    return f"{_logs(reached, n).mean():.2f}" + (f" ({len(reached)})" if len(reached) < len(rows) else "")


def _seconds(rows: Iterable[Row]) -> str:
    """The mean CPU seconds of a run, to its last checkpoint."""
    ends = [max((float(row[f"s{n}"]) for n in CHECKPOINTS if row[f"s{n}"]), default=0.0) for row in rows]
    return f"{np.mean(ends):.1f}"


def _pairs(both: Sequence[tuple[Row, Row]], n: int) -> str:
    """Better and worse runs of ours, and the mean difference, over the pairs that reach n."""
    reached = [pair for pair in both if _reach(pair, n)]
    if not reached:
        return ""
    difference = _logs((ours for ours, _ in reached), n) - _logs((theirs for _, theirs in reached), n)
    return f"{n}: {(difference < 0).sum()} : {(difference > 0).sum()} ({difference.mean():+.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, default=RESULTS / "many.csv")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--limit", type=float, default=float("inf"), help="start no run after so many seconds")
    parser.add_argument("--patience", type=float, default=float("inf"), help="end a run after so many CPU seconds")
    parser.add_argument("--optimizers", nargs="+", default=list(CONTESTANTS), choices=list(CONTESTANTS))
    parser.add_argument("--problems", nargs="+", default=SUITES["many"])
    parser.add_argument("--label", default=OURS, help="record our runs by this name, and compare it with all others")
    parser.add_argument("--only-report", action="store_true")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    if not options.only_report:
        chosen = {options.label if name == OURS else name: CONTESTANTS[name] for name in options.optimizers}
        run_all(
            options.csv,
            Plan(chosen, options.problems, seeds, options.budget, options.limit, options.patience),
        )
    print(report(options.csv, seeds, options.label))


if __name__ == "__main__":
    main()
