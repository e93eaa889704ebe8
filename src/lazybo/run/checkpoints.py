"""Checkpoints: the folder in which a training keeps what it needs to continue.

The folder of trial 12 is ``000012/`` of a common folder:

=====================  ===============================================================================================
``files/``             what the objective gets as ``checkpoint``
``saved-7-1f2e3d4c/``  a copy of it, made when the objective had yielded its 7th value
``saved.json``         which copy counts, its step and its value; replaced atomically
``owner.json``         the process that runs the trial
=====================  ===============================================================================================

A training may be killed at any moment, even while it writes. So when it is started again, ``files/`` is restored from
the last copy, whose step is known. A copy is made after the value of its step was recorded in the study, and only if
something in the folder has changed: a kill in between repeats a step, but never skips one or counts one twice.

A process that counts as dead may still run, on a machine that cannot be reached. Then the next one gets a folder with
another name, and copies by the first one are refused.

The output of a program lags behind its files. It gets ``files/`` as it is, and no copies are made.

If a copy fails, for example on a full disk, the training continues: the last good copy stays, a warning says so, and
the next step tries again. A training that starts while the disk is full waits for up to a minute. Anyone may edit these
files: a damaged one counts as missing, no path in it is trusted, and no link is followed.
"""

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from optuna.storages import BaseStorage
from optuna.study import Study

from lazybo.core import checks, codec
from lazybo.run.presence import Process
from lazybo.study import Store

# The common folder of the checkpoints of a study.
CHECKPOINTS_KEY = "lazybo:checkpoints"
_logger = logging.getLogger("lazybo")
_T = TypeVar("_T")

FILES, SAVED, STATE, OWNER = "files", "saved", "saved.json", "owner.json"
COPY_NAME = re.compile(rf"{SAVED}-\d+-[0-9a-f]{{8}}", re.ASCII)
# If files come and go during a copy, the folder is copied again, up to this many times in all.
COPY_ATTEMPTS = 3
# A file that is written twice within JUST_NOW nanoseconds may look unchanged. Files that are not SMALL take longer.
JUST_NOW, SMALL = 100_000_000, 1 << 24
# Our own files are small: metrics have a limit. A larger one was not written by us.
LARGEST = 1 << 24
# By path: time, size and inode.
Stamp: TypeAlias = dict[str, tuple[int, int, int]]
# The temporary folders of studies in memory. Each is removed with its storage, at the latest when this process ends.
_temporary: "weakref.WeakKeyDictionary[BaseStorage, Path]" = weakref.WeakKeyDictionary()


class TakenOver(RuntimeError):
    """Another process runs this trial now."""


@dataclass(frozen=True)
class _Saved:
    """The content of ``saved.json``: the name of the copy that counts, its step and its value."""

    copy: str
    step: int
    value: Any

    @staticmethod
    def parse(plain: Mapping[str, Any]) -> "_Saved":
        copy, value = plain["copy"], plain["value"]
        if not (isinstance(copy, str) and COPY_NAME.fullmatch(copy)):
            raise ValueError(f"copy must be a name such as saved-7-1f2e3d4c, not {checks.shortened(copy)}")
        if not (checks.is_number(value) or isinstance(value, list | dict)):
            raise ValueError(f"value must be what a step yielded, not {checks.shortened(value)}")
        return _Saved(copy, checks.whole("step", plain["step"], 1, checks.MAX_STORED), value)


@dataclass(frozen=True)
class _Owner:
    """The content of ``owner.json``: the process that runs the trial. Its token is different each time."""

    process: Process
    token: str

    @staticmethod
    def parse(plain: Mapping[str, Any]) -> "_Owner":
        if not isinstance(plain["token"], str):
            raise ValueError(f"token must be a string, not {checks.shortened(plain['token'])}")
        return _Owner(Process.parse(plain), plain["token"])


