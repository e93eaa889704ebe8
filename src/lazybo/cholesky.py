"""Public names of `lazybo.model.cholesky`."""

from lazybo.model.cholesky import GrowingCholesky

__all__ = ["GrowingCholesky"]
