"""Generator functions as objectives: steps, checkpoints, pausing, resuming, and kills with real processes."""

import json
import math
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.pruners import BasePruner, NopPruner
from optuna.trial import FrozenTrial, TrialState

import lazybo
from benchmarks import pause
from lazybo.study import StudyView, TrialView

SPACE = {"x": (-1.0, 1.0)}
STEPS = 6
run = partial(lazybo.optimize, progress=False, seed=0)


class StopAt(BasePruner):
    """Stop the trials with these numbers at a step; each once."""

    def __init__(self, numbers: set[int], step: int = 3) -> None:
        self.numbers, self.step = set(numbers), step

    def prune(self, _: optuna.Study, trial: FrozenTrial) -> bool:
        stop = trial.number in self.numbers and trial.last_step == self.step
        self.numbers -= {trial.number} if stop else set()
        return stop


class Training:
    """x² + 1 / epoch. It keeps its epoch in its folder, and every epoch that it ran in a log."""

    def __init__(self, log: Path, steps: int = STEPS, every: int = 1) -> None:
        self.log, self.steps, self.every = log, steps, every

    def __call__(self, params: dict[str, float], checkpoint: Path) -> Iterator[float]:
        state = checkpoint / "epoch"
        first = int(state.read_text()) + 1 if state.exists() else 1
        for epoch in range(first, self.steps + 1):
            with self.log.open("a") as file:
                file.write(f"{params['x']!r} {epoch}\n")
            if epoch % self.every == 0:
                state.write_text(str(epoch))
            yield params["x"] ** 2 + 1 / epoch

    def epochs(self) -> Counter[str]:
        return Counter(self.log.read_text().splitlines())


def curve(x: float, steps: int) -> dict[int, float]:
    return {epoch: x**2 + 1 / epoch for epoch in range(1, steps + 1)}


# -------------------------------------------------------------------- generators


@pytest.mark.parametrize("executor", ["serial", "threads", "processes"], indirect=True)
def test_each_yielded_value_is_a_step(executor: str, tmp_path: Path) -> None:
    training = Training(tmp_path / "log")
    workers = 1 if executor == "serial" else 2
    study = run(training, SPACE, n_trials=4, executor=executor, n_parallel=workers, pruner=NopPruner())
    for trial in study.trials:
        assert trial.state == TrialState.COMPLETE
        assert trial.intermediate_values == curve(trial.params["x"], STEPS)
        assert trial.value == trial.intermediate_values[STEPS]
    assert set(training.epochs().values()) == {1}


def test_a_generator_may_return_its_value_and_metrics() -> None:
    def train(x: float) -> Iterator[Any]:
        yield {"value": 3.0, "loss": 9.0}
        yield 2.0
        return {"value": x, "size": 5}

    study = run(train, SPACE, n_trials=2)
    assert [trial.value for trial in study.trials] == [trial.params["x"] for trial in study.trials]
    assert study.trials[0].intermediate_values == {1: 3.0, 2: 2.0}
    assert study.trials[0].user_attrs == {"size": 5}


def test_a_generator_may_say_which_step_it_is_at() -> None:
    def train(x: float) -> Iterator[tuple[int, float]]:
        yield 10, x
        yield 20, x + 1

    study = run(train, SPACE, n_trials=1, max_steps=20)
    assert list(study.trials[0].intermediate_values) == [10, 20]


def yields(*values: Any) -> Callable[..., Iterator[Any]]:
    def train(x: float) -> Iterator[Any]:  # noqa: ARG001
        yield from values

    return train


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((), "yielded nothing"),
        ((1.0, "2"), "must yield a number after each step.*not '2'"),
        ((None,), "must yield a number"),
        (({"loss": 1.0},), "must yield a number"),
        (((1.0, 2.0),), "a pair of a step .* not \\(1.0, 2.0\\)"),
        (((1, 2.0, 3.0),), "a pair of a step"),
        (((0, 2.0),), "a pair of a step"),
        ((1.0, 2.0, 3.0, 4.0), "a value for step 4, but max_steps=3"),
    ],
)
def test_what_is_no_report_ends_the_run(values: tuple[Any, ...], message: str) -> None:
    with pytest.raises(lazybo.RunFailed, match=message) as caught:
        run(yields(*values), SPACE, n_trials=5, max_steps=3)
    assert [trial.state for trial in caught.value.study.trials] == [TrialState.FAIL]


def plain(x: float) -> float:
    return x


def reporting(x: float, trial: Any) -> float:  # noqa: ARG001
    return x


def with_checkpoint(x: float, checkpoint: Path) -> float:  # noqa: ARG001
    return x


async def asynchronous(x: float) -> Any:
    yield x


