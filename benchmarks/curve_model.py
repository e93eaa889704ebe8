"""How well the model of learning curves forecasts: ``python -m benchmarks.curve_model``.

The protocol of ifBO (arXiv 2404.16795, table 1) on tasks of TaskSet: 1000 observed values over curves of different
lengths, losses in units of the median loss at step 0 and clipped at 1. All later values of these curves are forecast.
Log-likelihoods are of bins of width 0.001, as wide as those of FT-PFN; the last bin has all that is clipped. Beside it
the last observed value as a forecast, and the seconds; then the seconds of a decision of `LazyPruner`, and those of a
whole study.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import optuna
from optuna.pruners import BasePruner, NopPruner
from optuna.samplers import BaseSampler, TPESampler

from benchmarks.curves import data_folder, scaled_losses
from lazybo import Column, LazyPruner, LazySampler
from lazybo.search import CurveModel
from lazybo.search.curve_forecasts import Curve, fit_curves

POINTS = 1000
BIN = 1e-3


def drawn(x: np.ndarray, losses: np.ndarray, rng: np.random.Generator) -> tuple[list[Curve], list[int]]:
    """The first parts of random curves, `POINTS` values in all, and which curves they are."""
    curves, which, left = [], [], POINTS
    for i in rng.permutation(len(losses)):
        length = min(int(rng.integers(1, losses.shape[1])), left)
        curves.append(Curve(x[i], {step + 1: float(losses[i, step]) for step in range(length)}, False))
        which.append(int(i))
        left -= length
        if left == 0:
            return curves, which
    raise ValueError(f"there are fewer than {POINTS} values")


def one_draw(x: np.ndarray, losses: np.ndarray, rng: np.random.Generator) -> list[float]:
    """Log-likelihood, squared error, squared error of the last value, share of values in the 90 % interval, seconds."""
    curves, which = drawn(x, losses, rng)
    steps = losses.shape[1]
    later = [(k, step) for k, curve in enumerate(curves) for step in range(len(curve.values) + 1, steps + 1)]
    start = time.process_time()
    fitted = fit_curves(curves, [Column()] * x.shape[1], steps)
    forecasts = fitted.forecasts([k for k, _ in later], [fitted.clock(step) for _, step in later])
    means = np.array([forecast.value for forecast in forecasts])
    seconds = time.process_time() - start
    truth = np.array([losses[which[k], step - 1] for k, step in later])
    last = np.array([losses[which[k], len(curves[k].values) - 1] for k, _ in later])
    edges = np.minimum(np.floor(truth / BIN) * BIN, 1.0 - BIN)
    below = np.array(
        [[f.below(e), f.below(e + BIN) if e + BIN < 1.0 - 1e-9 else 1.0] for f, e in zip(forecasts, edges, strict=True)]
    )
    density = np.maximum(below[:, 1] - below[:, 0], 1e-12) / BIN
    inside = [0.05 <= f.below(t) <= 0.95 for f, t in zip(forecasts, truth, strict=True)]
    errors = [float(np.mean((guess - truth) ** 2)) for guess in (means, last)]
    return [float(np.log(density).mean()), *errors, float(np.mean(inside)), seconds]


def decision_seconds(rows: int, rng: np.random.Generator) -> tuple[int, float]:
    """The rows of a model of about so many, and the seconds of one forecast of a running curve."""
    model, steps = CurveModel([Column()] * 8, max_step=50), 50

    def curve(complete: bool) -> Curve:
        x = rng.random(8)
        return Curve(x, {s: float(x.sum() + 1 / s + 0.01 * rng.normal()) for s in range(1, steps + 1)}, complete)

    while len(model) * 10 < rows:
        model.add(*curve(True))
    running = curve(False)
    model.forecast(*running)  # learns
    times = []
    for _ in range(5):
        start = time.process_time()
        model.forecast(*running)
        times.append(time.process_time() - start)
    return model.rows, float(np.median(times))


def whole_run(sampler: BaseSampler, pruner: BasePruner) -> tuple[int, float]:
    """The epochs and the CPU seconds of a study of 200 trainings of 50 epochs or fewer. An epoch takes no time."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study, epochs, start = optuna.create_study(sampler=sampler, pruner=pruner), 0, time.process_time()

    def train(trial: optuna.Trial) -> float:
        nonlocal epochs
        x = np.array([trial.suggest_float(f"x{i}", 0.0, 1.0) for i in range(6)])
        end, slowness = float(((x - 0.4) ** 2).sum()), 0.5 + x[0]
        for step in range(1, 51):
            value, epochs = end + step**-slowness, epochs + 1
            trial.report(value, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    study.optimize(train, n_trials=200)
    return epochs, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--draws", type=int, default=5)
    options = parser.parse_args()
    data = np.load(data_folder(options.data) / "taskset.npz")
    print("| TaskSet task | log-likelihood | squared error | of the last value | inside 90 % | seconds |")
    print("|---" * 6 + "|")
    every = []
    for task, losses in enumerate(data["valid_loss"]):
        low, high = data["configs"][task].min(axis=0), data["configs"][task].max(axis=0)
        x = (data["configs"][task] - low) / (high - low)
        found = [one_draw(x, scaled_losses(losses, 1.0), np.random.default_rng(i)) for i in range(options.draws)]
        every.append(np.mean(found, axis=0))
        print(_line(str(task), every[-1]), flush=True)
    print(_line(f"mean, {options.draws} draws each", np.mean(every, axis=0)))
    print("\n| rows | milliseconds of a decision |\n|---|---|")
    for rows in (100, 1000, 5000):
        count, seconds = decision_seconds(rows, np.random.default_rng(0))
        print(f"| {count} | {1000 * seconds:.1f} |", flush=True)
    print("\n| 200 trainings of 50 epochs | epochs | seconds |\n|---|---|---|")
    runs: list[tuple[str, BaseSampler, BasePruner]] = [
        ("lazybo + LazyPruner", LazySampler(seed=0), LazyPruner(50)),
        ("lazybo + no pruning", LazySampler(seed=0), NopPruner()),
        ("TPE + no pruning", TPESampler(seed=0), NopPruner()),
    ]
    for title, sampler, pruner in runs:
        epochs, seconds = whole_run(sampler, pruner)
        print(f"| {title} | {epochs} | {seconds:.1f} |", flush=True)


def _line(title: str, numbers: np.ndarray) -> str:
    likelihood, squared, last, inside, seconds = numbers
    return f"| {title} | {likelihood:.2f} | {squared:.4f} | {last:.4f} | {inside:.2f} | {seconds:.2f} |"


if __name__ == "__main__":
    main()
