"""News on their way from workers to the driver, intermediate values above all, and its answer: go on, or stop.

Workers in other processes or on other machines cannot be expected to reach the study's storage, but they reach the
driver. A connection is opened with a secret that only the driver's tasks carry.
"""

import contextlib
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener

from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study

from lazybo.run.evaluate import Reporter


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
            storage.set_trial_intermediate_value(trial_id, step, value)
        except UpdateFinishedTrialError:
            return True
        self.values[number][step] = value
        return bool(self._study.pruner.prune(self._study, storage.get_trial(trial_id)))


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
            self._connection = Client(self._address, authkey=self._secret)
        self._connection.send(message)
        answer: bool = self._connection.recv()
        return answer

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_connection": None}


@contextlib.contextmanager
def listening(reporter: Reporter, host: str) -> Iterator[RemoteReporter]:
    """Answer workers that reach this machine under ``host``; gives what their tasks carry."""
    secret = secrets.token_bytes(32)
    over = threading.Event()
    with Listener((host, 0), backlog=128, authkey=secret) as listener:
        address: tuple[str, int] = listener.address
        accepting = threading.Thread(
            target=_accept, args=(listener, reporter, over), name="lazybo-channel", daemon=True
        )
        accepting.start()
        try:
            yield RemoteReporter(address, secret)
        finally:
            over.set()
            # Closing a socket does not wake the thread that waits for it; a visitor does.
            with contextlib.suppress(OSError):
                socket.create_connection(address, timeout=1).close()
            accepting.join(timeout=5)


def _accept(listener: Listener, reporter: Reporter, over: threading.Event) -> None:
    while not over.is_set():
        try:
            connection = listener.accept()
        except (OSError, EOFError, AuthenticationError):
            continue  # the visitor at the end, a stranger without the secret, or a worker that died on the way
        threading.Thread(target=_answer, args=(connection, reporter), daemon=True).start()


def _answer(connection: Connection, reporter: Reporter) -> None:
    with connection, contextlib.suppress(EOFError, OSError):  # the worker has ended, or died
        while True:
            verb, *news = connection.recv()
            connection.send(reporter.begin(*news) if verb == "begin" else reporter.report(*news))
