"""Public names of `lazybo.model.fit`."""

from lazybo.model.fit import Lag, Learned, Priors, is_due, learn, prior_kernel

__all__ = ["Lag", "Learned", "Priors", "is_due", "learn", "prior_kernel"]
