"""One model for all processes of a user on this machine that sample the same study with the same options.

Each process could have its own model. But then each would read every trial of all others, and a hundred processes would
do all of that a hundred times, and wait for each other's announcements. So one of them, the *server*, answers all:
a process that sees others at work opens a socket under a name that only they can know, and makes their suggestions too,
many with one look at the study. If it ends, the next one that asks takes its place. Nothing is lost: all that it knows
is in the study.

A request is a line of JSON on a connection of its own, and so is the answer. The socket is in a folder of this user.
"""

import atexit
import contextlib
import json
import logging
import os
import queue
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_logger = logging.getLogger("lazybo")

# A request: the number of the trial, and what else its suggestion depends on.
Request = dict[str, Any]
# Answers to several requests, in their order; None for one that cannot be answered, which its process then does itself.
Answer = Callable[[Sequence[Request]], Sequence[dict[str, Any] | None]]

# Seconds to wait for an answer, for a request once a connection is there, and for another process to become the server.
ANSWER, REQUEST, ELECTION = 30.0, 2.0, 5.0
BACKLOG = 1024
LONGEST = 1 << 24  # bytes of a line
LONGEST_PATH = 100  # bytes of the path of a socket; macOS allows 104

_servers: dict[Path, "Server"] = {}  # of this process


class Server:
    """Answers requests until this process ends, or ``answer`` raises a ReferenceError."""

    def __init__(self, place: Path, lock: int, arrived: Callable[[Request], object], answer: Answer) -> None:
        self._place, self._lock, self._arrived, self._answer = place, lock, arrived, answer
        self.process = os.getpid()
        self._waiting: queue.SimpleQueue[tuple[socket.socket, Request]] = queue.SimpleQueue()
        place.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(place))
        self._socket.listen(BACKLOG)
        for work in (self._accept, self._serve):
            threading.Thread(target=work, name="lazybo-sampler", daemon=True).start()
        atexit.register(self.close)

    def close(self) -> None:
        """Answer no more requests."""
        if self.process != os.getpid() or _servers.pop(self._place, None) is None:
            return
        with contextlib.suppress(OSError):
            self._place.unlink()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        os.close(self._lock)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return  # it was closed
            try:
                client.settimeout(REQUEST)
                request = _received(client)
                self._arrived(request)
                self._waiting.put((client, request))
            except (OSError, ValueError, ReferenceError):
                client.close()

    def _serve(self) -> None:
        """Answer all that wait together: they share one look at the study."""
        while True:
            waiting = [self._waiting.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    waiting.append(self._waiting.get_nowait())
            waiting.sort(key=lambda each: each[1]["number"])
            try:
                answers = self._answer([request for _, request in waiting])
            except ReferenceError:  # nobody here uses the study any more
                self.close()
                return
            except Exception as error:  # those who ask meet the same error, and say so
                _logger.debug(f"suggestions for other processes failed: {error}")
                answers = [None] * len(waiting)
            for (client, _), answer in zip(waiting, answers, strict=True):
                with client, contextlib.suppress(OSError):
                    client.sendall(json.dumps(answer).encode() + b"\n")


def ask(place: Path, request: Request, serve: Callable[[Path], object]) -> dict[str, Any] | None:
    """The server's answer; None if there is no server, or it does not answer.

    If there was one and it has ended, one of those who ask calls ``serve``, to become the server itself.
    """
    deadline = time.monotonic() + ELECTION
    while place.exists() and time.monotonic() < deadline:
        try:
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(ANSWER)
                link.connect(str(place))
                link.sendall(json.dumps(request).encode() + b"\n")
                answer = _received(link)
                return answer if isinstance(answer, dict) else None
        except TimeoutError:
            return None
        except (OSError, ValueError):
            serve(place)
            time.sleep(0.01)
    return None


def serve(place: Path, arrived: Callable[[Request], object], answer: Answer) -> None:
    """Become the server of this place, unless there is one.

    ``arrived`` is called with each request at once, in another thread than ``answer``.
    """
    import fcntl

    here = _servers.get(place)
    if here is not None and here.process == os.getpid():
        return
    lock = os.open(place.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # A lock of the process, not of the open file: a fork does not inherit it.
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _servers[place] = Server(place, lock, arrived, answer)
    except OSError:
        os.close(lock)  # another process is the server


def place_of(key: str) -> Path | None:
    """Where the processes that share a key meet; None if there can be no such place, or others could look in."""
    if not hasattr(socket, "AF_UNIX") or not hasattr(os, "getuid"):
        return None
    folder = Path(tempfile.gettempdir()) / f"lazybo-samplers-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    place = folder / key
    return place if private and len(os.fsencode(place)) <= LONGEST_PATH else None


def _received(link: socket.socket) -> Any:
    """A line of JSON."""
    received = bytearray()
    while not received.endswith(b"\n"):
        part = link.recv(65536)
        if not part or len(received) > LONGEST:
            raise ConnectionError("the connection has ended within a line")
        received += part
    return json.loads(received)
