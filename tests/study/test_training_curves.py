"""What a pruned trial teaches: a forecast of where it would have ended, by the curves of all trials."""

import math
from typing import Literal

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState
from scipy.stats import spearmanr

from lazybo import Optimizer, Space, recommend
from lazybo.gp import CurveModel
from lazybo.study.model import StudyModel, model_of
from lazybo.study.sampler import LazySampler
from lazybo.study.training_curves import TrainingCurves

optuna.logging.set_verbosity(optuna.logging.ERROR)


def pruned_study(storage: optuna.storages.BaseStorage | None, trials: int, seed: int = 1) -> optuna.Study:
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
    study = pruned_study(None, 35)
    pruned = [trial for trial in study.trials if trial.state == TrialState.PRUNED]
    assert len(pruned) >= 5
    model = model_of(study, study.trials)
    forecasts = model.curves.forecasts()
    truths = [0.9 - 0.3 * (t.params["x"] - 0.3) ** 2 - 0.3 * (t.params["y"] + 0.2) ** 2 for t in pruned]
    # Ends that are far worse than all that completed are forecast as equally bad: some ranks are ties.
    assert spearmanr(truths, [forecasts[trial.number].value for trial in pruned]).statistic > 0.6
    errors = [abs(forecasts[trial.number].value - truth) for trial, truth in zip(pruned, truths, strict=True)]
    assert np.mean(errors) < 0.2, "not a third of it"
    gp, warping = model.optimizer.model.surrogate()
    for trial, truth in zip(pruned, truths, strict=True):
        point = (np.array([trial.params["x"], trial.params["y"]]) + 1) / 2
        seen, sure = (float(number[0]) for number in gp.posterior(point[None]))
        wanted = float(warping(np.array([-truth]))[0])
        # Of the worst ones the model only knows that they are bad: their ends are beyond all that completed.
        assert abs(seen - wanted) < 4 * math.sqrt(sure) + 1.2, "as far off as the model expects"


@pytest.mark.parametrize("noise", ["of each step", "of each training"])
def test_pruned_trials_do_not_hide_noise(noise: str) -> None:
    """Most trials are pruned. The interval of the recommendation is as wide as it must be, and has the true value."""

    def truth(params: dict[str, float]) -> float:
        return 0.95 - 0.3 * (params["x"] - 0.3) ** 2 - 0.1 * (params["y"] - 0.5) ** 2

    def learns(trial: optuna.Trial, seed: int) -> float:
        rng = np.random.default_rng((seed, trial.number))
        final = truth({name: trial.suggest_float(name, 0, 1) for name in "xy"})
        scatter = 0.03 * (rng.standard_normal(8) if noise == "of each step" else np.full(8, rng.standard_normal()))
        stop = int(rng.integers(1, 8)) if trial.number > 1 and rng.random() < 0.7 else 8
        for step in range(1, stop + 1):
            trial.report(final - 0.4 * math.exp(-step / 2) + scatter[step - 1], step)
        if stop < 8:
            raise optuna.TrialPruned
        return trial.study.trials[trial.number].intermediate_values[8]

    found = []
    for seed in range(4):
        study = optuna.create_study(
            direction="maximize", sampler=LazySampler(seed=seed), pruner=optuna.pruners.NopPruner()
        )
        study.optimize(lambda trial, seed=seed: learns(trial, seed), n_trials=30)
        found.append(recommend(study))
    assert sum(each.low <= truth(each.params) <= each.high for each in found) >= 3
    assert all(each.high - each.low > 0.01 for each in found)


def trial_of(number: int, x: float, values: dict[int, float], end: float | None = None) -> optuna.trial.FrozenTrial:
    """A trial that completed with this final value, or was pruned."""
    trial = optuna.trial.create_trial(
        state=TrialState.PRUNED if end is None else TrialState.COMPLETE,
        value=end,
        params={"x": x},
        distributions={"x": FloatDistribution(0, 1)},
        intermediate_values=values,
    )
    trial.number = number
    return trial


SPACE = {"x": FloatDistribution(0, 1)}


def falling(x: float, steps: int = 9) -> dict[int, float]:
    return {step: 1.0 + (x - 0.4) ** 2 + 1.0 / step for step in range(1, steps + 1)}


def study_model(direction: Literal["minimize", "maximize"] = "minimize") -> StudyModel:
    return StudyModel(Optimizer(SPACE, seed=0, direction=direction))


def test_a_pruned_trial_without_a_forecast_is_pending_until_there_is_one() -> None:
    assert CurveModel.least == 2, "as docs/curves.md says"
    model = study_model()
    first = trial_of(0, 0.9, falling(0.9, 3))
    complete = [trial_of(i, 0.1 * i, falling(0.1 * i), falling(0.1 * i)[9]) for i in (1, 2)]
    model.absorb([first, complete[0]], -1)
    assert [suggestion.params for suggestion in model.optimizer.pending] == [{"x": 0.9}]
    model.absorb([first, *complete], -1)
    model.tell_forecasts()
    assert model.optimizer.pending == []
    assert len(model.optimizer.state()["rows"]) == 3, "the pruned trial is observed once"
    assert model.optimizer.planner.records.variances()[0] > 0


