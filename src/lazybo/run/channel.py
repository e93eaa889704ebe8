"""The connection between workers and the driver: reports, above all intermediate values, and the answers.

Workers in other processes or on other machines may not reach the study's storage, but they reach the driver. A
connection is authenticated with a secret that only the driver's tasks carry.
"""

import contextlib
import pickle
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any, Protocol

from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import Study

from lazybo.run import plain

# Seconds between a worker's attempts to reach its driver. A training goes on after an outage that is shorter than all.
CONNECTION_WAITS = (0.1, 0.5, 2.0, 5.0, 10.0, 10.0, 15.0, 15.0)
CONNECTING = 10.0  # seconds of one attempt
# A connection is given up when the other machine is silent for about 25 s; otherwise both ends would wait for hours.
# The options that there are differ between systems.
SILENCE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 25_000}
# What workers may ask the storage of the study. Trials begin and end by the ledger, and report by the reporter.
READS = tuple(sorted(name for name in vars(BaseStorage) if name.startswith("get_")))
WRITES = ("set_trial_user_attr", "set_trial_system_attr", "set_study_user_attr", "set_study_system_attr")
REFUSED = tuple(sorted({*BaseStorage.__abstractmethods__} - {*READS, *WRITES}))


class Reporter(Protocol):
    """What a worker reports to."""

    def begin(self, number: int, fold: int | None) -> None:
        """The evaluation starts; its timeout counts from now on."""

    def report(self, number: int, step: int, value: float) -> bool:
        """Record the value of a trial at a step; True if the trial should stop."""

    def flush(self, number: int) -> None:
        """Wait until all reported values are in the study."""

    def claim(self, number: int, device: str) -> None:
        """The evaluation owns a device from now on."""

    def study(self) -> Study:
        """The study, as an objective may use it."""

    def suggest(self, number: int, name: str, distribution: BaseDistribution) -> float:
        """A parameter of a trial without a space, as the study stores it."""


# ------------------------------------------------------------------------- worker


