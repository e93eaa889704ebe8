"""Earlier studies by name, through the sampler, `optimize()` and the command; what is kept with a study."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from typer.testing import CliRunner

import lazybo
from lazybo.study import StudyView
from lazybo.study.definition import Definition
from tests.cli.command import app

SPACE = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


def bowl(x: float, y: float) -> float:
    return (x - 0.3) ** 2 + (y - 0.7) ** 2


def old_study(name: str = "old", storage: Any = None, count: int = 30) -> optuna.Study:
    """A related study: its minimum is near that of the bowl, its values are in other units."""
    study = optuna.create_study(study_name=name, storage=storage)
    distributions = {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}
    for x, y in np.random.default_rng(0).random((count, 2)):
        params = {"x": float(x), "y": float(y)}
        value = 40 + 7 * bowl(x + 0.02, y)
        study.add_trial(optuna.create_trial(params=params, distributions=distributions, value=value))
    return study


def test_studies_are_read_by_name(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/old.db"
    study = old_study(storage=url, count=4)
    (tmp_path / "table.csv").write_text("x,y,value,state\n0.5,0.5,3,COMPLETE\n0.1,0.2,,FAIL\n0.3,0.1,5,RUNNING\n")
    names = [f"old@{url}", f"old@{tmp_path}/old.db", study]
    found = Definition().earlier([*names, str(tmp_path / "table.csv"), [({"x": 1.0}, 2.0)]])
    assert found[0] == found[1] == found[2]
    assert len(found[0].values) == 4
    assert found[3].configurations[0]["x"] == 0.5
    assert found[3].values == ((3.0,),)
    assert Definition().earlier(["old"], tmp_path / "old.db") == found[:1]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("old", "give 'NAME@STORAGE'"),
        ("old@missing.db", "there is no storage 'missing.db'"),
        ("missing.csv", "cannot be read"),
        ("nobody@here.db", "it has 'old'"),
    ],
)
def test_studies_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, reason: str) -> None:
    monkeypatch.chdir(tmp_path)
    old_study(storage="sqlite:///here.db", count=1)
    with pytest.raises(ValueError, match=reason):
        lazybo.optimize(bowl, SPACE, n_trials=3, sampler=lazybo.LazySampler(earlier=[source]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here.db"]


def test_the_study_itself_is_no_earlier_one(tmp_path: Path) -> None:
    old_study("mine", f"sqlite:///{tmp_path}/a.db", 1)
    with pytest.raises(ValueError, match="its own trials count anyway"):
        lazybo.optimize(
            bowl,
            SPACE,
            n_trials=3,
            storage=tmp_path / "a.db",
            study_name="mine",
            sampler=lazybo.LazySampler(earlier=["mine"]),
        )


def test_the_sampler_starts_where_the_last_study_ended() -> None:
    study = optuna.create_study(sampler=lazybo.LazySampler(seed=0, earlier=[old_study()]))
    study.optimize(lambda trial: bowl(trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)), n_trials=6)
    assert study.trials[0].value < 0.05  # the best configuration of the earlier study
    assert study.best_value < 0.005


def test_the_sampler_respects_the_new_ranges() -> None:
    """The best earlier configuration has x = 0.3 or so, which this study does not allow."""
    study = optuna.create_study(sampler=lazybo.LazySampler(seed=0, earlier=[old_study()]))
    study.optimize(lambda trial: bowl(trial.suggest_float("x", 0.5, 1), trial.suggest_float("y", 0, 1)), n_trials=5)
    assert all(trial.params["x"] >= 0.5 for trial in study.trials)


def test_reports_and_resumed_runs_need_no_other_storage(tmp_path: Path) -> None:
    """Also not to the last bit: the results of the earlier study are kept with the new one."""
    old_study(storage=f"sqlite:///{tmp_path}/old.db")
    options: dict[str, Any] = {"seed": 1, "progress": False}
    sampler = lazybo.LazySampler(earlier=[f"old@{tmp_path}/old.db"])
    whole = lazybo.optimize(bowl, SPACE, n_trials=9, sampler=sampler, **options)
    for stop in (5, 9):
        study = lazybo.optimize(bowl, SPACE, n_trials=stop, storage=tmp_path / "new.db", sampler=sampler, **options)
    assert [trial.params for trial in study.trials] == [trial.params for trial in whole.trials]
    (tmp_path / "old.db").unlink()
    loaded = optuna.load_study(study_name=study.study_name, storage=f"sqlite:///{tmp_path}/new.db")
    (relation,) = StudyView.of(loaded).model().optimizer.model.related()
    assert relation.name == "old"
    assert relation.results == 30
    assert relation.share > 0.5


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    old_study(storage="sqlite:///old.db")
    old_study("same place", "sqlite:///new.db")
    (tmp_path / "goal.py").write_text("def bowl(x, y):\n    return (x - 0.3) ** 2 + (y - 0.7) ** 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    space = ["--float", "x=0:1", "--float", "y=0:1", "--seed", "0", "--storage", "new.db", "--quiet"]
    runner = CliRunner()
    earlier = ["--earlier", "old@old.db", "--earlier", "same place"]
    done = runner.invoke(app, ["tune", "--trials", "5", *space, *earlier, "goal:bowl"])
    assert done.exit_code == 0, done.output
    shown = runner.invoke(app, ["show", "new.db", "lazybo"])
    assert "like the earlier studies" in shown.output
    assert "same place (" in shown.output
    record = json.loads(runner.invoke(app, ["show", "new.db", "lazybo", "--json"]).output)
    assert {each["name"] for each in record["earlier"]} == {"old", "same place"}
    wrong = runner.invoke(app, ["tune", "--trials", "5", *space, "--earlier", "oldest@old.db", "goal:bowl"])
    assert wrong.exit_code == 2
    assert "there is no earlier study 'oldest'" in wrong.output
