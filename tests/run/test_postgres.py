"""Several processes on one study in PostgreSQL: a real server, real processes."""

import pytest

from benchmarks.drivers import race
from tests import postgres


@pytest.mark.extra
def test_many_drivers_with_evaluations_that_take_no_time_evaluate_exactly_what_is_wanted() -> None:
    with postgres.server() as url:
        ran = race(url, drivers=4, trials=80)
    assert ran.is_exact(80), ran
