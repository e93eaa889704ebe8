"""The time of each factorisation: algorithm 3, LAPACK, and algorithm 2 as printed (figure 5).

All three factor the same matrices: the covariance of random points with the paper's kernel. Algorithm 2 is three
nested loops in Python. It is timed up to n = 200; larger times are extrapolated from its operation count.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import lapack

from lazybo.core.checks import Array
from lazybo.gp.cholesky import GrowingCholesky
from lazybo.paper import algorithm2
from lazybo.paper.levy import space
from lazybo.paper.presets import NOISE, unit_kernel
from lazybo.paper.records import append_rows, read_rows

# Sizes at which algorithm 2 is timed; others are extrapolated by operation count from the next smaller one.
LOOP_SIZES = (*range(1, 31), 50, 100, 150, 200)
FIELDS = ("n", "extended_seconds", "lapack_seconds", "algorithm2_seconds", "algorithm2_measured")


def covariance(n: int, dim: int) -> Array:
    """The paper's covariance of n random points, noise included."""
    k = unit_kernel(space(dim))(np.random.default_rng(0).random((n, dim)))
    k[np.diag_indices_from(k)] += NOISE
    return k


def measure(steps: int, dim: int = 5) -> list[dict[str, Any]]:
    """One row for each number of observations, 1 … steps."""
    k = covariance(steps, dim)
    factor, rows = GrowingCholesky(), []
    loops: dict[int, float] = {}
    for n in range(1, steps + 1):
        start = time.process_time()
        factor.append(k[: n - 1, n - 1], k[n - 1, n - 1])
        extended = time.process_time() - start
        anew = np.asfortranarray(k[:n, :n])
        start = time.process_time()
        lapack.dpotrf(anew, lower=1, overwrite_a=1)
        full = time.process_time() - start
        if n in LOOP_SIZES:
            matrix = k[:n, :n].tolist()
            start = time.process_time()
            algorithm2.cholesky(matrix)
            loops[n] = time.process_time() - start
        last = max(loops)
        by_count = loops[last] * operations(n) / operations(last)
        numbers = (n, extended, full, by_count, int(n in LOOP_SIZES))
        rows.append(dict(zip(FIELDS, numbers, strict=True)))
    return rows


def operations(n: int) -> int:
    """Operation count of algorithm 2: iterations of the inner loops, plus one for each pivot."""
    return n * (n - 1) * (n - 2) // 6 + n * (n - 1) + n


def record(path: Path, steps: int) -> list[dict[str, float]]:
    """The recorded rows; measured first if none are recorded for so many steps."""
    if len(read_rows(path)) != steps:
        path.unlink(missing_ok=True)
        append_rows(path, FIELDS, measure(steps))
    return [{name: float(row[name]) for name in FIELDS} for row in read_rows(path)]


def totals(rows: list[dict[str, float]]) -> dict[str, float]:
    """Seconds over all steps."""
    return {name: sum(row[name] for row in rows) for name in FIELDS[1:4]}
