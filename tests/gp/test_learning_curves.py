"""The process of learning curves against dense matrices."""

import numpy as np
import pytest

from lazybo.core import Array
from lazybo.gp.kernels import Column, Matern52
from lazybo.gp.learning_curves import CurveKernel, CurveProcess, CurveRows, evidence, learn

COLUMNS = [Column(), Column(3), Column()]


def some_rows(rng: np.random.Generator, n: int, curves: int = 4) -> CurveRows:
    curve = rng.integers(0, curves, n)
    x = np.column_stack((rng.random(curves), rng.integers(0, 3, curves), rng.random(curves)))
    return CurveRows(x[curve], rng.uniform(0, 4, n), curve)


def stacked(rows: CurveRows, part: slice = slice(None)) -> Array:
    """Rows as the process gets them."""
    return np.column_stack(rows)[part]


def some_kernel(rng: np.random.Generator) -> CurveKernel:
    prior = CurveKernel.prior(COLUMNS)
    return prior.with_theta(prior.theta + 0.3 * rng.normal(size=len(prior.theta)))


def entry(kernel: CurveKernel, rows: CurveRows, i: int, other: CurveRows, j: int) -> float:
    """k of two rows, by the formula at the head of the module."""
    a, b, w, g, h, e, _, l1, l2 = kernel.values
    kx = Matern52(kernel.configurations.length_scales, columns=COLUMNS)(rows.x[i : i + 1], other.x[j : j + 1])[0, 0]
    distance = np.sqrt(3) * abs(rows.t[i] - other.t[j])
    k1, k2 = ((1 + distance / scale) * np.exp(-distance / scale) for scale in (l1, l2))
    walk = min(rows.t[i], other.t[j])
    return float(kx * (a + b * k1 + w * walk) + g * k2 + (rows.curve[i] == other.curve[j]) * (h * walk + e))


def dense(kernel: CurveKernel, rows: CurveRows, other: CurveRows) -> Array:
    return np.array([[entry(kernel, rows, i, other, j) for j in range(len(other.t))] for i in range(len(rows.t))])


def test_the_covariance_is_the_formula(rng: np.random.Generator) -> None:
    kernel, rows, other = some_kernel(rng), some_rows(rng, 9), some_rows(rng, 5)
    assert kernel.between(kernel.features(rows), kernel.features(other)) == pytest.approx(dense(kernel, rows, other))
    assert kernel.diagonal(rows) == pytest.approx(np.diagonal(dense(kernel, rows, rows)))


def test_rows_that_are_added_and_removed_leave_the_same_posterior(rng: np.random.Generator) -> None:
    kernel, rows, asked = some_kernel(rng), some_rows(rng, 40), some_rows(rng, 6)
    targets = rng.normal(size=40)
    process = CurveProcess(kernel)
    for start, stop in ((0, 11), (11, 12), (12, 30)):
        process.append(stacked(rows, slice(start, stop)), targets[start:stop])
    process.truncate(25)
    process.append(stacked(rows, slice(25, 40)), targets[25:])
    k = dense(kernel, rows, rows) + kernel.noise * np.eye(40)
    cross = dense(kernel, rows, asked)
    mean, variance = process.posterior(stacked(asked))
    assert mean == pytest.approx(cross.T @ np.linalg.solve(k, targets))
    assert variance == pytest.approx(np.diagonal(dense(kernel, asked, asked) - cross.T @ np.linalg.solve(k, cross)))
    assert process.innovations == pytest.approx(np.linalg.solve(np.linalg.cholesky(k), targets))


def test_the_evidence_and_its_gradient(rng: np.random.Generator) -> None:
    kernel, rows, targets = some_kernel(rng), some_rows(rng, 25), rng.normal(size=25)
    k = dense(kernel, rows, rows) + kernel.noise * np.eye(25)
    value, gradient = evidence(kernel, rows, targets)
    log_density = -0.5 * (targets @ np.linalg.solve(k, targets) + np.linalg.slogdet(k)[1] + 25 * np.log(2 * np.pi))
    assert value == pytest.approx(log_density)
    for i, slope in enumerate(gradient):
        ahead, behind = (
            evidence(kernel.with_theta(kernel.theta + step * np.eye(len(gradient))[i]), rows, targets)[0]
            for step in (1e-5, -1e-5)
        )
        assert (ahead - behind) / 2e-5 == pytest.approx(slope, rel=1e-4, abs=1e-4)


def test_learning_finds_where_the_variance_is(rng: np.random.Generator) -> None:
    """Curves of which each has its own level, whatever its configuration: neighbours are no guide."""
    n, steps = 25, 6
    x = np.repeat(rng.random((n, 1)), steps, axis=0)
    rows = CurveRows(x, np.tile(np.log(np.arange(1, steps + 1)), n), np.repeat(np.arange(n), steps))
    own = learn([Column()], rows, np.repeat(rng.normal(size=n), steps))
    shared = learn([Column()], rows, np.sin(6 * x[:, 0]))
    level, own_level = 0, 5
    assert own.values[own_level] > 5 * shared.values[own_level]
    assert shared.values[level] > 10 * shared.values[own_level]


@pytest.mark.parametrize("walks", [False, True])
def test_scatter_from_step_to_step_is_told_from_a_random_walk(walks: bool, rng: np.random.Generator) -> None:
    n, steps = 20, 8
    x = np.repeat(rng.random((n, 1)), steps, axis=0)
    t = np.log(np.arange(1, steps + 1))
    each = rng.normal(scale=0.5, size=(n, steps))
    moves = np.cumsum(each * np.sqrt(np.diff(t, prepend=0.0)), axis=1) if walks else each
    rows = CurveRows(x, np.tile(t, n), np.repeat(np.arange(n), steps))
    kernel = learn([Column()], rows, np.sin(6 * x[:, 0]) + moves.ravel())
    own_shape = kernel.values[4]
    if walks:
        assert 0.1 < own_shape < 0.6
        assert kernel.noise < 0.02
    else:
        assert 0.15 < kernel.noise < 0.4
        assert own_shape < 0.05
