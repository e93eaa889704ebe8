"""Tables of real trainings: ``python -m benchmarks.trained`` records those that are missing.

Each table is one kind of model on one small data set of scikit-learn: random configurations and their cross-validated
errors, for problems whose objective behaves like a real one. `benchmarks.trained_models` trains.

A table is written to ``results/trained/`` when it is complete; the last step merges all into ``results/trained.npz``,
which needs neither scikit-learn nor the data to be read. ``--part 0/2`` records every second table and merges nothing,
so that two processes share the work. ``--seconds`` only measures the time of a training for each table.
"""

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

RESULTS = Path(__file__).parent / "results"
FILE = RESULTS / "trained.npz"
PARTS = RESULTS / "trained"
ROWS = 512

Space = dict[str, BaseDistribution]
# Child: its parent, and the parent's values with which it is active. A training ignores inactive parameters.
Condition = tuple[str, tuple[Any, ...]]
Conditions = Mapping[str, Condition]

CLASSES = ("digits", "wine", "cancer", "noisy", "moons", "hastie", "rare")
REGRESSION = ("diabetes", "friedman", "sparse")
MODELS = ("boosting", "forest", "svm", "mlp", "elastic")


@dataclass(frozen=True)
class Table:
    """Configurations, uniform in the space, and their errors. All parameters have a value, inactive ones too."""

    space: Space
    conditions: Conditions
    configurations: list[dict[str, Any]]
    errors: np.ndarray


def names() -> list[str]:
    """All tables, such as "svm-wine"."""
    return [f"{model}-{data}" for data in (*CLASSES, *REGRESSION) for model in MODELS]


def table(name: str) -> Table:
    """A recorded table."""
    space, conditions = space_of(name)
    stored = _recorded()[name]
    return Table(space, conditions, [decoded(space, row) for row in stored[:, :-1]], stored[:, -1])


@cache
def _recorded() -> dict[str, np.ndarray]:
    """A row for each configuration: its parameters in the order of the space, then the error."""
    if not FILE.exists():
        return {}
    with np.load(FILE) as file:
        return dict(file)


def space_of(name: str) -> tuple[Space, Conditions]:
    """The space of a table, and which of its parameters are active when."""
    model, data = name.split("-")
    spaces = {"boosting": _boosting, "forest": _forest, "svm": _svm, "mlp": _mlp, "elastic": _elastic}
    return spaces[model](data in CLASSES)


def _log(low: float, high: float) -> FloatDistribution:
    return FloatDistribution(low, high, log=True)


def _choice(*choices: str | bool) -> CategoricalDistribution:
    return CategoricalDistribution(choices)


def _boosting(classes: bool) -> tuple[Space, Conditions]:
    space: Space = {
        "learning_rate": _log(0.005, 1.0),
        "n_estimators": IntDistribution(5, 100, log=True),
        "growth": _choice("depth", "leaves"),
        "max_depth": IntDistribution(1, 8),
        "max_leaf_nodes": IntDistribution(2, 32, log=True),
        "min_samples_leaf": IntDistribution(1, 40, log=True),
        "subsample": FloatDistribution(0.3, 1.0),
        "max_features": FloatDistribution(0.1, 1.0),
    }
    conditions = {"max_depth": ("growth", ("depth",)), "max_leaf_nodes": ("growth", ("leaves",))}
    if classes:
        return space, conditions
    space = {**space, "loss": _choice("squared_error", "huber"), "alpha": FloatDistribution(0.5, 0.99)}
    return space, {**conditions, "alpha": ("loss", ("huber",))}


def _forest(classes: bool) -> tuple[Space, Conditions]:
    space: Space = {
        "kind": _choice("forest", "extra"),
        "n_estimators": IntDistribution(3, 80, log=True),
        "max_depth": IntDistribution(2, 20),
        "min_samples_leaf": IntDistribution(1, 30, log=True),
        "max_features": FloatDistribution(0.1, 1.0),
        "bootstrap": _choice(True, False),
        "max_samples": FloatDistribution(0.2, 1.0),
    }
    if classes:
        space = {**space, "criterion": _choice("gini", "entropy")}
    return space, {"max_samples": ("bootstrap", (True,))}


def _svm(classes: bool) -> tuple[Space, Conditions]:
    space: Space = {
        "C": _log(1e-3, 1e3),
        "kernel": _choice("linear", "rbf", "poly"),
        "gamma": _log(1e-4, 10.0),
        "degree": IntDistribution(2, 5),
        "coef0": FloatDistribution(0.0, 2.0),
        **({"class_weight": _choice("none", "balanced")} if classes else {"epsilon": _log(1e-3, 1.0)}),
    }
    conditions = {"gamma": ("kernel", ("rbf", "poly")), "degree": ("kernel", ("poly",)), "coef0": ("kernel", ("poly",))}
    return space, conditions


