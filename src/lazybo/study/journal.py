"""Journal files that stay readable after a crash or a suspension, with a lock for several writes.

A process that is killed while it writes, or a full disk, leaves an incomplete last line. Optuna skips it when it reads,
but would append the next line to it, and then neither can be read.

Optuna's lock is taken over when it was held for half a minute, since its process may be dead. It may also be suspended,
and write on when it continues. So nothing here depends on where the file ends: lines are only ever appended by the
system, nothing is cut off, and what is repaired is overwritten with spaces, which does no harm a second time. (A lock
of the kernel would be no better: it can't be taken over from a suspended process at all.)
"""

import errno
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock
from optuna.storages.journal._storage import JournalOperation

from lazybo.core import checks, codec

_logger = logging.getLogger("lazybo")

# How every line of a journal begins.
HEAD = b'{"op_code":'
# A trial about which nothing is known, in place of a line that began one and can't be read.
UNKNOWN_TRIAL = '{"op_code":4,"worker_id":"unknown","study_id":%d,"datetime_start":null'


class LockLost(OSError):
    """Another process has taken the lock over. What was begun under it must be begun again."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EAGAIN, f"the lock of the journal {path!r} was taken over: this process was suspended")


class WholeLines(JournalFileBackend):
    """A journal file to which only complete lines are appended."""

    def __init__(self, file_path: str, lock_obj: BaseJournalFileLock | None = None) -> None:
        super().__init__(file_path, lock_obj)
        self._holder: int | None = None  # the thread that has the lock
        self._gathers = False  # whether lines wait for the next one
        self._waiting: list[dict[str, Any]] = []
        self._is_ours: Callable[[], bool] = _always

    def __getstate__(self) -> dict[str, Any]:
        """Without the lock: a copy does not hold it."""
        return {**self.__dict__, "_holder": None, "_gathers": False, "_waiting": [], "_is_ours": _always}

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:  # type: ignore[override]  # no `send`
        """Entries from a number on. A line that can't be read costs that line: the journal is repaired."""
        number = log_number_from
        while True:
            try:
                for log in super().read_logs(number):
                    number += 1
                    yield log
                return
            except ValueError:
                if not repair_journal(self._file_path, self.exclusive):
                    raise

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write lines; an incomplete line of a dead process is blanked first.

        All of them are one system call, so that a kill leaves all or none. Raises `LockLost` within `exclusive`.
        """
        if self._holder != threading.get_ident():
            while True:
                with suppress(LockLost), self.exclusive():
                    self._append(logs)
                    return
        if self._gathers:
            self._waiting += logs
        else:
            logs, self._waiting = [*self._waiting, *logs], []
            self._append(logs)

    def _append(self, logs: list[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        with Path(self._file_path).open("r+b", buffering=0) as file:  # "r+": a deleted journal is not created again
            lines = _end_last_line(file, self._check) + lines
            while lines:  # a full disk takes a part
                lines = lines[_append(file, lines, self._check) :]
            os.fsync(file.fileno())

    def _check(self) -> None:
        """Raise `LockLost` if another process has the lock."""
        if not self._is_ours():
            raise LockLost(self._file_path)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Hold back the lines of this block, and write them together with the next one. Needs the lock."""
        self._gathers = True
        try:
            yield
        finally:
            self._gathers = False

    @contextmanager
    def exclusive(self) -> Iterator[Callable[[], None]]:
        """Hold the lock of the file: no other process writes. What it gives raises `LockLost` if that has changed."""
        if self._holder == threading.get_ident():
            yield self._check
            return
        with _held(self._lock) as is_ours:
            self._holder, self._is_ours = threading.get_ident(), is_ours
            try:
                yield self._check
            finally:
                self._holder, self._is_ours, self._waiting = None, _always, []


def _always() -> bool:
    return True


@contextmanager
def _held(lock: BaseJournalFileLock) -> Iterator[Callable[[], bool]]:
    """Hold one of Optuna's locks; gives a function that says whether it was not taken over since."""
    lock.acquire()
    path = getattr(lock, "_lock_file", None)  # other locks are never taken over, as far as is known
    is_ours = _always if path is None else partial(_is_same, path, _identity(path))
    try:
        yield is_ours
    finally:
        with suppress(RuntimeError):  # taken over just now
            if is_ours():
                lock.release()


