"""Reports of workers to the driver, above all intermediate values, and its answers: continue or stop.

Workers in other processes or on other machines may not reach the study's storage, but they reach the driver. A
connection is authenticated with a secret that only the driver's tasks carry.
"""

import contextlib
import copy
import json
import math
import pickle
import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

from optuna import pruners
from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial

from lazybo.run import plain
from lazybo.run.forwarded import READS, WRITES, callers, cannot_stop, make_forwarded
from lazybo.run.trial import DEVICE, Reporter, suggested
from lazybo.run.trial import Trial as ObjectiveTrial
from lazybo.study import Store, open_ledger, with_retries

# Seconds between two writes of intermediate values.
WRITE_INTERVAL = 0.5
# Seconds between a worker's attempts to reach its driver. A training goes on after an outage that is shorter than all.
CONNECTION_WAITS = (0.1, 0.5, 2.0, 5.0, 10.0, 10.0, 15.0, 15.0)
CONNECTING = 10.0  # seconds of one attempt
# A connection is given up when the other machine is silent for about 25 s; otherwise both ends would wait for hours.
# The options that there are differ between systems.
SILENCE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 25_000}
# Pruners that use the parameters and values of a running trial, and of other trials only those that have ended. Ours,
# LazyPruner, says so itself.
BY_VALUES = (pruners.MedianPruner, pruners.PercentilePruner, pruners.ThresholdPruner, pruners.WilcoxonPruner)
# Pruners that also keep attributes with running trials. Any other pruner may look at all that running trials report.
BY_ATTRIBUTES = (pruners.SuccessiveHalvingPruner, pruners.HyperbandPruner)
# Writes values by step, by the id of their trial; returns the ids of the trials that had ended and got none.
Write = Callable[[Mapping[int, Mapping[int, float]]], Collection[int]]
# Is called with a value that a running trial has reported: the study, the trial, the step, the value.
Follower = Callable[[Study, FrozenTrial, int, float], object]


# ------------------------------------------------------------------------- driver


@dataclass
class _OpenTrial:
    """A trial that may report."""

    trial_id: int
    values: dict[int, float]  # all values so far, by step
    known: frozenset[int]  # the steps that an earlier evaluation has reported
    judged_from: float  # the step before which the trial is not stopped
    stop_at: float  # the step at which it is stopped in any case
    frozen: FrozenTrial | None = None  # as it was when it first reported
    defining: Trial | None = None  # Optuna's own trial, if the objective names its parameters
    asking: threading.Lock = field(default_factory=threading.Lock)


