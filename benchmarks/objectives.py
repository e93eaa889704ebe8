"""`python -m benchmarks.objectives`: several objectives and constraints, ours beside Optuna's samplers and BoTorch.

Each run is a row of a CSV file; recorded runs are not run again. The table has the seeds that were asked for: 0 to 2
(``--first-seed 0 --seeds 3``) were looked at while the search was built, 3 to 12 (the default) were not.

The regret is what is missing to the largest hypervolume as a share of it, or for one objective what is missing to the
best feasible value; a run without a feasible evaluation has the regret 1.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import optuna

from benchmarks.objective_problems import NAMES, ONE_OBJECTIVE, Measured, Problem, load
from benchmarks.optimizers import Asked, Peer, gp_sampler, peer_command
from benchmarks.runner import append, read
from lazybo import LazySampler, Optimizer

RESULTS = Path(__file__).parent / "results" / "objectives.csv"
CHECKPOINTS = (25, 50, 100)
OURS = "lazybo"
# r: regret, f: feasible evaluations, s: CPU seconds of the optimiser, each after so many evaluations.
FIELDS = ("problem", "optimizer", "seed", *(f"{kind}{n}" for kind in "rfs" for n in CHECKPOINTS))


class Contestant(Protocol):
    def ask(self) -> Any: ...
    def tell(self, task: Any, measured: Measured, /) -> None: ...
    def seconds(self) -> float:
        """The CPU time so far."""


class Lazy:
    """Our optimiser."""

    def __init__(self, problem: Problem, seed: int, **options: Any) -> None:
        self.optimizer = Optimizer(problem.space, direction=["minimize"] * problem.objectives, seed=seed, **options)

    def ask(self) -> Any:
        return self.optimizer.ask()

    def tell(self, task: Any, measured: Measured, /) -> None:
        named = {f"c{i}": value for i, value in enumerate(measured.constraints)}
        values = measured.values if len(measured.values) > 1 else measured.values[0]
        self.optimizer.tell(task, values, constraints=named)

    def seconds(self) -> float:
        return time.process_time()


class Study:
    """An Optuna sampler in an in-memory study."""

    def __init__(self, problem: Problem, sampler: optuna.samplers.BaseSampler) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space = problem.space
        self.study = optuna.create_study(directions=["minimize"] * problem.objectives, sampler=sampler)

    def ask(self) -> optuna.Trial:
        return self.study.ask(self.space)

    def tell(self, task: optuna.Trial, measured: Measured, /) -> None:
        for i, value in enumerate(measured.constraints):
            task.set_constraint(f"c{i}", value)
        self.study.tell(task, list(measured.values))

    def seconds(self) -> float:
        return time.process_time()


class BoTorch:
    """BoTorch's acquisition functions for several outputs, in its own environment."""

    def __init__(self, problem: Problem, seed: int) -> None:
        command = [*peer_command("botorch", "botorch_front"), str(problem.objectives)]
        self.peer = Peer(command, problem.space, seed, CHECKPOINTS[-1])

    def ask(self) -> Asked:
        return self.peer.ask(1)[0]

    def tell(self, task: Asked, measured: Measured, /) -> None:
        self.peer.load([task.params], [[*measured.values, *measured.constraints]])

    def seconds(self) -> float:
        return self.peer.seconds()


Make = Callable[[Problem, int], Contestant]


def sampler(make: Callable[[int], optuna.samplers.BaseSampler]) -> Make:
    return lambda problem, seed: Study(problem, make(seed))


OPTIMIZERS: dict[str, Make] = {
    "lazybo": Lazy,
    "optuna-gp": sampler(gp_sampler),
    "optuna-tpe": sampler(lambda seed: optuna.samplers.TPESampler(seed=seed)),
    "optuna-nsga2": sampler(lambda seed: optuna.samplers.NSGAIISampler(seed=seed, population_size=20)),
    "random": sampler(lambda seed: optuna.samplers.RandomSampler(seed=seed)),
    "botorch": BoTorch,
}


def run_one(name: str, label: str, make: Make, seed: int, budget: int) -> dict[str, object]:
    """One run as a row."""
    problem = load(name)
    row: dict[str, object] = {"problem": name, "optimizer": label, "seed": seed}
    contestant = make(problem, seed)
    found: list[Measured] = []
    seconds = 0.0
    for n in range(1, budget + 1):
        start = contestant.seconds()
        task = contestant.ask()
        seconds += contestant.seconds() - start
        measured = problem.evaluate(task.params)
        start = contestant.seconds()
        contestant.tell(task, measured)
        seconds += contestant.seconds() - start
        found.append(measured)
        if n in CHECKPOINTS:
            row[f"r{n}"] = f"{problem.regret(found):.6g}"
            row[f"f{n}"], row[f"s{n}"] = sum(each.feasible for each in found), f"{seconds:.3f}"
    return row


