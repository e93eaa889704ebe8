"""Tune the hyperparameters of LeNet5 on MNIST and of ResNet32 on CIFAR-10 (paper, sections 4.2 to 4.4).

Each method has its own study in one SQLite file beside the figures, so the same command resumes a killed run.
The numbers are read from the study and written as CSV.
"""

import os
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import FloatDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

import lazybo
from lazybo.paper.data import Images
from lazybo.paper.presets import optimizer_options
from lazybo.paper.records import write_rows
from lazybo.study.storage import open_storage

Rows = NDArray[np.intp]

COMMON = {
    "lr": FloatDistribution(1e-4, 0.1),
    "weight_decay": FloatDistribution(0.0, 1e-3),
    "momentum": FloatDistribution(0.0, 0.99),
}
SPACES: dict[str, dict[str, FloatDistribution]] = {
    "lenet": {"d1": FloatDistribution(0.01, 1.0), "d2": FloatDistribution(0.01, 1.0), **COMMON},
    "resnet": COMMON,
}
# The shares of training, validation and test images: 48000/6000/6000 for MNIST, and 50000/10000 for CIFAR-10, where the
# paper reports the accuracy on the 10000 test images.
SPLITS = {"lenet": (8, 1, 1), "resnet": (5, 1, 0)}
FIELDS = (
    *("method", "workers", "seed", "iteration", "accuracy", "best", "test"),
    *("train_seconds", "overhead_seconds", "ended_seconds"),
)


@dataclass(frozen=True)
class Scale:
    """The size of a training: the paper has all images, 10 epochs, batches of 128 and 3 folds."""

    epochs: int = 10
    batch: int = 128
    folds: int = 1


@dataclass(frozen=True)
class Training:
    """A training as an objective: hyperparameters in, the accuracy on the validation images out."""

    network: str
    images: Images
    scale: Scale

    def __call__(self, params: Mapping[str, float]) -> dict[str, float]:
        """The accuracy of one training, with its start and end in wall-clock and CPU time."""
        began, cpu_began = time.time(), time.process_time()
        found = self.run(dict(params), *split(len(self.images), SPLITS[self.network]))
        clocks = {"began": began, "ended": time.time(), "cpu_began": cpu_began, "cpu_ended": time.process_time()}
        return {**found, **clocks, "process": os.getpid()}

    def fold(self, params: Mapping[str, float], fold: int) -> float:
        """The accuracy on one fold after training on all others (paper, equation 1)."""
        parts = np.array_split(np.random.default_rng(0).permutation(len(self.images)), self.scale.folds)
        rest = np.concatenate([part for i, part in enumerate(parts) if i != fold])
        return self.run(dict(params), rest, parts[fold], rest[:0])["value"]

    def run(self, params: dict[str, float], train: Rows, validation: Rows, test: Rows) -> dict[str, float]:
        """Train and evaluate. The random seed depends only on the hyperparameters, so runs are repeatable."""
        networks = import_networks()
        seed = zlib.crc32(repr(sorted(params.items())).encode())
        network = networks.train(self.network, self.images, train, params, self.scale.epochs, self.scale.batch, seed)
        found = {"value": networks.accuracy(network, self.images, validation)}
        if len(test):
            found["test"] = networks.accuracy(network, self.images, test)
        return found


def import_networks() -> Any:
    """Import the module that needs torch."""
    try:
        from lazybo.paper import networks
    except ImportError as error:
        raise ValueError(f"trainings need torch ({error}): pip install 'lazybo[paper]'") from None
    return networks


def split(n: int, shares: Sequence[int]) -> list[Rows]:
    """Split n rows at random in these shares, always in the same way."""
    ends = np.cumsum(shares)[:-1] * n // sum(shares)
    return list(np.split(np.random.default_rng(0).permutation(n), ends))


def tune(
    training: Training,
    method: str,
    *,
    iterations: int,
    seed: int,
    storage: Path,
    n_parallel: int = 1,
    executor: Any = None,
    progress: bool = True,
) -> Study:
    """Run one study of one method, from one random seed point as in the paper; ours starts with its defaults."""
    space = SPACES[training.network]
    objective: Any = training if training.scale.folds < 2 else lazybo.kfold(training.fold, training.scale.folds)
    options = optimizer_options(method, space)
    if not method.startswith("ours"):
        # Rounds of the best local maxima, as in the paper (section 3.4).
        options |= {"n_startup_trials": 1, "batch": "maxima", "synchronous": n_parallel > 1}
    storage.parent.mkdir(parents=True, exist_ok=True)
    return lazybo.optimize(
        objective,
        space,
        n_trials=iterations,
        direction="maximize",
        n_parallel=n_parallel,
        executor=executor,
        storage=storage,
        study_name=study_name(method, n_parallel, seed, training),
        seed=seed,
        progress=progress,
        **options,
    )


def study_name(method: str, workers: int, seed: int, training: Training) -> str:
    """The name of a study: it has all that its numbers depend on."""
    scale = training.scale
    size = f"{len(training.images)} images, {scale.epochs} epochs, batch {scale.batch}, {scale.folds} folds"
    return f"{training.network}: {method}, {workers} workers, seed {seed}, {size}"


# ------------------------------------------------------------------------ numbers


def export(storage: Path, training: Training, path: Path) -> list[dict[str, Any]]:
    """The rows of all studies of this size in a storage; also writes them as CSV."""
    rows: list[dict[str, Any]] = []
    opened = open_storage(storage)
    _, _, size = study_name("", 0, 0, training).partition("seed 0, ")
    for summary in sorted(optuna.get_all_study_summaries(opened), key=lambda s: s.study_name):
        network, _, rest = summary.study_name.partition(": ")
        method, workers, seed, what = rest.split(", ", 3)
        if network != training.network or what != size:
            continue
        study = optuna.load_study(study_name=summary.study_name, storage=opened)
        count = int(workers.split()[0])
        head = {"method": method, "workers": count, "seed": int(seed.split()[1])}
        rows += [{**head, **row} for row in numbers(study.get_trials(deepcopy=False), count)]
    write_rows(path, FIELDS, rows)
    return rows


def numbers(trials: Sequence[FrozenTrial], workers: int) -> list[dict[str, Any]]:
    """The rows of a study, one for each iteration.

    Training and overhead are in CPU seconds: a shared machine stalls now and then. ``ended_seconds`` is
    on the wall clock since the first training began. The overhead is what passes from the end of one training to the
    beginning of the next, suggestion and storage; it is known where one process did both and there was one worker.
    """
    rows: list[dict[str, Any]] = []
    best, before, zero = -np.inf, None, None
    for trial in trials:
        if trial.state != TrialState.COMPLETE or trial.value is None:
            continue
        best, attrs = max(best, trial.value), trial.user_attrs
        row = {"iteration": trial.number + 1, "accuracy": trial.value, "best": best, "test": attrs.get("test")}
        if "began" in attrs:
            zero = attrs["began"] if zero is None else zero
            row["ended_seconds"] = attrs["ended"] - zero
        if "cpu_began" in attrs:
            row["train_seconds"] = attrs["cpu_ended"] - attrs["cpu_began"]
            if workers == 1 and before and before["process"] == attrs["process"]:
                row["overhead_seconds"] = attrs["cpu_began"] - before["cpu_ended"]
            before = attrs
        rows.append(row)
    return rows
