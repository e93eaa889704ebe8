import copy
import itertools
import json
import math
import pickle
import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from lazybo import Condition, Matern52, Priors, Space
from lazybo.gp import Column, Kernel
from lazybo.search.optimizer import Optimizer, Suggestion

PLANE = {"x": FloatDistribution(-5.0, 5.0), "y": FloatDistribution(-5.0, 5.0)}
MIXED = {
    "lr": FloatDistribution(1e-5, 1.0, log=True),
    "layers": IntDistribution(1, 5),
    "opt": CategoricalDistribution(["sgd", "adam", None]),
    "fixed": IntDistribution(7, 7),
}
SMALL = {"a": IntDistribution(0, 3), "b": CategoricalDistribution(["p", "q", "r"])}


def bowl(params: dict) -> float:
    return (params["x"] - 1.0) ** 2 + (params["y"] + 2.0) ** 2


def mixed(params: dict) -> float:
    return math.log10(params["lr"] / 1e-3) ** 2 + abs(params["layers"] - 3) + (params["opt"] != "adam")


def run(optimizer: Optimizer, objective, steps: int) -> list[dict]:
    asked = []
    for _ in range(steps):
        suggestion = optimizer.ask()
        asked.append(suggestion.params)
        optimizer.tell(suggestion, objective(suggestion.params))
    return asked


def close(left: list[dict], right: list[dict], tolerance: float = 1e-6) -> bool:
    def same(a: object, b: object) -> bool:
        return abs(a - b) <= tolerance if isinstance(a, float) and isinstance(b, float) else a == b

    return all(a.keys() == b.keys() and all(same(a[k], b[k]) for k in a) for a, b in zip(left, right, strict=True))


# ----------------------------------------------------------------- it works


def test_it_finds_the_bottom_of_a_bowl() -> None:
    optimizer = Optimizer(PLANE, seed=1)
    run(optimizer, bowl, 30)
    assert optimizer.best.value < 1e-2
    assert optimizer.best.params == pytest.approx({"x": 1.0, "y": -2.0}, abs=0.2)


def test_a_kernel_is_chosen_by_name_or_given() -> None:
    by_name, given = Optimizer(PLANE, seed=1, kernel="additive"), Kernel.chosen("additive", (Column(), Column()))
    run(by_name, bowl, 12)
    learned = by_name.model.surrogate()[0].kernel
    assert learned.name == given.name == "additive"
    assert learned.share != pytest.approx(Priors().share, rel=1e-3), "the share is learned too"
    fixed = Optimizer(PLANE, seed=1, kernel=given, lag=None)
    run(fixed, bowl, 7)
    assert fixed.model.surrogate()[0].kernel is given
    with pytest.raises(ValueError, match="columns of the space"):
        Optimizer(SMALL, kernel=given)
    with pytest.raises(ValueError, match=r"the kernel 'additive', not 'matern52'; give kernel='additive'"):
        Optimizer(PLANE, kernel="matern52").restore(by_name.state())


def test_a_space_of_constants_has_no_model_and_no_maxima() -> None:
    optimizer = Optimizer({"x": [1], "y": (2, 2)})
    for _ in range(3):
        optimizer.tell(optimizer.ask(), 1.0)
    assert optimizer.ask().params == {"x": 1, "y": 2}
    assert optimizer.model.maxima() == []
    with pytest.raises(ValueError, match="no parameter of this space can vary"):
        optimizer.model.surrogate()


def test_a_space_of_constants_may_have_features() -> None:
    space = Space({"x": [1], "y": (2, 2)}, features=lambda params: [params["y"]])
    optimizer = Optimizer(space, seed=0, n_startup=0)
    optimizer.observe({"x": 1, "y": 2}, 1.0)
    assert optimizer.ask().params == {"x": 1, "y": 2}


def test_it_finds_the_best_of_a_mixed_space() -> None:
    optimizer = Optimizer(MIXED, seed=0)
    asked = run(optimizer, mixed, 40)
    assert optimizer.best.value < 0.02
    assert optimizer.best.params["fixed"] == 7
    assert all(set(params) == set(MIXED) for params in asked)


