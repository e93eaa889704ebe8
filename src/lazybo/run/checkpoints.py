"""Checkpoints: the folder in which a training keeps what it needs to continue.

The folder of trial 12 is ``000012/`` of a common folder:

=====================  ===============================================================================================
``files/``             what the objective gets as ``checkpoint``
``saved-7-1f2e3d4c/``  a copy of it, made when the objective had yielded its 7th value
``saved.json``         which copy counts, its step and its value; replaced in one step
``owner.json``         the process that runs the trial
=====================  ===============================================================================================

A training may be killed at any moment, also while it writes. So when it is started again, ``files/`` is restored from
the last copy, whose step is known. A copy is made after the value of its step was recorded in the study, and only if
something in the folder has changed: a kill in between repeats a step, but never leaves one out or counts one twice.

A process that counts as dead may still run, on a machine that cannot be reached. Then the next one gets a folder of
another name, and the copies of the first one are refused.

A program is never in step with what is read of its output. It gets ``files/`` as it is, and no copies are made.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from optuna.storages import BaseStorage, InMemoryStorage
from optuna.study import Study

from lazybo.run.presence import born, machine
from lazybo.study.attributes import CHECKPOINTS_KEY
from lazybo.study.databases import file_of
from lazybo.study.retry import with_retries

FILES, SAVED, STATE, OWNER = "files", "saved", "saved.json", "owner.json"

# A file that is written twice within this time, in nanoseconds, may look unchanged. Large ones take longer to write.
JUST_NOW, SMALL = 100_000_000, 1 << 24

# By path: time, size and inode.
Stamp: TypeAlias = dict[str, tuple[int, int, int]]

# The temporary folders of studies in memory. Each is removed with its storage, at the latest when this process ends.
_temporary: "weakref.WeakKeyDictionary[BaseStorage, Path]" = weakref.WeakKeyDictionary()


class TakenOver(RuntimeError):
    """Another process runs this trial now."""


class Checkpoint:
    """The checkpoint of a trial as the process that runs the trial uses it.

    ``folder`` is for the objective. ``step`` and ``value`` are those of the last copy; 0 and None if there is none.
    ``before_copy`` is called before a copy is made.
    """

    before_copy: Callable[[], object] | None = None

    def __init__(self, root: Path, number: int, *, copies: bool) -> None:
        self._place = place_of(root, number)
        self._place.mkdir(parents=True, exist_ok=True)
        self._token = uuid.uuid4().hex[:8]
        contested = copies and _may_run(_read(self._place / OWNER))
        self.folder = self._place / (f"{FILES}-{self._token}" if contested else FILES)
        _replace(self._place / OWNER, {**_process(), "token": self._token})
        self.step = 0
        self.value: Any = None
        if copies:
            self._restore()
        else:
            self.folder.mkdir(exist_ok=True)
        self._remember(_stamp(self.folder), time.time_ns())

    def _restore(self) -> None:
        state = _read(self._place / STATE)
        copy = self._place / str(state.get("copy", ""))
        _remove(self.folder)
        if state and copy.is_dir():
            _copy(copy, self.folder)
            self.step, self.value = int(state["step"]), state["value"]
        else:
            self.folder.mkdir()

    def save(self, step: int, value: Any) -> None:
        """Copy the folder after this step, if something in it has changed. Raises `TakenOver`.

        ``value`` is what the step gave, as plain data: a number, several of them, or a dict with metrics.
        """
        now, stamp = time.time_ns(), _stamp(self.folder)
        if stamp == self._stamp and self._digests == {name: _digest(self.folder / name) for name in self._digests}:
            return
        if self.before_copy is not None:
            self.before_copy()
        name = f"{SAVED}-{step}-{uuid.uuid4().hex[:8]}"
        _copy(self.folder, self._place / name)
        if _read(self._place / OWNER).get("token") != self._token:
            _remove(self._place / name)
            raise TakenOver(f"another process runs this trial in {self._place}")
        before = _read(self._place / STATE).get("copy")
        _replace(self._place / STATE, {"copy": name, "step": step, "value": value})
        if before is not None:
            _remove(self._place / str(before))
        self.step, self.value = step, value
        self._remember(stamp, now)

    def _remember(self, stamp: Stamp, now: int) -> None:
        """Remember what the folder holds. The clocks of file systems are coarse: new small files are read, too."""
        fresh = [name for name, (at, size, _) in stamp.items() if at >= now - JUST_NOW and size <= SMALL]
        self._stamp, self._digests = stamp, {name: _digest(self.folder / name) for name in fresh}

    def release(self) -> None:
        """Note that this process runs the trial no more."""
        with contextlib.suppress(OSError):
            if _read(self._place / OWNER).get("token") == self._token:
                (self._place / OWNER).unlink()


@contextlib.contextmanager
def opened(root: Path, number: int, *, copies: bool) -> Iterator[Checkpoint]:
    """The checkpoint of a trial, for as long as this process runs the trial."""
    checkpoint = Checkpoint(root, number, copies=copies)
    try:
        yield checkpoint
    finally:
        checkpoint.release()


def place_of(root: Path, number: int) -> Path:
    """The folder of a trial."""
    return root / f"{number:06}"


def tidy(root: Path, number: int) -> None:
    """A trial has ended and is recorded: remove the copies. What the objective wrote stays in ``files/``."""
    place = place_of(root, number)
    with contextlib.suppress(OSError):
        (place / STATE).unlink(missing_ok=True)
        for folder in place.glob(f"{SAVED}-*"):
            _remove(folder)


def checkpoint_root(study: Study, given: str | Path | None) -> Path:
    """The common folder of a study's checkpoints, which the study remembers. Raises ValueError if it cannot be made.

    It is the one that is given, that of an earlier run, a temporary one if the study is in memory, or one beside the
    file of the study. If that is not a file, it is one in the current folder.
    """
    storage = study._storage
    if given is None and isinstance(storage, InMemoryStorage):
        if storage not in _temporary:
            _temporary[storage] = Path(tempfile.mkdtemp(prefix="lazybo-checkpoints-"))
            weakref.finalize(storage, _remove, _temporary[storage])
        return _temporary[storage]
    known = with_retries(lambda: storage.get_study_system_attrs(study._study_id)).get(CHECKPOINTS_KEY)
    root = (Path(given).expanduser() if given is not None else Path(known or _beside(study))).absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"the folder for checkpoints {str(root)!r} cannot be made: {error.strerror}; give another: checkpoints="
        ) from None
    if str(root) != known:
        with_retries(lambda: storage.set_study_system_attr(study._study_id, CHECKPOINTS_KEY, str(root)))
    return root


def _beside(study: Study) -> Path:
    name = re.sub(r"[^\w.-]", "_", study.study_name)
    path = file_of(study._storage)
    return Path(f"{name}-checkpoints") if path is None else path.with_name(f"{path.stem}-{name}-checkpoints")


def _process() -> dict[str, Any]:
    return {"machine": machine(), "pid": os.getpid(), "born": born(os.getpid())}


def _may_run(owner: Mapping[str, Any]) -> bool:
    """Whether the process that last ran a trial may still do so. It removes its file when it stops."""
    if not owner:
        return False
    return owner["machine"] != machine() or born(owner["pid"]) == owner["born"]


def _stamp(folder: Path) -> Stamp:
    """Time, size and inode of everything in a folder: they change when something is written."""
    found = {str(path.relative_to(folder)): path.lstat() for path in sorted(folder.rglob("*"))}
    return {name: (stat.st_mtime_ns, stat.st_size, stat.st_ino) for name, stat in found.items()}


def _digest(path: Path) -> bytes:
    """A digest of a file; empty if it is no file."""
    if path.is_symlink() or not path.is_file():
        return b""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def _copy(source: Path, target: Path) -> None:
    """Copy a folder, and wait until it is on the disk."""
    shutil.copytree(source, target, symlinks=True, copy_function=_copy_file)


def _copy_file(source: str, target: str) -> str:
    shutil.copy2(source, target, follow_symlinks=False)
    if not Path(target).is_symlink():
        _sync(Path(target))
    return target


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _replace(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file in one step: others read all of it, or what was there before."""
    new = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
    new.write_text(json.dumps(content))
    _sync(new)
    new.replace(path)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems cannot do that
            os.fsync(file)
    finally:
        os.close(file)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
