"""Earlier tasks: what other, related functions say about a new one.

======  ==================================================================  ==========
symbol  meaning                                                             shape
======  ==================================================================  ==========
M       earlier tasks                                                       scalar
gᵢ      posterior mean of task i: one process each, one kernel for all
X, A    all points of the tasks, and their weights: gᵢ(u) = Σⱼ Aᵢⱼ k(u, xⱼ)  (N, d), (M, N)
t, G    targets of the new task, and gᵢ at its points                       (n,), (M, n)
======  ==================================================================  ==========

Each task's values are transformed separately, so only their order and shape count. The new task is

    t = b + s gᵢ(x) / qᵢ + residual,    s ~ N(s₀, τ²),    qᵢ² = var gᵢ(X) + σᵣ²

if it is like task i; or like the mean of all tasks; or like the negative of that; or like none (s = 0). The residual is
a Gaussian process. The prior mean is the average over these hypotheses, weighted by their probabilities given t. A task
that does not fit loses its weight; if the new task is like none of them, all do. The prior mean fades as n grows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from lazybo.core import Array, checks, one_thread
from lazybo.gp.fit import Data, Learned, learn_together
from lazybo.gp.kernels.base import Kernel
from lazybo.gp.posterior import BLOCK_POINTS, PriorMean
from lazybo.gp.priors import Priors
from lazybo.gp.process import Process
from lazybo.gp.targets import LARGEST_SHIFT, standardize, subset

Mask: TypeAlias = NDArray[np.bool_]

# How many trials are used to learn the kernel: from each task, and in total.
KERNEL_ROWS, ALL_KERNEL_ROWS = 100, 1_200
# Prior probabilities of the hypotheses: like the mean of all tasks, like one task, the mean reversed, like none.
LIKE_ALL, LIKE_ONE, REVERSED, LIKE_NONE = 0.45, 0.4, 0.05, 0.1
# s₀, τ, σᵣ²: the expected slope, its standard deviation, and the variance that tasks do not share.
SLOPE, SLOPE_SPREAD, UNSHARED = 0.9, 0.35, 0.3
# The standard deviation of b, in units of the targets.
OFFSET_SPREAD = 0.5
# The variances that the residual may have.
RESIDUALS = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6])
# This share of the residual's variance is rugged. If the kernel does not fit, a smooth residual alone would make every
# hypothesis nearly impossible, and the winner would mean nothing.
RUGGED = 0.02
# After n values of the new task the prior mean counts 1 / (1 + (n / TRUSTED)²): half after TRUSTED. Later it would keep
# the search where the earlier tasks were good, even if the best of the new one is elsewhere (docs/earlier.md).
TRUSTED = 6.0
# Below this it is dropped, and a step costs no more than without earlier tasks.
LEAST_TRUST = 0.01
# The probabilities are computed from at most this many observations.
MOST_COMPARED = 200
# A length scale at which a column makes no difference.
ENDLESS = 1e6
# The means at the last array of at least this many points are cached.
CACHED_POINTS = 128


class Task(NamedTuple):
    """An earlier task: its points, (n, d), and its targets, (n,); small is good."""

    name: str
    points: Array
    targets: Array


@dataclass(frozen=True, eq=False)
class Related:
    """What the new task has in common with the earlier ones: its prior mean is offset + Σᵢ wᵢ gᵢ.

    ``shares`` are the probabilities that it is like each task, (M,); ``none`` that it is like none, or the reverse of
    their mean, which also makes a prior mean. ``residual`` is the variance that is left.
    """

    offset: float
    weights: Array
    shares: Array
    none: float
    residual: float

    @property
    def counts(self) -> bool:
        """Whether there is a prior mean at all."""
        return bool(self.weights.any())

    def state(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "offset": self.offset,
            "weights": self.weights.tolist(),
            "shares": self.shares.tolist(),
            "none": self.none,
            "residual": self.residual,
        }

    @staticmethod
    def parse(state: Mapping[str, Any]) -> "Related":
        """The inverse of `state`."""
        weights, shares = (checks.as_array(name, state[name], 1) for name in ("weights", "shares"))
        offset = checks.finite_number("offset", state["offset"])
        if abs(offset) > LARGEST_SHIFT or np.abs(checks.finite("weights", weights)).max(initial=0.0) > LARGEST_SHIFT:
            raise ValueError(f"its offset and its weights must be at most {LARGEST_SHIFT:g}")
        return Related(
            offset=offset,
            weights=weights,
            shares=checks.finite("shares", shares),
            none=checks.finite_number("none", state["none"]),
            residual=checks.positive("residual", state["residual"]),
        )


class EarlierTasks:
    """The processes of all earlier tasks, at least one. They are learned at first use and never change.

    Each task is given as the fields of `Task`.
    ``unknown`` marks the numbers of points that the tasks say nothing about, (w,).
    """

    def __init__(
        self,
        tasks: Iterable[tuple[str, Array, Array]],
        kernel: Kernel,
        priors: Priors | None = None,
        unknown: Mask | None = None,
    ) -> None:
        self.tasks = [Task(*task) for task in tasks]
        self._start, self._priors = kernel, priors
        self._unknown = np.zeros(kernel.width, dtype=bool) if unknown is None else unknown
        self._last: tuple[Array | None, Array] = (None, np.zeros((0, 0)))

    @cached_property
    def learned(self) -> Learned[Kernel]:
        """The kernel and the noise that the tasks share."""
        data = [Data(task.points, task.targets, np.zeros(len(task.targets))) for task in self.tasks]
        most = max(2, min(KERNEL_ROWS, ALL_KERNEL_ROWS // len(self.tasks)))
        return learn_together(data, self._start, self._priors, max_points=most)

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel of the tasks, in which unknown columns make no difference."""
        kernel, values = self.learned.kernel, self.learned.kernel.values.copy()
        scales = [i for i, parameter in enumerate(kernel.layout) if parameter.kind == "length_scale"]
        values[np.array(scales)[self._unknown[kernel.coordinates.start]]] = ENDLESS
        return kernel.with_values(values)

    @cached_property
    def _expansion(self) -> tuple[Array, Array]:
        """The features of X, (N, D), and A, (M, N). Points that several tasks share appear once."""
        points, place = np.unique(np.vstack([task.points for task in self.tasks]), axis=0, return_inverse=True)
        place = place.ravel()  # NumPy 2.0.0 gives it a second axis
        weights, start = np.zeros((len(self.tasks), len(points))), 0
        for i, task in enumerate(self.tasks):
            process = Process(self.kernel, self.learned.noise)
            process.append(task.points, task.targets)
            np.add.at(weights[i], place[start : start + len(task.targets)], process.alpha)
            start += len(task.targets)
        return self.kernel.features(points), weights

    def __len__(self) -> int:
        return len(self.tasks)

    @one_thread()
    def means(self, u: Array) -> Array:
        """gᵢ at the rows of U, (M, m). The means at the last array of many points are cached by its identity."""
        if u is self._last[0]:
            return self._last[1]
        z, weights = self._expansion
        blocks = [u[start : start + BLOCK_POINTS] for start in range(0, len(u), BLOCK_POINTS)]
        found = [weights @ self.kernel.between(self.kernel.features(block), z).T for block in blocks]
        means = np.hstack([*found, np.zeros((len(self), 0))])
        if len(u) >= CACHED_POINTS:
            self._last = u, means
        return means

    def prior(self, related: Related) -> PriorMean:
        """The prior mean of the new task."""
        z, weights = self._expansion
        return TaskMean(self.kernel, z, related.weights @ weights, related.offset, self, related.weights)

    @one_thread()
    def related(self, points: Array, targets: Array, means: Array) -> Related:
        """Compare the new task with the earlier ones: from its points, (n, d), targets, (n,), and gᵢ there, (M, n)."""
        rows, count = subset(len(targets), MOST_COMPARED), len(self)
        t, shift, unit = standardize(targets[rows])
        mean = means[:, rows].mean(axis=0)
        g = np.vstack((means[:, rows], mean, -mean, np.zeros(len(t))))
        middle = g.mean(axis=1) if len(t) else np.zeros(len(g))
        q = np.sqrt(g.var(axis=1) + UNSHARED) if len(t) > 1 else np.ones(len(g))
        z = self.kernel.features(points[rows])
        k = self.kernel.between(z, z) / self.kernel.output_scale
        found = _posteriors((g - middle[:, None]) / q[:, None], t, k, self.learned.noise)
        logs = np.log([*[LIKE_ONE / count] * count, LIKE_ALL, REVERSED, LIKE_NONE])[:, None] + found.evidence
        chances = np.exp(logs - logsumexp(logs))
        slopes = found.slopes / q[:, None]
        offset = float((chances * (found.offsets - slopes * middle[:, None])).sum())
        by_task, like = (chances * slopes).sum(axis=1), chances.sum(axis=1)
        residual = float((chances * RESIDUALS).sum())
        trust = 1.0 / (1.0 + (len(targets) / TRUSTED) ** 2)
        trust = trust if trust >= LEAST_TRUST else 0.0
        return Related(
            offset=shift + unit * trust * offset,
            weights=unit * trust * (by_task[:count] + (by_task[count] - by_task[count + 1]) / count),
            shares=like[:count] + like[count] / count,
            none=float(like[-2:].sum()),
            residual=unit**2 * (trust * residual + 1.0 - trust),
        )

    @staticmethod
    @one_thread()
    def portfolio(tasks: Sequence["EarlierTasks"], candidates: Array, count: int) -> Array:
        """At most ``count`` of the candidates, (m, d), that are good for all tasks together, best first.

        Each one minimises the average over the tasks of the best gᵢ so far.
        """
        means = np.vstack([each.means(candidates) for each in tasks])
        best, chosen = np.full((len(means), 1), np.inf), list[int]()
        for _ in range(min(count, len(candidates))):
            gained = np.minimum(best, means).mean(axis=0)
            gained[chosen] = np.inf
            chosen.append(int(gained.argmin()))
            best = np.minimum(best, means[:, chosen[-1:]])
        return candidates[chosen]


