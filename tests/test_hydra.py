"""`hydra/sweeper=lazybo` with the real Hydra, its launchers, and an application."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from lazybo.hydra import VARIABLE, trial

APP = Path(__file__).parent / "hydra_app" / "app.py"
SOURCE = Path(__file__).parents[1] / "src"
SPACE = ("lr=tag(log, interval(1e-5, 1))", "model.layers=range(1, 6)", "model=choice(linear, deep)")


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(APP), "-m", "hydra/sweeper=lazybo", f"hydra.sweep.dir={folder / 'sweep'}", *words]
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **output)  # type: ignore[call-overload, no-any-return]


def called(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    process = started(folder, *words)
    output, errors = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def swept(folder: Path, n_trials: int, *words: str, space: tuple[str, ...] = SPACE) -> tuple[optuna.Study, Any]:
    from omegaconf import OmegaConf

    settings = [f"hydra.sweeper.n_trials={n_trials}", "hydra.sweeper.seed=0", "hydra.sweeper.storage=study.db"]
    done = called(folder, *settings, *space, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    study = optuna.load_study(study_name="lazybo", storage=f"sqlite:///{folder / 'study.db'}")
    return study, OmegaConf.to_container(OmegaConf.load(folder / "sweep" / "optimization_results.yaml"))


@pytest.mark.extra
@pytest.mark.parametrize("launcher", ["basic", "joblib", "submitit_local"])
def test_every_launcher(launcher: str, tmp_path: Path) -> None:
    jobs = 1 if launcher == "basic" else 2
    study, results = swept(tmp_path, 6, f"hydra/launcher={launcher}", f"hydra.sweeper.n_jobs={jobs}")
    assert [each.state for each in study.trials] == [TrialState.COMPLETE] * 6
    assert all(set(each.intermediate_values) == {1, 2, 3} for each in study.trials)
    assert results["best_value"] == study.best_value
    assert results["best_params"] == study.best_params
    assert isinstance(study.best_params["model.layers"], int)
    assert sorted(each.name for each in (tmp_path / "sweep").glob("[0-9]*")) == list("012345")
    assert not list((tmp_path / "sweep").glob(".trial*"))  # no secret is left


@pytest.mark.extra
def test_a_sweep_is_resumed_and_equals_one_that_was_not(tmp_path: Path) -> None:
    whole, _ = swept(tmp_path, 9)
    (tmp_path / "parts").mkdir()
    swept(tmp_path / "parts", 4)
    parts, _ = swept(tmp_path / "parts", 9)
    assert [each.params for each in parts.trials] == [each.params for each in whole.trials]


@pytest.mark.extra
def test_ctrl_c_ends_a_parallel_sweep_that_the_same_command_continues(tmp_path: Path) -> None:
    """A terminal sends SIGINT to all processes; no job may fail because of it."""
    words = ["hydra/launcher=joblib", "hydra.sweeper.n_jobs=2", "hydra.sweeper.storage=study.db", *SPACE]
    process = started(tmp_path, *words, "hydra.sweeper.n_trials=50", "waits=0.1")
    folder = tmp_path / "sweep"
    while not any(folder.glob("[3-9]")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    output = "".join(process.communicate(timeout=300))
    assert process.returncode == 130, output
    assert "the same command continues" in output
    assert "Traceback" not in output
    study = optuna.load_study(study_name="lazybo", storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert {each.state for each in study.trials} <= {TrialState.COMPLETE, TrialState.PRUNED, TrialState.WAITING}
    count = len(study.trials)
    done = called(tmp_path, *words, f"hydra.sweeper.n_trials={count}")
    assert "best" in done.stdout, done.stdout + done.stderr
    assert {each.state for each in study.trials} <= {TrialState.COMPLETE, TrialState.PRUNED}
    again = called(tmp_path, *words, f"hydra.sweeper.n_trials={count}")
    assert f"has {count} trials; n_trials={count} is their total number" in again.stdout + again.stderr


@pytest.mark.extra
def test_jobs_prune_and_fail(tmp_path: Path) -> None:
    study, _ = swept(tmp_path, 12, "prunes=true", "fails=true", "+hydra.sweeper.limits.retries=0")
    for each in study.trials:
        if each.params["model.layers"] == 2:
            assert each.state == TrialState.FAIL
        elif each.params["lr"] > 1e-2:
            assert each.state == TrialState.PRUNED
    assert {each.state for each in study.trials} == {TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL}


@pytest.mark.extra
def test_several_objectives_fixed_overrides_and_beliefs(tmp_path: Path) -> None:
    words = ("several=true", "hydra.sweeper.direction=[minimize,maximize]")
    belief = "+hydra.sweeper.beliefs.lr={around: 1e-3, within: 3}"
    study, results = swept(tmp_path, 6, *words, belief)
    assert len(study.directions) == 2
    assert results["solutions"][0].keys() == {"params", "values"}
    assert study.trials[0].params["lr"] == pytest.approx(1e-3)


@pytest.mark.extra
def test_the_space_in_the_configuration_and_on_the_command_line(tmp_path: Path) -> None:
    words = (
        "+hydra.sweeper.params.lr='interval(0.1, 0.2)'",
        "+hydra.sweeper.params.model.layers=4",
        "lr=interval(0.3, 0.4)",
        "+extra=choice(1, 'a b')",
    )
    study, _ = swept(tmp_path, 4, *words, space=("model.layers=int(interval(3, 9))",))
    assert all(0.3 <= each.params["lr"] <= 0.4 for each in study.trials)
    assert all(3 <= each.params["model.layers"] <= 9 for each in study.trials)
    assert set(study.trials[0].distributions["extra"].choices) == {"1", "a\\ b"}  # type: ignore[attr-defined]


@pytest.mark.extra
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("lr=0.1",), "there is nothing to sweep"),
        (("lr=interval(0.1, 1)", "hydra.sweeper.n_jobs=2"), "the basic launcher runs one job at a time"),
        (("lr=tag(log, interval(0, 1))",), "hydra/sweeper=lazybo"),
        (("model.layers=range(5, 1, -1)",), "a range must go upwards"),
        (("model=glob(*)",), "only interval, range and choice can be swept"),
        (("lr=interval(0.1, 1)", "hydra.sweeper.direction=up"), "hydra/sweeper=lazybo: direction"),
        (("lr=interval(0.1, 1)", "hydra.sweeper.trials=5"), "Key 'trials' not in 'LazySweeperConf'"),
        (("lr=interval(0.1, 1)", "+hydra.sweeper.beliefs.rate={around: 1, within: 2}"), "a belief about 'rate'"),
        (("lr=interval(0.1, 1)", "+hydra.sweeper.limits.patients=3"), "patients"),
        (("lr=interval(1, 0.1)",), "cannot use lr=interval(1, 0.1): `low <= high` must hold"),
        (("model.layers=range(1, 6, 0)",), "cannot use model.layers=range(1, 6, 0)"),
        (("lr=tag(lg, interval(0.1, 1))",), "there is no tag 'lg'; use tag(log, ...)"),
        (("nothing=interval(0, 1)",), "Could not override 'nothing'"),
        (("model=choice(linear, nothere)",), "Could not find 'model/nothere'"),
        (("lr=interval(0.1, 1)", "hydra.sweeper.n_jobs=0"), "n_jobs must be at least 1, not 0"),
        (("lr=interval(0.1, 1)", "+hydra.sweeper.constraints.memory=big"), "the constraint on 'memory' must be"),
    ],
)
def test_wrong_sweeps(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = called(tmp_path, *words)
    assert done.returncode != 0
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.extra
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_a_job_that_is_killed_fails_alone(launcher: str, tmp_path: Path) -> None:
    """Jobs of joblib share their processes: the one that runs beside it is lost too, and is launched again."""
    words = [f"hydra/launcher={launcher}", "hydra.sweeper.n_jobs=2", "kills=true", "+hydra.sweeper.limits.retries=1"]
    study, _ = swept(tmp_path, 4, *words)
    assert [each.state == TrialState.FAIL for each in study.trials] == [False, True, False, False]
    assert "the process of the job died" in str(study.trials[1].system_attrs)
    assert not list((tmp_path / "sweep").glob(".trial*"))


@pytest.mark.extra
def test_a_sweep_that_was_suspended_or_killed_goes_on(tmp_path: Path) -> None:
    words = ["hydra/launcher=joblib", "hydra.sweeper.n_jobs=2", "hydra.sweeper.storage=study.db", *SPACE, "waits=0.3"]
    process = started(tmp_path, *words, "hydra.sweeper.n_trials=6")
    folder = tmp_path / "sweep"
    while not any(folder.glob("[1-9]")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(3)
    os.killpg(process.pid, signal.SIGCONT)
    while not any(folder.glob("[3-9]")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    done = called(tmp_path, *words, "hydra.sweeper.n_trials=6")
    assert done.returncode == 0, done.stdout + done.stderr
    study = optuna.load_study(study_name="lazybo", storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert {each.state for each in study.trials} <= {TrialState.COMPLETE, TrialState.PRUNED}
    assert len(study.trials) == 6
    assert not list(folder.glob(".trial*"))


def test_outside_of_a_sweep_a_trial_reports_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    alone = trial()
    alone.report(1.0, 1)
    assert not alone.should_prune()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone.json"))
    with pytest.raises(ValueError, match="start the sweep again"):
        trial()
    (tmp_path / "gone.json").write_text("{}")
    with pytest.raises(ValueError, match="start the sweep again"):
        trial()
