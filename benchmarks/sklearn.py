"""Compare the estimators with scikit-learn's own: ``python -m benchmarks.sklearn [PART ...]``.

regressor: rows that `partial_fit` adds to a fitted regressor, compared with `GaussianProcessRegressor.fit` on all rows.
Both have the same kernel with fixed parameters and 5 columns. Medians, measured alternately with one BLAS thread.

search: `LazySearchCV` compared with `RandomizedSearchCV` and scikit-optimize's `BayesSearchCV` on three data sets of
scikit-learn. The search uses half of the rows; the others are held out. Means over seeds; each seed splits differently.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Collection
from functools import partial
from importlib.metadata import version
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import loguniform, randint
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern
from sklearn.model_selection import RandomizedSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks.timing import alternate
from lazybo.sklearn import LazyGPRegressor, LazySearchCV

KERNEL = ConstantKernel(1.0) * Matern(np.full(5, 0.5), nu=2.5)
ALPHA = 1e-4
BLOCK = 20
SIZES = {1000: 21, 3000: 11, 5000: 7}  # rows, and rounds


def rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).random((n, 5))
    return x, np.sin(5 * x[:, 0]) + x[:, 1] ** 2


def adding(n: int, t: int, *, predict: bool = False) -> Callable[[], object]:
    """A function that adds t new rows to a regressor with n rows; the regressor grows with each call."""
    regressor = LazyGPRegressor(KERNEL, alpha=ALPHA, optimizer=None).fit(*rows(n, 0))
    seeds, u = count(1), rows(1, 0)[0]

    def run() -> None:
        regressor.partial_fit(*rows(t, next(seeds)))
        if predict:
            regressor.predict(u, return_std=True)

    return run


def regressor_part() -> None:
    print("rows that come to n others, beside scikit-learn's fit of all (fixed parameters)")
    titles = ("n", "fit", "1 row", "ratio", f"{BLOCK} rows", "ratio", "1 + predict", "ratio")
    print("".join(f"{title:>12}" for title in titles))
    for n, rounds in SIZES.items():
        fit = partial(GaussianProcessRegressor(KERNEL, alpha=ALPHA, optimizer=None).fit, *rows(n, 0))
        contestants = {"one": adding(n, 1), "block": adding(n, BLOCK), "predict": adding(n, 1, predict=True)}
        t = alternate({"fit": fit, **contestants}, rounds)
        cells = [f"{n}", f"{1e3 * t['fit']:.0f} ms"]
        for name in contestants:
            cells += [f"{1e3 * t[name]:.2f} ms", f"{t['fit'] / t[name]:.0f}×"]
        print("".join(f"{cell:>12}" for cell in cells), flush=True)


class Task(NamedTuple):
    """An estimator, its space, and the data."""

    estimator: Any
    space: dict[str, Any]
    load: Callable[..., Any]


SVM = {"svc__C": loguniform(1e-3, 1e4), "svc__gamma": loguniform(1e-6, 1e1)}
BOOSTING = {
    "learning_rate": loguniform(1e-3, 1),
    "max_iter": randint(5, 100),
    "max_leaf_nodes": randint(2, 32),
    "min_samples_leaf": randint(1, 50),
    "l2_regularization": loguniform(1e-6, 1e3),
}
TASKS = {
    "breast_cancer": Task(make_pipeline(StandardScaler(), SVC()), SVM, load_breast_cancer),
    "digits": Task(make_pipeline(PCA(), SVC()), {"pca__n_components": randint(2, 50), **SVM}, load_digits),
    "diabetes": Task(HistGradientBoostingRegressor(random_state=0), BOOSTING, load_diabetes),
}
CANDIDATES = (30, 60)
FOLDS = 5
SEARCHES = ("RandomizedSearchCV", "BayesSearchCV", "LazySearchCV")


class Found(NamedTuple):
    """Best mean over the folds, and the held-out score of that candidate, after each number of candidates."""

    scores: tuple[float, ...]
    held_out: tuple[float, ...]
    seconds: float  # spent outside the estimators


def searches(task: Task, seed: int) -> dict[str, Any]:
    from skopt import BayesSearchCV
    from skopt.space import Integer, Real

    def dimension(spec: Any) -> Any:
        low, high = (end.item() for end in spec.support())
        return Integer(low, high) if spec.dist.name == "randint" else Real(low, high, prior="log-uniform")

    options: dict[str, Any] = {"n_iter": max(CANDIDATES), "cv": FOLDS, "refit": False, "random_state": seed}
    theirs = {name: dimension(spec) for name, spec in task.space.items()}
    return {
        "RandomizedSearchCV": RandomizedSearchCV(task.estimator, task.space, **options),
        "BayesSearchCV": BayesSearchCV(task.estimator, theirs, **options),
        "LazySearchCV": LazySearchCV(task.estimator, task.space, **options),
    }


def found_by(search: Any, x: Any, y: Any, held_x: Any, held_y: Any) -> Found:
    start = time.perf_counter()
    search.fit(x, y)
    total, results = time.perf_counter() - start, search.cv_results_
    inside = FOLDS * float((results["mean_fit_time"] + results["mean_score_time"]).sum())
    best = [int(np.nanargmax(results["mean_test_score"][:n])) for n in CANDIDATES]
    refitted = [clone(search.estimator).set_params(**results["params"][i]).fit(x, y) for i in best]
    held_out = tuple(float(estimator.score(held_x, held_y)) for estimator in refitted)
    return Found(tuple(float(results["mean_test_score"][i]) for i in best), held_out, total - inside)


def search_part(chosen: Collection[str] = SEARCHES, seeds: int = 5) -> None:
    packages = ", ".join(f"{name} {version(name)}" for name in ("scikit-learn", "scikit-optimize"))
    print(f"searches after {' and '.join(map(str, CANDIDATES))} candidates, {FOLDS} folds, {seeds} seeds ({packages})")
    ends = [f"{kind} {n}" for kind in ("cv", "held out") for n in CANDIDATES]
    print(f"{'data set':<15}{'search':<20}" + "".join(f"{title:>13}" for title in (*ends, "s outside")))
    warnings.simplefilter("ignore")  # of scikit-optimize about scikit-learn, and of points that it repeats
    for name, task in TASKS.items():
        found: dict[str, list[Found]] = {}
        for seed in range(seeds):
            x, held_x, y, held_y = train_test_split(*task.load(return_X_y=True), test_size=0.5, random_state=seed)
            for kind, search in searches(task, seed).items():
                if kind not in chosen:
                    continue
                found.setdefault(kind, []).append(found_by(search, x, y, held_x, held_y))
        for kind, each in found.items():
            scores = np.mean([(*one.scores, *one.held_out) for one in each], axis=0)
            seconds = float(np.mean([one.seconds for one in each]))
            cells = [*(f"{score:.4f}" for score in scores), f"{seconds:.1f}"]
            print(f"{name:<15}{kind:<20}" + "".join(f"{cell:>13}" for cell in cells), flush=True)


PARTS = ("regressor", "search")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}; all by default")
    parser.add_argument("--searches", nargs="+", default=SEARCHES, choices=SEARCHES)
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    parts = options.parts or PARTS
    if "regressor" in parts:
        regressor_part()
    if "search" in parts:
        search_part(options.searches)


if __name__ == "__main__":
    main()
