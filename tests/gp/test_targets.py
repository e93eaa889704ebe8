import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import yeojohnson, yeojohnson_llf

from lazybo.gp.targets import POWER_SPREAD, POWERS, centring, identity, scaling, standardize, warping


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


@given(arrays(float, st.integers(1, 40), elements=st.floats(-1e30, 1e30)))
def test_warping_keeps_the_order_and_is_finite(y: np.ndarray) -> None:
    warp = warping(y)
    values = warp(y)
    assert np.isfinite(values).all()
    order = np.argsort(y, kind="stable")
    assert (np.diff(values[order]) >= 0).all()


def test_one_diverged_value_does_not_flatten_the_others(rng: np.random.Generator) -> None:
    y = np.append(rng.standard_normal(50), 1e30)
    assert np.std(warping(y)(y[:50])) > 0.3


@pytest.mark.parametrize("factor", [1e-12, 1.0, 1e12])
def test_warping_does_not_see_units(rng: np.random.Generator, factor: float) -> None:
    y = np.exp(2 * rng.standard_normal(60))
    scaled = factor * y + 3 * factor
    np.testing.assert_allclose(warping(scaled)(scaled), warping(y)(y), atol=1e-6)


def test_warping_equals_scipy(rng: np.random.Generator) -> None:
    y = np.exp(rng.standard_normal(60))
    warp = warping(y)
    unit = 2.0**warp.exponent
    z = (y / unit - warp.middle) / warp.width
    expected = (yeojohnson(z, warp.power) - warp.shift) / warp.scale
    np.testing.assert_allclose(warp(y), expected, atol=1e-10)
    best = max(POWERS, key=lambda power: yeojohnson_llf(power, z) - 0.5 * ((power - 1) / POWER_SPREAD) ** 2)
    assert warp.power == best
    small, middle = 1e-7, unit * warp.middle
    numeric = (warp(np.array([middle + small])) - warp(np.array([middle])))[0] / small
    assert np.exp(warp.log_slope) == pytest.approx(numeric, rel=1e-4)
    assert warp.variances(np.array([4.0])) == pytest.approx(4.0 * numeric**2, rel=1e-3)


def test_centring_and_scaling_do_not_bend(rng: np.random.Generator) -> None:
    y = rng.lognormal(size=50)
    np.testing.assert_allclose(centring(y)(y), y - y.mean(), atol=1e-12)
    np.testing.assert_allclose(scaling(y)(y), (y - y.mean()) / y.std(), atol=1e-12)


@pytest.mark.parametrize("make", [warping, scaling])
@given(
    y=arrays(float, st.integers(1, 20), elements=st.floats(-1.0, 1.0, allow_subnormal=False)),
    exponent=st.integers(-960, 1023),
)
def test_a_power_of_two_changes_no_bit_of_the_warped_values(make: object, y: np.ndarray, exponent: int) -> None:
    y = np.where(np.abs(y) < 2.0**-50, 0.0, y)
    scaled = np.ldexp(y, exponent)
    one, other = make(y), make(scaled)  # type: ignore[operator]
    np.testing.assert_array_equal(one(y), other(scaled))


@pytest.mark.parametrize("make", [warping, scaling, centring])
@given(arrays(float, st.integers(1, 20), elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_every_double_can_be_warped_and_comes_back_as_a_number(make: object, y: np.ndarray) -> None:
    warp = make(y)  # type: ignore[operator]
    warped = warp(y)
    assert np.isfinite(warped).all()
    assert np.isfinite(warp.inverse(warped)).all()
    assert np.isfinite(warp.inverse(np.array([-1e3, 1e3]))).all()
    assert np.isfinite(warp.variances(np.abs(y))).all()
    assert np.isfinite(warp.log_slope)


@given(arrays(float, st.integers(3, 30), elements=st.floats(-1e3, 1e3)), st.integers(-20, 20))
def test_only_ratios_of_weights_count(y: np.ndarray, exponent: int) -> None:
    weights = np.linspace(1.0, 2.0, len(y))
    assert warping(y, np.ldexp(weights, exponent)) == warping(y, weights)
    assert warping(y, np.full(len(y), 4.0)) == warping(y)


def test_crowded_values_do_not_set_the_unit(rng: np.random.Generator) -> None:
    spread = rng.standard_normal(20)
    crowded = np.append(spread, -2.0 + 0.02 * rng.standard_normal(80))
    weights = np.append(np.ones(20), np.full(80, 1 / 80))
    alone, weighted, unweighted = warping(spread), warping(crowded, weights), warping(crowded)
    assert np.ptp(weighted(spread)) == pytest.approx(np.ptp(alone(spread)), rel=0.3)
    assert np.ptp(unweighted(crowded[20:])) > 3 * np.ptp(weighted(crowded[20:]))
