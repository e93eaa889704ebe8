"""What the models of a study know of paused trials: a forecast while they are paused, their values when they end."""

import math

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState

from lazybo.search.optimizer import Optimizer
from lazybo.space.space import Space
from lazybo.study.attributes import PAUSED_KEY
from lazybo.study.model import StudyModel
from lazybo.study.training_curves import TrainingCurves
from lazybo.study.trial import is_paused

SPACE = {"x": FloatDistribution(0.0, 1.0)}
LAST = 9


def falling(x: float, steps: int = LAST) -> dict[int, float]:
    return {step: x + math.exp(-step / 2) for step in range(1, steps + 1)}


def trial_of(number: int, x: float, steps: int = LAST, state: TrialState = TrialState.COMPLETE) -> FrozenTrial:
    trial = optuna.trial.create_trial(
        state=state,
        params={"x": x},
        distributions=SPACE,
        intermediate_values=falling(x, steps),
        value=falling(x)[LAST] if state == TrialState.COMPLETE else None,
        user_attrs={PAUSED_KEY: steps} if state == TrialState.WAITING else {},
    )
    trial.number = number
    return trial


def paused(number: int, x: float, steps: int = 3) -> FrozenTrial:
    return trial_of(number, x, steps, TrialState.WAITING)


COMPLETE = [trial_of(i, x) for i, x in enumerate((0.9, 0.5, 0.7, 0.6, 0.8))]


def curves_of(*trials: FrozenTrial) -> TrainingCurves:
    curves = TrainingCurves(Space(SPACE), "minimize", max_step=LAST)
    curves.add_new(trials)
    return curves


def test_a_trial_is_paused_while_it_waits() -> None:
    assert is_paused(paused(0, 0.5))
    assert not is_paused(trial_of(0, 0.5, 3, TrialState.RUNNING))
    queued = paused(0, 0.5)
    queued.user_attrs = {PAUSED_KEY: None}
    assert not is_paused(queued)


def test_a_paused_curve_is_known_until_its_trial_runs_again() -> None:
    without, curves = curves_of(*COMPLETE), curves_of(*COMPLETE, paused(5, 0.2))
    assert set(curves.forecasts()) == {5}
    curves.add_new([*COMPLETE, paused(5, 0.2, 5)])
    assert len(curves) == 6, "the longer one replaces it"
    assert curves.forecasts() == curves_of(*COMPLETE, paused(5, 0.2, 5)).forecasts()
    running = trial_of(5, 0.2, 6, TrialState.RUNNING)
    curves.add_new([*COMPLETE, running])
    assert len(curves) == 5
    assert curves.forecast(running) is not None
    assert curves.forecast(running).mean == without.forecast(running).mean, "as if it had never been paused"
    curves.add_new([*COMPLETE, trial_of(5, 0.2)])
    assert curves.best == pytest.approx(falling(0.2)[LAST])


def test_the_most_promising_paused_trial_is_resumed_if_it_beats_a_new_one() -> None:
    good, bad, fair = paused(5, 0.1, 6), paused(6, 0.95), paused(7, 0.4, 6)
    curves = curves_of(*COMPLETE, good, bad, fair)
    assert curves.best_to_resume([bad, fair, good], None) is good
    assert curves.best_to_resume([bad], None) is None
    assert curves.best_to_resume([], {"x": 0.5}) is None
    assert curves.best_to_resume([bad], {"x": 0.05}) is None
    few = curves_of(COMPLETE[0], good)
    assert few.best_to_resume([good], None) is None, "too few have completed for a forecast"


def model_of(*trials: FrozenTrial) -> StudyModel:
    model = StudyModel(Optimizer(SPACE, seed=0))
    model.absorb(trials, -1)
    model.tell_forecasts()
    return model


def values(model: StudyModel) -> list[tuple[float, float, float]]:
    rows = model.optimizer.planner.records
    return sorted((rows[i].params["x"], *rows[i].result.values, *rows[i].result.variances) for i in range(len(rows)))


def test_the_value_of_a_trial_that_was_paused_replaces_its_forecast() -> None:
    model = model_of(*COMPLETE, paused(5, 0.2))
    (told,) = [row for row in values(model) if row[0] == 0.2]
    assert told[2] > 0.0, "a forecast has a variance"
    model.hold(paused(5, 0.2, 7))
    model.tell_forecasts()
    (again,) = [row for row in values(model) if row[0] == 0.2]
    assert again != told, "more is known"
    model.announce(5, {"x": 0.2})
    assert values(model) == sorted([*[row for row in values(model) if row[0] != 0.2], again]), "it stays while it runs"
    ended = trial_of(5, 0.2)
    model.settle(ended)
    assert values(model) == values(model_of(*COMPLETE, ended))
    twin = model_of(*COMPLETE, ended)
    assert model.optimizer.predict({"x": 0.25}).value == pytest.approx(twin.optimizer.predict({"x": 0.25}).value)


def test_a_trial_that_was_paused_may_fail_or_be_pruned() -> None:
    model = model_of(*COMPLETE, paused(5, 0.2))
    model.announce(5, {"x": 0.2})
    model.settle(trial_of(5, 0.2, 4, TrialState.FAIL))
    assert len(model.optimizer.planner.records) == 6
    assert model.optimizer.planner.records.n_complete == 5
    model = model_of(*COMPLETE, paused(5, 0.2))
    model.announce(5, {"x": 0.2})
    model.settle(trial_of(5, 0.2, 5, TrialState.PRUNED))
    model.tell_forecasts()
    twin = model_of(*COMPLETE, trial_of(5, 0.2, 5, TrialState.PRUNED))
    for row, other in zip(values(model), values(twin), strict=True):
        assert row == pytest.approx(other)


def test_paused_before_there_are_forecasts_a_trial_is_pending() -> None:
    model = model_of(COMPLETE[0], paused(1, 0.2))
    assert [suggestion.params for suggestion in model.optimizer.pending] == [{"x": 0.2}]
    model.announce(1, {"x": 0.2})
    model.settle(trial_of(1, 0.2))
    assert values(model) == values(model_of(COMPLETE[0], trial_of(1, 0.2)))
