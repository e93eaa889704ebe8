"""Ends of real trainings: accuracy and number of weights of LCBench's networks, through a surrogate.

Extra trees are fitted to the 2000 trainings of a data set, and the optimisers play the trees' predictions. The data is
not part of this repository: the variable LAZYBO_CURVES names the folder with lcbench_finals.npz.
"""

import os
import pickle
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from optuna.distributions import IntDistribution

from benchmarks.trainings import LCBENCH

# Data sets of different sizes and numbers of classes.
DATA = ("Fashion-MNIST", "adult", "car", "higgs")
TREES = 60
# Trainings in a leaf at least, for the error and the weights. With 1 the trees repeat every training, with its luck,
# and the front would be a few lucky trainings. The number of weights has no luck.
LEAVES = (4, 1)
# The front is not known. We take that of so many random points and of so many rounds of changing its points.
DRAWS = 20_000
ROUNDS = 60
CHILDREN = 500


class Finals:
    """The error in per cent and the decimal logarithm of the number of weights, by the trees."""

    def __init__(self, data: str) -> None:
        stored = _stored()
        i = list(stored["names"]).index(data)
        self.space: dict[str, Any] = {str(name): LCBENCH[str(name)] for name in stored["columns"]}
        self._logs = np.array([bool(each.log) for each in self.space.values()])
        x = self._inputs(stored["configs"][i].astype(float))
        y = np.column_stack([100.0 - stored["val_accuracy"][i], np.log10(stored["parameters"][i])])
        self._trees = _fitted(data, x, y)
        self.rows = self._predict(x)  # all trainings of the table, (2000, 2)

    def __call__(self, params: Mapping[str, Any]) -> tuple[float, float]:
        row = np.array([[float(params[name]) for name in self.space]])
        error, weights = self._predict(self._inputs(row))[0]
        return float(error), float(weights)

    def front(self) -> np.ndarray:
        """The best points known, (n, 2): of the table, of random points, and of points near the front."""
        rng = np.random.default_rng(0)
        u = rng.random((DRAWS, len(self.space)))
        y = self._play(u)
        for _ in range(ROUNDS):
            kept = _front(y)
            u, y = u[kept], y[kept]
            children = u[rng.integers(len(u), size=CHILDREN)]
            moved = rng.random(children.shape) < 1.5 / len(self.space)
            near = np.clip(children + 0.1 * rng.standard_normal(children.shape), 0.0, 1.0)
            anywhere = rng.random(children.shape)
            children = np.where(moved, np.where(rng.random(children.shape) < 0.5, near, anywhere), children)
            u, y = np.vstack([u, children]), np.vstack([y, self._play(children)])
        y = np.vstack([y, self.rows])
        return y[_front(y)]

    def draw(self, u: np.ndarray) -> np.ndarray:
        """The errors at points of the unit cube, (n, d) -> (n,)."""
        errors: np.ndarray = self._play(u)[:, 0]
        return errors

    def _play(self, u: np.ndarray) -> np.ndarray:
        """Predictions (n, 2) at points of the unit cube, (n, d)."""
        low, high = (np.array([float(getattr(d, end)) for d in self.space.values()]) for end in ("low", "high"))
        start, end = self._inputs(low), self._inputs(high)
        x = start + u * (end - start)
        whole = np.array([isinstance(d.low, int) for d in self.space.values()])
        own = np.where(self._logs, np.exp(np.where(self._logs, x, 0.0)), x)
        return self._predict(self._inputs(np.where(whole, np.round(own), own)))

    def _predict(self, x: np.ndarray) -> np.ndarray:
        # Rounded: means of equal numbers differ in their last digits.
        return np.round(np.column_stack([trees.predict(x) for trees in self._trees]), 9)

    def _inputs(self, own: np.ndarray) -> np.ndarray:
        """What the trees see of values of the space: logarithms of logarithmic parameters."""
        return np.where(self._logs, np.log(np.where(self._logs, own, 1.0)), own)


def _front(y: np.ndarray) -> np.ndarray:
    """Which rows no other one dominates; one of equal rows, (n,)."""
    order = np.lexsort((y[:, 1], y[:, 0]))
    least = np.minimum.accumulate(np.concatenate(([np.inf], y[order, 1])))[:-1]
    return order[y[order, 1] < least]


def _fitted(data: str, x: np.ndarray, y: np.ndarray) -> Any:
    """The trees of error and weights, fitted once and kept in a temporary folder."""
    from sklearn.ensemble import ExtraTreesRegressor

    path = Path(tempfile.gettempdir()) / f"lazybo-curves-{os.getuid()}" / f"finals-{data}.pickle"
    if path.exists():
        return pickle.loads(path.read_bytes())  # noqa: S301 - written by this function
    trees = [
        ExtraTreesRegressor(TREES, min_samples_leaf=leaf, random_state=0).fit(x, values)
        for leaf, values in zip(LEAVES, y.T, strict=True)
    ]
    path.parent.mkdir(exist_ok=True, mode=0o700)
    path.write_bytes(pickle.dumps(trees))
    return trees


@cache
def _stored() -> dict[str, np.ndarray]:
    """The arrays of the file."""
    folder = Path(os.environ.get("LAZYBO_CURVES", "curves"))
    if not (folder / "lcbench_finals.npz").exists():
        raise SystemExit(f"{folder} must have lcbench_finals.npz; name the folder with the variable LAZYBO_CURVES")
    return dict(np.load(folder / "lcbench_finals.npz"))


def all_names() -> list[str]:
    """The names of all data sets."""
    return [str(name) for name in _stored()["names"]]


@cache
def table(data: str) -> tuple[list[dict[str, Any]], np.ndarray]:
    """The real trainings of a data set: configurations, and their errors in per cent, (2000,)."""
    stored, space = _stored(), LCBENCH
    i, names = all_names().index(data), [str(name) for name in stored["columns"]]
    configurations = [
        {
            name: round(float(value)) if isinstance(space[name], IntDistribution) else float(value)
            for name, value in zip(names, row, strict=True)
        }
        for row in stored["configs"][i]
    ]
    return configurations, 100.0 - stored["val_accuracy"][i].astype(float)


@cache
def finals(data: str) -> Finals:
    """The trainings of a data set."""
    return Finals(data)
