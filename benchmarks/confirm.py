"""Does a final check find the best of the contenders? ``python -m benchmarks.confirm``.

Noisy problems: the functions of `benchmarks.recommend` and the suite ``noise``. Each run searches 45 evaluations. Then
it goes three ways, with the same noise: it *stops*; it *searches* 15 evaluations more; or a final check *repeats*
contenders, 15 times at most. Compared is the true value of what `Optimizer.recommend` chooses: how often it is at least
as good as the truly best of the ten configurations that measured best after 45, and its regret (1 is the median of
random points). Each run is a row of ``results/confirm.csv``; recorded runs are not run again.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import problems
from benchmarks.recommend import PROBLEMS
from benchmarks.run import RESULTS
from benchmarks.runner import append, read
from lazybo import Optimizer
from lazybo.core import Array, texts

SEARCH, CHECK, CONTENDERS = 45, 15, 10
FIRST_SEED = 2000
WAYS = ("stop", "search", "repeat")
FIELDS = ("problem", "seed", *(f"{what}_{way}" for what in ("best", "regret") for way in WAYS), "repeats", "decided")
Noisy = Callable[[dict[str, Any], np.random.Generator], float]


class Task:
    """A noisy problem: its space, its true values as regrets, and its measurements."""

    def __init__(self, name: str, seed: int) -> None:
        found = {key: (f, dim, noise) for key, f, dim, noise in PROBLEMS}.get(name)
        if found is None:
            problem = problems.load(name, instance=1 + seed % 5)
            self.space: dict[str, Any] = dict(problem.space)
            self.regret: Callable[[dict[str, Any]], float] = lambda p: problem.regret(problem.objective(p))
            self.measure: Noisy = problem.observed
            return
        f, dim, noise = found

        def true(params: dict[str, Any]) -> float:
            return f(np.array(list(params.values())))

        draws = np.random.default_rng(0).uniform(-5, 5, (1000, dim))
        scale = float(np.median([f(x) for x in draws]))  # the optimum of all four is 0
        self.space = {f"x{i}": (-5.0, 5.0) for i in range(dim)}
        self.regret = lambda params: true(params) / scale
        self.measure = lambda params, rng: true(params) + noise * float(rng.standard_normal())


def one_run(name: str, seed: int) -> dict[str, object]:
    """The row of one run."""
    task, rng = Task(name, seed), np.random.default_rng(seed)
    optimizer, measured = Optimizer(task.space, seed=seed), []
    for _ in range(SEARCH):
        suggestion = optimizer.ask()
        value = task.measure(suggestion.params, rng)
        optimizer.tell(suggestion, value)
        measured.append((value, suggestion.params))
    best = min(task.regret(params) for _, params in sorted(measured, key=lambda pair: pair[0])[:CONTENDERS])
    state = optimizer.state()
    row: dict[str, object] = {"problem": name, "seed": seed}
    for way in WAYS:
        optimizer = Optimizer(task.space, seed=seed)
        optimizer.restore(state)
        repeats = _continue(optimizer, task, way, np.random.default_rng((seed, 1)))
        regret = task.regret(optimizer.recommend().params)
        row |= {f"best_{way}": int(regret <= best + 1e-12), f"regret_{way}": f"{regret:.6g}"}
    return row | {"repeats": repeats, "decided": int(repeats < CHECK)}


def _continue(optimizer: Optimizer, task: Task, way: str, rng: np.random.Generator) -> int:
    """Spend the rest of the budget in one of the ways; how many evaluations it took."""
    for spent in range(0 if way == "stop" else CHECK):
        suggestion = optimizer.ask() if way == "search" else optimizer.confirm()
        if suggestion is None:
            return spent
        optimizer.tell(suggestion, task.measure(suggestion.params, rng))
    return CHECK


def names() -> list[str]:
    return [*(name for name, *_ in PROBLEMS), *problems.SUITES["noise"]]


def run_all(path: Path, seeds: range, limit: float) -> None:
    """Append the runs that ``path`` does not have yet; start none after ``limit`` seconds."""
    start, done = time.perf_counter(), {(row["problem"], int(row["seed"])) for row in read(path)}
    for seed in seeds:
        for name in names():
            if (name, seed) not in done and time.perf_counter() - start < limit:
                append(path, FIELDS, one_run(name, seed))


def table(rows: list[dict[str, str]]) -> str:
    """One line for each problem, and one for all."""
    lines = [
        f"| problem | runs | best of {CONTENDERS} chosen: stop after {SEARCH} | search {CHECK} more | repeat | regret: "
        "stop | search | repeat | repeat - search | repeats | decided |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in [*names(), "all"]:
        chosen = [row for row in rows if name in ("all", row["problem"])]
        if not chosen:
            continue
        of: dict[str, Array] = {key: np.array([float(row[key]) for row in chosen]) for key in FIELDS[2:]}
        difference = of["regret_repeat"] - of["regret_search"]
        error = difference.std(ddof=1) / np.sqrt(len(chosen)) if len(chosen) > 1 else np.nan
        shares = " | ".join(f"{texts.percent(of[f'best_{way}'].mean())}" for way in WAYS)
        regrets = " | ".join(f"{of[f'regret_{way}'].mean():.4f}" for way in WAYS)
        lines.append(
            f"| {name} | {len(chosen)} | {shares} | {regrets} | {difference.mean():.4f} ± {error:.4f} | "
            f"{of['repeats'].mean():.1f} | {texts.percent(of['decided'].mean())} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, default=RESULTS / "confirm.csv")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--limit", type=float, default=float("inf"), help="start no run after so many seconds")
    options = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_all(options.csv, seeds, options.limit)
    print(table([row for row in read(options.csv) if int(row["seed"]) in seeds]))


if __name__ == "__main__":
    main()
