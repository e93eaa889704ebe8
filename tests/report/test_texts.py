"""What reports say in words: counts, shares, who may be the best, and which attributes are the user's."""

import json
from pathlib import Path

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import create_trial
from typer.testing import CliRunner

import lazybo
from lazybo.core import texts
from lazybo.report.predictions import MOST_SHOWN, chances_shown
from lazybo.search import Contender
from lazybo.study import Store
from tests.cli.command import app

X = {"x": FloatDistribution(0.0, 1.0)}


def test_counts_and_shares() -> None:
    assert [texts.counted(n, "trial") for n in (0, 1, 2)] == ["0 trials", "1 trial", "2 trials"]
    shares = {0.0: "0 %", 0.004: "< 1 %", 0.01: "1 %", 0.954: "95 %", 0.996: "> 99 %", 1.0: "100 %"}
    assert {share: texts.percent(share) for share in shares} == shares


def contender(number: int, chance: float) -> Contender:
    return Contender({"x": number / 100}, 0.0, 0.0, 0.0, 0.0, 1, number, chance=chance)


def test_the_best_trial_seen_is_always_among_those_that_may_be_the_best() -> None:
    eight = [contender(number, 0.4 - number / 100) for number in range(10, 18)]
    first = "trial 10 30 %, trial 11 29 %, trial 12 28 %, trial 13 27 %, "
    assert len(first.split(", ")) == MOST_SHOWN
    assert chances_shown(eight, 11, {"x": 0.11}) == first + "trial 14 26 % and 3 more"
    assert chances_shown(eight, 17, {"x": 0.17}) == first + "trial 17 23 % and 3 more"
    assert chances_shown(eight, 40, {"x": 0.17}) == first + "trial 17 23 % and 3 more", "a repeat of trial 17"
    other = "trial 14 26 % and 3 more; trial 6, the best seen, is not among them"
    assert chances_shown(eight, 6, {"x": 0.06}) == first + other
    assert chances_shown(eight[:2], 10, {"x": 0.1}) == "trial 10 30 %, trial 11 29 %"


@pytest.fixture
def storage(tmp_path: Path) -> str:
    return str(tmp_path / "study.db")


def shown(storage: str, *arguments: str) -> str:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["show", storage, *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_best_configuration_has_no_attributes_of_ours(storage: str) -> None:
    ours = {"device": "0", "slot": 0, "lazybo:paused": None, "lazybo:corrections": [{"value": 1.0}]}
    study = optuna.create_study(study_name="s", storage=Store.open(storage))
    study.add_trial(create_trial(value=1.0, params={"x": 0.5}, distributions=X, user_attrs={"loss": 2.5, **ours}))
    text = shown(storage, "s")
    assert "loss = 2.5" in text
    assert all(f"{name} =" not in text for name in ours)
    assert "trials by device: 0: 1" in text
    best = json.loads(shown(storage, "s", "--json"))["best"]
    assert (best["metrics"], best["device"]) == ({"loss": 2.5}, "0")


def test_a_front_of_one_is_one_trial(storage: str, tmp_path: Path) -> None:
    study = optuna.create_study(study_name="s", storage=Store.open(storage), directions=["minimize", "minimize"])
    for value, more in ((1.0, "1 trial that"), (1.5, "2 trials that")):
        study.add_trial(create_trial(values=[value, 2.0 - value], params={"x": value / 2}, distributions=X))
        assert f"front {more} no other dominates" in shown(storage, "s")
        page = lazybo.write_report(study, tmp_path / "page.html").read_text()
        assert f">{more.split()[1]} that no other dominates" in page


def test_equal_values_are_said_wherever_the_study_is_shown(storage: str) -> None:
    study = optuna.create_study(study_name="s", storage=Store.open(storage))
    for number in range(5):
        study.add_trial(create_trial(value=0.25, params={"x": number / 5}, distributions=X))
    assert "All 5 values are 0.25: there is nothing to learn. Is this the right metric?" in shown(storage, "s")
    study.add_trial(create_trial(value=0.5, params={"x": 1.0}, distributions=X))
    assert "right metric" not in shown(storage, "s")
