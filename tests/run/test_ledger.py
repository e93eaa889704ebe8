"""The ledger: both ways of writing a study give the same study, also when others write to it."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from lazybo.run import ledger
from lazybo.run.ledger import DatabaseLedger, Entry, Ledger, Result, StorageLedger, open_ledger
from lazybo.study import retry
from lazybo.study.storage import open_storage

SPACE: dict[str, BaseDistribution] = {
    "lr": FloatDistribution(1e-5, 1e-1, log=True),
    "layers": IntDistribution(1, 9, step=2),
    "kind": CategoricalDistribution(["a", None, 3, True]),
}
PARAMS = {"lr": 0.003, "layers": 5, "kind": None}


@pytest.fixture(params=["memory", "journal", "sqlite"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> BaseStorage:
    if request.param == "memory":
        return InMemoryStorage()
    if request.param == "journal":
        return JournalStorage(JournalFileBackend(str(tmp_path / "journal")))
    return open_storage(tmp_path / "s.db")


@pytest.fixture
def study(storage: BaseStorage) -> optuna.Study:
    return optuna.create_study(storage=storage, study_name="s")


@pytest.fixture
def book(study: optuna.Study) -> Ledger:
    return open_ledger(study, SPACE, "me")


def never(_: int) -> dict[str, Any]:
    raise AssertionError("nobody came first")


def begin(book: Ledger, number: int) -> Entry:
    entry = book.begin(number, PARAMS, never)
    assert entry is not None
    return entry


def complete(value: float, **attributes: Any) -> Result:
    return Result(TrialState.COMPLETE, value, attributes, {"lazybo:variance": 0.5})


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
def test_databases_are_written_in_transactions(book: Ledger) -> None:
    assert isinstance(book, DatabaseLedger)


@pytest.mark.parametrize("storage", ["memory", "journal"], indirect=True)
def test_other_storages_are_written_through_optuna(book: Ledger) -> None:
    assert isinstance(book, StorageLedger)


def test_a_trial_that_begins_is_running_with_all_its_parameters(book: Ledger, study: optuna.Study) -> None:
    entry = begin(book, 0)
    (trial,) = ledger.read(study)
    assert (trial.number, trial._trial_id) == (entry.number, entry.trial_id)
    assert trial.state == TrialState.RUNNING
    assert trial.params == PARAMS
    assert trial.distributions == SPACE
    assert trial.system_attrs[ledger.DRIVER_KEY] == "me"
    assert trial.datetime_start is not None


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_east")
def test_a_trial_that_ends_has_its_value_and_attributes_as_optuna_would_have_written_them(
    book: Ledger, study: optuna.Study
) -> None:
    assert book.finish(begin(book, 0), complete(1.25, note="x", list=[1, 2]))
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
def test_a_trial_may_end_without_a_value(book: Ledger, study: optuna.Study, state: TrialState) -> None:
    assert book.finish(begin(book, 0), Result(state, None, {"traceback": "…"}, {"fail_reason": "a"}))
    assert study.trials[0].state == state
    assert study.trials[0].value is None


def test_a_trial_ends_once(book: Ledger, study: optuna.Study) -> None:
    entry = begin(book, 0)
    assert book.finish(entry, complete(1.0))
    assert not book.finish(entry, complete(2.0, late=True))
    assert study.trials[0].value == 1.0
    assert "late" not in study.trials[0].user_attrs


def test_where_another_trial_came_first_the_proposal_is_made_again(book: Ledger, study: optuna.Study) -> None:
    study.ask(SPACE)
    numbers = []

    def again(number: int) -> dict[str, Any]:
        numbers.append(number)
        return {**PARAMS, "layers": 7}

    entry = book.begin(0, PARAMS, again)
    assert entry is not None
    assert numbers == [1]
    assert entry.number == 1
    assert study.trials[1].params["layers"] == 7
    assert len(study.trials) == 2


def test_a_database_begins_no_trial_that_is_not_needed_any_more(tmp_path: Path) -> None:
    study = optuna.create_study(storage=open_storage(tmp_path / "s.db"))
    study.ask(SPACE)
    assert open_ledger(study, SPACE, "me").begin(0, PARAMS, lambda _: None) is None
    assert len(study.trials) == 1


def test_notes_are_in_the_study_with_the_next_trial(book: Ledger, study: optuna.Study) -> None:
    for i in range(3):
        book.note({"lazybo:a": i, "lazybo:b": "x" * 100})
        begin(book, i)
        attributes = study._storage.get_study_system_attrs(study._study_id)
        assert attributes["lazybo:a"] == i


def test_a_waiting_trial_is_claimed_once_and_can_be_put_back(book: Ledger, study: optuna.Study) -> None:
    entry = begin(book, 0)
    book.put_back(entry.trial_id, 2, "me")
    (trial,) = ledger.read(study)
    assert trial.state == TrialState.WAITING
    assert trial.params == PARAMS
    assert open_ledger(study, SPACE, "you").claim(entry.trial_id)
    assert not open_ledger(study, SPACE, "they").claim(entry.trial_id)
    (trial,) = ledger.read(study)
    assert trial.system_attrs[ledger.DRIVER_KEY] == "you"
    assert trial.system_attrs[ledger.ATTEMPTS_KEY] == 2
    assert book.finish(entry, complete(1.0))
    assert not book.claim(entry.trial_id)


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
def test_no_number_is_taken_at_or_beyond_the_end(
    book: Ledger, study: optuna.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others win every race; the last attempts take any number that is still needed."""

    monkeypatch.setattr(ledger, "POLITENESS", 5)

    def overtaken(number: int) -> dict[str, Any] | None:
        study.ask(SPACE)
        return PARAMS if number < 12 else None

    study.ask(SPACE)
    entry = book.begin(0, PARAMS, overtaken, lambda: 8)
    assert entry is not None
    assert 5 <= entry.number < 8
    assert book.begin(0, PARAMS, overtaken, lambda: 8) is None