def test_forecasts_are_made_anew_when_more_is_known() -> None:
    """The first forecast of a trial is little more than a guess."""
    model = study_model()
    trials = [trial_of(0, 0.9, falling(0.9, 3))]
    trials += [trial_of(i, 0.11 * i, falling(0.11 * i), falling(0.11 * i)[9]) for i in range(1, 9)]
    values, variances = [], []
    for stop in (3, 9):
        model.absorb(trials[:stop], -1)
        model.tell_forecasts()
        values.append(model.optimizer.planner.records.values()[0])
        variances.append(model.optimizer.planner.records.variances()[0])
    truth = falling(0.9)[9]
    assert variances[1] < variances[0]
    assert values[1] == pytest.approx(truth, abs=0.05)


def test_trials_without_a_curve_are_left_out() -> None:
    curves = TrainingCurves(Space(SPACE), "minimize")
    curves.add(trial_of(0, 0.5, {}, 1.0))
    curves.add(trial_of(1, 0.5, {}))
    other = optuna.trial.create_trial(
        value=1.0, params={"y": 0.5}, distributions={"y": FloatDistribution(0, 1)}, intermediate_values={1: 1.0}
    )
    curves.add(other)
    assert len(curves) == 0
    assert curves.best is None
    assert curves.forecasts() == {}


def test_a_resumed_study_makes_the_same_forecasts() -> None:
    storage = optuna.storages.InMemoryStorage()
    for _ in range(4):
        study = pruned_study(storage, 5)
    assert any(trial.state == TrialState.PRUNED for trial in study.trials)
    whole = pruned_study(None, 20)
    for left, right in zip(whole.trials, study.trials, strict=True):
        assert left.state == right.state
        assert left.params == right.params, "to the last bit"


# ------------------------------------------------------------- running trials


def running(number: int, x: float, steps: int) -> optuna.trial.FrozenTrial:
    trial = trial_of(number, x, falling(x, steps))
    trial.state = TrialState.RUNNING
    return trial


def completed(count: int) -> list[optuna.trial.FrozenTrial]:
    return [trial_of(i, x := i / (2 * count), falling(x), falling(x)[9]) for i in range(count)]


def test_a_running_trial_teaches_where_it_is_expected_to_end() -> None:
    """Among those that have completed nothing tells that it is this bad at the other end."""
    values = []
    for steps in (0, 7):
        model = study_model()
        model.absorb([*completed(6), running(6, 0.95, steps)], -1)
        assert [suggestion.params for suggestion in model.optimizer.pending] == [{"x": 0.95}], "it is still pending"
        values.append(model.optimizer.predict({"x": 0.95}).value)
    truth = falling(0.95)[9]
    assert abs(values[1] - truth) < abs(values[0] - truth)


def test_a_forecast_of_a_running_trial_follows_its_values_and_ends_with_its_end() -> None:
    model, known = study_model(), completed(6)
    observed, told = model.optimizer.planner.records, []
    for steps in range(1, 9):
        model.absorb([*known, running(6, 0.95, steps)], -1)
        told.append((float(observed.values()[6]), float(observed.variances()[6])))
    assert math.isnan(told[0][0]), "one value is too few"
    new = [steps for steps in range(2, 9) if told[steps - 1] != told[steps - 2]]
    assert new == [2, 3, 4, 5, 6, 8], "7 is not a fifth more than 6"
    assert abs(told[-1][0] - falling(0.95)[9]) < abs(told[1][0] - falling(0.95)[9]) + 0.05
    model.absorb([*known, trial_of(6, 0.95, falling(0.95), falling(0.95)[9])], -1)
    assert observed.values()[6] == falling(0.95)[9]
    assert observed.variances()[6] == 0.0
    assert model.optimizer.pending == []


def test_a_trial_that_is_sampled_does_not_teach_itself() -> None:
    model = study_model()
    model.absorb([*completed(6), running(6, 0.95, 5)], 6)
    assert model.optimizer.pending == []


def test_a_model_that_does_not_watch_has_no_forecasts_of_running_trials() -> None:
    model = study_model()
    model.watches = False
    model.absorb([*completed(6), running(6, 0.95, 5)], -1)
    assert math.isnan(model.optimizer.planner.records.values()[6])


def test_a_running_trial_that_diverges_or_repeats_has_no_forecast() -> None:
    model = study_model()
    diverged = running(6, 0.95, 4)
    diverged.intermediate_values[5] = math.nan
    repeat = running(7, completed(6)[2].params["x"], 5)
    model.absorb([*completed(6), diverged, repeat], -1)
    assert len(model.optimizer.pending) == 2
    assert np.isnan(model.optimizer.planner.records.values()[6:]).all()
