"""The trainings of `benchmarks.trained`: small data sets, models, and the cross-validated error of a configuration.

Splits and seeds are fixed, so a configuration always has the same error. The error to minimise is the mean over the
folds of

- regression: 1 − R², at most 1.5;
- classes: the log loss with probabilities of at least 0.001, or the balanced error rate for support-vector machines,
  which have no probabilities, and for the data sets in ``ERROR_RATE``.

A training that fails, or predicts anything that is not finite, counts as a constant prediction.
"""

import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_selection import SelectKBest, f_classif, f_regression
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge
from sklearn.metrics import balanced_accuracy_score, r2_score
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, QuantileTransformer, RobustScaler, StandardScaler
from sklearn.svm import SVC, SVR

Params = Mapping[str, Any]
Arrays = tuple[np.ndarray, np.ndarray]

WORST = 1.5
SMALLEST_PROBABILITY = 1e-3
ERROR_RATE = ("moons", "rare")
# Error rates are coarse, so their folds are repeated; support-vector machines are trained quickly.
REPEATS = 2
SVM_REPEATS = 3
SMALL = 200  # data sets with fewer rows have 5 folds, others 3
MOST_FEATURES = 16  # that an elastic net uses, before it multiplies them
EPOCHS = 25
LBFGS_STEPS = 50


