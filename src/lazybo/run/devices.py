"""Devices: which GPU an evaluation owns, on the machine that it runs on.

A running evaluation owns one entry of ``devices``: a device, or several. Each device is a lock on a file, held by the
process that evaluates and by the program that it starts. The system releases a lock when the last process that holds
it has died, so an evaluation that was killed never blocks a device, and never shares it with the one that follows. The
locks also hold between several runs of one user on a machine: they take turns.

Libraries read which devices they may use once, when they are imported. So a worker process keeps its entry for as long
as it lives (`own`), and a second lock on it tells other workers to prefer other entries. A program gets the entry in
its own environment (`claim`).
"""

import os
import stat
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lazybo.core import checks

# What CUDA, ROCm and Intel's oneAPI read. HIP_VISIBLE_DEVICES alone is enough for ROCm: its others count within it.
VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
# Seconds between two looks at the locks.
POLL = 0.02
# Seconds that a new worker waits for an entry that no other worker keeps. Then it shares one, and they take turns.
BIND_WAIT = 5.0
SEPARATORS = ",+ {}"


@dataclass(frozen=True)
class Claim:
    """What an evaluation owns; nothing by default. ``files`` keep it owned in child processes that inherit them."""

    slot: int = 0
    device: str = ""
    files: tuple[int, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that show a process only these devices."""
        return dict.fromkeys(VARIABLES, self.device) if self.device else {}


@dataclass(frozen=True)
class Devices:
    """The entries of ``devices``, each the names of its devices.

    ``by_engine``: the engine assigns devices itself, and has set the environment of the process.
    """

    entries: tuple[tuple[str, ...], ...]
    by_engine: bool = False

    @property
    def gpus(self) -> float:
        """How many devices an evaluation takes; less than one if several share a device.

        Raises a ValueError if entries differ, since a cluster needs one number for all.
        """
        sizes, times = {len(entry) for entry in self.entries}, set(Counter(_flat(self.entries)).values())
        if len(sizes) > 1 or len(times) > 1:
            raise ValueError(
                f"on a cluster all entries of devices must have the same size and share devices alike, not {self}"
            )
        return sizes.pop() / times.pop()

    def __str__(self) -> str:
        return ", ".join("+".join(entry) for entry in self.entries)

    @contextmanager
    def claim(self) -> Iterator[Claim]:
        """Own a free entry in this block; waits for one."""
        while True:
            for slot, names in enumerate(self._locks()):
                if (files := _lock(names)) is not None:
                    with _held(files):
                        yield Claim(slot, self._device(slot), files)
                    return
            time.sleep(POLL)

    @contextmanager
    def own(self) -> Iterator[Claim]:
        """The same for this worker process, always with the same entry. The environment shows only its devices."""
        slot = _worker.bind(self)
        while (files := _lock(self._locks()[slot])) is None:
            time.sleep(POLL)
        with _held(files):
            yield Claim(slot, self._device(slot), files)

    def _locks(self) -> list[list[str]]:
        """The names of the locks of each entry. A device that is named twice has two."""
        if self.by_engine:
            return [[f"slot {slot}"] for slot in range(len(self.entries))]
        seen: Counter[str] = Counter()
        found = []
        for entry in self.entries:
            found.append([f"{name} {seen[name]}" for name in entry])
            seen.update(entry)
        return found

    def _device(self, slot: int) -> str:
        return os.environ.get(VARIABLES[0], "") if self.by_engine else ",".join(self.entries[slot])


class _Worker:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entry: tuple[str, ...] | None = None
        self._slot = 0

    def bind(self, devices: Devices) -> int:
        """The slot of this process; chosen when it is first needed."""
        with self._lock:
            if self._entry is None:
                self._slot = _unused_slot(devices)
                self._entry = devices.entries[self._slot]
                if not devices.by_engine:
                    os.environ.update(Claim(self._slot, ",".join(self._entry)).environment)
            if self._entry not in devices.entries:
                raise ValueError(
                    f"this worker has used the device {'+'.join(self._entry)}, and this run has {devices}; start new "
                    "workers, since libraries choose their devices once"
                )
            same = [slot for slot, entry in enumerate(devices.entries) if entry == self._entry]
            return self._slot if self._slot in same else same[0]


_worker = _Worker()


def _unused_slot(devices: Devices) -> int:
    """A slot that no other worker keeps; after BIND_WAIT seconds the first one that no evaluation uses."""
    deadline = time.monotonic() + BIND_WAIT
    while time.monotonic() < deadline:
        for slot, names in enumerate(devices._locks()):
            # These files stay open, and so locked, until this process ends.
            if _lock([f"{name} worker" for name in names]) is not None:
                return slot
        time.sleep(POLL)
    with devices.claim() as claim:
        return claim.slot


# -------------------------------------------------------------------------- locks


def _lock(names: Iterable[str]) -> tuple[int, ...] | None:
    """Lock all of these, for this user on this machine, or none of them.

    Returns the open files, or None if another process holds one.
    """
    folder, files = _private_folder(), list[int]()
    try:
        for name in names:
            _lock_file(folder / quote(name, safe=" "), files)
    except (BlockingIOError, FileNotFoundError):  # a cleaner may have removed the folder just now
        _close(files)
        return None
    except BaseException:
        _close(files)
        raise
    return tuple(files)


def _private_folder() -> Path:
    """The folder of this user's locks. Raises a PermissionError if somebody else could have put something into it."""
    folder = Path(tempfile.gettempdir()) / f"lazybo-devices-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise PermissionError(
            f"{folder} has the locks of devices, and must be a folder of this user that nobody else can write: remove "
            "it while nothing uses a device"
        )
    return folder


