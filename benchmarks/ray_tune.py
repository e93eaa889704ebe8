"""Schedulers of Ray Tune on recorded learning curves: ``python -m benchmarks.ray_tune``.

Each run has the same 30 configurations for all schedulers, drawn from LCBench (accuracy, 52 epochs) or from a task of
TaskSet (loss, 51 steps). A training replays its curve and saves a checkpoint after each epoch. FIFO, which trains all
of them to the end, is computed instead of run. The data is that of `benchmarks.curves`.

The table has the share of all epochs that were trained, and the regret of the best last value: 0 for the best of the 30
configurations at its end, 1 for their median. Recorded runs are not run again.
"""

import argparse
import itertools
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
from benchmarks.runner import append, read
from lazybo.core import texts
from lazybo.ray import LazyScheduler

PROBLEMS = ("lcbench", *(f"taskset-{i}" for i in range(6)))
TRIALS = 30
FIELDS = ("problem", "seed", "scheduler", "epochs", "regret")
# Regrets have four digits.
SAME = 5e-5
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


def report(path: Path, names: Sequence[str]) -> str:
    """The table of the runs that all of these schedulers have made."""
    rows = [row for row in read(path) if row["scheduler"] in names]
    runs = Counter((row["problem"], row["seed"]) for row in rows)
    common = {run for run, count in runs.items() if count == len(names)}
    lines = [
        f"| {len(common)} runs | epochs trained | regret, mean | regret, worst | best found |",
        "|---|---|---|---|---|",
    ]
    for name in names:
        mine = [row for row in rows if row["scheduler"] == name and (row["problem"], row["seed"]) in common]
        shares, regrets = np.array([[float(row["epochs"]), float(row["regret"])] for row in mine]).T
        found = (regrets <= SAME).sum()
        lines.append(
            f"| {name} | {texts.percent(shares.mean())} | {regrets.mean():.3f} | {regrets.max():.3f} | {found} |"
        )
    return "\n".join([*lines, f"| FIFOScheduler | 100 % | 0 | 0 | {len(common)} |"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=PROBLEMS)
    parser.add_argument("--schedulers", nargs="+", choices=SCHEDULERS, default=list(SCHEDULERS))
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/ray_tune.csv"))
    parser.add_argument("--only-report", action="store_true")
    options = parser.parse_args()
    known = {(row["problem"], row["seed"], row["scheduler"]) for row in read(options.out)}
    every = itertools.product(options.problems, range(options.seeds), options.schedulers)
    missing = [run for run in every if (run[0], str(run[1]), run[2]) not in known]
    if missing and not options.only_report:
        folder = data_folder(options.data)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        ray.init(num_cpus=options.workers, include_dashboard=False, log_to_driver=False, logging_level="error")
        for problem, seed, name in missing:
            configs, curves = drawn(problem, seed, folder)
            best, middle = curves[:, -1].min(), np.median(curves[:, -1])
            share, value = run_one(name, configs, curves, seed)
            values = (problem, seed, name, f"{share:.3f}", f"{(value - best) / (middle - best):.4f}")
            append(options.out, FIELDS, dict(zip(FIELDS, values, strict=True)))
        ray.shutdown()
    print(report(options.out, options.schedulers))


if __name__ == "__main__":
    main()
