"""Intermediate values over a real socket."""

import os
import pickle
import socket
import threading
from multiprocessing import AuthenticationError

import optuna
import pytest

from lazybo.run.channel import ConnectionLimits, RemoteReporter, listening
from lazybo.run.reports import StudyReporter
from tests.run.running import open_trial


class Threshold:
    """Prunes what is worse than 5."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, float]] = []
        self.begun: list[tuple[int, int | None]] = []

    def begin(self, number: int, fold: int | None) -> None:
        self.begun.append((number, fold))

    def report(self, number: int, step: int, value: float) -> bool:
        self.seen.append((number, step, value))
        return value > 5


def test_values_arrive_and_the_answer_comes_back() -> None:
    reporter = Threshold()
    with listening(reporter, "127.0.0.1") as sent:
        remote = pickle.loads(pickle.dumps(sent))
        remote.begin(1, None)
        assert not remote.report(1, 0, 2.0)
        assert remote.report(1, 1, 9.0)
        assert not pickle.loads(pickle.dumps(remote)).report(2, 0, 1.0)  # a new connection
    assert reporter.seen == [(1, 0, 2.0), (1, 1, 9.0), (2, 0, 1.0)]
    assert reporter.begun == [(1, None)]


def test_an_error_of_the_driver_reaches_the_worker_as_its_text() -> None:
    """The worker saw the end of the connection, and its trial failed with a bare EOFError."""

    class Failing(Threshold):
        def report(self, number: int, step: int, value: float) -> bool:
            if step == 1:
                raise ZeroDivisionError("in the pruner")
            return super().report(number, step, value)

    with listening(Failing(), "127.0.0.1") as sent:
        remote = pickle.loads(pickle.dumps(sent))
        assert not remote.report(1, 0, 2.0)
        with pytest.raises(RuntimeError, match="could not handle a report: ZeroDivisionError: in the pruner"):
            remote.report(1, 1, 2.0)
        assert not remote.report(1, 2, 2.0), "the connection is still there"


class OnlyThere:
    """An object that only one machine has the module of."""

    def __reduce__(self) -> tuple[object, ...]:
        return __import__, ("a_module_of_the_worker",)


def test_what_cannot_be_understood_or_sent_is_an_error_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    """The thread of the connection died, and the worker tried again for a minute and failed with a bare EOFError."""

    class Odd(Threshold):
        def storage(self, *_: object) -> object:
            return threading.Lock()

    with listening(Odd(), "127.0.0.1") as sent:
        remote = pickle.loads(pickle.dumps(sent))
        with pytest.raises(
            RuntimeError, match=r"could not handle a report: .*No module named 'a_module_of_the_worker'"
        ):
            remote.storage("set_trial_user_attr", (0, "key", OnlyThere()), {})
        with pytest.raises(TypeError, match=r"cannot pickle '_thread\.lock'"):
            remote.storage("get_trial", (0,), {})
        assert not remote.report(1, 0, 2.0), "the connection is still there"
    assert "Traceback" not in capfd.readouterr().err


def test_a_client_without_the_secret_is_rejected_and_workers_are_answered() -> None:
    reporter = Threshold()
    with listening(reporter, "127.0.0.1") as sent:
        with pytest.raises((AuthenticationError, EOFError, OSError)):
            RemoteReporter(sent.address, b"guess").report(1, 0, 2.0)
        socket.create_connection(sent.address).close()
        assert not sent.report(1, 0, 3.0)
    assert reporter.seen == [(1, 0, 3.0)]
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(sent.address).close()


def test_a_trial_that_ended_is_told_to_stop() -> None:
    study = optuna.create_study()
    trial = study.ask()
    begun: list[tuple[int, int | None]] = []
    reporter = StudyReporter(study, lambda number, fold: begun.append((number, fold)))
    reporter.open(open_trial(trial))
    reporter.begin(trial.number, 2)
    assert begun == [(0, 2)]
    assert not reporter.report(trial.number, 0, 1.0)
    study.tell(trial, 1.0)
    assert reporter.report(trial.number, 1, 1.0)
    assert reporter.close(trial.number) == {0: 1.0}
    assert reporter.report(trial.number, 2, 1.0)
    assert study.trials[0].intermediate_values == {0: 1.0}


def test_a_training_that_was_killed_is_asked_again_about_its_last_value_only() -> None:
    """The answer may have been lost with the kill. Those for earlier values were obeyed."""
    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=0.5))
    trial = study.ask()
    reporter = StudyReporter(study, lambda *_: None)
    reporter.open(open_trial(trial, values={1: 9.0, 2: 9.0}))
    assert not reporter.report(trial.number, 1, 0.0)
    assert reporter.report(trial.number, 2, 0.0), "the recorded value counts, not a second one"
    reporter.open(open_trial(trial, values={1: 0.1, 2: 0.1}, stop_at=2))
    assert reporter.report(trial.number, 2, 0.1), "it should have been paused here"
    reporter.open(open_trial(trial, values={1: 9.0, 2: 9.0}, judged_from=2.5))
    assert not reporter.report(trial.number, 2, 9.0), "it was paused here and has been resumed"


def answered(remote: RemoteReporter, number: int) -> bool:
    """Whether a worker is answered, asked in a thread of its own since it might wait for ever."""
    answers: list[bool] = []
    worker = threading.Thread(target=lambda: answers.append(remote.report(number, 0, 1.0)), daemon=True)
    worker.start()
    worker.join(timeout=20)
    return answers == [False]


def served() -> int:
    return sum("_serve" in thread.name for thread in threading.enumerate())


def test_workers_are_answered_while_other_clients_are_silent() -> None:
    reporter = Threshold()
    with listening(reporter, "127.0.0.1") as sent:
        silent = [socket.create_connection(sent.address) for _ in range(3)]
        silent[1].send(b"\0\0")  # the beginning of a message
        assert answered(sent, 1)
    assert reporter.seen == [(1, 0, 1.0)]
    for client in silent:
        client.settimeout(20)
        while client.recv(1000):  # the challenge, and then the end: the listener is closed
            pass
        client.close()


def test_the_number_of_unauthenticated_connections_is_limited() -> None:
    limits = ConnectionLimits(authentication_timeout=1000.0, max_unauthenticated=3, min_age=0.05)
    with listening(Threshold(), "127.0.0.1", limits) as sent:
        clients = [socket.create_connection(sent.address, timeout=20) for _ in range(9)]
        assert answered(sent, 1)
        assert served() <= 4
        while clients[0].recv(1000):  # the first was disconnected
            pass
    for client in clients:
        client.close()


def test_a_connection_that_breaks_costs_no_report() -> None:
    """An outage of the network ended the training with an OSError."""
    reporter = Threshold()
    with listening(reporter, "127.0.0.1") as sent:
        remote = pickle.loads(pickle.dumps(sent))
        assert not remote.report(1, 0, 2.0)
        with socket.socket(fileno=os.dup(remote._connection.fileno())) as link:
            link.shutdown(socket.SHUT_RDWR)
        assert remote.report(1, 1, 9.0)
    assert reporter.seen == [(1, 0, 2.0), (1, 1, 9.0)]
    with pytest.raises(OSError, match="refused"):  # at once: the driver has ended
        remote.report(1, 2, 1.0)
