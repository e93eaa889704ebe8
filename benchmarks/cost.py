"""`python -m benchmarks.cost`: regret by the clock on tables of real trainings, with and without ``cost="seconds"``.

The clock is virtual: an evaluation takes the seconds that the table has for it, and the optimiser takes none. Workers
are asynchronous. The unit of a budget is the time that 100 evaluations of the table take in the mean, divided by the
number of workers. A run with a cost knows its budget, so every budget is a run of its own; all others are runs of the
largest budget that are looked at earlier. An evaluation counts if it has ended in time. A run ends after `MOST`
evaluations at the latest. Each run is a row of a CSV file; recorded runs are not run again.
"""

import argparse
import heapq
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import optuna

from benchmarks import problems
from benchmarks.problems import Problem
from benchmarks.runner import append, read
from lazybo import Optimizer
from lazybo.core import texts

RESULTS = Path(__file__).parent / "results" / "cost.csv"
SHARES = (0.1, 0.25, 0.5, 1.0)
WORKERS = (1, 20)
MOST = 200
FIELDS = ("problem", "optimizer", "workers", "seed", "share", "regret", "evaluations", "cpu")


class Contestant(Protocol):
    """Minimises."""

    def ask(self, left: float) -> Any:
        """The next task, when this share of the budget is left."""

    def tell(self, task: Any, value: float, seconds: float, /) -> None: ...


class Lazy:
    """Our optimiser. ``weight`` says what it believes to be left of the budget: by default the truth."""

    def __init__(
        self,
        problem: Problem,
        seed: int,
        *,
        cost: str | None,
        weight: Callable[[float], float | None] = lambda left: left,
    ) -> None:
        self.optimizer = Optimizer(problem.space, seed=seed, cost=cost)
        self.weight = weight

    def ask(self, left: float) -> Any:
        self.optimizer.planner.budget_left = self.weight(left)
        return self.optimizer.ask()

    def tell(self, task: Any, value: float, seconds: float, /) -> None:
        self.optimizer.tell(task, value, seconds=seconds)


class Study:
    """An Optuna sampler in an in-memory study."""

    def __init__(self, problem: Problem, sampler: optuna.samplers.BaseSampler) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space = problem.space
        self.study = optuna.create_study(sampler=sampler)

    def ask(self, left: float) -> optuna.Trial:
        del left
        return self.study.ask(self.space)

    def tell(self, task: optuna.Trial, value: float, seconds: float, /) -> None:
        del seconds
        self.study.tell(task, value)


OPTIMIZERS: dict[str, Any] = {
    "lazybo": lambda problem, seed: Lazy(problem, seed, cost=None),
    "cost": lambda problem, seed: Lazy(problem, seed, cost="seconds"),
    "cost, end unknown": lambda problem, seed: Lazy(problem, seed, cost="seconds", weight=lambda _: None),
    "TPE": lambda problem, seed: Study(problem, optuna.samplers.TPESampler(seed=seed)),
    "random": lambda problem, seed: Study(problem, optuna.samplers.RandomSampler(seed=seed)),
    # What was tried and not kept.
    "EI per second": lambda problem, seed: Lazy(problem, seed, cost="seconds", weight=lambda _: 1.0),
    "EI per root of seconds": lambda problem, seed: Lazy(problem, seed, cost="seconds", weight=lambda _: 0.5),
    "cost, α/2": lambda problem, seed: Lazy(problem, seed, cost="seconds", weight=lambda left: left / 2),
    "cost, α²": lambda problem, seed: Lazy(problem, seed, cost="seconds", weight=lambda left: left**2),
}
KEPT = ("lazybo", "cost", "cost, end unknown", "TPE", "random")
KNOWS_BUDGET = ("cost", "cost, α/2", "cost, α²")


def played(problem: Problem, contestant: Contestant, workers: int, budget: float) -> Iterator[tuple[float, float]]:
    """The ends of evaluations within the budget: the time on the clock, and the regret of the best value so far."""
    running: list[tuple[float, int, Any]] = []
    clock, best, count = 0.0, math.inf, 0
    while True:
        while len(running) < workers and count < MOST and clock < budget:
            task = contestant.ask(1.0 - clock / budget)
            heapq.heappush(running, (clock + problem.seconds(task.params), count, task))
            count += 1
        if not running or running[0][0] > budget:
            return
        ended, _, task = heapq.heappop(running)
        value = problem.objective(task.params)
        contestant.tell(task, value, problem.seconds(task.params))
        clock, best = ended, min(best, value)
        yield clock, problem.regret(best)


