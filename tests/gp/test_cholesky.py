import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazybo.gp.cholesky import PANEL_ROWS, PIVOT_FLOOR, REFACTOR_JITTERS, GrowingCholesky


def spd(rng: np.random.Generator, n: int) -> np.ndarray:
    """A well-conditioned positive definite matrix with entries of order 1."""
    points = rng.random((n, 4))
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    return np.exp(-3 * distance) + 1e-3 * np.eye(n)


def grown(k: np.ndarray, *, rows: int | None = None) -> GrowingCholesky:
    factor = GrowingCholesky()
    step = rows or max(len(k), 1)
    for start in range(0, len(k), step):
        stop = min(start + step, len(k))
        factor.append(k[:start, start:stop], k[start:stop, start:stop])
    return factor


def relative_error(factor: GrowingCholesky, k: np.ndarray) -> float:
    lower = factor.factor
    return float(np.linalg.norm(lower @ lower.T - k) / np.linalg.norm(k))


@pytest.mark.parametrize("rows", [1, 7, PANEL_ROWS, 300, 600])
def test_growing_in_blocks_equals_one_factorisation(rng: np.random.Generator, rows: int) -> None:
    k = spd(rng, 600)
    np.testing.assert_allclose(grown(k, rows=rows).factor, np.linalg.cholesky(k), rtol=0, atol=1e-10)


def test_two_thousand_random_appends_and_truncations_keep_the_factor(rng: np.random.Generator) -> None:
    k = spd(rng, 700)
    order = rng.permutation(len(k))
    factor = GrowingCholesky()
    rows: list[int] = []
    for _ in range(2000):
        room = len(k) - len(rows)
        if rows and (room == 0 or rng.random() < 0.27):
            keep = max(0, len(rows) - int(rng.integers(1, 10)))
            factor.truncate(keep)
            del rows[keep:]
        else:
            free = np.setdiff1d(order, rows)
            new = rng.permutation(free)[: int(rng.integers(1, 6))].tolist()
            factor.append(k[np.ix_(rows, new)], k[np.ix_(new, new)])
            rows += new
    assert len(rows) > PANEL_ROWS, "the walk must cross panels to mean anything"
    assert relative_error(factor, k[np.ix_(rows, rows)]) <= 1e-10
    assert not factor.jitter.any()


def test_copies_of_a_factor_are_independent(rng: np.random.Generator) -> None:
    """Each of some copies walks on by itself, over the ends of panels, and is what it would be alone."""
    k = spd(rng, 700)
    factors: list[tuple[GrowingCholesky, list[int]]] = [(GrowingCholesky(), [])]
    for _ in range(300):
        factor, rows = factors[int(rng.integers(len(factors)))]
        if len(factors) < 5 and rng.random() < 0.05:
            factors.append((factor.copy(), list(rows)))
        elif rows and rng.random() < 0.3:
            keep = max(0, len(rows) - int(rng.integers(1, 30)))
            factor.truncate(keep)
            del rows[keep:]
        else:
            new = rng.permutation(np.setdiff1d(np.arange(len(k)), rows))[: int(rng.integers(1, 30))].tolist()
            factor.append(k[np.ix_(rows, new)], k[np.ix_(new, new)])
            rows += new
    assert max(len(rows) for _, rows in factors) > PANEL_ROWS
    for factor, rows in factors:
        assert relative_error(factor, k[np.ix_(rows, rows)]) <= 1e-10
        np.testing.assert_allclose(factor.inverse() @ k[np.ix_(rows, rows)], np.eye(len(rows)), atol=1e-8)


def test_a_refactorisation_leaves_copies_as_they_are() -> None:
    factor = GrowingCholesky()
    factor.append(np.zeros((0, 3)), np.eye(3))
    copied = factor.copy()
    factor.append(np.array([0.0, 0.0, 1.0]), 1.0 - 2e-6)
    assert factor.refactorisations == 1
    assert copied.refactorisations == 0
    np.testing.assert_array_equal(copied.factor, np.eye(3))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20), st.data())
