"""Covariance functions: the interface (`base`), and all kernels."""

from lazybo.model.kernels.additive import AdditiveMatern52
from lazybo.model.kernels.base import Kernel, Pairs, Parameter, Slope, as_kernel, distances, upper
from lazybo.model.kernels.choice import KERNELS, check_choice, kernel_for
from lazybo.model.kernels.columns import Column
from lazybo.model.kernels.matern import Matern52

__all__ = [
    "KERNELS",
    "AdditiveMatern52",
    "Column",
    "Kernel",
    "Matern52",
    "Pairs",
    "Parameter",
    "Slope",
    "as_kernel",
    "check_choice",
    "distances",
    "kernel_for",
    "upper",
]