def unit_of(problem: Problem) -> float:
    """The time that 100 evaluations take in the mean, one after the other."""
    bench, data = problem.name.split("-")
    return 100.0 * float(np.mean([row.seconds for row in problems._table(bench, data)[1].values()]))


def run(name: str, label: str, workers: int, seed: int, shares: Sequence[float]) -> Iterator[dict[str, object]]:
    """One run as rows, one for each share of the budget at which it is looked at."""
    problem = problems.load(name, 1)
    unit = unit_of(problem) / workers
    start = time.process_time()
    steps = list(played(problem, OPTIMIZERS[label](problem, seed), workers, max(shares) * unit))
    cpu = time.process_time() - start
    for share in shares:
        ended = [regret for clock, regret in steps if clock <= share * unit]
        yield {
            "problem": name,
            "optimizer": label,
            "workers": workers,
            "seed": seed,
            "share": share,
            "regret": f"{ended[-1] if ended else problem.regret(worst_of(problem)):.6g}",
            "evaluations": len(ended),
            "cpu": f"{cpu:.2f}",
        }


def worst_of(problem: Problem) -> float:
    """The median of the table: what counts if nothing has ended in time."""
    return problem.optimum + problem.scale


def run_all(path: Path, labels: Sequence[str], names: Sequence[str], seeds: range, workers: int, limit: float) -> None:
    """Run and append what ``path`` does not have; start nothing after ``limit`` seconds."""
    done = {(row["problem"], row["optimizer"], row["workers"], row["seed"], row["share"]) for row in read(path)}
    start = time.perf_counter()
    for seed in seeds:
        for name in names:
            for label in labels:
                groups = [(share,) for share in SHARES] if label in KNOWS_BUDGET else [SHARES]
                for shares in groups:
                    if (name, label, str(workers), str(seed), str(shares[-1])) in done:
                        continue
                    if time.perf_counter() - start > limit:
                        return
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # Optuna announces experimental features
                        for row in run(name, label, workers, seed, shares):
                            append(path, FIELDS, row)


def report(path: Path, seeds: range) -> None:
    """Mean regrets at each budget, and paired differences to the optimiser without a cost."""
    rows = [row for row in read(path) if int(row["seed"]) in seeds]
    labels = [label for label in OPTIMIZERS if any(row["optimizer"] == label for row in rows)]
    for workers in dict.fromkeys(row["workers"] for row in rows):
        mine = [row for row in rows if row["workers"] == workers]
        print(f"\n{workers} worker(s): mean regret (mean difference to lazybo ± its standard error) [runs]\n")
        print(f"| optimiser | {' | '.join(texts.percent(share) for share in SHARES)} |\n|---|{'---|' * len(SHARES)}")
        for label in labels:
            print(f"| {label} | {' | '.join(_cell(mine, label, str(share)) for share in SHARES)} |")
        print(f"\n{workers} worker(s): mean regret at {' / '.join(texts.percent(share) for share in SHARES)}\n")
        print(f"| problem | {' | '.join(labels)} |\n|---|{'---|' * len(labels)}")
        for name in dict.fromkeys(row["problem"] for row in mine):
            cells = [" / ".join(_mean(mine, name, label, str(share)) for share in SHARES) for label in labels]
            print(f"| {name} | {' | '.join(cells)} |")


def _regrets(rows: list[dict[str, str]], label: str, share: str) -> dict[tuple[str, str], float]:
    return {
        (row["problem"], row["seed"]): float(row["regret"])
        for row in rows
        if row["optimizer"] == label and row["share"] == share
    }


def _cell(rows: list[dict[str, str]], label: str, share: str) -> str:
    ours, base = _regrets(rows, label, share), _regrets(rows, "lazybo", share)
    pairs = [ours[key] - base[key] for key in ours if key in base]
    if not pairs:
        return "–"
    mean = statistics.fmean(ours[key] for key in ours if key in base)
    error = statistics.stdev(pairs) / math.sqrt(len(pairs)) if len(pairs) > 1 else math.nan
    difference = "" if label == "lazybo" else f" ({statistics.fmean(pairs):+.4f} ± {error:.4f})"
    return f"{mean:.4f}{difference} [{len(pairs)}]"


def _mean(rows: list[dict[str, str]], name: str, label: str, share: str) -> str:
    found = [regret for (problem, _), regret in _regrets(rows, label, share).items() if problem == name]
    return f"{statistics.fmean(found):.3f}" if found else "–"