def test_append_then_truncate_is_a_no_op(blocks: list[int], data: st.DataObject) -> None:
    k = spd(np.random.default_rng(sum(blocks)), sum(blocks))
    keep = data.draw(st.integers(0, len(k)))
    before = grown(k[:keep, :keep])
    after = grown(k[:keep, :keep])
    after.append(k[:keep, keep:], k[keep:, keep:])
    after.truncate(keep)
    np.testing.assert_array_equal(before.factor, after.factor)
    right = np.arange(float(keep))
    np.testing.assert_array_equal(before.solve(right), after.solve(right))


@pytest.mark.parametrize("n", [1, 5, PANEL_ROWS - 1, PANEL_ROWS, PANEL_ROWS + 1, 3 * PANEL_ROWS + 17])
@pytest.mark.parametrize("shape", [(), (1,), (6,)])
def test_solves_and_logdet_agree_with_numpy(rng: np.random.Generator, n: int, shape: tuple[int, ...]) -> None:
    k = spd(rng, n)
    factor, lower = grown(k), np.linalg.cholesky(k)
    b = rng.random((n, *shape))
    np.testing.assert_allclose(factor.solve_lower(b), np.linalg.solve(lower, b), atol=1e-9)
    np.testing.assert_allclose(factor.solve_upper(b), np.linalg.solve(lower.T, b), atol=1e-9)
    np.testing.assert_allclose(k @ factor.solve(b), b, atol=1e-9)
    np.testing.assert_allclose(factor.logdet(), np.linalg.slogdet(k)[1], rtol=1e-12)


@pytest.mark.parametrize("done", [0, 3, PANEL_ROWS - 1, PANEL_ROWS, PANEL_ROWS + 9, 600])
def test_a_solution_is_finished_from_where_it_stands(rng: np.random.Generator, done: int) -> None:
    factor, b = grown(spd(rng, 600)), rng.random((600, 3))
    solution = factor.solve_lower(b)
    x = np.concatenate((solution[:done], b[done:]))
    factor.finish_solve(x, done)
    np.testing.assert_allclose(x, solution, atol=1e-12)


def test_an_append_of_one_row_costs_one_pass_over_the_factor(rng: np.random.Generator) -> None:
    n = 600
    k = spd(rng, n + 1)
    factor = grown(k[:n, :n])
    before = factor.work
    factor.append(k[:n, n], k[n, n])
    assert factor.work - before <= 0.5 * n**2 + 2 * n
    assert factor.refactorisations == 0


@pytest.mark.parametrize("rows", [1, 37, 1000])
def test_a_thousand_exact_duplicates(rows: int) -> None:
    factor = grown(np.ones((1000, 1000)), rows=rows)
    assert factor.n == 1000
    assert factor.refactorisations == 0
    np.testing.assert_allclose(factor.jitter[1:], PIVOT_FLOOR, rtol=1e-3)
    lower = factor.factor
    np.testing.assert_allclose(lower @ lower.T, np.ones((1000, 1000)) + np.diag(factor.jitter), atol=1e-12)
    assert np.isfinite(factor.solve(np.ones(1000))).all()


@pytest.mark.parametrize("noise", [1e-14, 1e-12, 1e-9])
def test_near_duplicates_do_not_break_the_factor(rng: np.random.Generator, noise: float) -> None:
    points = np.repeat(rng.random((20, 3)), 30, axis=0) + 1e-12 * rng.standard_normal((600, 3))
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    k = (1 + distance + distance**2 / 3) * np.exp(-distance) + noise * np.eye(600)
    factor = grown(k, rows=11)
    assert relative_error(factor, k + np.diag(factor.jitter)) <= 1e-10
    assert factor.jitter.max() <= 1e-9


@pytest.mark.parametrize("scale", [1e-12, 1.0, 8.0])
def test_rows_that_contradict_the_others_a_little_are_refactorised(scale: float) -> None:
    # The third row says that it equals the first and nearly equals the second, which are far apart.
    k = np.array([[1.0, 0.99999, 1.0], [0.99999, 1.0, 0.99998], [1.0, 0.99998, 1.0]])
    k[2, 0] = k[0, 2] = 1.00001
    k *= scale
    factor = grown(k[:2, :2])
    before = factor.work
    factor.append(k[:2, 2], k[2, 2])
    assert factor.refactorisations == 1
    np.testing.assert_allclose(factor.factor @ factor.factor.T, k + np.diag(factor.jitter), atol=1e-12 * scale)
    assert (factor.jitter > 0).all()
    tried = 1 + REFACTOR_JITTERS.index(pytest.approx(factor.jitter[0] / scale, rel=1e-6))
    assert factor.work - before >= tried * 3**3 // 6, "every attempt is work"


