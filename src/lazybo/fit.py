"""Public names of `lazybo.model.fit` and `lazybo.model.lag`."""

from lazybo.model.fit import Learned, Priors, learn, prior_kernel
from lazybo.model.lag import Lag, is_due

__all__ = ["Lag", "Learned", "Priors", "is_due", "learn", "prior_kernel"]
