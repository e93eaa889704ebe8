"""Real trainings as problems: networks, boosted trees and other models, tuned on many data sets.

There are three kinds of sources:

- surrogates of millions of trainings by others, which are neural networks: LCBench ("lcbench") and XGBoost ("xgboost");
- tables of trainings by others, LCBench's final results ("finals") and TaskSet ("taskset"), through extra trees fitted
  to each table;
- tables of our own trainings with scikit-learn (`benchmarks.trained`), through extra trees too.

The data of others is not part of this repository: the variable LAZYBO_CURVES names its folder. All errors are
minimised. The unit of regret is what random search reaches with `UNIT` evaluations.
"""

import json
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from benchmarks import trained
from benchmarks.trained import Condition, Conditions, column, decoded

# Regret 1 is the median of the best of so many random configurations, and at least this share of the regret of a median
# one: in some problems they find the optimum.
UNIT = 25
LEAST_UNIT = 0.05
# The optimum is the best of so many random configurations, and of so many rounds of changing the best ones.
DRAWS, ROUNDS, PARENTS, CHILDREN = 50_000, 60, 50, 1_000
TREES = 60
# Trainings in a leaf at least. With 1 the trees repeat every training, with its luck.
LEAF = 4
# Losses of TaskSet are clipped at this multiple of the median loss before training; diverged ones have that value.
CLIP = 2.0

LCBENCH: dict[str, FloatDistribution | IntDistribution] = {
    "batch_size": IntDistribution(16, 512, log=True),
    "learning_rate": FloatDistribution(1e-4, 0.1, log=True),
    "momentum": FloatDistribution(0.1, 0.99),
    "weight_decay": FloatDistribution(1e-5, 0.1),
    "num_layers": IntDistribution(1, 5),
    "max_units": IntDistribution(64, 1024, log=True),
    "max_dropout": FloatDistribution(0.0, 1.0),
}
TASKSET: dict[str, BaseDistribution] = {
    "learning_rate": FloatDistribution(1e-8, 10.0, log=True),
    "one_minus_beta1": FloatDistribution(1e-4, 1.0, log=True),
    "one_minus_beta2": FloatDistribution(1e-6, 1.0, log=True),
    "epsilon": FloatDistribution(1e-10, 1e3, log=True),
    "l1": FloatDistribution(1e-8, 10.0, log=True),
    "l2": FloatDistribution(1e-8, 10.0, log=True),
    "linear_decay": FloatDistribution(1e-7, 1e-4, log=True),
    "exponential_decay": FloatDistribution(1e-6, 1e-3, log=True),
}
# The data sets of each source.
SETS: dict[str, tuple[str, ...]] = {
    "lcbench": (
        *("126025", "167152", "167161", "167168", "167184"),
        *("167200", "168330", "168331", "189908", "189909"),
    ),
    "xgboost": ("1049", "1068", "1464", "182", "188", "300", "37", "40701", "40966", "4134", "44", "4538"),
    "finals": (
        *("APSFailure", "Amazon_employee_access", "Australian", "Fashion-MNIST", "adult", "airlines"),
        *("bank-marketing", "blood-transfusion-service-center", "car", "christine", "cnae-9", "connect-4", "dionis"),
        *("helena", "higgs", "jasmine", "mfeat-factors", "nomao", "segment", "volkert"),
    ),
    "taskset": tuple("012345"),
}


