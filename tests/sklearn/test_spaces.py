import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from scipy import stats
from sklearn.decomposition import PCA

from lazybo import Condition, Optimizer
from lazybo.sklearn.spaces import TAIL, WHICH, SearchSpace, described


def inside(spec: object) -> object:
    return SearchSpace({"p": spec}).space.distributions["p"]


# ------------------------------------------------------------------- lists


@given(st.lists(st.floats(-1e6, 1e6) | st.integers(-1000, 1000), min_size=3, max_size=8, unique=True))
def test_numbers_are_ordered_and_every_one_can_be_had(numbers: list[float]) -> None:
    space = SearchSpace({"p": numbers})
    d = space.space.distributions["p"]
    assert isinstance(d, IntDistribution)
    values = [space.candidate({"p": level})["p"] for level in range(d.low, d.high + 1, d.step)]
    assert values == sorted(numbers)
    assert space.space.size == len(numbers)


@given(
    st.lists(
        st.none() | st.booleans() | st.integers(0, 2) | st.floats() | st.text(max_size=2) | st.just(np.int64(1)),
        min_size=1,
        max_size=6,
    )
)
def test_whatever_is_in_a_list_can_be_had(values: list[object]) -> None:
    space = SearchSpace({"p": values})
    d = space.space.distributions["p"]
    if isinstance(d, CategoricalDistribution):
        assert len(set(d.choices)) == len(values), "no two choices are equal"
        had = [space.candidate({"p": choice})["p"] for choice in d.choices]
    else:
        assert isinstance(d, IntDistribution)
        had = [space.candidate({"p": level})["p"] for level in range(d.low, d.high + 1, d.step)]
    assert sorted(map(repr, had)) == sorted(map(repr, values)) or all(isinstance(v, int | np.integer) for v in values)


def test_lists_are_what_they_look_like() -> None:
    assert inside(range(1, 50)) == IntDistribution(1, 49)
    assert inside([2, 4, 6]) == IntDistribution(2, 6, step=2)
    assert inside(np.logspace(-3, 3, 7)) == IntDistribution(0, 6)
    assert inside(["l1", "l2"]) == CategoricalDistribution(["l1", "l2"])
    assert inside(("l1", "l2", "elasticnet")) == CategoricalDistribution(["l1", "l2", "elasticnet"])
    assert inside([None, 3, 5]) == CategoricalDistribution([None, 3, 5])
    assert inside([0.1, 1.0]) == CategoricalDistribution([0.1, 1.0])
    assert inside(pd.Series([1, 5, 7])) == IntDistribution(0, 2)
    assert inside([True, False, True][:2]) == CategoricalDistribution([True, False])


def test_tuples_of_two_numbers_are_ranges_as_in_scikit_optimize_and_all_others_are_lists() -> None:
    assert inside((1, 8)) == IntDistribution(1, 8)
    assert inside((np.int64(1), 8, "log")) == IntDistribution(1, 8, log=True)
    assert inside((1e-3, 1)) == inside((1e-3, 1, "uniform")) == FloatDistribution(1e-3, 1)
    assert inside((1e-3, 1, "log-uniform")) == FloatDistribution(1e-3, 1, log=True)
    assert inside((1, 2, 3)) == IntDistribution(1, 3)
    assert inside((0.1, 1.0, "scale")) == CategoricalDistribution([0.1, 1.0, "scale"])
    assert inside((True, False)) == CategoricalDistribution([True, False])


def test_objects_are_told_apart_by_their_place_and_come_out_as_they_are() -> None:
    values = [PCA(2), None, np.mean, (50, 50), np.arange(3)]
    space = SearchSpace({"p": values})
    choices = space.space.distributions["p"].choices  # type: ignore[attr-defined]
    assert choices[:3] == ("0: PCA(n_components=2)", "1: None", f"2: {described(np.mean)}")
    assert all(space.candidate({"p": choice})["p"] is value for choice, value in zip(choices, values, strict=True))
    assert "0x" not in described([PCA(), lambda: 0])


# ------------------------------------------------------------- scipy.stats


def test_distributions_of_scipy_that_optuna_has_are_the_same() -> None:
    assert inside(stats.loguniform(1e-3, 1e3)) == FloatDistribution(1e-3, 1e3, log=True)
    assert inside(stats.reciprocal(1e-3, 1e3)) == FloatDistribution(1e-3, 1e3, log=True)
    assert inside(stats.randint(1, 11)) == IntDistribution(1, 10)
    uniform = inside(stats.uniform(-1, 3))
    assert isinstance(uniform, FloatDistribution)
    assert (uniform.low, uniform.high) == pytest.approx((-1, 2), abs=1e-5)
    assert uniform.low > -1, "a continuous distribution never gives its ends: C=0 would fail"
    assert inside(stats.rv_discrete(values=([1, 2, 5], [0.2, 0.3, 0.5]))) == IntDistribution(0, 2)
    assert inside(FloatDistribution(0, 1, step=0.1)) == FloatDistribution(0, 1, step=0.1)


