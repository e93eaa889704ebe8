import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lazybo.targets import identity, standardize


@given(arrays(float, st.integers(0, 30), elements=st.floats(-1e300, 1e300)))
def test_standardised_values_are_finite_and_lead_back_to_y(y: np.ndarray) -> None:
    values, shift, scale = standardize(y)
    assert np.isfinite(values).all()
    assert np.isfinite([shift, scale]).all()
    assert scale > 0
    np.testing.assert_allclose(values * scale + shift, y, atol=1e-10 * np.abs(y).max(initial=1e-290))


@pytest.mark.parametrize("factor", [1e-300, 1e-12, 3.0, 1e12, 1e300])
def test_the_scale_of_y_does_not_matter(rng: np.random.Generator, factor: float) -> None:
    y = rng.standard_normal(50)
    np.testing.assert_allclose(standardize(factor * y).values, standardize(y).values, rtol=1e-9)


@pytest.mark.parametrize("value", [0.0, 0.1, -7e12, 1e300])
def test_a_constant_becomes_zero(value: float) -> None:
    values, shift, scale = standardize(np.full(7, value))
    assert not values.any()
    assert shift == pytest.approx(value)
    assert scale == 1.0


def test_identity_is_y() -> None:
    y = np.array([3.0, -1.0])
    assert identity(y) == (pytest.approx(y), 0.0, 1.0)
