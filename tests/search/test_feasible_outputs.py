"""Known constraints together with several objectives and measured constraints."""

from typing import Any

import numpy as np
import pytest

from lazybo import Space
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
