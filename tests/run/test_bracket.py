"""The first trials of runs whose trainings can be paused: the bracket by itself, and in runs of optimize()."""

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.pruners import NopPruner
from optuna.trial import FrozenTrial, TrialState, create_trial

import lazybo
from lazybo.run.next_trial import MAX_TRAININGS, MIN_SIZE, Bracket, bracket_for
from lazybo.study import TrialView

STEPS = 10
SPACE = {"x": (-1.0, 1.0)}
run = partial(lazybo.optimize, progress=False, seed=0, max_steps=STEPS)


def train(params: dict[str, float], checkpoint: Path) -> Iterator[float]:
    state = checkpoint / "epoch"
    first = int(state.read_text()) + 1 if state.exists() else 1
    for epoch in range(first, STEPS + 1):
        state.write_text(str(epoch))
        yield params["x"] ** 2 + 1 / epoch


def steps_of(study: optuna.Study) -> list[int]:
    return [len(trial.intermediate_values) for trial in study.trials]


def trial_at(number: int, steps: int, value: float, state: TrialState = TrialState.WAITING) -> TrialView:
    """A trial whose values are all the same; paused if it is waiting."""
    paused = {"lazybo:paused": steps} if state == TrialState.WAITING else {}
    values = dict.fromkeys(range(1, steps + 1), value)
    trial = create_trial(state=state, user_attrs=paused, intermediate_values=values)
    trial.number = number
    return TrialView(trial)


# ------------------------------------------------------------------- the bracket


@given(st.integers(1, 10_000), st.one_of(st.integers(1, 200), st.just(math.inf)))
def test_rungs_grow_and_fewer_and_fewer_trainings_reach_them(max_step: int, n_trials: float) -> None:
    bracket = bracket_for(max_step, n_trials, 1.0)
    if bracket is None:
        assert max_step <= 2 or n_trials < 3 * MIN_SIZE
        return
    assert MIN_SIZE <= bracket.counts[0] <= n_trials / 3
    assert bracket.steps <= MAX_TRAININGS * max_step
    assert all(1 < rung < max_step for rung in bracket.rungs)
    assert list(bracket.rungs) == sorted(set(bracket.rungs))
    assert list(bracket.counts) == sorted(bracket.counts, reverse=True)
    assert len(bracket.counts) == len(bracket.rungs) + 1
    rest = [*bracket.rungs, math.inf]
    assert [bracket.pause_at(step) for step in (0, *bracket.rungs)] == rest


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_best_goes_on_when_enough_have_reached_its_rung(sign: float) -> None:
    bracket = Bracket(32, 8, sign)
    assert bracket.rungs == (2, 4, 11)
    assert bracket.counts == (8, 3, 2, 2)
    assert bracket.steps == 8 * 2 + 3 * 2 + 2 * 7 + 2 * 21
    trials = [trial_at(i, 2, sign * (i - 3) ** 2) for i in range(7)]
    assert bracket.next_of(trials, needed=True) is None
    chosen = bracket.next_of(trials, needed=False)
    assert chosen is trials[3], "no more trials will begin"
    trials.append(trial_at(7, 2, 99.0 * sign))
    assert bracket.next_of(trials, needed=True) is trials[3]
    trials[3] = trial_at(3, 3, 0.0, TrialState.RUNNING)
    assert bracket.next_of(trials, needed=True) is trials[2], "three go on from the first rung"
    trials[2], trials[4] = (trial_at(number, 3, sign, TrialState.RUNNING) for number in (2, 4))
    assert bracket.next_of(trials, needed=True) is None
    trials[2], trials[3], trials[4] = (trial_at(n, 4, value * sign) for n, value in ((2, 1.0), (3, 2.0), (4, 3.0)))
    assert bracket.next_of(trials, needed=True) is trials[2], "by their values at the second rung"


def test_a_training_that_fails_is_replaced_by_the_next_best() -> None:
    bracket = Bracket(32, 4)
    trials = [trial_at(i, 2, float(i)) for i in range(5)]
    trials[0] = trial_at(0, 3, 0.0, TrialState.FAIL)
    trials[1] = trial_at(1, 3, 1.0, TrialState.RUNNING)
    assert bracket.next_of(trials, needed=True) is trials[2]


# ------------------------------------------------------------------------- runs


