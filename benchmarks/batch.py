"""Compare the two kinds of batches, in rounds of t suggestions: ``python -m benchmarks.batch``.

"maxima" are the t best local maxima of the acquisition, as in the paper. "fantasy" chooses one after the other; earlier
ones are pending for later ones. Mean regret over problems of the open set after 40, 100 and 200 evaluations.
"""

import argparse

import numpy as np

from benchmarks import problems
from benchmarks.optimizers import lazybo
from benchmarks.runner import play

CHECKPOINTS = (40, 100, 200)
BATCHES = ("fantasy", "maxima")


def one_run(name: str, batch: str, size: int, seed: int) -> tuple[list[float], float]:
    """Regrets at the checkpoints, and seconds of the optimiser."""
    problem, budget = problems.load(name, 1 + seed % 5), CHECKPOINTS[-1]
    steps = list(play(problem, lazybo(batch=batch)(problem.space, seed, budget), budget, at_once=size))
    return [steps[n - 1].regret for n in CHECKPOINTS], steps[-1].seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=[5, 20])
    options = parser.parse_args()
    names = problems.names()
    print(f"{len(names)} problems, {options.seeds} seeds")
    print(f"{'t':>4} {'batch':>8} " + " ".join(f"{f'n={n}':>9}" for n in CHECKPOINTS) + f" {'ms/point':>9}")
    for size in options.sizes:
        for batch in BATCHES:
            runs = [one_run(name, batch, size, seed) for name in names for seed in range(options.seeds)]
            means = np.mean([regrets for regrets, _ in runs], axis=0)
            step = 1e3 * sum(spent for _, spent in runs) / len(runs) / CHECKPOINTS[-1]
            print(f"{size:4} {batch:>8} " + " ".join(f"{value:9.4f}" for value in means) + f" {step:9.1f}", flush=True)


if __name__ == "__main__":
    main()
