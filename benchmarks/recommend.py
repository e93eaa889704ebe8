"""Under noise, is what the model recommends better than the best value? ``python -m benchmarks.recommend``.

After 60 evaluations of four noisy functions: the true values of the best and of the recommended configuration (small is
good), their paired difference with its standard error, how often the 95 % interval has the true value, and how far the
best value and the model's median are from the truth. The variance of the noise is learned, or told.
"""

import argparse
from collections.abc import Callable

import numpy as np

from lazybo import Optimizer
from lazybo.core import Array

EVALUATIONS = 60
# Other seeds than those on which `REAL_SHARE` was chosen.
FIRST_SEED = 1000


def bowl(x: Array) -> float:
    return float(np.sum((x - 1) ** 2))


def levy(x: Array) -> float:
    w = 1 + (x - 1) / 4
    inner = np.sum((w[:-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:-1] + 1) ** 2))
    return float(np.sin(np.pi * w[0]) ** 2 + inner + (w[-1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[-1]) ** 2))


def rastrigin(x: Array) -> float:
    return float(10 * len(x) + np.sum((x - 1) ** 2 - 10 * np.cos(2 * np.pi * (x - 1))))


def error_rate(x: Array) -> float:
    """Between 0 and 1, in steps of a thousandth."""
    return float(1 - np.round(1 / (1 + bowl(x) / 20), 3))


# Name, function, dimension, standard deviation of the noise.
PROBLEMS: list[tuple[str, Callable[[Array], float], int, float]] = [
    ("bowl", bowl, 3, 3.0),
    ("levy", levy, 4, 2.0),
    ("rastrigin", rastrigin, 3, 5.0),
    ("error rate", error_rate, 3, 0.03),
]


def one_run(f: Callable[[Array], float], dim: int, noise: float, told: bool, seed: int) -> list[float]:
    """True values of best and recommended, 1 if the interval has the latter, errors of best value and median."""
    rng, optimizer = np.random.default_rng(seed), Optimizer({f"x{i}": (-5.0, 5.0) for i in range(dim)}, seed=seed)
    for _ in range(EVALUATIONS):
        suggestion = optimizer.ask()
        value = f(np.array(list(suggestion.params.values()))) + noise * rng.standard_normal()
        optimizer.tell(suggestion, value, variance=noise**2 if told else 0.0)
    best, found = optimizer.best, optimizer.recommend()
    truths = [f(np.array(list(params.values()))) for params in (best.params, found.params)]
    covered = float(found.low <= truths[1] <= found.high)
    return [*truths, covered, best.value - truths[0], found.value - truths[1]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=16)
    seeds = range(FIRST_SEED, FIRST_SEED + parser.parse_args().seeds)
    print("| noise | function | best | recommended | difference | in interval | best value - truth | median - truth |")
    print("|---|---|---|---|---|---|---|---|")
    for told in (False, True):
        for name, f, dim, noise in PROBLEMS:
            runs = np.array([one_run(f, dim, noise, told, seed) for seed in seeds])
            difference = runs[:, 1] - runs[:, 0]
            error = difference.std(ddof=1) / np.sqrt(len(runs))
            best, recommended, _, luck, bias = (f"{mean:.3g}" for mean in runs.mean(axis=0))
            covered = f"{int(runs[:, 2].sum())} of {len(runs)}"
            print(
                f"| {'told' if told else 'learned'} | {name} | {best} | {recommended} | {difference.mean():.2g} ± "
                f"{error:.2g} | {covered} | {luck} | {bias} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
