"""What a pruned trial teaches: a forecast of its end, as far as completed trials allow one."""

import math
from pathlib import Path
from typing import Literal

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState

from lazybo.report import records
from lazybo.search.optimizer import Optimizer
from lazybo.study.curves import MIN_CURVES, NEIGHBOURS, Curves
from lazybo.study.factory import model_of
from lazybo.study.model import StudyModel
from lazybo.study.sampler import LazySampler
from lazybo.study.structure import Structure

optuna.logging.set_verbosity(optuna.logging.ERROR)


def curves_of(ends: list[float], early: float, noise: float = 0.0, *, maximize: bool = False) -> Curves:
    """Trainings that are ``early`` times their end at step 1, give or take ``noise``."""
    rng = np.random.default_rng(0)
    curves = Curves(maximize)
    for end in ends:
        curves.add({1: early * end + noise * rng.standard_normal(), 2: end}, end)
    return curves


def test_there_is_no_forecast_before_enough_trials_have_completed() -> None:
    assert MIN_CURVES == 4, "as docs/architecture.md says"
    ends = [float(i) for i in range(MIN_CURVES)]
    assert curves_of(ends[:-1], 2.0).forecast(1, 7.0) is None
    assert curves_of(ends, 2.0).forecast(1, 7.0) is not None
    assert curves_of(ends, 2.0).forecast(0, 7.0) is None, "nobody has reported so early"


@pytest.mark.parametrize("maximize", [False, True])
def test_where_ends_follow_from_early_values_so_does_the_forecast(maximize: bool) -> None:
    sign = -1 if maximize else 1
    curves = curves_of([sign * float(i) for i in range(1, 11)], 1.5, maximize=maximize)
    forecast = curves.forecast(1, sign * 1.5 * 9.3)
    assert forecast is not None
    assert forecast.value == pytest.approx(sign * 9.3)
    assert math.sqrt(forecast.variance) < 0.2 * np.std(range(1, 11)) * 2


def test_a_forecast_is_as_uncertain_as_early_values_are() -> None:
    """The errors of many forecasts have the variance that the forecasts say."""
    rng = np.random.default_rng(1)
    scaled = []
    for _ in range(300):
        ends = rng.normal(size=21)
        early = ends + 0.5 * rng.normal(size=21)
        curves = Curves(maximize=False)
        for u, end in zip(early[:-1], ends[:-1], strict=True):
            curves.add({1: u}, end)
        forecast = curves.forecast(1, early[-1])
        assert forecast is not None
        if forecast.value > np.median(ends[:-1]) + 0.3:  # not held at the median
            scaled.append((ends[-1] - forecast.value) / math.sqrt(forecast.variance))
    assert len(scaled) > 50
    assert 0.7 < np.std(scaled) < 1.3


def test_a_forecast_grows_uncertain_away_from_what_was_seen() -> None:
    curves = curves_of([float(i) for i in range(8)], 1.0, noise=0.3)
    near, far = curves.forecast(1, 6.0), curves.forecast(1, 60.0)
    assert near is not None
    assert far is not None
    assert far.variance > 10 * near.variance


def test_a_forecast_is_made_from_the_nearest_curves() -> None:
    """Ends follow early values with slope 1 where they are small, and with slope 10 far away."""
    curves = Curves(maximize=False)
    for i in range(NEIGHBOURS):
        curves.add({1: 0.01 * i}, 0.01 * i)
        curves.add({1: 100.0 + i}, 10 * (100.0 + i))
    near = curves.forecast(1, 0.19)
    far = curves.forecast(1, 118.5)
    assert near is not None
    assert far is not None
    assert far.value == pytest.approx(1185.0)
    assert near.variance < 1e-3, "the far curves have no part in it"


def test_a_line_through_few_points_is_not_certain() -> None:
    """Four points may lie on a line by chance: the variance is a share of that of the ends."""
    forecast = curves_of([1.0, 2.0, 3.0, 4.0], 1.0).forecast(1, 3.5)
    assert forecast is not None
    assert 0.05 * np.var([1, 2, 3, 4]) < forecast.variance < np.var([1, 2, 3, 4])


@pytest.mark.parametrize("maximize", [False, True])
def test_a_forecast_is_never_better_than_the_median(maximize: bool) -> None:
    curves = curves_of([1.0, 2.0, 3.0, 4.0, 5.0], 1.0, maximize=maximize)
    best = curves.forecast(1, 100.0 if maximize else -100.0)
    assert best is not None
    assert best.value == 3.0


def test_a_forecast_is_no_further_than_the_last_value_and_the_ends() -> None:
    """A steep line continued far beyond what was seen is not believed."""
    steep = curves_of([3.0, 6.0, 9.0, 12.0, 15.0], 1 / 3)
    far, near = steep.forecast(1, 60.0), steep.forecast(1, 4.5)
    assert far is not None
    assert near is not None
    assert far.value == 60.0
    assert near.value == pytest.approx(13.5)


def test_a_worse_early_value_never_means_a_better_end() -> None:
    curves = Curves(maximize=False)
    for i in range(5):
        curves.add({1: float(i)}, 5.0 - i)
    forecast = curves.forecast(1, -10.0)
    assert forecast is not None
    assert forecast.value == pytest.approx(3.0), "the mean of the ends, not a line that falls"


def test_values_that_are_not_finite_or_huge_do_no_harm() -> None:
    curves = Curves(maximize=False)
    for i in range(6):
        curves.add({1: math.nan if i == 0 else i * 1e307, 2: math.inf}, i * 1e307)
    forecast = curves.forecast(1, 1.5e308)
    assert forecast is not None
    assert math.isfinite(forecast.value)
    assert math.isfinite(forecast.variance)


