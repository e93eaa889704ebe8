"""Bayesian optimisation with a Gaussian process that is extended, never rebuilt."""

from lazybo.cholesky import GrowingCholesky
from lazybo.gp import LazyGP
from lazybo.kernels import Column, Matern52

__version__ = "0.1.0.dev0"

__all__ = ["Column", "GrowingCholesky", "LazyGP", "Matern52", "__version__"]
