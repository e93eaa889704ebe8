"""Intermediate values that are written together."""

import itertools
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

import lazybo
from lazybo.run.reports import BatchedWriter, StudyReporter
from lazybo.study import Store
from tests.run.running import open_trial


class Written:
    """What was written, write by write. ``ended`` trials get nothing."""

    def __init__(self, ended: Collection[int] = ()) -> None:
        self.writes: list[dict[int, dict[int, float]]] = []
        self.ended = ended

    def __call__(self, values: Mapping[int, Mapping[int, float]]) -> Collection[int]:
        self.writes.append({trial_id: dict(steps) for trial_id, steps in values.items()})
        return [trial_id for trial_id in values if trial_id in self.ended]


def test_the_first_value_is_written_at_once_and_those_that_follow_together() -> None:
    written = Written()
    reports = BatchedWriter(written, interval=1000.0)
    for trial_id, step in itertools.product((7, 8), (1, 2, 3)):
        assert reports.add(trial_id, step, 0.5 * step)
    assert written.writes == [{7: {1: 0.5}}]
    reports.flush()
    reports.flush()
    assert written.writes[1:] == [{7: {2: 1.0, 3: 1.5}, 8: {1: 0.5, 2: 1.0, 3: 1.5}}]


def test_values_that_could_not_be_written_are_written_later() -> None:
    written, fails = Written(), [False, True, True]

    def write(values: Mapping[int, Mapping[int, float]]) -> Collection[int]:
        if fails and fails.pop(0):
            raise OSError("the disk is full")
        return written(values)

    reports = BatchedWriter(write, interval=1000.0)
    reports.add(1, 0, 1.0)
    reports.add(1, 1, 2.0)
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            reports.flush()
        reports.add(1, 2, 3.0)
    reports.flush()
    assert written.writes == [{1: {0: 1.0}}, {1: {1: 2.0, 2: 3.0}}]


# ----------------------------------------------------------------- in a study


def statements(study: optuna.Study) -> list[str]:
    """What a database is told from now on."""
    seen: list[str] = []
    engine = study._storage._backend.engine  # type: ignore[attr-defined]
    engine.dispose()
    sqlalchemy.event.listen(engine, "connect", lambda raw, _: raw.set_trace_callback(seen.append))
    return seen


def transactions_with(seen: list[str], text: str) -> int:
    """How many transactions have a statement that begins like this."""
    return sum(text in transaction for transaction in "\n".join(seen).split("COMMIT"))


def reporting(study: optuna.Study) -> tuple[StudyReporter, optuna.Trial]:
    reporter, trial = StudyReporter(study, lambda *_: None), study.ask()
    reporter.open(open_trial(trial))
    return reporter, trial


@pytest.mark.parametrize("pruner", [NopPruner(), MedianPruner(), SuccessiveHalvingPruner(), lazybo.LazyPruner()])
def test_a_hundred_values_are_a_few_transactions(pruner: BasePruner, tmp_path: Path) -> None:
    study = optuna.create_study(storage=Store.open(tmp_path / "s.db"), pruner=pruner)
    for _ in range(2):  # of the first a pruner may read, and of the second it may ask
        reporter, trial = reporting(study)
        seen = statements(study)
        for step in range(100):
            reporter.report(trial.number, step, 1.0 / (step + 1))
        assert reporter.close(trial.number) == {step: 1.0 / (step + 1) for step in range(100)}
        study.tell(trial, 0.0)
        assert transactions_with(seen, "INSERT INTO trial_intermediate_values") <= 20
    for trial in study.trials:
        assert trial.intermediate_values == {step: 1.0 / (step + 1) for step in range(100)}


@pytest.mark.parametrize("kind", ["memory", "sqlite", "journal"])
def test_when_a_trial_has_ended_all_its_values_are_there(kind: str, tmp_path: Path) -> None:
    storage = {
        "memory": lambda: None,
        "sqlite": lambda: tmp_path / "s.db",
        "journal": lambda: JournalStorage(JournalFileBackend(str(tmp_path / "journal"))),
    }[kind]()

    def objective(params: dict[str, float], trial: Any) -> float:
        for step in range(7):
            trial.report(math.nan if step == 3 else params["x"] + step, step)
            if step == 5 and trial.number % 2:
                raise optuna.TrialPruned
        return params["x"]

    study = lazybo.optimize(
        objective, {"x": (0.0, 1.0)}, n_trials=4, storage=storage, pruner=NopPruner(), progress=False, seed=0
    )
    for trial in study.trials:
        steps = 6 if trial.state == TrialState.PRUNED else 7
        assert list(trial.intermediate_values) == list(range(steps))
        assert math.isnan(trial.intermediate_values[3])
        assert trial.intermediate_values[5] == trial.params["x"] + 5


class Watching(BasePruner):
    """A pruner of a user that looks at what all running trials have reported."""

    def __init__(self) -> None:
        self.seen: list[dict[int, float]] = []

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        self.seen.append(dict(study.trials[0].intermediate_values))
        assert trial.intermediate_values == study.trials[trial.number].intermediate_values
        return False


def test_a_pruner_of_a_user_finds_all_values_in_the_study(tmp_path: Path) -> None:
    pruner = Watching()
    study = optuna.create_study(storage=Store.open(tmp_path / "s.db"), pruner=pruner)
    reporter, trial = reporting(study)
    for step in range(4):
        assert not reporter.report(trial.number, step, float(step))
    assert pruner.seen == [{each: float(each) for each in range(step + 1)} for step in range(4)]


def test_a_trial_that_another_process_ended_is_told_to_stop(tmp_path: Path) -> None:
    study = optuna.create_study(storage=Store.open(tmp_path / "s.db"), pruner=NopPruner())
    reporter, trial = reporting(study)
    assert not reporter.report(trial.number, 0, 1.0)
    study.tell(trial, 1.0)
    reporter.report(trial.number, 1, 1.0)
    reporter.flush()
    assert reporter.report(trial.number, 2, 1.0)
    assert study.trials[0].intermediate_values == {0: 1.0}
