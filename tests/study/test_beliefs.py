"""Beliefs in studies: `optimize`, define-by-run, resumed and replayed runs, and the command."""

import json
import math
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.study import Study
from typer.testing import CliRunner

import lazybo
from lazybo import Belief, LazySampler, Space
from lazybo.study.definition import options_of
from lazybo.study.replaying import replay
from tests.cli.command import app

BELIEFS = {"lr": Belief(around=1e-3, within=3), "opt": Belief(weights={"adam": 4})}
PARAMETERS: dict[str, Any] = {"lr": (1e-6, 10.0, "log"), "opt": ["sgd", "adam", "lion"]}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def loss(lr: float, opt: str) -> float:
    return (math.log10(lr) + 2.5) ** 2 + (opt != "adam")


def run(path: Path, n_trials: int, beliefs: dict[str, Belief] | None = None, **more: Any) -> Study:
    space = Space(PARAMETERS, beliefs=BELIEFS if beliefs is None else beliefs)
    return lazybo.optimize(loss, space, n_trials=n_trials, seed=0, storage=path, progress=False, **more)


def params_of(study: Study) -> list[dict[str, Any]]:
    return [trial.params for trial in study.trials]


def test_a_resumed_run_is_the_same_and_is_replayed(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole.db", 12)
    run(tmp_path / "parts.db", 6)
    parts = run(tmp_path / "parts.db", 12)
    assert params_of(parts) == params_of(whole)
    assert params_of(whole)[0] == {"lr": pytest.approx(1e-3), "opt": "adam"}
    for study in (whole, parts):
        found = list(replay(study))
        assert [each.again for each in found] == [each.params for each in found]


def test_a_study_keeps_the_beliefs_of_its_last_run(tmp_path: Path) -> None:
    study = run(tmp_path / "study.db", 6)
    assert options_of(study, study.trials)[0].beliefs == BELIEFS
    other = {"lr": Belief(around=1e-2, within=2)}
    study = run(tmp_path / "study.db", 8, other)  # another belief is no other problem
    assert options_of(study, study.trials)[0].beliefs == other
    study = run(tmp_path / "study.db", 9, {})
    assert options_of(study, study.trials)[0].beliefs == {}
    assert lazybo.recommend(study).number >= 0


def test_beliefs_of_the_sampler_are_those_of_the_space(tmp_path: Path) -> None:
    sampler = LazySampler(beliefs=BELIEFS, seed=0)
    study = lazybo.optimize(loss, PARAMETERS, n_trials=8, sampler=sampler, progress=False)
    assert params_of(study) == params_of(run(tmp_path / "study.db", 8))
    with pytest.raises(ValueError, match="beliefs in the space and others in the sampler"):
        run(tmp_path / "other.db", 2, {"lr": Belief(around=1e-2, within=2)}, sampler=sampler)
    sampler = LazySampler(beliefs={"rate": BELIEFS["lr"]})
    with pytest.raises(ValueError, match="a belief about 'rate'"):
        lazybo.optimize(loss, PARAMETERS, n_trials=1, sampler=sampler, progress=False)
    with pytest.raises(TypeError, match=r"lazybo.Space\(\{...\}, beliefs=...\)"):
        lazybo.optimize(loss, PARAMETERS, n_trials=1, beliefs=BELIEFS)  # type: ignore[call-arg]


# ----------------------------------------------------------------- define-by-run


def objective(trial: optuna.Trial) -> float:
    lr = trial.suggest_float("lr", 1e-6, 10.0, log=True)
    return loss(lr, trial.suggest_categorical("opt", ["sgd", "adam", "lion"]))


def study_of(path: Path, sampler: LazySampler) -> Study:
    return optuna.create_study(storage=f"sqlite:///{path}", study_name="s", sampler=sampler, load_if_exists=True)


def test_define_by_run(tmp_path: Path) -> None:
    later = {**BELIEFS, "momentum": Belief(around=0.9, within=0.1)}  # a parameter that no trial has had
    whole = study_of(tmp_path / "whole.db", LazySampler(seed=0, beliefs=later))
    whole.optimize(objective, n_trials=12)
    assert params_of(whole)[0] == {"lr": pytest.approx(1e-3), "opt": "adam"}
    for _ in range(2):
        parts = study_of(tmp_path / "parts.db", LazySampler(seed=0, beliefs=later))
        parts.optimize(objective, n_trials=6)
    assert params_of(parts) == params_of(whole)
    plain = optuna.create_study(sampler=LazySampler(seed=0))
    plain.optimize(objective, n_trials=6)
    assert params_of(plain)[2] != params_of(whole)[2]


def test_a_belief_may_no_longer_fit_the_range() -> None:
    def narrower(trial: optuna.Trial) -> float:
        high = 10.0 if trial.number < 8 else 1e-4
        return trial.suggest_float("lr", 1e-6, high, log=True)

    study = optuna.create_study(sampler=LazySampler(seed=0, beliefs={"lr": BELIEFS["lr"]}))
    study.optimize(narrower, n_trials=12)
    assert len(study.trials) == 12


@pytest.mark.parametrize(
    ("beliefs", "message"),
    [
        ({"lr": Belief(around=100.0, within=3)}, "around must be from 1e-06 to 10.0"),
        ({"opt": Belief(around=1.0, within=3)}, "needs weights="),
    ],
)
def test_a_belief_that_never_fitted_is_refused(beliefs: dict[str, Belief], message: str) -> None:
    study = optuna.create_study(sampler=LazySampler(seed=0, beliefs=beliefs))
    with pytest.raises(ValueError, match=message):
        study.optimize(objective, n_trials=1)


# ------------------------------------------------------------------- the command

FLAGS = ["--float", "lr=1e-6:10:log", "--float", "drop=0:1", "--choice", "opt=sgd,adam"]


def asked(path: Path, *words: str) -> Any:
    found = CliRunner().invoke(app, ["ask", str(path / "study.db"), *FLAGS, *words, "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)[0]["params"]


def test_beliefs_of_flags(tmp_path: Path) -> None:
    words = ("--belief", "lr=1e-3x3", "--belief", "drop=0.25+-0.1", "--belief", "opt=adam:3")
    assert asked(tmp_path, *words) == {"lr": pytest.approx(1e-3), "drop": pytest.approx(0.25), "opt": "adam"}
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{tmp_path / 'study.db'}")
    kept = options_of(study, study.trials)[0].beliefs
    assert kept["opt"] == Belief(weights={"adam": 3})
    asked(tmp_path)  # the next call keeps them
    assert options_of(study, study.trials)[0].beliefs == kept


def test_beliefs_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(
        f"""
        storage = "{tmp_path / "study.db"}"
        command = ["sh", "-c", "echo {{lr}}"]
        trials = 1
        beliefs = ["drop=0.25+-0.1"]
        [parameters]
        lr = {{type = "float", low = 1e-6, high = 10.0, log = true, belief = {{around = 1e-3, within = 3}}}}
        drop = {{type = "float", low = 0.0, high = 1.0}}
        opt = {{type = "choice", choices = ["sgd", "adam"], belief = {{weights = {{adam = 3}}}}}}
        size = {{type = "choice", choices = [16, 32], belief = {{weights = {{32 = 3}}}}}}
        """
    )
    found = CliRunner().invoke(app, ["ask", str(file), "--json"])
    assert found.exit_code == 0, found.output
    params = json.loads(found.stdout)[0]["params"]
    assert params == {"lr": pytest.approx(1e-3), "drop": pytest.approx(0.25), "opt": "adam", "size": 32}
