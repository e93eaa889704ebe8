"""Several processes on one study in PostgreSQL: a real server, real processes."""

import itertools
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import event

import lazybo
from benchmarks.drivers import race
from lazybo.study import ATTEMPTS_KEY, Store, open_ledger, open_storage
from lazybo.study.databases import database_of
from tests import postgres

pytestmark = pytest.mark.extra
PROGRAM = Path(__file__).parents[1] / "programs" / "shared_study.py"
# Seconds after which something hangs, and does not merely take its time on a busy machine.
DEADLINE = 240.0


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres.server() as url:
        yield url


@pytest.fixture
def url(server: str, request: pytest.FixtureRequest) -> str:
    """A database of this test alone."""
    import psycopg

    name = f"test_{abs(hash(request.node.nodeid))}"
    with psycopg.connect(server.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return server.rpartition("/")[0] + f"/{name}"


class Drivers:
    """Processes that run the same call, and what they have written."""

    def __init__(self, url: str, folder: Path, n_trials: int, seconds: float, workers: int = 2) -> None:
        self.url, self.folder, self.log = url, folder, folder / "log"
        self._arguments = [url, str(self.log), str(n_trials), str(seconds), str(workers)]

    @contextmanager
    def one(self) -> Iterator[subprocess.Popen[bytes]]:
        with self.output.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), *self._arguments], stdout=output, stderr=output, start_new_session=True
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def events(self, event: str) -> list[dict[str, Any]]:
        text = self.log.read_text() if self.log.exists() else ""
        return [line for line in map(json.loads, text.splitlines()) if line["event"] == event]

    def trials(self) -> list[FrozenTrial]:
        storage = RDBStorage(self.url)
        try:
            return optuna.load_study(study_name="shared", storage=storage).trials
        finally:
            storage.engine.dispose()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)


def check(drivers: Drivers, n_trials: int) -> None:
    """Every trial there once, with a value that was returned for its parameters, and none like one that still ran."""
    trials = drivers.trials()
    assert [trial.number for trial in trials] == list(range(n_trials))
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    returned = {(line["number"], line["value"]): line["params"] for line in drivers.events("return")}
    assert all(returned[trial.number, trial.value] == trial.params for trial in trials)
    assert all(line["params"] == trials[line["number"]].params for line in drivers.events("begin"))
    distances = [
        math.dist(*([trial.params[name] / 10 for name in "xyz"] for trial in pair))
        for pair in itertools.combinations(trials, 2)
        if at_once(*pair)
    ]
    assert min(distances) > 1e-4, "drivers that do not know of each other propose the same"


def at_once(one: FrozenTrial, other: FrozenTrial) -> bool:
    """Whether two trials ran at the same time: later ones may come as near as they like, or repeat another."""
    assert one.datetime_start
    assert one.datetime_complete
    assert other.datetime_start
    assert other.datetime_complete
    return other.datetime_start < one.datetime_complete and one.datetime_start < other.datetime_complete


def test_two_processes_share_a_study_and_its_total(url: str, tmp_path: Path) -> None:
    drivers = Drivers(url, tmp_path, n_trials=60, seconds=0.15)
    with ExitStack() as stack:
        processes = [stack.enter_context(drivers.one()) for _ in range(2)]
        for process in processes:
            assert process.wait(timeout=DEADLINE) == 0, drivers.output.read_text()
    check(drivers, 60)
    begun = Counter(line["pid"] for line in drivers.events("begin"))
    assert set(begun) == {process.pid for process in processes}
    assert min(begun.values()) >= 5, begun
    assert sum(begun.values()) == 60, "nothing was evaluated twice"


def test_many_drivers_with_evaluations_that_take_no_time_evaluate_exactly_what_is_wanted(url: str) -> None:
    ran = race(url, drivers=4, trials=80)
    assert ran.is_exact(80), ran


def test_urls_of_postgresql_may_be_short(url: str) -> None:
    short = url.replace("postgresql+psycopg://", "postgres://")
    study = lazybo.optimize(lambda x: x**2, {"x": (-1.0, 1.0)}, n_trials=2, storage=short, progress=False)
    assert len(study.trials) == 2
    database = database_of(study._storage)
    assert database is not None
    database.engine.dispose()


def test_a_process_takes_over_what_a_killed_one_was_running(url: str, tmp_path: Path) -> None:
    drivers = Drivers(url, tmp_path, n_trials=30, seconds=0.3)
    with drivers.one() as victim, drivers.one() as heir:

        def runs_of_the_victim() -> set[int]:
            ended = {line["number"] for line in drivers.events("return")}
            return {line["number"] for line in drivers.events("begin") if line["pid"] == victim.pid} - ended

        until(lambda: len({line["pid"] for line in drivers.events("begin")}) == 2)
        until(lambda: len(drivers.events("return")) > 8 and len(runs_of_the_victim()) == 2)
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait()
        left_behind = runs_of_the_victim()
        assert heir.wait(timeout=DEADLINE) == 0, drivers.output.read_text()
    check(drivers, 30)
    again = {line["number"] for line in drivers.events("begin") if line["pid"] == heir.pid}
    assert left_behind <= again


