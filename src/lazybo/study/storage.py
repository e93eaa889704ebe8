"""Open or create the storage and the study of a run; a study with another space or direction is rejected."""

import json
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage, get_storage
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock
from optuna.study import Study

from lazybo.core.checks import Direction, check_seed, shortened, whole
from lazybo.core.codec import as_object, readable
from lazybo.core.text import without_password
from lazybo.study.attributes import METRIC_NAMES_KEY, REPORTS_KEY, RUN_KEY, object_of, of_study, parts
from lazybo.study.databases import file_of, fill_cache, name_of, repair_values, sqlite_url
from lazybo.study.journal import Journal, is_journal, open_journal
from lazybo.study.retry import database_reason, is_read_only, with_retries
from lazybo.study.structure import Structure

# The default name of a study, so that the same call finds it again.
DEFAULT_NAME = "lazybo"
# Seconds to wait for an SQLite file that another process writes to: during a run, and before it starts.
SQLITE_TIMEOUT = 60
OPENING_TIMEOUT = 10
# Seconds between attempts to open a database whose tables others create at the same time.
CREATION_WAITS = (0.1, 0.3, 1.0, 3.0)
SQLITE_HEAD = b"SQLite format 3\0"
REMEDY = "use another study_name, or begin a new study and give this one as warm_start"


def open_storage(storage: str | Path | BaseStorage | None) -> BaseStorage:
    """An Optuna storage from a path (an SQLite file or a journal), a URL or a storage; in memory for None.

    Damage from a process that was killed is repaired, and a warning says so (`repair_storage`).
    """
    if storage is None:
        return InMemoryStorage()
    if isinstance(storage, BaseStorage):
        return _opened(storage)
    if not isinstance(storage, str | Path):
        raise TypeError(f"storage must be a path, a URL or an Optuna storage, not {storage!r}")
    if isinstance(storage, str) and "://" in storage:
        return _open_url(database_url(storage), without_password(storage))
    path = Path(storage).expanduser().absolute()
    if is_journal(path):
        return _open_journal(str(path))
    _check_sqlite_file(path)
    return _open_url(sqlite_url(path), str(storage))


def repair_storage(storage: str | Path | BaseStorage) -> None:
    """Make a storage readable again that a killed process has damaged; a warning says what was done.

    If NaN was written to a database as the value of a trial, Optuna cannot read any trial of the study. Such a value is
    removed: a pruned trial then has no value, and a completed trial counts as failed, which is what Optuna itself
    writes for NaN. In a journal, incomplete lines are removed.
    Everything else stays as it is. `optimize()` and the ``lazybo`` command do the same when they open a storage; call
    this before ``optuna.load_study``.
    """
    open_storage(storage)


@contextmanager
def explained(storage: BaseStorage) -> Iterator[None]:
    """Turn the errors of a storage that was deleted, is read-only or did not answer for long into one clear message."""
    try:
        yield
    except (StorageInternalError, OSError) as error:
        path, reason = file_of(storage), database_reason(error)
        if is_read_only(error, path):
            raise RuntimeError(
                f"the storage {name_of(storage)!r} can be read but not written. Make the file and its folder writable, "
                "or use a copy of it"
            ) from error
        if not isinstance(error, StorageInternalError | FileNotFoundError):
            raise
        # A connection that was open sees a file that it must not write to, a new one sees a file without tables.
        lost = reason is not None and any(sign in reason for sign in ("no such table", "readonly database"))
        if path is not None and (lost or not path.exists()):
            gone = f"the storage {str(path)!r} is gone: the file was deleted, moved or replaced while it was in use"
            raise RuntimeError(
                f"{gone}. Put it back and call again to resume, or start a new study in another file"
            ) from error
        if reason is None:
            raise
        kept = "What is recorded there is kept; call again to resume"
        raise RuntimeError(f"the storage {name_of(storage)!r} does not answer: {reason}. {kept}") from error


def _opened(storage: BaseStorage) -> BaseStorage:
    """A storage that the caller has opened."""
    path = file_of(storage)
    if path is not None and not path.exists():
        raise ValueError(
            f"the storage {str(path)!r} is gone: it was deleted or moved since it was opened; open it again"
        )
    if isinstance(storage, JournalStorage) and isinstance(storage._backend, JournalFileBackend):
        return storage if isinstance(storage, Journal) else _open_journal(str(path), storage._backend._lock)
    cached = get_storage(storage)
    repair_values(cached)
    return cached


def _open_journal(path: str, lock: BaseJournalFileLock | None = None) -> BaseStorage:
    try:
        return open_journal(path, lock)
    except OSError as error:
        raise ValueError(f"the storage {path!r} cannot be opened: {error.strerror}") from error


