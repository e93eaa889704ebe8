"""The storage of a study: `Store` reads and writes it, `Store.open` opens it.

Only this module, `databases` and `journal` know the private parts of Optuna's storages, and only this module retries
while a storage is locked, full or unreachable.
"""

import errno
import json
import logging
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from optuna.distributions import check_distribution_compatibility
from optuna.exceptions import StorageInternalError
from optuna.samplers._base import _process_constraints_after_trial as store_constraints
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage, get_storage
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock
from optuna.study import Study
from optuna.trial import FrozenTrial

from lazybo.core import checks, codec, texts
from lazybo.study.attributes import Key, object_of, of_study, rewritable_parts
from lazybo.study.databases import (
    all_trials,
    database_of,
    file_of,
    name_of,
    repair_values,
    sqlite_url,
    without_cache,
)
from lazybo.study.journal import Journal, exclusive, is_journal, open_alone, open_journal

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from lazybo.space import Structured

__all__ = ["Store", "repair_storage", "store_constraints"]

_logger = logging.getLogger("lazybo")
_T = TypeVar("_T")

# Seconds between attempts while a storage is locked, full or unreachable, for example while a server restarts.
RETRY_WAITS: tuple[float, ...] = (1, 2, 4, 8, 15, 30)
# Seconds to wait for an SQLite file that another process writes to: during a run, and before it starts.
SQLITE_TIMEOUT = 60
OPENING_TIMEOUT = 10
# Where a network is silent, PostgreSQL's client would wait for up to hours; seconds, and for the last one milliseconds.
POSTGRESQL_CLIENT = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
}
# So would the server, with all locks of a client that is gone.
POSTGRESQL_SESSION = "SET idle_in_transaction_session_timeout = '30s'"
# Seconds between attempts to open a database whose tables others create at the same time.
CREATION_WAITS = (0.1, 0.3, 1.0, 3.0)
SQLITE_HEAD = b"SQLite format 3\0"
# SQLite's messages about a file that was deleted or replaced while it was open: waiting does not bring it back.
GONE = ("no such table", "readonly database", "unable to open database file", "malformed", "not a database")
# The file system's errors for a journal that can be written again later, and for one that must not be written.
TEMPORARY = {errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EAGAIN, errno.EINTR}
READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
# SQLite's error code for a file that was replaced; its message is "attempt to write a readonly database" too.
REPLACED = "SQLITE_READONLY_DBMOVED"


