"""Journal files: lines that were cut short, and writers that take turns."""

import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import optuna
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import TrialState

from lazybo import optimize, repair_storage
from lazybo.study.journal import Journal, gathered, open_journal
from lazybo.study.store import Store

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
    assert "the end of a process cut it short" in caplog.text
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


def test_writes_that_come_too_late_are_refused_once_and_where_they_were_made(tmp_path: Path) -> None:
    """A process that was suspended while another one finished its trial."""
    first, second = (open_journal(str(tmp_path / "j")) for _ in range(2))
    study = optuna.create_study(storage=first, study_name="s")
    trial = study.ask()
    assert second.set_trial_state_values(trial._trial_id, TrialState.COMPLETE, [1.0])
    with first.exclusive():
        with gathered(first):
            first.set_trial_system_attr(trial._trial_id, "a", 1)
        with pytest.raises(UpdateFinishedTrialError):
            first.set_trial_system_attr(trial._trial_id, "b", 2)
    assert [(each.state, each.system_attrs) for each in study.trials] == [(TrialState.COMPLETE, {})]


def test_what_is_no_journal_is_not_mended(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("these are notes\nand more of them\n")
    with pytest.raises(ValueError, match=r"cannot be repaired.*these are notes"):
        repair_storage(plain_of_other(path))
    assert path.read_text() == "these are notes\nand more of them\n"


def plain_of_other(path: Path) -> JournalStorage:
    """A storage on a file that Optuna has not read yet."""
    storage = JournalStorage(JournalFileBackend(str(path.with_name("new"))))
    storage._backend._file_path = str(path)  # type: ignore[attr-defined]
    return storage


def test_a_damaged_line_costs_that_line_and_not_the_study(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = journal(tmp_path / "j")
    before, lines = values(path), path.read_bytes().splitlines(keepends=True)
    attributes = [i for i, line in enumerate(lines) if b"system_attr" in line and b'"op_code":3' in line]
    lines[attributes[0]] = b"these are notes\n"
    lines.insert(4, b"\n")
    path.write_bytes(b"".join(lines))
    with pytest.raises(ValueError, match=r"Expecting|value"):
        plain(path)
    with caplog.at_level(logging.WARNING):
        repair_storage(path)
    assert "these are notes" in caplog.text
    assert values(path) == before, "Optuna reads it again"


def test_a_damaged_line_that_began_a_trial_does_not_shift_the_others(tmp_path: Path) -> None:
    path = journal(tmp_path / "j")
    before, lines = values(path), path.read_bytes().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.startswith(b'{"op_code":4'))
    lines[first] = lines[first][:60].replace(b"{", b"#") + lines[first][60:]
    path.write_bytes(b"".join(lines))
    assert values_of(Store.open(path))[1:] == before[1:]
    assert values(path)[1:] == before[1:]
    assert len(optimize(lambda p: p["x"], SPACE, n_trials=5, storage=path).trials) == 5


def values_of(storage: BaseStorage) -> list[float | None]:
    return [trial.value for trial in optuna.load_study(storage=storage, study_name="lazybo").trials]


def test_a_line_that_is_damaged_while_a_process_reads_costs_that_line(tmp_path: Path) -> None:
    path = journal(tmp_path / "j")
    storage = Store.open(path)
    with path.open("ab") as file:
        file.write(b"these are notes\n")
    study = optuna.load_study(storage=plain(path), study_name="lazybo")
    with pytest.raises(ValueError, match="Expecting"):
        study.set_user_attr("a", 1)  # it is written, and then Optuna cannot read it
    assert optuna.load_study(storage=storage, study_name="lazybo").user_attrs == {"a": 1}
    assert optuna.load_study(storage=plain(path), study_name="lazybo").user_attrs == {"a": 1}


# Tells a trial of the study in its first argument, and stops itself at the call that its second argument names.
SUSPENDED = """
import os, signal, sys
import optuna
from lazybo.study import journal
from lazybo.study.store import Store
path, name = sys.argv[1:]
study = optuna.load_study(study_name="lazybo", storage=Store.open(path))
trial = study.ask()
whole = getattr(os, name)
def stopped(file, *arguments, **options):
    if name == "write" or (str(file) == path and arguments and arguments[0] & os.O_APPEND):
        setattr(os, name, whole)
        os.kill(os.getpid(), signal.SIGSTOP)
    return whole(file, *arguments, **options)
setattr(os, name, stopped)
study.tell(trial, 7.0)
study.set_user_attr("continued", True)
"""


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("name", ["open", "write"])
def test_a_suspended_writer_overwrites_nothing(name: str, torn: bool, tmp_path: Path) -> None:
    """It is stopped after it has found the end of the file; others then take over its lock, and write."""
    path = journal(tmp_path / "j")
    if torn:
        with path.open("ab") as file:
            file.write(b'{"op_code":5,"worker_id":"killed')
    command = [sys.executable, "-c", SUSPENDED, str(path), name]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        lock = JournalFileSymlinkLock(str(path), grace_period=3)
        others = optuna.load_study(study_name="lazybo", storage=open_journal(str(path), lock))
        for value in range(4):
            others.tell(others.ask(), float(value))
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(60) == 0, process.stderr and process.stderr.read()
    expected = [0.0, 1.0, 2.0, 3.0]
    for storage in (plain(path), Store.open(path)):
        found = optuna.load_study(study_name="lazybo", storage=storage)
        assert [trial.value for trial in found.trials][4:] == expected
        assert found.trials[3].value == 7.0
        assert found.user_attrs == {"continued": True}
    assert not path.with_name("j.lock").is_symlink()


def test_what_was_begun_under_a_lock_that_was_taken_over_is_begun_again(tmp_path: Path) -> None:
    """Read and write are one step also for a process that was suspended in between."""
    path = journal(tmp_path / "j")
    ours = optuna.load_study(storage=open_journal(str(path)), study_name="lazybo")
    others = optuna.load_study(
        storage=open_journal(str(path), JournalFileSymlinkLock(str(path), grace_period=3)), study_name="lazybo"
    )
    ours.set_user_attr("count", 0)
    seen = []

    def count() -> None:
        seen.append(ours.user_attrs["count"])
        if len(seen) == 1:
            others.set_user_attr("count", 10)  # waits, and takes the lock over
        ours.set_user_attr("count", seen[-1] + 1)

    Store(ours).change(count)
    assert seen == [0, 10]
    assert others.user_attrs["count"] == 11


def test_the_path_of_a_journal_opens_it(tmp_path: Path) -> None:
    path = journal(tmp_path / "j")
    assert len(optimize(lambda p: p["x"], SPACE, n_trials=4, storage=path).trials) == 4
    assert isinstance(Store.open(str(path)), Journal)
    assert isinstance(pickle.loads(pickle.dumps(Store.open(path))), Journal)


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
