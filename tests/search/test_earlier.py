"""Earlier studies: what fits a space, how it is used, and that it does no harm."""

import logging
import math
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution

from lazybo import Optimizer, Space
from lazybo.search.decide import CONTROL
from lazybo.search.earlier import EarlierStudy, fitting, say, thinned
from lazybo.search.options import pack, unpack
from lazybo.search.planner import EARLIER_STARTUP

SPACE = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


def bowl(params: dict[str, Any], x: float = 0.3, y: float = 0.7) -> float:
    return float((params["x"] - x) ** 2 + (params["y"] - y) ** 2)


def results(count: int, seed: int = 0, shift: float = 0.0, sign: float = 1.0) -> list[tuple[dict[str, float], float]]:
    """Results of a related problem: a bowl whose minimum is shifted a little, in other units."""
    points = np.random.default_rng(seed).random((count, 2))
    return [
        ({"x": float(x), "y": float(y)}, sign * (40.0 + 7.0 * bowl({"x": x, "y": y}, 0.3 + shift))) for x, y in points
    ]


def best_after(count: int, **options: Any) -> tuple[float, Optimizer]:
    optimizer = Optimizer(SPACE, seed=1, **options)
    for _ in range(count):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, bowl(suggestion.params))
    return optimizer.best.value, optimizer


@pytest.fixture(autouse=True)
def _say_again() -> None:
    say.cache_clear()


# ------------------------------------------------------------------- what fits


def test_sources_become_results() -> None:
    study = optuna.create_study(direction="maximize", study_name="old")
    study.add_trial(optuna.create_trial(params={"x": 0.5}, distributions={"x": FloatDistribution(0, 1)}, value=3.0))
    study.add_trial(
        optuna.create_trial(
            params={"x": 0.1}, distributions={"x": FloatDistribution(0, 1)}, state=optuna.trial.TrialState.FAIL
        )
    )
    table = [
        {"params_x": 0.2, "number": 7, "state": "COMPLETE", "value": 4.0},
        {"x": 0.3, "value": None},
        {"x": 0.4, "value": math.nan},
    ]
    pairs = [({"x": 0.5}, 6.0)]
    found = EarlierStudy.read([study, table, pairs], ["maximize"])
    assert found == (
        EarlierStudy("old", ({"x": 0.5},), ((-3.0,),)),
        EarlierStudy("table 2", ({"x": 0.2},), ((-4.0,),)),
        EarlierStudy("table 3", ({"x": 0.5},), ((-6.0,),)),
    )


@pytest.mark.parametrize(
    ("sources", "reason"),
    [
        (3, "a list of studies"),
        ("study", "a list of studies"),
        ([3], "each of earlier"),
        ([[1, 2]], "row 0 of the earlier table 1"),
        ([[{"x": 1.0}]], "with 'value'"),
        ([[({"x": 1.0}, "low")]], "must be a number"),
        ([[({"x": 1.0}, [1.0, 2.0])]], "must have 1 values"),
    ],
)
def test_wrong_sources_are_rejected(sources: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Optimizer(SPACE, earlier=sources)


def test_a_study_with_other_objectives_is_rejected() -> None:
    study = optuna.create_study(directions=["minimize", "maximize"], study_name="two")
    with pytest.raises(ValueError, match="'two' has 2 objectives"):
        Optimizer(SPACE, earlier=[study])


def test_what_does_not_fit_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    space = Space(Optimizer({"x": (0.0, 1.0), "lr": (1e-4, 1e-1, "log"), "kind": ["a", "b"]}).space.distributions)
    good = [({"x": 3.0, "lr": 1e-6, "kind": "a", "old": 7}, 1.0), ({"x": 0.1, "lr": 0.1, "kind": "b", "old": 1}, 2.0)]
    bad = [({"x": 0.1, "lr": -1.0, "kind": "a"}, 1.0), ({"x": 0.1, "lr": 0.1, "kind": "c"}, 1.0)]
    (study,) = EarlierStudy.read([good * 2 + bad], ["minimize"])
    with caplog.at_level(logging.WARNING, "lazybo"):
        found = fitting([study], space)
    assert found.points[0].shape == (4, 3)
    assert found.points[0][0, 0] == 3.0  # outside of the range, where it is
    assert "2 of its 6 results do not fit" in caplog.text
    assert "ignored, since this space has no such parameters: 'old'" in caplog.text


def test_a_study_that_lacks_what_others_have_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    lacking = [({"x": params["x"]}, value) for params, value in results(5, 2)]
    with caplog.at_level(logging.WARNING, "lazybo"):
        found = fitting(EarlierStudy.read([results(5), results(5, 1), lacking], ["minimize"]), Optimizer(SPACE).space)
    assert found.names == ["table 1", "table 2"]
    assert "'table 3' is not used: it has no parameter 'y'" in caplog.text


def test_unknown_parameters_make_no_difference(rng: np.random.Generator) -> None:
    optimizer = Optimizer({**SPACE, "new": (0.0, 1.0)}, earlier=[results(30)], seed=0)
    (earlier,) = (each.earlier for each in optimizer.model.search.models.objectives)
    assert earlier is not None
    u = rng.random((5, 3))
    moved = u.copy()
    moved[:, 2] = rng.random(5)
    np.testing.assert_allclose(earlier.means(u), earlier.means(moved), atol=1e-6)


def test_too_many_trials_are_thinned(rng: np.random.Generator) -> None:
    values = rng.standard_normal(200)
    rows = thinned(values, 40)
    assert len(set(rows.tolist())) == 40
    assert set(np.argsort(values)[:10].tolist()) <= set(rows.tolist())
    np.testing.assert_array_equal(rows, thinned(values, 40))


@settings(max_examples=30, deadline=None)
@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), most=st.integers(1, 80))
def test_thinning_keeps_the_best(values: list[float], most: int) -> None:
    rows = thinned(np.array(values), most)
    assert len(rows) == min(len(values), most)
    assert min(values) in np.array(values)[rows]