class Store:
    """A study in its storage. Every call is retried while the storage is locked, full or unreachable."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.storage = study._storage
        self.study_id = study._study_id

    @staticmethod
    def open(storage: str | Path | BaseStorage | None, *, alone: bool = False) -> BaseStorage:
        """An Optuna storage from a path (an SQLite file or a journal), a URL or a storage; in memory for None.

        Damage from a process that was killed is repaired, and a warning says so (`repair_storage`). With ``alone`` it
        is a journal that only this process writes to.
        """
        if alone:
            return open_alone(str(storage))
        if storage is None:
            return InMemoryStorage()
        if isinstance(storage, BaseStorage):
            return _opened(storage)
        if not isinstance(storage, str | Path):
            raise TypeError(f"storage must be a path, a URL or an Optuna storage, not {storage!r}")
        if isinstance(storage, str) and "://" in storage:
            return _open_url(database_url(storage), texts.without_password(storage))
        path = Path(storage).expanduser().absolute()
        if is_journal(path):
            return _open_journal(str(path))
        _check_sqlite_file(path)
        return _open_url(sqlite_url(path), str(storage))

    @staticmethod
    def retried(action: Callable[[], _T]) -> _T:
        """The result of an action on a storage, retried while the storage is locked, full or unreachable.

        An action that fails must have changed nothing, or be safe to repeat.
        """
        for wait in (*RETRY_WAITS, None):
            try:
                return action()
            except Exception as error:
                reason = _temporary_reason(error)
                if wait is not None and reason is not None:
                    _logger.warning(f"the storage does not answer, trying again in {wait} s: {reason}")
                    time.sleep(wait)
                elif (said := _database_reason(error)) is not None:
                    raise StorageInternalError(f"the storage does not answer: {said}") from error
                else:
                    raise
        raise AssertionError("the last attempt returns or raises")

    @staticmethod
    @contextmanager
    def explained(storage: BaseStorage) -> Iterator[None]:
        """Turn the errors of a storage that is gone, read-only or does not answer into one clear message."""
        try:
            yield
        except (StorageInternalError, OSError) as error:
            path, reason = file_of(storage), _database_reason(error)
            if _is_read_only(error, path):
                raise RuntimeError(
                    f"the storage {name_of(storage)!r} can be read but not written. Make the file and its folder "
                    "writable, or use a copy of it"
                ) from error
            if not isinstance(error, StorageInternalError | FileNotFoundError):
                raise
            # An open connection sees a file that it must not write to, a new one sees a file without tables.
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

    @property
    def backend(self) -> BaseStorage:
        """The storage without Optuna's cache: the same object for all studies that were opened from it."""
        return without_cache(self.storage)

    @property
    def database(self) -> RDBStorage | None:
        """The database behind the storage, if there is one."""
        return database_of(self.storage)

    @property
    def file(self) -> Path | None:
        """The file behind the storage, if there is one."""
        return file_of(self.storage)

    @property
    def name(self) -> str:
        """The name of the storage for messages, without its password."""
        return name_of(self.storage)

    @property
    def in_memory(self) -> bool:
        """Whether the study is lost when the process ends."""
        return isinstance(self.storage, InMemoryStorage)

    def trials(self) -> list[FrozenTrial]:
        """All trials as they are now, by number. Raises a ValueError if one is damaged."""
        remedy = "use another study_name, or repair it in the database"
        with codec.readable(f"a trial of the study {self.study.study_name!r}", remedy, codec.NOT_JSON):
            return Store.retried(partial(all_trials, self.storage, self.study_id))

    def trial(self, trial_id: int) -> FrozenTrial:
        """One trial as it is now."""
        return Store.retried(partial(self.storage.get_trial, trial_id))

    def attributes(self) -> dict[str, Any]:
        """The system attributes of the study."""
        return Store.retried(partial(self.storage.get_study_system_attrs, self.study_id))

    def study_user_attributes(self) -> dict[str, Any]:
        """The user attributes of the study."""
        return Store.retried(partial(self.storage.get_study_user_attrs, self.study_id))

    def kinds(self) -> "dict[str, Structured]":
        """The parameters with structure. Raises a ValueError if an attribute is damaged."""
        from lazybo.space import Structured  # workers start faster without it

        found, mark = {}, f"{Key.KIND}:"
        for key, plain in self.study_user_attributes().items():
            if key.startswith(mark):
                remedy = "its parameters are then read one by one if you delete it"
                with codec.readable(of_study(key, self.study.study_name), remedy):
                    found[key.removeprefix(mark)] = Structured.of_plain(plain)
        return found

    def keep_kinds(self, kinds: "Mapping[str, Structured]") -> None:
        """Write what parameters mean, unless the study says it already."""
        known = self.study_user_attributes() if kinds else {}
        for name, kind in kinds.items():
            key, plain = f"{Key.KIND}:{name}", kind.to_plain()
            if known.get(key) != plain:
                _check_change(name, kind, known.get(key))
                Store.retried(partial(self.storage.set_study_user_attr, self.study_id, key, plain))

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Write system attributes of the study, in this order."""
        for key, value in attributes.items():
            Store.retried(partial(self.storage.set_study_system_attr, self.study_id, key, value))

    @contextmanager
    def reading(self, key: str, remedy: str = "") -> Iterator[Any]:
        """A system attribute of the study, None if it has none; what fails in this block names it and the remedy."""
        with codec.readable(of_study(key, self.study.study_name), remedy):
            yield self.attributes().get(key)

    def object(self, key: str) -> dict[str, Any]:
        """A JSON object that `set_object` has stored; empty if there is none. Raises a ValueError if it is damaged."""
        return object_of(self.attributes(), key)

    def set_object(self, key: str, value: Mapping[str, Any]) -> None:
        """Store a JSON object of any length with the study."""
        self.set_attributes(rewritable_parts(key, json.dumps(value)))

    def set_trial_attributes(self, trial_id: int, attributes: Mapping[str, Any]) -> None:
        """Write system attributes of a trial, in this order."""
        for key, value in attributes.items():
            Store.retried(partial(self.storage.set_trial_system_attr, trial_id, key, value))

    def set_user_attributes(self, trial_id: int, attributes: Mapping[str, Any]) -> None:
        """Write user attributes of a trial, in this order."""
        for key, value in attributes.items():
            Store.retried(partial(self.storage.set_trial_user_attr, trial_id, key, value))

    def add(self, trial: FrozenTrial) -> int:
        """Add a trial; its id."""
        return Store.retried(partial(self.storage.create_new_trial, self.study_id, trial))

    def delete(self) -> None:
        """Delete the study."""
        Store.retried(partial(self.storage.delete_study, self.study_id))

    def change(self, action: Callable[[], _T]) -> _T:
        """The result of an action that reads and writes. No other process writes meanwhile if the storage has a lock.

        It is retried: an action that fails must have changed nothing, or be safe to repeat.
        """

        def locked() -> _T:
            with exclusive(self.storage):
                return action()

        return Store.retried(locked)

    def transaction(self, action: Callable[["Connection"], _T]) -> _T:
        """The result of an action on a database, as one transaction."""
        database = self.database
        assert database is not None, "only databases have transactions"

        def whole() -> _T:
            with database.engine.begin() as connection:
                return action(connection)

        return Store.retried(whole)


# ---------------------------------------------------------------------- retries


def _temporary_reason(error: BaseException) -> str | None:
    """Why a storage failed, if it may answer later; None for every other error."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in TEMPORARY:
            return str(cause)
    reason = _database_reason(error)
    return None if reason is None or any(sign in reason for sign in GONE) else reason