def test_a_conditional_space() -> None:
    space = {
        "model": CategoricalDistribution(["svm", "forest"]),
        "C": FloatDistribution(1e-3, 1e3, log=True),
        "trees": IntDistribution(10, 500),
    }
    conditions = {"C": Condition("model", ("svm",)), "trees": Condition("model", ("forest",))}
    optimizer = Optimizer(Space(space, conditions=conditions), seed=0)

    def objective(params: dict) -> float:
        assert ("C" in params) != ("trees" in params)
        return math.log10(params["C"]) ** 2 if "C" in params else 1.0 + abs(params["trees"] - 100) / 100

    run(optimizer, objective, 40)
    assert optimizer.best.params["model"] == "svm"
    assert optimizer.best.value < 0.05


@pytest.mark.parametrize(
    ("lag", "acquisition"),
    [(1, "logei"), (3, "ei"), (None, "pi"), (None, "ucb"), ("auto", "ei"), ("auto", "pi"), ("auto", "ucb")],
)
def test_every_lag_and_acquisition_makes_progress(lag: object, acquisition: str) -> None:
    optimizer = Optimizer(PLANE, seed=3, lag=lag, acquisition=acquisition)  # type: ignore[arg-type]
    run(optimizer, bowl, 25)
    assert optimizer.best.value < 2.0


# ---------------------------------------------------------------------- laws


def test_the_same_seed_gives_the_same_run_in_a_new_process_too() -> None:
    program = (
        "from lazybo.search.optimizer import Optimizer; from optuna.distributions import FloatDistribution as F\n"
        "o = Optimizer({'x': F(-5.0, 5.0), 'y': F(-5.0, 5.0)}, seed=5)\n"
        "for _ in range(10):\n"
        "    s = o.ask(); o.tell(s, (s.params['x'] - 1.0) ** 2 + (s.params['y'] + 2.0) ** 2)\n"
        "print(o.ask().params)"
    )
    there = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    optimizer = Optimizer(PLANE, seed=5)
    run(optimizer, bowl, 10)
    assert there == f"{optimizer.ask().params}\n"
    assert run(Optimizer(PLANE, seed=6), bowl, 3) != run(Optimizer(PLANE, seed=5), bowl, 3)


def test_the_state_of_another_kernel_is_refused() -> None:
    original = Optimizer(PLANE, seed=2)
    run(original, bowl, 8)
    with pytest.raises(ValueError, match="kernel 'additive', not 'matern52'"):
        Optimizer(PLANE, kernel="matern52").restore(original.state())


@cache
def suggested_after(order: tuple[int, ...]) -> dict:
    """The suggestion after a batch whose results came in this order."""
    optimizer = Optimizer(PLANE, seed=4)
    run(optimizer, bowl, 8)
    batch = optimizer.ask(8)
    for i in order:
        optimizer.tell(batch[i].number, bowl(batch[i].params))
    return optimizer.ask().params


@settings(max_examples=5)
@given(st.permutations(range(8)))
def test_the_order_of_results_does_not_matter(order: list[int]) -> None:
    assert close([suggested_after(tuple(order))], [suggested_after(tuple(range(8)))])


@pytest.mark.parametrize(("factor", "shift"), [(1e-9, 0.0), (1e9, 5e9), (1.0, -1e4)])
def test_units_of_the_value_do_not_change_the_run(factor: float, shift: float) -> None:
    plain = run(Optimizer(PLANE, seed=7), bowl, 12)
    scaled = run(Optimizer(PLANE, seed=7), lambda params: factor * bowl(params) + shift, 12)
    assert close(plain, scaled, 1e-2)


def test_maximising_is_minimising_the_negative() -> None:
    low = Optimizer(PLANE, seed=8)
    high = Optimizer(PLANE, seed=8, direction="maximize")
    assert run(low, bowl, 15) == run(high, lambda params: -bowl(params), 15)
    assert high.best.value == -low.best.value
    assert high.best.number == low.best.number