class Checkpoint:
    """The checkpoint of a trial, for the process that runs the trial.

    ``folder`` is for the objective. ``step`` and ``value`` belong to the last copy; they are 0 and None if there is
    none. A copy whose value ``is_value`` rejects does not count. ``before_copy`` is called before a copy is made.
    """

    before_copy: Callable[[], object] | None = None

    def __init__(
        self, root: Path, number: int, *, copies: bool, is_value: Callable[[Any], bool] = lambda _: True
    ) -> None:
        self._number, self._place = number, place_of(root, number)
        self._make(self._place)
        self._token = uuid.uuid4().hex[:8]
        owner = self._read(OWNER, _Owner.parse, "it is ignored")
        contested = copies and owner is not None and owner.process.may_run
        self.folder = self._place / (f"{FILES}-{self._token}" if contested else FILES)
        # If the file cannot be written, another owner still shows that another process has taken the trial over.
        noted = self._note_owner()
        self._owner = self._token if noted else owner and owner.token
        # The files may be on another machine, whose clock differs from ours.
        self._skew = _modified(self._place / OWNER) - time.time_ns() if noted else 0
        self.step = 0
        self.value: Any = None
        self._copy: str | None = None  # the name of the last good copy
        self._stamp: Stamp | None = None
        self._digests: dict[str, bytes] = {}
        self._complaint: int | None = None  # the errno of the last copy, if it was not made
        if copies:
            self._restore(is_value)
            self._remember(_stamp(self.folder), self._now())
        else:
            self._make(self.folder)

    def _make(self, folder: Path) -> None:
        """Make a folder of the trial. A link in its place is replaced, since its target is not ours."""
        if folder.is_symlink():
            self._say(f"{folder} is a link, which is not followed; the training gets a new folder")
            folder.unlink()
        # While the disk is full, wait for some time.
        Store.retried(partial(folder.mkdir, parents=True, exist_ok=True))

    def _restore(self, is_value: Callable[[Any], bool]) -> None:
        """Restore the folder from the last copy; empty if there is none."""
        _remove(self.folder)
        if os.path.lexists(self.folder):  # a file in it is still open on a network's file system, or was mounted there
            self.folder = self._place / f"{FILES}-{self._token}"
        found = self._read(STATE, _Saved.parse, "the training starts from its first step")
        if found is not None and not is_value(found.value):
            said = f"its value {checks.shortened(found.value)} is not one of this objective"
            self._say(f"{self._place / STATE} cannot be used: {said}; the training starts from its first step")
            found = None
        if found is not None:
            self._copy = found.copy
            try:
                _copy(self._place / found.copy, self.folder)
            except OSError as error:
                said = f"cannot be restored: {_described(error)}; the training starts from its first step"
                self._say(f"the checkpoint {self._place / found.copy} {said}")
                _remove(self.folder)
            else:
                self.step, self.value = found.step, found.value
                return
        self._make(self.folder)

    def save(self, step: int, value: Any) -> None:
        """Copy the folder after this step, if something in it has changed. Raises `TakenOver`.

        ``value`` is the result of the step as plain data: a number, several numbers, or a dict with metrics. If the
        copy fails, a warning says so, and the last good one stays.
        """
        name = f"{SAVED}-{step}-{uuid.uuid4().hex[:8]}"
        try:
            now, stamp = self._now(), _stamp(self.folder)
            if stamp == self._stamp and self._digests == {name: _digest(self.folder / name) for name in self._digests}:
                return
            if self.before_copy is not None:
                self.before_copy()
            _copy(self.folder, self._place / name)
            self._check_owner()
            _replace(self._place / STATE, asdict(_Saved(name, step, value)))
        except OSError as error:
            _remove(self._place / name)
            self._check_owner()
            self._drop_copies(self._copy)
            self._complain(step, error)
        except TakenOver:
            _remove(self._place / name)
            raise
        else:
            self._drop_copies(name)
            self.step, self.value, self._copy, self._complaint = step, value, name, None
            self._remember(stamp, now)

    def _complain(self, step: int, error: OSError) -> None:
        """Warn that a step was not saved, once while the reason stays the same."""
        if error.errno != self._complaint:
            kept = f"the last good copy is from step {self.step}" if self._copy else "there is no copy yet"
            said = f"the checkpoint of step {step} was not saved: {_described(error)}"
            self._say(f"{said}; {kept}, and the next step tries again")
        self._complaint = error.errno

    def _say(self, text: str) -> None:
        _logger.warning(f"trial {self._number}: {text}")

    def _drop_copies(self, but: str | None) -> None:
        for folder in _copies(self._place):
            if folder.name != but:
                _remove(folder)

    def _now(self) -> int:
        """The time that a file gets which is written now, in nanoseconds."""
        return time.time_ns() + self._skew

    def _remember(self, stamp: Stamp, now: int) -> None:
        """Remember what the folder holds. The clocks of file systems are coarse, so new small files are read too."""
        fresh = [name for name, (at, size, _) in stamp.items() if at >= now - JUST_NOW and size <= SMALL]
        self._stamp, self._digests = stamp, {name: _digest(self.folder / name) for name in fresh}

    # ----------------------------------------------------------------- owner

    def _note_owner(self) -> bool:
        try:
            _replace(self._place / OWNER, {**asdict(Process.of(os.getpid())), "token": self._token})
        except OSError as error:
            self._say(f"{self._place / OWNER} cannot be written: {_described(error)}")
            return False
        return True

    def _check_owner(self) -> None:
        """Raise `TakenOver` if another process runs the trial now, or did since. A damaged file is written again."""
        try:
            owner = _read(self._place / OWNER, _Owner.parse)
        except (OSError, ValueError):
            if self._owner == self._token and self._note_owner():
                self._say(f"{self._place / OWNER} was damaged and has been written again")
            return
        if (owner and owner.token) != self._owner:
            raise TakenOver(f"another process runs this trial in {self._place}")

    def release(self) -> None:
        """Write that this process no longer runs the trial."""
        with contextlib.suppress(OSError, ValueError):
            owner = _read(self._place / OWNER, _Owner.parse)
            if owner is not None and owner.token == self._token:
                (self._place / OWNER).unlink()

    def _read(self, name: str, parse: Callable[[Mapping[str, Any]], _T], otherwise: str) -> _T | None:
        """The content of one of our files. A damaged one counts as missing, and a warning says so."""
        try:
            return _read(self._place / name, parse)
        except OSError as error:
            self._say(f"{self._place / name} cannot be read: {_described(error)}; {otherwise}")
        except ValueError as error:
            self._say(f"{error}; {otherwise}")
        return None


