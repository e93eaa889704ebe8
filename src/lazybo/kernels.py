"""Public names of `lazybo.model.kernels`."""

from lazybo.model.kernels import AdditiveMatern52, Column, Kernel, Matern52, Parameter, Slope

__all__ = ["AdditiveMatern52", "Column", "Kernel", "Matern52", "Parameter", "Slope"]
