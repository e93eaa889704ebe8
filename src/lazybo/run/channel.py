"""Reports of workers to the driver, above all intermediate values, and its answers: continue or stop.

Workers in other processes or on other machines may not reach the study's storage, but they reach the driver. A
connection is authenticated with a secret that only the driver's tasks carry.
"""

import contextlib
import copy
import math
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge

from optuna.pruners import (
    HyperbandPruner,
    MedianPruner,
    NopPruner,
    PercentilePruner,
    SuccessiveHalvingPruner,
    ThresholdPruner,
    WilcoxonPruner,
)
from optuna.storages import InMemoryStorage
from optuna.study import Study
from optuna.trial import FrozenTrial

from lazybo.run import plain
from lazybo.run.evaluate import Reporter
from lazybo.run.reports import INTERVAL, Reports
from lazybo.study.ledger import open_ledger
from lazybo.study.pruner import LazyPruner
from lazybo.study.retry import with_retries

# Seconds in which a connection must authenticate.
AUTHENTICATION_TIMEOUT = 10.0
# At most this many connections may be unauthenticated at once. Beyond that, the oldest is closed if it is older than
# MIN_AGE seconds.
MAX_UNAUTHENTICATED = 256
MIN_AGE = 1.0
# Seconds between a worker's attempts to connect.
CONNECTION_WAITS = (0.1, 0.5, 2.0, 5.0)
# Pruners that use the parameters and values of a running trial, and of other trials only those that have ended.
BY_VALUES = (LazyPruner, MedianPruner, PercentilePruner, ThresholdPruner, WilcoxonPruner)
# Pruners that also keep attributes with running trials. Any other pruner may look at all that running trials report.
BY_ATTRIBUTES = (SuccessiveHalvingPruner, HyperbandPruner)


class StudyReporter:
    """Records intermediate values and asks the study's pruner. Used by several threads at once.

    ``on_begin`` is called when a worker starts an evaluation.
    """

    def __init__(self, study: Study, on_begin: Callable[[int, int | None], object]) -> None:
        self._study = study
        self._on_begin = on_begin
        in_memory = isinstance(study._storage, InMemoryStorage)  # nothing is gained by waiting
        self._reports = Reports(open_ledger(study, {}, None).report, 0.0 if in_memory else INTERVAL)
        self._trials: dict[int, FrozenTrial] = {}  # as they were when they first reported
        self._trial_ids: dict[int, int] = {}
        self._known: dict[int, frozenset[int]] = {}  # the steps that an earlier evaluation has reported
        self._judged_from: dict[int, float] = {}  # the step before which a trial is not stopped
        self._stop_at: dict[int, float] = {}  # the step at which it is stopped in any case
        self.values: dict[int, dict[int, float]] = {}

    def open(
        self,
        number: int,
        trial_id: int,
        values: Mapping[int, float] | None = None,
        *,
        judged_from: float = 0,
        stop_at: float = math.inf,
    ) -> None:
        """Accept reports of a trial from now on.

        ``values`` are those that an earlier evaluation has reported: they stay. The trial is not stopped before the
        step ``judged_from``, and in any case at the step ``stop_at``.
        """
        self.values[number] = dict(values or {})
        self._known[number] = frozenset(self.values[number])
        self._judged_from[number], self._stop_at[number] = judged_from, stop_at
        self._trial_ids[number] = trial_id

    def close(self, number: int) -> dict[int, float]:
        """Accept no more reports of a trial, and write those that wait; gives its intermediate values."""
        trial_id = self._trial_ids.pop(number, None)
        for known in (self._known, self._judged_from, self._stop_at, self._trials):
            known.pop(number, None)
        if trial_id is not None:
            self._reports.flush()
            self._reports.forget(trial_id)
        return self.values.pop(number, {})

    def flush(self, number: int = -1) -> None:  # noqa: ARG002 (Reporter)
        """Write all values that wait."""
        self._reports.flush()

    def begin(self, number: int, fold: int | None) -> None:
        """A worker starts an evaluation."""
        self._on_begin(number, fold)

    def report(self, number: int, step: int, value: float) -> bool:
        """Record a value; True if the trial should stop: the pruner says so, or it has ended in the study."""
        trial_id = self._trial_ids.get(number)
        if trial_id is None:
            return True
        if step in self._known.get(number, ()):
            return False  # a training that was killed repeats the steps after its last checkpoint
        if not self._reports.add(trial_id, step, value):
            return True
        self.values.get(number, {})[step] = value
        if step >= self._stop_at.get(number, math.inf):
            return True
        if step < self._judged_from.get(number, 0):
            return False
        return self._is_pruned(number, trial_id)

    def _is_pruned(self, number: int, trial_id: int) -> bool:
        """Whether the pruner says that a trial should stop."""
        pruner = self._study.pruner
        kind = type(pruner)  # a subclass may do anything
        if kind is NopPruner:
            return False
        if kind not in BY_VALUES and kind not in BY_ATTRIBUTES:
            self._reports.flush()
        trial = self._trials.get(number)
        if trial is None or kind not in BY_VALUES:
            trial = self._trials[number] = with_retries(partial(self._study._storage.get_trial, trial_id))
        trial = copy.copy(trial)
        trial.intermediate_values = {**trial.intermediate_values, **self.values.get(number, {})}
        return bool(with_retries(partial(pruner.prune, self._study, trial)))