def test_a_matrix_beyond_repair_is_an_error_and_changes_nothing() -> None:
    factor = grown(np.eye(3))
    before = factor.factor
    with pytest.raises(np.linalg.LinAlgError, match="larger noise"):
        factor.append(np.full(3, 2.0), 1.0)
    np.testing.assert_array_equal(factor.factor, before)
    assert not factor.jitter.any()
    factor.append(np.zeros(3), 1.0)
    np.testing.assert_array_equal(factor.factor, np.eye(4))


def test_overflow_inside_is_an_error_and_not_a_nan() -> None:
    factor = GrowingCholesky()
    factor.append(np.zeros(0), 1e-20)
    with np.errstate(all="ignore"), pytest.raises(np.linalg.LinAlgError):
        factor.append(np.array([[0, 1e300]]), np.eye(2))
    np.testing.assert_allclose(factor.factor, [[1e-10]])


def test_only_the_lower_triangle_of_a_block_is_read(rng: np.random.Generator) -> None:
    k = spd(rng, 2 * PANEL_ROWS)
    expected = grown(k).factor
    np.testing.assert_array_equal(grown(np.tril(k)).factor, expected)


@pytest.mark.parametrize(
    ("cross", "block", "message"),
    [
        (np.zeros((2, 1)), np.eye(1), r"cross must have shape \(3, 1\)"),
        (np.zeros((3, 2)), np.eye(1), r"cross must have shape \(3, 1\)"),
        (np.zeros((3, 2)), np.ones((2, 3)), r"block must have shape \(2, 2\)"),
        (np.zeros((3, 2)), np.zeros(2), "block must have 2 dimension"),
        (np.full((3, 1), np.nan), np.eye(1), "cross must be finite"),
        (np.zeros((3, 1)), np.full((1, 1), np.inf), "block must be finite"),
        (np.zeros((3, 1)), np.zeros((1, 1)), "diagonal of block must be positive"),
        ("three rows", np.eye(1), "cross must be an array of numbers"),
    ],
)
def test_garbage_is_refused_and_changes_nothing(
    rng: np.random.Generator, cross: object, block: object, message: str
) -> None:
    k = spd(rng, 3)
    factor = grown(k)
    before, work = factor.factor, factor.work
    with pytest.raises(ValueError, match=message):
        factor.append(cross, block)  # type: ignore[arg-type]
    np.testing.assert_array_equal(factor.factor, before)
    assert factor.work == work


@pytest.mark.parametrize("n", [-1, 4, 1.5, None])
def test_truncation_beyond_n_is_refused(n: object) -> None:
    factor = grown(np.eye(3))
    with pytest.raises(ValueError, match="between 0 and 3 rows"):
        factor.truncate(n)  # type: ignore[arg-type]
    assert factor.n == 3


@pytest.mark.parametrize("b", [np.zeros(2), np.zeros((2, 3)), np.zeros((3, 1, 1)), np.array([0.0, np.nan, 1.0])])
def test_a_wrong_right_hand_side_is_refused(b: np.ndarray) -> None:
    with pytest.raises(ValueError, match="right-hand side"):
        grown(np.eye(3)).solve(b)


@pytest.mark.parametrize("n", [0, 1, 40, PANEL_ROWS + 9])
def test_the_inverse_is_that_of_the_matrix(rng: np.random.Generator, n: int) -> None:
    """Also after rows were removed and others took their place."""
    a = rng.standard_normal((n + 5, n + 5))
    k = a @ a.T + 5.0 * np.eye(n + 5)
    factor = GrowingCholesky()
    factor.append(np.zeros((0, n)), k[5:, 5:])
    factor.truncate(n // 2)
    order = [*range(5, 5 + n // 2), *range(5), *range(5 + n // 2, n + 5)]
    k = k[np.ix_(order, order)]
    for m in range(n // 2, n + 5):
        factor.append(k[:m, m], k[m, m])
    inverse = factor.inverse()
    np.testing.assert_array_equal(inverse, inverse.T)
    np.testing.assert_allclose(inverse @ k, np.eye(n + 5), atol=1e-8)