@pytest.mark.parametrize("storage", ["journal", "sqlite"], indirect=True)
def test_several_drivers_share_the_numbers(study: optuna.Study) -> None:
    errors: list[BaseException] = []

    def drive(name: str) -> None:
        try:
            own = open_ledger(study, SPACE, name)
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
    storage = open_storage(tmp_path / "s.db")
    count: list[int] = []
    engine = storage._backend.engine  # type: ignore[attr-defined]
    study = optuna.create_study(storage=storage)
    sqlalchemy.event.listen(engine, "commit", lambda _: count.append(1))
    yield study, count
    engine.dispose()


def test_a_trial_is_two_commits(commits: tuple[optuna.Study, list[int]]) -> None:
    study, count = commits
    book = open_ledger(study, SPACE, "me")
    book.note({"lazybo:model:0": "learned"})
    assert book.finish(begin(book, 0), complete(1.0, a=1, b=2, c=3))
    assert len(count) == 2


def test_a_transaction_that_fails_leaves_nothing(commits: tuple[optuna.Study, list[int]]) -> None:
    study, _ = commits
    book = open_ledger(study, SPACE, "me")
    with pytest.raises(Exception, match=r"NaN|not in|kind"):
        book.begin(0, {**PARAMS, "kind": "unknown"}, never)
    assert study.trials == []


def test_a_database_that_is_locked_for_a_moment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retry, "RETRY_WAITS", (0.3,) * 40)
    url = f"sqlite:///{tmp_path}/s.db"
    storage = optuna.storages.RDBStorage(url, engine_kwargs={"connect_args": {"timeout": 0.01}})
    study = optuna.create_study(storage=storage)
    book = open_ledger(study, SPACE, "me")
    other = sqlalchemy.create_engine(url).connect()
    other.exec_driver_sql("BEGIN EXCLUSIVE")
    release = threading.Timer(1.0, other.close)
    release.start()
    begin(book, 0)
    release.join()
    assert "trying again" in caplog.text
    assert len(study.trials) == 1
