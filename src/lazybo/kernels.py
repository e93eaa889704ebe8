"""Public names of `lazybo.model.kernels`."""

from lazybo.model.kernels import Column, Matern52

__all__ = ["Column", "Matern52"]
