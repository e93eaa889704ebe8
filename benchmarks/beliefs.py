"""Beliefs about where the optimum is: ``python -m benchmarks.beliefs``, on the suite of trainings.

Each run has a belief about every parameter: ``within`` is a fifth of the range, and the preferred choice has the weight
3. They differ in where the belief is:

- good: around the best of 20,000 random configurations, with an error of a tenth of the range (standard deviation);
- useless: around a random configuration;
- misleading: around one of the worst 5 % of random configurations.

"initial" evaluates the center of the good belief first, without a belief; "nothing" has neither. The variable
LAZYBO_CURVES names the folder of the data. Each run is a row of a CSV file; recorded runs are not run again. Regret: 0
is the optimum, 1 what random search reaches with 25 evaluations.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution

from benchmarks import problems, trainings
from benchmarks.optimizers import Lazy
from benchmarks.runner import append, balanced, play, read
from lazybo import Belief, Space
from lazybo.search import models

RESULTS = Path(__file__).parent / "results" / "beliefs.csv"
BUDGETS = (1, 5, 10, 15, 25, 50)
FIELDS = ("problem", "family", "optimizer", "seed", *(f"r{n}" for n in BUDGETS), "seconds")
NOTHING, INITIAL = "nothing", "initial"
KINDS = (NOTHING, INITIAL, "good", "useless", "misleading")
DRAWS, WORST = 20_000, 0.05
WITHIN, ERROR, WEIGHT = 0.2, 0.1, 3.0
FIRST_SEED = 3_100_000


def around(name: str, kind: str, rng: np.random.Generator) -> dict[str, Any]:
    """The configuration that a belief of this kind is around."""
    training = trainings.load(name)
    u = rng.random((DRAWS, len(training.space)))
    order = np.argsort(training.errors(training.values(u)), kind="stable")
    if kind in ("good", INITIAL):
        categorical = [isinstance(each, CategoricalDistribution) for each in training.space.values()]
        best = u[order[0]]
        u = np.where(categorical, best, np.clip(best + ERROR * rng.standard_normal(len(best)), 0.0, 1.0))[None]
        return training.params(training.values(u)[0])
    row = order[-1 - int(rng.integers(int(WORST * DRAWS)))] if kind == "misleading" else 0
    return training.params(training.values(u[row : row + 1])[0])


def belief_about(distribution: BaseDistribution, value: Any) -> Belief:
    """A belief around a value."""
    if isinstance(distribution, CategoricalDistribution):
        return Belief(weights={value: WEIGHT})
    low, high = float(distribution.low), float(distribution.high)  # type: ignore[attr-defined]
    if distribution.log:  # type: ignore[attr-defined]
        return Belief(around=value, within=(high / low) ** WITHIN)
    return Belief(around=value, within=WITHIN * (high - low))


def contestant(name: str, kind: str, seed: int, space: Mapping[str, BaseDistribution]) -> Lazy:
    """Our optimiser with a belief of this kind."""
    if kind == NOTHING:
        return Lazy(space, seed, {})
    center = around(name, kind, np.random.default_rng((seed, 17)))
    if kind == INITIAL:
        return First(space, seed, center)
    beliefs = {name: belief_about(space[name], value) for name, value in center.items()}
    return Lazy(Space(space, beliefs=beliefs), seed, {})  # type: ignore[arg-type]


class First(Lazy):
    """Evaluates a given configuration first."""

    def __init__(self, space: Mapping[str, BaseDistribution], seed: int, first: dict[str, Any]) -> None:
        super().__init__(space, seed, {})
        self._first: dict[str, Any] | None = first

    def ask(self, n: int) -> list[Any]:
        first, self._first = self._first, None
        return super().ask(n) if first is None else [self.optimizer.announce(first)]


def run_one(name: str, kind: str, seed: int) -> dict[str, object]:
    """One run."""
    problem = problems.load(name, 1)
    row: dict[str, object] = {"problem": name, "family": problem.family, "optimizer": kind, "seed": seed}
    for step in play(problem, contestant(name, kind, seed, problem.space), max(BUDGETS), seed=seed):
        if step.n in BUDGETS:
            row[f"r{step.n}"] = f"{step.regret:.5g}"
    return {**row, "seconds": f"{step.seconds:.1f}"}


def report(path: Path) -> str:
    """Mean regrets; in brackets, in how many of the pairs a run is better and worse than without a belief."""
    rows = {(row["problem"], row["seed"], row["optimizer"]): row for row in read(path)}
    lines = [f"| | runs | {' | '.join(map(str, BUDGETS))} |", f"|---|---|{'---|' * len(BUDGETS)}"]
    for kind in dict.fromkeys(each for *_, each in rows):
        mine = [row for (*_, other), row in rows.items() if other == kind]
        cells = []
        for n in BUDGETS:
            values = np.array([float(row[f"r{n}"]) for row in mine])
            pairs = [
                float(row[f"r{n}"]) - float(rows[row["problem"], row["seed"], NOTHING][f"r{n}"])
                for row in mine
                if (row["problem"], row["seed"], NOTHING) in rows
            ]
            counts = f" ({sum(d < 0 for d in pairs)}/{sum(d > 0 for d in pairs)})" if kind != NOTHING else ""
            cells.append(f"{values.mean():.3f}{counts}")
        lines.append(f"| {kind} | {len(mine)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--rounds", type=int, default=6, help="one problem of each family in each round")
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--weight", type=float, help="another weight of beliefs than the default")
    parser.add_argument("--report", action="store_true", help="only print the table of what is recorded")
    options = parser.parse_args()
    if options.weight is not None:
        models.BELIEF_WEIGHT = options.weight
    if not options.report:
        done = {(row["problem"], row["optimizer"], int(row["seed"])) for row in read(options.out)}
        seeds = range(options.seed, options.seed + options.rounds)
        for name, seed in balanced(trainings.names(), seeds, options.rounds):
            for kind in options.kinds:
                if (name, kind, seed) not in done:
                    append(options.out, FIELDS, run_one(name, kind, seed))
    print(report(options.out))


if __name__ == "__main__":
    main()