class StudyReporter:
    """Records intermediate values and asks the study's pruner. Used by several threads at once.

    ``on_begin`` is called when a worker starts an evaluation, and each of ``followers`` for every new value.
    """

    def __init__(
        self,
        study: Study,
        on_begin: Callable[[int, int | None], object],
        followers: Sequence[Follower] = (),
        *,
        defines: bool = False,
    ) -> None:
        self._study, self._store, self._on_begin, self._followers = study, Store(study), on_begin, followers
        self._defines = defines
        interval = 0.0 if self._store.in_memory else WRITE_INTERVAL  # in memory nothing is gained by waiting
        self._writer = BatchedWriter(open_ledger(study, {}, None).report, interval)
        self._open: dict[int, _OpenTrial] = {}  # by number

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

        ``values`` were reported by an earlier evaluation and stay. The trial is not stopped before the step
        ``judged_from``, and in any case at the step ``stop_at``.
        """
        known = dict(values or {})
        # Made when the trial begins: its sampler does not wait for trials of its own.
        defining = with_retries(partial(Trial, self._study, trial_id)) if self._defines else None
        self._open[number] = _OpenTrial(trial_id, known, frozenset(known), judged_from, stop_at, defining=defining)

    def close(self, number: int) -> dict[int, float]:
        """Accept no more reports of a trial, and write those that wait; returns its intermediate values."""
        closed = self._open.pop(number, None)
        if closed is None:
            return {}
        self._writer.flush()
        self._writer.forget(closed.trial_id)
        return closed.values

    def values_of(self, number: int) -> dict[int, float]:
        """What a trial has reported so far, by step."""
        trial = self._open.get(number)
        return {} if trial is None else dict(trial.values)

    def flush(self, number: int = -1) -> None:  # noqa: ARG002 (Reporter)
        """Write all values that wait."""
        self._writer.flush()

    def suggest(self, number: int, name: str, distribution: BaseDistribution) -> float:
        """A parameter of a trial whose objective names its parameters, by the study's sampler."""
        trial = self._open.get(number)
        if trial is None or trial.defining is None:
            raise ValueError(f"trial {number} has ended")
        with trial.asking:  # an objective may have threads of its own
            return suggested(trial.defining, name, distribution)

    def study(self) -> Study:
        """The study itself: the evaluation is in this process. What trials have reported can be read."""
        self._writer.flush()
        return self._study

    def study_name(self) -> str:
        """The name of the study."""
        return self._study.study_name

    def storage(self, method: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """What a method of the storage returns, for a worker that cannot reach it."""
        if method not in (*READS, *WRITES):
            raise ValueError(f"workers cannot call {method} of the storage")
        self._writer.flush()  # what a trial has reported can be read
        return with_retries(partial(getattr(self._store.storage, method), *arguments, **named))

    def begin(self, number: int, fold: int | None) -> None:
        """A worker starts an evaluation."""
        self._on_begin(number, fold)

    def claim(self, number: int, device: str) -> None:
        """Record the device of a trial that starts."""
        trial = self._open.get(number)
        if trial is not None:
            with contextlib.suppress(Exception):  # the result will have it too
                self._store.storage.set_trial_user_attr(trial.trial_id, DEVICE, device)

    def report(self, number: int, step: int, value: float) -> bool:
        """Record a value; True if the trial should stop: the pruner says so, or it has ended in the study."""
        trial = self._open.get(number)
        if trial is None:
            return True
        if step in trial.known:
            # A training that was killed repeats the steps after its last checkpoint. The answer for its last value may
            # not have been obeyed yet.
            if step < max(trial.known):
                return False
        elif not self._writer.add(trial.trial_id, step, value):
            return True
        else:
            trial.values[step] = value
            for follow in self._followers:
                follow(self._study, self._frozen(trial), step, value)
        if step >= trial.stop_at:
            return True
        return step >= trial.judged_from and self._is_pruned(trial)

    def _is_pruned(self, trial: _OpenTrial) -> bool:
        """Whether the pruner says that a trial should stop."""
        pruner = self._study.pruner
        kind = type(pruner)  # a subclass may do anything
        if kind is pruners.NopPruner:
            return False
        by_values = kind in BY_VALUES or "BY_VALUES" in vars(kind)
        if not by_values and kind not in BY_ATTRIBUTES:
            self._writer.flush()
        if not by_values:
            trial.frozen = None
        frozen = copy.copy(self._frozen(trial))
        frozen.intermediate_values = {**frozen.intermediate_values, **trial.values}
        return bool(with_retries(partial(pruner.prune, self._study, frozen)))

    def _frozen(self, trial: _OpenTrial) -> FrozenTrial:
        """A trial as it was when it first reported."""
        if trial.frozen is None:
            trial.frozen = self._store.trial(trial.trial_id)
        return trial.frozen


class BatchedWriter:
    """Writes intermediate values to a study, several at once, at most every ``interval`` seconds.

    A value that arrives after a quiet time is written at once; those that follow within the interval are written
    together. So a slow training waits for no timer, and a fast one does not wait for a commit after each step. A
    process that is killed loses the values of the last interval. Used by several threads at once.
    """

    def __init__(self, write: Write, interval: float = WRITE_INTERVAL) -> None:
        self._write, self._interval = write, interval
        self._waiting: dict[int, dict[int, float]] = {}
        self._ended: set[int] = set()
        self._due = -math.inf  # when the next write may be made, on the monotonic clock
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # held during a write, so that whoever flushes waits for it

    def add(self, trial_id: int, step: int, value: float) -> bool:
        """Write a value now or soon; False if the trial is known to have ended."""
        with self._lock:
            if trial_id in self._ended:
                return False
            self._waiting.setdefault(trial_id, {})[step] = value
            wait = self._due - time.monotonic()
            if wait > 0:
                if self._timer is None:
                    self._timer = threading.Timer(wait, self._on_time)
                    self._timer.daemon = True
                    self._timer.start()
                return True
        self.flush()
        return trial_id not in self._ended

    def _on_time(self) -> None:
        # The values are kept, and the next report, or the end of the trial, meets the error.
        with contextlib.suppress(Exception):
            self.flush()

    def flush(self) -> None:
        """Write all values that wait. If that fails, they continue to wait."""
        with self._writing:
            with self._lock:
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                written, self._waiting = self._waiting, {}
            if not written:
                return
            try:
                ended = self._write(written)
            except BaseException:
                with self._lock:
                    for trial_id, values in written.items():
                        self._waiting[trial_id] = {**values, **self._waiting.get(trial_id, {})}
                raise
            finally:
                self._due = time.monotonic() + self._interval
            self._ended.update(ended)

    def forget(self, trial_id: int) -> None:
        """Note that no more values of a trial will come."""
        self._ended.discard(trial_id)


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
        """A parameter of a trial whose objective names its parameters."""
        return float(self._send("suggest", number, name, distribution))  # type: ignore[arg-type]

    def storage(self, method: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """What a method of the driver's storage returns."""
        return self._send("storage", method, arguments, named)

    def begin(self, number: int, fold: int | None) -> None:
        """Report that an evaluation starts, and wait until the driver has noted it."""
        self._send("begin", number, fold)

    def report(self, number: int, step: int, value: float) -> bool:
        """Send a value and wait for the answer."""
        return bool(self._send("report", number, step, value))

    def flush(self, number: int) -> None:
        """Wait until all values that were sent are in the study."""
        self._send("flush", number)

    def claim(self, number: int, device: str) -> None:
        """Report the device of a trial."""
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

    def __getstate__(self) -> dict[str, object]:
        return {"address": self.address, "secret": self.secret}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


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


class RemoteTrial:
    """A trial in a program that is no worker of ours, by a text that must stay secret."""

    @staticmethod
    @contextlib.contextmanager
    def offered(trial: ObjectiveTrial, host: str) -> Iterator[str]:
        """The text for a trial of this process, which is reached under ``host`` inside this block."""
        assert trial._reporter is not None, "an evaluation reports to its driver"
        with listening(trial._reporter, host) as remote:
            yield json.dumps([remote.address, remote.secret.hex(), trial.number, trial.params])

    @staticmethod
    def taken(text: str) -> ObjectiveTrial:
        """The trial; it connects with its first report."""
        (host, port), secret, number, params = json.loads(text)
        return ObjectiveTrial(number, params, RemoteReporter((host, port), bytes.fromhex(secret)))


class _Listener:
    """Accepts connections. Each has a thread, and a few seconds to authenticate."""

    def __init__(self, server: socket.socket, reporter: Reporter, secret: bytes, limits: ConnectionLimits) -> None:
        self._server, self._reporter, self._secret, self._limits = server, reporter, secret, limits
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
