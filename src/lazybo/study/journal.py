"""Journal files that stay readable after a crash, with a lock for several writes.

A process that is killed while it writes, or a full disk, leaves an incomplete last line. Optuna skips it when it reads,
but would append the next line to it, and then neither can be read.
"""

import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock, JournalFileSymlinkLock, get_lock_file
from optuna.storages.journal._storage import JournalOperation

from lazybo.core import codec

_logger = logging.getLogger("lazybo")

# How every line of a journal begins.
HEAD = b'{"op_code":'


class WholeLines(JournalFileBackend):
    """A journal file to which only complete lines are appended."""

    def __init__(self, file_path: str, lock_obj: BaseJournalFileLock | None = None) -> None:
        super().__init__(file_path, lock_obj)
        self._holder: int | None = None  # the thread that has the lock
        self._gathers = False  # whether lines wait for the next one
        self._waiting: list[dict[str, Any]] = []

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write lines; an incomplete line of a dead process is removed first.

        All of them are one system call, so that a kill leaves all or none.
        """
        if self._gathers and self._holder == threading.get_ident():
            self._waiting += logs
            return
        with (
            self.exclusive(),
            Path(self._file_path).open("r+b", buffering=0) as file,
        ):  # "r+": a deleted journal is not created again
            logs, self._waiting = [*self._waiting, *logs], []
            lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
            if _end_last_line(file):
                _logger.warning(f"the last line of the journal {self._file_path!r} was cut short; it is removed")
            while lines:  # a full disk takes a part
                lines = lines[file.write(lines) :]
            os.fsync(file.fileno())

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Hold back the lines of this block, and write them together with the next one. Needs the lock."""
        self._gathers = True
        try:
            yield
        finally:
            self._gathers = False

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock of the file: no other process writes."""
        if self._holder == threading.get_ident():
            yield
            return
        with get_lock_file(self._lock):
            self._holder = threading.get_ident()
            try:
                yield
            finally:
                self._holder, self._waiting = None, []


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


def open_journal(path: str, lock: BaseJournalFileLock | None = None) -> Journal:
    """The storage of a journal file; incomplete lines are repaired first."""
    repair_journal(path, lock or JournalFileSymlinkLock(path))
    return Journal(WholeLines(path, lock))


class _NoLock(BaseJournalFileLock):
    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def open_alone(path: str) -> Journal:
    """A journal that only this process writes. It has no lock file, which others that copy its folder would meet."""
    return open_journal(path, _NoLock())


def repair_journal(path: str, lock: BaseJournalFileLock) -> int:
    """Make a journal with incomplete lines readable again; returns how many there were.

    No complete entry is lost: if an entry was appended to an incomplete line, only the incomplete part is blanked.
    """
    if not Path(path).exists() or not _broken(path):
        return 0  # checked without the lock, which a killed process may hold for half a minute
    with get_lock_file(lock), Path(path).open("r+b") as file:
        mended = sum(_blank_rest(file, start, line) for start, line in _lines(file))
        mended += _end_last_line(file)
        file.flush()
        os.fsync(file.fileno())
    if mended:
        lines = f"{mended} line{'s' * (mended != 1)}"
        _logger.warning(f"the journal {path!r} had {lines} cut short by the end of a process; all whole lines are kept")
    return mended


def _broken(path: str) -> bool:
    """Whether a line cannot be read, or the last one has no end."""
    with Path(path).open("rb") as file:
        return any(not _is_whole(line) for _, line in _lines(file))


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Every line with its position, up to the size that the file has now."""
    size = os.fstat(file.fileno()).st_size
    start = 0
    file.seek(0)
    while start < size:
        file.seek(start)
        line = file.readline()
        yield start, line
        start += len(line)


def _is_whole(line: bytes) -> bool:
    if not line.endswith(b"\n"):
        return False
    try:
        codec.from_json(line)
    except ValueError:
        return False
    return True


def _blank_rest(file: BinaryIO, start: int, line: bytes) -> bool:
    """Blank the incomplete part before the complete entry at the end of a line: JSON allows leading spaces."""
    if not line.endswith(b"\n") or _is_whole(line):
        return False
    at = line.rfind(HEAD)
    if at <= 0 or not _is_whole(line[at:]):
        raise ValueError(f"the journal cannot be repaired: its line at byte {start} is not an entry: {line[:80]!r}")
    file.seek(start)
    file.write(b" " * at)
    return True


def _end_last_line(file: BinaryIO) -> bool:
    """Complete the last line if only its newline is missing, else remove it; then seek to the end."""
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return False
    file.seek(end - 1)
    if file.read(1) == b"\n":
        return False
    rest = _last_line(file, end)
    if _is_whole(rest + b"\n"):
        file.write(b"\n")
    else:
        file.truncate(end - len(rest))
    file.seek(0, os.SEEK_END)
    return True


def _last_line(file: BinaryIO, end: int) -> bytes:
    """The text after the last newline."""
    block = 1 << 16
    start, rest = end, b""
    while start > 0 and b"\n" not in rest:
        begin = max(0, start - block)
        file.seek(begin)
        rest = file.read(start - begin) + rest
        start = begin
    file.seek(0, os.SEEK_END)
    return rest.rpartition(b"\n")[2]
