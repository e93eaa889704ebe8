"""Known constraints together with several objectives and measured constraints."""

from typing import Any

import numpy as np
import pytest

from lazybo import Space
from lazybo.search.acquisition import ACQUISITIONS
from lazybo.search.optimizer import Optimizer

SPACE = {"a": (0.0, 1.0), "b": (0.0, 1.0), "kind": ["p", "q"]}


def inside(params: dict[str, Any]) -> bool:
    return bool(params["a"] + params["b"] <= 0.6 and (params["kind"] == "p" or params["a"] <= 0.3))


def values(params: dict[str, Any], count: int) -> Any:
    a, b = params["a"], params["b"]
    return told([(a - 0.8) ** 2 + b, (b - 0.8) ** 2 + a, a - b, a * b][:count])


def told(each: list[float]) -> Any:
    """What `tell` takes: the value of one objective, or a list."""
    return each if len(each) > 1 else each[0]


def excess(params: dict[str, Any]) -> dict[str, float]:
    return {"memory": 0.2 - params["b"]}


@pytest.mark.parametrize("objectives", [1, 2, 4])
@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("batch", ["fantasy", "maxima"])
def test_only_feasible_configurations_are_suggested(objectives: int, measured: bool, batch: Any) -> None:
    optimizer = Optimizer(Space(SPACE, feasible=inside), direction=["minimize"] * objectives, batch=batch, seed=1)
    for _ in range(4):
        for suggestion in optimizer.ask(3):
            assert inside(suggestion.params)
            constraints = excess(suggestion.params) if measured else None
            optimizer.tell(suggestion, values(suggestion.params, objectives), constraints=constraints)
    assert all(inside(each.params) for each in optimizer.front)


@pytest.mark.parametrize("objectives", [1, 2])
def test_the_search_improves_on_what_satisfies_both_kinds_of_constraints(objectives: int) -> None:
    """A result outside the known constraint that dominates everything does not stop the search."""
    optimizer = Optimizer(Space(SPACE, feasible=inside), direction=["minimize"] * objectives, n_startup=4, seed=0)
    outside = {"a": 1.0, "b": 1.0, "kind": "q"}
    optimizer.observe(outside, told([-10.0] * objectives), constraints={"memory": -1.0})
    for _ in range(12):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, values(suggestion.params, objectives), constraints=excess(suggestion.params))
    _, rows = optimizer.model.search.models.surface(0, np.random.default_rng(0), ACQUISITIONS["logei"])
    assert len(rows)
    assert all(inside(optimizer.planner.records[int(row)].params) for row in rows)
    assert [each.params for each in optimizer.front] == [outside]  # it stays a fact
    if objectives == 1:
        assert inside(optimizer.recommend().params)
        assert optimizer.recommend().params["b"] >= 0.2


def test_while_nothing_measured_is_feasible_suggestions_satisfy_the_known_constraint() -> None:
    optimizer = Optimizer(Space(SPACE, feasible=inside), n_startup=3, seed=0)
    optimizer.observe({"a": 0.9, "b": 0.9, "kind": "q"}, 1.0, constraints={"memory": 0.1})
    asked = []
    for _ in range(12):
        suggestion = optimizer.ask()
        asked.append(suggestion.params)
        optimizer.tell(suggestion, 1.0, constraints={"memory": 1.0 + suggestion.params["a"]})
    assert all(map(inside, asked))
    assert min(params["a"] for params in asked) < 0.01  # the least violation that the known constraint allows


# ------------------------------------------------------- contenders and expected gain


def test_contenders_and_gains_count_feasible_evaluations_only() -> None:
    """The unconstrained optimum is known exactly, so that without the constraint there is nothing left to gain."""
    free, bounded = Optimizer(SPACE, seed=0), Optimizer(SPACE, seed=0)
    rng = np.random.default_rng(0)
    for a in np.linspace(0.0, 1.0, 9):
        params = {"a": float(a), "b": float(rng.random()), "kind": "p"}
        free.observe(params, (a - 1.0) ** 2)
        bounded.observe(params, (a - 1.0) ** 2, constraints={"memory": a - 0.6})
    assert {each.params["a"] for each in free.model.contenders()} == {1.0}
    assert all(each.params["a"] <= 0.6 for each in bounded.model.contenders())
    assert bounded.model.contenders()[0].params["a"] == 0.5
    repeat = bounded.planner.propose_repeat()
    assert repeat is None or repeat.params["a"] <= 0.6
    points, evaluated = bounded.model.search.prospects(0, np.random.default_rng(0))
    assert (points[:, 0] <= 0.75).all()
    assert evaluated == 5
    assert bounded.model.expected_gain(5) > 0.0


def test_contenders_and_gains_are_for_one_objective() -> None:
    optimizer = Optimizer(SPACE, direction=["minimize", "minimize"], seed=0)
    optimizer.observe({"a": 0.5, "b": 0.5, "kind": "p"}, [1.0, 2.0])
    model = optimizer.model
    for call in (model.contenders, model.expected_gain, optimizer.confirm, optimizer.planner.propose_repeat):
        with pytest.raises(ValueError, match="there are 2 objectives; use front"):
            call()
