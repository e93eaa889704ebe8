"""The end of a run: the final check that repeats contenders, and the limit on the expected gain."""

import time
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

import lazybo
from lazybo import optimize
from lazybo.run.limits import GAIN_KEY, STOPPED_KEY, GainLimit

optuna.logging.set_verbosity(optuna.logging.ERROR)

SPACE = {"x": (-5.0, 5.0), "y": (-5.0, 5.0)}
DEADLINE = 120.0


def bowl(x: float, y: float) -> float:
    return (x - 1) ** 2 + (y + 2) ** 2


class Noisy:
    """A bowl with noise that depends only on how often it was called, so that runs can be compared."""

    def __init__(self, noise: float, sign: float = 1.0) -> None:
        self.noise, self.sign, self.calls = noise, sign, 0

    def __call__(self, x: float, y: float) -> float:
        self.calls += 1
        luck = np.random.default_rng(self.calls).standard_normal()
        return self.sign * (bowl(x, y) + self.noise * float(luck))


def repeats(study: optuna.Study) -> list[FrozenTrial]:
    return [trial for trial in study.trials if "lazybo:repeat" in trial.system_attrs]


def stopped(study: optuna.Study) -> Any:
    return study._storage.get_study_system_attrs(study._study_id).get(STOPPED_KEY)


LIMITS = {each.name for each in fields(lazybo.Limits)}
MODEL = ("deterministic", "kernel", "noise", "cost")


def run(objective: Any, space: Any = SPACE, **options: Any) -> optuna.Study:
    """A run with a final check; limits and options of the model are given by their names."""
    limits = lazybo.Limits(**{"confirm": 8, **{name: options.pop(name) for name in LIMITS & options.keys()}})
    sampler = lazybo.LazySampler(**{name: options.pop(name) for name in MODEL if name in options})
    given = {"n_trials": 30, "seed": 1, "progress": False, "limits": limits, "sampler": sampler, **options}
    return optimize(objective, space, **given)


# ------------------------------------------------------------------ final check


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_the_last_trials_repeat_contenders_and_are_marked(direction: Any) -> None:
    study = run(Noisy(2.0, 1.0 if direction == "minimize" else -1.0), direction=direction)
    assert len(study.trials) == 30
    found = repeats(study)
    assert [trial.number for trial in found] == list(range(22, 30))
    for trial in found:
        first = study.trials[trial.system_attrs["lazybo:repeat"]]
        assert first.number < 22
        assert trial.params == first.params
        assert trial.value != first.value
    assert len(Counter(trial.system_attrs["lazybo:repeat"] for trial in found)) > 1, "not one configuration eight times"
    assert stopped(study) is None
    assert lazybo.recommend(study).number in range(22)


def test_without_noise_one_repeat_ends_the_check_and_the_budget_remains() -> None:
    study = run(bowl, n_trials=40)
    assert len(study.trials) == 33
    (repeated,) = repeats(study)
    assert repeated.value == pytest.approx(study.best_value, abs=1e-3), "the leader, by the model"
    assert stopped(study) == "confirmed"


def test_nothing_is_repeated_unless_it_was_asked_for() -> None:
    assert repeats(run(Noisy(2.0), confirm=0)) == []


@pytest.mark.parametrize("limit", [{"patience": 5}, {"target_value": 2.0}])
def test_a_search_that_ends_early_is_followed_by_the_check(limit: dict[str, Any]) -> None:
    reason = "no_improvement" if "patience" in limit else "target_reached"
    for n_trials in (None, 100):
        study = run(Noisy(2.0), n_trials=n_trials, confirm=4, **limit)
        found = repeats(study)
        assert 1 <= len(found) <= 4
        assert [trial.number for trial in found] == list(range(len(study.trials)))[-len(found) :]
        assert stopped(study) == reason
        assert len(study.trials) < 90


def test_a_running_search_trial_may_still_change_what_is_decided() -> None:
    """The check is decided while the last trial of the search runs: the run waits for it."""

    def slow(x: float, y: float, trial: Any) -> float:
        if trial.number == 11:
            time.sleep(1.0)
        return bowl(x, y) - (100.0 if trial.number == 11 else 0.0)

    study = run(slow, n_trials=20, n_parallel=2, executor="threads")
    assert study.trials[11].value is not None
    assert study.best_trial.number == 11 or repeats(study)[-1].system_attrs["lazybo:repeat"] == 11
    assert stopped(study) == "confirmed"


def test_repeats_that_fail_are_trials_like_others() -> None:
    noisy = Noisy(2.0)

    def objective(x: float, y: float, trial: Any) -> float:
        if trial.number in (22, 24):
            raise RuntimeError("a bad day")
        return noisy(x, y)

    study = run(objective)
    assert len(study.trials) == 30
    assert len(repeats(study)) == 8
    assert [trial.number for trial in study.trials if trial.state == TrialState.FAIL] == [22, 24]
    assert lazybo.recommend(study)