@dataclass(frozen=True, eq=False)
class TaskMean(PriorMean):
    """A weighted sum of the means of earlier tasks; at the points of a pool they are computed only once."""

    tasks: EarlierTasks
    by_task: Array

    def __call__(self, u: Array) -> Array:
        """The mean at the rows of U, (m,)."""
        return self.offset + self.by_task @ self.tasks.means(u)


class _Found(NamedTuple):
    """For each hypothesis and each variance of the residual, (h, v): the log evidence, and the expected b and s."""

    evidence: Array
    offsets: Array
    slopes: Array


def _posteriors(g: Array, t: Array, k: Array, noise: float) -> _Found:
    """Bayesian linear regression of t on each row of g, (h, n), whose residual has the covariance v K + noise.

    In the last hypothesis the slope is 0. K gets a small diagonal (`RUGGED`). In the eigenvectors of K the covariance
    is diagonal, d = v λ + noise. With F = [1, g], c ~ N(c₀, C), r = t - F c₀ and h = Fᵀ d⁻¹ r: A = C⁻¹ + Fᵀ d⁻¹ F, c
    has the mean c₀ + A⁻¹ h, and log p(t) = -½ (rᵀ d⁻¹ r - hᵀ A⁻¹ h + log |A| + log |C| + Σ log d), up to a constant.
    """
    values, vectors = np.linalg.eigh(k)
    slopes = np.full(len(g), SLOPE)
    slopes[-1] = 0.0
    f = np.stack((np.broadcast_to(vectors.sum(axis=0), g.shape), g @ vectors), axis=1)  # (h, 2, n)
    r = t @ vectors - slopes[:, None] * f[:, 1]
    d = (np.maximum(values, 0.0) + RUGGED) * RESIDUALS[:, None] + noise  # (v, n)
    precision = np.diag([OFFSET_SPREAD**-2, SLOPE_SPREAD**-2])
    a = precision + np.einsum("hin,vn,hjn->hvij", f, 1.0 / d, f)
    h = np.einsum("hin,vn,hn->hvi", f, 1.0 / d, r)
    c = np.linalg.solve(a, h[..., None])[..., 0]
    quadratic = np.einsum("hn,vn,hn->hv", r, 1.0 / d, r) - np.einsum("hvi,hvi->hv", h, c)
    logs = np.linalg.slogdet(a)[1] - np.linalg.slogdet(precision)[1] + np.log(d).sum(axis=1)
    return _Found(-0.5 * (quadratic + logs), c[..., 0], c[..., 1] + slopes[:, None])