@pytest.mark.parametrize("workers", [1, 3])
def test_many_begin_and_the_best_two_are_finished(workers: int) -> None:
    executor = "serial" if workers == 1 else "threads"
    order: list[list[int]] = []

    def note(study: optuna.Study, _: FrozenTrial) -> None:
        order.append(steps_of(study))

    study = run(train, SPACE, n_trials=24, executor=executor, n_parallel=workers, callbacks=[note])
    bracket = bracket_for(STEPS, 24, 1.0)
    assert bracket is not None
    finished = [trial for trial in study.trials if trial.state == TrialState.COMPLETE]
    assert all(trial.state == TrialState.COMPLETE or TrialView(trial).is_paused for trial in study.trials)
    assert all(len(trial.intermediate_values) == STEPS for trial in finished)
    assert len(finished) >= 2
    assert order[0] == [bracket.rungs[0]] if workers == 1 else order[0].count(STEPS) == 0
    if workers == 1:
        assert order[bracket.size - 1] == [bracket.rungs[0]] * bracket.size
        first = next(steps for steps in order if STEPS in steps)
        assert len(first) == bracket.size
        ends = [trial.params["x"] ** 2 for trial in study.trials[: bracket.size]]
        assert first.index(STEPS) == ends.index(min(ends)), "the best of them is the first to be finished"


@pytest.mark.parametrize("kind", ["few trials", "another pruner", "two finished"])
def test_when_there_is_none(kind: str) -> None:
    options: dict[str, Any] = {"n_trials": 12}
    if kind == "few trials":
        options["n_trials"] = 3 * MIN_SIZE - 1
    elif kind == "another pruner":
        options["pruner"] = NopPruner()
    else:
        options["initial"] = [{"x": 0.5}, {"x": -0.5}]
    study = run(train, SPACE, **options)
    # Without a bracket the pruner compares the first trainings itself, until one is paused.
    assert steps_of(study)[:2] == [STEPS, 2 if kind == "few trials" else STEPS]


def test_a_resumed_run_continues_the_bracket() -> None:
    storage = optuna.storages.InMemoryStorage()

    def stop_after(count: int, study: optuna.Study, _: FrozenTrial) -> None:
        if len(study.trials) >= count:
            study.stop()

    whole = run(train, SPACE, n_trials=15)
    for count in (2, 4):
        part = run(train, SPACE, n_trials=15, storage=storage, callbacks=[partial(stop_after, count)])
        assert steps_of(part) == [2] * count
    resumed = run(train, SPACE, n_trials=15, storage=storage)
    size = 5
    assert [trial.params for trial in resumed.trials[:size]] == [trial.params for trial in whole.trials[:size]]
    assert [t.number for t in resumed.trials[:size] if t.state == TrialState.COMPLETE] == [
        t.number for t in whole.trials[:size] if t.state == TrialState.COMPLETE
    ]


def test_a_training_that_diverges_is_pruned_and_the_bracket_goes_on() -> None:
    def diverges(params: dict[str, float], checkpoint: Path) -> Iterator[float]:
        for value in train(params, checkpoint):
            yield math.nan if params["x"] > 0 else value

    study = run(diverges, SPACE, n_trials=15)
    for trial in study.trials:
        assert (trial.state == TrialState.PRUNED) == (trial.params["x"] > 0)
    assert sum(trial.state == TrialState.COMPLETE for trial in study.trials) >= 2


def test_patience_waits_for_the_first_training_to_finish() -> None:
    study = run(train, SPACE, n_trials=24, limits=lazybo.Limits(patience=3))
    assert any(trial.state == TrialState.COMPLETE for trial in study.trials)


def test_pauses_do_not_hide_that_every_training_crashes() -> None:
    def crashes(params: dict[str, float], checkpoint: Path) -> Iterator[float]:
        for epoch, value in enumerate(train(params, checkpoint), 1):
            yield value
            if epoch == 2:
                raise OSError("no space left")

    with pytest.raises(lazybo.RunFailed, match="3 evaluations in a row failed"):
        run(crashes, SPACE, n_trials=24, limits=lazybo.Limits(max_failures=3))


def test_what_was_enqueued_is_not_paused_after_its_driver_died() -> None:
    options: dict[str, Any] = {"storage": optuna.storages.InMemoryStorage(), "n_trials": 15, "initial": [{"x": 0.9}]}

    def interrupted(params: dict[str, float], checkpoint: Path) -> Iterator[float]:
        for value in train(params, checkpoint):
            yield value
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(interrupted, SPACE, **options)
    study = run(train, SPACE, **options)
    assert study.trials[0].params == {"x": 0.9}
    assert study.trials[0].state == TrialState.COMPLETE
