"""Random values have the distribution that the user's words mean, for every kind of parameter.

A number is uniform on its scale. A whole number, or one with steps, is rounded from the range that begins and ends half
a step beyond its ends, as in Optuna.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution, IntDistribution
from scipy import stats

from lazybo import Belief, Condition, Described, Graph, Mixture, Optimizer, Permutation, Space, Subset
from lazybo.space.axis import NumberAxis
from lazybo.space.beliefs import DOUBT

# A test with a fixed seed fails if chance alone would give such a difference less often than this.
RARE = 1e-3
DRAWN = 6000

Shares = Mapping[Any, float]


def check_counts(values: list[Any], expected: Shares) -> None:
    """Compare values with their probabilities (χ²). Neighbouring ones are pooled until 10 of them are expected."""
    counts = Counter(values)
    assert counts.keys() <= expected.keys()
    seen, wanted, bins = 0.0, 0.0, list[tuple[float, float]]()
    for value, share in expected.items():
        seen, wanted = seen + counts[value], wanted + share * len(values)
        if wanted >= 10:
            bins.append((seen, wanted))
            seen, wanted = 0.0, 0.0
    bins[-1] = bins[-1][0] + seen, bins[-1][1] + wanted
    observed, means = np.array(bins).T
    assert means.sum() == pytest.approx(len(values))
    assert stats.chisquare(observed, means).pvalue > RARE


def check_continuous(values: list[float], reached: Callable[[np.ndarray], np.ndarray]) -> None:
    """Compare values with a distribution function (Kolmogorov and Smirnov)."""
    assert stats.kstest(values, reached).pvalue > RARE


def drawn(parameter: Any, rng: np.random.Generator, count: int = DRAWN) -> list[Any]:
    space = Space({"p": parameter})
    return [space.values(params)["p"] for params in space.points.decode_all(space.points.sample(rng, count))]


def even(values: Any) -> Shares:
    values = list(values)
    return dict.fromkeys(values, 1.0 / len(values))


def logarithmic(low: int, high: int) -> Shares:
    """Whole numbers from log(low - ½) to log(high + ½)."""
    whole = math.log((high + 0.5) / (low - 0.5))
    return {value: math.log((value + 0.5) / (value - 0.5)) / whole for value in range(low, high + 1)}


LOGARITHMIC = [(1, 2), (1, 3), (1, 8), (2, 3), (3, 4), (7, 9), (1, 100), (10, 1000), (64, 1024), (1000, 1003)]

DISCRETE: dict[str, tuple[Any, Shares]] = {
    "choice": (["a", "b", "c"], even("abc")),
    "flag": ([True, False], even([True, False])),
    "whole": ((-3, 5), even(range(-3, 6))),
    "whole, with steps": (IntDistribution(0, 60, step=5), even(range(0, 61, 5))),
    "whole, from a study": (IntDistribution(1, 9, step=2), even(range(1, 10, 2))),
    "real, with steps": (FloatDistribution(0.0, 1.0, step=0.25), even(np.arange(5) / 4)),
    "described": (Described({"a": [0.0], "b": [1.0], "c": [5.0]}), even("abc")),
} | {f"whole, logarithmic {low, high}": ((low, high, "log"), logarithmic(low, high)) for low, high in LOGARITHMIC}


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_values_are_as_likely_as_their_scale_says(name: str, rng: np.random.Generator) -> None:
    parameter, expected = DISCRETE[name]
    check_counts(drawn(parameter, rng), expected)


CONTINUOUS: dict[str, tuple[Any, Callable[[np.ndarray], np.ndarray]]] = {
    "real": ((-2.0, 6.0), lambda x: (x + 2) / 8),
    "real, logarithmic": ((1e-5, 10.0, "log"), lambda x: np.log10(x / 1e-5) / 6),
    "so many whole numbers that they are like real ones": ((0, 10**12), lambda x: x / 10**12),
    "the same, logarithmic": ((10**6, 10**18, "log"), lambda x: np.log10(x / 10**6) / 12),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_values_are_even_on_their_scale(name: str, rng: np.random.Generator) -> None:
    parameter, reached = CONTINUOUS[name]
    check_continuous([float(value) for value in drawn(parameter, rng)], reached)


def test_the_median_of_a_logarithmic_range_is_near_its_geometric_mean(rng: np.random.Generator) -> None:
    for low, high, expected in ((1, 100, 7), (10, 1000, 97)):
        assert np.median(drawn((low, high, "log"), rng)) == pytest.approx(expected, rel=0.1)


# ------------------------------------------------------------------------- structure


def test_permutations_are_equally_likely(rng: np.random.Generator) -> None:
    found = [tuple(value) for value in drawn(Permutation([*"abcd"]), rng)]
    check_counts(found, even(itertools.permutations("abcd")))


def test_sizes_of_subsets_are_equally_likely_and_subsets_of_a_size_too(rng: np.random.Generator) -> None:
    found = ["".join(sorted(value)) for value in drawn(Subset([*"abcd"], at_least=1, at_most=3), rng)]
    sizes = {k: ["".join(each) for each in itertools.combinations("abcd", k)] for k in (1, 2, 3)}
    check_counts(found, {each: 1 / 3 / len(some) for some in sizes.values() for each in some})


def test_shares_of_a_mixture_are_uniform_on_the_simplex(rng: np.random.Generator) -> None:
    found = drawn(Mixture([*"abc"], total=100), rng)
    for part in "abc":
        check_continuous([value[part] / 100 for value in found], stats.beta(1, 2).cdf)


def test_operations_of_a_graph_are_equally_likely(rng: np.random.Generator) -> None:
    space = Space({"g": Graph(nodes=3, operations=["none", "a", "b"])})
    for stored in zip(
        *(params.values() for params in space.points.decode_all(space.points.sample(rng, DRAWN))), strict=True
    ):
        check_counts(list(stored), even(["none", "a", "b"]))


def test_one_part_of_a_mixture_is_as_likely_as_another(rng: np.random.Generator) -> None:
    found = drawn(Mixture([*"abc"], at_most=1), rng)
    check_counts([max(value, key=value.__getitem__) for value in found], even("abc"))


# -------------------------------------------------------------------- other ways to draw


def test_conditional_parameters_are_drawn_as_the_others(rng: np.random.Generator) -> None:
    space = Space(
        {"model": ["tree", "net"], "trees": (1, 50, "log"), "units": (4, 12)},
        conditions={"trees": Condition("model", ("tree",)), "units": Condition("model", ("net",))},
    )
    found = space.points.decode_all(space.points.sample(rng, DRAWN))
    check_counts([params["model"] for params in found], even(["tree", "net"]))
    check_counts([params["trees"] for params in found if "trees" in params], logarithmic(1, 50))
    check_counts([params["units"] for params in found if "units" in params], even(range(4, 13)))
    # A parameter that becomes active because its parent has changed.
    became = space.points.repair(np.tile([0.0, np.nan, 0.5], (DRAWN, 1)), rng)
    check_counts([params["trees"] for params in space.points.decode_all(became)], logarithmic(1, 50))
    # One that a point lacks.
    point, fixed = np.full(3, np.nan), {"model": "tree"}
    check_counts([space.complete(fixed, point, rng)["trees"] for _ in range(DRAWN)], logarithmic(1, 50))


def test_first_suggestions_are_as_likely_as_the_scale_says() -> None:
    space = Space({"units": (1, 100, "log"), "depth": (1, 4), "rate": (1e-4, 1.0, "log")})
    found = [Optimizer(space, seed=seed).ask().params for seed in range(400)]
    check_counts([params["units"] for params in found], logarithmic(1, 100))
    check_counts([params["depth"] for params in found], even(range(1, 5)))
    check_continuous([params["rate"] for params in found], lambda x: np.log10(x / 1e-4) / 4)


@pytest.mark.parametrize("feasible", [None, lambda params: params["units"] * params["depth"] <= 40])
def test_startup_points_cover_a_logarithmic_range_evenly(feasible: Any) -> None:
    """Of 64 in one run, each quarter of the scale has a quarter; with a constraint, of those that it allows."""
    space = Space({"units": (10, 1000, "log"), "depth": (1, 4)}, feasible=feasible)
    optimizer = Optimizer(space, seed=0, n_startup=64)
    units = [params["units"] for params in (each.params for each in optimizer.ask(n=64))]
    allowed = [
        (value, share / 4)
        for value, share in logarithmic(10, 1000).items()
        for depth in range(1, 5)
        if feasible is None or feasible({"units": value, "depth": depth})
    ]
    values, shares = np.array(allowed).T
    reached = np.cumsum(shares) / shares.sum()
    quarters = [int((np.array(units) <= values[np.searchsorted(reached, q)]).sum()) for q in (0.25, 0.5, 0.75)]
    assert quarters == pytest.approx([16, 32, 48], abs=6)


# Numbers with an upper end, so that the half steps at both ends count.
BELIEVED = {
    "whole": ((1, 12), Belief(around=3, within=4)),
    "whole, logarithmic": ((1, 64, "log"), Belief(around=2, within=4)),
    "real, with steps": (FloatDistribution(0.0, 3.0, step=0.25), Belief(around=3.0, within=1.0)),
}


@pytest.mark.parametrize("name", BELIEVED)
def test_values_of_a_belief_are_as_likely_as_it_says(name: str, rng: np.random.Generator) -> None:
    """The probability of a value is the mass of the density between it and its neighbours, half a step each way."""
    parameter, belief = BELIEVED[name]
    space = Space({"p": parameter}, beliefs={"p": belief})
    distribution = space.distributions["p"]
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    step, measure = distribution.step or 0.0, math.log if distribution.log else float
    values = [value for (value,) in (params.values() for params in map(space.points.decode, space.points.listed()))]
    cells = [(measure(value - step / 2), measure(value + step / 2)) for value in values]
    around, within = float(belief.around or 0.0), float(belief.within or 0.0)
    normal = stats.norm(measure(around), (math.log(within) if distribution.log else within) / 2)
    mass = normal.cdf(cells[-1][1]) - normal.cdf(cells[0][0])
    share = {
        value: (1 - DOUBT) * (normal.cdf(high) - normal.cdf(low)) / mass
        + DOUBT * (high - low) / (cells[-1][1] - cells[0][0])
        for value, (low, high) in zip(values, cells, strict=True)
    }
    assert space.believed is not None
    points = space.points.from_uniform(space.believed.as_uniform(rng.random((DRAWN, space.points.draws))))
    check_counts([params["p"] for params in space.points.decode_all(points)], share)
    # The density at points drawn evenly has the mean 1.
    assert space.believed is not None
    low, high = space.points.axes["p"].edges  # type: ignore[attr-defined]
    grid = np.linspace(low, high, 20_001)[:, None]
    assert np.exp(space.believed.log_density(grid)[0]).mean() == pytest.approx(1.0, rel=1e-3)


def test_choices_of_a_belief_are_as_likely_as_its_weights(rng: np.random.Generator) -> None:
    """Those without a weight have 1."""
    space = Space({"c": [*"abcd"]}, beliefs={"c": Belief(weights={"a": 5, "d": 0.5})})
    weights = {"a": 5.0, "b": 1.0, "c": 1.0, "d": 0.5}
    share = {each: (1 - DOUBT) * weight / 7.5 + DOUBT / 4 for each, weight in weights.items()}
    assert space.believed is not None
    points = space.points.from_uniform(space.believed.as_uniform(rng.random((DRAWN, space.points.draws))))
    check_counts([params["c"] for params in space.points.decode_all(points)], share)


def test_features_and_canonical_forms_change_no_draw(rng: np.random.Generator) -> None:
    def known(params: dict[str, Any]) -> list[float]:
        return [float(params["n"])]

    space = Space({"n": (1, 50, "log"), "c": ["a", "b"]}, features=known, canonical=lambda params: params["n"])
    found = space.points.decode_all(space.points.sample(rng, DRAWN))
    check_counts([params["n"] for params in found], logarithmic(1, 50))
    check_counts([params["c"] for params in found], even("ab"))


# ----------------------------------------------------------------------- laws

NUMBERS = st.one_of(
    st.builds(lambda low, width: IntDistribution(low, low + width), st.integers(-50, 50), st.integers(1, 300)),
    st.builds(
        lambda low, width: IntDistribution(low, low + width, log=True), st.integers(1, 5000), st.integers(1, 300)
    ),
    st.builds(lambda n, k: IntDistribution(0, n * k, step=k), st.integers(1, 50), st.integers(1, 9)),
    st.builds(lambda n: FloatDistribution(0.0, n / 8, step=0.125), st.integers(1, 60)),
)


@given(NUMBERS)
def test_uniform_numbers_lead_to_levels_and_back_and_all_levels_are_listed_once(distribution: Any) -> None:
    axis, step = NumberAxis(distribution), distribution.step
    listed = axis.listed()
    count = round((distribution.high - distribution.low) / step) + 1
    assert [axis.decode(x) for x in listed] == [distribution.low + i * step for i in range(count)]
    np.testing.assert_array_equal(axis.from_uniform(axis.uniform(listed)), listed)
    ends = axis.from_uniform(np.array([[0.0], [np.nextafter(1.0, 0.0)]]))
    np.testing.assert_array_equal(ends, listed[[0, -1]])


@pytest.mark.parametrize("parameter", [(1, 5000, "log"), (1, 2, "log"), (1, 5000)])
def test_a_small_space_is_listed_exactly(parameter: Any) -> None:
    space = Space({"p": parameter})
    found = [params["p"] for params in map(space.points.decode, space.points.listed())]
    assert found == list(range(parameter[0], parameter[1] + 1))
    assert space.size == len(found)
