"""What the models of a study know of paused trials: a forecast while they are paused, their values when they end."""

import math
from datetime import datetime

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState

from lazybo import Optimizer, Space
from lazybo.study.attributes import Key
from lazybo.study.model import StudyModel
from lazybo.study.training_curves import TrainingCurves
from lazybo.study.trial import TrialView

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
        user_attrs={Key.PAUSED: steps} if state == TrialState.WAITING else {},
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
    assert TrialView(paused(0, 0.5)).is_paused
    assert not TrialView(trial_of(0, 0.5, 3, TrialState.RUNNING)).is_paused
    queued = paused(0, 0.5)
    queued.user_attrs = {Key.PAUSED: None}
    assert not TrialView(queued).is_paused


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
    seen = {each.number: TrialView(each) for each in (good, bad, fair)}
    assert curves.best_to_resume([seen[6], seen[7], seen[5]], None) is seen[5]
    assert curves.best_to_resume([seen[6]], None) is None
    assert curves.best_to_resume([], {"x": 0.5}) is None
    assert curves.best_to_resume([seen[6]], {"x": 0.05}) is None
    few = curves_of(COMPLETE[0], good)
    assert few.best_to_resume([seen[5]], None) is None, "too few have completed for a forecast"


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


# ------------------------------------------------- what a study says about its course


def paused_at(number: int, x: float, steps: int, seconds: float) -> FrozenTrial:
    trial = paused(number, x, steps)
    trial.system_attrs = {Key.PAUSE: [steps, seconds]}
    return trial


def ended(number: int, x: float, seconds: float) -> FrozenTrial:
    trial = trial_of(number, x)
    trial.datetime_complete = datetime.fromtimestamp(seconds)
    return trial


def test_a_model_that_reads_a_study_later_is_one_that_saw_all_of_it_happen() -> None:
    """Trials 0 and 2 are paused, 1, 3 and 4 end, 0 goes on and is paused again; then 2 goes on and its driver dies."""
    first, again = paused_at(0, 0.2, 3, 1.0), paused_at(0, 0.2, 6, 6.0)
    second, finished = paused_at(2, 0.3, 3, 3.0), [ended(1, 0.9, 2.0), ended(3, 0.5, 4.0), ended(4, 0.7, 5.0)]
    live = StudyModel(Optimizer(SPACE, seed=0))
    for trial in (first, finished[0], second, *finished[1:]):
        live.announce(trial.number, trial.params)
        live.hold(trial) if TrialView(trial).is_paused else live.settle(trial)
        live.tell_forecasts()
    live.announce(0, {"x": 0.2})
    live.hold(again)
    live.announce(2, {"x": 0.3})
    orphan = trial_of(2, 0.3, 4, TrialState.WAITING)
    orphan.system_attrs, orphan.user_attrs = {**second.system_attrs, Key.ATTEMPTS: 1}, {Key.PAUSED: None}
    later = StudyModel(Optimizer(SPACE, seed=0))
    later.absorb([again, finished[0], orphan, *finished[1:]], -1)
    for model in (live, later):
        model.announce(2, {"x": 0.3})
        model.hold(paused_at(2, 0.3, 5, 7.0))
    assert live.curves.basis == later.curves.basis
    assert live.propose(5) == later.propose(5)
    assert live.memory.learned() == later.memory.learned()
    assert [row["params_x"] for row in later.optimizer.records()] == [0.2, 0.9, 0.3, 0.5, 0.7]


def test_the_last_pause_is_known_while_a_training_runs_again() -> None:
    trial = paused_at(0, 0.5, 4, 7.0)
    assert (TrialView(trial).handling.paused_step, TrialView(trial).handling.ended_at) == (4, 7.0)
    trial.state, trial.user_attrs = TrialState.RUNNING, {Key.PAUSED: None}
    assert (TrialView(trial).handling.paused_step, TrialView(trial).handling.ended_at) == (4, math.inf)
    assert TrialView(paused(0, 0.5, 3)).handling.paused_step == 3, "an earlier version has not recorded it"
    for damaged in (None, 3, [-1, 0.0], ["4", 1.0], [4, math.nan]):
        trial.system_attrs = {Key.PAUSE: damaged}
        assert TrialView(trial).handling.paused_step == 0
