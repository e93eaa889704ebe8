"""Start programs in their own process groups, and stop them with all their children.

A program runs in its own session: Ctrl-C reaches only the driver, and one signal reaches the program and all its
children. This module keeps a list of running programs, so that none is left when the driver ends. If the driver is
killed, a file in the folder of each trial identifies its program, so that a later run can stop it.
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

from lazybo.core.codec import object_from_json
from lazybo.run.presence import Process, born

# Seconds between SIGTERM and SIGKILL.
GRACE = 5.0
POLL = 0.05
_PROCESS_FILE = "process.json"

_lock = threading.Lock()
_live: set["subprocess.Popen[bytes]"] = set()
_closed = False


def start(
    argv: Sequence[str], folder: Path, *, cwd: Path, environment: Mapping[str, str], stderr: Any
) -> "subprocess.Popen[bytes]":
    """Start a program in its own session with a pipe as standard output, and identify it in ``folder``."""
    with _lock:
        if _closed:
            raise RuntimeError("the run has ended, so no more programs are started")
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
    try:
        parent = Process.this()
        record = {"machine": parent.machine, "pid": process.pid, "born": born(process.pid)}
        record |= {"parent": parent.pid, "parent_born": parent.born}
        (folder / _PROCESS_FILE).write_text(json.dumps(record))
    except BaseException:  # for example, the disk is full: nobody would follow the program
        assert process.stdout is not None, "it is a pipe"
        process.stdout.close()
        end(process)
        raise
    return process


def ask(process: "subprocess.Popen[bytes]") -> None:
    """Send SIGTERM to a program and its children."""
    _signal(process.pid, signal.SIGTERM)


def end(process: "subprocess.Popen[bytes]", grace: float = GRACE) -> None:
    """Send SIGTERM to a program and its children, and SIGKILL after ``grace`` seconds."""
    try:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    finally:
        release(process)


def release(process: "subprocess.Popen[bytes]") -> None:
    """Kill what is left of a program's process group, and remove the program from the list."""
    _signal(process.pid, signal.SIGKILL)
    process.wait()
    with _lock:
        _live.discard(process)


def end_all(grace: float = GRACE) -> None:
    """Stop all running programs; `start` raises from now on."""
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
    """Allow `start` again, for another run in this process."""
    global _closed
    with _lock:
        _closed = False


def end_survivor(folder: Path, grace: float = GRACE) -> bool:
    """Stop the program of this folder if it still runs and the process that started it is dead."""
    try:
        record = object_from_json((folder / _PROCESS_FILE).read_bytes())
        program = Process.parse(record)
        parent = Process.parse({**record, "pid": record["parent"], "born": record["parent_born"]})
    except (OSError, ValueError, KeyError):
        return False  # the file is missing or damaged
    if not program.is_here or program.born is None or parent.may_run or not program.may_run:
        return False
    _signal(program.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and program.may_run:
        time.sleep(POLL)
    _signal(program.pid, signal.SIGKILL)
    return True


def _signal(group: int, number: int) -> None:
    # The group is gone, or belongs to another user (setuid): nothing can be done.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
