"""The table of settings: what it says is what flags, files and checks do."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from lazybo import Limits
from lazybo.cli.app import app
from lazybo.cli.plan import make_plan
from lazybo.cli.settings import KEYS, SETTINGS, from_flags, settings_of
from lazybo.search import Options

EARLIER = sorted((Path(__file__).parents[1] / "data").glob("*/*.toml"))
# A value of each type, as a TOML file writes it, and one of another type.
WRITTEN = {
    "a string": ('"x"', "3"),
    "a whole number": ("3", '"3"'),
    "seconds": ("2.5", '"2"'),
    "a number": ("2.5", "[]"),
}


def flags_of(command: str) -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    return {flag: option for option in group.commands[command].params for flag in option.opts}


def test_every_row_with_a_help_text_is_a_flag_of_tune_and_some_of_ask() -> None:
    tune, ask = flags_of("tune"), flags_of("ask")
    for row in SETTINGS:
        flag = row.flag or f"--{row.key.replace('_', '-')}"
        assert (flag in tune) == bool(row.help)
        if row.help:
            assert (tune[flag].help, tune[flag].rich_help_panel) == (row.help, row.panel)
            # `lazybo ask` has flags of its own for the storage and the study.
            assert row.key in ("storage", "study") or (flag in ask) == row.in_ask


@pytest.mark.parametrize("key", [key for key, row in KEYS.items() if row.kind.words in WRITTEN])
def test_a_file_may_have_each_setting_with_its_type_only(key: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    right, wrong = WRITTEN[KEYS[key].kind.words]
    right = {"direction": '"maximize"', "pruner": '"none"'}.get(key, right)
    path.write_text(f"{key} = {right}\n")
    assert key in settings_of([str(path)], {})
    path.write_text(f"{key} = {wrong}\n")
    with pytest.raises(ValueError, match=f"{key} must be {KEYS[key].kind.words}, not"):
        settings_of([str(path)], {})


def test_options_and_limits_are_described_and_checked_where_they_are_defined() -> None:
    for owner, renamed in ((Options, {}), (Limits, {"target_value": "target"})):
        for name, field in owner.__dataclass_fields__.items():
            row = KEYS.get(renamed.get(name, name))
            assert row is None or row.help.startswith(field.metadata["help"].rstrip("."))
    for wrong, message in (
        ({"patience": 0}, "patience must be a whole number of at least 1, not 0"),
        ({"min_gain": -1.0}, "min_gain must be"),
        ({"retries": -1}, "retries must be a whole number of at least 0"),
        ({"cost": ""}, "cost must be"),
    ):
        with pytest.raises(ValueError, match=message):
            settings_of([], wrong)


def test_flags_that_were_not_given_are_no_settings() -> None:
    assert from_flags({"trials": None, "float": [], "earlier": [], "deterministic": None}) == {"parameters": {}}
    assert from_flags({"trials": 3, "int": ["n=1:4"], "maximize": [""]}) == {
        "parameters": {"n": {"type": "int", "low": 1, "high": 4}},
        "direction": "maximize",
        "trials": 3,
    }


# ----------------------------------------------------------------- other versions


@pytest.mark.parametrize("path", EARLIER, ids=lambda p: p.name)
def test_settings_of_earlier_versions_mean_the_same(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "training.py").write_text("def train(width):\n    ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    written = tomllib.loads(path.read_text())
    plan = make_plan(settings_of([str(path)], {}))
    assert {key: plan.settings[key] for key in written if key not in ("require", "timeout")} == {
        key: each for key, each in written.items() if key not in ("require", "timeout")
    }
    assert plan.run.space.feasible is not None
    assert list(plan.run.space.distributions) == list(written["parameters"])


def test_settings_of_a_newer_version_give_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text("quantum = true\n")
    with pytest.raises(ValueError, match=r"unknown key 'quantum'; lazybo .* does not know it, a newer one may"):
        settings_of([str(path)], {})
