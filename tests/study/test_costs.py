"""LazySampler with a cost, and what is stored of it."""

import math
from datetime import datetime, timedelta
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from lazybo import LazySampler
from lazybo.study.attributes import Key
from lazybo.study.model import model_of
from lazybo.study.trial import LEAST_SECONDS, TrialView

optuna.logging.set_verbosity(optuna.logging.ERROR)
SPACE = {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}


def price(x: float) -> float:
    return math.exp(6 * x)


def objective(trial: optuna.Trial) -> float:
    x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
    trial.set_user_attr("dollars", price(x))
    return (y - 0.5) ** 2


def log_costs(study: optuna.Study) -> float:
    return sum(math.log(price(trial.params["x"])) for trial in study.trials[6:]) / len(study.trials[6:])


def finished(x: float, seconds: float, **details: Any) -> FrozenTrial:
    """A trial that took so long by Optuna's times."""
    trial = create_trial(
        params={"x": x, "y": x}, distributions=SPACE, **{"value": x, "state": TrialState.COMPLETE, **details}
    )
    trial.datetime_start = datetime(2026, 1, 1)
    trial.datetime_complete = trial.datetime_start + timedelta(seconds=seconds)
    return trial


def test_a_user_attribute_is_the_cost() -> None:
    found = {}
    for cost in (None, "dollars"):
        study = optuna.create_study(sampler=LazySampler(seed=0, cost=cost))
        study.optimize(objective, n_trials=16)
        found[cost] = log_costs(study)
    assert found["dollars"] < found[None] - 0.5


def test_seconds_are_optunas_times() -> None:
    study = optuna.create_study(sampler=LazySampler(seed=0, cost="seconds"))
    study.add_trials([finished(i / 10, price(i / 10)) for i in range(10)])
    trial = study.ask(SPACE)
    model = model_of(study, study.trials)
    assert model.optimizer.options.cost == "seconds"
    told = [row["cost"] for row in model.optimizer.state()["rows"] if "cost" in row]
    assert told == pytest.approx([price(i / 10) for i in range(10)], abs=1e-6)
    without = optuna.create_study(sampler=LazySampler(seed=0))
    without.add_trials(study.trials[:10])
    assert trial.params != without.ask(SPACE).params


def test_a_second_sampler_continues_with_the_same_suggestion() -> None:
    study = optuna.create_study(sampler=LazySampler(seed=3, cost="dollars"))
    study.optimize(objective, n_trials=9)
    copy = optuna.create_study(sampler=LazySampler(seed=3, cost="dollars"))
    copy.add_trials(study.trials)
    assert copy.ask(SPACE).params == study.ask(SPACE).params


def test_what_a_trial_cost() -> None:
    assert TrialView(finished(0.1, 7.0)).seconds == 7.0
    assert TrialView(finished(0.1, 7.0, system_attrs={Key.SECONDS: 2.5})).seconds == 2.5
    assert TrialView(finished(0.1, -7.0)).seconds == 0.0, "clocks are set back"
    assert TrialView(finished(0.1, 0.0)).cost("seconds") == LEAST_SECONDS
    assert TrialView(finished(0.1, 7.0, state=TrialState.PRUNED)).cost("seconds") is None
    assert TrialView(finished(0.1, 7.0, state=TrialState.FAIL, value=None)).cost("seconds") == 7.0
    for metric, cost in ((3, 3.0), (0, None), (-1.0, None), ("3", None), (True, None), (None, None)):
        assert TrialView(finished(0.1, 7.0, user_attrs={"m": metric})).cost("m") == cost
    running = study_trial()
    assert TrialView(running).seconds is None


def study_trial() -> FrozenTrial:
    study = optuna.create_study()
    study.ask()
    return study.trials[0]


@pytest.mark.parametrize("given", [None, 0.0, -2.0, "much"])
def test_a_trial_without_its_cost_is_one_clear_error(given: Any) -> None:
    study = optuna.create_study(sampler=LazySampler(seed=0, cost="dollars"))

    def without(trial: optuna.Trial) -> float:
        if given is not None:
            trial.set_user_attr("dollars", given)
        return trial.suggest_float("x", 0, 1)

    with pytest.raises(ValueError, match="trial 0: cost='dollars' needs a positive number"):
        study.optimize(without, n_trials=3)
    assert study.trials[0].state == TrialState.COMPLETE, "what was evaluated is not lost"


def test_trials_of_others_may_lack_the_cost() -> None:
    study = optuna.create_study(sampler=LazySampler(seed=0, cost="dollars"))
    study.add_trials([finished(i / 10, 1.0) for i in range(8)])
    study.optimize(objective, n_trials=3)
    assert len(study.trials) == 11