@dataclass(frozen=True)
class Training:
    """A space, and the error of each configuration.

    ``errors`` takes rows of values, (n, d), with the indices of choices, and returns (n,). ``conditions`` say which
    parameters matter only for some choices of another; the trainings ignore the others.
    """

    space: dict[str, BaseDistribution]
    conditions: Conditions
    errors: Callable[[np.ndarray], np.ndarray]

    def error(self, params: Mapping[str, Any]) -> float:
        """The error of one configuration. Parameters that do not matter may be missing."""
        return float(self.errors(np.array([encoded(self.space, params)]))[0])

    def values(self, u: np.ndarray) -> np.ndarray:
        """Points of the unit cube as rows of values, (n, d)."""
        return np.column_stack([column(each, u[:, j]) for j, each in enumerate(self.space.values())])

    def params(self, row: np.ndarray) -> dict[str, Any]:
        """A row of values as a configuration."""
        return decoded(self.space, row)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """The errors of random configurations, (count,)."""
        return self.errors(self.values(rng.random((count, len(self.space)))))

    def optimum(self, seed: int = 0) -> float:
        """The lowest error known: of random configurations, and of rounds of changing the best ones."""
        rng, d = np.random.default_rng(seed), len(self.space)
        u = rng.random((DRAWS, d))
        errors = self.errors(self.values(u))
        for k in range(ROUNDS):
            best = np.argsort(errors, kind="stable")[:PARENTS]
            u, errors = u[best], errors[best]
            width = 0.3 * 0.9**k
            children = u[rng.integers(len(u), size=CHILDREN)]
            moved = rng.random(children.shape) < np.maximum(1.5 / d, rng.random((CHILDREN, 1)) ** 2)
            near = np.clip(children + width * rng.standard_normal(children.shape), 0.0, 1.0)
            children = np.where(moved, np.where(rng.random(children.shape) < 0.8, near, rng.random((1, d))), children)
            u, errors = np.vstack([u, children]), np.concatenate([errors, self.errors(self.values(children))])
        return float(errors.min())


def names() -> list[str]:
    """All problems: "xgboost-1049", …. The first of each family, then the second of each, and so on."""
    families = [[f"{source}-{data}" for data in sets] for source, sets in SETS.items()]
    families += [[name for name in trained.names() if name.startswith(f"{model}-")] for model in trained.MODELS]
    longest = max(len(family) for family in families)
    return [family[k] for k in range(longest) for family in families if k < len(family)]


@cache
def load(name: str) -> Training:
    """A problem by name."""
    source, _, data = name.partition("-")
    if source in ("lcbench", "xgboost"):
        return surrogate(source, data)
    if source == "finals":
        configs, errors = finals(data)
        return _from_table(name, dict(LCBENCH), {}, configs, errors)
    if source == "taskset":
        return _from_table(name, TASKSET, {}, *_taskset(int(data)))
    table = trained.table(name)
    configs = np.array([encoded(table.space, each) for each in table.configurations])
    return _from_table(name, table.space, table.conditions, configs, table.errors)


@cache
def unit(name: str) -> tuple[float, float]:
    """The optimum of a problem and its unit of regret, computed once and kept in a temporary folder."""

    def compute() -> tuple[float, float]:
        training = load(name)
        optimum = training.optimum()
        drawn = training.draw(np.random.default_rng(1), 400 * UNIT)
        best = np.median(drawn.reshape(-1, UNIT).min(axis=1))
        return optimum, max(float(best) - optimum, LEAST_UNIT * (float(np.median(drawn)) - optimum))

    found: tuple[float, float] = kept(f"unit-{name}", compute)
    return found


def encoded(space: Mapping[str, BaseDistribution], params: Mapping[str, Any]) -> list[float]:
    """A configuration as a row of values, with the indices of choices; parameters that are missing are 0."""
    return [
        0.0
        if name not in params
        else float(each.choices.index(params[name]) if isinstance(each, CategoricalDistribution) else params[name])
        for name, each in space.items()
    ]