class RemoteReporter:
    """The worker's end. It is sent with a task, and connects with its first report."""

    def __init__(self, address: tuple[str, int], secret: bytes) -> None:
        self._address = address
        self._secret = secret
        self._connection: Connection | None = None

    def begin(self, number: int, fold: int | None) -> None:
        """Report that an evaluation starts, and wait until the driver has noted it."""
        self._send("begin", number, fold)

    def report(self, number: int, step: int, value: float) -> bool:
        """Send a value and wait for the answer."""
        return bool(self._send("report", number, step, value))

    def flush(self, number: int) -> None:
        """Wait until all values that were sent are in the study."""
        self._send("flush", number)

    def _send(self, *message: object) -> object:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.send(message)
        answer = self._connection.recv()
        if isinstance(answer, _Failed):
            raise RuntimeError(f"the driver could not handle a report: {answer.reason}")
        return answer

    def _connect(self) -> Connection:
        """A new connection. A driver with too many unauthenticated connections may close ours: try again."""
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
    """Answer workers that reach this machine under ``host``; gives the reporter that their tasks carry."""
    secret = secrets.token_bytes(32)
    with socket.create_server((host, 0), family=socket.AF_INET, backlog=128) as server:
        listener = _Listener(server, reporter, secret)
        accepting = threading.Thread(target=listener.accept, name="lazybo-channel", daemon=True)
        accepting.start()
        try:
            yield RemoteReporter(server.getsockname(), secret)
        finally:
            listener.close()
            accepting.join(timeout=5)


class _Listener:
    """Accepts connections. Each has a thread, and a few seconds to authenticate."""

    def __init__(self, server: socket.socket, reporter: Reporter, secret: bytes) -> None:
        self._server, self._reporter, self._secret = server, reporter, secret
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._unauthenticated: dict[socket.socket, float] = {}  # with the time of connection; the oldest first

    def accept(self) -> None:
        """Accept connections until the listener is closed."""
        while not self._closed.is_set():
            self._limit_unauthenticated()
            try:
                client, _ = self._server.accept()
            except OSError:
                # The client left at once, or this process has no file descriptor left now.
                self._closed.wait(0.05)
                continue
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # to notice machines that vanish
            with self._lock:
                if self._closed.is_set():
                    client.close()
                    return
                self._connections.add(client)
                self._unauthenticated[client] = time.monotonic()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def close(self) -> None:
        """Accept no more connections, and close all."""
        with self._lock:
            self._closed.set()
        # Closing a socket does not wake the thread that waits in accept(); a connection does.
        with contextlib.suppress(OSError):
            socket.create_connection(self._server.getsockname(), timeout=1).close()
        with self._lock:
            for client in self._connections:
                _disconnect(client)

    def _limit_unauthenticated(self) -> None:
        """While there are too many unauthenticated connections, close the oldest."""
        while len(self._unauthenticated) >= MAX_UNAUTHENTICATED and not self._closed.is_set():
            with self._lock:
                oldest, since = next(iter(self._unauthenticated.items()), (None, 0.0))
                if oldest is not None and time.monotonic() - since > MIN_AGE:
                    del self._unauthenticated[oldest]
                    _disconnect(oldest)
                    return
            self._closed.wait(0.01)

    def _serve(self, client: socket.socket) -> None:
        """Authenticate a client and answer it until it disconnects."""
        timer = threading.Timer(AUTHENTICATION_TIMEOUT, _disconnect, args=(client,))
        timer.daemon = True
        timer.start()
        try:
            with Connection(client.dup().detach()) as connection:
                try:
                    deliver_challenge(connection, self._secret)
                    answer_challenge(connection, self._secret)
                finally:
                    timer.cancel()
                    with self._lock:
                        self._unauthenticated.pop(client, None)
                _answer(connection, self._reporter)
        except (EOFError, OSError, AuthenticationError):
            pass  # a client without the secret, or a worker that has ended or died
        finally:
            with self._lock:
                self._connections.discard(client)
            client.close()


def _disconnect(client: socket.socket) -> None:
    """End a connection from another thread: the thread that reads from it sees the end of the stream."""
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True)
class _Failed:
    """The answer to a message that raised an exception: a pruner that fails, or a storage that does not answer."""

    reason: str


def _answer(connection: Connection, reporter: Reporter) -> None:
    while True:
        verb, *arguments = connection.recv()
        answer: object = None
        try:
            if verb == "report":
                answer = reporter.report(*arguments)
            elif verb == "begin":
                reporter.begin(*arguments)
            elif verb == "flush":
                reporter.flush(*arguments)
        except Exception as error:
            answer = _Failed(plain.reason(error))
        connection.send(answer)