def _mlp(_classes: bool) -> tuple[Space, Conditions]:
    space: Space = {
        "solver": _choice("sgd", "adam", "lbfgs"),
        "learning_rate_init": _log(1e-4, 0.3),
        "momentum": FloatDistribution(0.0, 0.99),
        "batch_size": IntDistribution(16, 128, log=True),
        "layers": IntDistribution(1, 2),
        "width": IntDistribution(4, 64, log=True),
        "width_2": IntDistribution(4, 64, log=True),
        "activation": _choice("relu", "tanh", "logistic"),
        "alpha": _log(1e-6, 10.0),
    }
    conditions = {
        "learning_rate_init": ("solver", ("sgd", "adam")),
        "momentum": ("solver", ("sgd",)),
        "batch_size": ("solver", ("sgd", "adam")),
        "width_2": ("layers", (2,)),
    }
    return space, conditions


def _elastic(classes: bool) -> tuple[Space, Conditions]:
    space: Space = {
        **({"C": _log(1e-4, 1e3)} if classes else {"alpha": _log(1e-5, 10.0)}),
        "penalty": _choice("l1", "l2", "elasticnet"),
        "l1_ratio": FloatDistribution(0.0, 1.0),
        "scaler": _choice("standard", "robust", "quantile"),
        "features": FloatDistribution(0.1, 1.0),
        "degree": IntDistribution(1, 2),
        "interaction_only": _choice(True, False),
    }
    return space, {"l1_ratio": ("penalty", ("elasticnet",)), "interaction_only": ("degree", (2,))}


def draw(space: Space, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Uniform configurations as they are stored: float32, choices as indices."""
    return np.column_stack([column(dist, rng.random(rows)) for dist in space.values()]).astype(np.float32)


def column(dist: BaseDistribution, u: np.ndarray) -> np.ndarray:
    """A parameter's values at the quantiles u."""
    if isinstance(dist, CategoricalDistribution):
        return np.minimum(np.floor(u * len(dist.choices)), len(dist.choices) - 1)
    assert isinstance(dist, IntDistribution | FloatDistribution)
    # A whole number stands for the interval around it.
    margin = 0.5 if isinstance(dist, IntDistribution) else 0.0
    low, high = dist.low - margin, dist.high + margin
    values = low * (high / low) ** u if dist.log else low + u * (high - low)
    return np.clip(np.round(values), dist.low, dist.high) if margin else values


def decoded(space: Space, row: np.ndarray) -> dict[str, Any]:
    """A row of values, with the indices of choices, as a configuration."""
    return {name: _value(dist, float(x)) for (name, dist), x in zip(space.items(), row, strict=True)}


def _value(dist: BaseDistribution, x: float) -> Any:
    if isinstance(dist, CategoricalDistribution):
        return dist.choices[int(x)]
    if isinstance(dist, IntDistribution):
        return int(x)
    assert isinstance(dist, FloatDistribution)
    return min(max(x, dist.low), dist.high)  # float32 may have rounded a value beyond a bound


def record(name: str, rows: int = ROWS) -> np.ndarray:
    """Train a table's first configurations."""
    from benchmarks.trained_models import error

    space, _ = space_of(name)
    model, data = name.split("-")
    drawn = draw(space, ROWS, np.random.default_rng([*name.encode()]))[:rows]
    errors = [error(model, data, decoded(space, row)) for row in drawn]
    return np.column_stack([drawn, np.array(errors, dtype=np.float32)])


def _record_missing(chosen: list[str]) -> None:
    PARTS.mkdir(exist_ok=True)
    for name in chosen:
        path = PARTS / f"{name}.npy"
        if name not in _recorded() and not path.exists():
            start = time.process_time()
            np.save(path, record(name))
            print(f"{name:20} {time.process_time() - start:7.1f} s", flush=True)


def _merge() -> None:
    """One file of all tables; the parts are deleted."""
    tables = {name: _recorded()[name] if name in _recorded() else np.load(PARTS / f"{name}.npy") for name in names()}
    np.savez_compressed(FILE, allow_pickle=False, **tables)
    for path in PARTS.glob("*.npy"):
        path.unlink()
    PARTS.rmdir()


def _print_seconds(chosen: list[str], rows: int = 10) -> None:
    for name in chosen:
        start = time.process_time()
        errors = record(name, rows)[:, -1]
        seconds = (time.process_time() - start) / rows
        print(f"{name:20} {seconds:7.3f} s  {' '.join(f'{e:.3f}' for e in np.sort(errors))}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", help="record only some of the tables, such as 0/2")
    parser.add_argument("--seconds", action="store_true", help="only measure the seconds of a training")
    options = parser.parse_args()
    first, parts = map(int, (options.part or "0/1").split("/"))
    chosen = names()[first::parts]
    if options.seconds:
        _print_seconds(chosen)
        return
    _record_missing(chosen)
    if not options.part:
        _merge()


if __name__ == "__main__":
    main()
