"""What an exact linear part of the kernel would add on structured values.

    python -m benchmarks.linear [--problems cells gnn] [--seeds 3]

The model is learned from random solutions as usual. Then a linear kernel of its features is added, Σⱼ zⱼ zⱼ' in units
of the learned length scales, and the scales of both parts are chosen from a grid: those that make the observations most
probable. Printed is by how much they are more probable than without the linear part, and how well each model predicts
other random solutions: the rank correlation, and the mean log density.

As a check that the method can see a linear part, each problem is also played with a linear function of its features as
the objective ("linear"): there the linear part must help.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from benchmarks.paper.tables import markdown
from benchmarks.structured import chosen
from benchmarks.structures import PROBLEMS, Problem
from lazybo.core.checks import Array
from lazybo.gp.evidence import likelihood
from lazybo.search.optimizer import Optimizer
from lazybo.space.space import Space

OBSERVED, PREDICTED = (50, 150), 400
# The scales of the learned kernel, and of the linear one: a random solution has a variance of 1 in it.
SCALES, LINEAR = (0.25, 0.5, 1.0), (0.03, 0.1, 0.3, 1.0, 3.0)

Objective = Callable[[Space, Array, list[dict[str, Any]]], Array]


def real(problem: Problem) -> Objective:
    """The values of the problem."""

    def values(_space: Space, _points: Array, solutions: list[dict[str, Any]]) -> Array:
        return np.array([problem.value(problem.shape.from_structured(params)) for params in solutions])

    return values


def linear(space: Space, points: Array, _solutions: list[dict[str, Any]]) -> Array:
    """A linear function of the points, with random weights."""
    return points @ np.random.default_rng(1).standard_normal(space.dim)


def learned(space: Space, objective: Objective, seed: int, n: int) -> tuple[Array, Array, float, Array]:
    """K of observed and other solutions, their features for the linear part, the noise, and all targets."""
    optimizer = Optimizer(space, seed=seed, deterministic=True)
    x = space.sample(np.random.default_rng(seed), n + PREDICTED)
    solutions = [space.values(params) for params in space.decode_all(x)]
    values = objective(space, x, solutions)
    for params, value in zip(solutions[:n], values.tolist(), strict=False):
        optimizer.observe(params, value)
    process, warping = optimizer.model.surrogate()
    z = process.kernel.features(x)
    z = (z - z[:n].mean(axis=0)) / np.sqrt(z[:n].var(axis=0).sum())
    return process.kernel(x), z, process.noise, np.asarray(warping(values))


def compared(covariance: Array, z: Array, noise: float, targets: Array, n: int) -> list[float]:
    """The gain in log evidence, then rank correlation and log density without and with a linear part."""
    alone = [scale * covariance for scale in SCALES]
    found = []
    for candidates in (alone, [each + scale * (z @ z.T) for each in alone for scale in LINEAR]):
        logs = [likelihood(k[:n, :n] + noise * np.eye(n), targets[:n])[0] for k in candidates]
        best = int(np.argmax(logs))
        found.append((logs[best], *predicted(candidates[best], noise, targets, n)))
    (before, *without), (after, *with_it) = found
    return [after - before, without[0], with_it[0], without[1], with_it[1]]


def predicted(covariance: Array, noise: float, targets: Array, n: int) -> tuple[float, float]:
    """Rank correlation and mean log density of the predictions for the rows after the first n."""
    cross, inside = covariance[n:, :n], covariance[:n, :n] + noise * np.eye(n)
    mean = cross @ np.linalg.solve(inside, targets[:n])
    variance = np.diagonal(covariance)[n:] - np.vecdot(cross, np.linalg.solve(inside, cross.T).T) + noise
    density = -0.5 * (np.log(2 * np.pi * variance) + (targets[n:] - mean) ** 2 / variance)
    ranks = np.corrcoef(rankdata(mean), rankdata(targets[n:]))[0, 1]
    return float(ranks), float(density.mean())


def rows(names: Sequence[str], seeds: int) -> list[list[str]]:
    """A row for each problem, objective and number of observations."""
    lines = []
    for name in names:
        problem = PROBLEMS[name]()
        space = Space(problem.shape.structured)
        for label, objective in ((name, real(problem)), (f"{name}, linear", linear)):
            for n in OBSERVED:
                runs = [compared(*learned(space, objective, seed, n), n) for seed in range(seeds)]
                gain, *others = np.mean(runs, axis=0)
                lines.append([label, str(n), f"{gain:+.1f}", *(f"{each:.3f}" for each in others)])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", default=[], help="problems or families instead of all")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    head = ["", "n", "gain in nats", "rank", "rank with it", "log density", "log density with it"]
    print(markdown(head, rows(chosen(options.problems), options.seeds)))


if __name__ == "__main__":
    main()