def step_times(n: int, repeats: int) -> tuple[float, float]:
    """The median CPU seconds of ask and tell with n observations of 6 parameters, without and with a cost."""
    rng, space = np.random.default_rng(0), {f"x{i}": (0.0, 1.0) for i in range(6)}
    contestants = [Optimizer(space, seed=0), Optimizer(space, seed=0, cost="seconds")]

    def measured(params: dict[str, float]) -> tuple[float, float]:
        x = np.array(list(params.values()))
        return float(((x - 0.4) ** 2).sum() + 0.1 * np.sin(5 * x).sum()), float(np.exp(3 * x[0] + x[1]))

    for x in rng.random((n, 6)):
        params = dict(zip(space, map(float, x), strict=True))
        value, seconds = measured(params)
        for contestant in contestants:
            contestant.observe(params, value, seconds=seconds)
    times: list[list[float]] = [[], []]
    for step in range(repeats + 1):
        for contestant, mine in zip(contestants, times, strict=True):
            start = time.process_time()
            task = contestant.ask()
            value, seconds = measured(task.params)
            contestant.tell(task, value, seconds=seconds)
            if step:  # the first step learns and builds
                mine.append(time.process_time() - start)
    return statistics.median(times[0]), statistics.median(times[1])


# What the picture shows: the name on it, its colour and marker.
STYLES = {
    "cost": ("lazybo, cost, budget known", "#2166ac", "o"),
    "cost, end unknown": ("lazybo, cost, end unknown", "#67a9cf", "s"),
    "lazybo": ("lazybo without cost", "#b2182b", "D"),
    "TPE": ("Optuna TPE", "#888888", "^"),
    "random": ("random", "#000000", "."),
}


def draw(path: Path, picture: Path, seeds: range) -> None:
    """Mean regret by the budget, one panel for each number of workers."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    rows = [row for row in read(path) if int(row["seed"]) in seeds]
    workers = list(dict.fromkeys(row["workers"] for row in rows))
    figure = Figure(figsize=(7.6, 3.6), layout="constrained")
    for axes, count in zip(np.atleast_1d(figure.subplots(1, len(workers), sharey=True)), workers, strict=True):
        mine = [row for row in rows if row["workers"] == count]
        shared = set.intersection(*(set(_regrets(mine, label, str(SHARES[-1]))) for label in STYLES))
        for label, (text, colour, marker) in STYLES.items():
            means = [statistics.fmean(_regrets(mine, label, str(share))[key] for key in shared) for share in SHARES]
            axes.plot([100 * share for share in SHARES], means, color=colour, marker=marker, label=text, linewidth=1.4)
        axes.set(xscale="log", yscale="log", xlabel="budget, % of the time of 100 evaluations")
        axes.set_xticks([100 * share for share in SHARES], [texts.percent(share) for share in SHARES])
        axes.set_yticks([0.03, 0.05, 0.1, 0.2], ["0.03", "0.05", "0.1", "0.2"])
        axes.minorticks_off()
        axes.set_title(f"{count} worker{'s' if count != '1' else ''}, {len(shared)} runs", fontsize=10)
        axes.grid(alpha=0.3)
    axes.legend(fontsize=8, frameon=False)
    figure.axes[0].set_ylabel("mean regret")
    with rc_context({"svg.hashsalt": "lazybo", "svg.fonttype": "none"}):
        figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", type=Path, default=RESULTS)
    parser.add_argument("--problems", nargs="+", default=problems.table_names(), choices=problems.table_names())
    parser.add_argument("--optimizers", nargs="+", default=KEPT, choices=list(OPTIMIZERS))
    parser.add_argument("--workers", nargs="+", type=int, default=WORKERS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=10)
    parser.add_argument("--limit", type=float, default=math.inf, help="start nothing after so many seconds")
    parser.add_argument("--report", action="store_true", help="only print what was recorded")
    parser.add_argument("--draw", type=Path, help="draw what was recorded to this file")
    parser.add_argument("--steps", action="store_true", help="only measure the time of a step")
    options = parser.parse_args()
    if options.steps:
        for n in (100, 1000):
            without, with_cost = step_times(n, 30)
            print(f"{n}: {1e3 * without:.1f} ms, with a cost {1e3 * with_cost:.1f} ms: {with_cost / without:.2f} times")
        return
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for workers in options.workers if not options.report else ():
        run_all(options.path, options.optimizers, options.problems, seeds, workers, options.limit)
    report(options.path, seeds)
    if options.draw:
        draw(options.path, options.draw, seeds)


if __name__ == "__main__":
    main()
