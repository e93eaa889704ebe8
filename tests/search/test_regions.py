"""Regions: local models beyond what one factor serves."""

import gc
import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from optuna.distributions import FloatDistribution

from lazybo import Condition, Optimizer, Space
from lazybo.gp import Process
from lazybo.search.options import LocalModels

NUMBERS = {f"x{j}": (-5.0, 5.0) for j in range(4)}
MIXED = {
    "rate": (1e-5, 1.0, "log"),
    "layers": (1, 9),
    "kind": ["a", "b", "c"],
    "width": (0.0, 1.0),
    "step": FloatDistribution(0.0, 2.0, step=0.25),
}
CONDITIONS = {"width": Condition("kind", ("a", "b"))}


# Small rounds, so that many of them fit into a test.
SMALL = LocalModels(neighbours=20, round=12, best_of_all=15, spread_over_all=15)


def local(after: int | str | None, **sizes: Any) -> LocalModels:
    """Small local models after this many results."""
    return replace(SMALL, after=after, **sizes)


def sphere(params: dict[str, Any]) -> float:
    return sum((float(value) - 1.0) ** 2 for value in params.values())


def mixed(params: dict[str, Any]) -> float:
    gap = math.log10(params["rate"]) + 2.0
    return gap**2 + (params["layers"] - 4) ** 2 + params.get("width", 2.0) + 2.0 * (params["kind"] == "c")


def run(optimizer: Optimizer, objective: Callable[[dict[str, Any]], Any], n: int) -> list[dict[str, Any]]:
    asked = []
    for _ in range(n):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, objective(suggestion.params))
        asked.append(suggestion.params)
    return asked


def regions(optimizer: Optimizer) -> list[dict[str, Any]]:
    """The regions as the state has them; empty before local models take over."""
    return optimizer.state()["model"].get("regions", [])


def processes() -> list[Process]:
    """All processes in memory."""
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Process)]


def observe_many(optimizer: Optimizer, n: int, low: float = -5.0, high: float = 5.0, noise: float = 0.0) -> None:
    rng = np.random.default_rng(0)
    for _ in range(n):
        params = {name: float(value) for name, value in zip(NUMBERS, rng.uniform(low, high, 4), strict=True)}
        optimizer.observe(params, sphere(params) + noise * rng.normal())


def test_the_models_of_regions_have_a_bounded_number_of_rows() -> None:
    others = processes()
    optimizer = Optimizer(NUMBERS, seed=0, local_after=local(30))
    run(optimizer, sphere, 60)
    rows = [process.n for process in processes() if process not in others]
    assert len(rows) == len(regions(optimizer)) == 3, "the memory of the model of all was given back"
    assert max(rows) <= SMALL.neighbours + SMALL.round + 1
    assert optimizer.planner.records.n_complete == 60


def test_before_the_limit_and_without_one_nothing_changes() -> None:
    runs = [run(Optimizer(NUMBERS, seed=1, local_after=local(after)), sphere, 30) for after in (30, None, 10_000)]
    assert runs[0] == runs[1] == runs[2]


def test_regions_come_near_to_the_optimum_from_random_points() -> None:
    optimizer = Optimizer(NUMBERS, seed=0, local_after=local(25))
    observe_many(optimizer, 25)
    assert optimizer.best.value > 5.0
    run(optimizer, sphere, 80)
    assert optimizer.best.value < 0.01, "1e-6 to 1e-4 with six seeds on three core types; 80 more random points leave 3"


def test_a_kernel_that_is_never_learned_has_no_local_models() -> None:
    optimizer = Optimizer(NUMBERS, seed=0, local_after=local(10), lag=None)
    run(optimizer, sphere, 20)
    assert not regions(optimizer)


@pytest.mark.parametrize("space", [NUMBERS, MIXED])
def test_a_restored_optimiser_continues_to_the_last_bit(space: dict[str, Any]) -> None:
    conditions = CONDITIONS if space is MIXED else None
    objective = mixed if space is MIXED else sphere

    def make() -> Optimizer:
        return Optimizer(Space(space, conditions=conditions), seed=3, local_after=local(30))

    first = make()
    run(first, objective, 45)
    second = make()
    second.restore(json.loads(json.dumps(first.state())))
    assert run(second, objective, 10) == run(first, objective, 10)


