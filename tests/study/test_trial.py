"""When parameters are active, inferred from trials."""

from typing import Any

import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from lazybo import Condition, Optimizer, Space
from lazybo.study.definition import infer_space
from lazybo.study.model import StudyModel

SPACE: dict[str, BaseDistribution] = {
    "model": CategoricalDistribution(["forest", "svm"]),
    "kernel": CategoricalDistribution(["rbf", "poly"]),
    "layers": IntDistribution(1, 3),
    "x": FloatDistribution(0, 1),
    "y": FloatDistribution(0, 1),
}


def trial_of(params: dict[str, Any], state: TrialState = TrialState.COMPLETE, number: int = 0) -> FrozenTrial:
    trial = create_trial(
        state=state,
        value=1.0 if state == TrialState.COMPLETE else None,
        params=params,
        distributions={name: SPACE[name] for name in params},
        intermediate_values={1: 1.0} if state == TrialState.PRUNED else {},
    )
    trial.number = number
    return trial


def inferred(*params: dict[str, Any], state: TrialState = TrialState.COMPLETE) -> Space:
    names = {name for each in params for name in each}
    space = {name: d for name, d in SPACE.items() if name in names}
    return infer_space(space, [*(trial_of(each) for each in params[:-1]), trial_of(params[-1], state)])


def test_a_parameter_of_all_trials_is_always_active() -> None:
    space = inferred({"model": "svm", "x": 0.1}, {"model": "forest", "x": 0.2})
    assert (space.conditions, space.optional) == ({}, frozenset())


def test_a_parameter_depends_on_the_values_that_separate_trials_with_it_from_those_without() -> None:
    space = inferred({"layers": 1, "x": 0.1}, {"layers": 2, "x": 0.1, "y": 0.5}, {"layers": 3, "x": 0.2, "y": 0.1})
    assert space.conditions == {"y": Condition("layers", (2, 3))}
    assert space.optional == frozenset()


def test_a_parent_must_be_active_whenever_its_child_is() -> None:
    """y with kernel "rbf" always, but once without any kernel: it does not depend on the kernel."""
    space = inferred(
        {"model": "svm", "kernel": "rbf", "y": 0.1}, {"model": "svm", "kernel": "poly"}, {"model": "forest", "y": 0.3}
    )
    assert space.conditions == {"kernel": Condition("model", ("svm",))}
    assert space.optional == {"y"}


def test_a_parameter_does_not_depend_on_a_float() -> None:
    """No two trials have the same x, so its values would separate any trials."""
    space = inferred({"x": 0.1, "y": 0.2}, {"x": 0.3}, {"x": 0.5, "y": 0.1})
    assert space.conditions == {}
    assert space.optional == {"y"}


@pytest.mark.parametrize(("state", "counts"), [(TrialState.PRUNED, True), (TrialState.FAIL, False)])
def test_pruned_trials_count_and_failed_ones_do_not(state: TrialState, counts: bool) -> None:
    """A failed trial may have stopped before it asked for all of its parameters."""
    space = inferred({"model": "svm", "y": 0.1}, {"model": "forest"}, state=state)
    assert space.conditions == ({"y": Condition("model", ("svm",))} if counts else {})


@pytest.mark.parametrize(
    ("state", "outdated"), [(TrialState.COMPLETE, True), (TrialState.PRUNED, True), (TrialState.FAIL, False)]
)
def test_a_trial_that_lacks_a_parameter_makes_the_space_outdated_unless_it_failed(
    state: TrialState, outdated: bool
) -> None:
    space = {name: SPACE[name] for name in ("x", "y")}
    model = StudyModel(Optimizer(space, seed=0))
    model.absorb([trial_of({"x": 0.1, "y": 0.2})], -1)
    assert not model.space_outdated
    model.absorb([trial_of({"x": 0.1, "y": 0.2}), trial_of({"x": 0.3}, state, 1)], -1)
    assert model.space_outdated is outdated


@pytest.mark.filterwarnings("ignore:Choices for a categorical")
def test_a_parameter_may_depend_on_a_choice_that_is_a_list() -> None:
    space = {"layers": CategoricalDistribution([[64], [64, 64]]), "y": FloatDistribution(0, 1)}  # type: ignore[list-item]
    trials = [
        create_trial(params=params, distributions={name: space[name] for name in params}, value=1.0)
        for params in ({"layers": [64]}, {"layers": [64, 64], "y": 0.5})
    ]
    assert infer_space(space, trials).conditions == {"y": Condition("layers", ([64, 64],))}