class Data(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    classes: bool


def error(model: str, data: str, params: Params) -> float:
    """The error of a configuration."""
    rate = model == "svm" or data in ERROR_RATE
    folds = _folds(data, SVM_REPEATS if model == "svm" else REPEATS if rate else 1)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return float(np.mean([_fold_error(model, _data(data), params, k, *fold, rate) for k, fold in enumerate(folds)]))


def _fold_error(
    model: str, data: Data, params: Params, seed: int, train: np.ndarray, test: np.ndarray, rate: bool
) -> float:
    dummy = DummyClassifier(strategy="prior") if data.classes else DummyRegressor()
    estimators = (MAKERS[model](params, data, seed), dummy)
    for estimator in estimators:
        try:
            estimator.fit(data.x[train], data.y[train])
            return _loss(estimator, data.x[test], data.y[test], data.classes, rate)
        except (ValueError, FloatingPointError, np.linalg.LinAlgError):
            continue
    raise AssertionError("a constant prediction never fails")


def _loss(estimator: Any, x: np.ndarray, y: np.ndarray, classes: bool, rate: bool) -> float:
    if classes and rate:
        return 1.0 - balanced_accuracy_score(y, estimator.predict(x))
    predicted = estimator.predict_proba(x) if classes else estimator.predict(x)
    if not np.all(np.isfinite(predicted)):
        raise ValueError("predictions are not finite")
    if not classes:
        return min(1.0 - r2_score(y, predicted), WORST)
    return float(-np.mean(np.log(np.maximum(predicted[np.arange(len(y)), y], SMALLEST_PROBABILITY))))


@cache
def _folds(data: str, repeats: int) -> list[Arrays]:
    x, y, classes = _data(data)
    kind = RepeatedStratifiedKFold if classes else RepeatedKFold
    n = 5 if len(x) < SMALL else 3
    return list(kind(n_splits=n, n_repeats=repeats, random_state=0).split(x, y))


@cache
def _data(name: str) -> Data:
    """A data set. Classes are numbered from 0; targets of a regression are standardised."""
    x, y = DATA[name]()
    if y.dtype.kind in "iu":
        return Data(x, y, True)
    return Data(x, (y - y.mean()) / y.std(), False)


def _subset(loaded: Arrays, rows: int) -> Arrays:
    x, y = loaded
    chosen = np.random.default_rng(0).permutation(len(x))[:rows]
    return x[chosen], y[chosen]


def _moons() -> Arrays:
    """Two moons in a random plane of 8 dimensions, with noise in all of them."""
    plane, y = datasets.make_moons(300, noise=0.15, random_state=0)
    rng = np.random.default_rng(0)
    rotation, _ = np.linalg.qr(rng.standard_normal((8, 8)))
    return np.column_stack([plane, rng.normal(0.0, 0.4, (300, 6))]) @ rotation, y


def _hastie() -> Arrays:
    x, y = datasets.make_hastie_10_2(400, random_state=0)
    return x, (y > 0).astype(int)


def _noisy() -> Arrays:
    return datasets.make_classification(
        400, 20, n_informative=5, n_redundant=4, n_clusters_per_class=3, flip_y=0.15, class_sep=1.2, random_state=0
    )


def _rare() -> Arrays:
    """One row in ten belongs to the second class."""
    return datasets.make_classification(
        400, 12, n_informative=4, n_redundant=2, weights=[0.9], flip_y=0.02, class_sep=0.9, random_state=1
    )


def _sparse() -> Arrays:
    """6 of 40 features matter; a quarter of the targets is much noisier than the others."""
    x, y = datasets.make_regression(240, 40, n_informative=6, noise=20.0, random_state=0)
    rng = np.random.default_rng(0)
    return x, y + rng.normal(0.0, 150.0, 240) * (rng.random(240) < 0.25)


DATA: dict[str, Callable[[], Arrays]] = {
    "digits": lambda: _subset(datasets.load_digits(n_class=5, return_X_y=True), 200),
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "cancer": lambda: _subset(datasets.load_breast_cancer(return_X_y=True), 300),
    "noisy": _noisy,
    "moons": _moons,
    "hastie": _hastie,
    "rare": _rare,
    "diabetes": lambda: _subset(datasets.load_diabetes(return_X_y=True), 400),
    "friedman": lambda: datasets.make_friedman1(250, noise=1.0, random_state=0),
    "sparse": _sparse,
}


def _boosting(params: Params, data: Data, seed: int) -> Any:
    names = ("learning_rate", "n_estimators", "min_samples_leaf", "subsample", "max_features")
    options = {name: params[name] for name in names}
    if params["growth"] == "depth":
        options["max_depth"] = params["max_depth"]
    else:
        options |= {"max_depth": None, "max_leaf_nodes": params["max_leaf_nodes"]}
    if data.classes:
        return GradientBoostingClassifier(**options, random_state=seed)
    if params["loss"] == "huber":
        options["alpha"] = params["alpha"]
    return GradientBoostingRegressor(**options, loss=params["loss"], random_state=seed)


def _forest(params: Params, data: Data, seed: int) -> Any:
    options = {name: value for name, value in params.items() if name not in ("kind", "max_samples")}
    if params["bootstrap"]:
        options["max_samples"] = params["max_samples"]
    kinds = {
        ("forest", True): RandomForestClassifier,
        ("extra", True): ExtraTreesClassifier,
        ("forest", False): RandomForestRegressor,
        ("extra", False): ExtraTreesRegressor,
    }
    return kinds[params["kind"], data.classes](**options, random_state=seed)


def _svm(params: Params, data: Data, _seed: int) -> Any:
    options: dict[str, Any] = {"C": params["C"], "kernel": params["kernel"], "max_iter": 5000}
    if params["kernel"] != "linear":
        options["gamma"] = params["gamma"]
    if params["kernel"] == "poly":
        options |= {"degree": params["degree"], "coef0": params["coef0"]}
    if not data.classes:
        return make_pipeline(StandardScaler(), SVR(**options, epsilon=params["epsilon"]))
    weight = None if params["class_weight"] == "none" else params["class_weight"]
    return make_pipeline(StandardScaler(), SVC(**options, class_weight=weight))


def _mlp(params: Params, data: Data, seed: int) -> Any:
    widths = (params["width"], params["width_2"])[: params["layers"]]
    options = {name: params[name] for name in ("solver", "activation", "alpha")}
    if params["solver"] == "lbfgs":
        options["max_iter"] = LBFGS_STEPS
    else:
        options |= {name: params[name] for name in ("learning_rate_init", "batch_size")}
        options["max_iter"] = EPOCHS
    if params["solver"] == "sgd":
        options["momentum"] = params["momentum"]
    kind = MLPClassifier if data.classes else MLPRegressor
    return make_pipeline(StandardScaler(), kind(hidden_layer_sizes=widths, **options, random_state=seed))


def _elastic(params: Params, data: Data, seed: int) -> Any:
    """A linear model of the best features and, with degree 2, their products."""
    scaler = {
        "standard": StandardScaler(),
        "robust": RobustScaler(),
        "quantile": QuantileTransformer(n_quantiles=50, output_distribution="normal"),
    }[params["scaler"]]
    most = min(data.x.shape[1], MOST_FEATURES)
    best = SelectKBest(f_classif if data.classes else f_regression, k=max(1, round(params["features"] * most)))
    products = params["degree"] == 2 and params["interaction_only"]
    polynomial = PolynomialFeatures(params["degree"], interaction_only=products, include_bias=False)
    linear = (_logistic if data.classes else _linear)(params, len(data.x), seed)
    return make_pipeline(scaler, best, polynomial, StandardScaler(), linear)


def _share(params: Params) -> float:
    """The share of the L1 norm in the penalty."""
    return float({"l1": 1.0, "l2": 0.0, "elasticnet": params["l1_ratio"]}[params["penalty"]])


def _logistic(params: Params, _n: int, seed: int) -> Any:
    # From scikit-learn 1.8 on, l1_ratio alone says which penalty it is.
    return LogisticRegression(
        C=params["C"], l1_ratio=_share(params), solver="saga", max_iter=60, tol=1e-3, random_state=seed
    )


def _linear(params: Params, n: int, seed: int) -> Any:
    if params["penalty"] == "l2":
        return Ridge(params["alpha"] * n)
    return ElasticNet(alpha=params["alpha"], l1_ratio=_share(params), max_iter=500, random_state=seed)


MAKERS: dict[str, Callable[[Params, Data, int], Any]] = {
    "boosting": _boosting,
    "forest": _forest,
    "svm": _svm,
    "mlp": _mlp,
    "elastic": _elastic,
}
