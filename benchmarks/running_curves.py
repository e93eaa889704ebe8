"""Does it help to learn from trainings that still run? `python -m benchmarks.running_curves`.

Four workers train at once, on a simulated clock: an epoch of a training takes 0.6 to 1.6 units of time. Whenever one
ends, the next is proposed, with and without forecasts of the three that run. Nothing is stopped. The problem is a bumpy
bowl of three parameters, another one for each seed; the regret is that of the best training that has ended.
"""

import argparse
import heapq
import math

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from lazybo.core.checks import Array
from lazybo.search.optimizer import Optimizer
from lazybo.study.model import StudyModel

EPOCHS, WORKERS, TRAININGS = 20, 4, 28
SHOWN = (10, 16, 22, 28)
SPACE: dict[str, BaseDistribution] = {name: FloatDistribution(0, 1) for name in "abc"}


def end_of(trial: FrozenTrial, seed: int) -> float:
    """The regret of a training that has ended."""
    z = np.array([trial.params[name] for name in SPACE]) - np.random.default_rng(seed).uniform(0.2, 0.8, len(SPACE))
    return float(z * z @ [1.0, 0.6, 0.3]) + 0.15 * (1 - math.cos(6 * z[0]))


def train(trial: FrozenTrial, epochs: int, seed: int) -> None:
    """Report the values up to an epoch."""
    for epoch in range(len(trial.intermediate_values) + 1, epochs + 1):
        trial.intermediate_values[epoch] = end_of(trial, seed) + 0.8 * math.exp(-0.25 * epoch)


def regrets(seed: int, *, watches: bool) -> Array:
    """The best regret after each training."""
    rng, model = (
        np.random.default_rng(seed + 100),
        StudyModel(Optimizer(SPACE, seed=seed)),
    )
    model.watches = watches
    trials: list[FrozenTrial] = []
    ends: list[tuple[float, float, int]] = []  # when a training ends, when it has begun, its number

    def start(now: float) -> None:
        number, params = len(trials), model.propose(len(trials))[0]
        trials.append(create_trial(state=TrialState.RUNNING, params=params, distributions=SPACE))
        trials[-1].number = number
        model.announce(number, params)
        heapq.heappush(ends, (now + EPOCHS * rng.uniform(0.6, 1.6), now, number))

    for _ in range(WORKERS):
        start(0.0)
    found = []
    while ends:
        now, _, number = heapq.heappop(ends)
        for end, begin, running in ends:
            train(trials[running], int(EPOCHS * (now - begin) / (end - begin)), seed)
        ended = trials[number]
        train(ended, EPOCHS, seed)
        ended.state, ended.values = TrialState.COMPLETE, [ended.intermediate_values[EPOCHS]]
        found.append(end_of(ended, seed))
        model.absorb(trials, -1)
        if len(trials) < TRAININGS:
            start(now)
    return np.minimum.accumulate(found)


def main() -> None:
    """Print the mean logarithms of the regrets, and their paired differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 8), metavar=("FIRST", "END"))
    seeds = range(*parser.parse_args().seeds)
    logs = np.log10([[regrets(seed, watches=watches) for seed in seeds] for watches in (False, True)])
    without, watched = logs[:, :, [count - 1 for count in SHOWN]]
    difference = watched - without
    error = difference.std(axis=0, ddof=1) / math.sqrt(len(seeds))
    print("trainings  without  with  difference ± error  wins")
    for i, count in enumerate(SHOWN):
        means = (
            f"{without[:, i].mean():.2f}  {watched[:, i].mean():.2f}  {difference[:, i].mean():+.2f} ± {error[i]:.2f}"
        )
        print(f"{count:9}  {means}  {(difference[:, i] < 0).sum()} of {len(seeds)}")


if __name__ == "__main__":
    main()
