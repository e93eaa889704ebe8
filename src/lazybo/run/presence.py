"""Which processes work on a study, so that evaluations of those that died can be told from those that run.

Every process that drives a study (a driver) leaves a note there: where it runs, and from time to time that it still
does. On its own machine a driver is looked up by its process, at once and for certain; on others it counts as dead when
it has been silent for a while.
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


@contextlib.contextmanager
def present(study: Study) -> Iterator[str]:
    """Be a driver of the study for a while; gives the name to run trials under."""
    driver = uuid.uuid4().hex[:12]
    gone = threading.Event()
    patiently(partial(_write, study, driver, _note()))
    beating = threading.Thread(target=_beat, args=(study, driver, gone), name="lazybo-presence", daemon=True)
    beating.start()
    try:
        yield driver
    finally:
        gone.set()
        beating.join()
        patiently(partial(_write, study, driver, None))


def living_drivers(study: Study) -> set[str]:
    """The drivers that work on the study now, here and elsewhere."""
    attributes = patiently(partial(study._storage.get_study_system_attrs, study._study_id))
    notes = {key: note for key, note in attributes.items() if key.startswith(f"{NOTE_KEY}:")}
    return {key.removeprefix(f"{NOTE_KEY}:") for key, note in notes.items() if note and is_alive(note)}


def is_alive(note: Mapping[str, Any]) -> bool:
    """Whether the process that wrote this still runs."""
    if note["machine"] == machine():
        return bool(born(note["pid"]) == note["born"])
    return bool(time.time() - note["seen"] < SILENCE)


def _beat(study: Study, driver: str, gone: threading.Event) -> None:
    while not gone.wait(BEAT):
        # A storage that is locked or away for a moment is no reason to end: the next beat follows.
        with contextlib.suppress(Exception):
            _write(study, driver, _note())


def _write(study: Study, driver: str, note: Mapping[str, Any] | None) -> None:
    study._storage.set_study_system_attr(study._study_id, f"{NOTE_KEY}:{driver}", note)


def _note() -> dict[str, Any]:
    return {"machine": machine(), "pid": os.getpid(), "born": born(os.getpid()), "seen": time.time()}


def machine() -> str:
    """Where a process number means something: the host, and on Linux the container."""
    identity = [socket.gethostname()]
    with contextlib.suppress(OSError):
        identity.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(identity)


def born(pid: int) -> float | None:
    """When a process began, since numbers are used again; None if there is none.

    A zombie has ended: its parent has just not asked for it yet.
    """
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None
