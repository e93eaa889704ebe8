"""The table of the model's options: each is checked once, here."""

import contextlib
import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazybo
from lazybo import Priors, Space
from lazybo.gp import Column, Kernel
from lazybo.search.acquisition import Acquired, log_expected_improvement
from lazybo.search.optimizer import Optimizer
from lazybo.search.options import LocalModels, Options


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
        ({"kernel": "rbf"}, r"one of \['matern52', .*\] or a kernel object, not 'rbf'"),
        ({"cost": ""}, "cost must be 'seconds' or the name of a metric"),
        ({"cost": " "}, "cost must be"),
        ({"cost": True}, "cost must be"),
        ({"cost": ["seconds"]}, "cost must be"),
        ({"earlier": "study"}, "earlier must be a list"),
        ({"local_after": -1}, 'local_after must be a whole number, "auto" or None'),
        ({"local_after": 1.5}, "local_after must be"),
        ({"local_after": "often"}, "local_after must be"),
        ({"local_after": True}, "local_after must be"),
        ({"local_after": LocalModels(after=-1)}, "local_after must be"),
        ({"deterministic": "yes"}, "deterministic must be True or False, not 'yes'"),
        ({"acquisition": "best"}, "acquisition must be one of"),
        ({"acquisition": abs}, "acquisition.* must return three arrays .*, but raised TypeError"),
        ({"acquisition": lambda mean, std, best: (mean, std)}, r"must return three arrays .*, not \(array"),
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


# ------------------------------------------------------------- saved and loaded

SPACE = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
KERNEL = lazybo.Matern52([0.3, 2.0], 1.5)
# For each option, values that are not the default.
OTHERS: dict[str, list[Any]] = {
    "seed": [0, 2**128 - 1],
    "lag": [3, None],
    "acquisition": ["ucb"],
    "batch": ["maxima", "fantasy"],
    "n_startup": [0, 7],
    "kernel": ["matern52", KERNEL],
    "noise": [1e-4],
    "priors": [Priors(noise=1e-3), Priors(like=Kernel.chosen("additive", (Column(), Column())))],
    "value_transform": ["scaled", "centred"],
    "cost": ["seconds", "price"],
    "earlier": [[[({"x": i / 9, "y": 0.5}, (i / 9 - 0.3) ** 2) for i in range(10)]]],
    "local_after": [500, None, LocalModels(after=20, neighbours=30, first_side=0.3)],
    "deterministic": [True],
}


def plain(options: Options) -> dict[str, Any]:
    """The options with kernels as their values: kernels are compared by identity."""
    found = options.arguments()
    priors = found["priors"]
    if priors is not None and priors.like is not None:
        found["priors"] = replace(priors, like=None), priors.like.name, priors.like.values.tolist()
    if isinstance(found["kernel"], lazybo.Matern52):
        found["kernel"] = found["kernel"].name, found["kernel"].values.tolist()
    return found


def test_there_are_other_values_for_every_option() -> None:
    # Beliefs are part of the space: tests/search/test_beliefs.py saves them.
    assert OTHERS.keys() == {field.name for field in fields(Options)} - {"beliefs"}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in OTHERS.items() for value in values])
def test_every_option_survives_a_file(name: str, value: Any, tmp_path: Path) -> None:
    optimizer = Optimizer(SPACE, **{"seed": 1, name: value})
    assert plain(optimizer.options)[name] != plain(Options())[name]
    optimizer.save(tmp_path / "saved.json")
    loaded = Optimizer.load(tmp_path / "saved.json")
    assert plain(loaded.options) == plain(optimizer.options)
    again = Optimizer.with_options(loaded.space, loaded.directions, loaded.options)
    assert plain(again.options) == plain(optimizer.options)


def test_all_options_together_survive_plain_data() -> None:
    given = {name: values[0] for name, values in OTHERS.items()} | {"noise": 1e-6, "priors": Priors(length_scale=0.3)}
    options = Optimizer(SPACE, **given).options
    read = Options.from_json(json.loads(json.dumps(options.to_json())), Space(SPACE))
    assert plain(read) == plain(options)


@pytest.mark.parametrize("name", ["acquisition", "kernel"])
def test_what_json_cannot_hold_is_given_again_or_the_default(name: str) -> None:
    class Own(lazybo.Matern52):
        """A kernel of one's own."""

    value = {"acquisition": log_expected_improvement, "kernel": Own([1.0, 1.0])}[name]
    written = json.loads(json.dumps(Options(**{name: value}).to_json()))
    assert getattr(Options.from_json(written, Space(SPACE), {name: value}), name) is value
    assert getattr(Options.from_json(written, Space(SPACE)), name) == getattr(Options(), name)
    with pytest.raises(ValueError, match=rf"which no file can hold.*Optimizer.load\(path, {name}=...\)"):
        Options.from_json(written, Space(SPACE), {})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("n_startup_trials", "use n_startup="),
        ("directions", "use direction=, which also takes a list"),
        ("conditions", r"it belongs to the space: Optimizer\(lazybo.Space\(\{...\}, conditions=...\)\)"),
        ("feasible", "it belongs to the space"),
        ("optional", "it belongs to the space"),
        ("acquisitions", "did you mean acquisition="),
    ],
)
def test_an_unknown_option_is_an_error_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(TypeError, match=rf"Optimizer\(\) has no argument {name}=; {hint}"):
        Optimizer(SPACE, **{name: None})
