"""Evaluations that fail: regret and failures on the open set, ``python -m benchmarks.failures``.

In three kinds of problems a hidden region of 30 % of the space always fails: a half-space, a ball, and a corner where
two parameters are both large or small. In the fourth kind each evaluation fails with a chance of 10 %, wherever it is.
The kind and the place of the region depend on the problem and the seed. Regret is that of the best value so far: 0 is
the best value outside of the region (exact for tables, else from a large sample and local searches), 1 the median
there. Each run is a row of a CSV file; recorded runs are not run again. ``--only-report`` only prints the tables.
"""

import argparse
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import TrialState
from scipy.stats import wilcoxon

from benchmarks import problems
from benchmarks.optimizers import OPTIMIZERS, Contestant, Lazy, Study
from benchmarks.problems import Params
from benchmarks.run import RESULTS
from benchmarks.runner import append, log10, read
from lazybo import Space
from lazybo.core import texts

KINDS = ("half-space", "ball", "corner", "crashes")
# The share of the space that fails, and the chance of a crash.
SHARE, CRASHES = 0.3, 0.1
SAMPLES = 2**14
# Local searches for the best value outside of the region: starts, rounds, and steps in each round.
STARTS, ROUNDS, STEPS = 5, 400, 20
# So many half-spaces are tried for one that contains the best point.
DIRECTIONS = 20
CHECKPOINTS = (25, 50, 100)
# r: regret; f: share of the evaluations that failed; longest: most failures in a row.
FIELDS = (
    "problem",
    "kind",
    "optimizer",
    "seed",
    *(f"{kind}{n}" for kind in "rf" for n in CHECKPOINTS),
    "longest",
    "seconds",
)
OURS = "lazybo"
# "worst value" is the rule of earlier versions, of which there are only recorded runs.
RIVALS = ("optuna-gp", "optuna-tpe", "random")
CONTESTANTS = (OURS, "worst value", *RIVALS)

Row = dict[str, str]


class Failing:
    """A problem of the open set of which a part fails."""

    def __init__(self, name: str, kind: str, seed: int) -> None:
        self.problem = problems.load(name, instance=1 + seed % 5)
        self.kind = kind
        self._space = Space(self.problem.space)
        self._levels = np.where(self._space.numeric, 1.0, self._space.levels - 1)
        rng = np.random.default_rng((zlib.crc32(f"{name} {kind}".encode()), seed))
        points = self._everything() if name in problems.table_names() else self._space.sample(rng, SAMPLES)
        values = np.array([self._value(x) for x in points])
        self._excess = self._region(rng, points, points[np.argmin(values)])
        self._bound = float(np.quantile(self._excess(points), 1.0 - SHARE))
        outside = ~self._inside(points)
        points, values = points[outside], values[outside]
        starts = points[np.argsort(values)[:STARTS]]
        searched = [] if name in problems.table_names() else [self._searched(x, rng) for x in starts]
        known = [self.problem.optimum] if kind == "crashes" else searched
        self.optimum = float(min([values.min(), *known]))
        self.scale = float(np.median(values)) - self.optimum

    def observed(self, params: Params, rng: np.random.Generator) -> float | None:
        """The result of an evaluation; None if it fails."""
        crashes = rng.random() < CRASHES
        failed = crashes if self.kind == "crashes" else self._inside(self._space.encode(dict(params))[None])[0]
        return None if failed else self.problem.objective(params)

    def regret(self, value: float) -> float:
        """Distance to the best value that does not fail; 1 is the median of the points that do not."""
        return max(value - self.optimum, 0.0) / self.scale

    def _region(
        self, rng: np.random.Generator, points: np.ndarray, best: np.ndarray
    ) -> Callable[[np.ndarray], np.ndarray]:
        """A function that is largest within the region."""
        d = self._space.dim
        center, columns = points[rng.integers(len(points))] / self._levels, rng.choice(d, 2, replace=False)
        signs = np.where(best / self._levels >= 0.5, 1.0, -1.0)[columns]
        if self.kind == "half-space":
            directions = rng.standard_normal((DIRECTIONS, d))
            ranks = (points / self._levels @ directions.T < best / self._levels @ directions.T).mean(axis=0)
            direction = directions[np.argmax(ranks > 1.0 - SHARE)]  # the first one if none contains the best point
            return lambda x: np.asarray(x / self._levels @ direction)
        if self.kind == "ball":
            return lambda x: -np.linalg.norm(x / self._levels - center, axis=1)
        return lambda x: np.min(signs * ((x / self._levels)[:, columns] - 0.5), axis=1)

    def _inside(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self._excess(x) > self._bound) & (self.kind != "crashes")

    def _everything(self) -> np.ndarray:
        """All points of a table."""
        columns: list[Iterable[Any]] = []
        for each in self.problem.space.values():
            if isinstance(each, CategoricalDistribution):
                columns.append(each.choices)
            else:
                assert isinstance(each, IntDistribution)
                columns.append(range(each.low, each.high + 1))
        rows = (dict(zip(self.problem.space, row, strict=True)) for row in product(*columns))
        return np.array([self._space.encode(row) for row in rows])

    def _value(self, x: np.ndarray) -> float:
        return self.problem.objective(self._space.decode(x))

    def _searched(self, x: np.ndarray, rng: np.random.Generator) -> float:
        """The best value that a random local search finds outside of the region, in a space of numbers."""
        best, width = self._value(x), 0.1
        for _ in range(ROUNDS):
            there = np.clip(x + width * rng.standard_normal((STEPS, len(x))), 0.0, 1.0)
            there = there[~self._inside(there)]
            values = [self._value(each) for each in there]
            better = len(values) > 0 and min(values) < best
            if better:
                x, best = there[int(np.argmin(values))], min(values)
            width = max(width * (1.5 if better else 0.8), 1e-7)
        return best


