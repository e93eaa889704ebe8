"""Heartbeats: which processes work on a study, to tell the evaluations of dead processes from those that still run.

Every process that drives a study (a driver) keeps a heartbeat there: its machine, its process, and a rising count. On
the same machine a driver is looked up by its process, at once and for certain. On other machines it counts as dead when
its heartbeat has not changed for a while. Each reader measures that by its own clock, from when it first saw the
heartbeat: clocks of two machines are never compared, and setting a clock changes nothing. That clock stands still while
the reader cannot write its own heartbeat: if nobody reaches the storage, nobody is dead.
"""

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from optuna.study import Study

from lazybo.core import checks
from lazybo.study import Store

# Followed by ":" and the name of a driver: its machine, its process, and a count that rises.
HEARTBEAT_KEY = "lazybo:heartbeat"
# Seconds between two heartbeats, and without a new one after which a driver on another machine counts as dead. One that
# cannot be written is tried again after RETRY seconds.
INTERVAL = 20.0
TIMEOUT = 120.0
RETRY = 2.0

_here: dict[str, "Heart"] = {}  # the drivers of this process


@dataclass(frozen=True)
class Process:
    """A process on some machine. ``born`` tells it from a later one with the same id."""

    machine: str
    pid: int
    born: float | None

    @staticmethod
    def of(pid: int) -> "Process":
        """A process of this machine."""
        return Process(machine(), pid, born(pid))

    @staticmethod
    def parse(plain: Mapping[str, Any]) -> "Process":
        """A process as it was written. Raises a KeyError or a ValueError if that is damaged."""
        where, birth = plain["machine"], plain["born"]
        if not isinstance(where, str) or not (birth is None or checks.is_number(birth)):
            raise ValueError(f"machine and born must be a string and a number, not {checks.shortened((where, birth))}")
        return Process(where, checks.whole("pid", plain["pid"], 1, checks.MAX_STORED), birth)

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine, so that it can be looked up."""
        return self.machine == machine()

    @property
    def may_run(self) -> bool:
        """Whether it runs; True for a process on another machine, which cannot be looked up."""
        return not self.is_here or born(self.pid) == self.born


class Heart:
    """Writes heartbeats until it is stopped, and tells the time during which that was possible."""

    def __init__(self, write: Callable[[int], object], interval: float) -> None:
        self._write, self._interval = write, interval
        self._counted, self._since = 0.0, time.monotonic()  # seconds up to the last heartbeat, and when that was
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lazybo-presence", daemon=True)
        self._thread.start()

    def clock(self) -> float:
        """Seconds; at most one interval more than at the last heartbeat that was written."""
        counted, since = self._counted, self._since
        return counted + min(time.monotonic() - since, self._interval)

    def stop(self) -> None:
        """Write no more heartbeats."""
        self._stopped.set()
        self._thread.join()

    def _beat(self) -> None:
        count, wait = 0, self._interval
        while not self._stopped.wait(wait):
            count, wait = count + 1, min(RETRY, self._interval)
            # If the storage is locked or unreachable now, it is tried again soon: others wait for a sign of life.
            with contextlib.suppress(Exception):
                self._write(count)
                self._counted, self._since = self.clock(), time.monotonic()
                wait = self._interval


@contextlib.contextmanager
def present(study: Study, *, interval: float | None = None, **facts: Any) -> Iterator[str]:
    """Register this process as a driver of the study, with ``facts`` in its heartbeat; yields the driver's name."""
    driver, store = uuid.uuid4().hex[:12], Store(study)
    key = f"{HEARTBEAT_KEY}:{driver}"

    def write(count: int) -> None:
        store.storage.set_study_system_attr(store.study_id, key, {**heartbeat(count), **facts})

    _here[driver] = Heart(write, INTERVAL if interval is None else interval)
    try:
        store.set_attributes({key: {**heartbeat(0), **facts}})
        yield driver
    finally:
        _here.pop(driver).stop()
        # If the heartbeat cannot be removed, its driver is not in `_here`, so it counts as dead.
        with contextlib.suppress(Exception):
            store.set_attributes({key: None})


def heartbeat(count: int) -> dict[str, Any]:
    """A heartbeat of this process."""
    return {**asdict(Process.of(os.getpid())), "beat": count}


class Drivers:
    """The drivers of a study as the driver ``name`` of this process sees them."""

    def __init__(self, study: Study, name: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = Store(study), _here[name].clock if name in _here else clock
        self._seen: dict[str, tuple[object, float]] = {}  # each last heartbeat, and when it was first seen

    def living(self) -> set[str]:
        """The drivers that work on the study now, here and elsewhere."""
        now, heartbeats = self._clock(), self._heartbeats()
        for name, content in heartbeats.items():
            if name not in self._seen or self._seen[name][0] != content:
                self._seen[name] = content, now
        return {name for name, content in heartbeats.items() if self._is_alive(name, content, now)}

    def fact(self, driver: str, name: str) -> Any:
        """A fact from the last heartbeat of a driver, living or dead; None if there is none."""
        return self._heartbeats().get(driver, {}).get(name)

    def _heartbeats(self) -> dict[str, Mapping[str, Any]]:
        attributes, prefix = self._store.attributes(), f"{HEARTBEAT_KEY}:"
        found = {key.removeprefix(prefix): each for key, each in attributes.items() if key.startswith(prefix)}
        return {name: each for name, each in found.items() if isinstance(each, Mapping)}

    def _is_alive(self, name: str, content: Mapping[str, Any], now: float) -> bool:
        try:
            process = Process.parse(content)
        except (KeyError, ValueError):
            process = None  # it was edited, so its process cannot be looked up
        if process is None or not process.is_here:
            return now - self._seen[name][1] < TIMEOUT
        return process.may_run and (process.pid != os.getpid() or name in _here)


def machine() -> str:
    """The scope in which process ids can be compared: the host since its last boot, and on Linux the container.

    Two hosts may have the same name, but no two boots of a Linux kernel have the same id.
    """
    identity = [socket.gethostname()]
    with contextlib.suppress(OSError):
        identity.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with contextlib.suppress(OSError):
        identity.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(identity)


def born(pid: int, proc: Path = Path("/proc")) -> float | None:
    """When a process started, since process ids are reused; None if it does not exist or is a zombie.

    Setting the clock does not change the result.
    """
    if not (proc / "sys/kernel/random/boot_id").exists():
        return _born_by_psutil(pid)
    try:
        stat = (proc / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # After the name in brackets, which may hold anything: the state, and 19 fields later the start in ticks since boot.
    fields = stat.rpartition(b")")[2].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _born_by_psutil(pid: int) -> float | None:
    """The same without Linux's /proc. psutil has a start time that setting the clock does not change, if it can."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process._ident[1])
    except psutil.NoSuchProcess:
        return None