def test_if_every_trial_failed_there_is_nothing_to_check() -> None:
    study = run(lambda x, y: float("nan"), n_trials=12, confirm=4, max_failures=None)
    assert len(study.trials) == 12
    assert repeats(study) == []


def test_only_feasible_configurations_are_repeated() -> None:
    """The bowl's minimum violates the measured constraint; the known one excludes results of the search later."""
    noisy = Noisy(0.5)

    def objective(x: float, y: float) -> dict[str, float]:
        return {"value": noisy(x, y), "memory": x + y}

    space = lazybo.Space(SPACE, feasible=lambda params: params["x"] <= 2.0)
    study = run(objective, space, constraints={"memory": -2.0}, n_trials=36)
    found = repeats(study)
    assert found
    assert all(trial.params["x"] + trial.params["y"] <= -2.0 and trial.params["x"] <= 2.0 for trial in found)
    resumed = lazybo.Optimizer(lazybo.Space(SPACE, feasible=lambda params: params["x"] <= -1.0), seed=0)
    for trial in study.trials:
        resumed.observe(trial.params, trial.value)
    repeat = resumed.confirm()
    assert repeat is None or repeat.params["x"] <= -1.0


def test_a_resumed_run_ends_as_if_it_had_never_stopped() -> None:
    whole = run(Noisy(2.0))
    for stop in (20, 23, 26):
        again, place = Noisy(2.0), optuna.storages.InMemoryStorage()

        def stopping(study: optuna.Study, trial: FrozenTrial, stop: int = stop) -> None:
            if trial.number == stop:
                study.stop()

        run(again, storage=place, callbacks=[stopping])
        parts = run(again, storage=place)
        shown = [(trial.params, trial.value, trial.system_attrs.get("lazybo:repeat")) for trial in parts.trials]
        assert shown == [(trial.params, trial.value, trial.system_attrs.get("lazybo:repeat")) for trial in whole.trials]


PROGRAM = """
import sys, time
import numpy as np
import lazybo

def objective(x, y, trial):
    if trial.number > 14:
        with open(sys.argv[2], "a") as log:
            log.write(f"{trial.number}\\n")
        time.sleep(float(sys.argv[3]))
    luck = np.random.default_rng(trial.number).standard_normal()
    return (x - 1) ** 2 + (y + 2) ** 2 + 2.0 * luck

lazybo.optimize(objective, {"x": (-5.0, 5.0), "y": (-5.0, 5.0)}, n_trials=20, seed=0,
                limits=lazybo.Limits(confirm=6), storage=sys.argv[1], progress=False, n_parallel=2, executor="threads")
"""


# --------------------------------------------------------------- expected gain


def test_a_run_ends_when_little_is_expected_of_it() -> None:
    study = run(bowl, n_trials=None, min_gain=0.5, confirm=0)
    assert stopped(study) == "small_gain"
    assert GainLimit.FIRST <= len(study.trials) < 100
    assert len(study.trials) % GainLimit.EVERY == 0
    kept = study._storage.get_study_system_attrs(study._study_id)[GAIN_KEY]
    assert kept["trials"] == len(study.trials)
    assert 0 <= kept["gain"] < 0.5


def test_the_check_follows_and_a_resumed_run_does_not_search_again(tmp_path: Path) -> None:
    noisy = Noisy(0.5)
    first = run(noisy, n_trials=100, confirm=5, min_gain=50.0, storage=tmp_path / "s.db")
    searched = len(first.trials) - len(repeats(first))
    assert searched == GainLimit.FIRST
    assert stopped(first) == "small_gain"
    calls = noisy.calls
    again = run(noisy, n_trials=100, confirm=5, min_gain=50.0, storage=tmp_path / "s.db")
    assert len(again.trials) == len(first.trials)
    assert noisy.calls == calls
    more = run(noisy, n_trials=40, confirm=5, min_gain=1e-9, storage=tmp_path / "s.db")
    assert len(more.trials) - len(repeats(more)) > searched


@pytest.mark.parametrize(
    "kept", [7, "x", [], {"trials": 20}, {"trials": 20, "gain": "small"}, {"trials": 20, "gain": []}]
)
def test_an_edited_gain_is_one_error_that_names_it(kept: object) -> None:
    study = run(bowl, n_trials=20, confirm=0)
    study._storage.set_study_system_attr(study._study_id, GAIN_KEY, kept)
    with pytest.raises(
        ValueError, match=r"the attribute 'lazybo:gain' of the study 'lazybo' cannot be read: .*; search"
    ):
        run(bowl, n_trials=25, min_gain=0.5, confirm=0, storage=study._storage)
