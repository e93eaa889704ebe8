"""Public names of `lazybo.model.gp`."""

from lazybo.model.gp import LazyGP, Posterior, PosteriorGradient

__all__ = ["LazyGP", "Posterior", "PosteriorGradient"]
