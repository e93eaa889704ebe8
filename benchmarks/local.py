"""One model of all observations beside local models that take over early: ``python -m benchmarks.local``.

The same runs up to ``--after`` evaluations; then one of them goes on with regions (`lazybo.search.regions`). The table
has the log10 of the distance to the optimum, and the milliseconds of CPU time of a step in the last 100 evaluations
before each checkpoint. Each run is a row of a CSV file; recorded runs are not run again.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks import problems
from benchmarks.paper.tables import markdown
from benchmarks.run import RESULTS
from benchmarks.runner import append, read
from lazybo import Optimizer

CHECKPOINTS = (500, 600, 750, 1000, 1500)
PROBLEMS = [
    *("levy-5d", "bbob-f8-5d", "bbob-f15-5d", "bbob-f21-5d"),
    *("levy-10d", "bbob-f3-10d", "bbob-f8-10d", "bbob-f15-10d", "bbob-f21-10d"),
    *("levy-20d", "bbob-f8-20d", "bbob-f15-20d", "bbob-f21-20d"),
]
FIELDS = ("problem", "after", "seed", *(f"d{n}" for n in CHECKPOINTS), *(f"ms{n}" for n in CHECKPOINTS))
FLOOR = 1e-8
WINDOW = 100
NEVER = "never"


def run_one(name: str, after: str, seed: int) -> dict[str, object]:
    """One run as a row."""
    problem = problems.load(name, 1 + seed % 5)
    optimizer = Optimizer(problem.space, seed=seed, local_after=None if after == NEVER else int(after))
    row: dict[str, object] = {"problem": name, "after": after, "seed": seed}
    best, seconds = np.inf, []
    for n in range(1, CHECKPOINTS[-1] + 1):
        start = time.process_time()
        suggestion = optimizer.ask()
        seconds.append(time.process_time() - start)
        value = problem.objective(suggestion.params)
        optimizer.tell(suggestion, value)
        best = min(best, value - problem.optimum)
        if n in CHECKPOINTS:
            row[f"d{n}"] = f"{np.log10(max(best, FLOOR)):.3f}"
            row[f"ms{n}"] = f"{1e3 * np.mean(seconds[-WINDOW:]):.1f}"
    return row


def report(path: Path) -> str:
    """A row for each problem with both runs, and their means."""
    rows = {(row["problem"], row["seed"], row["after"]): row for row in read(path)}
    runs = [(name, seed) for name, seed, after in rows if after == NEVER]
    body = []
    for other in sorted({after for *_, after in rows} - {NEVER}):
        pairs = [
            (rows[name, seed, NEVER], rows[name, seed, other]) for name, seed in runs if (name, seed, other) in rows
        ]
        for one, local in pairs:
            cells = [f"{one[f'd{n}']} / {local[f'd{n}']}" for n in CHECKPOINTS]
            body.append([f"{one['problem']}, seed {one['seed']}", *cells])
        for label, kind in (("mean log10 distance", "d"), ("mean ms of a step", "ms")):
            values = np.array([[[float(row[f"{kind}{n}"]) for n in CHECKPOINTS] for row in pair] for pair in pairs])
            one, local = values.mean(axis=0)
            body.append([label, *(f"{a:.2f} / {b:.2f}" for a, b in zip(one, local, strict=True))])
    return markdown(["all in one model / local models", *map(str, CHECKPOINTS)], body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, default=RESULTS / "local.csv")
    parser.add_argument("--after", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=10)
    parser.add_argument("--problems", nargs="+", default=PROBLEMS)
    options = parser.parse_args()
    done = {(row["problem"], row["after"], row["seed"]) for row in read(options.csv)}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for name in options.problems:
            for after in (NEVER, str(options.after)):
                if (name, after, str(seed)) not in done:
                    append(options.csv, FIELDS, run_one(name, after, seed))
    print(report(options.csv))


if __name__ == "__main__":
    main()