def kind_of(name: str, seed: int) -> str:
    """Each problem has another kind with each seed."""
    return KINDS[(problems.names().index(name) + seed) % len(KINDS)]


@cache
def failing(name: str, seed: int) -> Failing:
    return Failing(name, kind_of(name, seed), seed)


def tell(contestant: Contestant, task: Any, value: float | None) -> None:
    """Tell a value, or that the evaluation failed."""
    if value is not None:
        contestant.tell(task, value)
    elif isinstance(contestant, Lazy):
        contestant.optimizer.tell(task, None)
    else:
        assert isinstance(contestant, Study)
        contestant.study.tell(task, state=TrialState.FAIL)


def run_one(name: str, label: str, seed: int) -> dict[str, object]:
    """One run as a row."""
    problem, rng = failing(name, seed), np.random.default_rng(seed)
    contestant = OPTIMIZERS[label](problem.problem.space, seed, CHECKPOINTS[-1])
    row: dict[str, object] = {"problem": name, "kind": problem.kind, "optimizer": label, "seed": seed}
    best, failures, in_a_row, longest, seconds = float("inf"), 0, 0, 0, 0.0
    for n in range(1, CHECKPOINTS[-1] + 1):
        start = time.process_time()
        (task,) = contestant.ask(1)
        seconds += time.process_time() - start
        value = problem.observed(task.params, rng)
        if value is None:
            failures, in_a_row = failures + 1, in_a_row + 1
            longest = max(longest, in_a_row)
        else:
            best, in_a_row = min(best, value), 0
        start = time.process_time()
        tell(contestant, task, value)
        seconds += time.process_time() - start
        if n in CHECKPOINTS:
            row[f"r{n}"], row[f"f{n}"] = f"{problem.regret(best):.6g}", f"{failures / n:.3f}"
    return {**row, "longest": longest, "seconds": f"{seconds:.2f}"}


def run_all(path: Path, labels: Sequence[str], names: Sequence[str], seeds: Iterable[int]) -> None:
    """Run and append the runs that ``path`` does not have yet."""
    done = {(row["problem"], row["optimizer"], int(row["seed"])) for row in read(path)}
    for seed in seeds:
        for name in names:
            for label in labels:
                if (name, label, seed) not in done:
                    append(path, FIELDS, run_one(name, label, seed))


def table(rows: Sequence[Row], title: str) -> str:
    """Each contestant beside ours on the runs that both have: mean regrets, failures, and the pairs at the end.

    p is that of Wilcoxon's test on the logarithms of the regrets.
    """
    ours = {(row["problem"], row["seed"]): row for row in rows if row["optimizer"] == OURS}
    checkpoints = "/".join(map(str, CHECKPOINTS))
    heads = [title, "runs", f"regret {checkpoints}", "ours", "failed", "ours", "most in a row", "ours"]
    lines = ["| " + " | ".join([*heads, "ours better / worse", "p"]) + " |", "|---" * (len(heads) + 2) + "|"]
    for label in dict.fromkeys(row["optimizer"] for row in rows):
        theirs = [row for row in rows if row["optimizer"] == label and (row["problem"], row["seed"]) in ours]
        if label == OURS or not theirs:
            continue
        mine = [ours[row["problem"], row["seed"]] for row in theirs]
        sides = [
            (_regrets(side), _failed(side), str(max(int(row["longest"]) for row in side))) for side in (theirs, mine)
        ]
        cells = [cell for both in zip(*sides, strict=True) for cell in both]
        lines.append("| " + " | ".join([label, str(len(theirs)), *cells, _pairs(theirs, mine)]) + " |")
    return "\n".join(lines)


def _regrets(rows: Sequence[Row]) -> str:
    return " / ".join(f"{np.mean([float(row[f'r{n}']) for row in rows]):.3f}" for n in CHECKPOINTS)


def _failed(rows: Sequence[Row]) -> str:
    return texts.percent(float(np.mean([float(row[f"f{CHECKPOINTS[-1]}"]) for row in rows])))


def _pairs(theirs: Sequence[Row], mine: Sequence[Row]) -> str:
    last = f"r{CHECKPOINTS[-1]}"
    gain = log10([float(row[last]) for row in theirs]) - log10([float(row[last]) for row in mine])
    p = f"{float(wilcoxon(gain).pvalue):.2g}" if gain.any() else ""
    return f"{(gain > 0).sum()} / {(gain < 0).sum()} | {p}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, default=RESULTS / "failures.csv")
    parser.add_argument("--optimizers", nargs="+", default=[OURS, *RIVALS])
    parser.add_argument("--problems", nargs="+", default=problems.names())
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only-report", action="store_true")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    if not options.only_report:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # peers announce experimental features
            run_all(options.csv, options.optimizers, options.problems, seeds)
    rows = [row for row in read(options.csv) if int(row["seed"]) in seeds]
    print(table(rows, "all"))
    for kind in KINDS:
        print("\n" + table([row for row in rows if row["kind"] == kind], kind))


if __name__ == "__main__":
    main()
