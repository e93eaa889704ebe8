"""How far runs with the same seed differ between processors: ``python -m benchmarks.processors``.

The runs are those of `benchmarks.identical`, here and as on other processors (``tools/processor.py``). For each problem
the table has the first trial in which any two of them differ in any bit, and the first by more than a thousandth and a
tenth of a range; and the median of the best values, for each processor.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.identical import PROBLEMS, make_optimizer

TOOL = Path(__file__).parents[1] / "tools" / "processor.py"
KINDS = ("here", "Prescott", "Nehalem", "Haswell")
NAMES = ("branin", "levy 3-D", "rosenbrock 4-D", "mixed", "conditional")
# Shares of a range. The first stands for any bit.
SHARES = (0.0, 1e-3, 1e-1)
Run = tuple[list[list[float]], float]  # its points in the unit cube, and its best value


def played(name: str, seed: int, trials: int) -> Run:
    """A run on this processor."""
    problem = PROBLEMS[name]
    optimizer = make_optimizer(problem.space, seed=seed)
    points = []
    for _ in range(trials):
        suggestion = optimizer.ask()
        points.append(problem.space.points.encode(suggestion.params).tolist())
        optimizer.tell(suggestion, problem.objective(suggestion.params))
    return points, optimizer.best.value


def on(kind: str, trials: int, seeds: int) -> dict[str, list[Run]]:
    """All runs as on this kind of processor."""
    command = [sys.executable, "-m", "benchmarks.processors", "--play", "--trials", str(trials), "--seeds", str(seeds)]
    if kind != "here":
        command = [sys.executable, str(TOOL), kind, *command]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - our own program
    return dict(json.loads(done.stdout.splitlines()[-1]))


def first_difference(pairs: Sequence[tuple[Run, Run]], share: float) -> int | None:
    """The first trial in which a coordinate of two runs differs by more than this share of its range.

    NaN, a parameter without a value, is far from every value.
    """
    away = []
    for (first, _), (second, _) in pairs:
        one, other = np.array(first), np.array(second)
        differ = np.where(np.isnan(one) & np.isnan(other), 0.0, np.nan_to_num(np.abs(one - other), nan=np.inf))
        away.append(differ.max(axis=1))
    found = np.flatnonzero(np.max(away, axis=0) > share)
    return int(found[0]) if len(found) else None


def table(found: Mapping[str, Mapping[str, Sequence[Run]]]) -> list[str]:
    """A row for each problem, of the runs by kind of processor and problem."""
    rows = [" | ".join(["| ", "any bit", "0.1 %", "10 %", *(f"best: {kind}" for kind in found)]) + " |"]
    rows.append("|---" * (1 + len(SHARES) + len(found)) + "|")
    for name in NAMES:
        pairs = [
            pair for one, other in combinations(found.values(), 2) for pair in zip(one[name], other[name], strict=True)
        ]
        firsts = (first_difference(pairs, share) for share in SHARES)
        cells = ["–" if first is None else str(first) for first in firsts]
        cells += [f"{np.median([best for _, best in runs[name]]):.2g}" for runs in found.values()]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--play", action="store_true", help="print the runs of this processor as JSON, and no table")
    given = parser.parse_args()
    if given.play:
        print(json.dumps({name: [played(name, seed, given.trials) for seed in range(given.seeds)] for name in NAMES}))
    else:
        print("\n".join(table({kind: on(kind, given.trials, given.seeds) for kind in given.kinds})))


if __name__ == "__main__":
    main()
