"""The methods that are compared: the paper's settings as a preset, and ours.

The paper's Gaussian process sees raw coordinates with one length scale ρ = 1, a kernel of variance 1, noise 1e-6,
values that are centred but not scaled, and expected improvement with ξ = 0.01. Our kernel works in the unit cube, where
ρ = 1 is one over the width of each parameter's range. Expected improvement is searched on its logarithm: the same
maxima, and a gradient where the value itself underflows. Where the kernel is learned, only its length scales are, one
for each parameter, by maximum likelihood.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from optuna.distributions import FloatDistribution

from lazybo.gp.fit import Lag, Priors
from lazybo.gp.kernels import Matern52
from lazybo.search.acquisition import log_expected_improvement

XI = 0.01
NOISE = 1e-6
# The spread of a prior so wide that it has no influence.
FLAT = 5.0

LAGS: dict[str, Lag] = {"naive": 1, "lag3": 3, "lazy": None}
# What each method is called in a table.
LABELS = {
    "naive": "naive (lag 1)",
    "lag3": "lag 3",
    "lazy": "lazy (lag ∞)",
    "naive-scaled": "naive, values scaled",
    "lazy-scaled": "lazy, values scaled",
    "naive-random": "naive, the paper's search",
    "lazy-random": "lazy, the paper's search",
    "ours-naive": "our kernel, lag 1",
    "ours-lazy": "our kernel, lag ∞",
    "ours": "our default",
}


def optimizer_options(method: str, space: Mapping[str, FloatDistribution]) -> dict[str, Any]:
    """The options of a method for `lazybo.Optimizer` or `lazybo.optimize`."""
    family, _, variant = method.partition("-")
    if family == "ours":
        return {"lag": LAGS[variant] if variant else "auto"}
    return paper_options(LAGS[family], space, scaled=variant == "scaled")


def paper_options(lag: Lag, space: Mapping[str, FloatDistribution], *, scaled: bool = False) -> dict[str, Any]:
    """The paper's settings with a lag. ``scaled`` scales values to standard deviation 1; the paper does not."""
    return {
        "lag": lag,
        "kernel": unit_kernel(space),
        "noise": NOISE,
        "priors": length_scales_only(),
        "value_transform": "scaled" if scaled else "centred",
        "acquisition": partial(log_expected_improvement, xi=XI),
    }


def unit_kernel(space: Mapping[str, FloatDistribution], rho: float = 1.0) -> Matern52:
    """Matérn 5/2 with the length scale ρ in raw coordinates and variance 1."""
    return Matern52(np.array([rho / (d.high - d.low) for d in space.values()]))


def length_scales_only() -> Priors:
    """Priors that fix the variance at 1 and the noise, and do not restrict the length scales."""
    return Priors(length_scale_spread=FLAT, output_scale_spread=0.0, noise=NOISE, noise_spread=0.0)