def _identity(path: str) -> tuple[int, int] | None:
    """Identifies a lock file among all that have had its name; None if there is none."""
    with suppress(OSError):
        found = os.lstat(path)
        return found.st_ino, found.st_mtime_ns
    return None


def _is_same(path: str, identity: tuple[int, int] | None) -> bool:
    return _identity(path) == identity


def _append(file: BinaryIO, lines: bytes, check: Callable[[], None]) -> int:
    """Append to a file wherever it ends then; how many bytes were written."""
    end = os.open(file.name, os.O_WRONLY | os.O_APPEND)
    try:
        check()
        return os.write(end, lines)
    finally:
        os.close(end)


class Journal(JournalStorage):
    """A journal file with a lock that can be held for several writes."""

    def __init__(self, backend: WholeLines) -> None:
        super().__init__(backend)
        self._make_reentrant()

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        self._make_reentrant()

    def _make_reentrant(self) -> None:
        self._thread_lock = threading.RLock()  # type: ignore[assignment]  # taken here, and by each call within

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock: no other process or thread writes."""
        assert isinstance(self._backend, WholeLines)
        with self._thread_lock, self._backend.exclusive():
            yield

    def _sync_with_backend(self) -> None:
        """Read to the end: what came too late to change a trial is refused where it was written, not when reading."""
        refused: UpdateFinishedTrialError | None = None
        while True:
            try:
                super()._sync_with_backend()
            except UpdateFinishedTrialError as error:
                refused = refused or error
            else:
                break
        if refused is not None:
            raise refused

    def set_intermediate_values(self, values: Mapping[int, Mapping[int, float]]) -> None:
        """Write intermediate values by step, by the id of their trial, at once. The trials must not have ended."""
        operation, worker = JournalOperation.SET_TRIAL_INTERMEDIATE_VALUE, self._replay_result.worker_id
        logs = [
            {"op_code": operation, "worker_id": worker, "trial_id": trial_id, "step": step, "intermediate_value": value}
            for trial_id, steps in values.items()
            for step, value in steps.items()
        ]
        with self._thread_lock:
            self._backend.append_logs(logs)
            self._sync_with_backend()


def exclusive(storage: BaseStorage) -> AbstractContextManager[object]:
    """Hold the lock of a storage, if it has one for several writes: journal files and memory."""
    if isinstance(storage, Journal):
        return storage.exclusive()
    return storage._lock if isinstance(storage, InMemoryStorage) else nullcontext()


def gathered(storage: BaseStorage) -> AbstractContextManager[object]:
    """Write what this block writes together with the next write, if the storage is a journal that is locked."""
    backend = storage._backend if isinstance(storage, Journal) else None
    return backend.gathered() if isinstance(backend, WholeLines) else nullcontext()


def has_lock(storage: BaseStorage) -> bool:
    """Whether `exclusive` holds a lock for this storage."""
    return isinstance(storage, Journal | InMemoryStorage)


def is_journal(path: Path) -> bool:
    """Whether a file is an Optuna journal."""
    try:
        with path.open("rb") as file:
            return file.read(len(HEAD)) == HEAD
    except OSError:
        return False


class _NoLock(BaseJournalFileLock):
    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def open_journal(path: str, lock: BaseJournalFileLock | None = None) -> Journal:
    """The storage of a journal file; lines that can't be read are repaired first."""
    backend = WholeLines(path, lock)
    repair_journal(path, backend.exclusive)
    return Journal(backend)


def open_alone(path: str) -> Journal:
    """A journal that only this process writes. It has no lock file, which others that copy its folder would meet."""
    return open_journal(path, _NoLock())


# ----------------------------------------------------------------------- repairs


