"""Leave-one-out from the factor, against a process that is built again without each row."""

import numpy as np
import pytest

from lazybo.gp.kernels import AdditiveMatern52, Column, Matern52
from lazybo.gp.posterior import NO_VALUE, PriorMean, leave_one_out
from lazybo.gp.process import Process

COLUMNS = (Column(), Column(3), Column(conditional=True))


def process_with(n: int, pending: list[int], failed: list[int]) -> Process:
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.random(n), rng.integers(0, 3, n), np.where(rng.random(n) < 0.3, np.nan, rng.random(n))])
    targets = np.sin(5 * x[:, 0]) + 0.3 * x[:, 1] + 0.05 * rng.standard_normal(n)
    targets[pending], targets[failed] = np.nan, 0.0
    known = np.where(rng.random(n) < 0.2, 0.01, 0.0)
    known[failed] = NO_VALUE
    process = Process(AdditiveMatern52(np.array([0.4, 1.1, 0.8]), 1.3, 0.4, COLUMNS), 1e-3)
    process.append(x, targets, variance=known)
    return process


@pytest.mark.parametrize("pending", [[], [3], [0, 7, 39]])
def test_it_is_what_a_process_without_the_row_predicts(pending: list[int]) -> None:
    process = process_with(40, pending, [5, 11])
    found = leave_one_out(process)
    assert found.rows.tolist() == [i for i in range(40) if i not in {*pending, 5, 11}]
    for row, mean, deviation in zip(*found, strict=True):
        kept = [i for i in range(40) if i != row and i not in pending]
        naive = Process(process.kernel, process.noise)
        naive.append(process.X[kept], process.targets[kept], variance=process.known_variances[kept])
        (expected,), (variance,) = naive.posterior(process.X[[row]])
        assert mean == pytest.approx(expected, abs=1e-9)
        assert deviation**2 == pytest.approx(variance + process.noise + process.known_variances[row], rel=1e-7)


def test_a_prior_mean_is_part_of_what_is_predicted() -> None:
    rng = np.random.default_rng(2)
    kernel, centers = Matern52(np.array([0.3])), rng.random((5, 1))
    prior = PriorMean(kernel, kernel.features(centers), rng.standard_normal(5), 0.7)
    x, targets = rng.random((12, 1)), rng.standard_normal(12)

    def process_of(rows: list[int]) -> Process:
        process = Process(kernel, 0.01, prior)
        process.append(x[rows], targets[rows])
        return process

    found = leave_one_out(process_of(list(range(12))))
    for row, mean, deviation in zip(*found, strict=True):
        (expected,), (variance,) = process_of([i for i in range(12) if i != row]).posterior(x[[row]])
        assert mean == pytest.approx(expected, abs=1e-9)
        assert deviation**2 == pytest.approx(variance + 0.01)


def test_a_right_model_has_errors_of_its_own_size() -> None:
    rng = np.random.default_rng(1)
    kernel = AdditiveMatern52(np.array([0.3, 0.5]), 1.0, 0.3)
    x = rng.random((200, 2))
    process = Process(kernel, 0.01)
    process.append(x, np.linalg.cholesky(kernel(x) + 0.01 * np.eye(200)) @ rng.standard_normal(200))
    errors = leave_one_out(process).standardised(process.targets)
    assert 0.8 < float(np.sqrt(np.mean(errors**2))) < 1.2


def test_a_process_without_targets_has_none() -> None:
    process = process_with(3, [0, 1, 2], [])
    assert len(leave_one_out(process).rows) == 0
