"""What a study shows: the records first, then their pictures."""

import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from lazybo import LazySampler, optimize, recommend
from lazybo.report import figures_of, plots, predictions, records

SPACE = {
    "lr": FloatDistribution(1e-4, 0.1, log=True),
    "layers": IntDistribution(1, 5),
    "opt": CategoricalDistribution(["sgd", "adam", "a choice with a long name", 7]),
    "useless": FloatDistribution(-1, 1),
    "batch": IntDistribution(8, 512, log=True),
}
MOMENTUM = FloatDistribution(0, 0.99)
START = datetime(2026, 1, 1)


@pytest.fixture(scope="module", params=["minimize", "maximize"])
def study(request: pytest.FixtureRequest) -> optuna.Study:
    return sixty_trials(request.param)


@pytest.fixture(scope="module")
def drawn() -> optuna.Study:
    return sixty_trials("minimize")


def sixty_trials(direction: str) -> optuna.Study:
    """One at a time: a second each, half a second between them."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction=direction, study_name="a/study <1>")
    rng, sign = np.random.default_rng(0), 1.0 if direction == "minimize" else -1.0
    for number in range(60):
        params = {name: _draw(distribution, rng) for name, distribution in SPACE.items()}
        distributions = dict(SPACE)
        if params["opt"] == "sgd":
            params["momentum"], distributions["momentum"] = float(rng.uniform(0, 0.99)), MOMENTUM
        value = (math.log10(params["lr"]) + 2) ** 2 + 0.3 * abs(params["layers"] - 3) + 0.1 * (params["opt"] == "adam")
        state = TrialState.FAIL if number == 7 else TrialState.PRUNED if number == 8 else TrialState.COMPLETE
        trial = create_trial(
            state=state,
            value=sign * (value if number != 9 else 1e9) if state == TrialState.COMPLETE else None,
            params=params,
            distributions=distributions,
            intermediate_values={1: sign * value} if state == TrialState.PRUNED else {},
        )
        trial.datetime_start = START + timedelta(seconds=1.5 * number)
        trial.datetime_complete = trial.datetime_start + timedelta(seconds=1)
        study.add_trial(trial)
    return study


def _draw(distribution: optuna.distributions.BaseDistribution, rng: np.random.Generator) -> float | int | str:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[rng.integers(len(distribution.choices))]  # type: ignore[return-value]
    if isinstance(distribution, IntDistribution):
        return int(rng.integers(distribution.low, distribution.high + 1))
    assert isinstance(distribution, FloatDistribution)
    low, high = (math.log(x) if distribution.log else x for x in (distribution.low, distribution.high))
    drawn = rng.uniform(low, high)
    return float(math.exp(drawn) if distribution.log else drawn)


def test_the_history_has_the_best_so_far_and_who_failed(study: optuna.Study) -> None:
    record = records.history(study)
    assert record.failed == [7]
    assert record.pruned == [8]
    assert len(record.numbers) == 58
    better = max if study.direction.name == "MAXIMIZE" else min
    assert record.best == [better(record.values[: i + 1]) for i in range(58)]
    assert record.best[-1] == study.best_value


def test_times_are_those_of_evaluations_and_of_the_waits_between_them(study: optuna.Study) -> None:
    record = records.times(study)
    assert record.evaluation == pytest.approx([1.0] * 60)
    assert record.waited_numbers == list(range(1, 60))
    assert record.waits == pytest.approx([0.5] * 59)


def test_importances_are_shares_and_find_what_matters(study: optuna.Study) -> None:
    shares = predictions.importances(study)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert next(iter(shares)) == "lr"
    assert list(shares)[1] == "layers"
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_slices_go_through_the_best_trial_from_end_to_end(study: optuna.Study) -> None:
    found = {record.name: record for record in predictions.slices(study)}
    assert set(SPACE) - {"momentum"} <= set(found)
    assert found["layers"].places == [1, 2, 3, 4, 5]
    assert found["opt"].places == list(SPACE["opt"].choices)  # type: ignore[attr-defined]
    assert found["opt"].choice
    assert not found["layers"].choice
    assert (found["batch"].places[0], found["batch"].places[-1]) == (8, 512)
    assert found["lr"].places[0] == pytest.approx(1e-4)
    assert found["lr"].places[-1] == pytest.approx(0.1)
    for record in found.values():
        assert np.all(np.isfinite([record.low, record.middle, record.high]))
        assert np.all(np.array(record.low) <= record.middle)
        assert np.all(np.array(record.middle) <= record.high)
        assert record.best == (study.best_params[record.name], study.best_value)
    # At the best trial itself the model is nearly sure, and right.
    i = found["layers"].places.index(study.best_params["layers"])
    low, high = found["layers"].low[i], found["layers"].high[i]
    assert low - 0.1 <= study.best_value <= high + 0.1


def test_coordinates_lie_between_0_and_1_with_the_best_last(study: optuna.Study) -> None:
    record = predictions.coordinates(study)
    assert record.lines.shape == (58, 6)
    assert record.values[-1] == study.best_value
    assert np.nanmin(record.lines) >= 0
    assert np.nanmax(record.lines) <= 1
    best = record.lines[-1]
    for name, distribution, where in zip(record.names, record.distributions, best, strict=True):
        if name in study.best_params:
            assert plots.place(distribution, study.best_params[name]) == pytest.approx(where)
        else:
            assert math.isnan(where)


def test_a_value_that_diverged_does_not_flatten_the_others(drawn: optuna.Study) -> None:
    low, high = plots.draw_history(records.history(drawn), "").axes[0].get_ylim()
    assert high - low < 100


def test_all_pictures_are_one_page_that_needs_no_other_file(drawn: optuna.Study, tmp_path: Path) -> None:
    (path,) = figures_of(drawn, "all").write(tmp_path / "page.html")
    page = path.read_text()
    assert page.count("<svg") == 6
    assert "a/study &lt;1&gt;" in page
    assert not re.search(r'(src|href)="http', page)
    paths = figures_of(drawn, "all").write(tmp_path / "p.svg")
    kinds = ("history", "time", "importances", "slices", "parallel", "curves")
    assert [p.name for p in paths] == [f"p-{kind}.svg" for kind in kinds]
    with pytest.raises(ValueError, match="must end with one of"):
        figures_of(drawn, "all").write(tmp_path / "p.bmp")


def test_a_study_in_which_nothing_varies_has_a_course_and_no_slices(tmp_path: Path) -> None:
    study = optuna.create_study(study_name="still")
    study.add_trial(create_trial(value=1.0, params={"x": 3}, distributions={"x": IntDistribution(3, 3)}))
    assert predictions.importances(study) == {}
    assert predictions.slices(study) == []
    assert len(figures_of(study, "all").write(tmp_path / "p.png")) == 2
    with pytest.raises(ValueError, match="no parameter of the study 'still' varies"):
        figures_of(study, "slices").write(tmp_path / "p.png")


EXTREMES: dict[str, Callable[[float], float]] = {
    "tiny": lambda x: 1e-300 * (x - 0.3) ** 2,
    "huge": lambda x: 1e308 * ((x - 0.3) ** 2 - 0.5),
    "from tiny to huge": lambda x: 10.0 ** (607 * x - 300),
    "of both signs": lambda x: (1e308 if x > 0.5 else -1e308) * abs(x - 0.5),
    "all the same": lambda _: 1e308,
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("by", ["optimize", "sampler"])
@pytest.mark.parametrize("kind", EXTREMES)
def test_extreme_values_are_optimised_modelled_and_drawn(kind: str, by: str) -> None:
    objective = EXTREMES[kind]
    if by == "optimize":
        study = optimize(objective, {"x": (0.0, 1.0)}, n_trials=9, seed=0, progress=False)
    else:
        study = optuna.create_study(sampler=LazySampler(seed=0), direction="maximize")
        study.optimize(lambda trial: objective(trial.suggest_float("x", 0, 1)), n_trials=9)
    assert len({trial.params["x"] for trial in study.trials}) == 9
    assert sum(predictions.importances(study).values()) == pytest.approx(float(kind != "all the same"))
    found = predictions.slices(study)
    for record in found:
        assert np.all(np.isfinite([record.low, record.middle, record.high]))
        assert np.all(np.array(record.low) <= record.middle)
    figures = [
        plots.draw_history(records.history(study), "title", recommend(study)),
        plots.draw_slices(found, "title"),
        plots.draw_importances(predictions.importances(study), "title"),
        plots.draw_parallel(predictions.coordinates(study), "title"),
    ]
    for figure in figures:
        assert plots.as_bytes(figure, "png")


# ---------------------------------------------------------------- texts and ticks


def test_the_history_marks_the_recommended_trial_with_its_interval(drawn: optuna.Study) -> None:
    found = recommend(drawn)
    (axes,) = plots.draw_history(records.history(drawn), "title", found).axes
    (bars,) = axes.containers
    assert bars.get_label() == f"recommended (trial {found.number}), 95 % interval"
    ((x, y),) = bars.lines[0].get_xydata()
    assert (x, y) == (found.number, pytest.approx(found.value))
    (ends,) = bars.lines[2][0].get_segments()
    assert ends[:, 1] == pytest.approx([found.low, found.high])
    low, high = axes.get_ylim()
    assert low < found.value < high
    assert not plots.draw_history(records.history(drawn), "title").axes[0].containers


# ------------------------------------------------------------------- constraints


def bounded_study(n_trials: int = 24) -> optuna.Study:
    """The least x + y with x ≥ 0.3 and a choice that is never feasible."""
    study = optuna.create_study(sampler=LazySampler(seed=0))

    def objective(trial: optuna.Trial) -> float:
        x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
        kind = trial.suggest_categorical("kind", ["good", "bad"])
        trial.set_constraint("x", 0.3 - x)
        trial.set_constraint("kind", 1.0 if kind == "bad" else -1.0)
        return x + y

    study.optimize(objective, n_trials=n_trials)
    return study


def test_slices_have_the_chance_that_all_constraints_hold() -> None:
    study = bounded_study()
    found = {record.name: record for record in predictions.slices(study)}
    for record in found.values():
        assert len(record.feasible) == len(record.places)
        assert all(0.0 <= chance <= 1.0 for chance in record.feasible)
        assert record.infeasible == [
            trial.params["x"] < 0.3 or trial.params["kind"] == "bad" for trial in study.trials
        ], "the trials of `seen`, in their order"
    by_x = dict(zip(found["x"].places, found["x"].feasible, strict=True))
    assert max(chance for x, chance in by_x.items() if x < 0.25) < 0.1
    assert min(chance for x, chance in by_x.items() if x > 0.4) > 0.9
    assert dict(zip(found["kind"].places, found["kind"].feasible, strict=True))["bad"] < 0.1
    assert min(found["y"].feasible) > 0.3, "no constraint depends on y"
