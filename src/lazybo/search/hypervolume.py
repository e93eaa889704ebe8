"""Hypervolume of a front, and the expected improvement of it; all objectives are minimised.

======  ===============================================================  ======
symbol  meaning                                                          shape
======  ===============================================================  ======
q, m    objectives, 2 or 3; candidates                                   scalar
F       the front: non-dominated points                                  (K, q)
r       the reference point: only points below it in all objectives      (q,)
        count
l, u    lower and upper ends of boxes that fill the part below r that    (B, q)
        no point of F dominates; l may be -inf
μ, σ    posterior mean and standard deviation of each objective          (q, m)
======  ===============================================================  ======

A new point y adds the volume of the non-dominated part above it: Σ_b Π_j (u_bj - max(l_bj, y_j))₊. With independent
objectives its expectation is a sum of products, and each factor is a difference of two expected improvements,
E(u - y)₊ - E(l - y)₊. Everything is computed in logarithms, so that it has a gradient however small it is.
"""

import math

import numpy as np
from numpy.typing import NDArray

from lazybo.core import Array
from lazybo.search.acquisition import Acquired, log_expected_improvement, log_sum_exp

# A factor is at least this share of its first term: below it the difference of the two terms is a rounding error.
LEAST_SHARE = 2.0**-52
MOST_OBJECTIVES = 3


def non_dominated(values: Array) -> NDArray[np.bool_]:
    """Which rows of (n, q) no other row dominates, (n,). Equal rows do not dominate each other."""
    kept = np.zeros(len(values), dtype=bool)
    left = np.lexsort(values.T[::-1])
    while len(left):
        # Of the rows that are left, none can dominate the first one in lexicographic order.
        first = values[left[0]]
        equal = (values[left] == first).all(axis=1)
        kept[left[equal]] = True
        left = left[~(values[left] >= first).all(axis=1)]
    return kept


def boxes(front: Array, reference: Array) -> tuple[Array, Array]:
    """The ends, (B, q) each, of disjoint boxes that fill what is below the reference and no point dominates.

    There are at most 2 K + 1 of them.
    """
    front = front[(front < reference).all(axis=1)]
    front = np.unique(front[non_dominated(front)], axis=0)
    if len(reference) == 2:
        ends = np.concatenate(([-np.inf], front[:, 0], reference[:1]))
        upper = np.column_stack((ends[1:], np.concatenate((reference[1:], front[:, 1]))))
        return np.column_stack((ends[:-1], np.full(len(front) + 1, -np.inf))), upper
    return _swept(front, reference)


def _swept(front: Array, reference: Array) -> tuple[Array, Array]:
    """The boxes of three objectives, by a sweep along the third one.

    At each height the non-dominated part is a row of strips along the first objective. A new point cuts the strips that
    it lowers; the parts that are cut off become boxes.
    """
    right, top, end = (float(each) for each in reference)
    strips = [(-math.inf, right, top, -math.inf)]  # from, to, upper end of the second objective, since
    found: list[tuple[float, ...]] = []
    for a, b, c in front[np.argsort(front[:, 2], kind="stable")].tolist():
        kept: list[tuple[float, float, float, float]] = []
        covered: list[tuple[float, float]] = []
        for first, last, height, since in strips:
            if last <= a or height <= b:
                kept.append((first, last, height, since))
                continue
            if first < a:
                kept.append((first, a, height, since))
            covered.append((max(first, a), last))
            if since < c:
                found.append((max(first, a), -math.inf, since, last, height, c))
        if covered:
            kept.append((covered[0][0], covered[-1][1], b, c))
        strips = sorted(kept)
    found += [(first, -math.inf, since, last, height, end) for first, last, height, since in strips]
    array = np.array(found)
    return array[:, :3], array[:, 3:]


class HypervolumeImprovement:
    """The logarithm of the expected hypervolume improvement, with its derivatives."""

    def __init__(self, front: Array, reference: Array) -> None:
        self.reference = reference
        lower, upper = boxes(front, reference)
        self._levels: list[Array] = []
        self._lower: list[NDArray[np.intp]] = []
        self._upper: list[NDArray[np.intp]] = []
        for low, high in zip(lower.T, upper.T, strict=True):
            # The ends of boxes are coordinates of the front: each is computed once for all boxes.
            levels = np.unique(np.concatenate((low, high)))
            self._levels.append(levels[np.isfinite(levels)])
            infinite = int(not np.isfinite(levels[0]))
            self._lower.append(np.searchsorted(levels, low) - infinite)  # -1 for -inf
            self._upper.append(np.searchsorted(levels, high) - infinite)

    def __call__(self, mean: Array, std: Array) -> Acquired:
        """The value, (m,), and its derivatives by μ and σ, each (q, m)."""
        factors = [self._factor(j, mean[j], std[j]) for j in range(len(mean))]
        logs = np.sum([factor[0] for factor in factors], axis=0)
        value = log_sum_exp(logs, axis=1)
        # Where all boxes underflow together, none counts more than another.
        share = np.exp(logs - value[:, None])
        by_mean = np.array([np.einsum("ij,ij->i", share, factor[1]) for factor in factors])
        by_std = np.array([np.einsum("ij,ij->i", share, factor[2]) for factor in factors])
        return Acquired(value, by_mean, by_std)

    def _factor(self, j: int, mean: Array, std: Array) -> tuple[Array, Array, Array]:
        """log(E(u - y)₊ - E(l - y)₊) of one objective in every box, with its derivatives by μ and σ, each (m, B)."""
        found = log_expected_improvement(mean[:, None], std[:, None], self._levels[j])  # type: ignore[arg-type]
        # The last column is the level -inf: no improvement.
        none = np.zeros((len(mean), 1))
        value = np.hstack((found.value, none - np.inf))
        slopes = [np.hstack((slope, none)) for slope in (found.by_mean, found.by_std)]
        high, low = value[:, self._upper[j]], value[:, self._lower[j]]
        ratio = np.exp(np.minimum(low - high, 0.0))
        share = np.maximum(1.0 - ratio, LEAST_SHARE)
        by_mean, by_std = ((slope[:, self._upper[j]] - ratio * slope[:, self._lower[j]]) / share for slope in slopes)
        return high + np.log(share), by_mean, by_std
