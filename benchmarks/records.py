"""The recorded runs of a suite, and which of them can be compared.

A run is a problem with a seed. Optimisers are compared on the runs that all of them have. The number of seeds of an
optimiser is the number of seeds with which it has run every problem of the suite.

In the suite `trainings` all families have equal weights, and a slow optimiser may have run only a few problems of each.
The optimisers with `ENOUGH` runs of every family can be in one table; each of the others is compared with ours on the
runs that both have.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.optimizers import OPTIMIZERS
from benchmarks.problems import SUITES
from benchmarks.runner import CHECKPOINTS, log10, read
from benchmarks.sequential import mean_of

OURS = "lazybo"
# A seed of a suite is complete if all problems have run for so many evaluations.
LEAST = 25
# Runs of each family of trainings, of so many evaluations, for tables of several optimisers.
ENOUGH, EVALUATIONS = 8, 100

Run = tuple[str, int]  # problem, seed


@dataclass(frozen=True)
class Course:
    """Regret and the optimiser's seconds by the number of evaluations."""

    regret: dict[int, float]
    seconds: dict[int, float]

    def end(self, cost: float) -> float:
        """The time of the last evaluation."""
        last = max(self.seconds)
        return self.seconds[last] + last * cost

    def at(self, clock: float, cost: float) -> float:
        """The regret after ``clock`` seconds, if an evaluation takes ``cost`` seconds.

        Logarithms are interpolated between checkpoints. The regret starts at 1, that of the median random point.
        """
        known = [n for n in self.regret if n in self.seconds]
        times = [0.0, *(self.seconds[n] + n * cost for n in known)]
        logs = [0.0, *log10([self.regret[n] for n in known])]
        return float(10 ** np.interp(clock, times, logs))


@dataclass(frozen=True)
class Suite:
    """All recorded runs of a suite."""

    courses: dict[str, dict[Run, Course]]  # by optimiser
    families: dict[str, str]  # of the problems
    equal: bool = False  # do families have equal weights, instead of problems?

    @property
    def problems(self) -> list[str]:
        return list(self.families)

    def complete(self, name: str, n: int = LEAST) -> set[int]:
        """The seeds with which an optimiser has run all problems for at least n evaluations."""
        own = self.courses[name]
        seeds = {seed for _, seed in own}
        return {s for s in seeds if all((p, s) in own and n in own[p, s].regret for p in self.problems)}

    def regrets(self, name: str, n: int, runs: Iterable[Run]) -> np.ndarray | None:
        """Regrets after n evaluations in these runs; None if one is missing."""
        own = self.courses[name]
        found = [own[run].regret.get(n) if run in own else None for run in runs]
        return None if None in found or not found else np.array(found, dtype=float)

    def mean(self, runs: Iterable[Run], values: Iterable[float]) -> float:
        """The mean over runs, with equal weights of their families if the suite has that."""
        strata: dict[str, list[float]] = defaultdict(list)
        for (problem, _), value in zip(runs, values, strict=True):
            strata[self.families[problem] if self.equal else ""].append(value)
        return mean_of([np.array(found) for found in strata.values()])

    def covered(self, runs: Iterable[Run]) -> int:
        """How many of these runs every family has at least."""
        count = Counter(self.families[problem] for problem, _ in runs)
        return min((count[family] for family in self.families.values()), default=0)

    def shared(self, names: Iterable[str], n: int) -> list[Run]:
        """The runs that all these optimisers have for at least n evaluations."""
        found = [{run for run, course in self.courses[name].items() if n in course.regret} for name in names]
        return sorted(set.intersection(*found)) if found else []

    def groups(self) -> list[tuple[list[str], list[Run]]]:
        """Groups of optimisers, with the runs that all of them have: first those with the most seeds.

        If families have equal weights, there is one group: the optimisers with `ENOUGH` runs of every family.
        """
        if self.equal:
            names = [name for name in self.courses if self.covered(self.shared([name], EVALUATIONS)) >= ENOUGH]
            return [(names, self.shared(names, EVALUATIONS))] if OURS in names else []
        seeds = {name: self.complete(name) for name in self.courses}
        sizes = sorted({len(found) for found in seeds.values() if found}, reverse=True)
        groups = []
        for size in sizes:
            names = [name for name, found in seeds.items() if len(found) >= size]
            shared = set.intersection(*(seeds[name] for name in names))
            groups.append((names, [(problem, seed) for problem in self.problems for seed in sorted(shared)]))
        return groups


def load(path: Path) -> Suite:
    """Load a file of `benchmarks.run`, with optimisers and problems in their usual order."""
    found: dict[str, dict[Run, Course]] = defaultdict(dict)
    families: dict[str, str] = {}
    for row in read(path):
        families[row["problem"]] = row["family"]
        numbers = [{n: float(row[f"{kind}{n}"]) for n in CHECKPOINTS if row[f"{kind}{n}"]} for kind in "rs"]
        found[row["optimizer"]][row["problem"], int(row["seed"])] = Course(*numbers)
    # In the order of the suite that has all problems; other files keep their own order.
    usual = next((suite for suite, names in SUITES.items() if set(families) <= set(names)), "")
    families = {name: families[name] for name in SUITES.get(usual, families) if name in families}
    return Suite({name: found[name] for name in OPTIMIZERS if name in found}, families, usual == "trainings")
