"""The targets of a process, and the weights that are solved for them: w = L⁻¹ t and α = K⁻¹ t.

A *pending* row has a point and no target yet (NaN). It lowers the variance and does not change the mean: its target is
what the other rows predict there, so its weight in α is 0. With p the pending rows, A = K⁻¹ and α⁰ = A [t; 0], that
target is -(A_pp)⁻¹ α⁰_p: no other factor is needed.
"""

import numpy as np
from numpy.typing import NDArray

from lazybo.core.checks import Array
from lazybo.gp.cholesky import GrowingCholesky
from lazybo.gp.units import unit_of

# w is kept in whole chunks of so many rows, and the rows after them are solved again. So w is the same to the last bit
# however many times rows were added.
CHUNK_ROWS = 64


class Weights:
    """w and α of the current targets, (n,) or (n, q), solved when they are first needed.

    Both are in units of ``unit``, a power of two: t = unit · right-hand side.
    """

    def __init__(self) -> None:
        self.targets = np.zeros(0)
        self.unit = 1.0
        self._right = np.zeros(0)  # the right-hand side: targets in ``unit``, 0 where pending
        self._whitened_right = np.zeros(0)  # the one that `_whitened` was solved for
        self._whitened = np.zeros(0)
        self._solved: tuple[Array, Array] | None = None

    @property
    def pending(self) -> NDArray[np.bool_]:
        """Which rows have no target yet, (n,)."""
        return _any_in_row(np.isnan(self.targets))

    def set(self, targets: Array) -> None:
        """Replace the targets; NaN means pending."""
        missing = np.isnan(targets)
        right = np.where(missing, 0.0, targets) if missing.any() else targets
        self.targets, self.unit = targets, unit_of(right)
        self._right = right if self.unit == 1.0 else right / self.unit
        self._solved = None

    def truncate(self, n: int) -> None:
        """Keep only the first ``n`` rows."""
        self._whitened, self._whitened_right = self._whitened[:n], self._whitened_right[:n]
        self.set(self.targets[:n])

    def forget(self) -> None:
        """Discard all solutions, because the factor has changed."""
        self._whitened = self._whitened_right = np.zeros((0, *self.targets.shape[1:]))
        self._solved = None

    def whitened(self, factor: GrowingCholesky) -> Array:
        """w."""
        return self._solve(factor)[0] if self.pending.any() else self._whiten(factor)

    def alpha(self, factor: GrowingCholesky) -> Array:
        """α, 0 where pending."""
        return self._solve(factor)[1]

    def _whiten(self, factor: GrowingCholesky) -> Array:
        """L⁻¹ of the right-hand side. If its first rows are unchanged, only w₂ = D⁻¹ (t₂ - Qᵀ w₁) is computed."""
        right, before = self._right, self._whitened_right
        if right is not before:
            done = _unchanged(right, before) // CHUNK_ROWS * CHUNK_ROWS
            w = np.concatenate((self._whitened[:done], right[done:])) if done else right.copy()
            factor.finish_solve(w, done, together=CHUNK_ROWS)
            self._whitened, self._whitened_right = w, right
        return self._whitened

    def _solve(self, factor: GrowingCholesky) -> tuple[Array, Array]:
        """w and α, with the targets of pending rows such that their α is 0."""
        if self._solved is None:
            w = self._whiten(factor)
            alpha = factor.solve_upper(w)
            rows = np.flatnonzero(self.pending)
            if len(rows):
                columns = np.zeros((len(w), len(rows)))
                columns[rows, np.arange(len(rows))] = 1.0
                factor.finish_solve(columns, int(rows[0]))
                change = columns @ np.linalg.solve(columns.T @ columns, -alpha[rows])
                w, alpha = w + change, alpha + factor.solve_upper(change)
                alpha[rows] = 0.0
            self._solved = w, alpha
        return self._solved


def _unchanged(right: Array, before: Array) -> int:
    """The number of leading rows that are equal in two arrays."""
    if right.shape[1:] != before.shape[1:]:
        return 0
    common = min(len(right), len(before))
    changed = np.flatnonzero(_any_in_row(right[:common] != before[:common]))
    return int(changed[0]) if len(changed) else common


def _any_in_row(flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return flags if flags.ndim == 1 else np.asarray(flags.any(axis=1))
