"""How well a process predicts each of its own targets if it had not seen it.

======  ===================================================================  ========
symbol  meaning                                                              shape
======  ===================================================================  ========
K, L    covariance of all rows with noise, and its factor: K = L Lᵀ          (n, n)
A       K⁻¹                                                                  (n, n)
p       pending rows: they have no target                                    (q,)
B       the inverse of K without the pending rows                            (n, n)
α       B t = A t with the targets that pending rows have (`weights`)        (n,)
cᵢ      L⁻¹ eᵢ, so that Aᵢⱼ = cᵢᵀ cⱼ                                         (n,)
======  ===================================================================  ========

A process without row i predicts tᵢ - αᵢ/Bᵢᵢ there, with or without a prior mean, and a measurement has the variance
1/Bᵢᵢ. With pending rows Bᵢᵢ = Aᵢᵢ - Aᵢₚ (Aₚₚ)⁻¹ Aₚᵢ. A row costs one triangular solve, O(n²). Nothing is
factored again.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazybo.core.blas import one_thread
from lazybo.core.checks import Array
from lazybo.gp.process import NO_VALUE, Process

# Rows that are solved at a time: limits the temporary memory to so many columns.
BLOCK_ROWS = 256


class LeftOut(NamedTuple):
    """What a process predicts of the targets of some rows without each of them, in units of the targets.

    ``mean`` and ``deviation`` are those of a measurement, with its noise.
    """

    rows: NDArray[np.intp]
    mean: Array
    deviation: Array

    def standardised(self, targets: Array) -> Array:
        """The errors in units of the predicted deviations, for all targets of the process, (r,)."""
        return (targets[self.rows] - self.mean) / self.deviation


@one_thread()
def leave_one_out(process: Process, most: int | None = None) -> LeftOut:
    """The predictions of all rows that have a target, or of ``most`` of them, spread evenly."""
    known = ~np.isnan(process.targets) & (process.known_variances < NO_VALUE)
    rows = np.flatnonzero(known)
    if most is not None and len(rows) > most:
        rows = rows[np.linspace(0, len(rows) - 1, most).round().astype(np.intp)]
    pending = _columns(process, np.flatnonzero(np.isnan(process.targets)))
    precision = np.empty(len(rows))
    for start in range(0, len(rows), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        columns = _columns(process, rows[block])
        precision[block] = np.einsum("ij,ij->j", columns, columns)
        if pending.shape[1]:
            cross = pending.T @ columns
            solved = np.linalg.solve(pending.T @ pending, cross)
            precision[block] -= np.einsum("ij,ij->j", cross, solved)
    return LeftOut(rows, process.targets[rows] - process.alpha[rows] / precision, 1.0 / np.sqrt(precision))


def _columns(process: Process, rows: NDArray[np.intp]) -> Array:
    """cᵢ of some rows in ascending order, (n, r)."""
    columns = np.zeros((process.n, len(rows)))
    if len(rows):
        columns[rows, np.arange(len(rows))] = 1.0
        process.factor.finish_solve(columns, int(rows[0]))
    return columns
