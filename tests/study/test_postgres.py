"""Studies in a real PostgreSQL server."""

import os
import socket
from collections.abc import Iterator
from typing import Any

import optuna
import pytest
from sqlalchemy import event

import lazybo
from lazybo.study.databases import database_of
from lazybo.study.store import Store
from tests import postgres

pytestmark = pytest.mark.extra


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


def test_urls_of_postgresql_may_be_short(url: str) -> None:
    short = url.replace("postgresql+psycopg://", "postgres://")
    study = lazybo.optimize(lambda x: x**2, {"x": (-1.0, 1.0)}, n_trials=2, storage=short, progress=False)
    assert len(study.trials) == 2
    database = database_of(study._storage)
    assert database is not None
    database.engine.dispose()


def test_a_silent_network_is_noticed_on_both_sides(url: str) -> None:
    """The server kept the locks of a driver whose host was gone, and the other drivers waited for hours."""
    database = database_of(Store.open(url))
    assert database is not None
    with database.engine.connect() as connection:
        shown = connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar_one()
        parameters = connection.connection.dbapi_connection.info.get_parameters()  # type: ignore[union-attr]
    assert shown == "30s"
    assert (parameters["tcp_user_timeout"], parameters["connect_timeout"]) == ("15000", "10")
    given = database_of(Store.open(f"{url}?connect_timeout=3"))
    assert given is not None
    with given.engine.connect() as connection:
        assert connection.connection.dbapi_connection.info.get_parameters()["connect_timeout"] == "3"  # type: ignore[union-attr]
    for each in (database, given):
        each.engine.dispose()


def test_a_connection_that_is_lost_while_trials_are_read_costs_no_run(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Optuna went on with the lost connection, and its error did not look as if trying again could help."""
    storage = Store.open(url)
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
