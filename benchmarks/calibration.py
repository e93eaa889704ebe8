"""How often is the model right? ``python -m benchmarks.calibration`` prints the error rates of its 95 % intervals.

A run of the optimiser stops after 25, 50 and 100 evaluations. Does the interval of `predict` contain the true value

- at random points,
- at those of the best: the 20 of 200 random points that are predicted to be best,
- at the recommended configuration?

The suites are real trainings, the open set, the suite "noise", and real trainings with noise of a quarter of the range
of their values ("noisy trainings"); the last rows have trainings that a pruner stops early (`benchmarks.coverage`).
Beside it: the mean log density of the true values and their continuous ranked probability score (CRPS), both in units
of the warped values. Each run is a row of ``results/calibration.csv``; recorded runs are not run again.
"""

import argparse
import time
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import optuna
from scipy.special import logsumexp, ndtr

from benchmarks import coverage
from benchmarks.paper.tables import markdown
from benchmarks.problems import SUITES, Problem, load
from benchmarks.run import RESULTS
from benchmarks.runner import append, read
from lazybo import Optimizer, Prediction
from lazybo.core import Array
from lazybo.search import Predictor

CHECKPOINTS = (25, 50, 100)
POINTS, BEST = 200, 20
# The deviation of the noise of noisy trainings, as a share of the distance from the optimum to a bad value.
NOISE, BAD = 0.25, 90
# A log density is at least this: one hopeless point must not decide about the mean.
LEAST_DENSITY = -20.0
# Values of a CRPS are integrated over this grid, in standard deviations around the means.
GRID = np.linspace(-6.0, 6.0, 121)
WIDENED = Predictor.widths()["widened"]
FIELDS = ("suite", "problem", "seed", "n", "random", "best", "recommended", "density", "best density", "crps")
FIRST_SEED = 700_000
KINDS = ("trainings", "open", "noise", "noisy trainings", "pruned")


def noise_of(problem: Problem, optimizer: Optimizer, seed: int) -> float:
    """The standard deviation of the noise of noisy trainings."""
    space = optimizer.space
    values = [
        problem.objective(space.points.decode(x)) for x in space.points.sample(np.random.default_rng((seed, 6)), POINTS)
    ]
    return NOISE * float(np.percentile(values, BAD) - problem.optimum)


def contains(predictions: Iterable[Prediction], truths: Array) -> float:
    """The share of intervals that contain the truth."""
    return float(np.mean([each.low <= true <= each.high for each, true in zip(predictions, truths, strict=True)]))