def test_results_from_elsewhere_count_as_ones_own() -> None:
    told, given_ = Optimizer(PLANE, seed=9), Optimizer(PLANE, seed=9)
    asked = run(told, bowl, 12)
    for params in asked:
        given_.observe(params, bowl(params))
    assert given_.best.number is None
    assert given_.best.value == told.best.value
    assert close(given_.planner.propose(12), told.planner.propose(12), 0.05)
    assert told.ask().params == told.pending[0].params


# ----------------------------------------------------- pending, batches, repeats


@pytest.mark.parametrize("batch", ["fantasy", "maxima"])
def test_a_batch_has_no_near_duplicates(batch: str) -> None:
    optimizer = Optimizer(PLANE, seed=1, batch=batch)  # type: ignore[arg-type]
    run(optimizer, bowl, 12)
    suggestions = optimizer.ask(10)
    points = np.array([[s.params["x"], s.params["y"]] for s in suggestions])
    distance = np.linalg.norm(points[:, None] - points[None], axis=2) + 10 * np.eye(10)
    assert distance.min() > 1e-2
    assert optimizer.pending == suggestions
    assert len({s.number for s in suggestions}) == 10


@pytest.mark.parametrize("count", [4, 12])
def test_a_batch_is_made_of_fantasies_unless_maxima_are_asked_for(count: int) -> None:
    batches = []
    for batch in ("auto", "fantasy", "maxima"):
        optimizer = Optimizer(PLANE, seed=1, batch=batch)  # type: ignore[arg-type]
        run(optimizer, bowl, 12)
        batches.append(optimizer.ask(count))
    assert batches[0] == batches[1] != batches[2]


def test_a_pending_suggestion_costs_no_factorisation_when_told() -> None:
    optimizer = Optimizer(PLANE, seed=1, lag=None)
    run(optimizer, bowl, 20)
    for suggestion in optimizer.ask(5):
        optimizer.tell(suggestion, bowl(suggestion.params))
    optimizer.ask()
    process, _ = optimizer.model.surrogate()
    assert process.rebuilds == 0
    assert process.n == 26


def test_an_evaluation_announced_from_elsewhere_is_pending() -> None:
    asked, told = Optimizer(PLANE, seed=1), Optimizer(PLANE, seed=1)
    for optimizer in (asked, told):
        run(optimizer, bowl, 12)
    suggestion = asked.ask()
    assert told.planner.propose(suggestion.number) == [suggestion.params]
    announced = told.announce(suggestion.params)
    assert announced == suggestion
    assert told.ask() == asked.ask()


def test_results_outside_a_range_that_was_narrowed_are_believed() -> None:
    optimizer = Optimizer({"x": FloatDistribution(0.0, 1.0), "n": IntDistribution(1, 8, log=True)}, seed=0)
    for x in np.linspace(-1, 2, 13):
        optimizer.observe({"x": float(x), "n": 16}, (x - 1.5) ** 2, outside=True)
    for params in run(optimizer, lambda params: (params["x"] - 1.5) ** 2, 10):
        assert 0 <= params["x"] <= 1
        assert 1 <= params["n"] <= 8
    assert optimizer.best.params["x"] == 1.5
    for wrong in ({"x": 0.5, "n": 0}, {"x": 0.5, "n": "many"}, {"x": np.inf, "n": 1}):
        with pytest.raises(ValueError, match="must be "):
            optimizer.observe(wrong, 1.0, outside=True)


def test_a_forgotten_suggestion_may_come_again() -> None:
    optimizer = Optimizer(PLANE, seed=1)
    run(optimizer, bowl, 12)
    before = optimizer.planner.propose(99)[0]
    first, second = optimizer.ask(2)
    optimizer.forget(first)
    assert optimizer.pending == [second]
    optimizer.forget(second)
    assert close([optimizer.planner.propose(99)[0]], [before])
    optimizer.tell(optimizer.announce(second.params), 3.0)
    optimizer.ask()
    assert optimizer.model.surrogate()[0].n == 14
    with pytest.raises(ValueError, match="no suggestion has the number"):
        optimizer.tell(first, 1.0)