def restored(optimizer: Optimizer, **options: Any) -> Optimizer:
    found = Optimizer(optimizer.space.distributions, **{"seed": 3, **options})
    found.restore(json.loads(json.dumps(optimizer.state())))
    return found


def test_states_of_earlier_versions_do_not_say_what_was_pending() -> None:
    optimizer = Optimizer(NUMBERS, seed=3, local_after=local(20))
    waiting = optimizer.ask(3)
    run(optimizer, sphere, 24)
    state = optimizer.state()
    assert [region.pop("waiting") for region in state["model"]["regions"]] == [[0, 1, 2]] * 3
    old = Optimizer(NUMBERS, seed=3, local_after=local(20))
    old.restore(state)
    assert old.planner.propose(99) == optimizer.planner.propose(99), "as long as they are still pending"
    old.forget(waiting[0])
    assert run(old, sphere, 5)


@pytest.mark.parametrize("waiting", [[-1], ["a"], 3, [0.5]])
def test_a_state_with_wrong_rows_is_refused(waiting: Any) -> None:
    optimizer = Optimizer(NUMBERS, seed=3, local_after=local(20))
    run(optimizer, sphere, 22)
    state = optimizer.state()
    state["model"]["regions"][0]["waiting"] = waiting
    with pytest.raises(ValueError, match="cannot be read"):
        Optimizer(NUMBERS, seed=3, local_after=local(20)).restore(state)


@pytest.mark.parametrize(("noise", "count"), [(0.0, 1), (20.0, 1), (20.0, 4)])
def test_what_is_proposed_is_asked_next(noise: float, count: int) -> None:
    rng = np.random.default_rng(0)
    optimizer = Optimizer(NUMBERS, seed=0, local_after=local(20))
    for number in range(0, 60, count):
        proposed = [optimizer.planner.propose(number, count) for _ in range(2)]
        asked = optimizer.ask(count)
        assert proposed == [[suggestion.params for suggestion in asked]] * 2
        for suggestion in asked:
            optimizer.tell(suggestion, sphere(suggestion.params) + noise * rng.normal())


def test_a_finite_space_is_evaluated_without_repeats() -> None:
    optimizer = Optimizer({"a": (1, 8), "b": (1, 8)}, seed=0, local_after=local(20))
    asked = run(optimizer, sphere, 64)
    assert len({tuple(params.values()) for params in asked}) == 64


def test_known_constraints_hold_in_regions() -> None:
    optimizer = Optimizer(
        Space(NUMBERS, feasible=lambda params: params["x0"] + params["x1"] <= 0.5), seed=0, local_after=local(20)
    )
    asked = run(optimizer, sphere, 50)
    assert all(params["x0"] + params["x1"] <= 0.5 for params in asked)


def test_several_objectives_constraints_failures_and_costs() -> None:
    optimizer = Optimizer(NUMBERS, direction=["minimize", "minimize"], seed=0, local_after=local(20), cost="seconds")
    for n in range(40):
        suggestion = optimizer.ask()
        x = list(suggestion.params.values())
        values = None if n % 11 == 10 else [sum(v**2 for v in x), sum((v - 2.0) ** 2 for v in x)]
        optimizer.tell(suggestion, values, constraints={"c": x[0] - 1.5}, seconds=1.0 + abs(x[1]))
    assert len(optimizer.front) > 5
    assert all(best.constraints["c"] <= 0 for best in optimizer.front)
    assert len(optimizer.model.predict_all(optimizer.front[0].params)) == 2


def test_pending_and_forgotten_suggestions() -> None:
    optimizer = Optimizer(NUMBERS, seed=0, local_after=local(20))
    run(optimizer, sphere, 30)
    waiting = optimizer.ask(9)
    assert len({tuple(each.params.values()) for each in waiting}) == 9
    for suggestion in waiting[::2]:
        optimizer.forget(suggestion)
    for suggestion in reversed(waiting[1::2]):
        optimizer.tell(suggestion, sphere(suggestion.params))
    run(optimizer, sphere, 30)
    assert optimizer.planner.records.n_complete == len(optimizer.planner.records) == 64
    copy = restored(optimizer, local_after=local(20), seed=0)
    assert copy.ask(4) == optimizer.ask(4), "what a region has does not depend on the order of results"


