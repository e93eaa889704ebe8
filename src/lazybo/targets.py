"""Public names of `lazybo.model.targets`."""

from lazybo.model.targets import Targets, Warping, centring, identity, scaling, standardize, warping

__all__ = ["Targets", "Warping", "centring", "identity", "scaling", "standardize", "warping"]
