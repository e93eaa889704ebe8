"""Beliefs: their densities, the points drawn from them, and what is refused."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazybo import Belief, Permutation, Space
from lazybo.space.beliefs import DOUBT

PARAMETERS: dict[str, Any] = {
    "lr": (1e-5, 1.0, "log"),
    "momentum": (0.0, 1.0),
    "units": (1, 100),
    "width": (8, 512, "log"),
    "opt": ["sgd", "adam", "rmsprop"],
}
BELIEFS = {
    "lr": Belief(around=1e-3, within=3),
    "momentum": Belief(around=0.9, within=0.05),
    "units": Belief(around=20, within=10),
    "width": Belief(around=64, within=2),
    "opt": Belief(weights={"adam": 3}),
}


def space_with(name: str, belief: Belief | None = None) -> Space:
    return Space({name: PARAMETERS[name]}, beliefs={name: belief or BELIEFS[name]})


def drawn(space: Space, count: int = 4000) -> list[Any]:
    (name,) = space.points.names
    assert space.believed is not None
    drawn = space.believed.as_uniform(np.random.default_rng(0).random((count, space.points.draws)))
    points = space.points.from_uniform(drawn)
    return [space.points.decode(point)[name] for point in points]


@pytest.mark.parametrize("name", ["lr", "momentum"])
def test_a_density_has_the_mass_one(name: str) -> None:
    space = space_with(name)
    assert space.believed is not None
    grid = (np.arange(20_000) + 0.5)[:, None] / 20_000
    assert np.exp(space.believed.log_density(grid)[0]).mean() == pytest.approx(1.0, rel=1e-3)


@given(st.floats(0.0, 1.0), st.floats(1e-3, 3.0), st.floats(0.001, 0.999))
def test_derivatives_are_those_of_the_density(around: float, within: float, x: float) -> None:
    space = space_with("momentum", Belief(around=around, within=within))
    assert space.believed is not None
    step = 1e-6
    value, slope = space.believed.log_density(np.array([[x]]))
    ahead, behind = (space.believed.log_density(np.array([[x + sign * step]]))[0] for sign in (1, -1))
    assert slope[0, 0] == pytest.approx((ahead - behind)[0] / (2 * step), rel=1e-3, abs=1e-4 * (1 + 1 / within))
    assert value[0] >= math.log(DOUBT) - 1e-9  # a wrong belief never excludes anything


@pytest.mark.parametrize(("name", "low", "high"), [("lr", 1e-3 / 3, 3e-3), ("momentum", 0.85, 0.95), ("units", 10, 30)])
def test_most_points_are_within(name: str, low: float, high: float) -> None:
    inside = np.mean([low <= value <= high for value in drawn(space_with(name))])
    assert 0.8 < inside < 0.97
    assert min(drawn(space_with(name))) < low  # but not all


def test_choices_have_their_weights() -> None:
    shares = {choice: drawn(space_with("opt")).count(choice) / 4000 for choice in PARAMETERS["opt"]}
    adam = (1 - DOUBT) * 3 / 5 + DOUBT / 3
    assert shares["adam"] == pytest.approx(adam, abs=0.03)
    assert shares["sgd"] == pytest.approx((1 - adam) / 2, abs=0.03)


def test_inactive_parameters_have_no_belief() -> None:
    from lazybo import Condition

    space = Space(
        {"opt": ["sgd", "adam"], "momentum": (0.0, 1.0)},
        conditions={"momentum": Condition("opt", ("sgd",))},
        beliefs={"momentum": Belief(around=0.9, within=0.05)},
    )
    assert space.believed is not None
    value, slope = space.believed.log_density(space.points.encode({"opt": "adam"})[None])
    assert value[0] == 0.0
    assert not slope.any()


@pytest.mark.parametrize("belief", [*BELIEFS.values(), Belief(weights={(1, 2): 2, 3: 1.5})])
def test_a_belief_survives_json(belief: Belief) -> None:
    assert Belief.of(json.loads(json.dumps(belief.to_plain()))) == belief


def test_a_space_keeps_its_beliefs() -> None:
    space = Space(PARAMETERS, beliefs=BELIEFS)
    assert space.beliefs == BELIEFS
    assert space != Space(PARAMETERS)
    assert space.changed(feasible=bool).beliefs == BELIEFS
    assert space.believing({**BELIEFS, "not there": BELIEFS["lr"]}) is space
    assert space.believing({"lr": Belief(around=1e9, within=3)}).beliefs == {}  # the range has changed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs around= and within="),
        ({"around": 1.0}, "needs around= and within="),
        ({"within": 1.0}, "needs around= and within="),
        ({"around": 1.0, "within": 2.0, "weights": {"a": 1}}, "either around= and within=, for a number, or weights="),
        ({"around": "1", "within": 2}, "around must be a finite number, not '1'"),
        ({"around": math.nan, "within": 2}, "around must be a finite number"),
        ({"around": 1, "within": 0}, "within must be a positive finite number, not 0"),
        ({"weights": {}}, "weights must be a dict"),
        ({"weights": ["a"]}, "weights must be a dict"),
        ({"weights": {"a": -1}}, "the weight of 'a' must be a positive finite number, not -1"),
        ({"weights": {"a": True}}, "the weight of 'a' must be a positive finite number, not True"),
    ],
)
def test_wrong_beliefs_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Belief(**arguments)


@pytest.mark.parametrize(
    ("beliefs", "message"),
    [
        ({"rate": BELIEFS["lr"]}, "a belief about 'rate', but this space has"),
        ({"lr": Belief(around=1e3, within=3)}, "around must be from 1e-05 to 1.0, the range of lr, not 1000.0"),
        ({"lr": Belief(around=1e-3, within=0.5)}, "within must be a factor above 1"),
        ({"lr": BELIEFS["opt"]}, "needs around= and within=, since it is a number"),
        ({"opt": BELIEFS["lr"]}, "needs weights=, since it is a choice"),
        ({"opt": Belief(weights={"lion": 2})}, "opt must be one of .*, not 'lion'"),
        ({"order": BELIEFS["lr"]}, "but not about a Permutation"),
        ({"lr": 1e-3}, "the belief about 'lr': a belief must be such as lazybo.Belief"),
        ({"opt": {"weights": [["adam"]]}}, r"weights must be pairs of a choice and a number, .*, not \['adam'\]"),
        ({"opt": {"weights": [["adam", 3, 4]]}}, "weights must be pairs of a choice and a number"),
        ({"opt": {"weights": ["adam"]}}, "weights must be pairs of a choice and a number, .*, not 'adam'"),
        ({"opt": {"weights": [["adam", 3], ["adam", 2]]}}, "weights have 'adam' twice"),
        ({"lr": {"around": 1, "with": 3}}, "no 'with'"),
        ([BELIEFS["lr"]], "beliefs must be a dict"),
    ],
)
def test_beliefs_that_do_not_fit_are_refused(beliefs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Space({**PARAMETERS, "order": Permutation(["a", "b"])}, beliefs=beliefs)


def test_other_names_of_the_arguments_are_named() -> None:
    with pytest.raises(TypeError, match=r"Belief\(\) has no argument mean=; use around="):
        Belief(mean=1, std=2)  # type: ignore[call-arg]
