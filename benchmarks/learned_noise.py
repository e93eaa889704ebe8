"""Does the model find noise, and none where there is none? ``python -m benchmarks.learned_noise``.

First, 60 random points of smooth functions with noise of 15 % and 62 % of the variance: in how many seeds is the
learned noise within a factor of two of the truth? Then runs of 100 evaluations without noise on rugged functions: in
how many is the learned noise at most 0.001, and how many evaluations did they repeat to find out?
"""

import argparse
from collections.abc import Callable

import numpy as np

from benchmarks import problems
from lazybo import Optimizer
from lazybo.core.checks import Array

POINTS = 60
# The priors were chosen on seeds 0 to 19.
FIRST_SEED = 100
WITHOUT_NOISE = ("bbob-f3-5d", "bbob-f15-5d", "levy-5d")
EVALUATIONS = 100
LEAST_NOISE = 1e-3


def bowl(x: Array, _seed: int) -> Array:
    return np.sum((x - 0.4) ** 2, axis=1)


def waves(x: Array, _seed: int) -> Array:
    return np.sin(3 * x).sum(axis=1) + 2 * x[:, 0] * x[:, -1]


def draw(x: Array, seed: int) -> Array:
    """A smooth random function: random Fourier features of a Gaussian kernel."""
    rng, features, dim = np.random.default_rng(seed + 999), 200, x.shape[1]
    frequencies = rng.standard_normal((features, dim)) / (0.5 * np.sqrt(dim))
    phases, weights = rng.uniform(0, 2 * np.pi, features), rng.standard_normal(features)
    return np.cos(x @ frequencies.T + phases) @ weights * np.sqrt(2 / features)


FUNCTIONS: dict[str, Callable[[Array, int], Array]] = {"bowl": bowl, "random draw": draw, "waves": waves}


def ratio(function: Callable[[Array, int], Array], dim: int, share: float, seed: int) -> float:
    """The learned noise variance over the true one."""
    rng = np.random.default_rng(seed)
    x = rng.random((POINTS, dim))
    noise = function(rng.random((5000, dim)), seed).var() * share / (1 - share)
    y = function(x, seed) + np.sqrt(noise) * rng.standard_normal(POINTS)
    optimizer = Optimizer({f"x{j}": (0.0, 1.0) for j in range(dim)}, seed=seed)
    for point, value in zip(x.tolist(), y.tolist(), strict=True):
        optimizer.observe({f"x{j}": u for j, u in enumerate(point)}, value)
    # The process has values with variance 1; a warp of values that are nearly normal hardly changes that.
    return float(optimizer.model.surrogate()[0].noise * y.var() / noise)


def without_noise(name: str, seed: int) -> tuple[float, int]:
    """The noise learned in a run without any, and the number of repeated evaluations."""
    problem = problems.load(name, instance=1 + seed % 5)
    optimizer, points = Optimizer(problem.space, seed=seed), set()
    for _ in range(EVALUATIONS):
        suggestion = optimizer.ask()
        points.add(tuple(suggestion.params.values()))
        optimizer.tell(suggestion, problem.objective(suggestion.params))
    return optimizer.model.surrogate()[0].noise, EVALUATIONS - len(points)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = range(FIRST_SEED, FIRST_SEED + parser.parse_args().seeds)
    print(f"| {POINTS} points: within a factor of two | " + " | ".join(FUNCTIONS) + " |")
    print("|---" * (len(FUNCTIONS) + 1) + "|")
    for dim in (2, 5):
        for share in (0.15, 0.62):
            ratios = [[ratio(each, dim, share, seed) for seed in seeds] for each in FUNCTIONS.values()]
            cells = [f"{sum(0.5 <= each <= 2.0 for each in found)} of {len(seeds)}" for found in ratios]
            print(f"| {dim}-D, {share:.0%} noise | " + " | ".join(cells) + " |", flush=True)
    print(f"\n| {EVALUATIONS} evaluations without noise | learned noise ≤ {LEAST_NOISE:g} | repeats in the mean |")
    print("|---|---|---|")
    for name in WITHOUT_NOISE:
        found = [without_noise(name, seed) for seed in seeds]
        quiet = sum(noise <= LEAST_NOISE * (1 + 1e-9) for noise, _ in found)
        print(f"| {name} | {quiet} of {len(seeds)} | {np.mean([count for _, count in found]):.2f} |", flush=True)


if __name__ == "__main__":
    main()