@dataclass
class RemoteReporter:
    """The worker's end. It is sent with a task, and connects with its first report."""

    address: tuple[str, int]
    secret: bytes = field(repr=False)
    _connection: Connection | None = field(default=None, repr=False)
    _study: Study | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def study(self) -> Study:
        """The study, with a storage that asks the driver."""
        if self._study is None:
            self._study = Study(study_name=str(self._send("study_name")), storage=make_forwarded(self.storage))
            self._study.stop = cannot_stop  # type: ignore[method-assign]
        return self._study

    def suggest(self, number: int, name: str, distribution: BaseDistribution) -> float:
        return float(self._send("suggest", number, name, distribution))  # type: ignore[arg-type]

    def storage(self, method: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        return self._send("storage", method, arguments, named)

    def begin(self, number: int, fold: int | None) -> None:
        self._send("begin", number, fold)

    def report(self, number: int, step: int, value: float) -> bool:
        return bool(self._send("report", number, step, value))

    def flush(self, number: int) -> None:
        self._send("flush", number)

    def claim(self, number: int, device: str) -> None:
        self._send("claim", number, device)

    def _send(self, *message: object) -> object:
        """The driver's answer. Every message may be sent twice: connections break, and an answer may be lost."""
        for wait in (*CONNECTION_WAITS, None):
            try:
                answer = self._exchange(message)
                break
            except (OSError, EOFError) as error:
                self._disconnect()
                if wait is None or isinstance(error, ConnectionRefusedError):
                    raise  # a driver whose machine refuses to connect has ended
                time.sleep(wait)
        if isinstance(answer, _Failed):
            raise answer.error or RuntimeError(f"the driver could not handle a report: {answer.reason}")
        return answer

    def _exchange(self, message: object) -> object:
        with self._lock:  # an objective may have threads of its own
            if self._connection is None:
                self._connection = self._connect()
            self._connection.send(message)
            return self._connection.recv()

    def _connect(self) -> Connection:
        """A new connection. A driver with too many unauthenticated connections may close it."""
        link = socket.create_connection(self.address, timeout=CONNECTING)
        link.settimeout(None)
        _notice_silence(link)
        connection = Connection(link.detach())
        try:
            answer_challenge(connection, self.secret)
            deliver_challenge(connection, self.secret)
        except BaseException:
            connection.close()
            raise
        return connection

    def _disconnect(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteReporter, (self.address, self.secret)


# ------------------------------------------------------------ the storage of a study in a worker


def make_forwarded(ask: Callable[[str, tuple[Any, ...], Mapping[str, Any]], Any]) -> BaseStorage:
    """A storage that asks the driver. It reads everything, and writes attributes."""

    def forwarded(name: str) -> Callable[..., Any]:
        return lambda _self, *arguments, **named: ask(name, arguments, named)

    def refused(name: str) -> Callable[..., Any]:
        def method(_self: object, *_arguments: Any, **_named: Any) -> Any:
            raise RuntimeError(
                f"a worker cannot call {name}: the driver begins and ends trials; use trial.report for intermediate "
                "values, and return the result"
            )

        return method

    methods = {name: forwarded(name) for name in (*READS, *WRITES)} | {name: refused(name) for name in REFUSED}
    storage: BaseStorage = type("ForwardedStorage", (BaseStorage,), methods)()
    return storage


def callers(error: Exception) -> Exception | None:
    """An error of the caller as it can be sent to a worker; None for others."""
    if type(error) not in (KeyError, TypeError, ValueError):
        return None
    return type(error)(str(error.args[0] if error.args else error)[:1000])


def cannot_stop() -> None:
    """What ``study.stop`` does in a worker."""
    raise RuntimeError("a worker cannot stop the run; call study.stop() in one of the callbacks of optimize()")


# --------------------------------------------------------------------- connections


@dataclass(frozen=True)
class ConnectionLimits:
    """What clients that do not authenticate may use up."""

    authentication_timeout: float = 10.0  # seconds in which a connection must authenticate
    max_unauthenticated: int = 256  # beyond this many, the oldest is closed if it is older than ``min_age`` seconds
    min_age: float = 1.0


@contextlib.contextmanager
def listening(reporter: Reporter, host: str, limits: ConnectionLimits | None = None) -> Iterator[RemoteReporter]:
    """Answer workers that reach this machine under ``host``; yields the reporter that their tasks carry."""
    secret = secrets.token_bytes(32)
    with socket.create_server((host, 0), family=socket.AF_INET, backlog=128) as server:
        listener = _Listener(server, reporter, secret, limits or ConnectionLimits())
        accepting = threading.Thread(target=listener.accept, name="lazybo-channel", daemon=True)
        accepting.start()
        try:
            yield RemoteReporter(server.getsockname(), secret)
        finally:
            listener.close()
            accepting.join(timeout=5)


class _Listener:
    """Accepts connections. Each has a thread, and a few seconds to authenticate."""

    def __init__(self, server: socket.socket, reporter: Reporter, secret: bytes, limits: ConnectionLimits) -> None:
        self._server, self._reporter, self._secret, self._limits = server, reporter, secret, limits
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._unauthenticated: dict[socket.socket, float] = {}  # with the time of connection; the oldest first

    def accept(self) -> None:
        while not self._closed.is_set():
            self._limit_unauthenticated()
            try:
                client, _ = self._server.accept()
            except OSError:
                # The client left at once, or this process has no file descriptor left right now.
                self._closed.wait(0.05)
                continue
            _notice_silence(client)
            with self._lock:
                if self._closed.is_set():
                    client.close()
                    return
                self._connections.add(client)
                self._unauthenticated[client] = time.monotonic()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def close(self) -> None:
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
        while len(self._unauthenticated) >= self._limits.max_unauthenticated and not self._closed.is_set():
            with self._lock:
                oldest, since = next(iter(self._unauthenticated.items()), (None, 0.0))
                if oldest is not None and time.monotonic() - since > self._limits.min_age:
                    del self._unauthenticated[oldest]
                    _disconnect(oldest)
                    return
            self._closed.wait(0.01)

    def _serve(self, client: socket.socket) -> None:
        """Authenticate a client and answer it until it disconnects."""
        timer = threading.Timer(self._limits.authentication_timeout, _disconnect, args=(client,))
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
                while True:
                    connection.send_bytes(_answered(connection.recv_bytes(), self._reporter))
        except (EOFError, OSError, AuthenticationError):
            pass  # a client without the secret, or a worker that has ended or died
        finally:
            with self._lock:
                self._connections.discard(client)
            client.close()


def _notice_silence(link: socket.socket) -> None:
    """End a connection, with an error, some time after the other machine has vanished."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, limit in SILENCE.items():
        if (option := getattr(socket, name, None)) is not None:
            link.setsockopt(socket.IPPROTO_TCP, option, limit)


def _disconnect(client: socket.socket) -> None:
    """End a connection from another thread: the thread that reads from it sees the end of the stream."""
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True)
class _Failed:
    """The answer to a message that raised an exception: a pruner failed, or a storage did not answer."""

    reason: str
    error: Exception | None  # what the call would have raised in the driver


def _answered(message: bytes, reporter: Reporter) -> bytes:
    """The answer to a message, as it is sent. What cannot be sent or understood here fails there, with the reason."""
    verb = ""
    try:
        verb, *arguments = pickle.loads(message)  # noqa: S301 - the sender has the secret
        known = verb in ("begin", "report", "flush", "claim", "study_name", "storage", "suggest")
        return pickle.dumps(getattr(reporter, verb)(*arguments) if known else None)
    except Exception as error:
        cause = callers(error) if verb in ("storage", "suggest") else None
        return pickle.dumps(_Failed(plain.reason(error), cause))