def _database_reason(error: BaseException) -> str | None:
    """The message of a database that could not do its work; None if the error is about something else."""
    if not any(type(cause).__module__.startswith("sqlalchemy.") for cause in _causes(error)):
        return None  # saves the import of SQLAlchemy, which takes long
    from sqlalchemy.exc import DBAPIError, OperationalError, PendingRollbackError

    for cause in _causes(error):
        if isinstance(cause, PendingRollbackError):
            # Optuna catches the first error of a query, and goes on with a connection that is gone.
            return "the connection was lost during a query"
        if isinstance(cause, OperationalError) or (isinstance(cause, DBAPIError) and cause.connection_invalidated):
            return str(cause.orig)
    return None


def _is_read_only(error: BaseException, path: Path | None) -> bool:
    """Whether a database refused to write, or a journal at this path could not be locked or opened for writing."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in READ_ONLY and path is not None:
            return cause.filename == str(path)
        refused = getattr(getattr(cause, "orig", None), "sqlite_errorname", "")
        if refused.startswith("SQLITE_READONLY"):
            return bool(refused != REPLACED)
    return False


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and the errors it was raised from."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


# ---------------------------------------------------------------- open a storage


def repair_storage(storage: str | Path | BaseStorage) -> None:
    """Make a storage readable again that a killed process has damaged; a warning says what was done.

    If NaN was written to a database as the value of a trial, Optuna cannot read any trial of the study. Such a value is
    removed: a pruned trial then has no value, and a completed trial counts as failed, which is what Optuna itself
    writes for NaN. In a journal, incomplete lines are removed. Everything else stays as it is.

    `optimize()` and the ``lazybo`` command do the same when they open a storage; call this before
    ``optuna.load_study``.
    """
    Store.open(storage)


def _opened(storage: BaseStorage) -> BaseStorage:
    """A storage that the caller has opened."""
    path = file_of(storage)
    if path is not None and not path.exists():
        raise ValueError(
            f"the storage {str(path)!r} is gone: it was deleted or moved since it was opened; open it again"
        )
    if isinstance(storage, JournalStorage) and isinstance(storage._backend, JournalFileBackend):
        return storage if isinstance(storage, Journal) else _open_journal(str(path), storage._backend._lock)
    return _repaired(get_storage(storage))


def _open_journal(path: str, lock: BaseJournalFileLock | None = None) -> BaseStorage:
    try:
        return open_journal(path, lock)
    except OSError as error:
        raise ValueError(f"the storage {path!r} cannot be opened: {error.strerror}") from error


def _open_url(url: str, name: str) -> BaseStorage:
    # If several processes create its tables at once, one succeeds and the others try again.
    for wait in (*CREATION_WAITS, None):
        try:
            return _repaired(_open_once(url))
        except Exception as error:  # each database driver has its own exceptions
            others = re.search("already exists|unique constraint", f"{error} {error.__cause__}", re.IGNORECASE)
            if not others or wait is None:
                reason = _with_advice(str(error.__cause__ or error).splitlines()[0])
                raise ValueError(f"the storage {name!r} cannot be opened: {reason}") from error
            time.sleep(wait)
    raise AssertionError("the last attempt returns or raises")


def _open_once(url: str) -> BaseStorage:
    if url.startswith("sqlite"):
        waiting = {"connect_args": {"timeout": SQLITE_TIMEOUT}}
        opened = get_storage(RDBStorage(url, engine_kwargs=waiting))
    elif url.startswith("postgresql"):
        opened = get_storage(_open_postgresql(url))
    else:
        opened = get_storage(url)
    opened.get_all_studies()  # fails now if the storage cannot be read
    return opened


def _open_postgresql(url: str) -> RDBStorage:
    """A database that is given up soon if it does not answer, and that gives up this process if it does not either."""
    from sqlalchemy import event, make_url

    given = make_url(url).query
    limits = {name: limit for name, limit in POSTGRESQL_CLIENT.items() if name not in given}
    database = RDBStorage(url, engine_kwargs={"connect_args": limits} if "+psycopg" in url else {})

    def begin_session(connection: Any, _: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(POSTGRESQL_SESSION)
        connection.commit()

    if "+psycopg" in url:
        event.listen(database.engine, "connect", begin_session)
        database.engine.dispose()  # the connection that has created the tables
    return database


def _repaired(storage: BaseStorage) -> BaseStorage:
    """The storage; final values that Optuna cannot read are removed."""
    database = database_of(storage)
    count = 0 if database is None else Store.retried(partial(repair_values, database))
    if count:
        which = f"{count} trial{'s' * (count != 1)}"
        _logger.warning(
            f"the storage {name_of(storage)!r} had NaN as the value of {which}, which made its studies "
            "unreadable; such trials are pruned or failed without a value now, and all others are unchanged"
        )
    return storage


def database_url(url: str) -> str:
    """A URL that SQLAlchemy understands: ``postgres://`` is PostgreSQL, and gets an installed or recommended driver."""
    scheme, _, place = url.partition("://")
    database, _, driver = scheme.partition("+")
    if database not in ("postgres", "postgresql"):
        return url
    driver = driver or ("psycopg2" if find_spec("psycopg2") else "psycopg")
    return f"postgresql+{driver}://{place}"


