"""The effect of each default: ``python -m benchmarks.ablation`` changes one option at a time, on the open set.

Mean regret and mean log10 regret after 25 and 50 evaluations. With few seeds, differences below about 0.005 are noise.
"""

import argparse
from typing import Any

import numpy as np

from benchmarks import problems
from benchmarks.optimizers import Make, lazybo
from benchmarks.runner import log10, play
from lazybo.gp.fit import Priors

CHECKPOINTS = (25, 50)


# Options of the optimiser.
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "values standardised, not warped": {"value_transform": "scaled"},
    "length scales 0.3 √d": {"priors": Priors(length_scale=0.3)},
    "length scales 1.0 √d": {"priors": Priors(length_scale=1.0)},
    "choices as near as numbers (0.5 √d)": {"priors": Priors(choice_length_scale=0.5)},
    "choices 2.5 √d": {"priors": Priors(choice_length_scale=2.5)},
    "output scale 3": {"priors": Priors(output_scale=3.0)},
    "noise 1e-3": {"priors": Priors(noise=1e-3)},
    "noise prior's spread 2": {"priors": Priors(noise_spread=2.0)},
    "1 startup point": {"n_startup": 1},
    "10 startup points": {"n_startup": 10},
    "lag 1": {"lag": 1},
    "lag 10": {"lag": 10},
    "lag None": {"lag": None},
    "log EI, also under noise": {"acquisition": "logei"},
    "EI": {"acquisition": "ei"},
    "UCB": {"acquisition": "ucb"},
    "Matérn, strict noise": {"kernel": "matern52", "priors": Priors(noisy_odds=0.0), "acquisition": "logei"},
    "strict noise": {"priors": Priors(noisy_odds=0.0), "acquisition": "logei"},
    "share 0.2": {"priors": Priors(share=0.2)},
    "share's spread 1": {"priors": Priors(share_spread=1.0)},
    "share 0.2, spread 1": {"priors": Priors(share=0.2, share_spread=1.0)},
}


def regrets(make: Make, names: list[str], seeds: int) -> tuple[np.ndarray, float]:
    """Regrets at the checkpoints, (runs, checkpoints), and the optimiser's milliseconds a step."""
    rows, seconds = [], 0.0
    for name in names:
        for seed in range(seeds):
            problem = problems.load(name, 1 + seed % 5)
            steps = list(play(problem, make(problem.space, seed, CHECKPOINTS[-1]), CHECKPOINTS[-1]))
            rows.append([steps[n - 1].regret for n in CHECKPOINTS])
            seconds += steps[-1].seconds
    return np.array(rows), 1e3 * seconds / len(rows) / CHECKPOINTS[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--problems", nargs="+", default=problems.names())
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    options = parser.parse_args()
    print(f"| {len(options.problems)} problem(s), {options.seeds} seeds | regret 25 | 50 | log10 25 | 50 | ms a step |")
    print("|---|---|---|---|---|---|")
    for label in options.variants:
        found, step = regrets(lazybo(**VARIANTS[label]), options.problems, options.seeds)
        means = [*np.mean(found, axis=0), *np.mean(log10(found), axis=0)]
        cells = f"{means[0]:.4f} | {means[1]:.4f} | {means[2]:.2f} | {means[3]:.2f} | {step:.1f}"
        print(f"| {label} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