def test_what_the_model_says_is_asked_of_a_bounded_model() -> None:
    optimizer = Optimizer(NUMBERS, seed=0, local_after=local(20))
    run(optimizer, sphere, 60)
    process, _ = optimizer.model.surrogate()
    assert process.n == SMALL.best_of_all + SMALL.spread_over_all
    assert optimizer.recommend().number == optimizer.best.number
    found = optimizer.predict(optimizer.best.params)
    assert found.low <= optimizer.best.value <= found.high or abs(found.value - optimizer.best.value) < 0.1
    assert optimizer.model.expected_gain() >= 0
    assert optimizer.model.maxima()


def test_a_region_that_finds_nothing_shrinks_and_is_replaced() -> None:
    options = {"seed": 0, "local_after": local(20, least_side=0.15)}
    optimizer = Optimizer({"x": (0.0, 1.0), "y": (0.0, 1.0)}, **options)
    sides: list[list[float]] = []
    for _ in range(90):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, 1.0 + 1e-9 * suggestion.number)
        sides.append([region["side"] for region in regions(optimizer)])
    steps = {(a, b) for before, after in pairwise(sides[20:]) for a, b in zip(before, after, strict=True) if a != b}
    assert steps == {(0.4, 0.2), (0.2, 0.4)}, "half the side, and then a new region"


def test_an_exhausted_space_is_repeated_where_it_is_good() -> None:
    optimizer, rng = Optimizer({"a": (1, 4), "b": (1, 4)}, seed=0, local_after=local(40)), np.random.default_rng(0)
    asked = run(optimizer, lambda params: sphere(params) + rng.normal(), 80)
    assert np.mean([sphere(params) for params in asked[60:]]) < 2.0, "a random point has 7"


def test_results_at_configurations_that_are_not_feasible_are_no_centers() -> None:
    optimizer = Optimizer(Space(NUMBERS, feasible=lambda params: params["x0"] <= -4.0), seed=0, local_after=local(20))
    for j in range(25):
        optimizer.observe({"x0": 4.0, "x1": j / 10, "x2": 0.0, "x3": 0.0}, float(j))
    assert all(params["x0"] <= -4.0 for params in run(optimizer, sphere, 20))


def test_a_model_of_fewer_rows_is_restored() -> None:
    first, second = (Optimizer(NUMBERS, seed=0, local_after=local(20)) for _ in range(2))
    run(first, sphere, 40)
    run(second, sphere, 15)
    second.planner.restore(first.planner.state())
    assert run(second, sphere, 5)


def test_revised_values_and_forecasts_count() -> None:
    optimizer = Optimizer(NUMBERS, seed=0, local_after=local(20))
    run(optimizer, sphere, 40)
    waiting = optimizer.ask()
    numbers = range(41, 45)  # the turns of all regions
    before = [optimizer.planner.propose(number) for number in numbers]
    optimizer.forecast(waiting, -30.0, 0.01)
    after = [optimizer.planner.propose(number) for number in numbers]
    assert before != after, "a forecast after the row has entered a region"
    copy = restored(optimizer, local_after=local(20), seed=0)
    assert after == [copy.planner.propose(number) for number in numbers]
    optimizer.tell(waiting, sphere(waiting.params))
    optimizer.planner.revise({3: (-100.0, 0.0)})
    assert optimizer.recommend().number == 3


def test_what_is_observed_first_is_not_put_into_one_model() -> None:
    optimizer = Optimizer(NUMBERS, seed=0, local_after=local(20))
    observe_many(optimizer, 60)
    assert optimizer.model.surrogate()[0].n == SMALL.best_of_all + SMALL.spread_over_all


@pytest.mark.parametrize("noise", [0.0, 20.0])
def test_local_models_take_over_early_only_without_noise(noise: float) -> None:
    optimizer = Optimizer(NUMBERS, seed=0, local_after=local("auto", early_after=60))
    rng = np.random.default_rng(0)
    observe_many(optimizer, 100, noise=noise)
    run(optimizer, lambda params: sphere(params) + noise * rng.normal(), 3)
    assert bool(regions(optimizer)) == (noise == 0.0)
