"""How far runs with the same seed differ between processors: ``python -m benchmarks.processors``.

Every run is made here and as on other processors (``tools/processor.py``). For each problem the table has the number of
the first suggestion that differs in any bit, and of the first that differs by more than a thousandth and a tenth of a
range, at the earliest over seeds and processors; and the mean regret after the last trial, for each processor.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from lazybo import Optimizer

TOOL = Path(__file__).parents[1] / "tools" / "processor.py"
KINDS = ("here", "Prescott", "Nehalem", "Haswell")
# Shares of a range; and "any bit".
STEPS = (0.0, 1e-3, 1e-1)


def valley(x: float, y: float) -> float:
    return 100.0 * (y - x * x) ** 2 + (1.0 - x) ** 2


def training(rate: float, width: int, kind: str, dropout: float) -> float:
    gap = math.log10(rate) + 2.0
    return gap**2 + abs(math.log2(width) - 6.0) + 0.3 * (kind == "sgd") + (dropout - 0.2) ** 2


def waves(**values: float) -> float:
    return sum(value * value + 0.3 * (1.0 - math.cos(7.0 * value)) for value in values.values())


# The space and the objective; all optima are 0.
PROBLEMS: dict[str, tuple[dict[str, Any], Callable[..., float]]] = {
    "valley": ({"x": (-2.0, 2.0), "y": (-2.0, 2.0)}, valley),
    "waves": ({f"x{j}": (-1.5, 2.0) for j in range(5)}, waves),
    "training": (
        {"rate": (1e-5, 1.0, "log"), "width": (8, 512, "log"), "kind": ["adam", "sgd"], "dropout": (0.0, 0.9)},
        training,
    ),
}
Found = tuple[list[list[float]], list[float]]  # the points of a run, and its values


def played(name: str, seed: int, trials: int) -> Found:
    """A run on this processor."""
    space, objective = PROBLEMS[name]
    optimizer = Optimizer(space, seed=seed)
    points, values = [], []
    for _ in range(trials):
        suggestion = optimizer.ask()
        points.append(optimizer.space.encode(suggestion.params).tolist())
        values.append(objective(**suggestion.params))
        optimizer.tell(suggestion, values[-1])
    return points, values


def on(kind: str, trials: int, seeds: int) -> dict[str, list[Found]]:
    """All runs as on this kind of processor."""
    command = [sys.executable, "-m", "benchmarks.processors", "--play", "--trials", str(trials), "--seeds", str(seeds)]
    if kind != "here":
        command = [sys.executable, str(TOOL), kind, *command]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - our own program
    return dict(json.loads(done.stdout.splitlines()[-1]))


def first_difference(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]], share: float) -> int | None:
    """The first trial in which a coordinate differs by more than this share of its range."""
    away = np.abs(np.array(one) - np.array(other)).max(axis=1)
    found = np.flatnonzero(away > share)
    return int(found[0]) if len(found) else None


def table(found: Mapping[str, Mapping[str, Sequence[Found]]]) -> list[str]:
    """The rows for problems, of the runs by kind of processor and problem."""
    rows = [
        "| | any bit | 0.1 % | 10 % | regret: " + " | ".join(found) + " |",
        "|---" * (len(STEPS) + len(found) + 1) + "|",
    ]
    for name in PROBLEMS:
        pairs = [
            (a[0], b[0])
            for one, other in combinations(found.values(), 2)
            for a, b in zip(one[name], other[name], strict=True)
        ]
        firsts = [[first_difference(a, b, share) for a, b in pairs] for share in STEPS]
        cells = [min((each for each in first if each is not None), default="–") for first in firsts]
        regrets = [f"{np.mean([min(values) for _, values in runs[name]]):.1e}" for runs in found.values()]
        rows.append("| " + " | ".join([name, *map(str, cells), *regrets]) + " |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--play", action="store_true", help="print the runs of this processor as JSON, and no table")
    given = parser.parse_args()
    if given.play:
        print(
            json.dumps({name: [played(name, seed, given.trials) for seed in range(given.seeds)] for name in PROBLEMS})
        )
    else:
        print("\n".join(table({kind: on(kind, given.trials, given.seeds) for kind in given.kinds})))


if __name__ == "__main__":
    main()
