"""How a run that fails tells where everything is that it has recorded."""

from contextlib import suppress
from typing import Any

from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages._cached_storage import _CachedStorage
from optuna.study import Study


class RunFailed(RuntimeError):
    """A run has ended early: too many evaluations failed, or nothing can run them any more.

    ``study`` holds every trial that was recorded.
    """

    study: Study


class InvalidValue(RunFailed, TypeError):
    """The objective returned what is no value, which another evaluation would not mend."""


def carry(error: BaseException, study: Study) -> None:
    """Let an exception that leaves `optimize()` hold the study, and say so."""
    with suppress(Exception):  # one with slots has room for neither
        error.study = study  # type: ignore[attr-defined]
        if not isinstance(error, RunFailed):
            error.add_note(f"lazybo: {whereabouts(study)}")


def whereabouts(study: Study) -> str:
    """Where the finished trials are, and how to go on: a sentence. It holds no password."""
    if isinstance(study._storage, InMemoryStorage):
        return "The finished trials are in error.study."
    where = _place(study._storage)
    return f"The study {study.study_name!r} in {where} keeps the finished trials; the same call again goes on."


def _place(storage: BaseStorage) -> str:
    if isinstance(storage, _CachedStorage):
        storage = storage._backend
    if isinstance(storage, RDBStorage):
        from sqlalchemy import make_url

        url = make_url(storage.url)
        if url.get_backend_name() == "sqlite" and url.database:
            return url.database
        # Drivers of databases take passwords as options too.
        return url.set(query={}).render_as_string(hide_password=True)
    backend: Any = getattr(storage, "_backend", None)
    if isinstance(storage, JournalStorage) and hasattr(backend, "_file_path"):
        return str(backend._file_path)
    return f"its {type(storage).__name__}"