def database_url(url: str) -> str:
    """A URL as SQLAlchemy reads it: ``postgres://`` is PostgreSQL, and gets the driver that is there or recommended."""
    scheme, _, place = url.partition("://")
    database, _, driver = scheme.partition("+")
    if database not in ("postgres", "postgresql"):
        return url
    driver = driver or ("psycopg2" if find_spec("psycopg2") else "psycopg")
    return f"postgresql+{driver}://{place}"


def _with_driver(reason: str) -> str:
    """Why a database cannot be opened; if its driver is missing, also what to do."""
    if "Can't load plugin" in reason:
        return f"{reason}; write sqlite:///FILE, postgresql+psycopg://USER@HOST/DATABASE or mysql+pymysql://..."
    if "No module named 'psycopg2'" in reason:
        return f"{reason}; write postgresql+psycopg://... for the driver of pip install 'lazybo[postgresql]'"
    if "No module named 'psycopg'" in reason:
        return f"{reason}; pip install 'lazybo[postgresql]'"
    return reason


def _open_url(url: str, name: str) -> BaseStorage:
    try:
        opened = _create_or_open(url)
    except Exception as error:  # each database driver has exceptions of its own
        reason = _with_driver(str(error.__cause__ or error).splitlines()[0])
        raise ValueError(f"the storage {name!r} cannot be opened: {reason}") from error
    repair_values(opened)
    return opened


def _create_or_open(url: str) -> BaseStorage:
    """A storage with its tables. If several processes create them at once, one succeeds and the others try again."""
    for wait in CREATION_WAITS:
        try:
            return _open_once(url)
        except Exception as error:
            if not re.search("already exists|unique constraint", f"{error} {error.__cause__}", re.IGNORECASE):
                raise
            time.sleep(wait)
    return _open_once(url)


def _open_once(url: str) -> BaseStorage:
    if url.startswith("sqlite"):
        waiting = {"connect_args": {"timeout": SQLITE_TIMEOUT}}
        opened = get_storage(RDBStorage(url, engine_kwargs=waiting))
    else:
        opened = get_storage(url)
    opened.get_all_studies()  # fails now if the storage cannot be read
    return opened


@dataclass(frozen=True)
class About:
    """What a study optimises: directions, and if there are any, the names of objectives and of constraints.

    ``reports`` is the position of the objective whose curves trials report.
    """

    directions: tuple[Direction, ...] = ("minimize",)
    names: tuple[str, ...] | None = None
    constraints: tuple[str, ...] = ()
    reports: int = 0


@dataclass(frozen=True)
class Run:
    """What a second run must agree with: the space and the constraints as texts, and the seed."""

    space: Mapping[str, str]
    seed: int
    constraints: tuple[str, ...] = ()


