"""Which trial of a study to use, whoever sampled it."""

import json
import math
import warnings
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial

import lazybo
from lazybo import LazySampler, Optimizer, Prediction, Recommendation, optimize
from lazybo.report.facts import facts_of
from lazybo.report.html import page_of
from lazybo.report.predictions import Advice, advise
from lazybo.study import StudyView, TrialView

optuna.logging.set_verbosity(optuna.logging.ERROR)

SPACE = {"x": FloatDistribution(-5, 5), "y": FloatDistribution(-5, 5)}
LINE = {"x": FloatDistribution(-5, 5)}


def noisy_bowl(rng: np.random.Generator, params: dict[str, Any]) -> float:
    return float((params["x"] - 1) ** 2 + (params["y"] + 2) ** 2 + 3.0 * rng.standard_normal())


def add(study: optuna.Study, value: float | None, variance: float = 0.0, **options: Any) -> None:
    options = {"distributions": LINE, "system_attrs": {"lazybo:variance": variance}} | options
    study.add_trial(create_trial(value=value, **options))


def lucky(direction: str = "minimize", at: float = 4.0) -> optuna.Study:
    """A parabola with known noise; the last of 22 trials was lucky."""
    study, sign = optuna.create_study(direction=direction), 1.0 if direction == "minimize" else -1.0
    for x in np.linspace(-5, 5, 21).tolist():
        add(study, sign * (x**2 + 0.5 * math.cos(9 * x)), 1.0, params={"x": x})
    add(study, sign * -2.0, 9.0, params={"x": at})
    return study


# ---------------------------------------------------------------- any study


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_it_is_what_the_optimiser_itself_recommends(direction: Any) -> None:
    rng, sign = np.random.default_rng(1), 1.0 if direction == "minimize" else -1.0
    study = optimize(
        lambda params: sign * noisy_bowl(rng, params), SPACE, n_trials=25, seed=4, direction=direction, progress=False
    )
    optimizer = Optimizer(SPACE, seed=4, direction=direction)
    for trial in study.trials:
        optimizer.tell(optimizer.ask(), trial.value)
    assert lazybo.recommend(study) == optimizer.recommend()
    assert lazybo.recommend(study).params == study.trials[optimizer.recommend().number or 0].params


def test_samplers_of_others_and_our_own_are_served_alike() -> None:
    def objective(trial: optuna.Trial) -> float:
        kind = trial.suggest_categorical("kind", ["a", "b"])
        depth = trial.suggest_int("depth", 1, 4) if kind == "a" else 2
        return abs(trial.suggest_float("x", 0.1, 10, log=True) - 1) + 0.1 * depth + 0.01 * trial.number % 3

    for sampler in (optuna.samplers.TPESampler(seed=0), optuna.samplers.RandomSampler(seed=0), LazySampler(seed=0)):
        study = optuna.create_study(sampler=sampler, direction="minimize")
        study.optimize(objective, n_trials=25)
        before = [trial.params for trial in study.trials]
        found = lazybo.recommend(study)
        assert found.number is not None
        assert found.params == study.trials[found.number].params
        same = [trial.value for trial in study.trials if trial.params == found.params]
        assert found.measured == pytest.approx(np.mean(same))
        assert found.low <= found.value <= found.high
        assert [trial.params for trial in study.trials] == before
        assert found == lazybo.recommend(study)


def test_nobody_talks_about_luck_once_repeats_have_agreed() -> None:
    def rugged(x: float) -> float:
        return x * x + 0.2 * math.sin(60 * x) ** 2 + 0.003 * math.cos(900 * x)

    study, points = optuna.create_study(), np.random.default_rng(6).uniform(0, 1, 14).tolist()
    best = min(points, key=rugged) + 1e-4
    for x in [*points, points[3], points[3], best]:
        add(study, rugged(x), params={"x": x}, distributions={"x": FloatDistribution(0, 1)})
    assert advise(StudyView.of(study)).reason is None
    assert lazybo.recommend(study).number == study.best_trial.number
    content = facts_of(study)
    assert "luck" not in page_of(content)
    assert next(each.title for each in content.findings if each.check == "noise") == "No noise"


