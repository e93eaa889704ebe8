"""Errors of a run, which say where the recorded trials are and how to resume; and the log of failed trials."""

import builtins
from contextlib import suppress
from typing import Any

from optuna.study import Study

from lazybo.study import Store


class RunFailed(RuntimeError):
    """A run ended early: too many evaluations failed, or there is nothing left to run them on.

    ``study`` holds every trial that was recorded.
    """

    study: Study
    nothing_completed = False  # whether the run is over, and all trials of the study have failed


class InvalidValue(RunFailed, TypeError):
    """The result of an evaluation is not a number; retrying cannot help."""


class NothingCompleted(RunFailed):
    """The run is over, and all trials of the study have failed."""

    nothing_completed = True


class RemoteTraceback(Exception):
    """The traceback of an exception in another process, as text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}\n"""'


def raised_elsewhere(kind: str, arguments: tuple[Any, ...], reason: str, traceback: str) -> BaseException:
    """An exception of another process: of its own class if that is built in, or else a RuntimeError."""
    found = getattr(builtins, kind, None)
    error: BaseException = RuntimeError(reason)
    if isinstance(found, type) and issubclass(found, BaseException):
        with suppress(Exception):  # some classes need arguments that are not plain data
            error = found(*arguments)
    error.__cause__ = RemoteTraceback(traceback)
    return error


def attach_study(error: BaseException, study: Study) -> None:
    """Attach the study to an exception that leaves `optimize()`, and mention it in the notes of the exception."""
    with suppress(Exception):  # a class with slots may have room for neither
        error.study = study  # type: ignore[attr-defined]
        if not isinstance(error, RunFailed):
            error.add_note(f"lazybo: {how_to_resume(study)}")


def how_to_resume(study: Study) -> str:
    """A sentence that says where the finished trials are and how to resume, without passwords."""
    store = Store(study)
    if store.in_memory:
        return "The finished trials are in error.study."
    where = f"The study {study.study_name!r} in {store.name}"
    return f"{where} keeps the finished trials; make the same call again to resume."
