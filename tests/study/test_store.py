"""Storages and studies: opened, created, or refused with a remedy."""

import logging
import math
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from lazybo import Condition, Space, optimize, recommend, repair_storage, write_report
from lazybo.study.databases import database_of, file_of, name_of, read_trials
from lazybo.study.definition import Definition
from lazybo.study.store import Store, database_url, has_studies

SPACE: dict[str, BaseDistribution] = {"x": FloatDistribution(0, 1), "k": CategoricalDistribution(["a", "b"])}


def test_a_path_is_an_sqlite_file_a_url_is_a_url_and_none_is_memory(tmp_path: Path) -> None:
    for storage in (tmp_path / "a.db", str(tmp_path / "a.db"), f"sqlite:///{tmp_path}/a.db"):
        opened = Store.open(storage)
        assert database_of(opened).url == f"sqlite:///{tmp_path}/a.db"  # type: ignore[union-attr]
    assert isinstance(Store.open(None), InMemoryStorage)
    own = RDBStorage(f"sqlite:///{tmp_path}/b.db")
    assert database_of(Store.open(own)) is own


def test_an_sqlite_file_is_as_durable_as_optunas(tmp_path: Path) -> None:
    engine = database_of(Store.open(tmp_path / "a.db")).engine  # type: ignore[union-attr]
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"


def test_what_is_no_storage_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("these are my notes, and not a database")
    for storage, message in [
        (text, "not an SQLite database"),
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "s.db", "does not exist"),
        ("nosuchdb://user:secret@host/x", "cannot be opened"),
    ]:
        with pytest.raises(ValueError, match=message) as error:
            Store.open(storage)
        assert "secret" not in str(error.value)
    assert text.read_text().startswith("these are my notes")
    with pytest.raises(TypeError, match="must be a path"):
        Store.open(3)  # type: ignore[arg-type]


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE studies (a INTEGER)")
    connection.close()
    before = (tmp_path / "other.db").read_bytes()
    with pytest.raises(ValueError, match="database of another program"):
        optimize(lambda p: p["x"], SPACE, n_trials=1, storage=tmp_path / "other.db")
    assert (tmp_path / "other.db").read_bytes() == before


def test_a_storage_whose_creation_was_killed_is_opened(tmp_path: Path) -> None:
    """Optuna commits every table by itself, so a kill may leave any number of them."""
    optimize(lambda p: p["x"], SPACE, n_trials=1, storage=tmp_path / "s.db")
    with sqlite3.connect(tmp_path / "s.db") as whole:
        tables = [sql for (sql,) in whole.execute("SELECT sql FROM sqlite_master WHERE type = 'table'")]
    whole.close()
    for count in range(1, len(tables), 3):
        with sqlite3.connect(tmp_path / f"{count}.db") as part:
            for table in tables[:count]:
                part.execute(table)
        part.close()
        assert Store.open(tmp_path / f"{count}.db").get_all_studies() == []


