"""Compare runs that were stopped and resumed with runs that were not: ``python -m benchmarks.resume``.

Each run has one worker and its own seed, space and objective: plain, with failures, as the mean of folds, or pruned. It
uses `optimize()`, or Optuna with LazySampler, on an SQLite file. Its twin is stopped one to three times and resumed
from the file alone, with a new storage, sampler and model. A run differs if any bit of a parameter or a value differs.
"""

import argparse
import logging
import math
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
)
from optuna.study import Study
from optuna.trial import Trial

import lazybo
from lazybo import LazySampler

KINDS = ("plain", "failures", "folds", "pruned")
INTERFACES = ("optimize", "sampler")
FOLDS = 3
STEPS = 4


@dataclass(frozen=True)
class Run:
    """One run, and the trials after which its twin is stopped."""

    seed: int
    interface: str
    kind: str
    space: dict[str, BaseDistribution]
    direction: Any
    n_trials: int
    stops: tuple[int, ...]


def make_run(seed: int) -> Run:
    """The run with this number: interfaces and kinds alternate, the rest is random."""
    rng = np.random.default_rng(seed)
    interface = INTERFACES[seed % 2]
    kinds = KINDS if interface == "optimize" else tuple(kind for kind in KINDS if kind != "folds")
    n_trials = int(rng.integers(12, 45))
    stops = sorted(int(stop) for stop in rng.integers(1, n_trials, int(rng.integers(1, 4))))
    direction = ("minimize", "maximize")[int(rng.integers(2))]
    return Run(seed, interface, kinds[seed // 2 % len(kinds)], _space(rng), direction, n_trials, tuple(stops))


def _space(rng: np.random.Generator) -> dict[str, BaseDistribution]:
    def parameter() -> BaseDistribution:
        low, width = float(rng.normal(scale=10.0)), float(10.0 ** rng.uniform(-3, 3))
        options: tuple[Callable[[], BaseDistribution], ...] = (
            lambda: FloatDistribution(low, low + width),
            lambda: FloatDistribution(abs(low) * 1e-3 + 1e-9, abs(low) + width, log=True),
            lambda: FloatDistribution(0.0, 1.0, step=0.05),
            lambda: IntDistribution(1, int(rng.integers(5, 200)), log=bool(rng.integers(2))),
            lambda: CategoricalDistribution(["a", "b", None, "d"][: int(rng.integers(2, 5))]),
        )
        return options[int(rng.choice(len(options), p=(0.4, 0.2, 0.1, 0.2, 0.1)))]()

    return {f"p{i}": parameter() for i in range(int(rng.integers(1, 6)))}


def place(run: Run, params: Mapping[str, Any]) -> list[float]:
    """The coordinates of a configuration in the unit cube."""
    places = []
    for name, distribution in run.space.items():
        inside = distribution.to_internal_repr(params[name])
        if isinstance(distribution, CategoricalDistribution):
            places.append(inside / len(distribution.choices))
        else:
            low, high = distribution.low, distribution.high  # type: ignore[attr-defined]
            places.append((inside - low) / (high - low))
    return places


def value(run: Run, params: Mapping[str, Any], step: int = STEPS, fold: int = 0) -> float:
    """A smooth function with waves; each run has its own size of values."""
    rng = np.random.default_rng((run.seed, 1))
    size, centre = 10.0 ** rng.uniform(-6, 6), rng.random(len(run.space))
    distance = sum((x - c) ** 2 for x, c in zip(place(run, params), centre, strict=True))
    wave = 0.1 * math.sin(9.0 * distance + fold)
    good = 1.0 if run.direction == "minimize" else -1.0
    return float(good * size * (distance + wave + 1.0 / step))


def fails(run: Run, params: Mapping[str, Any]) -> bool:
    return run.kind == "failures" and place(run, params)[0] > 0.6


def by_optimize(run: Run, path: Path, upto: int) -> Study:
    def plain(params: dict[str, Any]) -> float | None:
        return math.nan if fails(run, params) else value(run, params)

    def pruned(params: dict[str, Any], trial: Any) -> float:
        for step in range(1, STEPS):
            trial.report(value(run, params, step), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value(run, params)

    objective: Any = pruned if run.kind == "pruned" else plain
    if run.kind == "folds":
        objective = lazybo.kfold(lambda params, fold: value(run, params, fold=fold), FOLDS)
    warnings.filterwarnings("ignore", "the space has only", UserWarning)  # small spaces are among the runs
    return lazybo.optimize(
        objective,
        run.space,
        n_trials=upto,
        direction=run.direction,
        storage=path,
        seed=run.seed,
        limits=lazybo.Limits(max_failures=None),
        progress=False,
    )


def by_sampler(run: Run, path: Path, upto: int) -> Study:
    def objective(trial: Trial) -> float:
        params = {name: _suggest(trial, name, distribution) for name, distribution in run.space.items()}
        if fails(run, params):
            return math.nan
        for step in range(1, STEPS if run.kind == "pruned" else 1):
            trial.report(value(run, params, step), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value(run, params)

    study = optuna.create_study(
        storage=f"sqlite:///{path}",
        study_name="resume",
        direction=run.direction,
        sampler=LazySampler(seed=run.seed, warn_independent_sampling=False),
        load_if_exists=True,
    )
    study.optimize(objective, n_trials=upto - len(study.trials))
    return study


def _suggest(trial: Trial, name: str, distribution: BaseDistribution) -> Any:
    return trial._suggest(name, distribution)


def record(study: Study) -> list[tuple[object, ...]]:
    """What is compared of each trial."""
    return [
        (trial.state, {k: repr(v) for k, v in trial.params.items()}, repr(trial.value), trial.intermediate_values)
        for trial in study.get_trials(deepcopy=False)
    ]


def differences(run: Run) -> list[int]:
    """The numbers of the trials in which a run and its twin differ."""
    play = by_optimize if run.interface == "optimize" else by_sampler
    with tempfile.TemporaryDirectory() as folder:
        whole = record(play(run, Path(folder) / "whole.db", run.n_trials))
        for upto in (*run.stops, run.n_trials):
            resumed = play(run, Path(folder) / "resumed.db", upto)
        parts = record(resumed)
    if len(whole) != len(parts):
        return [min(len(whole), len(parts))]
    return [number for number, (one, other) in enumerate(zip(whole, parts, strict=True)) if one != other]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the number of the first run")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("lazybo").setLevel(logging.CRITICAL)
    made, differ, trials, stops = Counter[str](), Counter[str](), 0, 0
    for seed in range(options.first, options.first + options.runs):
        run = make_run(seed)
        different = differences(run)
        key = f"{run.interface}, {run.kind}"
        made[key] += 1
        trials, stops = trials + run.n_trials, stops + len(run.stops)
        if made.total() % 20 == 0:
            print(f"{differ.total()} of {made.total()} so far", flush=True)
        if different:
            differ[key] += 1
            spaces = {name: distribution_to_json(d) for name, d in run.space.items()}
            print(
                f"run {seed} ({key}, stopped at {run.stops}) differs from trial {different[0]} on: {spaces}", flush=True
            )
    for key, count in sorted(made.items()):
        print(f"{key:24} {differ[key]:4} of {count:4} runs differ")
    print(f"{differ.total()} of {made.total()} runs differ, with {trials} trials and {stops} stops")


if __name__ == "__main__":
    main()