def repair_journal(path: str, exclusive: Callable[[], AbstractContextManager[Callable[[], None]]]) -> int:
    """Make a journal readable again, with its lock, which ``exclusive`` holds; returns how many lines were repaired.

    No complete entry is lost: if an entry was appended to an incomplete line, only the incomplete part is blanked.
    Raises a ValueError if the file is no journal, or lacks the line that began a study.
    """
    if not Path(path).exists() or not _broken(path):
        return 0  # checked without the lock, which a killed process may hold for half a minute
    with exclusive() as check, Path(path).open("r+b", buffering=0) as file:
        mended = _blank_damaged(file, check)
        rest = _end_last_line(file, check)
        if rest:
            _append(file, rest, check)
        os.fsync(file.fileno())
    return mended + bool(rest)


def _broken(path: str) -> bool:
    """Whether a line cannot be read, or the last one has no end."""
    with Path(path).open("rb") as file:
        return any(_entry(line) is None for _, line in _lines(file))


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Every line with its position, up to the size that the file has now."""
    with Path(file.name).open("rb") as read:
        size = os.fstat(read.fileno()).st_size
        start = 0
        while start < size:
            line = read.readline()
            yield start, line
            start += len(line)


def _entry(line: bytes) -> dict[str, Any] | None:
    """The entry in a line; None if it is incomplete or no entry."""
    if not line.endswith(b"\n"):
        return None
    try:
        found = codec.from_json(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "op_code" in found else None


def _blank_damaged(file: BinaryIO, check: Callable[[], None]) -> int:
    """Overwrite what can't be read with spaces, which JSON allows before the next entry; how many lines there were.

    Trials are numbered by the lines that began them. If one of those is damaged, an unknown trial takes its place.
    """
    damaged: list[tuple[int, bytes]] = []
    creations, studies, study, missing = 0, 0, 0, 0
    for start, line in _lines(file):
        entry = _entry(line)
        if entry is None:
            damaged += [(start, line)] if line.endswith(b"\n") else []
            at = line.rfind(HEAD)
            entry = _entry(line[at:]) if at > 0 else None
        entry = entry or {}
        creations += entry.get("op_code") == JournalOperation.CREATE_TRIAL
        studies += entry.get("op_code") == JournalOperation.CREATE_STUDY
        study = max(study, entry.get("study_id", 0))
        missing = max(missing, entry.get("trial_id", -1) + 1 - creations)
    if damaged and studies <= study:
        start, line = damaged[0]
        raise ValueError(f"the journal cannot be repaired: its line at byte {start} is not an entry: {line[:80]!r}")
    for start, line in damaged:
        at = line.rfind(HEAD)
        instead = b" " * (at if at > 0 and _entry(line[at:]) else len(line))
        if missing and len(instead) == len(line) and (unknown := _unknown_trial(line)):
            instead, missing = unknown, missing - 1
        check()
        os.pwrite(file.fileno(), instead, start)
        what = "the end of a process cut it short" if len(instead) < len(line) else checks.shortened(line)
        _logger.warning(f"the journal {str(file.name)!r} had a line at byte {start} that cannot be read: {what}")
    return len(damaged)


def _unknown_trial(line: bytes) -> bytes | None:
    """A line of the same length that begins a trial about which nothing is known; None if there is no room."""
    found = re.search(rb'"study_id":(\d{1,9})', line)
    text = UNKNOWN_TRIAL % (int(found[1]) if found else 0)
    return f"{text.ljust(len(line) - 2)}}}\n".encode() if len(text) + 2 <= len(line) else None


def _end_last_line(file: BinaryIO, check: Callable[[], None]) -> bytes:
    """What is missing to end the last line: a newline or nothing. If it is incomplete, it is blanked."""
    end = file.seek(0, os.SEEK_END)
    rest = _last_line(file, end)
    if not rest.strip(b" "):
        return b""
    if _entry(rest + b"\n"):
        return b"\n"
    check()
    os.pwrite(file.fileno(), b" " * len(rest), end - len(rest))
    _logger.warning(f"the last line of the journal {str(file.name)!r} was cut short; it is removed")
    return b""


def _last_line(file: BinaryIO, end: int) -> bytes:
    """The text after the last newline."""
    block = 1 << 16
    start, rest = end, b""
    while start > 0 and b"\n" not in rest:
        begin = max(0, start - block)
        file.seek(begin)
        rest = file.read(start - begin) + rest
        start = begin
    return rest.rpartition(b"\n")[2]