def run_all(path: Path, labels: Sequence[str], names: Sequence[str], seeds: range, budget: int, limit: float) -> None:
    """Run and append what ``path`` does not have; start nothing after ``limit`` seconds."""
    done = {(row["problem"], row["optimizer"], int(row["seed"])) for row in read(path)}
    start = time.perf_counter()
    for seed in seeds:
        for name in names:
            for label in labels:
                if (name, label, seed) not in done and time.perf_counter() - start < limit:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # Optuna announces experimental features
                        append(path, FIELDS, run_one(name, label, OPTIMIZERS[label], seed, budget))


def report(path: Path, seeds: range) -> None:
    """Mean regrets after 50 and 100 evaluations, feasible evaluations and seconds, by problem and optimiser."""
    rows = [row for row in read(path) if int(row["seed"]) in seeds]
    labels = [label for label in OPTIMIZERS if any(row["optimizer"] == label for row in rows)]
    names = list(dict.fromkeys(row["problem"] for row in rows))
    for title, kept in (("several objectives", False), ("one objective and constraints", True)):
        print(f"{title}: regret after 50 / 100 evaluations (feasible of the first 50) [runs], mean over seeds\n")
        print(f"| problem | {' | '.join(labels)} |\n|---|{'---|' * len(labels)}")
        mine = [row for row in rows if (row["problem"] in ONE_OBJECTIVE) == kept]
        for name in [name for name in names if (name in ONE_OBJECTIVE) == kept]:
            here = [[row for row in mine if (row["problem"], row["optimizer"]) == (name, label)] for label in labels]
            print(f"| {name} | {' | '.join(map(_cell, here))} |")
        print(f"\nruns with the same seed, after 50 / 100: {OURS} is better in (mean regrets: ours, theirs)\n")
        for label in labels:
            if label != OURS:
                print(f"- {label}: {_pairs(mine, label, 50)} / {_pairs(mine, label, 100)}")
        seconds = {
            label: [float(row["s100"]) for row in mine if row["optimizer"] == label and row["s100"]] for label in labels
        }
        medians = [f"{label} {statistics.median(each):.2f}" for label, each in seconds.items() if each]
        print(f"\nseconds of 100 steps, median: {', '.join(medians)}\n")


def _pairs(rows: list[dict[str, str]], label: str, n: int) -> str:
    """In how many pairs of runs ours has the lower regret, of how many, and the mean regrets over all pairs."""
    found = {(row["optimizer"], row["problem"], row["seed"]): float(row[f"r{n}"]) for row in rows if row[f"r{n}"]}
    pairs = [(found[OURS, name, seed], value) for (other, name, seed), value in found.items() if other == label]
    if not pairs:
        return "–"
    better = sum(ours < theirs for ours, theirs in pairs)
    ours, theirs = (statistics.mean(each) for each in zip(*pairs, strict=True))
    return f"{better} of {len(pairs)} ({ours:.3f}, {theirs:.3f})"


def _cell(rows: list[dict[str, str]]) -> str:
    if not rows:
        return ""
    regrets = [[float(row[f"r{n}"]) for row in rows if row[f"r{n}"]] for n in (50, 100)]
    means = " / ".join(f"{statistics.mean(each):.4f}" if each else "–" for each in regrets)
    feasible = statistics.mean(int(row["f50"] or 50) for row in rows)
    return means + (f" ({feasible:.0f})" if feasible < 50 else "") + f" [{len(rows)}]"


def example(seeds: range) -> None:
    """60 trials of (x - 1)² + (y - 1)² with x + y ≤ 1.4, whose optimum is 0.18: how many are feasible, and the best."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial: optuna.Trial) -> float:
        x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
        trial.set_constraint("x + y <= 1.4", x + y - 1.4)
        return (x - 1) ** 2 + (y - 1) ** 2

    for label, make in (("lazybo", LazySampler), ("optuna-tpe", optuna.samplers.TPESampler)):
        feasible, best = [], []
        for seed in seeds:
            study = optuna.create_study(sampler=make(seed=seed))
            study.optimize(objective, n_trials=60)
            feasible.append(sum(trial.constraints["x + y <= 1.4"] <= 0 for trial in study.trials))
            best.append(study.best_value)
        print(f"{label}: feasible {feasible}, best {', '.join(f'{value:.5f}' for value in best)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=3)
    parser.add_argument("--budget", type=int, default=100)
    parser.add_argument("--optimizers", default="lazybo,optuna-tpe,optuna-nsga2,random,optuna-gp")
    parser.add_argument("--problems", default=",".join(NAMES))
    parser.add_argument("--limit", type=float, default=float("inf"), help="start no run after so many seconds")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--example", action="store_true", help="only the example with 60 trials")
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    if arguments.example:
        example(seeds)
        return
    labels, names = arguments.optimizers.split(","), arguments.problems.split(",")
    run_all(arguments.results, labels, names, seeds, arguments.budget, arguments.limit)
    report(arguments.results, seeds)


if __name__ == "__main__":
    main()
