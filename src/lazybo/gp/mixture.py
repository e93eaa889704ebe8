"""A posterior over kernels: processes with the same rows, each with its own kernel and noise, and their weights.

======  ===================================================================  ==========
symbol  meaning                                                              shape
======  ===================================================================  ==========
s       particles: processes that differ only in φ, the kernel and noise     scalar
w       weights of the particles, which add up to 1                          (s,)
μ, σ²   posterior mean and variance of each particle at m points             (s, m)
======  ===================================================================  ==========

The weight of a particle is its weight when it was drawn, times p(t | X, φ) relative to what that was then. After a new
value this is a product with the density that the particle predicted for it, which falls out of the new row of its
factor. Nothing is factored again.

The mean of a mixture is Σ w μ, its variance Σ w (σ² + μ²) - (Σ w μ)². The first particle is the most probable one: it
*leads*. The search climbs on its posterior alone, while all of them decide where to start and which maximum wins.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

from lazybo.core import Array
from lazybo.gp.posterior import LeftOut, Moments, NearField, Pool, leave_one_out, root_of
from lazybo.gp.process import Process

# A quantile is bisected this often: to a millionth of the widest interval.
BISECTIONS = 40
# Quantiles are within this many standard deviations of the means.
REACH = 8.0


class Components(NamedTuple):
    """Means and standard deviations of all particles at m points, each (s, m), and the logarithms of their weights."""

    log_weights: Array
    mean: Array
    std: Array

    def middle(self) -> Array:
        """The means of the mixture, (m,)."""
        return np.asarray(np.exp(self.log_weights) @ self.mean)

    def quantiles(self, levels: Sequence[float]) -> Array:
        """Quantiles of the mixture at the points, (q, m)."""
        mean, std = self.mean, np.maximum(self.std, np.finfo(float).tiny)
        if len(mean) == 1:
            return np.asarray(mean + ndtri(levels)[:, None] * std)
        low, high = (mean - REACH * std).min(axis=0), (mean + REACH * std).max(axis=0)
        wanted, weights = np.array(levels)[:, None], np.exp(self.log_weights)
        low, high = (np.tile(end, (len(levels), 1)) for end in (low, high))
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            below = np.einsum("s,sqm->qm", weights, ndtr((middle - mean[:, None]) / std[:, None])) < wanted
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return 0.5 * (low + high)


@dataclass(frozen=True)
class Posterior:
    """Processes with the same rows, the leading one first. ``log_priors`` are log w - log p(t | X, φ), as drawn."""

    processes: Sequence[Process]
    log_priors: Sequence[float] = (0.0,)

    @property
    def leading(self) -> Process:
        """The most probable particle when they were drawn."""
        return self.processes[0]

    @cached_property
    def log_weights(self) -> Array:
        """log w, (s,)."""
        if len(self.processes) == 1:
            return np.zeros(1)
        likelihoods = [process.log_marginal_likelihood() for process in self.processes]
        logs = np.array(self.log_priors) + likelihoods
        return np.asarray(logs - logsumexp(logs))

    @cached_property
    def weights(self) -> Array:
        """w, (s,)."""
        return np.exp(self.log_weights)

    @property
    def effective(self) -> float:
        """The effective number of particles: 1 / Σ w²."""
        return 1.0 / float(self.weights @ self.weights)

    # -------------------------------------------------------------------- rows

    @property
    def X(self) -> Array:  # noqa: N802 - the name everyone gives it
        """Points of all rows, (n, d)."""
        return self.leading.X

    @property
    def targets(self) -> Array:
        """Targets of all rows, NaN where pending, (n,)."""
        return self.leading.targets

    @property
    def known_variances(self) -> Array:
        """Known noise variance of each row, in addition to `noise`, (n,); `NO_VALUE` where there is no value."""
        return self.leading.known_variances

    @property
    def noise(self) -> float:
        """The expected noise variance that all rows share."""
        return float(self.weights @ [process.noise for process in self.processes])

    @property
    def ranges(self) -> Array:
        """The distance along each column that makes a difference, (d,)."""
        return self.leading.kernel.ranges

    def smoothed(self) -> Array:
        """The posterior mean at each row, without its noise, (n,). Needs no solve."""
        return np.asarray(self.weights @ np.array([process.smoothed() for process in self.processes]))

    # ----------------------------------------------------------------- predict

    def components(self, u: Array) -> Components:
        """What each particle predicts at the rows of U."""
        found = [process.posterior(u) for process in self.processes]
        means, variances = zip(*found, strict=True)
        return Components(self.log_weights, np.array(means), np.sqrt(variances))

    def mean(self, u: Array) -> Array:
        """The posterior mean at the rows of U, (m,), in O(n m)."""
        return np.asarray(self.weights @ np.array([process.mean(u) for process in self.processes]))

    def posterior(self, u: Array) -> Moments:
        """Mean and variance at the rows of U, each (m,)."""
        _, mean, std = self.components(u)
        middle = self.weights @ mean
        return Moments(middle, self.weights @ (std**2 + (mean - middle) ** 2))

    def posterior_covariance(self, u: Array) -> tuple[Array, Array]:
        """Mean, (m,), and joint covariance, (m, m), at the rows of U."""
        means, covariances = zip(*(process.posterior_covariance(u) for process in self.processes), strict=True)
        return self._joint(np.array(means), np.array(covariances))

    def told_covariance(self, u: Array) -> Array:
        """The joint covariance at the rows of U, (m, m), given only the rows that have a target."""
        means = np.array([process.mean(u) for process in self.processes])  # pending rows do not change them
        return self._joint(means, np.array([process.told_covariance(u) for process in self.processes]))[1]

    def _joint(self, means: Array, covariances: Array) -> tuple[Array, Array]:
        middle = self.weights @ means
        apart = means - middle
        return middle, np.tensordot(self.weights, covariances, 1) + np.einsum("s,si,sj->ij", self.weights, apart, apart)

    def left_out(self, most: int | None = None) -> LeftOut:
        """What is predicted for each target, or for ``most`` of them, from all others."""
        found = [leave_one_out(process, most) for process in self.processes]
        means, deviations = np.array([each.mean for each in found]), np.array([each.deviation for each in found])
        middle = self.weights @ means
        return LeftOut(found[0].rows, middle, np.sqrt(self.weights @ (deviations**2 + (means - middle) ** 2)))

    root_of = staticmethod(root_of)

    def around(self, centers: Array) -> NearField:
        """A cheap approximation of the leading particle's posterior around some centers, (c, d)."""
        return self.leading.around(centers)


class PosteriorPool:
    """The posterior of all particles at fixed ``points``, (m, d), that follows them as they grow."""

    def __init__(self, processes: Sequence[Process], points: Array) -> None:
        self.points = points
        self._pools = [Pool(process, points) for process in processes]

    def following(self, processes: Sequence[Process]) -> "PosteriorPool":
        """The same points for copies of the processes, without computing anything again."""
        pool = copy(self)
        pool._pools = [each.following(process) for each, process in zip(self._pools, processes, strict=True)]
        return pool

    def moments(self) -> tuple[Array, Array]:
        """Means and standard deviations at the points, each (s, m). Costs O(n) a point for every new row."""
        means, stds = zip(*(pool.posterior() for pool in self._pools), strict=True)
        return np.array(means), np.array(stds)

    def truncate(self, n: int) -> None:
        """Keep only the first ``n`` rows; call it when the processes are truncated."""
        for pool in self._pools:
            pool.truncate(n)
