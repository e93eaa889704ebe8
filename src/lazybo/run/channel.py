"""News on their way from workers to the driver, intermediate values above all, and its answer: go on, or stop.

Workers in other processes or on other machines cannot be expected to reach the study's storage, but they reach the
driver. A connection is opened with a secret that only the driver's tasks carry.
"""

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge

from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study

from lazybo.run.evaluate import Reporter
from lazybo.study.retry import patiently

# Seconds in which a connection must show that it knows the secret.
HANDSHAKE = 10.0
# So many connections may be without that proof at once; beyond that the oldest is closed if it is older than a second.
STRANGERS = 256
COURTESY = 1.0
# Seconds between a worker's attempts to connect.
CONNECTION_WAITS = (0.1, 0.5, 2.0, 5.0)


class StudyReporter:
    """Records intermediate values and asks the study's pruner. Used by several threads at once.

    ``begun`` is told of every evaluation that has reached its worker.
    """

    def __init__(self, study: Study, begun: Callable[[int, int | None], object]) -> None:
        self._study = study
        self._begun = begun
        self._trial_ids: dict[int, int] = {}
        self.values: dict[int, dict[int, float]] = {}

    def open(self, number: int, trial_id: int) -> None:
        """A trial that may report from now on."""
        self._trial_ids[number] = trial_id
        self.values.setdefault(number, {})

    def close(self, number: int) -> dict[int, float]:
        """The intermediate values of a trial that ended."""
        self._trial_ids.pop(number, None)
        return self.values.pop(number, {})

    def begin(self, number: int, fold: int | None) -> bool:
        """Pass the news on; True if nobody waits for this trial any more."""
        self._begun(number, fold)
        return number not in self._trial_ids

    def report(self, number: int, step: int, value: float) -> bool:
        """Record a value; True if the trial should stop: it is pruned, or nobody waits for it any more."""
        trial_id = self._trial_ids.get(number)
        if trial_id is None:
            return True
        storage = self._study._storage
        try:
            patiently(partial(storage.set_trial_intermediate_value, trial_id, step, value))
        except UpdateFinishedTrialError:
            return True
        self.values.get(number, {})[step] = value
        return bool(patiently(lambda: self._study.pruner.prune(self._study, storage.get_trial(trial_id))))


class RemoteReporter:
    """The worker's end. It is sent with a task, and connects when there is something to report."""

    def __init__(self, address: tuple[str, int], secret: bytes) -> None:
        self._address = address
        self._secret = secret
        self._connection: Connection | None = None

    def begin(self, number: int, fold: int | None) -> bool:
        """Say that an evaluation begins."""
        return self._say("begin", number, fold)

    def report(self, number: int, step: int, value: float) -> bool:
        """Send a value and wait for the answer."""
        return self._say("report", number, step, value)

    def _say(self, *message: object) -> bool:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.send(message)
        answer: bool = self._connection.recv()
        return answer

    def _connect(self) -> Connection:
        """A connection; a driver with very many strangers at its door may turn a worker away, too."""
        for wait in CONNECTION_WAITS:
            try:
                return Client(self._address, authkey=self._secret)
            except (EOFError, ConnectionResetError, BrokenPipeError):
                time.sleep(wait)
        return Client(self._address, authkey=self._secret)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_connection": None}


@contextlib.contextmanager
def listening(reporter: Reporter, host: str) -> Iterator[RemoteReporter]:
    """Answer workers that reach this machine under ``host``; gives what their tasks carry."""
    secret = secrets.token_bytes(32)
    with socket.create_server((host, 0), family=socket.AF_INET, backlog=128) as server:
        door = _Door(server, reporter, secret)
        accepting = threading.Thread(target=door.accept, name="lazybo-channel", daemon=True)
        accepting.start()
        try:
            yield RemoteReporter(server.getsockname(), secret)
        finally:
            door.close()
            accepting.join(timeout=5)


class _Door:
    """Lets workers in: whoever connects has a thread, and a few seconds to prove that it knows the secret."""

    def __init__(self, server: socket.socket, reporter: Reporter, secret: bytes) -> None:
        self._server, self._reporter, self._secret = server, reporter, secret
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._visitors: set[socket.socket] = set()
        self._strangers: dict[socket.socket, float] = {}  # those without proof, and since when; the oldest first

    def accept(self) -> None:
        """Let in whoever comes, until the door is closed."""
        while not self._over.is_set():
            self._make_room()
            try:
                visitor, _ = self._server.accept()
            except OSError:
                # A visitor that left at once; or no more files may be opened, which passes.
                self._over.wait(0.05)
                continue
            visitor.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # machines may vanish without a word
            with self._lock:
                if self._over.is_set():
                    visitor.close()
                    return
                self._visitors.add(visitor)
                self._strangers[visitor] = time.monotonic()
            threading.Thread(target=self._talk, args=(visitor,), daemon=True).start()

    def close(self) -> None:
        """Let nobody in any more, and end all conversations."""
        with self._lock:
            self._over.set()
        # Closing a socket does not wake the thread that waits for it; a visitor does.
        with contextlib.suppress(OSError):
            socket.create_connection(self._server.getsockname(), timeout=1).close()
        with self._lock:
            for visitor in self._visitors:
                _hang_up(visitor)

    def _make_room(self) -> None:
        """Turn away the stranger that has been silent for longest, where there are too many."""
        while len(self._strangers) >= STRANGERS and not self._over.is_set():
            with self._lock:
                oldest, since = next(iter(self._strangers.items()), (None, 0.0))
                if oldest is not None and time.monotonic() - since > COURTESY:
                    del self._strangers[oldest]
                    _hang_up(oldest)
                    return
            self._over.wait(0.01)

    def _talk(self, visitor: socket.socket) -> None:
        """All of a conversation; the visitor may leave or fall silent at any point of it."""
        late = threading.Timer(HANDSHAKE, _hang_up, args=(visitor,))
        late.daemon = True
        late.start()
        try:
            with Connection(visitor.dup().detach()) as connection:
                try:
                    deliver_challenge(connection, self._secret)
                    answer_challenge(connection, self._secret)
                finally:
                    late.cancel()
                    with self._lock:
                        self._strangers.pop(visitor, None)
                _answer(connection, self._reporter)
        except (EOFError, OSError, AuthenticationError):
            pass  # a stranger without the secret, or a worker that has ended or died
        finally:
            with self._lock:
                self._visitors.discard(visitor)
            visitor.close()


def _hang_up(visitor: socket.socket) -> None:
    """End a conversation from another thread: the one that waits for the visitor's words sees their end."""
    with contextlib.suppress(OSError):
        visitor.shutdown(socket.SHUT_RDWR)


def _answer(connection: Connection, reporter: Reporter) -> None:
    while True:
        verb, *news = connection.recv()
        connection.send(reporter.begin(*news) if verb == "begin" else reporter.report(*news))
