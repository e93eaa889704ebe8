"""What a training must beat if there are several objectives."""

import math

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from lazybo.study.attributes import Key
from lazybo.study.pruner import LazyPruner, Rivals, is_dominated
from lazybo.study.store import Store
from lazybo.study.training_curves import TrainingCurves

optuna.logging.set_verbosity(optuna.logging.ERROR)
EPOCHS = 10
SPACE = {"size": FloatDistribution(0, 1), "rate": FloatDistribution(0, 1)}


def loss(size: float, rate: float, epoch: int) -> float:
    return 1 / (1 + 3 * size) + 2 * (rate - 0.3) ** 2 + math.exp(-0.5 * epoch)


def trained(size: float, rate: float, epochs: int = EPOCHS, state: TrialState = TrialState.COMPLETE) -> FrozenTrial:
    values = {epoch: loss(size, rate, epoch) for epoch in range(1, epochs + 1)}
    return create_trial(
        state=state,
        values=[size, loss(size, rate, EPOCHS)] if state == TrialState.COMPLETE else None,
        params={"size": size, "rate": rate},
        distributions=SPACE,
        intermediate_values=values,
    )


@pytest.fixture(scope="module")
def study() -> optuna.Study:
    """A front of five sizes, and four trainings behind it."""
    study = optuna.create_study(directions=["minimize", "minimize"])
    Store(study).set_attributes({Key.REPORTS: 1})
    for size in (0.0, 0.25, 0.5, 0.75, 1.0):
        study.add_trial(trained(size, 0.3))
    for size, rate in ((0.1, 0.9), (0.6, 0.8), (0.9, 0.0), (0.4, 0.1)):
        study.add_trial(trained(size, rate))
    return study


def test_what_is_needed_is_the_best_of_those_that_are_as_good_in_the_others(study: optuna.Study) -> None:
    """A naive twin: for the size that is predicted, the least loss of all trainings of at most that size."""
    rivals = Rivals(study, study.trials)
    for size in (0.05, 0.3, 0.62, 0.97):
        point = rivals.space.points.encode({"size": size, "rate": 0.5})
        expected = min(loss(t.params["size"], t.params["rate"], EPOCHS) for t in study.trials if t.values[0] <= size)
        needed = rivals.needed(point[None])
        assert needed.shape[0] == 1
        assert np.median(needed) == pytest.approx(expected)


def test_smaller_than_all_rivals_is_on_the_front_whatever_its_loss(study: optuna.Study) -> None:
    rivals = Rivals(study, [trial for trial in study.trials if trial.params["size"] >= 0.4])
    needed = rivals.needed(rivals.space.points.encode({"size": 0.0, "rate": 0.9})[None])[0]
    assert np.isinf(needed).mean() > 0.5, "as the model expects"
    assert np.isfinite(rivals.bounded(needed)).all()


def test_only_a_training_that_ends_behind_the_front_is_stopped(study: optuna.Study) -> None:
    rivals = Rivals(study, study.trials)
    curves = TrainingCurves(rivals.space, "minimize", objective=1)
    curves.add_new(study.trials)
    for size in (0.15, 0.45, 0.8):
        good, bad = (trained(size, rate, 6, TrialState.RUNNING) for rate in (0.3, 0.95))
        assert not is_dominated(curves, rivals, good)
        assert is_dominated(curves, rivals, bad)


def test_trials_that_violate_a_constraint_are_no_rivals(study: optuna.Study) -> None:
    trials = [trained(0.2, 0.3), trained(0.4, 0.3)]
    trials[0].system_attrs["constraints:memory"] = 1.0
    trials[1].system_attrs["constraints:memory"] = -1.0
    for number, trial in enumerate(trials):
        trial.number = number
    assert Rivals(study, trials).u.tolist() == [loss(0.4, 0.3, EPOCHS)]


def test_the_pruner_stops_nothing_before_two_trainings_have_finished() -> None:
    study = optuna.create_study(directions=["minimize", "minimize"], pruner=LazyPruner())
    study.add_trial(trained(0.5, 0.3))
    running = trained(0.5, 1.0, 5, TrialState.RUNNING)
    study.add_trial(running)
    assert not study.pruner.prune(study, study.trials[1])
