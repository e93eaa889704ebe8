"""Which processes work on a study, so that evaluations of those that died can be told from those that run.

Every process that drives a study (a driver) leaves a note there: which process it is, and a count that goes up while
it lives. On its own machine a driver is looked up by its process, at once and for certain. On others it counts as dead
when its note has not changed for a while. The process that looks measures this by its own clock, from when it first saw
the note: clocks of two machines are never compared, and setting a clock changes nothing.
"""

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from optuna.study import Study

from lazybo.study.retry import patiently

NOTE_KEY = "lazybo:driver"
# Seconds between two signs of life, and of silence after which a driver on another machine counts as dead.
BEAT = 20.0
SILENCE = 120.0

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_here: set[str] = set()  # the drivers of this process


@contextlib.contextmanager
def present(study: Study, **facts: Any) -> Iterator[str]:
    """Be a driver of the study for a while; gives the name to run trials under. The note holds ``facts`` too."""
    driver = uuid.uuid4().hex[:12]
    gone = threading.Event()
    _here.add(driver)
    patiently(partial(_write, study, driver, {**_note(0), **facts}))
    beating = threading.Thread(target=_beat, args=(study, driver, facts, gone), name="lazybo-presence", daemon=True)
    beating.start()
    try:
        yield driver
    finally:
        gone.set()
        beating.join()
        _here.discard(driver)
        # A note that cannot be taken away is that of a driver that is not here any more.
        with contextlib.suppress(Exception):
            patiently(partial(_write, study, driver, None))


class Drivers:
    """The drivers of a study as this process sees them."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._heard: dict[str, tuple[object, float]] = {}  # each note, and when it was first seen, by our own clock

    def living(self) -> set[str]:
        """The drivers that work on the study now, here and elsewhere."""
        now = time.monotonic()
        notes = self._notes()
        for name, note in notes.items():
            if name not in self._heard or self._heard[name][0] != note:
                self._heard[name] = note, now
        return {name for name, note in notes.items() if self._is_alive(name, note)}

    def fact(self, driver: str, name: str) -> Any:
        """What a driver, living or dead, has said about itself; None if it said nothing."""
        return self._notes().get(driver, {}).get(name)

    def _notes(self) -> dict[str, Mapping[str, Any]]:
        attributes = patiently(partial(self._study._storage.get_study_system_attrs, self._study._study_id))
        notes = {key: note for key, note in attributes.items() if key.startswith(f"{NOTE_KEY}:")}
        return {key.removeprefix(f"{NOTE_KEY}:"): note for key, note in notes.items() if isinstance(note, Mapping)}

    def _is_alive(self, name: str, note: Mapping[str, Any]) -> bool:
        if note.get("machine") != machine():
            return time.monotonic() - self._heard[name][1] < SILENCE
        if born(note["pid"]) != note["born"]:
            return False
        return note["pid"] != os.getpid() or name in _here


def _beat(study: Study, driver: str, facts: Mapping[str, Any], gone: threading.Event) -> None:
    count = 0
    while not gone.wait(BEAT):
        count += 1
        # A storage that is locked or away for a moment is no reason to end: the next beat follows.
        with contextlib.suppress(Exception):
            _write(study, driver, {**_note(count), **facts})


def _write(study: Study, driver: str, note: Mapping[str, Any] | None) -> None:
    study._storage.set_study_system_attr(study._study_id, f"{NOTE_KEY}:{driver}", note)


def _note(beat: int) -> dict[str, Any]:
    return {"machine": machine(), "pid": os.getpid(), "born": born(os.getpid()), "beat": beat}


def machine() -> str:
    """Where `born` of a process number means something: the host since it was started, and on Linux the container.

    Two hosts may have the same name; no two starts of a Linux kernel have the same number.
    """
    identity = [socket.gethostname()]
    with contextlib.suppress(OSError):
        identity.append(_BOOT.read_text().strip())
    with contextlib.suppress(OSError):
        identity.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(identity)


def born(pid: int) -> float | None:
    """When a process began, since numbers are used again; None if there is none. Setting the clock does not change it.

    A zombie has ended: its parent has just not asked for it yet.
    """
    if not _BOOT.exists():
        return _born_elsewhere(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # After the name in brackets, which may hold anything: the state, and 19 fields on the start in ticks since boot.
    fields = stat.rpartition(b")")[2].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _born_elsewhere(pid: int) -> float | None:
    """The same without Linux's files. psutil identifies processes by a start that does not move, where there is one."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process._ident[1])
    except psutil.NoSuchProcess:
        return None
