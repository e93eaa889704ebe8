import numpy as np
import pytest
from hypothesis import settings

# The same examples on every run and no deadline: a shared machine may stall for a second.
settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("repeatable")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260101)