@pytest.mark.parametrize(
    "frozen",
    [stats.norm(5, 2), stats.gamma(2.0), stats.beta(2, 3), stats.expon(scale=10), stats.loguniform(1, 9, loc=2)],
)
def test_other_continuous_ones_are_searched_by_their_quantiles(frozen: object) -> None:
    space = SearchSpace({"p": frozen})
    assert space.space.distributions["p"] == FloatDistribution(TAIL, 1 - TAIL)
    for u in (TAIL, 0.5, 1 - TAIL):
        value = space.candidate({"p": u})["p"]
        assert type(value) is float
        assert value == pytest.approx(frozen.ppf(u))  # type: ignore[attr-defined]


def test_other_discrete_ones_lose_their_tails() -> None:
    assert inside(stats.poisson(10)) == IntDistribution(2, 21)
    assert inside(stats.binom(5, 0.5)) == IntDistribution(0, 5)


# -------------------------------------------------------------- sub-spaces


def test_what_is_the_same_in_several_sub_spaces_is_one_parameter() -> None:
    space = SearchSpace(
        [
            {"kernel": ["rbf"], "C": stats.loguniform(1, 10), "gamma": stats.loguniform(0.1, 1), "tol": [0.1, 0.2]},
            {"kernel": ["poly"], "C": stats.loguniform(1, 10), "gamma": stats.loguniform(0.1, 1), "tol": [0.1, 0.3]},
            {"kernel": ["linear"], "C": stats.loguniform(1, 10)},
        ]
    )
    assert space.space.distributions[WHICH] == CategoricalDistribution([0, 1, 2])
    assert "C" not in space.space.conditions
    assert space.space.conditions["gamma"] == Condition(WHICH, (0, 1))
    assert space.space.conditions[f"tol ({WHICH} 1)"] == Condition(WHICH, (1,))
    optimizer = Optimizer(space.space, seed=0)
    seen = set()
    for suggestion in optimizer.ask(30):
        candidate = space.candidate(suggestion.params)
        seen.add((candidate["kernel"], *sorted(candidate)))
        assert WHICH not in candidate
        assert candidate.get("tol") in {"rbf": (0.1, 0.2), "poly": (0.1, 0.3), "linear": (None,)}[candidate["kernel"]]
    everything = ("C", "gamma", "kernel", "tol")
    assert seen == {("rbf", *everything), ("poly", *everything), ("linear", "C", "kernel")}


def test_a_sub_space_may_be_empty_and_the_size_counts_candidates_once() -> None:
    space = SearchSpace([{}, {"p": [1, 2, 3]}, {"p": [1, 2, 3], "q": ["a", "b"]}])
    assert space.space.size == 1 + 3 + 6
    assert space.candidate({WHICH: 0}) == {}
    assert SearchSpace({"p": [1], "q": ["x"]}).space.size == 1
    assert SearchSpace({"p": stats.norm()}).space.size == np.inf


# --------------------------------------------------------------- bad input


class Sampler:
    def rvs(self, **_: object) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("spaces", "message"),
    [
        ({}, "search_spaces is empty"),
        ([{}, {}], "search_spaces is empty"),
        ([], "must be a dict of parameters, or a list"),
        (3, "must be a dict of parameters, or a list"),
        ([({"p": [1, 2]}, 20)], "give a list of dicts, and n_iter for all"),
        (["p"], "a search space must be a dict"),
        ({1: [1, 2]}, "a search space must be a dict whose keys are parameter names"),
        ({"p": []}, "'p' has an empty list"),
        ({"p": np.array([])}, "'p' has an empty list"),
        ({"p": 3}, "'p' must have a list of values, a range .* a frozen distribution .* an Optuna distribution"),
        ({"p": "rbf"}, "'p' must have .* not 'rbf'"),
        ({"p": {"a": 1}}, "'p' must have"),
        ({"p": (8, 1)}, r"'p' has the range \(8, 1\), but the low end must not be above the high end"),
        ({"p": (0, 8, "log-uniform")}, "'p' has the range .*, but the low end of a logarithmic range must be above 0"),
        ({"p": (0, math.inf)}, "'p' has a range with the end inf"),
        ({"p": IntDistribution(0, 10**400)}, "'p' has a range with an end beyond"),
        ({"p": [1, 10, "log-uniform"]}, r"whose last value is a scale; a range is a tuple: \(1, 10, 'log-uniform'\)"),
        ({"p": Sampler()}, "which has no quantile function"),
        ({"p": stats.loguniform(-1, 1)}, "invalid parameters"),
        ({"p": stats.randint(5, 5)}, "invalid parameters"),
        ({"p": stats.norm(0, -1)}, "invalid parameters"),
    ],
)
def test_bad_spaces_are_one_clear_error(spaces: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SearchSpace(spaces)
