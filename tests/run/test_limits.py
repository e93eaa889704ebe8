"""Limits: each is checked once, here; and why a run stops."""

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazybo.run.limits import Limits, StopReason, check_count
from tests.run.strategies import NUMBERS


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("timeout", [-1, 0, math.nan, "60", True]),
        ("trial_timeout", [-1, 0, math.nan, "60"]),
        ("target_value", [math.nan, math.inf, 10**400, 1j, "1", True]),
        ("patience", [0, -1, 2.5, True, math.inf]),
        ("max_failures", [0, -1, 2.5, "all"]),
        ("min_gain", [0.0, -1.0, math.inf, "small"]),
        ("retries", [-1, 1.5, None, True]),
        ("confirm", [-1, 1.5, None, True]),
    ],
)
def test_a_wrong_limit_is_one_clear_error(name: str, wrong: list[Any]) -> None:
    for value in wrong:
        with pytest.raises(ValueError, match=f"^{name} must be "):
            Limits(**{name: value})


@given(st.sampled_from(fields(Limits)), NUMBERS)
def test_any_number_is_a_limit_or_refused(field: Any, number: Any) -> None:
    try:
        limit = getattr(Limits(**{field.name: number}), field.name)
    except ValueError:
        return
    assert limit is None or (math.isfinite(limit) and type(limit) in (int, float))


def test_the_longest_times_are_no_limit_and_numpys_numbers_count() -> None:
    assert Limits(timeout=1e10, trial_timeout=10**400) == Limits(timeout=math.inf) == Limits()
    limits = Limits(timeout=np.float32(1.5), patience=np.int64(3), retries=np.int16(1))  # type: ignore[arg-type]
    assert limits == Limits(timeout=1.5, patience=3, retries=1)
    assert check_count("n_trials", np.int64(3)) == 3
    assert check_count("n_trials", 10**400) == 2**63 - 1


def test_a_misspelt_limit_is_one_clear_error() -> None:
    with pytest.raises(TypeError, match=r"Limits\(\) has no argument timout=; did you mean timeout=\?"):
        Limits(timout=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("n_trials", [0, -1, 2.5, "3", True])
def test_a_wrong_number_of_trials_is_refused(n_trials: Any) -> None:
    with pytest.raises(ValueError, match=r"^n_trials must be a whole number of at least 1, not"):
        check_count("n_trials", n_trials)


def test_something_must_end_the_run_and_its_search() -> None:
    with pytest.raises(ValueError, match="nothing would end this run: give n_trials"):
        Limits(timeout=math.inf).check_ends(None)
    for enough in (Limits(timeout=9), Limits(patience=9), Limits(target_value=0), Limits(min_gain=1)):
        enough.check_ends(None)
    with pytest.raises(ValueError, match="confirm needs to know when the search ends"):
        Limits(timeout=9, confirm=2).check_ends(None)
    with pytest.raises(ValueError, match="confirm is a part of n_trials=4: it must be less, not 4"):
        Limits(confirm=4).check_ends(4)
    Limits(confirm=4).check_ends(5)


def test_every_limit_has_a_help_text_and_a_placeholder_for_the_command() -> None:
    for field in fields(Limits):
        assert field.metadata["help"].endswith(".")
        assert field.metadata["metavar"]


def test_the_codes_that_studies_keep_stay_and_have_words() -> None:
    codes = "target_reached timeout_reached no_improvement too_many_failures invalid_value no_first_value "
    codes += "callback_failed stop_called interrupted small_gain confirmed objective_has_bug"
    assert [str(reason) for reason in StopReason] == codes.split()
    assert [Limits.described(code) for code in codes.split()] == [reason.description for reason in StopReason]
    assert Limits.described("what an earlier version wrote") == "what an earlier version wrote"
