"""Avoid overflow: powers of two as units, and products that may be too large for a double."""

import math

import numpy as np

from lazybo.core.checks import Array

# Targets outside of these limits are solved in units of a power of two, so that nothing overflows.
SMALL_TARGET, LARGE_TARGET = 1e-100, 1e100
# Known variances are limited to this, in units of the targets².
MAX_VARIANCE = 1e50


def unit_of(targets: Array) -> float:
    """A power of two near the largest target if their squares would overflow or underflow; otherwise 1."""
    largest = float(np.abs(targets).max(initial=0.0))
    if largest == 0.0 or SMALL_TARGET <= largest <= LARGE_TARGET:
        return 1.0
    return math.ldexp(1.0, min(math.frexp(largest)[1], 1023))


def product(values: Array, *factors: "float | Array") -> Array:
    """values · factors, multiplied one after the other; infinite where the product overflows."""
    with np.errstate(over="ignore"):
        for factor in factors:
            values = values * factor
    return values


def relative_variances(known: Array, scale: float) -> Array:
    """Known variances in units of the targets², at most `MAX_VARIANCE`."""
    with np.errstate(over="ignore"):
        return np.minimum(known / scale / scale, MAX_VARIANCE)