@pytest.mark.parametrize(
    ("objective", "options", "message"),
    [
        (plain, {"max_steps": 5}, "max_steps is for objectives that report"),
        (reporting, {"max_steps": 0}, "max_steps"),
        (with_checkpoint, {}, "only a generator function gets a checkpoint"),
        (yields(1.0), {"checkpoints": "somewhere"}, "checkpoints is for objectives that have some"),
        (plain, {"checkpoints": 5}, "the path of a folder"),
        (lazybo.kfold(yields(1.0)), {}, "cannot be generator functions"),
        (asynchronous, {}, "async function"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(
    objective: Any, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        run(objective, SPACE, n_trials=2, storage=tmp_path / "s.db", **options)
    assert not (tmp_path / "s.db").exists()


def test_reports_and_yields_exclude_each_other() -> None:
    def train(x: float, trial: Any) -> Iterator[float]:
        trial.report(x, 1)
        yield x

    with pytest.raises(lazybo.RunFailed, match="yield the value of each step"):
        run(train, SPACE, n_trials=1)


def test_max_steps_makes_the_model_of_curves_the_pruner() -> None:
    study = run(reporting, SPACE, n_trials=1, max_steps=5)
    assert isinstance(study.pruner, lazybo.LazyPruner)
    assert isinstance(run(reporting, SPACE, n_trials=1, max_steps=5, pruner=NopPruner()).pruner, NopPruner)


# ----------------------------------------------------------------- pause, resume


@pytest.mark.parametrize(
    ("executor", "file"),
    [("serial", "s.db"), ("threads", "journal.log"), ("processes", "s.db")],
    indirect=["executor"],
)
def test_a_training_that_is_stopped_is_paused_and_can_be_resumed_by_hand(
    executor: str, file: str, tmp_path: Path
) -> None:
    training = Training(tmp_path / "log")
    if file == "journal.log":
        (tmp_path / file).touch()
        backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / file))
        optuna.create_study(study_name="lazybo", storage=optuna.storages.JournalStorage(backend))
    call = partial(run, training, SPACE, n_trials=5, max_steps=STEPS, executor=executor, storage=tmp_path / file)
    seen = []
    study = call(pruner=StopAt({1, 3}), callbacks=[lambda study, trial: seen.append((trial.number, trial.state))])
    assert [TrialView(trial).is_paused for trial in study.trials] == [False, True, False, True, False]
    for trial in StudyView.of(study).paused:
        assert trial.reported == curve(trial.params["x"], 3)
        assert (trial.frozen.user_attrs["lazybo:paused"], trial.values) == (3, [])
        assert (trial.number, TrialState.WAITING) in seen

    study = call(pruner=NopPruner())
    assert [trial.number for trial in StudyView.of(study).paused] == [1, 3], "they stay paused"
    with pytest.raises(ValueError, match="trial 0 is not paused; paused trials: 1, 3"):
        lazybo.resume(study, 3, 0)
    assert len(StudyView.of(study).paused) == 2

    lazybo.resume(study, 3)
    study = call(pruner=StopAt({3}, 5))
    assert [trial.number for trial in StudyView.of(study).paused] == [1]
    assert study.trials[3].state == TrialState.COMPLETE, "it is not paused again"
    lazybo.resume(study)
    study = call(pruner=NopPruner())
    for trial in study.trials:
        assert trial.state == TrialState.COMPLETE
        assert trial.intermediate_values == curve(trial.params["x"], STEPS)
    assert set(training.epochs().values()) == {1}, "no epoch ran twice"
    assert len(study.trials) == 5


def test_a_diverged_training_is_pruned_for_good_and_one_at_its_last_step_completes(tmp_path: Path) -> None:
    def train(x: float, checkpoint: Path) -> Iterator[float]:  # noqa: ARG001
        yield 1.0
        yield math.nan
        yield 1.0

    pruner = StopAt({0}, 2)
    assert run(train, SPACE, n_trials=1, max_steps=3, pruner=pruner).trials[0].state == TrialState.PRUNED
    pruner = StopAt({0}, STEPS)
    study = run(Training(tmp_path / "log"), SPACE, n_trials=1, max_steps=STEPS, pruner=pruner)
    assert study.trials[0].state == TrialState.COMPLETE


def test_without_a_checkpoint_a_stop_is_for_good() -> None:
    study = run(yields(3.0, 2.0, 1.0), SPACE, n_trials=2, max_steps=3, pruner=StopAt({1}, 2))
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE, TrialState.PRUNED]


def test_a_training_may_save_when_it_is_told_to_stop(tmp_path: Path) -> None:
    def train(x: float, checkpoint: Path) -> Iterator[float]:
        state, epoch = checkpoint / "epoch", 0
        epoch = int(state.read_text()) if state.exists() else 0
        starts.append(epoch)
        try:
            while epoch < STEPS:
                epoch += 1
                yield x + 1 / epoch
        finally:
            state.write_text(str(epoch))

    starts: list[int] = []
    call = partial(run, train, SPACE, n_trials=1, max_steps=STEPS, storage=tmp_path / "s.db")
    lazybo.resume(call(pruner=StopAt({0})))
    study = call()
    assert starts == [0, 3]
    assert list(study.trials[0].intermediate_values) == [1, 2, 3, 4, 5, 6]


def test_the_time_of_all_parts_of_a_training_counts(tmp_path: Path) -> None:
    training, storage = Training(tmp_path / "log"), tmp_path / "s.db"
    sampler = lazybo.LazySampler(cost="seconds")
    options: dict[str, Any] = {"n_trials": 2, "max_steps": STEPS, "storage": storage, "sampler": sampler}
    study = run(training, SPACE, pruner=StopAt({1}), **options)
    paused = study.trials[1]
    assert TrialView(paused).is_paused
    assert paused.system_attrs["lazybo:seconds"] > 0
    study._storage.set_trial_system_attr(paused._trial_id, "lazybo:seconds", 1e6)
    lazybo.resume(study, 1)
    ended = run(training, SPACE, pruner=StopAt(set()), **options).trials[1]
    assert ended.state == TrialState.COMPLETE
    assert 1e6 < ended.system_attrs["lazybo:seconds"] < 2e6


def test_the_model_pauses_what_promises_little_and_resumes_what_promises_more() -> None:
    def train(params: dict[str, float], checkpoint: Path) -> Iterator[float]:
        state = checkpoint / "epoch"
        first = int(state.read_text()) + 1 if state.exists() else 1
        starts.append(first)
        noise = random.Random(repr((params, first)))
        for epoch in range(first, 13):
            state.write_text(str(epoch))
            slow = math.exp(-epoch / (2 + 3 * params["x"]))
            yield (params["x"] - 2) ** 2 + 3 * slow + 0.05 * noise.gauss()

    starts: list[int] = []
    space = {"x": (0.0, 4.0), "y": (0.0, 1.0)}
    study = run(train, space, n_trials=20, max_steps=12)
    trials = study.trials
    assert len(trials) == 20
    assert {trial.state for trial in trials} == {TrialState.COMPLETE, TrialState.WAITING}
    epochs = sum(len(trial.intermediate_values) for trial in trials)
    assert epochs < 0.95 * 20 * 12
    assert len(starts) > 20, "some were resumed"
    assert sum(first == 1 for first in starts) == 20, "from where they were"
    assert all(list(t.intermediate_values) == [*range(1, len(t.intermediate_values) + 1)] for t in trials)
    assert study.best_value < 0.8, "the least is about 0.6"


def test_a_checkpoint_is_never_ahead_of_the_study(tmp_path: Path) -> None:
    """Else the values of some steps would be missing if the driver were killed and the training continued."""
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/s.db")
    copied: list[int] = []

    class Looking(Training):
        def __call__(self, params: dict[str, float], checkpoint: Path) -> Iterator[float]:
            for value in super().__call__(params, checkpoint):
                yield value
                copied.append(json.loads((checkpoint.parent / "saved.json").read_text())["step"])
                (running,) = storage.get_all_trials(1, states=(TrialState.RUNNING,))
                assert set(range(1, copied[-1] + 1)) <= running.intermediate_values.keys()

    training = Looking(tmp_path / "log")
    study = run(training, SPACE, n_trials=2, storage=storage, executor="serial", pruner=NopPruner())
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 2
    assert copied == [*range(1, STEPS + 1)] * 2


# ------------------------------------------------------------------------- kills


def test_a_training_whose_worker_dies_continues_from_its_last_checkpoint(tmp_path: Path) -> None:
    training = Training(tmp_path / "log", every=2)

    def train(params: dict[str, float], checkpoint: Path) -> Iterator[float]:
        for value in training(params, checkpoint):
            yield value
            for epoch in (3, 5):
                killed = tmp_path / f"killed {epoch}"
                if value == curve(params["x"], STEPS)[epoch] and not killed.exists():
                    killed.touch()
                    os._exit(1)

    study = run(
        train,
        SPACE,
        n_trials=1,
        executor="processes",
        n_parallel=1,
        limits=lazybo.Limits(retries=1),
        pruner=NopPruner(),
    )
    (trial,) = study.trials
    assert trial.state == TrialState.COMPLETE, "it got further each time: two deaths are not too many"
    assert trial.system_attrs["lazybo:attempts"] == 1
    assert trial.intermediate_values == curve(trial.params["x"], STEPS)
    epochs = {int(line.split()[1]): times for line, times in training.epochs().items()}
    assert epochs == {1: 1, 2: 1, 3: 2, 4: 1, 5: 2, 6: 1}, "its checkpoints are of epochs 2, 4 and 6"


def test_a_training_that_never_gets_further_fails_in_the_end() -> None:
    def train(params: dict[str, float], checkpoint: Path) -> Iterator[float]:  # noqa: ARG001
        if not (checkpoint / "state").exists():
            (checkpoint / "state").write_text("1")
            yield 1.0
        os._exit(1)

    with pytest.raises(lazybo.RunFailed, match="died, 2 times") as raised:
        run(
            train,
            SPACE,
            n_trials=1,
            executor="processes",
            n_parallel=1,
            limits=lazybo.Limits(retries=1, max_failures=2),
        )
    assert raised.value.study.trials[0].state == TrialState.FAIL


def test_drivers_and_workers_are_killed_and_no_epoch_is_lost_or_counted_twice(tmp_path: Path) -> None:
    setting = pause.Setting(str(tmp_path), workers=2, trials=5, epochs=8)
    report = pause.kill_and_check(setting, 2, random.Random(0))
    assert report.is_good, report
    assert report.counts["epochs in the study"] > 0