def _inactive(
    space: Mapping[str, BaseDistribution], conditions: Conditions, columns: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    """Each parameter that may not matter, and in which rows of these columns it does not."""
    for child, (parent, values) in conditions.items():
        each = space[parent]
        codes = [each.choices.index(value) if isinstance(each, CategoricalDistribution) else value for value in values]
        yield child, ~np.isin(columns[parent], codes)


# ------------------------------------------------------------------ surrogates


class Onnx:
    """The outputs of a surrogate in the folder ``trainings/NAME``, for rows of its own columns.

    ``outputs`` takes the instance, further columns by name (one value for all rows) and the rows of values by name. A
    category is its label. A parameter that is switched off is 0.
    """

    def __init__(self, name: str) -> None:
        import onnxruntime

        folder = _folder() / "trainings" / name
        self.config = json.loads((folder / "config_space.json").read_text())
        self.codes = json.loads((folder / "encoding.json").read_text())
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)

    def outputs(self, categories: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """All outputs for rows of codes and of numbers, in the order of the surrogate, (n, outputs)."""
        cells = {"x_cat": categories.astype(np.int32), "x_cont": numbers.astype(np.float32)}
        return np.asarray(self.session.run(None, cells)[0], dtype=float)


@cache
def onnx(name: str) -> Onnx:
    """A surrogate."""
    return Onnx(name)


# The order of the columns of rbv2_xgboost, after the data set.
XGBOOST_NUMBERS = (
    *("nrounds", "eta", "gamma", "lambda", "alpha", "subsample", "max_depth", "min_child_weight"),
    *("colsample_bytree", "colsample_bylevel", "rate_drop", "skip_drop"),
)
XGBOOST_CHOICES = ("booster", "num.impute.selected.cpo")


@cache
def surrogate(source: str, data: str) -> Training:
    """The error rate of a network of LCBench, or of XGBoost, in per cent."""
    if source == "lcbench":
        return Training(dict(LCBENCH), {}, lambda rows: 100.0 - lcbench_outputs(data, rows)[:, 1])
    space, conditions = xgboost_space()
    return Training(space, conditions, lambda rows: 100.0 * (1.0 - xgboost_outputs(data, rows)[:, 0]))


def lcbench_outputs(data: str, rows: np.ndarray, epoch: float | np.ndarray = 52.0) -> np.ndarray:
    """Time, accuracy, cross entropy and others (per cent) of networks after an epoch, the same or one each, (n, 6)."""
    model = onnx("lcbench")
    code = np.full((len(rows), 1), model.codes["OpenML_task_id"][data])
    return model.outputs(code, np.column_stack([np.full(len(rows), epoch), rows]))


def xgboost_outputs(data: str, rows: np.ndarray) -> np.ndarray:
    """Accuracy, …, training time, prediction time and memory of XGBoost, (n, 9), on all data."""
    model, (space, conditions) = onnx("rbv2_xgboost"), xgboost_space()
    columns = dict(zip(space, rows.T, strict=True))
    for child, inactive in _inactive(space, conditions, columns):
        columns[child] = np.where(inactive, 0.0, columns[child])
    codes = [np.full(len(rows), model.codes["task_id"][data])]
    for name in XGBOOST_CHOICES:
        table = np.array([model.codes[name][choice] for choice in space[name].choices])  # type: ignore[attr-defined]
        codes.append(table[columns[name].astype(int)])
    numbers = [*(columns[name] for name in XGBOOST_NUMBERS), np.ones(len(rows)), np.full(len(rows), 10.0)]
    return model.outputs(np.column_stack(codes), np.column_stack(numbers))


@cache
def xgboost_space() -> tuple[dict[str, BaseDistribution], dict[str, Condition]]:
    """The parameters of XGBoost, and which boosters use them."""
    config = onnx("rbv2_xgboost").config
    space: dict[str, BaseDistribution] = {}
    for each in config["hyperparameters"]:
        if each["name"] in ("task_id", "trainsize", "repl"):
            continue
        if each["type"] == "categorical":
            space[each["name"]] = CategoricalDistribution(each["choices"])
        else:
            make = IntDistribution if each["type"] == "uniform_int" else FloatDistribution
            space[each["name"]] = make(each["lower"], each["upper"], log=each["log"])
    conditions = {
        each["child"]: (each["parent"], tuple(each["values"] if each["type"] == "IN" else [each["value"]]))
        for each in config["conditions"]
    }
    return space, conditions


# ---------------------------------------------------------------------- tables


class Forest:
    """Extra trees that play a table. They see logarithms of logarithmic parameters, and choices as columns of 0 and 1.

    A parameter that does not matter has the same value in all rows.
    """

    def __init__(
        self,
        name: str,
        space: Mapping[str, BaseDistribution],
        conditions: Conditions,
        rows: np.ndarray,
        errors: np.ndarray,
        leaf: int = LEAF,
    ) -> None:
        self._space, self._conditions = space, conditions
        self._trees = kept(name, lambda: _trees(self.inputs(rows), errors, leaf))

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Predictions, (n,), rounded: means of equal numbers differ in their last digits."""
        cells = self.inputs(rows)
        # As `predict` of scikit-learn, which takes ten times as long for a single row.
        total = sum(tree.predict(cells)[:, 0] for tree in self._trees)
        return np.round(total / len(self._trees), 9)

    def inputs(self, rows: np.ndarray) -> np.ndarray:
        """What the trees see of rows of values."""
        columns = dict(zip(self._space, rows.T, strict=True))
        for child, inactive in _inactive(self._space, self._conditions, columns):
            columns[child] = np.where(inactive, np.nan, columns[child])
        cells = [_input(self._space[name], column) for name, column in columns.items()]
        return np.column_stack(cells).astype(np.float32)


def _input(distribution: BaseDistribution, column: np.ndarray) -> np.ndarray:
    """The columns that the trees see of a parameter; an inactive entry, NaN, is the middle of the range."""
    inactive = np.isnan(column)
    if isinstance(distribution, CategoricalDistribution):
        return np.where(inactive[:, None], 0.0, column[:, None] == np.arange(len(distribution.choices)))
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    if distribution.log:
        column = np.log(np.where(inactive, np.sqrt(distribution.low * distribution.high), column))
    return np.where(inactive, (distribution.low + distribution.high) / 2, column)


def _trees(x: np.ndarray, y: np.ndarray, leaf: int) -> list[Any]:
    from sklearn.ensemble import ExtraTreesRegressor

    model = ExtraTreesRegressor(TREES, min_samples_leaf=leaf, random_state=0).fit(x, y)
    return [each.tree_ for each in model.estimators_]


def _from_table(
    name: str,
    space: dict[str, BaseDistribution],
    conditions: Conditions,
    rows: np.ndarray,
    errors: np.ndarray,
) -> Training:
    return Training(space, conditions, Forest(f"forest-{name}", space, conditions, rows, errors))


@cache
def finals(data: str) -> tuple[np.ndarray, np.ndarray]:
    """LCBench's trainings on a data set: rows of values, (2000, 7), and their errors in per cent, (2000,)."""
    stored = _stored("lcbench_finals.npz")
    i = [str(name) for name in stored["names"]].index(data)
    return stored["configs"][i].astype(float), 100.0 - stored["val_accuracy"][i].astype(float)


def _taskset(task: int) -> tuple[np.ndarray, np.ndarray]:
    """TaskSet's trainings of a task: rows of values, (1000, 8), and the validation losses at the end, (1000,)."""
    stored = _stored("taskset.npz")
    rows, losses = stored["configs"][task].astype(float), stored["valid_loss"][task].astype(float)
    rows[:, 1:3] = 1.0 - rows[:, 1:3]
    low, high = (np.array([getattr(each, end) for each in TASKSET.values()]) for end in ("low", "high"))
    finite = np.where(np.isfinite(losses[:, -1]), losses[:, -1], np.inf)
    return np.clip(rows, low, high), np.minimum(finite / np.nanmedian(losses[:, 0]), CLIP)


def _folder() -> Path:
    """The folder with the data of others."""
    folder = Path(os.environ.get("LAZYBO_CURVES", "curves"))
    if not (folder / "taskset.npz").exists() or not (folder / "trainings").exists():
        raise SystemExit(
            f"{folder} must have taskset.npz, lcbench_finals.npz and trainings/ (docs/benchmarks.md says what they "
            "hold); name the folder with the variable LAZYBO_CURVES"
        )
    return folder


@cache
def _stored(name: str) -> dict[str, np.ndarray]:
    """The arrays of a file."""
    return dict(np.load(_folder() / name))


def kept(name: str, compute: Callable[[], Any]) -> Any:
    """What ``compute`` returns; it is computed once and kept in a temporary folder."""
    path = Path(tempfile.gettempdir()) / f"lazybo-trainings-{os.getuid()}" / f"{name}.pickle"
    if path.exists():
        return pickle.loads(path.read_bytes())  # noqa: S301 - written by this function
    found = compute()
    path.parent.mkdir(exist_ok=True, mode=0o700)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_bytes(pickle.dumps(found))
    part.replace(path)
    return found