def _with_advice(reason: str) -> str:
    """Why a database cannot be opened, with advice if its driver is missing."""
    if "Can't load plugin" in reason:
        return f"{reason}; write sqlite:///FILE, postgresql+psycopg://USER@HOST/DATABASE or mysql+pymysql://..."
    if "No module named 'psycopg2'" in reason:
        return f"{reason}; write postgresql+psycopg://... and pip install 'psycopg[binary]'"
    if "No module named 'psycopg'" in reason:
        return f"{reason}; pip install 'psycopg[binary]'"
    return reason


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
    if head and not has_studies(path):
        raise ValueError(f"the storage {str(path)!r} is a database of another program; name another file")


def has_studies(path: Path, timeout: float = OPENING_TIMEOUT) -> bool:
    """Whether a database is Optuna's, or empty: opening any other as a storage would add tables to it.

    It is opened for writing: a process may have been killed during a write, which SQLite must roll back before anything
    can be read.
    """
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=timeout)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            both = (
                "SELECT name FROM pragma_table_info('studies') UNION SELECT name FROM pragma_table_info('version_info')"
            )
            columns = {name for (name,) in connection.execute(both)}
    except sqlite3.Error as error:
        remedy = "; end the program that holds it, or name another file" if "locked" in str(error) else ""
        raise ValueError(f"the storage {str(path)!r} cannot be opened: {error}{remedy}") from None
    return not tables or not columns.isdisjoint({"study_name", "schema_version"})


def _check_change(name: str, kind: "Structured", earlier: Any) -> None:
    """Raise a ValueError if a study cannot have this kind after an earlier one: its parameters have other choices."""
    try:
        known = kind.of_plain(earlier).stored(name)
    except ValueError:  # there is none, or it is damaged
        return
    for each, distribution in kind.stored(name).items():
        try:
            check_distribution_compatibility(known.get(each, distribution), distribution)
        except ValueError:
            raise ValueError(
                f"{name!r} is {checks.shortened(kind, 200)} here, but in an earlier trial it was "
                f"{checks.shortened(earlier, 200)}; "
                "use another name"
            ) from None
