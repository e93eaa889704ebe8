"""Journal files: lines that were cut short, and writers that take turns."""

import logging
import pickle
import threading
from pathlib import Path

import optuna
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from lazybo import optimize, repair_storage
from lazybo.study.journal import Journal, gathered, open_journal
from lazybo.study.store import open_storage

SPACE: dict[str, BaseDistribution] = {"x": FloatDistribution(0, 1)}


def plain(path: Path) -> JournalStorage:
    return JournalStorage(JournalFileBackend(str(path)))


def journal(path: Path) -> Path:
    """A journal with three trials."""
    optimize(lambda p: p["x"], SPACE, n_trials=3, storage=plain(path), seed=0)
    return path


def cut(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:-count])


def values(path: Path) -> list[float | None]:
    return [trial.value for trial in optuna.load_study(storage=plain(path), study_name="lazybo").trials]


def test_a_run_goes_on_after_a_line_that_was_cut_short(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = journal(tmp_path / "j")
    before = values(path)
    cut(path, 10)
    with caplog.at_level(logging.WARNING):
        optimize(lambda p: p["x"], SPACE, n_trials=5, storage=plain(path), seed=0)
    assert "cut short" in caplog.text
    assert values(path)[:3] == before
    assert len(values(path)) == 5


def test_a_whole_line_without_its_end_is_kept(tmp_path: Path) -> None:
    path = journal(tmp_path / "j")
    whole = path.read_bytes()
    cut(path, 1)
    repair_storage(path)
    assert path.read_bytes() == whole


def test_a_line_that_was_written_onto_a_rest_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What plain Optuna makes of a torn journal, which nothing could read any more."""
    path = journal(tmp_path / "j")
    before = values(path)
    cut(path, 10)
    study = optuna.load_study(storage=plain(path), study_name="lazybo")
    study.set_user_attr("a", 1)
    with pytest.raises(ValueError, match=r"Expecting|delimiter|Invalid"):
        study.set_user_attr("b", 2)
    with pytest.raises(ValueError, match=r"Expecting|delimiter|Invalid"):
        plain(path)
    with caplog.at_level(logging.WARNING):
        repair_storage(path)
    assert "1 line cut short" in caplog.text
    assert values(path) == before
    assert optuna.load_study(storage=plain(path), study_name="lazybo").user_attrs == {"a": 1, "b": 2}


def test_a_line_that_another_process_cuts_short_during_a_run_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "j"

    def objective(params: dict[str, float]) -> float:
        with path.open("ab") as file:
            file.write(b'{"op_code":5,"worker_id":"killed')
        return params["x"]

    optimize(objective, SPACE, n_trials=3, storage=plain(path), seed=0)
    assert len(values(path)) == 3


def test_what_is_no_journal_is_not_mended(tmp_path: Path) -> None:
    path = journal(tmp_path / "j")
    with path.open("ab") as file:
        file.write(b"these are notes\n")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"cannot be repaired.*these are notes"):
        repair_storage(path)
    assert path.read_bytes() == before


def test_the_path_of_a_journal_opens_it(tmp_path: Path) -> None:
    path = journal(tmp_path / "j")
    assert len(optimize(lambda p: p["x"], SPACE, n_trials=4, storage=path).trials) == 4
    assert isinstance(open_storage(str(path)), Journal)
    assert isinstance(pickle.loads(pickle.dumps(open_storage(path))), Journal)


def test_writers_of_several_threads_and_storages_take_turns(tmp_path: Path) -> None:
    """Read and write are one step: no number is drawn twice."""
    path = str(tmp_path / "j")
    study = optuna.create_study(storage=open_journal(path), study_name="s")
    study.set_user_attr("count", 0)
    shared = open_journal(path)

    def count(storage: Journal) -> None:
        own = optuna.load_study(storage=storage, study_name="s")
        for _ in range(10):
            with storage.exclusive():
                own.set_user_attr("count", own.user_attrs["count"] + 1)

    threads = [threading.Thread(target=count, args=(s,)) for s in (shared, shared, open_journal(path))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert study.user_attrs["count"] == 30


def test_a_line_that_is_nested_too_deeply_is_mended_as_any_other_that_cannot_be_read(tmp_path: Path) -> None:
    path = journal(tmp_path / "j")
    before = values(path)
    with path.open("ab") as file:
        file.write(b"[" * 100_000)
    repair_storage(path)
    assert values(path) == before


def test_lines_that_belong_together_are_written_with_the_next_one_or_not_at_all(tmp_path: Path) -> None:
    path = journal(tmp_path / "j")
    storage = open_journal(str(path))
    before = path.read_bytes()
    with storage.exclusive():
        with gathered(storage):
            storage.set_study_system_attr(0, "one", 1)
            storage.set_study_system_attr(0, "two", 2)
        assert path.read_bytes() == before
        storage.set_study_system_attr(0, "three", 3)
        assert path.read_bytes().count(b"\n") == before.count(b"\n") + 3
        with gathered(storage):
            storage.set_study_system_attr(0, "lost", 4)
    storage.set_study_system_attr(0, "four", 4)
    assert storage.get_study_system_attrs(0).keys() >= {"one", "two", "three", "four"}
    assert "lost" not in open_journal(str(path)).get_study_system_attrs(0)
