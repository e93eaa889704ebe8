"""What each default is worth: ``python -m benchmarks.ablation``. One choice changed at a time, over the open set.

Mean regret and mean log10 regret after 25 and 50 evaluations. With few seeds, differences below about 0.005 are noise.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks import problems
from benchmarks.optimizers import lazybo
from lazybo.fit import Priors
from lazybo.targets import Warping, standardize

CHECKPOINTS = (25, 50)


def unbent(y: np.ndarray) -> Warping:
    """Standardisation alone."""
    _, shift, scale = standardize(y)
    return Warping(shift, scale, 1.0, 0.0, 1.0)


# Options of the optimiser; "unbent" stands for standardised values instead of warped ones.
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "values standardised, not warped": {"unbent": True},
    "length scales 0.3 √d": {"priors": Priors(length_scale=0.3)},
    "length scales 1.0 √d": {"priors": Priors(length_scale=1.0)},
    "choices as near as numbers (0.5 √d)": {"priors": Priors(choice_length_scale=0.5)},
    "choices 2.5 √d": {"priors": Priors(choice_length_scale=2.5)},
    "output scale 3": {"priors": Priors(output_scale=3.0)},
    "noise 1e-3": {"priors": Priors(noise=1e-3)},
    "1 startup point": {"n_startup": 1},
    "10 startup points": {"n_startup": 10},
    "lag 1": {"lag": 1},
    "lag 10": {"lag": 10},
    "lag None": {"lag": None},
    "EI instead of log EI": {"acquisition": "ei"},
    "UCB": {"acquisition": "ucb"},
}


def regrets(run: Callable[[problems.Problem, int], Iterator[float]], names: list[str], seeds: int) -> np.ndarray:
    """Regrets at the checkpoints, (runs, checkpoints)."""
    rows = []
    for name in names:
        for seed in range(seeds):
            problem = problems.load(name, 1 + seed % 5)
            best = np.minimum.accumulate(list(islice(run(problem, seed), CHECKPOINTS[-1])))
            rows.append([problem.regret(best[n - 1]) for n in CHECKPOINTS])
    return np.array(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--problems", nargs="+", default=problems.names())
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    options = parser.parse_args()
    print(f"| {len(options.problems)} problem(s), {options.seeds} seeds | regret 25 | 50 | log10 25 | 50 | ms a step |")
    print("|---|---|---|---|---|---|")
    for label in options.variants:
        variant = VARIANTS[label]
        settings = {key: value for key, value in variant.items() if key != "unbent"}
        start = time.perf_counter()
        if "unbent" in variant:
            with patch("lazybo.optimizer.warping", unbent):
                found = regrets(lazybo(**settings), options.problems, options.seeds)
        else:
            found = regrets(lazybo(**settings), options.problems, options.seeds)
        step = 1e3 * (time.perf_counter() - start) / found.shape[0] / CHECKPOINTS[-1]
        means = [*np.mean(found, axis=0), *np.mean(np.log10(np.maximum(found, 1e-6)), axis=0)]
        cells = f"{means[0]:.4f} | {means[1]:.4f} | {means[2]:.2f} | {means[3]:.2f} | {step:.1f}"
        print(f"| {label} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
