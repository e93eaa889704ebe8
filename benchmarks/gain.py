"""Is the expected gain honest? ``python -m benchmarks.gain``.

On the open set: what `Optimizer.expected_gain` expects of the next 10 and 50 evaluations after 25, 50 and 100, and what
they gained, in units of each problem's scale (1 is the median regret of random points). Beside it what the model alone
expects (``played``). Each prediction is a row of ``results/gain.csv``; recorded runs are not run again. The way to
estimate was chosen on seeds 50 and 51.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from benchmarks import problems
from benchmarks.run import RESULTS
from benchmarks.runner import append, read
from lazybo import Optimizer
from lazybo.core import Array, texts

CHECKPOINTS, HORIZONS = (25, 50, 100), (10, 50)
FIELDS = ("problem", "seed", "n", "horizon", "played", "expected", "realised")
FIRST_SEED = 60
# A prediction is useful if it is within this factor of what happened, or both are below TINY.
FACTOR, TINY = 10.0, 1e-4


def one_run(name: str, seed: int) -> list[dict[str, object]]:
    """The predictions of one run, and what happened."""
    problem = problems.load(name, instance=1 + seed % 5)
    optimizer, best = Optimizer(problem.space, seed=seed), [np.inf]
    found: dict[int, tuple[Array, list[float]]] = {}
    for n in range(1, CHECKPOINTS[-1] + HORIZONS[-1] + 1):
        suggestion = optimizer.ask()
        value = problem.objective(suggestion.params)
        optimizer.tell(suggestion, value)
        best.append(min(best[-1], value))
        if n in CHECKPOINTS:
            parts = optimizer.model.gain_parts(HORIZONS)
            found[n] = parts.played, parts.expected()
    rows = []
    for n, (played, expected) in found.items():
        for i, horizon in enumerate(HORIZONS):
            gains = (played[i], expected[i], best[n] - best[n + horizon])
            texts = [f"{gain / problem.scale:.6g}" for gain in gains]
            rows.append(dict(zip(FIELDS, (name, seed, n, horizon, *texts), strict=True)))
    return rows


def run_all(path: Path, names: list[str], seeds: range, limit: float) -> None:
    """Append the runs that ``path`` does not have yet; start none after ``limit`` seconds."""
    start = time.perf_counter()
    done = {(row["problem"], int(row["seed"])) for row in read(path)}
    for seed in seeds:
        for name in names:
            if (name, seed) not in done and time.perf_counter() - start < limit:
                for row in one_run(name, seed):
                    append(path, FIELDS, row)


def table(rows: list[dict[str, str]]) -> str:
    """Means, ratios, ranks, and both halves of the predictions: the smaller and the larger ones."""
    lines = [
        "| after | next | runs | model alone | expected | realised | expected / realised | no gain | "
        "within a factor of 10 | rank correlation | smaller half: expected, realised | larger half |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for n in CHECKPOINTS:
        for horizon in HORIZONS:
            chosen = [row for row in rows if (int(row["n"]), int(row["horizon"])) == (n, horizon)]
            played, expected, realised = (np.array([float(row[key]) for row in chosen]) for key in FIELDS[4:])
            order = np.argsort(expected, kind="stable")
            halves = [f"{expected[half].mean():.2g}, {realised[half].mean():.2g}" for half in np.array_split(order, 2)]
            near = (expected < FACTOR * realised + TINY) & (realised < FACTOR * expected + TINY)
            cells = [
                *(n, horizon, len(chosen)),
                *(f"{gains.mean():.4f}" for gains in (played, expected, realised)),
                f"{expected.mean() / realised.mean():.2f}",
                *(texts.percent(share.mean()) for share in (realised <= 0, near)),
                f"{spearmanr(expected, realised).statistic:.2f}",
                *halves,
            ]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, default=RESULTS / "gain.csv")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--limit", type=float, default=float("inf"), help="start no run after so many seconds")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_all(options.csv, problems.SUITES["open"], seeds, options.limit)
    print(table([row for row in read(options.csv) if int(row["seed"]) in seeds]))


if __name__ == "__main__":
    main()
