"""The table of the model's options: each is checked once, here."""

import contextlib
import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazybo
from lazybo.gp.fit import Priors
from lazybo.search.acquisition import Acquired
from lazybo.search.options import Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 10**400}, "seed must be below"),
        ({"seed": "lucky"}, "seed must be"),
        ({"lag": 0}, "lag must be"),
        ({"lag": -1}, "lag must be"),
        ({"lag": np.array([1, 2])}, "lag must be"),
        ({"batch": "all"}, "batch must be one of"),
        ({"n_startup": -1}, "n_startup must be"),
        ({"noise": -1.0}, "noise must be"),
        ({"priors": {"noise": 1e-3}}, "priors must be .*Priors.*, not {'noise'"),
        ({"priors": False}, "priors must be"),
        ({"priors": Priors}, "priors must be"),
        ({"value_transform": "log"}, r"value_transform must be one of \['warped'"),
        ({"value_transform": math.log}, "value_transform must be one of"),
        ({"value_transform": np.array(["warped", "scaled"])}, "value_transform must be one of"),
        ({"kernel": lazybo.Matern52}, "kernel must be one of"),
        ({"kernel": "rbf"}, "kernel must be one of"),
        ({"cost": ""}, "cost must be"),
        ({"earlier": "study"}, "earlier must be a list"),
        ({"local_after": -1}, "local_after must be"),
        ({"deterministic": "yes"}, "deterministic must be"),
        ({"acquisition": "best"}, "acquisition must be one of"),
        ({"acquisition": abs}, "acquisition.* must return .*Acquired .*, but raised TypeError"),
        ({"acquisition": lambda mean, std, best: (mean, mean, std)}, r"must return .*Acquired .*, not \(array"),
        ({"acquisition": lambda mean, std, best: Acquired(mean[:1], std, std)}, "must return .*, not Acquired"),
    ],
)
def test_a_wrong_option_is_one_clear_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Options(**options)


@given(
    st.sampled_from(["seed", "lag", "n_startup", "noise", "local_after"]),
    st.one_of(st.integers(), st.floats(), st.sampled_from([10**400, True, np.int8(2), np.float32(1.5), 1j, "1"])),
)
def test_any_number_is_an_option_or_refused(name: str, number: Any) -> None:
    with contextlib.suppress(ValueError):
        assert getattr(Options(**{name: number}), name) == number


def test_every_option_has_a_help_text_for_the_command() -> None:
    assert all(field.metadata["help"].endswith(".") for field in fields(Options))