@pytest.mark.parametrize("batch", ["fantasy", "maxima"])
def test_a_finite_space_is_evaluated_whole_before_anything_is_repeated(batch: str) -> None:
    optimizer = Optimizer(SMALL, seed=0, batch=batch)  # type: ignore[arg-type]
    asked = []
    for _ in range(6):
        for suggestion in optimizer.ask(2):
            asked.append(tuple(suggestion.params.items()))
            optimizer.tell(suggestion, suggestion.params["a"] + (suggestion.params["b"] == "q"))
    assert len(set(asked)) == 12
    again = run(optimizer, lambda params: params["a"] + (params["b"] == "q"), 3)
    assert len(again) == 3


def test_where_everything_is_next_to_a_pending_point_something_is_suggested_all_the_same() -> None:
    optimizer = Optimizer(PLANE, seed=0, kernel=Matern52([500.0, 500.0]), lag=None)
    assert len({tuple(suggestion.params.values()) for suggestion in optimizer.ask(4)}) == 4


def test_a_space_of_one_configuration() -> None:
    optimizer = Optimizer({"only": IntDistribution(3, 3), "same": CategoricalDistribution(["x"])})
    assert run(optimizer, lambda _: 1.0, 3) == [{"only": 3, "same": "x"}] * 3
    assert optimizer.best.value == 1.0


# ------------------------------------------------------------- failures, outliers


def test_failures_of_all_kinds_are_avoided_and_never_the_best() -> None:
    kinds = itertools.cycle([None, math.nan, math.inf, -math.inf])

    def crashes(params: dict) -> float | None:
        return next(kinds) if params["x"] > 0 else (params["x"] + 1) ** 2 + params["y"] ** 2

    optimizer = Optimizer(PLANE, seed=2, direction="minimize")
    asked = run(optimizer, crashes, 50)
    assert optimizer.best.params["x"] <= 0
    assert sum(params["x"] > 0 for params in asked[25:]) <= 8
    assert optimizer.best.value < 0.05


def test_points_go_on_filling_the_space_while_no_value_is_known() -> None:
    """As many workers ask before the first of them is done: no gap between their points, as random ones have."""
    optimizer = Optimizer(PLANE, seed=2, n_startup=5)
    points = np.array([optimizer.space.points.encode(optimizer.ask().params) for _ in range(64)])
    cells = {tuple(cell) for cell in np.floor(points * 8).astype(int)}
    assert len(cells) == 64


def test_diverged_values_do_no_harm() -> None:
    def diverges(params: dict) -> float:
        return 1e30 if params["x"] > 3 else bowl(params)

    optimizer = Optimizer(PLANE, seed=3)
    run(optimizer, diverges, 35)
    assert optimizer.best.value < 0.1


def test_a_known_variance_is_believed() -> None:
    values = []
    for variance in (0.0, 1e4):
        optimizer = Optimizer({"x": FloatDistribution(0.0, 1.0)}, seed=0, n_startup=0)
        for x in np.linspace(0, 1, 9):
            optimizer.observe({"x": float(x)}, float(x))
        optimizer.observe({"x": 0.55}, -5.0, variance=variance)
        first = optimizer.ask()
        optimizer.tell(first, first.params["x"], variance=0.01)
        values.append(optimizer.ask().params["x"])
    assert abs(values[0] - 0.55) < 0.2
    assert values[1] < 0.2


