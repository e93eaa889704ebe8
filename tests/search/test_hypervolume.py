"""The expected hypervolume improvement against sampling, finite differences, and Optuna's hypervolume."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from optuna._hypervolume import compute_hypervolume

from lazybo.search.acquisition import ChebyshevImprovement, constrained, feasibility
from lazybo.search.hypervolume import HypervolumeImprovement, boxes, non_dominated

# Few values, so that ties and duplicates are common.
COARSE = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.5])


def points(q: int) -> st.SearchStrategy[np.ndarray]:
    rows = st.integers(1, 12)
    return rows.flatmap(lambda n: arrays(np.float64, (n, q), elements=st.one_of(COARSE, st.floats(0, 1.5))))


def naive_front(values: np.ndarray) -> list[bool]:
    """By the definition: no other row is at least as good everywhere and better somewhere."""
    return [not any((other <= row).all() and (other < row).any() for other in values) for row in values]


@given(st.integers(1, 4).flatmap(points))
def test_the_front_is_what_nothing_dominates(values: np.ndarray) -> None:
    assert non_dominated(values).tolist() == naive_front(values)


def hypervolume(points: np.ndarray, reference: np.ndarray) -> float:
    """The volume that the points dominate below the reference."""
    points = points[(points < reference).all(axis=1)]
    if len(points) == 0:
        return 0.0
    ideal = points.min(axis=0)
    lower, upper = boxes(points, reference)
    open_part = np.prod(np.maximum(upper - np.maximum(lower, ideal), 0.0), axis=1).sum()
    return float(np.prod(reference - ideal) - open_part)


@given(st.integers(2, 3).flatmap(points))
def test_the_hypervolume_is_that_of_optuna(values: np.ndarray) -> None:
    reference = np.ones(values.shape[1])
    inside = values[(values < 1.0).all(axis=1)]
    expected = compute_hypervolume(inside, reference) if len(inside) else 0.0
    assert hypervolume(values, reference) == pytest.approx(expected, abs=1e-12)


def case(q: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A front, its reference, means and deviations at five candidates."""
    rng = np.random.default_rng(seed)
    values = rng.random((15, q))
    front = values[non_dominated(values)]
    return front, np.full(q, 1.1), rng.random((q, 5)), rng.uniform(0.05, 0.4, (q, 5))


@pytest.mark.parametrize("q", [2, 3])
def test_the_expected_improvement_is_the_mean_over_samples(q: int) -> None:
    front, reference, mean, std = case(q)
    rng, before = np.random.default_rng(1), hypervolume(front, reference)
    draws = mean[:, :, None] + std[:, :, None] * rng.standard_normal((q, 5, 1000))
    found = np.exp(HypervolumeImprovement(front, reference)(mean, std).value)
    for i in range(5):
        gains = [hypervolume(np.vstack((front, y)), reference) - before for y in draws[:, i].T]
        assert found[i] == pytest.approx(np.mean(gains), abs=4 * np.std(gains) / np.sqrt(len(gains)) + 1e-6)


def test_the_chebyshev_improvement_is_the_mean_over_samples() -> None:
    front, _, mean, std = case(4)
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    draws = mean[:, :, None] + 1.5 * std[:, :, None] * np.random.default_rng(1).standard_normal((4, 5, 200_000))
    ideal, width = front.min(axis=0), np.ptp(front, axis=0)

    def chebyshev(values: np.ndarray) -> np.ndarray:
        """maxⱼ wⱼ (yⱼ - idealⱼ), with the weights in units of the front's extent; objectives are the last axis."""
        return (weights / width * (values - ideal)).max(axis=-1)

    gains = np.maximum(chebyshev(front).min() - chebyshev(np.moveaxis(draws, 0, -1)), 0.0)
    sampled, error = gains.mean(axis=1), gains.std(axis=1) / np.sqrt(gains.shape[1])
    found = np.exp(ChebyshevImprovement(front, weights)(mean, 1.5 * std).value)
    assert (np.abs(found - sampled) <= 4 * error + 0.01 * sampled).all()


def joints() -> list[tuple[str, object, np.ndarray, np.ndarray]]:
    found = []
    for q in (2, 3):
        front, reference, mean, std = case(q)
        found.append((f"hypervolume of {q}", HypervolumeImprovement(front, reference), mean, std))
    front, _, mean, std = case(4)
    found.append(("chebyshev", ChebyshevImprovement(front, np.full(4, 0.25)), mean, std))
    found.append(("feasibility", feasibility([0.2, 0.4, 0.6, 0.1]), mean, std))
    front, reference, _, _ = case(2)
    both = constrained(HypervolumeImprovement(front, reference), 2, feasibility([0.3, 0.5]), 2.0)
    found.append(("both", both, mean, std))
    return found


@pytest.mark.parametrize(("name", "joint", "mean", "std"), joints(), ids=[name for name, *_ in joints()])
@pytest.mark.parametrize("shift", [0.0, 3.0], ids=["near", "in the tail"])
def test_derivatives_are_finite_differences(
    name: str, joint: object, mean: np.ndarray, std: np.ndarray, shift: float
) -> None:
    assert callable(joint)
    mean, step = mean + shift, 1e-6
    found = joint(mean, std)
    for j in range(len(mean)):
        unit = np.zeros_like(mean)
        unit[j] = step
        by_mean = (joint(mean + unit, std).value - joint(mean - unit, std).value) / (2 * step)
        by_std = (joint(mean, std + unit).value - joint(mean, std - unit).value) / (2 * step)
        # The nodes of the Chebyshev integral move with the point, which its derivatives leave out.
        close = {"rtol": 2e-2, "atol": 2e-2} if name == "chebyshev" else {"rtol": 1e-4, "atol": 1e-5}
        np.testing.assert_allclose(found.by_mean[j], by_mean, **close)
        np.testing.assert_allclose(found.by_std[j], by_std, **close)


@pytest.mark.parametrize("q", [2, 3])
def test_the_logarithm_has_a_slope_where_the_improvement_underflows(q: int) -> None:
    front, reference, mean, std = case(q)
    found = HypervolumeImprovement(front, reference)(mean + 1e3, 1e-2 * std)
    assert (found.value < -1e6).all()
    assert np.isfinite(found.by_mean).all()
    assert (found.by_mean < 0).all()
