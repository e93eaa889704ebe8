"""Bayesian optimisation with a Gaussian process that is extended instead of rebuilt."""

from lazybo.model.cholesky import GrowingCholesky
from lazybo.model.gp import LazyGP
from lazybo.model.kernels import Column, Matern52
from lazybo.report.recommendation import recommend
from lazybo.run.failure import RunFailed
from lazybo.run.kfold import kfold
from lazybo.run.optimize import optimize
from lazybo.search.optimizer import Optimizer, Suggestion
from lazybo.search.prediction import Prediction, Recommendation
from lazybo.search.space import Condition
from lazybo.study.sampler import LazySampler
from lazybo.study.storage import repair_storage

__version__ = "0.1.0.dev0"

__all__ = [
    "Column",
    "Condition",
    "GrowingCholesky",
    "LazyGP",
    "LazySampler",
    "Matern52",
    "Optimizer",
    "Prediction",
    "Recommendation",
    "RunFailed",
    "Suggestion",
    "__version__",
    "kfold",
    "optimize",
    "recommend",
    "repair_storage",
]
