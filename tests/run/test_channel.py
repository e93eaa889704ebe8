"""Intermediate values over a real socket."""

import os
import pickle
import socket
import threading
from multiprocessing import AuthenticationError

import optuna
import pytest

from lazybo.run import channel
from lazybo.run.channel import RemoteReporter, StudyReporter, listening


class Doubtful:
    """Prunes what is worse than 5."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, float]] = []
        self.begun: list[tuple[int, int | None]] = []

    def begin(self, number: int, fold: int | None) -> bool:
        self.begun.append((number, fold))
        return False

    def report(self, number: int, step: int, value: float) -> bool:
        self.seen.append((number, step, value))
        return value > 5


def test_values_arrive_and_the_answer_comes_back() -> None:
    reporter = Doubtful()
    with listening(reporter, "127.0.0.1") as sent:
        remote = pickle.loads(pickle.dumps(sent))
        assert not remote.begin(1, None)
        assert not remote.report(1, 0, 2.0)
        assert remote.report(1, 1, 9.0)
        assert not pickle.loads(pickle.dumps(remote)).report(2, 0, 1.0)  # a new connection
    assert reporter.seen == [(1, 0, 2.0), (1, 1, 9.0), (2, 0, 1.0)]
    assert reporter.begun == [(1, None)]


def test_many_workers_report_at_once() -> None:
    reporter = Doubtful()
    with listening(reporter, "127.0.0.1") as sent:
        workers = [
            threading.Thread(target=lambda n=n: [pickle.loads(pickle.dumps(sent)).report(n, s, 0.0) for s in range(5)])
            for n in range(20)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert sorted(reporter.seen) == [(n, s, 0.0) for n in range(20) for s in range(5)]


def test_a_stranger_is_turned_away_and_disturbs_nobody() -> None:
    reporter = Doubtful()
    with listening(reporter, "127.0.0.1") as sent:
        with pytest.raises((AuthenticationError, EOFError, OSError)):
            RemoteReporter(sent._address, b"guess").report(1, 0, 2.0)
        socket.create_connection(sent._address).close()
        assert not sent.report(1, 0, 3.0)
    assert reporter.seen == [(1, 0, 3.0)]
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(sent._address).close()


def test_a_trial_that_ended_is_told_to_stop() -> None:
    study = optuna.create_study()
    trial = study.ask()
    begun: list[tuple[int, int | None]] = []
    reporter = StudyReporter(study, lambda number, fold: begun.append((number, fold)))
    reporter.open(trial.number, trial._trial_id)
    assert not reporter.begin(trial.number, 2)
    assert begun == [(0, 2)]
    assert not reporter.report(trial.number, 0, 1.0)
    study.tell(trial, 1.0)
    assert reporter.report(trial.number, 1, 1.0)
    assert reporter.close(trial.number) == {0: 1.0}
    assert reporter.report(trial.number, 2, 1.0)
    assert study.trials[0].intermediate_values == {0: 1.0}


def said(remote: RemoteReporter, number: int) -> bool:
    """Whether a worker is answered, asked in a thread of its own since it might wait for ever."""
    answers: list[bool] = []
    worker = threading.Thread(target=lambda: answers.append(remote.report(number, 0, 1.0)), daemon=True)
    worker.start()
    worker.join(timeout=20)
    return answers == [False]


def conversations() -> int:
    return sum("_talk" in thread.name for thread in threading.enumerate())


def test_silent_strangers_keep_nobody_from_being_answered() -> None:
    reporter = Doubtful()
    with listening(reporter, "127.0.0.1") as sent:
        silent = [socket.create_connection(sent._address) for _ in range(3)]
        silent[1].send(b"\0\0")  # the beginning of a message
        assert said(sent, 1)
    assert reporter.seen == [(1, 0, 1.0)]
    for stranger in silent:
        stranger.settimeout(20)
        while stranger.recv(1000):  # the challenge, and then the end: the door is closed
            pass
        stranger.close()


def test_a_stranger_that_proves_nothing_is_turned_away_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "HANDSHAKE", 0.2)
    with listening(Doubtful(), "127.0.0.1") as sent:
        stranger = socket.create_connection(sent._address, timeout=20)
        while stranger.recv(1000):
            pass
        assert said(sent, 1)
        assert said(sent, 1)  # a worker may be silent for as long as it likes
        stranger.close()


def test_so_many_strangers_may_be_there_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "STRANGERS", 3)
    monkeypatch.setattr(channel, "COURTESY", 0.05)
    monkeypatch.setattr(channel, "HANDSHAKE", 1000.0)
    with listening(Doubtful(), "127.0.0.1") as sent:
        strangers = [socket.create_connection(sent._address, timeout=20) for _ in range(9)]
        assert said(sent, 1)
        assert conversations() <= 4
        while strangers[0].recv(1000):  # the first was turned away
            pass
    for stranger in strangers:
        stranger.close()


def test_a_worker_that_dies_in_the_middle_of_a_message_disturbs_nobody() -> None:
    reporter = Doubtful()
    with listening(reporter, "127.0.0.1") as sent:
        dying = pickle.loads(pickle.dumps(sent))
        assert said(dying, 1)
        os.write(dying._connection.fileno(), b"\0\0\0\x40half")
        dying._connection.close()
        assert said(sent, 2)
    assert reporter.seen == [(1, 0, 1.0), (2, 0, 1.0)]


def test_all_conversations_end_with_the_run() -> None:
    with listening(Doubtful(), "127.0.0.1") as sent:
        stranger = socket.create_connection(sent._address)
        assert said(sent, 1)
        talking = [thread for thread in threading.enumerate() if "_talk" in thread.name]
    for thread in talking:
        thread.join(timeout=20)
        assert not thread.is_alive()
    stranger.close()
