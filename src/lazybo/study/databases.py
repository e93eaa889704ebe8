"""The database behind a study: its file or URL, and the repair of values that cannot be read."""

import logging
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages._cached_storage import _CachedStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from lazybo.study.retry import with_retries

_logger = logging.getLogger("lazybo")


def database_of(storage: BaseStorage) -> RDBStorage | None:
    """The database behind a storage, if there is one."""
    storage = storage._backend if isinstance(storage, _CachedStorage) else storage
    return storage if isinstance(storage, RDBStorage) else None


def drop_cache(storage: BaseStorage, study_id: int) -> None:
    """Read all trials of a study again: Optuna keeps finished ones in memory, and one of them was changed."""
    if isinstance(storage, _CachedStorage):
        with storage._lock:
            storage._studies.pop(study_id, None)


def file_of(storage: BaseStorage) -> Path | None:
    """The file behind a storage, if there is one."""
    if isinstance(storage, JournalStorage) and isinstance(storage._backend, JournalFileBackend):
        return Path(storage._backend._file_path)
    database = database_of(storage)
    if database is None or not database.url.startswith("sqlite"):
        return None
    from sqlalchemy import make_url

    url = make_url(database.url)
    name = url.database or ":memory:"
    if "uri" in url.query:  # as `sqlite_url` writes names that a plain URL cannot hold
        name = unquote(urlsplit(name).path)
    return Path(name) if name != ":memory:" and url.query.get("mode") != "memory" else None


def name_of(storage: BaseStorage) -> str:
    """The name of a storage for messages, without its password."""
    path, database = file_of(storage), database_of(storage)
    if path is not None or database is None:
        return str(path or type(storage).__name__)
    from sqlalchemy import make_url

    # Database drivers accept passwords as URL options too.
    return make_url(database.url).set(query={}).render_as_string(hide_password=True)


def sqlite_url(path: Path) -> str:
    """The URL of an SQLite file, whatever characters its name has."""
    from sqlalchemy import URL, make_url

    url = URL.create("sqlite", database=str(path)).render_as_string()
    # SQLAlchemy 2.0 quotes nothing in file names, and Optuna takes braces for its own.
    if make_url(url).database != str(path) or re.search("[{}]", url):
        url = f"sqlite:///{path.as_uri()}?uri=true"
    return url


def repair_values(storage: BaseStorage) -> None:
    """Remove rows of final values that Optuna cannot read: they are marked as finite, but have no number.

    SQLite and MySQL have no NaN. If NaN was written as the value of a trial, Optuna cannot read any trial of the study.
    A pruned trial then has no value, and a completed one is failed, as Optuna itself does for NaN.
    """
    database = database_of(storage)
    if database is None:
        return
    # SQLAlchemy and Optuna's tables take half a second to import, and only databases need them.
    from optuna.storages._rdb import models
    from sqlalchemy import delete, select, update

    trials, values = models.TrialModel.__table__, models.TrialValueModel.__table__
    lost = values.c.value.is_(None) & (values.c.value_type == models.TrialValueModel.TrialValueType.FINITE)
    found = select(values.c.trial_id).where(lost)

    def is_damaged() -> bool:
        with database.engine.connect() as connection:
            return connection.execute(found.limit(1)).first() is not None

    def repair() -> int:
        with database.engine.begin() as connection:
            damaged = sorted(set(connection.execute(found).scalars()))
            complete = trials.c.trial_id.in_(damaged) & (trials.c.state == TrialState.COMPLETE)
            connection.execute(update(trials).where(complete).values(state=TrialState.FAIL))
            connection.execute(delete(values).where(lost))
            return len(damaged)

    if with_retries(is_damaged):
        count = with_retries(repair)
        which = f"{count} trial{'s' * (count != 1)}"
        _logger.warning(
            f"the storage {name_of(storage)!r} had NaN as the value of {which}, which made its studies "
            "unreadable; such trials are pruned or failed without a value now, and all others are unchanged"
        )
