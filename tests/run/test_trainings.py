"""Trainings that another tool runs: a study without the tool."""

from pathlib import Path

import numpy as np
import pytest
from optuna.trial import TrialState

from lazybo.run import Trainings


@pytest.mark.parametrize(
    ("values", "kind", "log"),
    [
        ([1e-4, 3e-3, 0.1], "FloatDistribution", True),
        ([0.02, 0.4, 0.5, 0.8], "FloatDistribution", False),
        ([-1.0, 0.0, 3.0], "FloatDistribution", False),
        ([8, 32, 128, 16, 64], "IntDistribution", True),
        ([1, 2, 3], "IntDistribution", False),
        ([1, 0.5], "FloatDistribution", False),
        ([np.int64(3), np.float32(0.5)], "FloatDistribution", False),
        (["relu", "tanh"], "CategoricalDistribution", None),
        (["(8, 8)", 3], "CategoricalDistribution", None),
    ],
)
def test_the_space_is_guessed_from_values(tmp_path: Path, values: list, kind: str, log: bool | None) -> None:
    trainings = Trainings(tmp_path / "s.json", "minimize", 9)
    for i, value in enumerate(values):
        trainings.note(str(i), {"p": value})
    trainings.report("0", 1, 0.5, can_pause=False)
    (trial,) = trainings.study.trials
    assert type(trial.distributions["p"]).__name__ == kind
    assert getattr(trial.distributions["p"], "log", None) == log


def run(trainings: Trainings, keys: list[str], *, can_pause: bool = True) -> dict[str, int]:
    """Run trainings one at a time, as a tool with one worker does; their steps."""
    pending, paused, steps = list(keys), list[str](), dict.fromkeys(keys, 0)
    while pending or paused:
        key = trainings.worth_resuming(pending, paused, [], more=False)
        if key is not None:
            paused.remove(key)
            trainings.resume(key)
            assert trainings.is_resumed(key)
        elif pending:
            key = pending.pop(0)
        else:
            break
        verdict = "continue"
        while verdict == "continue":
            steps[key] += 1
            end = 0.1 + 0.05 * int(key)
            verdict = trainings.report(key, steps[key], end + (1 - end) * 0.5 ** (steps[key] / 4), can_pause=can_pause)
        if verdict == "pause":
            assert trainings.is_paused(key)
            paused.append(key)
    for key in paused:
        trainings.finish(key, TrialState.PRUNED)
    return steps


@pytest.mark.parametrize("can_pause", [True, False])
def test_good_trainings_reach_the_last_step_and_bad_ones_do_not(tmp_path: Path, can_pause: bool) -> None:
    trainings = Trainings(tmp_path / "s.json", "minimize", 20, n_trials=16)
    keys = [str(i) for i in np.random.default_rng(0).permutation(16)]
    for key in keys:
        trainings.note(key, {"rate": 10.0 ** -int(key)})
    steps = run(trainings, keys, can_pause=can_pause)
    assert steps["0"] == 20 or not can_pause
    assert sum(steps.values()) < 16 * 20 * 0.7
    assert max(steps.values()) == 20
    assert trainings.counts()["complete"] == sum(each == 20 for each in steps.values())
    again = Trainings(tmp_path / "s.json", "minimize", 20, n_trials=16)
    assert again.study.trials == trainings.study.trials


def test_a_step_that_is_repeated_after_a_checkpoint_changes_nothing(tmp_path: Path) -> None:
    trainings = Trainings(tmp_path / "s.json", "maximize", 5)
    trainings.note("a", {"x": 1.0})
    for step, value in ((1, 0.1), (2, 0.2), (1, 0.9), (2, 0.8), (3, 0.3)):
        assert trainings.report("a", step, value, can_pause=False) == "continue"
    assert trainings.study.trials[0].intermediate_values == {1: 0.1, 2: 0.2, 3: 0.3}
    trainings.ended("a", 3, 0.3)
    assert trainings.study.trials[0].state == TrialState.COMPLETE


def test_a_training_that_failed_begins_again_as_another_trial(tmp_path: Path) -> None:
    trainings = Trainings(tmp_path / "s.json", "minimize", 5)
    trainings.finish("a", TrialState.FAIL)  # it has never reported
    trainings.note("a", {"x": 1.0})
    trainings.report("a", 1, 0.5, can_pause=False)
    trainings.finish("a", TrialState.FAIL)
    trainings.report("a", 2, 0.4, can_pause=False)
    first, second = trainings.study.trials
    assert (first.state, second.state) == (TrialState.FAIL, TrialState.RUNNING)
    assert second.intermediate_values == {1: 0.5, 2: 0.4}
