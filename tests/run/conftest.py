from collections.abc import Iterator
from typing import Any

import pytest

from lazybo.run.engines import Engine, make_engine


@pytest.fixture(scope="session")
def process_pool() -> Iterator[Engine]:
    """Two worker processes for all tests that need some, and do not kill them: they take a second to start."""
    with make_engine("processes", 2) as engine:
        yield engine


@pytest.fixture
def executor(request: pytest.FixtureRequest) -> Any:
    """An executor by its name; "processes" is `process_pool`."""
    return request.getfixturevalue("process_pool") if request.param == "processes" else request.param
