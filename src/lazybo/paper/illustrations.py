"""The numbers of the paper's figures 2 to 4: a Gaussian process on the 1-D Levy function, and the function in 2-D."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lazybo.core.checks import Array
from lazybo.demo import levy
from lazybo.gp.lazy_gp import LazyGP
from lazybo.gp.targets import standardize
from lazybo.paper.levy import BOUND, space
from lazybo.paper.presets import NOISE, XI, unit_kernel
from lazybo.search.acquisition import expected_improvement

SEED_POINTS = 12
SEED = 4
GRID = 401
SURFACE = 121


@dataclass(frozen=True)
class Process:
    """A process given 12 points of the negative 1-D Levy function, on a grid, (m,); values in units of the function."""

    x: Array
    truth: Array
    points: Array
    values: Array
    mean: Array
    std: Array
    draws: Array  # (3, m)
    improvement: Array
    maxima: NDArray[np.intp]  # where expected improvement has its local maxima, best first


def process() -> Process:
    """The paper's kernel on 12 random points, with values scaled so that a variance of 1 is visible."""
    rng = np.random.default_rng(SEED)
    points = np.sort(rng.random(SEED_POINTS))
    values = negative_levy(points)
    gp = LazyGP(unit_kernel(space(1)), NOISE, transform=standardize)
    gp.append(points[:, None], values)
    grid = np.linspace(0.0, 1.0, GRID)
    mean, variance = gp.posterior(grid[:, None])
    std = np.sqrt(variance)
    draws = gp.sample(grid[:, None], 3, rng)
    # The acquisition functions minimise.
    improvement = expected_improvement(-mean, std, -float(values.max()), XI).value
    return Process(
        *(raw(grid), negative_levy(grid), raw(points), values, mean, std, draws, improvement),
        local_maxima(improvement),
    )


def raw(u: Array) -> Array:
    """Map points of the unit interval to [-10, 10]."""
    return (2.0 * u - 1.0) * BOUND


def negative_levy(u: Array) -> Array:
    """The negative 1-D Levy function at points of the unit interval (paper, equation 7)."""
    w = 1.0 + (raw(u) - 1.0) / 4.0
    return -(np.sin(np.pi * w) ** 2 + (w - 1.0) ** 2 * (1.0 + np.sin(2.0 * np.pi * w) ** 2))


def local_maxima(values: Array, least: float = 1e-3) -> NDArray[np.intp]:
    """Indices of the local maxima on a grid, best first; those below ``least`` times the best are left out."""
    padded = np.concatenate(([-np.inf], values, [-np.inf]))
    top = (padded[1:-1] > padded[:-2]) & (padded[1:-1] >= padded[2:]) & (values >= least * values.max())
    rows = np.flatnonzero(top)
    return rows[np.argsort(-values[rows], kind="stable")]


def surface() -> tuple[Array, Array]:
    """The axis, (m,), and the negative 2-D Levy function over it, (m, m)."""
    axis = np.linspace(-BOUND, BOUND, SURFACE)
    return axis, np.array([[-levy(np.array((x, y))) for x in axis] for y in axis])