def kept_run(study_name: str, attributes: Mapping[str, Any]) -> Run | None:
    """What the first run has kept with its study; None if there was none. Raises a ValueError if it is damaged."""
    with readable(of_study(RUN_KEY, study_name), REMEDY):
        written = object_of(attributes, RUN_KEY)
        if not written:
            return None
        space, constraints = as_object(written["space"]), written.get("constraints", [])
        texts = [*space.values(), *constraints]
        if not isinstance(constraints, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError("its space and its constraints must be texts")
        return Run(space, check_seed(whole("seed", written["seed"], 0)), tuple(constraints))


def open_study(
    storage: BaseStorage, study_name: str | None, about: About | Direction, structure: Structure, seed: int | None
) -> tuple[Study, int]:
    """The study with this name, created if there is none, and the seed to continue with."""
    about = about if isinstance(about, About) else About((about,))
    return with_retries(partial(_open_study, storage, study_name or DEFAULT_NAME, about, structure, seed))


def _open_study(
    storage: BaseStorage, name: str, about: About, structure: Structure, seed: int | None
) -> tuple[Study, int]:
    if name in {study.study_name for study in storage.get_all_studies()}:
        study = optuna.load_study(study_name=name, storage=storage)
        _check_directions(study, about)
    else:
        study = optuna.create_study(
            study_name=name, storage=storage, directions=list(about.directions), load_if_exists=True
        )
    attributes = storage.get_study_system_attrs(study._study_id)
    written = kept_run(name, attributes)
    space = _space_of(structure)
    if written is None:
        _check_trials(study, structure)
    elif written.space != space:
        raise ValueError(f"the study {name!r} has another space: {_difference(written.space, space)}; {REMEDY}")
    elif written.constraints != about.constraints:
        theirs = ", ".join(written.constraints) or "none"
        ours = ", ".join(about.constraints) or "none"
        raise ValueError(f"the study {name!r} has other constraints: there {theirs}, here {ours}; {REMEDY}")
    elif (objective := attributes.get(REPORTS_KEY, 0)) != about.reports:
        raise ValueError(
            f"the trials of the study {name!r} report objective {shortened(objective)}, not {about.reports} (from 0); "
            f"{REMEDY}"
        )
    seed = check_seed(written.seed if seed is None and written is not None else seed)
    if written is None:
        if about.names:
            storage.set_study_system_attr(study._study_id, METRIC_NAMES_KEY, list(about.names))
        if about.reports:
            storage.set_study_system_attr(study._study_id, REPORTS_KEY, about.reports)
        constraints = {"constraints": list(about.constraints)} if about.constraints else {}
        for key, part in parts(RUN_KEY, json.dumps({"space": space, "seed": seed, **constraints})).items():
            storage.set_study_system_attr(study._study_id, key, part)
    return study, seed


def _check_directions(study: Study, about: About) -> None:
    theirs = tuple(each.name.lower() for each in study.directions)
    if len(theirs) != len(about.directions):
        what = f"{len(theirs)} objective{'s' if len(theirs) > 1 else ''}, not {len(about.directions)}"
        raise ValueError(f"the study {study.study_name!r} has {what}; {REMEDY}")
    if theirs != about.directions:
        is_so, given = (" and ".join(map(repr, each)) for each in (theirs, about.directions))
        raise ValueError(f"the study {study.study_name!r} has the direction {is_so}, not {given}; {REMEDY}")
    names = study.metric_names
    if names and about.names and list(about.names) != names:
        is_so, given = ", ".join(names), ", ".join(about.names)
        raise ValueError(f"the study {study.study_name!r} has the objectives {is_so}, not {given}; {REMEDY}")


def _check_trials(study: Study, structure: Structure) -> None:
    """Reject a study with trials of another program that have other parameters."""
    ours = structure.distributions
    fill_cache(study._storage, study._study_id)
    for trial in study.get_trials(deepcopy=False):
        for name, distribution in trial.distributions.items():
            if ours.get(name) != distribution:
                theirs, here = {name: str(distribution)}, {name: str(ours[name])} if name in ours else {}
                difference = _difference(theirs, here)
                raise ValueError(f"the study {study.study_name!r} has another space: {difference}; {REMEDY}")


def _space_of(structure: Structure) -> dict[str, str]:
    """The space as text, to be compared."""
    conditions = {name: f" if {c.parent} in {list(c.values)}" for name, c in structure.conditions.items()}
    return {name: f"{d}{conditions.get(name, '')}" for name, d in structure.distributions.items()}


def _difference(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """The first parameter that differs."""
    name = next(name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name))
    if name not in ours:
        return f"its parameter {name!r} is not in this one"
    if name not in theirs:
        return f"it has no parameter {name!r}"
    return f"there {name!r} is {theirs[name]}, here {ours[name]}"


def _check_sqlite_file(path: Path) -> None:
    if path.is_dir():
        raise ValueError(f"the storage {str(path)!r} is a folder; name a file in it, such as 'study.db'")
    if not path.parent.is_dir():
        raise ValueError(f"the storage {str(path)!r} cannot be opened: the folder {str(path.parent)!r} does not exist")
    try:
        with path.open("rb") as file:
            head = file.read(len(SQLITE_HEAD))
    except FileNotFoundError:
        return
    except OSError as error:
        raise ValueError(f"the storage {str(path)!r} cannot be opened: {error.strerror}") from None
    if head not in (b"", SQLITE_HEAD):
        raise ValueError(f"the storage {str(path)!r} is not an SQLite database; name another file")
    if head and not _has_studies(path):
        raise ValueError(f"the storage {str(path)!r} is a database of another program; name another file")


def _has_studies(path: Path) -> bool:
    """Whether a database is Optuna's, or empty: opening it as a storage would add tables.

    It is opened for writing: a process may have been killed during a write, which SQLite must roll back before anything
    can be read.
    """
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=OPENING_TIMEOUT)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            both = (
                "SELECT name FROM pragma_table_info('studies') UNION SELECT name FROM pragma_table_info('version_info')"
            )
            columns = {name for (name,) in connection.execute(both)}
    except sqlite3.Error as error:
        remedy = "; end the program that holds it, or name another file" if "locked" in str(error) else ""
        raise ValueError(f"the storage {str(path)!r} cannot be opened: {error}{remedy}") from None
    return not tables or not columns.isdisjoint({"study_name", "schema_version"})
