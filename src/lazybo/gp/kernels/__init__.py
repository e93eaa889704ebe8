"""Covariance functions: the interface (`base`), and all kernels."""

from lazybo.gp.kernels.additive import AdditiveMatern52
from lazybo.gp.kernels.base import Kernel, Pairs, Parameter, Slope, as_kernel, distances, upper
from lazybo.gp.kernels.choice import KERNELS, check_choice, kernel_for
from lazybo.gp.kernels.columns import Column
from lazybo.gp.kernels.matern import Matern52

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