# --------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"space": {}}, "empty"),
        ({"direction": "up"}, "direction must be one of"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Optimizer(**{"space": PLANE, **arguments})


@pytest.mark.parametrize("n", [0, -1, 2.5, "3", True])
def test_a_wrong_number_of_suggestions_is_refused(n: object) -> None:
    optimizer = Optimizer(PLANE, seed=0)
    with pytest.raises(ValueError, match="n must be a whole number"):
        optimizer.ask(n)  # type: ignore[call-overload]
    assert optimizer.pending == []


def test_wrong_calls_change_nothing() -> None:
    optimizer = Optimizer(MIXED, seed=0)
    suggestion = optimizer.ask()
    before = optimizer.state()
    wrong = [
        (lambda: optimizer.tell(99, 1.0), "no suggestion has the number"),
        (lambda: optimizer.tell("0", 1.0), "no suggestion has the number"),
        (lambda: optimizer.tell(suggestion.params, 1.0), r"not the parameters \{'lr'.*; use observe\(\)"),
        (lambda: optimizer.tell(suggestion, "good"), "must be a number"),
        (lambda: optimizer.tell(suggestion, 1.0, variance=-1.0), "variance .*, not -1.0"),
        (lambda: optimizer.observe({"lr": 0.1}, 1.0), "missing"),
        (lambda: optimizer.observe({**suggestion.params, "zz": 1}, 1.0), "unknown parameter 'zz'"),
        (
            lambda: optimizer.observe({**suggestion.params, "layers": 9}, 1.0),
            "layers must be a whole number from .*, not 9",
        ),
        (lambda: optimizer.forget(5), "no suggestion has the number"),
        (lambda: optimizer.restore(before), "needs a new optimiser"),
    ]
    for call, message in wrong:
        with pytest.raises(ValueError, match=message):
            call()
        assert optimizer.state() == before
    optimizer.tell(suggestion, 1.0)
    with pytest.raises(ValueError, match="told already"):
        optimizer.tell(suggestion, 2.0)
    assert optimizer.best.value == 1.0


def test_what_is_handed_out_is_not_what_is_kept() -> None:
    optimizer = Optimizer(PLANE, seed=0)
    suggestion = optimizer.ask()
    suggestion.params["x"] = 99.0
    optimizer.tell(Suggestion(suggestion.number, {}), 1.0)
    assert optimizer.best.params["x"] != 99.0


def somewhere(optimizer: Optimizer, seed: int) -> dict[str, Any]:
    return optimizer.space.points.decode(optimizer.space.points.sample(np.random.default_rng(seed), 1)[0])


# ------------------------------------------------------------------ extremes


@settings(max_examples=6)
@given(exponent=st.integers(-960, 1014), direction=st.sampled_from(["minimize", "maximize"]))
def test_a_power_of_two_as_a_unit_changes_no_suggestion(exponent: int, direction: Any) -> None:
    runs = []
    for power in (0, exponent):
        optimizer = Optimizer(PLANE, seed=3, direction=direction)
        for _ in range(9):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, math.ldexp(bowl(suggestion.params), power))
        runs.append(optimizer.ask().params)
    assert runs[0] == runs[1]


@settings(max_examples=8)
@given(
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=6, max_size=10),
    variance=st.sampled_from([0.0, 5e-324, 1e-300, 1.0, 1.7e308]),
    targets=st.sampled_from(["warped", "scaled", "centred"]),
)
def test_no_finite_value_stops_the_optimiser(values: list[float], variance: float, targets: Any) -> None:
    optimizer = Optimizer(PLANE, seed=0, n_startup=2, value_transform=targets, direction="maximize")
    for value in values:
        optimizer.tell(optimizer.ask(), value, variance=variance)
    gp, warping = optimizer.model.surrogate()
    assert np.isfinite(warping.inverse(gp.posterior(gp.X).mean)).all()
    assert optimizer.space.check(optimizer.ask().params) is None


@pytest.mark.parametrize("factor", [1.0, 1e-200, 1.7e308])
def test_a_needle_that_underflows_is_searched_for(factor: float) -> None:
    optimizer = Optimizer(PLANE, seed=1, direction="maximize")
    run(optimizer, lambda params: factor * math.exp(-5000 * bowl(params) / 100), 14)
    assert optimizer.best.value >= 0


