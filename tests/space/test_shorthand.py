"""Spaces as people write them."""

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from lazybo import Optimizer, optimize
from lazybo.space.shorthand import as_distributions


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (["a", "b"], CategoricalDistribution(["a", "b"])),
        ([1, 2.5, None, True, "x"], None),
        (["only"], CategoricalDistribution(["only"])),
        ([np.int64(3), np.str_("x")], CategoricalDistribution([3, "x"])),
        ((0.0, 1.0), FloatDistribution(0, 1)),
        ((0, 1), IntDistribution(0, 1)),
        ((0, 1.0), FloatDistribution(0, 1)),
        ((3, 3), IntDistribution(3, 3)),
        ((np.int64(1), np.int32(9)), IntDistribution(1, 9)),
        ((np.float32(0.5), 2), FloatDistribution(0.5, 2)),
        ((Fraction(1, 2), 2), FloatDistribution(0.5, 2)),
        ((1e-5, 1, "log"), FloatDistribution(1e-5, 1, log=True)),
        ((1, 1024, "log"), IntDistribution(1, 1024, log=True)),
        ((1, 9, "uniform"), IntDistribution(1, 9)),
        ((0.1, 9, "log-uniform"), FloatDistribution(0.1, 9, log=True)),
        (FloatDistribution(0, 1, step=0.1), FloatDistribution(0, 1, step=0.1)),
        (CategoricalDistribution([1, 2]), CategoricalDistribution([1, 2])),
    ],
)
def test_what_is_written_means(written: Any, meant: BaseDistribution | None) -> None:
    if meant is None:
        with pytest.raises(ValueError, match="'p' has the choice True twice"):
            as_distributions({"p": written})
        return
    found = as_distributions({"p": written})["p"]
    assert found == meant
    if isinstance(found, CategoricalDistribution):
        assert [type(choice) for choice in found.choices] == [type(choice) for choice in meant.choices]
    else:
        assert type(found.low) is type(meant.low)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ((1,), r"must be a list of choices, a range \(low, high\) .* not \(1,\)\. Tuples are ranges"),
        ((1, 2, 3, 4), "Tuples are ranges of two numbers"),
        ((), "Tuples are ranges of two numbers"),
        (("a", "b"), "choices are a list"),
        ((False, True), "choices are a list"),
        ((True, 3), "Tuples are ranges"),
        ((0, None), "Tuples are ranges"),
        ((1j, 2), "Tuples are ranges"),
        ((5, 1), r"has the range \(5, 1\), but the low end must not be above the high end"),
        ((0, 1, "log"), "the low end of a logarithmic range must be above 0"),
        ((-1.0, 1, "log"), "of a logarithmic range must be above 0"),
        ((0.1, 1, "Log"), "The third entry of a range is 'log' or missing"),
        ((0.1, 1, None), "The third entry of a range is 'log' or missing"),
        ((0.1, 1, ["log"]), "The third entry of a range is 'log' or missing"),
        ((0, 10, 2), "For steps write IntDistribution"),
        ((0, math.inf), "both ends must be finite"),
        ((math.nan, 1.0), "both ends must be finite"),
        ((0, 10**400), "beyond ±1.8e308"),
        ((0.5, 10**400), "beyond ±1.8e308"),
        ((0, 10**5000), "beyond ±1.8e308"),
        (FloatDistribution(0, math.inf), "both ends must be finite"),
        (IntDistribution(-(10**400), 0), "beyond ±1.8e308"),
        ([], "is an empty list"),
        ([1, 2, 1.0], "has the choice 1.0 twice"),
        ({1, 2}, "A set has no order"),
        (frozenset("ab"), "A set has no order"),
        (None, r"A constant is a list with one choice, \[None\]"),
        (3, r"\[3\]"),
        (True, r"\[True\]"),
        ("log", r"\['log'\]"),
        (range(3), r"list\(...\)"),
        (np.arange(3), r"list\(...\)"),
        ({"low": 0, "high": 1}, "must be a list of choices"),
    ],
)
def test_what_means_nothing_is_one_clear_error(written: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"parameter 'p' .*{message}"):
        Optimizer({"q": [1, 2], "p": written})


@pytest.mark.parametrize("space", [None, 3, "x", [("x", (0, 1))], {("x",): (0, 1)}, {1: (0, 1)}, {}])
def test_what_is_no_space_is_one_clear_error(space: Any) -> None:
    with pytest.raises(ValueError, match=r"space|parameter names"):
        Optimizer(space)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            (0, 1),
            r"'p': \(0, 1\) is read as the integers 0, 1; write \(0.0, 1.0\) for a range of floats, or \[0, 1\] for",
        ),
        ((np.int64(-1), 1), r"the integers -1, 0, 1; write \(-1.0, 1.0\)"),
        ([1e-4, 0.1], r"'p': \[0.0001, 0.1\] is read as two choices; write \(0.0001, 0.1\) for a range"),
        ([np.float32(0.5), 1.0], "is read as two choices"),
        ([1e-4, 0.1, "log"], r"is read as three choices; write \(0.0001, 0.1, 'log'\) for a range"),
        ([1, 64, "log"], "is read as three choices"),
    ],
)
def test_what_is_probably_meant_in_another_way_is_a_warning_at_the_line_of_the_caller(
    written: Any, message: str
) -> None:
    with pytest.warns(UserWarning, match=message) as caught:
        Optimizer({"p": written, "q": (0.0, 1.0)})
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(UserWarning, match=message) as caught:
        optimize(lambda p, q: p == q, {"p": written, "q": (0.0, 1.0)}, n_trials=2, seed=0)
    assert [warning.filename for warning in caught] == [__file__], "once"


@pytest.mark.parametrize(
    "written",
    [
        *[(0.0, 1.0), (0, 1.0), (0, 2), (1, 5), (0, 0), (1, 8, "log"), IntDistribution(0, 1)],
        *[[0, 1], [1, 2], [0.1, 0.2, 0.3], [0.9, 0.0], [0.5], [0.5, 1], ["a", "b", "log"], [False, True]],
        CategoricalDistribution([0.1, 0.9]),
    ],
)
def test_what_is_clear_is_read_without_a_warning(written: Any) -> None:
    Optimizer({"p": written, "q": (0.0, 1.0)})


def test_choices_may_be_tuples() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna's about storages
        space = as_distributions({"layers": [(64,), (64, 64)]})
    assert space["layers"].choices == ((64,), (64, 64))


@pytest.mark.parametrize("choices", [[np.zeros(2), np.ones(2)], [3, np.zeros(2)], [np.zeros(2), "a"]])
def test_arrays_are_no_choices(choices: list) -> None:
    with pytest.raises(ValueError, match=r"'p' has the choice array.*give tuples or names"):
        as_distributions({"p": choices})


ends = st.one_of(
    st.integers(), st.floats(), st.booleans(), st.just(10**400), st.none(), st.text(max_size=3), st.just(np.float16(2))
)
anything = st.one_of(
    st.tuples(ends, ends),
    st.tuples(ends, ends, st.sampled_from(["log", "uniform", "x", None, 1])),
    st.lists(ends, max_size=4),
    ends,
)


@given(st.dictionaries(st.text(max_size=2), anything, max_size=3))
def test_every_space_is_understood_or_refused(space: dict[str, Any]) -> None:
    try:
        found = as_distributions(space)
    except ValueError:
        return
    assert list(found) == list(space)
    for distribution in found.values():
        if not isinstance(distribution, CategoricalDistribution):
            assert -math.inf < distribution.low <= distribution.high < math.inf