def test_initial_configurations_are_enqueued_once_by_drivers_that_begin_at_once(url: str) -> None:
    space: dict[str, BaseDistribution] = {"x": FloatDistribution(0, 1), "k": CategoricalDistribution(["a", "b"])}
    storages = [open_storage(url) for _ in range(5)]
    studies = [optuna.create_study(storage=s, study_name="s", load_if_exists=True) for s in storages]
    first: list[dict[str, Any]] = [{"x": 0.1 * i, "k": "b"} for i in range(4)] + [{"k": "b"}]
    together = threading.Barrier(5)

    def enqueue(study: optuna.Study) -> None:
        together.wait(DEADLINE)
        open_ledger(study, space, "me").enqueue(first)

    threads = [threading.Thread(target=enqueue, args=(study,)) for study in studies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trials = studies[0].trials
    assert [(trial.number, trial.params, trial.state) for trial in trials] == [
        (number, params, TrialState.WAITING) for number, params in enumerate(first)
    ]
    book = open_ledger(studies[0], space, "me")
    trial_id = trials[4]._trial_id
    assert book.claim(trial_id)
    book.fill_in(trial_id, {"k": "b"}, {"k": "b", "x": 0.5})
    book.put_back(trial_id, 1, "you")
    assert studies[1].trials[4].state == TrialState.RUNNING
    book.put_back(trial_id, 1, "me")
    trial = studies[2].trials[4]
    assert (trial.state, trial.params, trial.system_attrs[ATTEMPTS_KEY]) == (
        TrialState.WAITING,
        {"k": "b", "x": 0.5},
        1,
    )
    book.enqueue(first)
    assert len(studies[3].trials) == 5
    for storage in storages:
        database = database_of(storage)
        assert database is not None
        database.remove_session()
        database.engine.dispose()


def test_people_ask_tell_and_correct_on_a_server(url: str) -> None:
    """Of two corrections that saw the same state one is recorded, and what there was before is kept."""
    from lazybo.run.by_hand import ByHand, Measurement
    from lazybo.run.goals import Goals
    from lazybo.search import Options

    space = lazybo.Space({"x": FloatDistribution(0, 1), "c": CategoricalDistribution(["a", "b"])})

    storages = []

    def person() -> ByHand:
        storage = open_storage(url)
        storages.append(storage)
        study = optuna.create_study(study_name="lab", storage=storage, load_if_exists=True)
        return ByHand(study, Options(seed=0), space, Goals())

    one, other = person(), person()
    assert [entry.number for entry in (*one.ask(3), *other.ask(2))] == [0, 1, 2, 3, 4]
    for entry in one.pending():
        other.tell(entry.number, Measurement((float(entry.number),), {"salt": 1.0}))
    with pytest.raises(ValueError, match="trial 2 was told already, with the value 2"):
        one.tell(2, Measurement((5.0,)))
    stale = other.trial(2)  # `other` has read it, and does not see the correction
    one.correct(2, Measurement((5.0,), {"salt": 2.0}))
    assert stale.user_attrs == {"salt": 1.0}
    with pytest.raises(ValueError, match="was corrected by somebody else just now"):
        other.correct(2, Measurement((6.0,)))
    trial = person().trial(2)
    assert (trial.value, trial.user_attrs["salt"]) == (5.0, 2.0)
    (before,) = trial.user_attrs["lazybo:corrections"]
    assert (before["values"], before["user_attrs"]) == ([2.0], {"salt": 1.0})
    for storage in storages:
        database_of(storage).engine.dispose()  # type: ignore[union-attr]


def test_a_silent_network_is_noticed_on_both_sides(url: str) -> None:
    """The server kept the locks of a driver whose host was gone, and the other drivers waited for hours."""
    database = database_of(open_storage(url))
    assert database is not None
    with database.engine.connect() as connection:
        shown = connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar_one()
        parameters = connection.connection.dbapi_connection.info.get_parameters()  # type: ignore[union-attr]
    assert shown == "30s"
    assert (parameters["tcp_user_timeout"], parameters["connect_timeout"]) == ("15000", "10")
    given = database_of(open_storage(f"{url}?connect_timeout=3"))
    assert given is not None
    with given.engine.connect() as connection:
        assert connection.connection.dbapi_connection.info.get_parameters()["connect_timeout"] == "3"  # type: ignore[union-attr]
    for each in (database, given):
        each.engine.dispose()


def test_a_connection_that_is_lost_while_trials_are_read_costs_no_run(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Optuna went on with the lost connection, and its error did not look as if trying again could help."""
    storage = open_storage(url)
    study = optuna.create_study(storage=storage)
    for _ in range(2):
        study.ask()
    database = database_of(storage)
    assert database is not None
    monkeypatch.setattr("lazybo.study.store.RETRY_WAITS", (0.01,))

    lost: list[int] = []

    def lose(connection: Any, _: object, statement: str, *__: object) -> None:
        """End the session of the first query that reads trials by their ids, as a network would."""
        if " IN (" in statement and not lost:
            lost.append(1)
            raw = connection.connection.dbapi_connection
            with socket.socket(fileno=os.dup(raw.fileno())) as link:
                link.shutdown(socket.SHUT_RDWR)

    event.listen(database.engine, "before_cursor_execute", lose)
    try:
        assert len(Store(study).trials()) == 2
        study.ask()
        assert len(Store(study).trials()) == 3
    finally:
        event.remove(database.engine, "before_cursor_execute", lose)
        database.engine.dispose()
    assert lost