@pytest.mark.parametrize(
    "distribution",
    [
        FloatDistribution(-1e308, 1e308),
        FloatDistribution(1e-300, 1e300, log=True),
        FloatDistribution(-1e6, 1e6, step=1e-6),
        FloatDistribution(0.0, 1e-320),
        IntDistribution(0, 2**60 - 1),
    ],
    ids=str,
)
def test_every_range_is_searched(distribution: Any) -> None:
    optimizer = Optimizer({"p": distribution, "x": FloatDistribution(0.0, 1.0)}, seed=0, n_startup=3)
    for params in run(optimizer, lambda params: optimizer.space.points.encode(params)[0] ** 2 + params["x"], 8):
        assert optimizer.space.allows("p", params["p"])


MAGNITUDES = (5e-324, 1e-310, 1e-200, 1e-10, 1.0, 1e10, 1e100, 1e200, 1e308, sys.float_info.max)
POSITIVE = st.sampled_from(MAGNITUDES) | st.floats(5e-324, sys.float_info.max)
NUMBERS = st.builds(math.copysign, st.just(0.0) | POSITIVE, st.sampled_from([-1.0, 1.0]))


@st.composite
def extreme_ranges(draw: st.DrawFn) -> tuple[Any, ...]:
    kind = draw(st.sampled_from(["float", "log", "whole"]))
    low, high = sorted(draw(st.tuples(POSITIVE, POSITIVE) if kind == "log" else st.tuples(NUMBERS, NUMBERS)))
    return (low, high, "log") if kind == "log" else (int(low), int(high)) if kind == "whole" else (low, high)


# -------------------------------------------------------------- more bad input


def test_a_forgotten_duplicate_leaves_the_observed_point_taken() -> None:
    space = {"a": IntDistribution(0, 1)}
    optimizer = Optimizer(space, seed=0, n_startup=0)
    optimizer.observe({"a": 0}, 1.0)
    optimizer.forget(optimizer.announce({"a": 0}))
    assert [optimizer.planner.propose(number)[0] for number in range(6)] == [{"a": 1}] * 6


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda optimizer: pickle.loads(pickle.dumps(optimizer))])
def test_a_copy_goes_on_as_the_original_to_the_last_bit(copied: Any) -> None:
    for seed in range(2):
        optimizer = Optimizer(PLANE, seed=seed)
        run(optimizer, bowl, 8)
        for _ in range(3):
            optimizer.ask()
            assert copied(optimizer).ask() == copied(copied(optimizer)).ask() == optimizer.ask()


@pytest.mark.parametrize("batch", ["fantasy", "maxima"])
def test_a_batch_that_begins_with_startup_points_is_as_proposed(batch: Any) -> None:
    one, other = (Optimizer(PLANE, seed=1, lag=3, n_startup=70, batch=batch) for _ in range(2))
    for optimizer in (one, other):
        for i in range(66):
            params = somewhere(optimizer, i)
            optimizer.observe(params, bowl(params))
    before = one.state()
    proposed = one.planner.propose(0, 8)
    assert one.state() == before
    assert proposed == [suggestion.params for suggestion in one.ask(8)]
    assert other.ask(8) == one.pending
    assert other.state() == one.state()


def test_numpy_scalars_become_plain_data() -> None:
    optimizer = Optimizer(MIXED, seed=0)
    params = {"lr": np.float32(0.5), "layers": np.int64(2), "opt": np.str_("sgd"), "fixed": np.int32(7)}
    optimizer.observe(params, np.float32(1.5), variance=np.float64(0.5))
    suggestion = optimizer.announce(params)
    optimizer.tell(np.int64(suggestion.number), np.int64(2))  # type: ignore[arg-type]
    saved = json.loads(json.dumps(optimizer.state()))
    restored = Optimizer(MIXED)
    restored.restore(saved)
    assert restored.state() == optimizer.state()


@pytest.mark.parametrize("value", [10**400, -(10**400), np.float64(np.inf)])
def test_a_value_too_large_for_a_double_is_a_failure(value: Any) -> None:
    optimizer = Optimizer(PLANE, seed=0)
    optimizer.tell(optimizer.ask(), value)
    with pytest.raises(ValueError, match="no evaluation has succeeded"):
        optimizer.best  # noqa: B018