def _lock_file(path: Path, files: list[int]) -> None:
    """Open a file, add it to the others, and lock it. Raises a BlockingIOError if another process holds it."""
    import fcntl

    while True:
        try:
            files.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
            is_new = True
        except FileExistsError:
            try:
                files.append(os.open(path, os.O_RDWR | os.O_NOFOLLOW))
            except FileNotFoundError:
                continue
            is_new = False
        fcntl.flock(files[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Cleaners of temporary files remove locks: this one before it was locked, or one that is still held.
        if not _is_at(path, files[-1]):
            os.close(files.pop())
        elif is_new and _is_held_though_removed(path):
            path.unlink()  # so that whoever comes next looks again
            raise BlockingIOError
        else:
            return


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _is_held_though_removed(path: Path) -> bool:
    """Whether a process of this user holds a lock whose file is no longer in its folder (Linux only)."""
    import fcntl

    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # processes end, and others are not ours
            if str(link.readlink()) == f"{path} (deleted)":
                file = os.open(link, os.O_RDWR)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
                finally:
                    os.close(file)
    return False


@contextmanager
def _held(files: Sequence[int]) -> Iterator[None]:
    """Release locks at the end of this block, also in processes that inherited them."""
    import fcntl

    try:
        yield
    finally:
        for file in files:
            fcntl.flock(file, fcntl.LOCK_UN)
        _close(files)


def _close(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)


# ------------------------------------------------------------------------- checks


def check_devices(devices: object) -> Devices | None:
    """The devices that a caller gave, such as ``[0, 1]``, ``["GPU-5d3c"]`` or ``[(0, 1), (2, 3)]``."""
    if devices is None:
        return None
    if os.name != "posix":
        raise ValueError("devices can only be assigned on POSIX systems (Linux, macOS)")
    if isinstance(devices, str | Mapping) or not isinstance(devices, Sequence) or not devices:
        raise ValueError(
            f"devices must be a list with an entry for each evaluation at once, such as [0, 1], {_not(devices)}"
        )
    return Devices(tuple(_entry(each) for each in devices))


def parsed_devices(given: Any) -> list[Any]:
    """Devices as the command takes them: a list, or text such as ``0,1`` or ``0+1,2+3``."""
    entries = [each.split("+") for each in given.split(",")] if isinstance(given, str) else given
    check_devices(entries)
    return list(entries)


def _entry(given: Any) -> tuple[str, ...]:
    names = list(given) if isinstance(given, tuple | list) else [given]
    if not names:
        raise ValueError("an entry of devices is empty; give a device, or a tuple of several")
    found = tuple(_name(name) for name in names)
    if len(set(found)) < len(found):
        raise ValueError(
            f"an entry of devices has a device twice: {'+'.join(found)}; name it in two entries to share it"
        )
    return found


def _name(given: Any) -> str:
    number = isinstance(given, int) and not isinstance(given, bool) and given >= 0
    text = isinstance(given, str) and given.isprintable() and given != "" and not set(given) & set(SEPARATORS)
    if not number and not text:
        raise ValueError(f"a device must be a number such as 0, or a name such as 'GPU-5d3c', {_not(given)}")
    return str(given)


def _not(given: object) -> str:
    return f"not {checks.shortened(given)}"


def check_visible(devices: Devices) -> None:
    """Reject devices that this process itself may not use, if evaluations run on its machine."""
    allowed = os.environ.get(VARIABLES[0])
    if allowed is None:
        return
    missing = [name for name in _flat(devices.entries) if name not in allowed.split(",")]
    if missing:
        raise ValueError(f"the device {missing[0]} is not in {VARIABLES[0]}={allowed}; give devices of this list")


def _flat(entries: Iterable[Iterable[str]]) -> list[str]:
    return [name for entry in entries for name in entry]
