"""Optuna's own suites for samplers, with our defaults and without startup trials.

`optuna.testing` has suites for samplers of one and of several objectives. It has none for constraints: those are in
test_sampler_objectives.py, beside Optuna's own samplers.
"""

from collections.abc import Callable
from functools import partial

import optuna
import optuna.testing.pytest_samplers as suites
import pytest
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    MultiObjectiveSamplerTestCase,
    RelativeSamplerTestCase,
)

from lazybo.study.sampler import LazySampler

optuna.logging.set_verbosity(optuna.logging.ERROR)


class TestLazySampler(BasicSamplerTestCase, RelativeSamplerTestCase, MultiObjectiveSamplerTestCase):
    @pytest.fixture(params=[LazySampler, partial(LazySampler, n_startup_trials=0)], ids=["defaults", "no startup"])
    def sampler(self, request: pytest.FixtureRequest) -> Callable[[], BaseSampler]:
        return request.param


def test_all_suites_are_run_except_that_of_samplers_with_one_objective_only() -> None:
    public = {name for name in vars(suites) if name.endswith("TestCase") and not name.startswith("_")}
    run = {parent.__name__ for parent in TestLazySampler.__mro__ if parent.__module__ == suites.__name__}
    assert public - run == {"SingleOnlySamplerTestCase"}