def pruned_study(storage: str | None, trials: int, seed: int = 1) -> optuna.Study:
    """Early values are far from the ends: one that is pruned has a third of what it would have come to."""

    def learns(trial: optuna.Trial) -> float:
        x, y = trial.suggest_float("x", -1, 1), trial.suggest_float("y", -1, 1)
        accuracy = 0.9 - 0.3 * (x - 0.3) ** 2 - 0.3 * (y + 0.2) ** 2
        for step in range(1, 4):
            trial.report(accuracy * step / 3, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return accuracy

    study = optuna.create_study(
        study_name="s",
        storage=storage,
        load_if_exists=True,
        direction="maximize",
        sampler=LazySampler(seed=seed),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3),
    )
    study.optimize(learns, n_trials=trials)
    return study


def test_pruned_trials_do_not_poison_the_model() -> None:
    study = pruned_study(None, 25)
    pruned = [trial for trial in study.trials if trial.state == TrialState.PRUNED]
    assert len(pruned) >= 5
    gp, warping = model_of(study, study.trials).optimizer.surrogate()
    for trial in pruned:
        x, y = trial.params["x"], trial.params["y"]
        truth = 0.9 - 0.3 * (x - 0.3) ** 2 - 0.3 * (y + 0.2) ** 2
        seen = -float(warping.inverse(gp.posterior([[(x + 1) / 2, (y + 1) / 2]]).mean)[0])
        assert seen == pytest.approx(truth, abs=0.1), "not a third of it"


def test_slices_have_no_spikes_where_trials_were_pruned() -> None:
    """The example of docs/command.md, whose early values are far below the ends."""

    def learns(trial: optuna.Trial) -> float:
        lr, opt = trial.suggest_float("lr", 1e-4, 0.1, log=True), trial.suggest_categorical("opt", ["sgd", "adam"])
        momentum = trial.suggest_float("momentum", 0, 0.99) if opt == "sgd" else 0.0
        accuracy = 0.95 - 0.1 * (math.log10(lr) + 2) ** 2 - 0.1 * (opt == "sgd") * (momentum - 0.9) ** 2
        for epoch in range(1, 4):
            trial.report(accuracy * (1 - math.exp(-epoch)), epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
        return accuracy

    study = optuna.create_study(direction="maximize", sampler=LazySampler(seed=0), pruner=optuna.pruners.MedianPruner())
    study.optimize(learns, n_trials=30)
    assert sum(trial.state == TrialState.PRUNED for trial in study.trials) >= 3
    middle = next(s.middle for s in records.slices(study) if s.name == "lr")
    rises = np.diff(middle) > 0
    assert np.sum(rises[1:] != rises[:-1]) <= 3, "one maximum; towards an end the mean may turn once more"


def completed(number: int) -> optuna.trial.FrozenTrial:
    trial = optuna.trial.create_trial(value=3.0, params={"x": 0.05}, distributions={"x": FloatDistribution(0, 1)})
    trial.number = number
    return trial


def test_a_pruned_trial_without_a_forecast_is_pending_until_there_is_one() -> None:
    space = {"x": FloatDistribution(0, 1)}
    model = StudyModel(Structure(dict(space), {}, frozenset()), Optimizer(space, seed=0))
    trials = []
    for number in range(1 + MIN_CURVES):
        state = TrialState.COMPLETE if number else TrialState.PRUNED
        trial = optuna.trial.create_trial(
            state=state,
            value=number if number else None,
            params={"x": 0.9 - 0.1 * number},
            distributions=dict(space),
            intermediate_values={1: 2.0 * (number or 10)},
        )
        trial.number = number
        trials.append(trial)
    model.absorb(trials[:-1], -1)
    assert [suggestion.params for suggestion in model.optimizer.pending] == [{"x": 0.9}]
    model.absorb(trials, -1)
    assert model.optimizer.pending == []
    model.absorb([*trials, completed(len(trials))], -1)
    assert len(model.optimizer.state()["rows"]) == len(trials) + 1, "the pruned trial is observed once"
    assert model.optimizer._observations.values[0] == pytest.approx(10.0)
    assert model.optimizer._observations.variances()[0] > 0


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_a_pruned_trial_is_observed_no_better_than_the_median(direction: Literal["minimize", "maximize"]) -> None:
    """Its last value is far better than that of every other trial, but the pruner knew better."""
    space = {"x": FloatDistribution(0, 1)}
    sign = 1.0 if direction == "minimize" else -1.0
    model = StudyModel(Structure(dict(space), {}, frozenset()), Optimizer(space, seed=0, direction=direction))
    for number, end in enumerate([1.0, 2.0, 3.0, 4.0, 5.0, None]):
        trial = optuna.trial.create_trial(
            state=TrialState.PRUNED if end is None else TrialState.COMPLETE,
            value=None if end is None else sign * end,
            params={"x": 0.1 * number},
            distributions=dict(space),
            intermediate_values={1: sign * (-9.0 if end is None else end)},
        )
        trial.number = number
        model.finish(trial)
    assert model.optimizer.state()["rows"][-1]["value"] == 3.0, "inside, small is good"
    assert model.optimizer.best.value == sign * 1.0


def test_a_resumed_study_makes_the_same_forecasts(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/s.db"
    for _ in range(4):
        study = pruned_study(storage, 5)
    assert any(trial.state == TrialState.PRUNED for trial in study.trials)
    whole = pruned_study(None, 20)
    for left, right in zip(whole.trials, study.trials, strict=True):
        assert left.state == right.state
        assert left.params == right.params, "to the last bit"
