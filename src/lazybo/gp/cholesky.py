"""The Cholesky factor of a matrix that grows by rows (paper, algorithm 3, in blocks and in place).

======  ==========================================================  =========
symbol  meaning                                                     shape
======  ==========================================================  =========
K       symmetric positive definite matrix so far                   (n, n)
L       its lower factor, K = L Lᵀ                                  (n, n)
P       columns of K between the old rows and t new ones (`cross`)  (n, t)
C       the new rows among themselves (`block`)                     (t, t)
Q       L Q = P                                                     (n, t)
D       D Dᵀ = C - QᵀQ; the new rows of L are [Qᵀ D]                (t, t)
b       rows in a panel, `PANEL_ROWS`                               scalar
======  ==========================================================  =========

L is stored in panels of b rows. Panel k holds its part left of the diagonal as one C-ordered array (b, k b) and its
diagonal block as another (b, b). A panel is allocated once and never moved, so growing copies nothing, only the lower
triangle takes memory, and every array handed to BLAS is contiguous or has a plain leading dimension: no hidden copy.

Pivots that are not safely positive are handled in three stages:

1. *Jitter on the new row.* A pivot below ``PIVOT_FLOOR`` times the row's own diagonal is raised to that floor, as if
   that one observation had a little more noise. This is enough for exact and near duplicates.
2. *Refactorisation.* If that would take more than ``MAX_ROW_JITTER`` (the new rows contradict the old ones beyond
   rounding), the whole matrix is factored again with the smallest jitter of ``REFACTOR_JITTERS`` on its diagonal that
   works.
3. *An error* that says what to try. The factor is unchanged.

Afterwards L Lᵀ = K + diag(``jitter``). Stage 2 changes the old rows too, and needs memory for a few dense
matrices. Truncating removes the new rows, but not that jitter.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import lapack

from lazybo.core import Array, checks

PANEL_ROWS = 256
PIVOT_FLOOR = 1e-10
MAX_ROW_JITTER = 1e-6
# OpenBLAS treats products of up to this many multiply-adds as small. Slabs with fewer rows are not worth a call.
SMALL_PRODUCT = 1_000_000
MIN_SLAB_ROWS = 8
REFACTOR_JITTERS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4)


@dataclass(slots=True)
class _Panel:
    """Rows [start, start + b) of L: ``left`` of the diagonal block, and the block itself.

    Copies of a factor share panels. The first ``filled`` rows may be those of another copy: they are not written again.
    """

    start: int
    left: Array
    diagonal: Array
    filled: int = 0

    @staticmethod
    def empty(start: int) -> "_Panel":
        """A panel without rows; there are zeros above the diagonal."""
        return _Panel(start, np.empty((PANEL_ROWS, start)), np.zeros((PANEL_ROWS, PANEL_ROWS)))

    def first(self, rows: int) -> "_Panel":
        """A panel of its own with only the first rows."""
        panel = _Panel.empty(self.start)
        panel.left[:rows], panel.diagonal[:rows, :rows] = self.left[:rows], self.diagonal[:rows, :rows]
        panel.filled = rows
        return panel


class GrowingCholesky:
    """Lower Cholesky factor that is extended by rows in O(t n²) and shortened in O(1).

    ``work`` and ``refactorisations``, which counts how often stage 2 ran, let tests check the cost of a step without a
    clock.
    """

    def __init__(self) -> None:
        self._panels: list[_Panel] = []
        self._jitter = np.zeros(0)
        self._n = 0
        self._work = [0]
        self.refactorisations = 0

    @property
    def work(self) -> int:
        """The multiply-adds of all solves and factorisations, also of copies."""
        return self._work[0]

    @work.setter
    def work(self, count: int) -> None:
        self._work[0] = count

    def copy(self) -> "GrowingCholesky":
        """An independent factor with the same rows. Both share what neither changes, so this costs O(n / b)."""
        factor = object.__new__(GrowingCholesky)
        factor.__dict__.update(self.__dict__)
        factor._panels = self._panels[: -(-self._n // PANEL_ROWS)]
        return factor

    @property
    def n(self) -> int:
        """Number of rows."""
        return self._n

    @property
    def jitter(self) -> Array:
        """The jitter added to each diagonal entry, (n,)."""
        return self._jitter[: self._n].copy()

    @property
    def factor(self) -> Array:
        """L as a dense array (a copy), (n, n)."""
        dense = np.zeros((self._n, self._n))
        for panel, rows in self._filled():
            stop = panel.start + rows
            dense[panel.start : stop, : panel.start] = panel.left[:rows]
            dense[panel.start : stop, panel.start : stop] = np.tril(panel.diagonal[:rows, :rows])
        return dense

    def append(self, cross: ArrayLike, block: ArrayLike, *, solved: Array | None = None) -> None:
        """Grow K to [[K, P], [Pᵀ, C]]: solve L Q = P, factor C - QᵀQ = D Dᵀ, add the rows [Qᵀ D].

        ``cross`` is P, (n, t); ``block`` is C, (t, t), and only its lower triangle is read. For a single row ``cross``
        may be (n,) and ``block`` a number. If Q of a single row is known, pass it as ``solved``: the row then costs
        O(n).
        """
        self.extend(*self._checked(cross, block), solved)

    def extend(self, cross: Array, block: Array, solved: Array | None = None) -> None:
        """`append` for arrays that are known to be right: finite doubles, (n, t) and (t, t)."""
        before = self._n
        try:
            # New rows that cross the end of a panel are split there: each part lies in one diagonal block.
            for new in self._cuts(len(block)):
                self._add_rows(cross, block, new, solved if len(block) == 1 else None)
        except _PivotError as pivot:
            self._n = before
            self._refactorise(cross, block, pivot)
        except BaseException:  # MemoryError or Ctrl-C, for example: add all rows or none
            self._n = before
            raise

    def truncate(self, n: int) -> None:
        """Keep the first ``n`` rows, in O(1): L of a leading block is the leading block of L."""
        if not checks.is_whole(n) or not 0 <= n <= self._n:
            raise ValueError(f"can only truncate to between 0 and {self._n} rows, not {n!r}")
        self._n = int(n)

    def solve_lower(self, b: ArrayLike) -> Array:
        """X with L X = B; B is (n,) or (n, m)."""
        x = self._right_hand_side(b)
        self.finish_solve(x, 0)
        return x

    def finish_solve(self, x: Array, done: int, *, together: int = PANEL_ROWS) -> None:
        """Solve L X = B in place, where the first ``done`` rows of ``x`` already hold X and the others hold B.

        ``x`` is a C-ordered array of finite doubles, (m,) or (m, c), for the first m rows of L. After t new rows this
        costs O(t n) a column instead of O(n²): the solution of the old rows is kept.

        Rows are solved in chunks that end at multiples of ``together``. If ``done`` is such a multiple, the result is
        the same to the last bit as when all rows are solved.
        """
        m = len(x)
        if x.dtype != np.float64 or not 0 <= done <= m <= self._n:
            raise ValueError(
                f"x must be an array of doubles with at most {self._n} rows, and done at most its length, "
                f"not {x.dtype} of shape {x.shape} and {done}"
            )
        for panel, rows in self._filled(m)[done // PANEL_ROWS :]:
            first = max(done - panel.start, 0)
            while first < rows:
                stop = min((first // together + 1) * together, rows)
                self._solve_rows(x, panel, first, stop)
                first = stop
        self._work[0] += (m**2 - done**2) // 2 * (x.size // max(m, 1))

    def _solve_rows(self, x: Array, panel: _Panel, first: int, stop: int) -> None:
        """Solve rows [first, stop) of a panel; all rows before them must be solved."""
        here, solved = slice(panel.start + first, panel.start + stop), slice(panel.start, panel.start + first)
        if panel.start:
            _subtract_product(x[here], panel.left[first:stop], x[: panel.start])
        if first:
            _subtract_product(x[here], panel.diagonal[first:stop, :first], x[solved])
        if stop - first == 1:
            x[here] /= panel.diagonal[first, first]
        else:
            x[here] = _solve_triangle(panel.diagonal[first:, first:], stop - first, x[here], transposed=False)

    def solve_upper(self, b: ArrayLike) -> Array:
        """X with Lᵀ X = B; B is (n,) or (n, m)."""
        x = self._right_hand_side(b)
        for panel, rows in reversed(self._filled()):
            stop = panel.start + rows
            x[panel.start : stop] = _solve_triangle(panel.diagonal, rows, x[panel.start : stop], transposed=True)
            if panel.start:
                _subtract_product(x[: panel.start], panel.left[:rows].T, x[panel.start : stop])
        self._work[0] += self._n * x.size // 2
        return x

    def solve(self, b: ArrayLike) -> Array:
        """X with K X = B: L⁻ᵀ (L⁻¹ B); B is (n,) or (n, m)."""
        return self.solve_upper(self.solve_lower(b))

    def unit_columns(self, rows: NDArray[np.intp]) -> Array:
        """cᵢ = L⁻¹ eᵢ of some rows in ascending order, (n, r): cᵢᵀ cⱼ is an entry of K⁻¹."""
        columns = np.zeros((self._n, len(rows)))
        if len(rows):
            columns[rows, np.arange(len(rows))] = 1.0
            self.finish_solve(columns, int(rows[0]))
        return columns

    def inverse(self) -> Array:
        """K⁻¹, (n, n), in O(n³)."""
        if self._n > PANEL_ROWS:
            return inverse_from(self.factor)
        # Above the diagonal, the block of a panel has zeros.
        return inverse_from(self._panels[0].diagonal[: self._n, : self._n] if self._n else np.zeros((0, 0)))

    def logdet(self) -> float:
        """log det K = 2 Σ log Lᵢᵢ."""
        pivots = [panel.diagonal.diagonal()[:rows] for panel, rows in self._filled()]
        return 2.0 * float(sum(np.add.reduce(np.log(each)) for each in pivots))

    # ---------------------------------------------------------------- append

    def _checked(self, cross: ArrayLike, block: ArrayLike) -> tuple[Array, Array]:
        if np.ndim(block) == 0:
            block = np.reshape(block, (1, 1))
        block = checks.as_array("block", block, 2)
        t = len(block)
        if np.ndim(cross) == 1 and t == 1:
            cross = np.reshape(cross, (-1, 1))
        block = checks.as_shape("block", block, (t, t))
        cross = checks.as_shape("cross", cross, (self._n, t))
        if t and not np.diagonal(block).min() > 0:
            raise ValueError(
                f"the diagonal of block must be positive, but its smallest entry is {np.diagonal(block).min()}"
            )
        return cross, block

    def _cuts(self, t: int) -> list[slice]:
        """The slices of t new rows that each lie in one panel."""
        first_free = PANEL_ROWS - self._n % PANEL_ROWS
        stops = [*range(first_free, t, PANEL_ROWS), t]
        return [slice(a, b) for a, b in zip([0, *stops], stops, strict=False) if a < b]

    def _add_rows(self, cross: Array, block: Array, new: slice, solved: Array | None) -> None:
        """Append the rows ``new`` of the block; the rows before them must be in the factor."""
        p = np.vstack((cross[:, new], block[new, : new.start].T)) if new.start else cross[:, new]
        c = block[new, new]
        if solved is None:
            q = np.array(p[:, 0] if p.shape[1] == 1 else p, order="C")
            self.finish_solve(q, 0)
        else:
            q = solved
        q = q.reshape(p.shape)
        d, jitter = _factor_with_floor(c - q.T @ q, np.diagonal(c), new.start)
        self._work[0] += len(c) ** 2 * self._n + len(c) ** 3 // 6
        self._write(q.T, d, jitter)

    def _write(self, q_transposed: Array, d: Array, jitter: Array) -> None:
        """Store rows [Qᵀ D]; they must fit into the panel of row n."""
        index, row = divmod(self._n, PANEL_ROWS)
        if index == len(self._panels):
            self._panels.append(_Panel.empty(index * PANEL_ROWS))
        elif self._panels[index].filled != row:  # a copy may have these rows
            self._panels[index] = self._panels[index].first(row)
        panel, stop = self._panels[index], row + len(d)
        panel.filled = stop
        panel.left[row:stop] = q_transposed[:, : panel.start]
        panel.diagonal[row:stop, :row] = q_transposed[:, panel.start :]
        panel.diagonal[row:stop, row:stop] = d
        self._jitter = np.concatenate((self._jitter[: self._n], jitter))
        self._n += len(d)

    def _refactorise(self, cross: Array, block: Array, pivot: "_PivotError") -> None:
        """Stage 2: factor all of [[K, P], [Pᵀ, C]] again, with jitter on the whole diagonal."""
        lower = self.factor
        n, t = cross.shape
        whole = np.block([[lower @ lower.T, cross], [cross.T, np.tril(block) + np.tril(block, -1).T]])
        diagonal = np.diagonal(whole).copy()
        for relative in REFACTOR_JITTERS:
            np.fill_diagonal(whole, diagonal * (1 + relative))
            dense, info = lapack.dpotrf(whole, lower=1)
            self.work += (n + t) ** 3 // 6
            if info == 0 and (np.diagonal(dense) ** 2 >= PIVOT_FLOOR * diagonal).all():
                break
        else:
            raise np.linalg.LinAlgError(
                f"the matrix is not positive definite: new row {pivot.row} has the squared pivot {pivot.value:.3g}, "
                "and a jitter of "
                f"{REFACTOR_JITTERS[-1]:g} times its diagonal is not enough. Is the kernel symmetric and positive "
                "semidefinite, and do the new rows come from the same kernel and parameters as the old ones? "
                "Otherwise try a larger noise."
            )
        jitter = np.concatenate((self.jitter, np.zeros(t))) + relative * diagonal
        self.refactorisations += 1
        self._n = 0
        for new in self._cuts(n + t):
            self._write(dense[new, : new.start], dense[new, new], jitter[new])

    # ----------------------------------------------------------------- solves

    def _filled(self, n: int | None = None) -> list[tuple[_Panel, int]]:
        """The panels that hold the first n rows (all of them by default), each with its number of rows."""
        n = self._n if n is None else n
        in_use = -(-n // PANEL_ROWS)
        return [(panel, min(PANEL_ROWS, n - panel.start)) for panel in self._panels[:in_use]]

    def _right_hand_side(self, b: ArrayLike) -> Array:
        try:
            x = np.array(b, dtype=np.float64, order="C")
        except (TypeError, ValueError) as error:
            raise ValueError(f"the right-hand side must be an array of numbers: {error}") from None
        if x.ndim not in (1, 2) or len(x) != self._n:
            raise ValueError(f"the right-hand side must have shape ({self._n},) or ({self._n}, m), not {x.shape}")
        return checks.finite("the right-hand side", x)


def inverse_from(lower: Array) -> Array:
    """(L Lᵀ)⁻¹ for a lower triangle L with zeros above it, (n, n)."""
    if len(lower) == 0:
        return lower
    # LAPACK writes one triangle and leaves the zeros of the other one.
    inverse, _ = lapack.dpotri(lower, lower=1) if lower.flags.f_contiguous else lapack.dpotri(lower.T, lower=0)
    whole: Array = inverse + inverse.T
    whole.reshape(-1)[:: len(whole) + 1] *= 0.5
    return whole


def inverted(covariance: Array) -> Array:
    """The inverse of a positive definite matrix, (n, n)."""
    lower, info = lapack.dpotrf(covariance, lower=1)
    if info:
        raise np.linalg.LinAlgError("the matrix is not positive definite: try a larger noise")
    return inverse_from(lower)


class _PivotError(Exception):
    """Stage 1 is not enough for this row."""

    def __init__(self, row: int, value: float) -> None:
        super().__init__(row, value)
        self.row = row
        self.value = value


def _subtract_product(target: Array, a: Array, x: Array) -> None:
    """target -= A X.

    With few columns most of the time is spent on packing A, which OpenBLAS skips for small products. So A is split into
    small slabs: 8 columns become three times as fast, 20 columns one and a half times.
    """
    slab = SMALL_PRODUCT // max(x.size, 1)
    if x.ndim == 1 or not MIN_SLAB_ROWS <= slab < len(a):
        target -= a @ x
        return
    for start in range(0, len(a), slab):
        target[start : start + slab] -= a[start : start + slab] @ x


def _solve_triangle(lower: Array, rows: int, b: Array, *, transposed: bool) -> Array:
    """Solve with the leading ``rows`` of a C-ordered lower triangle, or with its transpose.

    LAPACK reads a C-ordered lower triangle as an upper one, hence ``trans``; ``dtrtrs`` takes the leading dimension
    from the shape, while SciPy's ``dtrsv`` and ``dtrsm`` would copy a partly filled block.
    """
    if b.size == 0:
        return b
    x, info = lapack.dtrtrs(lower[:rows].T, b, lower=0, trans=0 if transposed else 1)
    assert info == 0, "a pivot is never zero"
    return x


def _factor_with_floor(s: Array, diagonal: Array, first: int) -> tuple[Array, Array]:
    """D and the jitter of stage 1 with D Dᵀ = S + diag(jitter), each pivot at least PIVOT_FLOOR times K's diagonal.

    ``first`` is the number of the first row, for the error.
    """
    floor = PIVOT_FLOOR * diagonal
    d, info = lapack.dpotrf(s, lower=1)
    if info == 0 and (np.diagonal(d) ** 2 >= floor).all():
        return d, np.zeros(len(s))
    # Row by row, so that each pivot can be checked before it is divided by.
    d, jitter = np.zeros_like(s), np.zeros(len(s))
    for i in range(len(s)):
        if i:
            d[i, :i] = _solve_triangle(d, i, s[i, :i], transposed=False)
        pivot = s[i, i] - d[i, :i] @ d[i, :i]
        jitter[i] = np.maximum(0.0, floor[i] - pivot)
        if not jitter[i] <= MAX_ROW_JITTER * diagonal[i]:  # also true for NaN, from entries that overflowed
            raise _PivotError(first + i, pivot)
        d[i, i] = np.sqrt(pivot + jitter[i])
    return d, jitter
