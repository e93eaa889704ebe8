"""Optuna's own suite for samplers, with our defaults and without startup trials."""

from collections.abc import Callable
from functools import partial

import optuna
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
