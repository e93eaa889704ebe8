"""Programs in process groups of their own, and the end of all that a program has started.

A program runs in its own session: Ctrl-C reaches the driver alone, and one signal reaches the program with all its
children. What runs is remembered, so that nothing is left behind when the driver ends. A driver that is killed leaves
a note of each program in the folder of its trial, for the run that takes its place.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lazybo.run.presence import born, machine

# Seconds between the request to end and the order.
GRACE = 5.0
POLL = 0.05
_NOTE = "process.json"

_lock = threading.Lock()
_live: set["subprocess.Popen[bytes]"] = set()
_closed = False


def start(
    argv: Sequence[str], folder: Path, *, cwd: Path, environment: Mapping[str, str], stderr: Any
) -> "subprocess.Popen[bytes]":
    """Start a program in a session of its own, its standard output a pipe; a note of it is left in the folder."""
    with _lock:
        if _closed:
            raise RuntimeError("the run has ended: no more programs are started")
        process = subprocess.Popen(  # noqa: S603 (the user's own command, without a shell)
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=cwd,
            env=dict(environment),
            start_new_session=True,
            bufsize=0,
        )
        _live.add(process)
    note = {"machine": machine(), "pid": process.pid, "born": born(process.pid)}
    note |= {"parent": os.getpid(), "parent_born": born(os.getpid())}
    (folder / _NOTE).write_text(json.dumps(note))
    return process


def end(process: "subprocess.Popen[bytes]", grace: float = GRACE) -> None:
    """Ask a program and its children to end, and make them if they do not."""
    try:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    finally:
        release(process)


def release(process: "subprocess.Popen[bytes]") -> None:
    """A program has ended, or shall now: so does all that it left running."""
    _signal(process.pid, signal.SIGKILL)
    process.wait()
    with _lock:
        _live.discard(process)


def end_all(grace: float = GRACE) -> None:
    """Start no more programs and end those that run."""
    global _closed
    with _lock:
        _closed = True
        running = list(_live)
    try:
        for process in running:
            _signal(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline and any(process.poll() is None for process in running):
            time.sleep(POLL)
    finally:
        for process in running:
            release(process)


def reopen() -> None:
    """Programs may be started again: another run begins in this process."""
    global _closed
    with _lock:
        _closed = False


def end_survivor(folder: Path, grace: float = GRACE) -> bool:
    """End the program that ran in this folder if it has outlived the process that started it."""
    try:
        note = json.loads((folder / _NOTE).read_text())
        if note["machine"] != machine() or born(note["parent"]) == note["parent_born"]:
            return False
        pid, birth = int(note["pid"]), note["born"]
    except (OSError, ValueError, KeyError, TypeError):
        return False  # there is no note, or it was cut short
    if birth is None or born(pid) != birth:
        return False
    _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and born(pid) == birth:
        time.sleep(POLL)
    _signal(pid, signal.SIGKILL)
    return True


def _signal(group: int, number: int) -> None:
    # Gone, or become another user's (a program that changed its identity): nothing to be done.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