@contextlib.contextmanager
def opened(
    root: Path, number: int, *, copies: bool, is_value: Callable[[Any], bool] = lambda _: True
) -> Iterator[Checkpoint]:
    """The checkpoint of a trial, for as long as this process runs the trial."""
    checkpoint = Checkpoint(root, number, copies=copies, is_value=is_value)
    try:
        yield checkpoint
    finally:
        checkpoint.release()


def place_of(root: Path, number: int) -> Path:
    """The folder of a trial."""
    return root / f"{number:06}"


def tidy(root: Path, number: int) -> None:
    """Remove the copies of a trial that has ended and is recorded. ``files/`` keeps what the objective wrote."""
    place = place_of(root, number)
    with contextlib.suppress(OSError):
        _check_folder(place)
        for folder in _copies(place):
            _remove(folder)
        (place / STATE).unlink(missing_ok=True)


def checkpoint_root(study: Study, given: str | Path | None) -> Path:
    """The common folder of a study's checkpoints, which the study remembers. Raises ValueError if it cannot be made.

    It is the given one, the one of an earlier run, a temporary one if the study is in memory, or one next to the file
    of the study. If the study has no file, it is in the current folder.
    """
    store = Store(study)
    if given is None and store.in_memory:
        if store.storage not in _temporary:
            _temporary[store.storage] = Path(tempfile.mkdtemp(prefix="lazybo-checkpoints-"))
            weakref.finalize(store.storage, _remove, _temporary[store.storage])
        return _temporary[store.storage]
    known = store.attributes().get(CHECKPOINTS_KEY)
    if given is None and not isinstance(known, str | None):
        where = f"the attribute {CHECKPOINTS_KEY!r} of the study {study.study_name!r}"
        raise ValueError(f"{where} must be a path, not {checks.shortened(known)}; give the folder: checkpoints=")
    name = re.sub(r"[^\w.-]", "_", study.study_name)
    beside = store.file
    default = Path(f"{name}-checkpoints") if beside is None else beside.with_name(f"{beside.stem}-{name}-checkpoints")
    root = Path(given or known or default).expanduser().absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
        wrong = "" if os.access(root, os.W_OK | os.X_OK) else "written to: it is read-only"
    except OSError as error:
        wrong = f"made: {error.strerror}"
    if wrong:
        raise ValueError(f"the folder for checkpoints {str(root)!r} cannot be {wrong}; give another: checkpoints=")
    if str(root) != known:
        store.set_attributes({CHECKPOINTS_KEY: str(root)})
    return root


