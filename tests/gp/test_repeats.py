import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazybo.gp.priors import NOISY, Priors
from lazybo.gp.targets import PROOF_IF_DISCRETE, Repeats, repeats_of

NAN = math.nan


def test_no_repeats_say_nothing() -> None:
    repeats = repeats_of(np.array([1.0, 2.0, NAN]), [])
    assert not repeats.differ
    assert not repeats.agree
    assert Priors().after(repeats) == Priors()


def test_repeats_without_a_value_do_not_count() -> None:
    assert repeats_of(np.array([1.0, NAN, 2.0]), [[0, 1]]) == Repeats()


def test_one_equal_repeat_is_proof_unless_other_points_have_equal_values_too() -> None:
    assert repeats_of(np.array([1.0, 2.0, 1.0]), [[0, 2]]).agree
    discrete = np.array([1.0, 2.0, 1.0, 2.0, 1.0, 1.0])
    assert not repeats_of(discrete[:4], [[0, 2]]).agree
    assert repeats_of(discrete, [[0, 2, 4, 5]]).count == PROOF_IF_DISCRETE
    assert repeats_of(discrete, [[0, 2, 4, 5]]).agree


def test_one_different_repeat_outweighs_equal_ones() -> None:
    repeats = repeats_of(np.array([1.0, 1.0, 3.0, 2.0]), [[0, 1], [2, 3]])
    assert repeats.differ
    assert not repeats.agree
    assert (repeats.count, repeats.square) == (2, pytest.approx(0.5))


@given(st.integers(1, 30), st.floats(1e-3, 1.0))
def test_the_estimate_of_the_log_variance_is_unbiased(count: int, variance: float) -> None:
    squares = variance * np.random.default_rng(count).chisquare(count, 4000)
    of_one, claimed = Repeats(count, 1.0).log_variance()
    estimates = np.log(squares) + of_one
    assert Repeats(count, squares[0]).log_variance() == pytest.approx((estimates[0], claimed))
    assert np.mean(estimates) == pytest.approx(np.log(variance), abs=5 * math.sqrt(claimed / 4000))
    assert np.var(estimates) == pytest.approx(claimed, rel=0.25)


def test_equal_repeats_exclude_noise_and_different_ones_measure_it() -> None:
    proven = Priors().after(Repeats(1, 0.0))
    assert len(proven.hypotheses()) == 1
    assert proven.noise_limit == NOISY
    measured = Priors().after(Repeats(200, 200 * 0.03))
    assert len(measured.hypotheses()) == 1
    assert measured.noise == pytest.approx(0.03, rel=0.2)
    assert Priors().after(Repeats(1, 0.03)).noise_spread > 1.0, "one repeat measures little"


def test_a_fixed_or_excluded_noise_stays_as_it_is() -> None:
    for priors in (Priors(noise_spread=0.0), Priors(noisy_odds=0.0)):
        assert priors.after(Repeats(3, 1.0)) == priors
        assert len(priors.hypotheses()) == 1
