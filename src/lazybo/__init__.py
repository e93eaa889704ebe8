"""Bayesian optimisation with a Gaussian process that is extended, never rebuilt."""

from lazybo.cholesky import GrowingCholesky
from lazybo.gp import LazyGP
from lazybo.kernels import Column, Matern52
from lazybo.kfold import kfold
from lazybo.optimizer import Optimizer, Suggestion
from lazybo.run import optimize
from lazybo.sampler import LazySampler
from lazybo.space import Condition

__version__ = "0.1.0.dev0"

__all__ = [
    "Column",
    "Condition",
    "GrowingCholesky",
    "LazyGP",
    "LazySampler",
    "Matern52",
    "Optimizer",
    "Suggestion",
    "__version__",
    "kfold",
    "optimize",
]
