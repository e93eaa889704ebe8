"""Schedulers of Ray Tune on recorded learning curves: ``python -m benchmarks.ray_tune``.

Each run has the same 30 configurations for all schedulers, drawn from LCBench (accuracy, 52 epochs) or from a task of
TaskSet (loss, 51 steps). A training replays its curve and saves a checkpoint after each epoch. FIFO, which trains all
of them to the end, is computed instead of run. The data is that of `benchmarks.curves`.

The table has the share of all epochs that were trained, and the regret of the best last value: 0 for the best of the 30
configurations at its end, 1 for their median.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler, HyperBandScheduler
from ray.tune.search.basic_variant import BasicVariantGenerator

from benchmarks.curves import CLIP, data_folder, scaled_losses
from lazybo.ray import LazyScheduler

PROBLEMS = ("lcbench", *(f"taskset-{i}" for i in range(6)))
TRIALS = 30
# With checkpoints, except for the last one.
SCHEDULERS: dict[str, Callable[[int], Any]] = {
    "LazyScheduler": lambda steps: LazyScheduler(max_t=steps),
    "ASHAScheduler": lambda steps: ASHAScheduler(max_t=steps),
    "ASHAScheduler, patient": lambda steps: ASHAScheduler(max_t=steps, grace_period=5, reduction_factor=3),
    "HyperBandScheduler": lambda steps: HyperBandScheduler(max_t=steps),
    "LazyScheduler, no checkpoints": lambda steps: LazyScheduler(max_t=steps),
}


def drawn(problem: str, seed: int, folder: Path) -> tuple[list[dict[str, float]], np.ndarray]:
    """Configurations and their curves, (TRIALS, steps); small is good."""
    if problem == "lcbench":
        data = np.load(folder / "lcbench_curves.npz")
        configs, curves = data["configs"], 100.0 - data["val_accuracy"]
    else:
        data, i = np.load(folder / "taskset.npz"), int(problem.split("-")[1])
        configs, curves = data["configs"][i], scaled_losses(data["valid_loss"][i], CLIP)
    rows = np.random.default_rng(seed).choice(len(configs), TRIALS, replace=False)
    columns = [str(column) for column in data["columns"]]
    return [dict(zip(columns, map(float, configs[row]), strict=True)) for row in rows], curves[rows]


def key(config: Mapping[str, float]) -> str:
    return json.dumps(dict(sorted(config.items())))


def replay(config: dict[str, float], curves: Mapping[str, list[float]], log: Path, saves: bool) -> None:
    """A training that replays its curve."""
    curve, first, saved = curves[json.dumps(dict(sorted(config.items())))], 0, tune.get_checkpoint()
    if saved is not None:
        with saved.as_directory() as folder:
            first = int((Path(folder) / "epoch").read_text())
    for epoch in range(first + 1, len(curve) + 1):
        with log.open("a") as file:
            file.write(".")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "epoch").write_text(str(epoch))
            checkpoint = tune.Checkpoint.from_directory(folder) if saves else None
            tune.report({"loss": curve[epoch - 1]}, checkpoint=checkpoint)


def run_one(name: str, configs: list[dict[str, float]], curves: np.ndarray, seed: int) -> tuple[float, float]:
    """The share of epochs that were trained, and the best last value."""
    by_config = {key(config): curve.tolist() for config, curve in zip(configs, curves, strict=True)}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        train = partial(replay, curves=by_config, log=log, saves="no checkpoints" not in name)
        results = tune.Tuner(
            train,
            param_space={column: tune.uniform(0, 1) for column in configs[0]},
            tune_config=tune.TuneConfig(
                metric="loss",
                mode="min",
                num_samples=TRIALS,
                scheduler=SCHEDULERS[name](curves.shape[1]),
                search_alg=BasicVariantGenerator(points_to_evaluate=configs, random_state=seed),
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(storage_path=folder, name="run", verbose=0),
        ).fit()
        values = [result.metrics["loss"] for result in results if result.metrics and "loss" in result.metrics]
        return len(log.read_text()) / curves.size, min(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=PROBLEMS)
    parser.add_argument("--schedulers", nargs="+", choices=SCHEDULERS, default=list(SCHEDULERS))
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    folder = data_folder(options.data)
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    ray.init(num_cpus=options.workers, include_dashboard=False, log_to_driver=False, logging_level="error")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in options.schedulers}
    for problem in options.problems:
        for seed in range(options.seeds):
            configs, curves = drawn(problem, seed, folder)
            best, middle = curves[:, -1].min(), np.median(curves[:, -1])
            for name, runs in found.items():
                share, value = run_one(name, configs, curves, seed)
                runs.append((share, (value - best) / (middle - best)))
                print(f"{problem} {seed} {name}: {share:.3f} {runs[-1][1]:.4f}", flush=True)
    ray.shutdown()
    count = len(options.problems) * options.seeds
    print(f"| {count} runs | epochs trained | regret, mean | regret, worst | best found |")
    print("|---|---|---|---|---|")
    for name, runs in {**found, "FIFOScheduler": [(1.0, 0.0)] * count}.items():
        shares, regrets = np.array(runs).T
        best_found = f"{(regrets <= 1e-9).sum()} of {len(runs)}"
        print(f"| {name} | {shares.mean():.0%} | {regrets.mean():.3f} | {regrets.max():.3f} | {best_found} |")


if __name__ == "__main__":
    main()
