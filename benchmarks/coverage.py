"""Can the recommendation be believed when trainings are stopped early? ``python -m benchmarks.coverage``.

Noisy trainings of 8 epochs, 30 trials, stopped in different ways: never, at random, by `LazyPruner`, or paused and
resumed. Noise is either independent in each epoch or the same in all epochs of a training, as a random seed makes it.
How often does the 95 % interval of the recommended configuration have its true value, how wide is it, how far is the
configuration from the best one, and how far is the predicted value from the truth?
"""

import argparse
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna

import lazybo

TRIALS = 30
EPOCHS = 8
NOISE = 0.03
BEST = 0.95
SPACE = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
# The part of the noise that differs between epochs if most of it is the same in all epochs of a training.
SHARE_OF_EPOCHS = 0.1
# With a share of trainings stopped at random, the first ones run to their ends: a model needs some values.
NEVER_STOPPED = 2
FIRST_SEED = 100


def truth(x: float, y: float) -> float:
    return BEST - 0.3 * (x - 0.3) ** 2 - 0.1 * (y - 0.5) ** 2


def reports(x: float, y: float, rng: np.random.Generator, same: bool) -> list[float]:
    """The values of all epochs of one training; the last one is its final value."""
    common, each = (1.0, SHARE_OF_EPOCHS) if same else (0.0, 1.0)
    noise = NOISE * (common * rng.standard_normal() + each * rng.standard_normal(EPOCHS))
    return [truth(x, y) - 0.4 * math.exp(-(epoch + 1) / 2) + noise[epoch] for epoch in range(EPOCHS)]


def run(
    how: str, same: bool, seed: int, *, trials: int = TRIALS, epochs: tuple[int, int] = (1, EPOCHS - 1)
) -> optuna.Study:
    """A study whose trainings are stopped as ``how`` says: a share at random, "LazyPruner", "confirm" or "paused".

    Those that are stopped at random end after an epoch between the two ``epochs``.
    """

    def generator(number: int) -> np.random.Generator:
        return np.random.default_rng((seed, number))

    def train(x: float, y: float, trial: Any) -> float:
        rng = generator(trial.number)
        values = reports(x, y, rng, same)
        share = float(how.removesuffix("%")) / 100 if how.endswith("%") else 0.0
        stopped = trial.number >= NEVER_STOPPED and rng.random() < share
        stop = int(rng.integers(epochs[0], epochs[1] + 1)) if stopped else EPOCHS
        for epoch, value in enumerate(values, 1):
            trial.report(value, epoch)
            if epoch < EPOCHS and (epoch == stop or trial.should_prune()):
                raise optuna.TrialPruned
        return values[-1]

    def train_in_parts(x: float, y: float, trial: Any, checkpoint: Path) -> Iterator[float]:
        saved = checkpoint / "epoch"
        values = reports(x, y, generator(trial.number), same)
        for epoch in range(int(saved.read_text()) if saved.exists() else 0, EPOCHS):
            saved.write_text(str(epoch + 1))
            yield values[epoch]

    options: dict[str, Any] = {"n_trials": trials, "direction": "maximize", "seed": seed, "progress": False}
    if how == "paused":
        with tempfile.TemporaryDirectory() as folder:
            return lazybo.optimize(train_in_parts, SPACE, max_steps=EPOCHS, checkpoints=folder, **options)
    if how == "confirm":
        options["limits"] = lazybo.Limits(confirm=10)
    pruner = optuna.pruners.NopPruner() if how.endswith("%") else lazybo.LazyPruner()
    return lazybo.optimize(train, SPACE, pruner=pruner, **options)


class Outcome(NamedTuple):
    """What the recommendation of one study is worth."""

    covered: bool
    width: float
    regret: float
    error: float
    complete: int


def outcome(study: optuna.Study) -> Outcome:
    found = lazybo.recommend(study)
    true = truth(**found.params)
    complete = len(study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)))
    return Outcome(found.low <= true <= found.high, found.high - found.low, BEST - true, found.value - true, complete)


STOPPED = ("0%", "30%", "50%", "70%", "90%", "LazyPruner", "confirm", "paused")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--stopped", nargs="+", default=STOPPED, help="how trainings are stopped")
    parser.add_argument("--noise", nargs="+", default=("epoch", "training"), help="what the noise is independent in")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--epochs", type=int, nargs=2, default=(1, EPOCHS - 1), help="between which trainings stop")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print("| noise | stopped | complete | in interval | width | regret | value - truth |")
    print("|---|---|---|---|---|---|---|")
    for noise in options.noise:
        for how in options.stopped:
            seeds = range(options.first_seed, options.first_seed + options.seeds)
            more = {"trials": options.trials, "epochs": tuple(options.epochs)}
            found = [outcome(run(how, noise == "training", seed, **more)) for seed in seeds]
            covered, width, regret, error, complete = np.array(found, dtype=float).T
            print(
                f"| by {noise} | {how} | {complete.mean():.0f} | {covered.sum():.0f} of {len(found)} | "
                f"{np.median(width):.4f} | {regret.mean():.4f} | {error.mean():+.4f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
