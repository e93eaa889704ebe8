"""What a session writes: every storage gets the same study, also when others write to it."""

import itertools
import multiprocessing
import os
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial

from lazybo import Space, optimize
from lazybo.search import Options
from lazybo.study.attributes import Key
from lazybo.study.databases import database_of
from lazybo.study.definition import Definition
from lazybo.study.journal import WholeLines
from lazybo.study.session import Session
from lazybo.study.store import Store
from lazybo.study.trial import Result, TrialView

SPACE: dict[str, BaseDistribution] = {
    "lr": FloatDistribution(1e-5, 1e-1, log=True),
    "layers": IntDistribution(1, 9, step=2),
    "kind": CategoricalDistribution(["a", None, 3, True]),
}
PARAMS = {"lr": 0.003, "layers": 5, "kind": None}


@pytest.fixture(params=["memory", "journal", "plain journal", "sqlite"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> BaseStorage:
    if request.param == "memory":
        return InMemoryStorage()
    if request.param in ("journal", "plain journal"):
        plain = JournalStorage(JournalFileBackend(str(tmp_path / "journal")))
        return Store.open(plain) if request.param == "journal" else plain
    return Store.open(tmp_path / "s.db")


@pytest.fixture
def study(storage: BaseStorage) -> optuna.Study:
    return optuna.create_study(storage=storage, study_name="s")


@pytest.fixture
def writer(study: optuna.Study) -> Session:
    return Session(study, Space(SPACE), "me")


def never(_: int) -> dict[str, Any]:
    raise AssertionError("nobody came first")


def begin(writer: Session, number: int) -> TrialView:
    entry = writer.begin(number, PARAMS, never)
    assert entry is not None
    return entry


def complete(value: float, **attributes: Any) -> Result:
    return Result(TrialState.COMPLETE, (value,), attributes, variance=0.5)


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_east")
def test_a_trial_that_ends_has_its_value_and_attributes_as_optuna_would_have_written_them(
    writer: Session, study: optuna.Study
) -> None:
    assert writer.finish(begin(writer, 0), complete(1.25, note="x", list=[1, 2]))
    study.enqueue_trial(PARAMS)
    plain = study.ask(SPACE)
    study.tell(plain, 1.25)
    ours, theirs = study.trials
    assert (ours.value, ours.params, ours.distributions, ours.state) == (
        theirs.value,
        theirs.params,
        theirs.distributions,
        theirs.state,
    )
    assert ours.user_attrs == {"note": "x", "list": [1, 2]}
    assert ours.system_attrs["lazybo:variance"] == 0.5
    assert ours.duration is not None
    assert ours.datetime_start is not None
    assert theirs.datetime_start is not None
    assert abs((ours.datetime_start - theirs.datetime_start).total_seconds()) < 600  # the same clock and zone
    assert study.best_trial.number == 0


@pytest.mark.parametrize("state", [TrialState.FAIL, TrialState.PRUNED])
def test_a_trial_may_end_without_a_value(writer: Session, study: optuna.Study, state: TrialState) -> None:
    assert writer.finish(begin(writer, 0), Result(state, reason="a", traceback="…"))
    assert study.trials[0].state == state
    assert study.trials[0].value is None


def test_a_trial_ends_once(writer: Session, study: optuna.Study) -> None:
    entry = begin(writer, 0)
    assert writer.finish(entry, complete(1.0))
    assert not writer.finish(entry, complete(2.0, late=True))
    assert study.trials[0].value == 1.0
    assert "late" not in study.trials[0].user_attrs


def test_where_another_trial_came_first_the_proposal_is_made_again(writer: Session, study: optuna.Study) -> None:
    study.ask(SPACE)
    numbers = []

    def again(number: int) -> dict[str, Any]:
        numbers.append(number)
        return {**PARAMS, "layers": 7}

    entry = writer.begin(0, PARAMS, again)
    assert entry is not None
    assert numbers == [1]
    assert entry.number == 1
    assert study.trials[1].params["layers"] == 7
    assert len(study.trials) == 2


def test_a_trial_repeats_what_the_parameters_repeat_that_it_has_in_the_end(
    writer: Session, study: optuna.Study
) -> None:
    study.ask(SPACE)
    entry = writer.begin(0, PARAMS, lambda _: {**PARAMS, "layers": 7}, repeat_of=lambda params: params["layers"])
    assert entry is not None
    assert entry.repeat_of == 7
    assert study.trials[entry.number].system_attrs["lazybo:repeat"] == 7
    assert study.trials[entry.number].system_attrs["lazybo:driver"] == "me"


@pytest.mark.parametrize("storage", ["memory", "journal", "sqlite"], indirect=True)
def test_no_trial_is_begun_that_is_not_needed_any_more(writer: Session, study: optuna.Study) -> None:
    study.ask(SPACE)
    assert writer.begin(0, PARAMS, lambda _: None) is None
    assert len(study.trials) == 1


def test_a_waiting_trial_is_claimed_once_and_can_be_put_back(writer: Session, study: optuna.Study) -> None:
    entry = begin(writer, 0)
    writer.put_back(entry, 2, "me")
    (trial,) = Store(study).trials()
    assert trial.state == TrialState.WAITING
    assert trial.params == PARAMS
    assert Session(study, Space(SPACE), "you").claim(entry)
    assert not Session(study, Space(SPACE), "they").claim(entry)
    (trial,) = Store(study).trials()
    assert trial.system_attrs[Key.DRIVER] == "you"
    assert trial.system_attrs[Key.ATTEMPTS] == 2
    assert writer.finish(entry, complete(1.0))
    assert not writer.claim(entry)


def test_a_trial_that_another_process_ends_while_it_is_claimed_is_not_run(
    study: optuna.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was suspended while the model chose the missing parameters."""
    writer = Session(study, Space(SPACE), "me", options=Options(seed=0))
    study.enqueue_trial({"lr": 0.003})
    complete_params = writer.model.complete

    def suspended(*arguments: Any) -> dict[str, Any]:
        Store(study).storage.set_trial_state_values(study.trials[0]._trial_id, TrialState.COMPLETE, [1.0])
        return complete_params(*arguments)

    monkeypatch.setattr(writer.model, "complete", suspended)
    assert writer.claim(TrialView(study.trials[0])) is None
    assert [trial.values for trial in study.trials] == [[1.0]]


@pytest.mark.parametrize("storage", ["memory", "journal", "sqlite"], indirect=True)
def test_no_number_is_taken_at_or_beyond_the_end(writer: Session, study: optuna.Study) -> None:
    assert writer.begin(0, PARAMS, lambda _: None, lambda: 0) is None
    assert not study.trials
    assert begin(writer, 0).number == 0
    assert writer.begin(1, PARAMS, lambda _: None, lambda: 1) is None
    assert len(study.trials) == 1


@pytest.mark.parametrize("storage", ["journal", "sqlite"], indirect=True)
def test_several_drivers_share_the_numbers(study: optuna.Study) -> None:
    errors: list[BaseException] = []

    def drive(name: str) -> None:
        try:
            own = Session(study, Space(SPACE), name)
            known = 0
            for _ in range(12):
                entry = own.begin(known, PARAMS, lambda _: PARAMS)
                assert entry is not None
                known = entry.number + 1
                assert own.finish(entry, complete(float(entry.number)))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=drive, args=(f"d{i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    trials = study.trials
    assert [t.number for t in trials] == list(range(36))
    assert [t.value for t in trials] == [float(n) for n in range(36)]


@pytest.fixture
def commits(tmp_path: Path) -> Iterator[tuple[optuna.Study, list[int]]]:
    storage = Store.open(tmp_path / "s.db")
    count: list[int] = []
    engine = database_of(storage).engine  # type: ignore[union-attr]
    study = optuna.create_study(storage=storage)
    sqlalchemy.event.listen(engine, "commit", lambda _: count.append(1))
    yield study, count
    engine.dispose()


def test_a_trial_is_two_commits(commits: tuple[optuna.Study, list[int]]) -> None:
    study, count = commits
    writer = Session(study, Space(SPACE), "me", options=Options(seed=0))
    for i in range(12):
        writer.finish(begin(writer, i), complete(i * 1.0))
    writer.sync()
    (params,) = writer.propose(12)
    count.clear()
    begun = writer.begin(12, params, never)
    assert begun is not None
    assert writer.finish(begun, complete(1.0, a=1, b=2, c=3))
    assert len(count) == 2
    assert "lazybo:model:0" in Store(study).attributes(), "with what was learned"


def test_a_transaction_that_fails_leaves_nothing(commits: tuple[optuna.Study, list[int]]) -> None:
    study, _ = commits
    writer = Session(study, Space(SPACE), "me")
    with pytest.raises(Exception, match=r"NaN|not in|kind"):
        writer.begin(0, {**PARAMS, "kind": "unknown"}, never)
    assert study.trials == []


def locked_actions(study: optuna.Study) -> dict[str, Callable[[], object]]:
    """Everything that a run asks of a study, ready to be done."""
    writer = Session(study, Space(SPACE), "me")
    running, waiting = begin(writer, 0), begin(writer, 1)
    writer.put_back(waiting, 1, "me")
    Store(study).add(create_trial(state=TrialState.WAITING))
    return {
        "begin": lambda: begin(writer, 3),
        "enqueue": lambda: writer.enqueue([{"layers": 7}]),
        "claim": lambda: writer.claim(waiting),
        "put back": lambda: writer.put_back(running, 1, "me"),
        "finish": lambda: writer.finish(running, complete(1.0)),
        "read": lambda: Store(study).trials(),
        "open the study": lambda: Definition().open(Store(study).storage, "s", Space(SPACE), 1),
    }


@pytest.mark.parametrize(
    "action",
    [
        "begin",
        "enqueue",
        "claim",
        "put back",
        "finish",
        "read",
        "open the study",
    ],
)
def test_a_database_that_is_locked_for_a_moment_is_waited_for(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    storage = optuna.storages.RDBStorage(url, engine_kwargs={"connect_args": {"timeout": 0.01}})
    study = optuna.create_study(storage=storage, study_name="s")
    act = locked_actions(study)[action]
    other = sqlite3.connect(tmp_path / "s.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(time, "sleep", lambda _: other.close())
    act()
    assert "trying again" in caplog.text
    assert len(study.trials) == 3 + (action in ("begin", "enqueue"))


class Always(optuna.pruners.BasePruner):
    """Prunes whatever reports."""

    def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:  # noqa: ARG002 (Optuna's)
        return True


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_pruned_trial_that_reported_no_finite_value_has_none_and_the_study_can_be_read(
    value: str, storage: BaseStorage
) -> None:
    def objective(params: dict[str, Any], trial: Any) -> float:
        if trial.number == 1:
            trial.report(1.0, 0)
            trial.report(float(value), 1)
            raise optuna.TrialPruned
        return float(params["lr"])

    study = optimize(objective, SPACE, n_trials=3, storage=storage, pruner=Always(), seed=0)
    database = Store(study).database
    again = optuna.load_study(storage=Store(study).storage if database is None else database.url, study_name="lazybo")
    trials = again.trials
    assert [trial.state.name for trial in trials] == ["COMPLETE", "PRUNED", "COMPLETE"]
    assert trials[1].value is None
    assert str(trials[1].intermediate_values[1]) == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_complete_trial_without_a_finite_value_has_failed(value: float, writer: Session, study: optuna.Study) -> None:
    assert writer.finish(begin(writer, 0), complete(value))
    assert study.trials[0].state == TrialState.FAIL
    assert study.trials[0].value is None
    assert study.trials[0].system_attrs["fail_reason"] == f"the value is {value}"


# ------------------------------------------------- configurations to begin with


def test_initial_configurations_that_a_study_has_are_not_enqueued_again(writer: Session, study: optuna.Study) -> None:
    study.enqueue_trial({"layers": 3, "kind": "a"})
    writer.finish(begin(writer, 1), complete(1.0))
    writer.enqueue([PARAMS, {"kind": "a", "layers": 3}])
    assert len(Store(study).trials()) == 2


def drive(kind: str, folder: Path, number: int, first: list[dict[str, Any]], start: Any) -> None:
    """A process of its own that evaluates initial configurations, at the same moment as others."""

    def objective(params: dict[str, Any]) -> float:
        with (folder / "evaluated").open("a") as file:
            file.write(f"{params['layers']}\n")
        return float(params["lr"])

    path = folder / "study"
    storage = path if kind == "sqlite" else JournalStorage(JournalFileBackend(str(path)))
    start.wait(60)
    optimize(objective, SPACE, n_trials=number, storage=storage, initial=first, progress=False)


# ------------------------------------------------------- kills between writes


def run_until_killed(path: Path, writes: float, evaluate: bool) -> None:
    """A process of its own that is killed after so many writes to its journal, or when it evaluates."""
    whole = WholeLines.append_logs

    def append_logs(self: WholeLines, logs: list[dict[str, Any]]) -> None:
        nonlocal writes
        whole(self, logs)
        writes -= 1
        if writes <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def objective(params: dict[str, Any]) -> float:
        if not evaluate:
            os.kill(os.getpid(), signal.SIGKILL)
        return float(params["lr"])

    WholeLines.append_logs = append_logs  # type: ignore[method-assign]
    optimize(objective, SPACE, n_trials=3, storage=path, initial=[PARAMS], progress=False, seed=0)


def killed(path: Path, writes: float, evaluate: bool = True) -> bool:
    """Whether a process was killed; the lock that it held is given up at once, not after half a minute."""
    process = multiprocessing.get_context("fork").Process(target=run_until_killed, args=(path, writes, evaluate))
    process.start()
    process.join()
    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    return process.exitcode == -signal.SIGKILL


def check_resumed(path: Path) -> None:
    study = optimize(lambda p: p["lr"], SPACE, n_trials=3, storage=path, initial=[PARAMS], progress=False)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 3
    assert study.trials[0].params["layers"] == 3
    assert study.trials[1].params == PARAMS
    assert all(set(trial.params) == set(SPACE) for trial in study.trials)


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[], Path]:
    """Copies of a journal with a study in which a part of a configuration waits."""
    origin = tmp_path / "origin"
    storage = Store.open(JournalStorage(JournalFileBackend(str(origin))))
    study, _ = Definition().open(storage, None, Space(SPACE), 0)
    study.enqueue_trial({"layers": 3})
    numbers = itertools.count()

    def copy() -> Path:
        return Path(shutil.copy(origin, tmp_path / f"{next(numbers)}"))

    return copy


def test_a_journal_is_mended_after_a_kill_between_any_two_writes(fresh: Callable[[], Path]) -> None:
    writes = 1
    while killed(path := fresh(), writes):
        check_resumed(path)
        writes += 1
    assert writes > 15  # the heartbeat, the initial trial; of each trial its claim, its parameters, its end


def test_a_journal_is_mended_after_a_kill_while_a_trial_was_put_back(fresh: Callable[[], Path]) -> None:
    for writes in range(1, 8):
        path = fresh()
        assert killed(path, inf, evaluate=False)
        assert killed(path, writes)
        check_resumed(path)
