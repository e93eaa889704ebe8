"""Public names of `lazybo.model.gp`."""

from lazybo.model.gp import LazyGP
from lazybo.model.process import Posterior, PosteriorGradient

__all__ = ["LazyGP", "Posterior", "PosteriorGradient"]