STRANGE: list[Any] = [
    b"1", "1", "", None, True, math.nan, -math.inf, -1, 0, 1, 2.5, 10**400, -(10**400), 1j, object(), [], [1.0], {},
    {"a": 1}, np.array([1.0, 2.0]), np.float32(1.0), np.int64(3), np.array(2.0), Suggestion(0, {}), Suggestion("0", {}),
    Suggestion([], {}), {"x": "0.2", "y": 0.0}, {"x": 10**400, "y": 0.0}, {"x": 0.0}, {"x": 0.0, "y": True},
]  # fmt: skip
CALLS: list[Any] = [
    lambda o, a, b: o.tell(a, b),
    lambda o, a, b: o.tell(0, a, variance=b),
    lambda o, a, b: o.observe(a, b),
    lambda o, a, b: o.observe({"x": 0.5, "y": 0.5}, a, variance=b),
    lambda o, a, b: o.observe({"x": a, "y": b}, 1.0),
    lambda o, a, b: o.observe({"x": a, "y": b}, 1.0, outside=True),
    lambda o, a, b: o.announce({"x": a, "y": b}),
    lambda o, a, _: o.announce(a),
    lambda o, a, _: o.forget(a),
    lambda o, a, _: o.planner.propose(a),
    lambda o, a, _: o.planner.restore(a),
    lambda o, a, _: o.restore(a),
]


@settings(max_examples=150)
@given(st.sampled_from(CALLS), st.sampled_from(STRANGE), st.sampled_from(STRANGE))
def test_a_call_works_or_says_why_not_and_then_changes_nothing(call: Any, first: Any, second: Any) -> None:
    optimizer = Optimizer(PLANE, seed=0, n_startup=1)
    optimizer.tell(optimizer.announce({"x": 0.0, "y": 0.0}), 1.0)
    optimizer.announce({"x": 1.0, "y": 1.0})
    before = optimizer.state()
    try:
        call(optimizer, first, second)
    except (ValueError, TypeError) as error:
        message = str(error)
        assert message
        assert optimizer.state() == before
    assert json.loads(json.dumps(optimizer.state())) == optimizer.state()


@pytest.mark.parametrize("change", [{"noise": None}, {"parameters": [1.0]}, {"warping": [1, 2]}, {"built_rows": -1}])
def test_a_state_that_cannot_be_read_is_refused_whole(change: dict[str, Any]) -> None:
    original = Optimizer(PLANE, seed=0)
    run(original, bowl, 7)
    saved = original.state()
    restored = Optimizer(PLANE, seed=9)
    before = restored.state()
    with pytest.raises(ValueError, match="this state cannot be read: this model's state cannot be read"):
        restored.restore({**saved, "model": {**saved["model"], **change}})
    with pytest.raises(ValueError, match="it must be a mapping, not 7"):
        restored.restore({**saved, "model": 7})
    assert restored.state() == before
    restored.restore(saved)


@pytest.mark.parametrize("feasible", [None, lambda params: params["a"] != 2])
@pytest.mark.parametrize("canonical", [None, lambda params: (params["a"], params.get("c"))])
@pytest.mark.parametrize("conditional", [True, False])
def test_a_small_space_with_features_is_searched_to_its_end(conditional: bool, feasible: Any, canonical: Any) -> None:
    """A point has the numbers of the features, too, wherever the space is listed."""
    conditions = {"c": Condition("b", ("p",))} if conditional else {}
    space = Space(
        {"a": [1, 2, 3], "b": ["p", "q"], "c": [0, 1, 2]},
        conditions=conditions,
        features=lambda params: [params["a"] ** 2, len(params)],
        canonical=canonical,
        feasible=feasible,
    )
    optimizer, seen = Optimizer(space, seed=0), []
    per_a = 4 if conditional else 3 if canonical else 6
    for _ in range(per_a * (3 if feasible is None else 2)):
        suggestion = optimizer.ask()
        seen.append(tuple(sorted(suggestion.params.items())))
        optimizer.tell(suggestion, float(suggestion.params["a"]))
    assert len({*seen}) == len(seen), "no configuration twice before all were tried"
