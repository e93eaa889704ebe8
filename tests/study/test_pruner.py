"""LazyPruner in Optuna studies and in runs of optimize()."""

import math
import pickle
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import TrialState

import lazybo
from lazybo import LazyPruner, LazySampler, optimize
from lazybo.study.attributes import Key
from lazybo.study.pruner import HALVED, is_behind

optuna.logging.set_verbosity(optuna.logging.ERROR)
EPOCHS = 20
SPACE = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


def end_of(params: dict[str, Any]) -> float:
    return float(0.2 + (params["x"] - 0.3) ** 2 + (params["y"] - 0.6) ** 2)


def loss(params: dict[str, Any], epoch: int) -> float:
    """Falls to `end_of` from 1 more."""
    return end_of(params) + math.exp(-0.25 * epoch) - math.exp(-0.25 * EPOCHS)


def train(params: dict[str, Any], trial: Any) -> float:
    for epoch in range(1, EPOCHS + 1):
        trial.report(loss(params, epoch), epoch)
        if epoch < EPOCHS and trial.should_prune():
            raise optuna.TrialPruned
    return loss(params, EPOCHS)


def objective(trial: optuna.Trial) -> float:
    return train({"x": trial.suggest_float("x", 0, 1), "y": trial.suggest_float("y", 0, 1)}, trial)


def epochs(study: optuna.Study) -> int:
    return sum(len(trial.intermediate_values) for trial in study.trials)


@pytest.mark.parametrize("sampler", [LazySampler(seed=0), TPESampler(seed=0), RandomSampler(seed=0)])
def test_it_saves_epochs_with_any_sampler_and_stops_no_winner(sampler: BaseSampler) -> None:
    study = optuna.create_study(sampler=sampler, pruner=LazyPruner())
    study.optimize(objective, n_trials=25)
    states = [trial.state for trial in study.trials]
    assert set(states) == {TrialState.COMPLETE, TrialState.PRUNED}
    assert epochs(study) < 0.8 * 25 * EPOCHS
    stopped = [end_of(trial.params) for trial in study.trials if trial.state == TrialState.PRUNED]
    assert study.best_value < min(stopped) + 1e-3, "the best of all was not stopped"


def test_a_training_without_parameters_is_not_stopped() -> None:
    study = optuna.create_study(pruner=LazyPruner())
    study.optimize(lambda trial: train({"x": 0.1 * trial.number, "y": 0.0}, trial), n_trials=5)
    assert all(trial.state == TrialState.COMPLETE for trial in study.trials)


def steps_of(*configurations: tuple[float, float]) -> list[int | None]:
    """The last steps of trainings with these parameters, in this order."""
    study = optuna.create_study(pruner=LazyPruner())
    for x, y in configurations:
        study.enqueue_trial({"x": x, "y": y})
    study.optimize(objective, n_trials=len(configurations))
    return [trial.last_step for trial in study.trials]


def test_the_first_training_is_finished_and_the_next_ones_are_compared_with_it() -> None:
    bad, good, best = (0.9, 0.9), (0.4, 0.6), (0.3, 0.6)
    assert steps_of(good, bad, bad) == [EPOCHS, 2, 2], "at the first rung"
    assert steps_of(bad, good, best) == [EPOCHS] * 3, "each is better than all before it"


def ended(values: list[float], **given: Any) -> optuna.trial.FrozenTrial:
    """A trial that has ended with a curve; stopped, unless it has a value."""
    state = TrialState.COMPLETE if "value" in given else TrialState.PRUNED
    given = {"state": state, "intermediate_values": dict(enumerate(values, 1)), **given}
    return optuna.trial.create_trial(**given)


def test_who_is_compared_with_whom() -> None:
    whole = ended([1.0] * EPOCHS, value=1.0)
    worse, at_no_rung = ended([2.0] * 2, state=TrialState.RUNNING), ended([2.0] * 3, state=TrialState.RUNNING)
    assert is_behind([whole], worse, "minimize")
    assert not is_behind([whole], worse, "maximize")
    assert not is_behind([whole], at_no_rung, "minimize")
    assert not is_behind([], worse, "minimize"), "nobody has ended"
    others = [ended([3.0] * 2)] * 4
    assert is_behind([whole, *others[1:]], worse, "minimize"), "one of five goes on"
    assert not is_behind([whole, *others], worse, "minimize"), "two of six go on"
    infeasible = ended([1.0] * EPOCHS, value=1.0, constraints={"size": 1.0})
    assert not is_behind([infeasible], worse, "minimize")
    failed = ended([1.0] * EPOCHS, state=TrialState.FAIL)
    assert not is_behind([failed], worse, "minimize")
    assert not is_behind([whole, *[ended([1.0] * 2)] * (HALVED - 1)], worse, "minimize"), "the model knows enough"
    paused = ended([3.0] * 2, state=TrialState.WAITING, user_attrs={Key.PAUSED: 2})
    assert not is_behind([whole, paused], worse, "minimize"), "the bracket compares these"


@given(st.integers(2, 3000))
def test_long_trainings_are_first_compared_after_a_share_of_their_steps(steps: int) -> None:
    whole = ended([1.0] * steps, value=1.0)
    compared = [
        n for n in range(1, steps) if is_behind([whole], ended([2.0] * n, state=TrialState.RUNNING), "minimize")
    ]
    assert len(compared) <= 3
    assert all(max(2, steps // 30) <= n for n in compared)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_value_that_is_not_finite_stops_a_training(bad: float) -> None:
    study = optuna.create_study(pruner=LazyPruner())
    trial = study.ask()
    assert not trial.should_prune(), "nothing was reported"
    trial.report(bad, 1)
    assert trial.should_prune()


def test_a_resumed_study_stops_at_the_same_steps(tmp_path: Path) -> None:
    """Each part of the study is run by a new sampler and a new pruner, as after a kill."""

    def run(storage: str | None, trials: int) -> optuna.Study:
        study = optuna.create_study(
            storage=storage, study_name="s", load_if_exists=True, sampler=LazySampler(seed=2), pruner=LazyPruner()
        )
        study.optimize(objective, n_trials=trials)
        return study

    for part in (4, 7, 5):
        resumed = run(f"sqlite:///{tmp_path}/s.db", part)
    whole = run(None, 16)
    assert any(trial.state == TrialState.PRUNED for trial in whole.trials)
    for left, right in zip(whole.trials, resumed.trials, strict=True):
        assert left.params == right.params, "to the last bit"
        assert left.last_step == right.last_step


def test_it_says_what_to_use_instead_of_arguments_that_it_does_not_have() -> None:
    with pytest.raises(TypeError, match="has no argument max_steps=; use max_step=, the last step"):
        LazyPruner(max_steps=15)  # type: ignore[call-arg]


def test_it_can_be_pickled_and_refuses_wrong_steps() -> None:
    assert pickle.loads(pickle.dumps(LazyPruner(max_step=5))).max_step == 5
    assert lazybo.LazyPruner is LazyPruner
    with pytest.raises(ValueError, match="max_step must be a whole number"):
        LazyPruner(max_step=0)


@pytest.mark.parametrize("executor", [None, "threads", "processes"])
def test_in_a_run_of_optimize(executor: str | None) -> None:
    parallel = {} if executor is None else {"executor": executor, "n_parallel": 2}
    study = optimize(train, SPACE, n_trials=20, seed=0, pruner=LazyPruner(), progress=False, **parallel)  # type: ignore[arg-type]
    assert len(study.trials) == 20
    assert any(trial.state == TrialState.PRUNED for trial in study.trials)
    assert study.best_value < 0.3