def test_what_cannot_be_recommended_is_one_clear_error() -> None:
    with pytest.raises(ValueError, match="has no completed trial yet"):
        lazybo.recommend(optuna.create_study())
    with pytest.raises(ValueError, match="has 2 objectives, and this needs one"):
        lazybo.recommend(optuna.create_study(directions=["minimize", "minimize"]))
    with pytest.raises(ValueError, match=r"study must be an Optuna study, not 'study\.db'"):
        lazybo.recommend("study.db")  # type: ignore[arg-type]
    empty = optuna.create_study(study_name="empty")
    empty.add_trial(create_trial(value=1.0))
    with pytest.raises(ValueError, match="trials of the study 'empty' have no parameters"):
        lazybo.recommend(empty)
    infeasible = optuna.create_study()
    add(infeasible, 1.0, params={"x": 1.0}, system_attrs={"constraints": [1.0]})
    with pytest.raises(ValueError, match="nothing to recommend in the study"):
        lazybo.recommend(infeasible)


# -------------------------------------------------------------------- reasons


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_the_reason_is_luck_where_the_model_believes_it(direction: str) -> None:
    study = lucky(direction)
    advice = advise(StudyView.of(study))
    assert study.best_trial.number == 21
    assert advice.differs
    assert advice.recommendation.number != 21
    assert advice.expected is not None
    sign = "" if direction == "minimize" else "-"
    measured = "-2" if direction == "minimize" else "2"
    expected = f"{advice.expected.value:.4g}"
    assert advice.reason == (
        f"trial 21 measured {measured}, but the model expects {expected} there: probably luck; "
        f"use trial {advice.recommendation.number}"
    )
    assert expected.startswith(sign)


def test_close_values_are_shown_with_equally_many_digits() -> None:
    best = TrialView(optuna.trial.create_trial(value=53.98))
    ours = Recommendation({"x": 1.0}, 53.99, 53.9, 54.1, 53.99, 1, 7)
    reason = Advice(ours, best, best, Prediction(54.0004, 53.9, 54.1), maximize=False).reason
    assert reason is not None
    assert "measured 53.98, but the model expects 54.00 there: perhaps luck" in reason


def test_looking_writes_nothing() -> None:
    study = optuna.create_study(sampler=LazySampler(seed=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=8)
    storage = study._storage
    before = json.dumps([storage.get_study_system_attrs(study._study_id), *[t.system_attrs for t in study.trials]])
    lazybo.recommend(study)
    after = json.dumps([storage.get_study_system_attrs(study._study_id), *[t.system_attrs for t in study.trials]])
    assert before == after


# ------------------------------------------------------------- known constraints


def test_trials_that_a_known_constraint_forbids_are_not_recommended_with_it() -> None:
    def feasible(params: dict[str, Any]) -> bool:
        return bool(params["x"] >= 1)

    study = optuna.create_study()
    for x in np.linspace(-5, 5, 21).tolist():
        add(study, x**2, params={"x": x})
    study.ask(LINE)  # runs: it is asked for nothing
    study.add_trial(create_trial(state=TrialState.FAIL))
    assert lazybo.recommend(study).params["x"] == 0.0, "the study does not know the constraint"
    found = lazybo.recommend(study, feasible=feasible)
    assert (found.params["x"], found.measured) == (1.0, 1.0)
    with pytest.raises(ValueError, match="feasible is false for all of its completed trials"):
        lazybo.recommend(study, feasible=lambda _: False)
    with pytest.raises(ValueError, match="feasible must be a function"):
        lazybo.recommend(study, feasible="x >= 1")  # type: ignore[arg-type]