def test_a_file_whose_writer_was_killed_in_a_transaction_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    optimize(lambda p: p["x"], SPACE, n_trials=3, storage=path)
    program = f"""
import os, sqlite3
connection = sqlite3.connect({str(path)!r}, isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN")
connection.execute("UPDATE trials SET number = number + 100")
connection.execute("CREATE TABLE junk (a)")
connection.executemany("INSERT INTO junk VALUES (?)", [("x" * 1000,)] * 9999)
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", program], check=False)
    assert path.with_name("s.db-journal").stat().st_size > 0
    study = optimize(lambda p: p["x"], SPACE, n_trials=5, storage=path)
    assert [trial.number for trial in study.trials] == list(range(5))


def test_the_seed_of_the_first_run_is_the_seed_of_the_study(tmp_path: Path) -> None:
    storage = Store.open(tmp_path / "s.db")
    _, seed = Definition().open(storage, None, Space(SPACE), None)
    assert Definition().open(storage, None, Space(SPACE), None)[1] == seed
    assert Definition().open(storage, None, Space(SPACE), 7)[1] == 7


@pytest.mark.parametrize(
    ("space", "conditions", "message"),
    [
        ({**SPACE, "x": FloatDistribution(0, 2)}, {}, "there 'x' is"),
        ({**SPACE, "z": FloatDistribution(0, 2)}, {}, "has no parameter 'z'"),
        ({"x": SPACE["x"]}, {}, "its parameter 'k' is not in this one"),
        (SPACE, {"x": Condition("k", ("a",))}, "there 'x' is"),
    ],
)
def test_another_space_is_refused(
    space: dict[str, BaseDistribution], conditions: dict[str, Condition], message: str, tmp_path: Path
) -> None:
    storage = Store.open(tmp_path / "s.db")
    Definition().open(storage, "s", Space(SPACE), 1)
    with pytest.raises(ValueError, match=f"{message}.*another study_name"):
        Definition().open(storage, "s", Space(space, conditions=conditions), 1)


def test_another_direction_is_refused(tmp_path: Path) -> None:
    storage = Store.open(tmp_path / "s.db")
    Definition().open(storage, "s", Space(SPACE), 1)
    with pytest.raises(ValueError, match="direction 'minimize', not 'maximize'"):
        Definition(("maximize",)).open(storage, "s", Space(SPACE), 1)
    optuna.create_study(storage=storage, study_name="two", directions=["minimize", "minimize"])
    with pytest.raises(ValueError, match="2 objectives"):
        Definition().open(storage, "two", Space(SPACE), 1)


def test_a_study_of_plain_optuna_is_continued_if_its_space_is_the_same(tmp_path: Path) -> None:
    storage = Store.open(tmp_path / "s.db")
    plain = optuna.create_study(storage=storage, study_name="s")
    plain.optimize(lambda t: t.suggest_float("x", 0, 1) + (t.suggest_categorical("k", ["a", "b"]) == "a"), n_trials=8)
    study = optimize(lambda p: p["x"] + (p["k"] == "a"), SPACE, n_trials=20, storage=storage, study_name="s", seed=0)
    assert len(study.trials) == 20
    assert study.best_value < 0.05
    other = optuna.create_study(storage=storage, study_name="other")
    other.optimize(lambda t: t.suggest_float("x", 0, 3), n_trials=2)
    with pytest.raises(ValueError, match="another space"):
        optimize(lambda p: p["x"], SPACE, n_trials=20, storage=storage, study_name="other")
    assert len(other.trials) == 2


def damaged(path: Path) -> str:
    """A study as it was left by a version that wrote NaN as the value of a trial: NULL, and "finite"."""
    url = f"sqlite:///{path}"
    study = optuna.create_study(storage=url, study_name="lazybo")
    for value in (0.5, 0.25):
        study.tell(study.ask(SPACE), value)
    trials = [study.ask(SPACE) for _ in range(2)]
    for trial, state in zip(trials, (TrialState.PRUNED, TrialState.COMPLETE), strict=True):
        trial.report(float("nan"), 0)
        Store(study).storage.set_trial_state_values(trial._trial_id, state, [float("nan")])
    with pytest.raises(AssertionError):
        optuna.load_study(storage=url, study_name="lazybo").get_trials()
    return url


@pytest.mark.parametrize("how", ["path", "url", "object"])
def test_a_study_with_a_value_that_cannot_be_read_is_repaired_when_it_is_opened(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = damaged(tmp_path / "s.db")
    given = {"path": tmp_path / "s.db", "url": url, "object": RDBStorage(url)}[how]
    with caplog.at_level(logging.WARNING):
        repair_storage(given)
    assert "2 trials" in caplog.text
    trials = optuna.load_study(storage=url, study_name="lazybo").trials
    assert [trial.state.name for trial in trials] == ["COMPLETE", "COMPLETE", "PRUNED", "FAIL"]
    assert [trial.value for trial in trials] == [0.5, 0.25, None, None]
    assert len(trials[2].params) == len(trials[2].intermediate_values) + 1 == 2
    caplog.clear()
    repair_storage(given)
    assert not caplog.text


def test_a_run_goes_on_in_a_study_that_was_damaged(tmp_path: Path) -> None:
    damaged(tmp_path / "s.db")
    study = optimize(lambda p: p["x"], SPACE, n_trials=6, storage=tmp_path / "s.db")
    assert len(study.trials) == 6
    assert study.best_value <= 0.25


def test_the_command_shows_a_study_that_was_damaged_and_says_what_it_did(tmp_path: Path) -> None:
    damaged(tmp_path / "s.db")
    path = (tmp_path / "s.db").rename(tmp_path / "a?b#c%20d.db")
    shown = subprocess.run([sys.executable, "-m", "lazybo", "show", path], capture_output=True, text=True, check=True)
    assert "2 complete, 1 pruned, 1 failed" in shown.stdout
    assert "NaN as the value of 2 trials" in shown.stderr
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["a?b.db", "a#b.db", "a%20b.db", "100%.db", "a b+c@d:e.db", "a{b}.db", "é&x=1;.db"])
def test_a_file_is_written_under_exactly_its_name(name: str, tmp_path: Path) -> None:
    for _ in range(2):
        storage = Store.open(tmp_path / name)
        study, _ = Definition().open(storage, "s", Space(SPACE), 1)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with sqlite3.connect(tmp_path / name) as connection:
        assert connection.execute("SELECT study_name FROM studies").fetchall() == [("s",)]
    connection.close()
    study.tell(study.ask(), 1.0)
    assert len(optuna.load_study(storage=Store.open(str(tmp_path / name)), study_name="s").trials) == 1
    assert file_of(storage) == tmp_path / name
    assert name_of(storage) == str(tmp_path / name)


def test_databases_in_memory_have_no_file() -> None:
    for url in ("sqlite://", "sqlite:///:memory:", "sqlite:///file:m?mode=memory&cache=shared&uri=true"):
        storage = RDBStorage.__new__(RDBStorage)  # it need not be opened for its name
        storage.url = url
        assert file_of(storage) is None


@pytest.mark.parametrize("kind", ["path", "path?", "database", "journal"])
def test_a_storage_that_is_deleted_ends_the_run_with_a_message_about_that(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ("s?" if kind == "path?" else "s")
    storage: Any = path
    if kind == "database":
        storage = RDBStorage(f"sqlite:///{path}")
    elif kind == "journal":
        storage = JournalStorage(JournalFileBackend(str(path)))
    values: list[float] = []

    def objective(params: dict[str, Any]) -> float:
        values.append(params["x"])
        if len(values) == 2:
            path.unlink()
        return float(params["x"])

    with pytest.raises(RuntimeError, match=f"{re.escape(str(path))}.* is gone.*deleted.*call again"):
        optimize(objective, SPACE, n_trials=4, storage=storage)
    if storage is not path:  # a path without a file is a new study
        with pytest.raises(ValueError, match=r"is gone.*open it again"):
            optimize(objective, SPACE, n_trials=4, storage=storage)
    assert len(values) == 2
    assert not path.exists()


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("postgres://me@host/db", "postgresql+psycopg://me@host/db"),
        ("postgresql://me@host/db", "postgresql+psycopg://me@host/db"),
        ("postgres+psycopg2://host/db", "postgresql+psycopg2://host/db"),
        ("postgresql+psycopg://me:pw@host/db?a=postgres://", "postgresql+psycopg://me:pw@host/db?a=postgres://"),
        ("mysql://me@host/db", "mysql://me@host/db"),
    ],
)
def test_urls_of_postgresql_are_read_as_people_write_them(url: str, read: str) -> None:
    driver = "psycopg2" if find_spec("psycopg2") and "+" not in url else "psycopg"
    assert database_url(url) == read.replace("+psycopg:", f"+{driver}:")


def test_an_unknown_database_is_refused_with_what_to_write() -> None:
    with pytest.raises(
        ValueError, match=r"'nothing://h/d' cannot be opened: .*; write sqlite:///FILE, postgresql\+psyc"
    ):
        Store.open("nothing://h/d")


# ------------------------------------------------------------------ reading at once


def full_study(path: Path) -> optuna.Study:
    """A study with trials in all states, and everything that a trial can have."""
    other = optuna.create_study(study_name="other", storage=f"sqlite:///{path}")
    other.add_trial(optuna.trial.create_trial(value=7.0))
    study = optuna.create_study(
        study_name="full", storage=f"sqlite:///{path}", directions=["minimize", "maximize"], load_if_exists=True
    )
    space: dict[str, BaseDistribution] = {
        "x": FloatDistribution(1e-3, 1, log=True),
        "n": IntDistribution(1, 9, step=2),
        "kind": CategoricalDistribution(["a", None, True, 2.5]),
    }
    everything = {"x": 0.5, "n": 3, "kind": None}
    for values in ([1.0, -2.0], [math.inf, 0.0], [0.0, -math.inf]):
        study.add_trial(
            optuna.trial.create_trial(
                values=values,
                params=everything,
                distributions=space,
                user_attrs={"b": [1, {"c": None}], "a": "text"},
                system_attrs={"z": 1.5},
                intermediate_values={3: math.nan, 1: math.inf, 2: -math.inf, 4: 0.25},
            )
        )
    for state in (TrialState.FAIL, TrialState.PRUNED, TrialState.WAITING, TrialState.RUNNING):
        study.add_trial(optuna.trial.create_trial(state=state, params={"x": 0.1}, distributions={"x": space["x"]}))
    study.ask()
    return study


def test_trials_that_are_read_at_once_are_those_that_optuna_reads(tmp_path: Path) -> None:
    study = full_study(tmp_path / "a.db")
    theirs = RDBStorage(f"sqlite:///{tmp_path / 'a.db'}").get_all_trials(Store(study).study_id)
    database = RDBStorage(f"sqlite:///{tmp_path / 'a.db'}")
    ours = read_trials(database, Store(study).study_id)
    assert [str(trial) for trial in ours] == [str(trial) for trial in theirs]  # NaN is not equal to itself
    assert [list(trial.params) for trial in ours] == [list(trial.params) for trial in theirs]
    with pytest.raises(KeyError):
        read_trials(database, 99)
    study = optuna.create_study(study_name="empty", storage=database)
    assert read_trials(database, Store(study).study_id) == []


def test_a_database_that_is_read_only_is_read_but_not_written(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    study = optimize(lambda params: params["x"] ** 2, SPACE, n_trials=6, seed=0, storage=path)
    url, before = f"sqlite:///file:{path}?mode=ro&uri=true", path.read_bytes()
    read = optuna.load_study(study_name=study.study_name, storage=url)
    assert recommend(read) == recommend(study)
    assert write_report(read, tmp_path / "report.html").exists()
    shown = subprocess.run([sys.executable, "-m", "lazybo", "show", url], capture_output=True, text=True, check=True)
    assert "6" in shown.stdout
    with pytest.raises(RuntimeError, match=rf"{re.escape(str(path))}.* can be read but not written.*or use a copy"):
        optimize(lambda params: params["x"] ** 2, SPACE, n_trials=8, seed=0, storage=url)
    assert path.read_bytes() == before


# Root may write everywhere, unless it gives that up.
WITHOUT_PRIVILEGE = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
READ_BUT_NOT_WRITE = """
import sys, optuna, lazybo
from lazybo.study.store import Store
study = optuna.load_study(study_name=None, storage=Store.open(sys.argv[1]))
print(lazybo.recommend(study).number)
lazybo.optimize(lambda params: params["x"] ** 2, study.trials[0].distributions, n_trials=8, seed=0, storage=sys.argv[1])
"""


def test_a_journal_that_is_read_only_is_read_but_not_written(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "s"
    storage = JournalStorage(JournalFileBackend(str(path)))
    study = optimize(lambda params: params["x"] ** 2, SPACE, n_trials=6, seed=0, storage=storage)
    before = path.read_bytes()
    path.chmod(0o400)
    folder.chmod(0o500)
    command = [*WITHOUT_PRIVILEGE, sys.executable, "-c", READ_BUT_NOT_WRITE, str(path)]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        folder.chmod(0o700)
    assert found.stdout == f"{recommend(study).number}\n"
    assert re.search(rf"RuntimeError: .*{re.escape(str(path))}.* can be read but not written", found.stderr)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["{", "[" * 100_000], ids=["torn", "nested"])
def test_a_database_with_a_trial_that_is_not_json_is_one_error(text: str, tmp_path: Path) -> None:
    optimize(lambda p: p["x"], SPACE, n_trials=3, storage=tmp_path / "s.db", progress=False)
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection, connection:
        connection.execute("UPDATE trial_params SET distribution_json = ?", (text,))
    with pytest.raises(ValueError, match=r"a trial of the study 'lazybo' cannot be read: .*; use another study_name"):
        optimize(lambda p: p["x"], SPACE, n_trials=4, storage=tmp_path / "s.db", progress=False)


def test_a_locked_database_is_refused_and_the_remedy_is_named(tmp_path: Path) -> None:
    path = tmp_path / "locked.db"
    optuna.create_study(storage=f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ValueError, match="database is locked; end the program that holds it, or name another file"):
            has_studies(path, timeout=0.1)
    assert has_studies(path)


def test_no_error_holds_a_password() -> None:
    storage = RDBStorage.__new__(RDBStorage)  # a server to connect to is not needed for its name
    storage.url = "postgresql+psycopg://me:secret@host:1/db?password=secret&sslmode=require"
    assert name_of(storage) == "postgresql+psycopg://me:***@host:1/db"
