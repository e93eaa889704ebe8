"""Retries while a storage is locked, full or unreachable for a moment."""

import errno
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from optuna.exceptions import StorageInternalError

_logger = logging.getLogger("lazybo")
_T = TypeVar("_T")

# Seconds between attempts while a storage is locked, full or unreachable, for example while a server restarts.
RETRY_WAITS = (1, 2, 4, 8, 15, 30)
# What SQLite says of a file that was deleted or replaced while it was open: waiting does not bring it back.
GONE = ("no such table", "readonly database", "unable to open database file", "malformed", "not a database")
# What a file system says of a journal that can be written again later.
PASSING = {errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EAGAIN, errno.EINTR}
# What it says of one that must not be written.
READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
# SQLite's name of the error that a file was replaced, which also reads "attempt to write a readonly database".
REPLACED = "SQLITE_READONLY_DBMOVED"


def with_retries(action: Callable[[], _T]) -> _T:
    """The result of an action on a storage. It is retried while the storage is locked, full or unreachable.

    An action that fails must have changed nothing, or be safe to repeat.
    """
    for wait in (*RETRY_WAITS, None):
        try:
            return action()
        except Exception as error:
            reason = passing_reason(error)
            if wait is not None and reason is not None:
                _logger.warning(f"the storage does not answer, trying again in {wait} s: {reason}")
                time.sleep(wait)
            elif (said := database_reason(error)) is not None:
                raise StorageInternalError(f"the storage does not answer: {said}") from error
            else:
                raise
    raise AssertionError("the last attempt returns or raises")


def passing_reason(error: BaseException) -> str | None:
    """Why a storage failed, if it may answer later; None for every other error."""
    for cause in causes(error):
        if isinstance(cause, OSError) and cause.errno in PASSING:
            return str(cause)
    reason = database_reason(error)
    return None if reason is None or any(sign in reason for sign in GONE) else reason


def database_reason(error: BaseException) -> str | None:
    """What a database that could not do its work said; None if the error is about something else."""
    if not any(type(cause).__module__.startswith("sqlalchemy.") for cause in causes(error)):
        return None  # without the import of SQLAlchemy, which takes long
    from sqlalchemy.exc import DBAPIError, OperationalError

    for cause in causes(error):
        if isinstance(cause, OperationalError) or (isinstance(cause, DBAPIError) and cause.connection_invalidated):
            return str(cause.orig)
    return None


def is_read_only(error: BaseException, path: Path | None) -> bool:
    """Whether a database refused to write, or a journal at this path could not be locked or opened for writing."""
    for cause in causes(error):
        if isinstance(cause, OSError) and cause.errno in READ_ONLY and path is not None:
            return cause.filename == str(path)
        refused = getattr(getattr(cause, "orig", None), "sqlite_errorname", "")
        if refused.startswith("SQLITE_READONLY"):
            return bool(refused != REPLACED)
    return False


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that it was raised from."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__