def densities(found: tuple[Array, Array, Array], targets: Array, widening: float = WIDENED) -> Array:
    """The logarithm of the density of each target, (m,); ``found`` has log weights, means and deviations."""
    log_weights, mean, std = found
    std = np.maximum(widening * std, 1e-9)
    logs = log_weights[:, None] - 0.5 * ((targets - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    return np.maximum(logsumexp(logs, axis=0), LEAST_DENSITY)


def crps(found: tuple[Array, Array, Array], targets: Array, widening: float = WIDENED) -> float:
    """∫ (F(x) - 1[t ≤ x])² dx, the mean over the targets; F is the distribution of the mixture."""
    log_weights, means, stds = found
    weights, scores = np.exp(log_weights), []
    for mean, std, target in zip(means.T, np.maximum(widening * stds, 1e-9).T, targets, strict=True):
        grid = np.unique(np.concatenate(((mean[:, None] + std[:, None] * GRID).ravel(), [target])))
        middle, step = 0.5 * (grid[1:] + grid[:-1]), np.diff(grid)
        below = weights @ ndtr((middle - mean[:, None]) / std[:, None])
        scores.append(float(np.sum((below - (middle >= target)) ** 2 * step)))
    return float(np.mean(scores))


def one_run(suite: str, name: str, seed: int) -> list[dict[str, object]]:
    """One row for each number of evaluations."""
    problem = load(name, instance=1 + seed % 5)
    found = figures(problem, seed, CHECKPOINTS, noisy=suite == "noisy trainings")
    texts = {n: [f"{figure:.5g}" for figure in row] for n, row in found.items()}
    return [dict(zip(FIELDS, (suite, name, seed, n, *row), strict=True)) for n, row in texts.items()]


def figures(problem: Problem, seed: int, checkpoints: Sequence[int], *, noisy: bool) -> dict[int, list[float]]:
    """The figures of a row, from `random` on, after each number of evaluations of a run."""
    optimizer, rng = Optimizer(problem.space, seed=seed), np.random.default_rng((seed, 7))
    deviation = noise_of(problem, optimizer, seed) if noisy else 0.0
    points = optimizer.space.points.sample(np.random.default_rng((seed, 5)), POINTS)
    configurations = [optimizer.space.points.decode(point) for point in points]
    truths = np.array([problem.objective(params) for params in configurations])
    found = {}
    for n in range(1, checkpoints[-1] + 1):
        suggestion = optimizer.ask()
        noise = deviation * float(rng.standard_normal())
        optimizer.tell(suggestion, problem.observed(suggestion.params, rng) + noise)
        if n in checkpoints:
            found[n] = measured(optimizer, points, configurations, truths, problem)
    return found


def measured(
    optimizer: Optimizer, points: Array, configurations: Sequence[dict[str, object]], truths: Array, problem: Problem
) -> list[float]:
    """The figures of an optimiser as it is."""
    predictor, predictions = optimizer.model.predictor(), optimizer.predict(configurations)
    best = np.argsort(predictor.means(points), kind="stable")[:BEST]
    found = predictor.posterior.components(optimizer.space.points.as_rows(points))
    targets = predictor.warping(truths)
    recommended = optimizer.recommend()
    true = problem.objective(recommended.params)
    logs = densities(found, targets)
    return [
        contains(predictions, truths),
        contains([predictions[i] for i in best], truths[best]),
        float(recommended.low <= true <= recommended.high),
        float(logs.mean()),
        float(logs[best].mean()),
        crps(found, targets),
    ]


def pruned(seed: int) -> list[dict[str, object]]:
    """Studies of 30 noisy trainings that `LazyPruner` stops early: only the recommendation counts."""
    outcomes = [coverage.outcome(coverage.run("LazyPruner", same, seed)).covered for same in (False, True)]
    return [
        dict(zip(FIELDS, ("pruned", kind, seed, coverage.TRIALS, "", "", int(covered), "", "", ""), strict=True))
        for kind, covered in zip(("by epoch", "by training"), outcomes, strict=True)
    ]


def problems_of(suite: str) -> list[str]:
    """The names of the problems of a suite, as here."""
    return SUITES["trainings" if suite == "noisy trainings" else suite]


def run_all(path: Path, kinds: Sequence[str], seeds: range, each: int, limit: float) -> None:
    """Append the runs that ``path`` does not have. Each seed has the next ``each`` problems of every suite."""
    start, done = time.perf_counter(), {(row["suite"], row["problem"], int(row["seed"])) for row in read(path)}
    for i, seed in enumerate(seeds):
        for suite in kinds:
            if time.perf_counter() - start > limit:
                return
            if suite == "pruned":
                if ("pruned", "by epoch", seed) not in done:
                    for row in pruned(seed):
                        append(path, FIELDS, row)
                continue
            names = problems_of(suite)
            for name in (names[(i * each + k) % len(names)] for k in range(min(each, len(names)))):
                if (suite, name, seed) not in done:
                    for row in one_run(suite, name, seed):
                        append(path, FIELDS, row)


def table(rows: Sequence[dict[str, str]]) -> str:
    """One line for each suite and number of evaluations; the standard errors count runs as independent."""
    lines = []
    for suite in KINDS:
        for n in (coverage.TRIALS,) if suite == "pruned" else CHECKPOINTS:
            chosen = [row for row in rows if (row["suite"], int(row["n"])) == (suite, n)]
            if not chosen:
                continue
            cells = []
            for field in FIELDS[4:]:
                numbers = np.array([float(row[field]) for row in chosen if row[field] != ""])
                error = numbers.std() / np.sqrt(len(numbers)) if len(numbers) else 0.0
                digits = f"{numbers.mean():.3f} ± {error:.3f}" if len(numbers) else ""
                cells.append(digits if field in ("random", "best", "recommended") else digits.partition(" ±")[0])
            lines.append([suite, str(n), str(len(chosen)), *cells])
    heads = ("suite", "after", "runs", "random points", "predicted best", "recommended")
    return markdown((*heads, "log density", "of the best", "CRPS"), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, default=RESULTS / "calibration.csv")
    parser.add_argument("--suites", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--each", type=int, default=9, help="problems of each suite for every seed")
    parser.add_argument("--limit", type=float, default=float("inf"), help="start no run after so many seconds")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_all(options.csv, options.suites, seeds, options.each, options.limit)
    print(table([row for row in read(options.csv) if int(row["seed"]) in seeds]))


if __name__ == "__main__":
    main()
