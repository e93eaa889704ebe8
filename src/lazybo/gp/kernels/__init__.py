"""Covariance functions: the interface (`base`), and all kernels by name. A new kernel is added to `KERNELS`."""

from lazybo.gp.kernels.additive import AdditiveMatern52
from lazybo.gp.kernels.base import Column, Kernel, Parameter
from lazybo.gp.kernels.matern import Matern52

__all__ = ["KERNELS", "AdditiveMatern52", "Column", "Kernel", "Matern52", "Parameter"]

KERNELS = Kernel.by_name
KERNELS.update({each.name: each for each in (Matern52, AdditiveMatern52)})
