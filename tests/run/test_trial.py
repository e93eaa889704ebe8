"""The trial that an objective gets behaves like Optuna's, in this process and in workers."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.artifacts import FileSystemArtifactStore, get_all_artifact_meta, upload_artifact
from optuna.terminator import report_cross_validation_scores
from optuna.trial import TrialState

import lazybo
from lazybo.run.trial import Trial

SPACE = {"x": (0.0, 1.0), "k": ["a", "b"]}
ENGINES = [None, "threads", "processes"]
optuna.logging.set_verbosity(optuna.logging.ERROR)


def run(objective: Any, executor: Any, n_trials: int = 3, **more: Any) -> optuna.Study:
    parallel = {} if executor is None else {"executor": executor, "n_parallel": 2}
    return lazybo.optimize(objective, SPACE, n_trials=n_trials, seed=0, progress=False, **parallel, **more)


@pytest.mark.parametrize("storage", ["memory", "file"])
@pytest.mark.parametrize("executor", ENGINES)
def test_a_trial_has_what_optunas_has(executor: str | None, storage: str, tmp_path: Path) -> None:
    def objective(trial: Any) -> float:
        study = trial.study
        trial.report(0.5, 1)
        seen = study._storage.get_trial(trial._trial_id)
        trial.storage.set_trial_system_attr(trial._trial_id, "mine", [trial.number])
        study.set_user_attr(f"from {trial.number}", study.direction.name)
        facts = {
            "is_trial": isinstance(trial, optuna.trial.Trial),
            "name": study.study_name,
            "start": trial.datetime_start.isoformat(),
            "number": seen.number,
            "reported": seen.intermediate_values.get(1),
            "distributions": sorted(trial.distributions),
            "same": trial.distributions["x"] == optuna.distributions.FloatDistribution(0.0, 1.0),
            "params": seen.params == trial.params == trial.relative_params,
            "running": sum(each.state == TrialState.RUNNING for each in study.get_trials(deepcopy=False)),
            "x": trial.suggest_float("x", 0.0, 1.0),
        }
        trial.set_user_attr("facts", facts)
        return float(trial.params["x"])

    where = {} if storage == "memory" else {"storage": tmp_path / "study.db"}
    study = run(objective, executor, direction="maximize", study_name="named", **where)
    for trial in study.trials:
        facts = trial.user_attrs["facts"]
        assert facts["is_trial"]
        assert facts["name"] == "named"
        assert trial.datetime_start is not None
        assert abs(datetime.fromisoformat(facts["start"]) - trial.datetime_start).total_seconds() < 1
        assert facts["number"] == trial.number
        assert facts["reported"] == 0.5
        assert facts["distributions"] == ["k", "x"]
        assert facts["same"]
        assert facts["params"]
        assert facts["running"] >= 1
        assert facts["x"] == trial.params["x"]
        assert trial.system_attrs["mine"] == [trial.number]
        assert study.user_attrs[f"from {trial.number}"] == "MAXIMIZE"


@pytest.mark.parametrize("executor", ENGINES)
def test_artifacts_and_scores(executor: str | None, tmp_path: Path) -> None:
    folder = tmp_path / "artifacts"
    folder.mkdir()

    def objective(trial: Any) -> float:
        import warnings

        file = tmp_path / f"model {trial.number}.txt"
        file.write_text(json.dumps(trial.params))
        upload_artifact(
            artifact_store=FileSystemArtifactStore(folder), file_path=str(file), study_or_trial=trial, mimetype="text/x"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report_cross_validation_scores(trial, [0.1, 0.2 + trial.number])
        return float(trial.params["x"])

    study = run(objective, executor)
    for trial in study.trials:
        assert trial.state == TrialState.COMPLETE
        (meta,) = get_all_artifact_meta(trial, storage=study._storage)
        assert meta.filename == f"model {trial.number}.txt"
        with FileSystemArtifactStore(folder).open_reader(meta.artifact_id) as stored:
            assert json.loads(stored.read()) == trial.params
        assert [0.1, 0.2 + trial.number] in trial.system_attrs.values()


@pytest.mark.parametrize("executor", ["processes"])
def test_a_worker_cannot_begin_or_end_trials(executor: str) -> None:
    def objective(trial: Any) -> float:
        for forbidden in (
            lambda: trial.study.ask(),
            lambda: trial.study.tell(trial.number, 1.0),
            lambda: trial.storage.set_trial_intermediate_value(trial._trial_id, 1, 1.0),
            lambda: optuna.delete_study(study_name=trial.study.study_name, storage=trial.storage),
        ):
            with pytest.raises(RuntimeError, match=r"a worker cannot call .*: the driver begins and ends trials"):
                forbidden()
        return 1.0

    study = run(objective, executor)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 3


def test_a_trial_outside_of_a_run_has_no_study() -> None:
    with pytest.raises(RuntimeError, match="belongs to no study"):
        _ = Trial(0, {"x": 1.0}).study


def test_a_decorator_that_takes_other_arguments_is_refused_before_the_first_evaluation() -> None:
    import functools

    def tracked(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(trial: Any) -> Any:
            return function(trial)

        return wrapper

    @tracked
    def wrong(params: dict[str, Any], trial: Any) -> float:
        return float(params["x"] + trial.number)

    with pytest.raises(TypeError, match=r"its decorator takes \(trial\).*write def wrong\(trial\)"):
        run(wrong, None)

    @tracked
    def right(trial: Any) -> float:
        return float(trial.params["x"])

    assert len(run(right, None).trials) == 3