def _copies(place: Path) -> list[Path]:
    return [path for path in place.glob(f"{SAVED}-*") if COPY_NAME.fullmatch(path.name)]


def _modified(path: Path) -> int:
    """When a file was written, in nanoseconds; now if it has vanished."""
    try:
        return path.lstat().st_mtime_ns
    except OSError:
        return time.time_ns()


def _check_folder(path: Path) -> None:
    """Raise an OSError if this is not a folder, or a link to one."""
    if not stat.S_ISDIR(path.lstat().st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "it is not a folder", str(path))


def _stamp(folder: Path) -> Stamp:
    """Time, size and inode of everything in a folder, which change when something is written."""
    _check_folder(folder)
    found: Stamp = {}
    for at, folders, names in os.walk(folder):
        for path in (Path(at, name) for name in (*folders, *names)):
            with contextlib.suppress(FileNotFoundError):  # it has vanished since
                each = path.lstat()
                found[str(path.relative_to(folder))] = each.st_mtime_ns, each.st_size, each.st_ino
    return found


def _digest(path: Path) -> bytes:
    try:
        if stat.S_ISREG(path.lstat().st_mode):
            with path.open("rb") as file:
                return hashlib.file_digest(file, "blake2b").digest()
    except OSError:  # it has vanished since, or may not be read
        pass
    return b""


def _copy(source: Path, target: Path) -> None:
    """Copy a folder, without pipes, sockets and devices, and wait until it is on the disk.

    If something vanishes meanwhile, the folder is copied again, since it may have another name now. What comes and goes
    all the time is finally left out.
    """
    _check_folder(source)
    for _ in range(COPY_ATTEMPTS):
        _remove(target)
        try:
            if _copy_once(source, target):
                return
        except RecursionError:
            raise OSError(errno.ENAMETOOLONG, "its folders are nested too deeply", str(source)) from None


def _copy_once(source: Path, target: Path) -> bool:
    """Copy the current content of a folder; returns whether all of it stayed there meanwhile."""
    target.mkdir()
    with os.scandir(source) as listed:
        entries = list(listed)
    complete = True
    for entry in entries:
        try:
            complete &= _copy_entry(entry, target / entry.name)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            if str(error.filename) != entry.path:  # the copy is gone, not the entry
                raise
            complete = False
    shutil.copystat(source, target)
    return complete


def _copy_entry(entry: "os.DirEntry[str]", target: Path) -> bool:
    if entry.is_symlink():
        target.symlink_to(Path(entry.path).readlink())
    elif entry.is_dir(follow_symlinks=False):
        return _copy_once(Path(entry.path), target)
    elif entry.is_file(follow_symlinks=False):
        shutil.copy2(entry.path, target, follow_symlinks=False)
        _sync(target)
    return True


def _read(path: Path, parse: Callable[[Mapping[str, Any]], _T]) -> _T | None:
    """The content of one of our files; None if there is none. Raises a ValueError if it is damaged."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ValueError(f"{path} is not a file")
        written = codec.read_at_most(path, LARGEST)
    except FileNotFoundError:
        return None
    with codec.readable(str(path)):
        return parse(codec.object_from_json(written))


def _replace(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file atomically: others read all of it, or what was there before."""
    new = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        new.write_text(json.dumps(content))
        _sync(new)
        new.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems cannot do that
            os.fsync(file)
    finally:
        os.close(file)


def _remove(path: Path) -> None:
    """Remove a folder, or a link itself."""
    if path.is_symlink():
        with contextlib.suppress(OSError):
            path.unlink()
    else:
        with contextlib.suppress(RecursionError):  # until Python 3.12
            shutil.rmtree(path, ignore_errors=True)


def _described(error: OSError) -> str:
    return f"{error.strerror or error} ({error.filename})" if error.filename else str(error.strerror or error)
