"""What an exact linear part of the kernel would add on structured values.

    python -m benchmarks.linear [--problems cells gnn] [--seeds 3]

The model is learned from random solutions as usual. Then a share of its variance becomes a linear kernel of the
features, Σⱼ zⱼ zⱼ', if that makes the observations more probable: the share and the scale are the most probable ones of
a grid. Printed are the shares that were chosen, and how well each model predicts other random solutions: the rank
correlation, and the mean log density.
"""

import argparse
from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from benchmarks.structured import chosen
from benchmarks.structures import PROBLEMS, Problem
from lazybo.core.checks import Array
from lazybo.gp.evidence import likelihood
from lazybo.paper.tables import markdown
from lazybo.search.optimizer import Optimizer

OBSERVED, PREDICTED = (50, 150), 400
SHARES, SCALES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9), (0.5, 1.0, 2.0, 4.0)


def learned(problem: Problem, seed: int, n: int) -> tuple[Array, Array, float, Array]:
    """K of observed and other solutions, the linear features of all, the noise, and the targets of all."""
    optimizer = Optimizer(problem.shape.structured, seed=seed, deterministic=True)
    space = optimizer.space
    x = space.sample(np.random.default_rng(seed), n + PREDICTED)
    solutions = [space.values(params) for params in space.decode_all(x)]
    values = [problem.value(problem.shape.from_structured(params)) for params in solutions]
    for params, value in zip(solutions[:n], values, strict=False):
        optimizer.observe(params, value)
    process, warping = optimizer.model.surrogate()
    z = process.kernel.coordinates.of(x)
    z = (z - z[:n].mean(axis=0)) / np.sqrt(np.maximum(z[:n].var(axis=0).sum(), 1e-12))
    return process.kernel(x), z, process.noise, np.asarray(warping(np.array(values)))


def compared(covariance: Array, z: Array, noise: float, targets: Array, n: int) -> dict[str, float]:
    """The chosen share, and what the model with and without a linear part predicts."""
    scale = float(covariance[0, 0])
    candidates = [
        (1.0 - share) * size * covariance + share * size * scale * (z @ z.T) for share in SHARES for size in SCALES
    ]
    logs = [likelihood(k[:n, :n] + noise * np.eye(n), targets[:n])[0] for k in candidates]
    best = int(np.argmax(logs))
    plain = int(np.argmax(logs[: len(SCALES)]))
    found = {"share": SHARES[best // len(SCALES)], "nats": logs[best] - logs[plain]}
    for name, i in (("plain", plain), ("linear", best)):
        found |= {f"{key} {name}": each for key, each in predicted(candidates[i], noise, targets, n).items()}
    return found


def predicted(covariance: Array, noise: float, targets: Array, n: int) -> dict[str, float]:
    """Rank correlation and mean log density of the predictions for the rows after the first n."""
    cross, inside = covariance[n:, :n], covariance[:n, :n] + noise * np.eye(n)
    mean = cross @ np.linalg.solve(inside, targets[:n])
    variance = np.diagonal(covariance)[n:] - np.vecdot(cross, np.linalg.solve(inside, cross.T).T) + noise
    density = -0.5 * (np.log(2 * np.pi * variance) + (targets[n:] - mean) ** 2 / variance)
    ranks = np.corrcoef(rankdata(mean), rankdata(targets[n:]))[0, 1]
    return {"rank": float(ranks), "density": float(density.mean())}


def rows(names: Sequence[str], seeds: int) -> list[list[str]]:
    """A row for each problem and number of observations."""
    lines = []
    for name in names:
        for n in OBSERVED:
            found = [compared(*learned(PROBLEMS[name](), seed, n), n) for seed in range(seeds)]
            mean = {key: float(np.mean([each[key] for each in found])) for key in found[0]}
            texts = [f"{mean[key]:.3f}" for key in ("rank plain", "rank linear", "density plain", "density linear")]
            lines.append([name, str(n), f"{mean['share']:.2f}", f"{mean['nats']:.1f}", *texts])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", default=[], help="problems or families instead of all")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    head = ["", "n", "linear share", "nats", "rank", "rank with it", "log density", "log density with it"]
    print(markdown(head, rows(chosen(options.problems), options.seeds)))


if __name__ == "__main__":
    main()
