"""A posterior over kernels: processes with the same rows, each with its own kernel and noise, and their weights.

======  ===================================================================  ==========
symbol  meaning                                                              shape
======  ===================================================================  ==========
s       particles: processes that differ only in φ, the kernel and noise     scalar
w       weights of the particles, which add up to 1                          (s,)
C       coordinates of the rows, which all particles share                   (n, D)
μ, σ²   posterior mean and variance of each particle at m points             (s, m)
V       L⁻¹ k(X, U) of each particle                                         (s, n, m)
======  ===================================================================  ==========

The weight of a particle is its weight when it was drawn, times p(t | X, φ) relative to what that was then. After a new
value this is a product with the density that the particle predicted for it, which falls out of the new row of its
factor. Nothing is factored again.

The mean of a mixture is Σ w μ, its variance Σ w (σ² + μ²) - (Σ w μ)². The first particle is the most probable one: it
*leads*. The search climbs on its posterior alone, while all of them decide where to start and which maximum wins.

Covariances of all particles are computed together, from distances that are the same for all. The factors are small, so
their solves are a loop over the particles: NumPy has no triangular solve of several matrices, and a loop over LAPACK's
is faster than its general one from two rows on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from lazybo.core import Array, one_thread
from lazybo.gp.kernels.base import Kernel
from lazybo.gp.posterior import (
    CHUNK_ROWS,
    NO_VALUE,
    LeftOut,
    Moments,
    NearField,
    PriorMean,
    leave_one_out,
    root_of,
    told_covariance,
)
from lazybo.gp.process import Process, RightHandSide

# A quantile is bisected this often: to a millionth of the widest interval.
BISECTIONS = 40
# Quantiles are within this many standard deviations of the means.
REACH = 8.0
# The particles explain new values while their effective number, 1 / Σ w², is at least this share of them, and the new
# values are within so many standard deviations of what is expected of normal errors.
LEAST_EFFECTIVE = 0.5
SURPRISE = 2.0
# Solutions are kept for up to this many points: one of them is often added next. They are always solved as this many
# columns, so that the solution of a point does not depend on the other points, to the last bit.
KEPT_POINTS = 8


@dataclass(frozen=True, slots=True)
class Particle:
    """A kernel and a noise, and the logarithm of their weight."""

    kernel: Kernel
    noise: float
    log_weight: float


class Components(NamedTuple):
    """Means and standard deviations of all particles at m points, each (s, m), and the logarithms of their weights."""

    log_weights: Array
    mean: Array
    std: Array

    def middle(self) -> Array:
        """The means of the mixture, (m,)."""
        return np.asarray(np.exp(self.log_weights) @ self.mean)

    def interval(self, levels: Sequence[float], widened: float) -> tuple[Array, ...]:
        """The means of the mixture and its `quantiles`, each (m,)."""
        return self.middle(), *self.quantiles(levels, widened)

    def below(self, target: float, widened: float = 1.0) -> Array:
        """The probabilities that the mixture, with deviations larger by a factor, is below a target, (m,)."""
        std = np.maximum(widened * self.std, np.finfo(float).tiny)
        return np.asarray(np.exp(self.log_weights) @ ndtr((target - self.mean) / std))

    def quantiles(self, levels: Sequence[float], widened: float = 1.0) -> Array:
        """Quantiles of the mixture at the points, with deviations larger by a factor, (q, m)."""
        mean, std = self.mean, np.maximum(widened * self.std, np.finfo(float).tiny)
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


class Particles:
    """Processes with the same rows, the leading one first. Their rows and targets never change.

    The first ``built`` rows were solved in chunks.
    """

    def __init__(self, processes: Sequence[Process], built: int = 0) -> None:
        self.processes, self.built = processes, built
        self._kernels = [each.kernel for each in processes]
        self.diagonal = np.array([each.kernel.output_scale for each in processes])  # k(x, x) of each, (s,)
        self._solutions: dict[bytes, Array] = {}

    def _copied(self, built: int) -> "Particles":
        copied = object.__new__(Particles)
        copied.__dict__.update(self.__dict__)
        copied.processes, copied.built = [each.copy() for each in self.processes], built
        return copied

    @property
    def leading(self) -> Process:
        """The most probable one when they were drawn."""
        return self.processes[0]

    def updated(self, x: Array, known: Array, targets: Array, built: int) -> "Particles":
        """With more rows, (t, w), and their known noise variances, (t,), and targets of all rows; NaN: pending.

        A row costs O(n²). The first ``built`` rows are solved in chunks, later ones one by one, so that every bit
        depends only on the rows before.
        """
        found, prior, rows = self._copied(built), self.leading.prior, self.leading.rows
        before = len(rows.x)
        if len(x):
            rows = rows.joined(self.leading.kernel, prior, x, known)
        right = RightHandSide(targets if prior is None else targets - rows.expected)
        for process in found.processes:
            process.aim(right)
        for new in groups_of_rows(before, len(rows.x), built):
            cross, block = found.between(rows.c[: new.start], rows.c[new]), found.between(rows.c[new], rows.c[new])
            alone = new.start >= built
            solved = found._solution(rows.x[new.start], cross) if alone else [None] * len(cross)
            for process, *parts in zip(found.processes, cross, block, solved, strict=True):
                process.grow(rows.first(new.stop), right, *parts)
            found._solutions = {}
        return found

    def first(self, n: int) -> "Particles":
        """With only the first n rows. Of rows that were solved together only whole chunks can stay."""
        n = n // CHUNK_ROWS * CHUNK_ROWS if n < self.built else n
        found = self._copied(min(self.built, n))
        for process in found.processes:
            process.truncate(n)
        found._solutions = {}
        return found

    @property
    def refactorisations(self) -> list[int]:
        """How often each factor was factored again, with jitter in all of its rows."""
        return [process.factor.refactorisations for process in self.processes]

    def between(self, c: Array, other: Array) -> Array:
        """k of each particle between points with these coordinates, (s, m, n)."""
        return self._kernels[0].several(self._kernels, c, other)

    def solved(self, points: Array) -> Array:
        """V at some points, (s, n, m)."""
        return self._solved(points, self.between(self.leading.rows.c, self.leading.kernel.coordinates.of(points)))

    def _solved(self, points: Array, k: Array) -> Array:
        """V for k(X, U), (s, n, m). It is kept if there are few points."""
        s, n, m = k.shape
        if m > KEPT_POINTS:
            v = np.ascontiguousarray(k)
        else:
            v = np.zeros((s, n, KEPT_POINTS))
            v[:, :, :m] = k
        for process, each in zip(self.processes, v, strict=True):
            process.factor.finish_solve(each, 0)
        if m <= KEPT_POINTS:
            self._solutions = {point.tobytes(): v[:, :, i].copy() for i, point in enumerate(points)}
        return v[:, :, :m]

    def _solution(self, point: Array, k: Array) -> Array:
        """V of a single point, (s, n), which is kept if it was predicted."""
        if point.tobytes() not in self._solutions:
            self._solved(point[None], k)
        return self._solutions[point.tobytes()]


class Posterior:
    """Particles with their weights; it never changes. ``log_priors`` are log w - log p(t | X, φ), as drawn.

    ``pool`` has the points that are followed (`follow`), if there are any.
    """

    # The known variance of a row that has no value and never will have one.
    NO_VALUE: ClassVar[float] = NO_VALUE

    def __init__(
        self, particles: Particles | Sequence[Process], log_priors: Sequence[float] = (0.0,), pool: "Pool | None" = None
    ) -> None:
        self.particles = particles if isinstance(particles, Particles) else Particles(particles)
        self.processes, self.leading = self.particles.processes, self.particles.leading
        self.log_priors, self.pool = log_priors, pool

    @classmethod
    def of(cls, particles: Sequence[Particle], prior: PriorMean | None = None) -> "Posterior":
        """A posterior without rows."""
        processes = [Process(each.kernel, each.noise, prior) for each in particles]
        return cls(processes, [each.log_weight for each in particles])

    # -------------------------------------------------------------------- grow

    def updated(self, x: Array, known: Array, targets: Array, built: int) -> "Posterior":
        """With more rows and other targets, see `Particles.updated`."""
        particles = self.particles.updated(x, known, targets, built)
        return Posterior(particles, self.log_priors, self.pool and self.pool.following())

    def first(self, n: int) -> "Posterior":
        """With only the first n rows, see `Particles.first`."""
        particles = self.particles.first(n)
        return Posterior(
            particles, self.log_priors, self.pool and self.pool.first(particles.leading.n, particles.built)
        )

    def weighted(self, log_priors: Sequence[float]) -> "Posterior":
        """The same particles with other weights."""
        return Posterior(self.particles, log_priors, self.pool and self.pool.following())

    # ----------------------------------------------------------------- weights

    @cached_property
    def log_likelihoods(self) -> Array:
        """log p(t | X, φ) of each particle, (s,)."""
        return np.array([process.log_marginal_likelihood() for process in self.processes])

    @cached_property
    def log_weights(self) -> Array:
        """log w, (s,)."""
        if len(self.processes) == 1:
            return np.zeros(1)
        logs = np.array(self.log_priors) + self.log_likelihoods
        logs -= logs.max()
        return np.asarray(logs - np.log(np.add.reduce(np.exp(logs))))

    @cached_property
    def weights(self) -> Array:
        """w, (s,)."""
        return np.exp(self.log_weights)

    @property
    def misfit(self) -> float:
        """tᵀ K⁻¹ t of the leading particle. A new value adds its squared error in predicted standard deviations."""
        return float(self.leading.whitened @ self.leading.whitened)

    def explains(self, new: int, misfit: float) -> bool:
        """Whether particles that were drawn when the misfit was this still explain the ``new`` values since then.

        Squared errors of so many values add up to a χ² variable, with mean ``new`` and variance 2 ``new``.
        """
        if len(self.processes) == 1:
            return True
        effective = 1.0 / float(self.weights @ self.weights)
        expected = misfit + new + SURPRISE * float(np.sqrt(2.0 * new))
        return effective >= LEAST_EFFECTIVE * len(self.processes) and self.misfit <= expected

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
    def noise(self) -> float:
        """The expected noise variance that all rows share."""
        return float(self.weights @ [process.noise for process in self.processes])

    @property
    def ranges(self) -> Array:
        """The distance along each column that makes a difference, (d,)."""
        return self.leading.kernel.ranges

    def smoothed(self) -> Array:
        """The posterior mean at each row, without its noise, (n,): t - (σₙ² + v) ∘ α, which needs no solve of V."""
        alpha = np.array([process.alpha for process in self.processes])
        noise = np.array([[process.noise] for process in self.processes])
        return np.asarray(self.weights @ (self.targets - (noise + self.leading.rows.known) * alpha))

    # ----------------------------------------------------------------- predict

    @one_thread()
    def components(self, u: Array) -> Components:
        """What each particle predicts at the rows of U."""
        points = self.leading.kernel.check(u, "U")
        v = self.particles.solved(points)
        means = np.array([process.whitened @ each for process, each in zip(self.processes, v, strict=True)])
        if self.leading.prior is not None:
            means += self.leading.prior(points)
        variances = self.particles.diagonal[:, None] - np.einsum("sij,sij->sj", v, v)
        return Components(self.log_weights, means, np.sqrt(np.maximum(variances, 0.0)))

    @one_thread()
    def mean(self, u: Array) -> Array:
        """The posterior mean at the rows of U, (m,), in O(n m)."""
        return np.asarray(self.weights @ np.array([process.mean(u) for process in self.processes]))

    def follow(self, points: Array) -> Array:
        """Keep these points, (m, w), and what the particles predict there as rows are added; returns the points."""
        if self.pool is None or self.pool.points is not points:
            self.pool = Pool(self.particles, points)
        return points

    def over(self, points: Array) -> Components:
        """What each particle predicts at points to `follow`."""
        self.follow(points)
        assert self.pool is not None
        return Components(self.log_weights, *self.pool.moments(self.particles))

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
        return self._joint(means, np.array([told_covariance(process, u) for process in self.processes]))[1]

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
        return NearField(self.leading, centers)


class Pool:
    """The posterior of all particles at fixed ``points``, (m, w), that follows them as they grow.

    V gets one row for each new row of X: O(n) a point, not O(n²). Rows that were added together are solved in chunks of
    `CHUNK_ROWS`, the others row by row. So V is the same to the last bit whether it grew with the factors or was
    computed at once.
    """

    def __init__(self, particles: Particles, points: Array) -> None:
        kernel, prior = particles.leading.kernel, particles.leading.prior
        self.points, self._c = points, kernel.coordinates.of(points)
        self._expected: Array | float = 0.0 if prior is None else prior(points)
        self._v = np.zeros((len(particles.processes), 0, len(points)))
        self._filled = [0]  # how many rows of this array any copy has
        self._n, self._factorisations = 0, particles.refactorisations
        self._start = np.tile(particles.diagonal[:, None], len(points))
        self._variance = self._start

    def moments(self, particles: Particles) -> tuple[Array, Array]:
        """Means and standard deviations at the points, each (s, m), for particles with more rows than before."""
        n, factorisations = particles.leading.n, particles.refactorisations
        if factorisations != self._factorisations:
            self._factorisations, self._n, self._variance = factorisations, 0, self._start
        if n > self._n:
            self._extend(particles, n)
        w = np.array([process.whitened for process in particles.processes])
        mean = np.matmul(w[:, None], self._v[:, :n])[:, 0] + self._expected
        return mean, np.sqrt(np.maximum(self._variance, 0.0))

    def following(self) -> "Pool":
        """A copy. Both share V as long as only one of them adds rows to it."""
        pool = object.__new__(Pool)
        pool.__dict__.update(self.__dict__)
        return pool

    def first(self, n: int, built: int) -> "Pool":
        """A copy with only the first n rows, of which so many were built. Only whole chunks of these may stay."""
        pool = self.following()
        if n < self._n:
            pool._n, pool._variance = n, self._start
            for rows in groups_of_rows(0, n, built):
                pool._subtract(rows)
        return pool

    def _extend(self, particles: Particles, n: int) -> None:
        before = self._n
        if n > self._v.shape[1] or self._filled[0] != before:
            grown = np.empty((len(self._v), max(n, self._v.shape[1] * 5 // 4 + 64), len(self.points)))
            grown[:, :before] = self._v[:, :before]
            self._v, self._filled = grown, [0]
        self._v[:, before:n] = particles.between(particles.leading.rows.c[before:], self._c)
        for rows in groups_of_rows(before, n, particles.built):
            for process, v in zip(particles.processes, self._v, strict=True):
                process.factor.finish_solve(v[: rows.stop], rows.start, together=CHUNK_ROWS)
            self._subtract(rows)
        self._n = self._filled[0] = n

    def _subtract(self, rows: slice) -> None:
        self._variance = self._variance - np.einsum("sij,sij->sj", self._v[:, rows], self._v[:, rows])


def groups_of_rows(first: int, stop: int, built: int) -> list[slice]:
    """Rows [first, stop) in the groups that are solved together: the first ``built`` in chunks, then one by one."""
    chunks = [*range(first, min(stop, built), CHUNK_ROWS)]
    starts = [*chunks, *range(max(first, min(stop, built)), stop), stop]
    return [slice(a, b) for a, b in pairwise(starts)]
