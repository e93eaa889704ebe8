"""LazySampler of the lazybo package, for ``optunahub.load_module("samplers/lazybo")``."""

from lazybo import LazyPruner, LazySampler

__all__ = ["LazyPruner", "LazySampler"]
