"""Intermediate values over a real socket."""

import pickle
import socket
import threading
from multiprocessing import AuthenticationError

import optuna
import pytest

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