def test_packed_studies_are_the_same() -> None:
    studies = (EarlierStudy("a ü", ({"x": 0.1, "k": None}, {"x": 1e300, "k": "b"}), ((1.5,), (-math.pi,))),)
    assert unpack(pack(studies)) == studies
    with pytest.raises(ValueError, match="cannot be read"):
        unpack("damaged")


@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution")
def test_choices_survive_as_texts_and_lists() -> None:
    choices = CategoricalDistribution([(1, 2), (3, 4), 5])
    study = EarlierStudy("a", ({"k": (1, 2)}, {"k": 5}, {"k": (3, 4)}), ((1.0,), (2.0,), (3.0,)))
    space, texts = Space({"k": choices}), EarlierStudy("a", ({"k": "5"},) * 3, study.values)
    points = [
        fitting(studies, space).points[0][:, 0].tolist() for studies in ((study,), unpack(pack([study])), (texts,))
    ]
    assert points == [[0.0, 2.0, 1.0], [0.0, 2.0, 1.0], [2.0, 2.0, 2.0]]


# ------------------------------------------------------------------ how it is used


def test_a_related_study_saves_evaluations() -> None:
    cold, _ = best_after(6)
    warm, optimizer = best_after(6, earlier=[results(40, shift=0.02)])
    assert optimizer.model.search.n_startup == EARLIER_STARTUP
    assert warm < cold / 3


def test_the_first_suggestion_is_good_in_the_earlier_studies() -> None:
    optimizer = Optimizer(SPACE, seed=0, earlier=[results(60), results(60, seed=1, shift=0.05)])
    assert bowl(optimizer.ask().params) < 0.02
    assert bowl(optimizer.ask().params) < 0.05
    cold = Optimizer(SPACE, seed=0)
    assert optimizer.ask().params == [cold.ask().params for _ in range(CONTROL + 1)][CONTROL]


def test_a_reversed_study_does_no_harm() -> None:
    cold, _ = best_after(20)
    misled, _ = best_after(20, earlier=[results(60, sign=-1.0)])
    assert misled < 1e-3
    assert cold < 1e-3


def test_a_study_with_the_other_direction_is_turned() -> None:
    """It maximised what this one minimises, with the sign changed: the same good regions."""
    study = optuna.create_study(direction="maximize")
    spaces = {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}
    for params, value in results(40):
        study.add_trial(optuna.create_trial(params=params, distributions=spaces, value=-value))
    assert bowl(Optimizer(SPACE, seed=0, earlier=[study]).ask().params) < 0.02


def test_only_feasible_points_are_suggested() -> None:
    optimizer = Optimizer(Space(SPACE, feasible=lambda params: params["x"] > 0.5), seed=0, earlier=[results(30)])
    assert all(optimizer.ask().params["x"] > 0.5 for _ in range(6))


def test_studies_of_which_nothing_fits_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "lazybo"):
        optimizer = Optimizer(SPACE, seed=0, earlier=[[({"z": 1.0}, 2.0)] * 5, [({"x": 0.1, "y": 0.2}, 1.0)] * 5])
    assert optimizer.ask() == Optimizer(SPACE, seed=0).ask()
    assert "is not used" in caplog.text


def test_earlier_studies_that_no_longer_count_cost_nothing() -> None:
    optimizer = Optimizer(SPACE, seed=1, earlier=[results(20)], lag=20)
    for params, _ in results(70, seed=5):
        optimizer.observe(params, bowl(params))
    optimizer.ask()
    process, _ = optimizer.model.surrogate()
    assert process.prior is None
    assert optimizer.model.related()[0].name == "table 1"
