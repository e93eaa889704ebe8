"""Learners of real libraries: the ranges that people tune, the library's defaults, and how one is made.

A default that is 0 on a logarithmic scale is the lower end, which makes no difference. Every learner has one thread.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from benchmarks.datasets import DataSet

Params = Mapping[str, Any]


@dataclass(frozen=True)
class Learner:
    """``make`` returns an estimator for a configuration, a data set and a seed."""

    space: dict[str, BaseDistribution]
    default: Callable[[DataSet], dict[str, Any]]
    make: Callable[[Params, DataSet, int], Any]


def _log(low: float, high: float) -> FloatDistribution:
    return FloatDistribution(low, high, log=True)


def _log_int(low: int, high: int) -> IntDistribution:
    return IntDistribution(low, high, log=True)


# ---------------------------------------------------------------- boosted trees

NOTHING = 1e-8  # of a penalty


def _lightgbm(params: Params, data: DataSet, seed: int) -> Any:
    import lightgbm

    kind = lightgbm.LGBMClassifier if data.is_classes else lightgbm.LGBMRegressor
    return kind(**params, subsample_freq=1, n_jobs=1, random_state=seed, verbose=-1)


def _xgboost(params: Params, data: DataSet, seed: int) -> Any:
    import xgboost

    kind = xgboost.XGBClassifier if data.is_classes else xgboost.XGBRegressor
    return kind(**params, n_jobs=1, random_state=seed, verbosity=0)


LIGHTGBM = Learner(
    {
        "learning_rate": _log(0.005, 0.5),
        "num_leaves": _log_int(2, 256),
        "n_estimators": _log_int(10, 400),
        "min_child_samples": _log_int(1, 100),
        "subsample": FloatDistribution(0.4, 1.0),
        "colsample_bytree": FloatDistribution(0.3, 1.0),
        "reg_alpha": _log(NOTHING, 10.0),
        "reg_lambda": _log(NOTHING, 10.0),
    },
    lambda _: {
        "learning_rate": 0.1,
        "num_leaves": 31,
        "n_estimators": 100,
        "min_child_samples": 20,
        "subsample": 1.0,
        "colsample_bytree": 1.0,
        "reg_alpha": NOTHING,
        "reg_lambda": NOTHING,
    },
    _lightgbm,
)
XGBOOST = Learner(
    {
        "learning_rate": _log(0.005, 0.5),
        "max_depth": IntDistribution(1, 12),
        "n_estimators": _log_int(10, 400),
        "min_child_weight": _log(0.01, 100.0),
        "subsample": FloatDistribution(0.4, 1.0),
        "colsample_bytree": FloatDistribution(0.3, 1.0),
        "gamma": _log(NOTHING, 10.0),
        "reg_alpha": _log(NOTHING, 10.0),
        "reg_lambda": _log(NOTHING, 10.0),
    },
    lambda _: {
        "learning_rate": 0.3,
        "max_depth": 6,
        "n_estimators": 100,
        "min_child_weight": 1.0,
        "subsample": 1.0,
        "colsample_bytree": 1.0,
        "gamma": NOTHING,
        "reg_alpha": NOTHING,
        "reg_lambda": 1.0,
    },
    _xgboost,
)


# ------------------------------------------------------------------ scikit-learn


def _forest(params: Params, data: DataSet, seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline

    kind = RandomForestClassifier if data.is_classes else RandomForestRegressor
    return make_pipeline(SimpleImputer(strategy="median"), kind(**params, n_jobs=1, random_state=seed))


def _forest_default(data: DataSet) -> dict[str, Any]:
    d = data.x.shape[1]
    features = max(0.05, d**-0.5) if data.is_classes else 1.0
    return {"n_estimators": 100, "max_features": features, "max_depth": 30, "min_samples_leaf": 1, "max_samples": 1.0}


def _scaled(estimator: Any, scaler: str = "standard") -> list[Any]:
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import QuantileTransformer, RobustScaler, StandardScaler

    scalers = {
        "standard": StandardScaler(),
        "robust": RobustScaler(),
        "quantile": QuantileTransformer(n_quantiles=100, output_distribution="normal"),
    }
    return [SimpleImputer(strategy="median"), scalers[scaler], estimator]


def _svm(params: Params, data: DataSet, seed: int) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC, SVR

    kind = SVC(**params, max_iter=20_000, random_state=seed) if data.is_classes else SVR(**params, max_iter=20_000)
    return make_pipeline(*_scaled(kind))


def _mlp(params: Params, data: DataSet, seed: int) -> Any:
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline

    options = dict(params)
    widths = (options.pop("width"),) * options.pop("layers")
    kind = MLPClassifier if data.is_classes else MLPRegressor
    return make_pipeline(*_scaled(kind(hidden_layer_sizes=widths, **options, random_state=seed)))


def _elastic(params: Params, data: DataSet, seed: int) -> Any:
    from sklearn.linear_model import ElasticNet, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures

    *before, linear = _scaled(
        LogisticRegression(
            C=1.0 / params["alpha"], l1_ratio=params["l1_ratio"], solver="saga", max_iter=100, random_state=seed
        )
        if data.is_classes
        else ElasticNet(alpha=params["alpha"], l1_ratio=params["l1_ratio"], max_iter=500, random_state=seed),
        params["scaler"],
    )
    products = [PolynomialFeatures(2, interaction_only=True, include_bias=False)] if params["products"] else []
    # Products of many features take longer than a live evaluation may.
    return make_pipeline(*before, *(products if data.x.shape[1] <= MOST_MULTIPLIED else []), linear)


MOST_MULTIPLIED = 20

FOREST = Learner(
    {
        "n_estimators": _log_int(10, 200),
        "max_features": FloatDistribution(0.05, 1.0),
        "max_depth": _log_int(1, 30),
        "min_samples_leaf": _log_int(1, 50),
        "max_samples": FloatDistribution(0.2, 1.0),
    },
    _forest_default,
    _forest,
)
SVM = Learner(
    {
        "C": _log(1e-3, 1e3),
        "gamma": _log(1e-5, 10.0),
        "kernel": CategoricalDistribution(["rbf", "poly", "linear"]),
        "degree": IntDistribution(2, 4),
    },
    lambda data: {"C": 1.0, "gamma": 1.0 / data.x.shape[1], "kernel": "rbf", "degree": 3},
    _svm,
)
MLP = Learner(
    {
        "width": _log_int(8, 256),
        "layers": IntDistribution(1, 3),
        "activation": CategoricalDistribution(["relu", "tanh"]),
        "alpha": _log(1e-6, 1.0),
        "learning_rate_init": _log(1e-4, 0.1),
        "batch_size": _log_int(16, 256),
        "max_iter": _log_int(10, 200),
    },
    lambda _: {
        "width": 100,
        "layers": 1,
        "activation": "relu",
        "alpha": 1e-4,
        "learning_rate_init": 1e-3,
        "batch_size": 200,
        "max_iter": 200,
    },
    _mlp,
)
ELASTIC = Learner(
    {
        "alpha": _log(1e-4, 1e4),
        "l1_ratio": FloatDistribution(0.0, 1.0),
        "scaler": CategoricalDistribution(["standard", "robust", "quantile"]),
        "products": CategoricalDistribution([False, True]),
    },
    lambda data: {
        "alpha": 1.0,
        "l1_ratio": 0.0 if data.is_classes else 0.5,
        "scaler": "standard",
        "products": False,
    },
    _elastic,
)
LEARNERS = {
    "lightgbm": LIGHTGBM,
    "xgboost": XGBOOST,
    "forest": FOREST,
    "svm": SVM,
    "mlp": MLP,
    "elastic": ELASTIC,
}
