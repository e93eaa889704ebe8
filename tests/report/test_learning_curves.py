"""Learning curves as records, as a picture and in the command."""

import json
import math
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from typer.testing import CliRunner

from lazybo import LazySampler
from lazybo.report import figures_of, plots, predictions, records
from lazybo.study import StudyView
from tests.cli.command import app

EPOCHS = 12


def loss(x: float, epoch: int) -> float:
    return (x - 0.3) ** 2 + math.exp(-0.4 * epoch)


def curves_study(sign: float = 1.0, *, storage: str | None = None, complete: int = 8, stopped: int = 3) -> optuna.Study:
    """Some trainings that completed, some that were stopped after four epochs, a failed and a running one."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        direction="minimize" if sign > 0 else "maximize", storage=storage, study_name="s", sampler=LazySampler(seed=0)
    )
    for number in range(complete + stopped + 2):
        trial = study.ask()
        x = trial.suggest_float("x", 0, 1)
        length = EPOCHS if number < complete else 4
        for epoch in range(1, length + 1):
            trial.report(sign * loss(x, epoch), epoch)
        if number < complete:
            study.tell(trial, sign * loss(x, EPOCHS))
        elif number < complete + stopped:
            study.tell(trial, state=TrialState.PRUNED)
        elif number == complete + stopped:
            study.tell(trial, state=TrialState.FAIL)
    return study


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_record_has_all_curves_and_forecasts_of_unfinished_ones(sign: float) -> None:
    study = curves_study(sign)
    record = records.learning_curves(study)
    assert [each.state for each in record.curves] == ["complete"] * 8 + ["pruned"] * 3 + ["failed", "running"]
    assert (record.direction, record.last_step) == ("minimize" if sign > 0 else "maximize", EPOCHS)
    assert record.best == study.best_trial.number
    for each, trial in zip(record.curves, study.trials, strict=True):
        assert dict(zip(each.steps, each.values, strict=True)) == trial.intermediate_values
        if each.state in ("complete", "failed"):
            assert each.forecast is None
        else:
            assert each.forecast is not None
            assert each.forecast.low <= each.forecast.value <= each.forecast.high
            truth = sign * loss(trial.params["x"], EPOCHS)
            assert each.forecast.low - 0.05 < truth < each.forecast.high + 0.05


def test_of_many_stopped_trainings_no_forecasts_are_shown() -> None:
    record = records.learning_curves(curves_study(stopped=records.FEW_STOPPED + 1))
    assert [each.state for each in record.curves if each.forecast is not None] == ["running"]


def test_without_completed_trainings_there_are_curves_but_no_forecasts() -> None:
    study = curves_study(complete=1)
    record = records.learning_curves(study)
    assert record.best == 0
    assert all(each.forecast is None for each in record.curves)
    assert plots.as_bytes(plots.draw_curves(record, "a study"), "png")


def test_epochs_that_were_saved() -> None:
    study = curves_study()
    assert records.epochs(StudyView.of(study).trials) == records.Epochs(8 * EPOCHS + 3 * 4, 11 * EPOCHS, 3, 11)
    assert records.epochs([]) is None


def test_a_paused_training_is_shown_as_such_and_counts_as_stopped() -> None:
    study = curves_study()
    study.add_trial(
        optuna.trial.create_trial(
            state=TrialState.WAITING,
            params={"x": 0.5},
            distributions=study.trials[0].distributions,
            intermediate_values={epoch: loss(0.5, epoch) for epoch in range(1, 6)},
            user_attrs={"lazybo:paused": 5},
        )
    )
    assert records.epochs(StudyView.of(study).trials) == records.Epochs(8 * EPOCHS + 3 * 4 + 5, 12 * EPOCHS, 4, 12)
    record = records.learning_curves(study)
    assert record.curves[-1].state == "paused"
    assert record.curves[-1].forecast is not None
    labels = [line.get_label() for line in plots.draw_curves(record, "a study").axes[0].lines]
    assert labels.count("paused (1)") == 1


def test_the_picture_draws_each_curve_once_and_the_best_on_top() -> None:
    figure = plots.draw_curves(records.learning_curves(curves_study()), "100 $ of curves")
    axes = figure.axes[0]
    labels = [line.get_label() for line in axes.lines]
    for label in ("complete (8)", "pruned (3)", "failed (1)", "running (1)"):
        assert labels.count(label) == 1
    best = [line for line in axes.lines if str(line.get_label()).startswith("best")]
    assert len(best) == 1
    assert all(line.get_zorder() < best[0].get_zorder() for line in axes.lines if "complete" in str(line.get_label()))
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(set(legend)) == len(legend)
    assert plots.as_bytes(figure, "svg").startswith(b"<?xml")


def test_a_study_without_reports_has_no_curves(tmp_path: Path) -> None:
    study = optuna.create_study(study_name="quiet")
    study.add_trial(optuna.trial.create_trial(value=1.0))
    for refused in (
        lambda: figures_of(study, "curves").write(tmp_path / "a.png"),
        lambda: figures_of(study, "curves").numbers(),
    ):
        with pytest.raises(ValueError, match="no trial of the study 'quiet' has reported values"):
            refused()
    assert "curves" not in figures_of(study, "all").numbers()


def test_slices_go_through_a_completed_trial_also_if_a_forecast_is_better() -> None:
    """Trainings were stopped although they were the best ones: the model expects more of them than was measured."""
    study = optuna.create_study(sampler=LazySampler(seed=0))
    for x in (0.0, 0.1, 0.5, 0.6, 0.8, 0.9, 0.29, 0.31):
        study.enqueue_trial({"x": x})
        trial = study.ask()
        trial.suggest_float("x", 0, 1)
        for epoch in range(1, EPOCHS + 1 if abs(x - 0.3) > 0.05 else 6):
            trial.report(loss(x, epoch), epoch)
        study.tell(trial, loss(x, EPOCHS)) if abs(x - 0.3) > 0.05 else study.tell(trial, state=TrialState.PRUNED)
    assert {record.best for record in predictions.slices(study)} == {(study.best_params["x"], study.best_value)}


def test_the_command_draws_prints_and_shows(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    curves_study(storage=f"sqlite:///{path}")
    for kind in ("curves", "all"):
        out = tmp_path / f"{kind}.html"
        assert CliRunner().invoke(app, ["plot", kind, str(path), "-o", str(out)]).exit_code == 0
        assert "best (trial" in out.read_text()
    printed = json.loads(CliRunner().invoke(app, ["plot", "curves", str(path), "--json"]).stdout)
    assert printed["curves"][-1]["forecast"].keys() == {"value", "low", "high"}
    assert json.loads(CliRunner().invoke(app, ["plot", "all", str(path), "--json"]).stdout).keys() >= {
        "curves",
        "slices",
    }
    shown = CliRunner().invoke(app, ["show", str(path)]).stdout
    assert "3 of 11 trainings stopped early: 108 of 132 epochs trained (18 % saved)" in shown


@pytest.mark.parametrize(("direction", "sign"), [("minimize", 1.0), ("maximize", -1.0)])
def test_curves_that_diverged_do_not_flatten_the_others(direction: str, sign: float) -> None:
    study = optuna.create_study(direction=direction)
    for number in range(20):
        trial = study.ask()
        for step in range(5):
            trial.report(sign * (1e6 * (step + 1) if number % 5 in (0, 1) else 1 + 0.1 * number - 0.01 * step), step)
        study.tell(trial, sign * (5e6 if number % 5 in (0, 1) else 1.0))
    (axes,) = plots.draw_curves(records.learning_curves(study), "diverged").axes
    assert max(map(abs, axes.get_ylim())) < 20
    assert axes.get_title(loc="right") == "8 curves lie in part beyond this range"
