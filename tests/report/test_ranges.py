"""Good ranges: where a parameter stays within a distance of the best, with the others at their best and free."""

import json
import math
from typing import Any

import numpy as np
import optuna
import pytest
from typer.testing import CliRunner

import lazybo
from lazybo.report.good_ranges import Range, Ranges
from tests.cli.command import app

# The ranges of `valley` are known: see `exact`.
SPACE: dict[str, Any] = {"lr": (1e-5, 1e-1, "log"), "m": (0.0, 1.0), "opt": ["sgd", "adam", "lion"], "idle": (1, 20)}
DISTANCE = 0.1


def valley(lr: float, m: float, opt: str, idle: int) -> float:
    """u² + 4 (a + 0.3 u)², and more for "sgd"; ``idle`` does nothing."""
    del idle
    u, a = math.log10(lr) + 3, m - 0.5
    return u**2 + 4 * (a + 0.3 * u) ** 2 + 0.5 * (opt == "sgd")


def exact(name: str, *, free: bool) -> tuple[float, float]:
    """The ends of a range. Free others make the best of it: the minimum over the other number is taken."""
    if name == "lr":
        reach = math.sqrt(DISTANCE / (1.0 if free else 1.36))
        return 10 ** (-3 - reach), 10 ** (-3 + reach)
    reach = math.sqrt(DISTANCE / (4 / 1.36 if free else 4.0))
    return 0.5 - reach, 0.5 + reach


@pytest.fixture(scope="module", params=["minimize", "maximize"])
def study(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> optuna.Study:
    sign = 1 if request.param == "minimize" else -1
    return lazybo.optimize(
        lambda params: sign * valley(**params),
        SPACE,
        n_trials=60,
        direction=request.param,
        seed=0,
        progress=False,
        storage=tmp_path_factory.mktemp("ranges") / "study.db",
    )


@pytest.fixture(scope="module")
def found(study: optuna.Study) -> Ranges:
    return lazybo.ranges(study, distance=DISTANCE)


@pytest.mark.parametrize("kind", ["at_best", "free"])
@pytest.mark.parametrize("name", ["lr", "m"])
def test_ranges_of_a_known_function(found: Ranges, name: str, kind: str) -> None:
    low, high = exact(name, free=kind == "free")
    mine: Range = getattr(found[name], kind)
    width = math.log10(high / low) if name == "lr" else high - low
    off = [math.log10(a / b) if name == "lr" else a - b for a, b in ((mine.low, low), (mine.high, high))]
    assert np.abs(off).max() < 0.12 * width
    assert mine.probability > 0.8


def test_choices_and_parameters_that_do_not_matter(found: Ranges) -> None:
    for each in (found["opt"].at_best, found["opt"].free):
        assert each is not None
        assert set(each.choices) == {"adam", "lion"}
    idle = found["idle"].at_best
    assert idle is not None
    assert (idle.low, idle.high) == (1, 20)
    assert isinstance(idle.low, int)


def test_a_free_range_contains_the_other_and_both_the_best(study: optuna.Study) -> None:
    for distance in (None, 0.0, 0.02, 1.0, 100.0):
        for name, each in lazybo.ranges(study, distance=distance).items():
            assert each.at_best is not None
            assert each.free is not None
            if name == "opt":
                assert each.best in each.at_best.choices
                assert set(each.at_best.choices) <= set(each.free.choices)
                continue
            assert each.free.low <= each.at_best.low <= each.best <= each.at_best.high <= each.free.high


def test_the_limit_is_on_the_worse_side(study: optuna.Study, found: Ranges) -> None:
    worse = 1 if study.direction.name == "MINIMIZE" else -1
    assert found.limit == pytest.approx(found.best + worse * DISTANCE)
    assert lazybo.ranges(study).distance > 0
    assert "others free" in found._repr_html_()


def test_conditional_parameters_are_free_where_they_are_active() -> None:
    space = lazybo.Space(
        {"opt": ["sgd", "adam"], "momentum": (0.0, 1.0)},
        conditions={"momentum": lazybo.Condition("opt", ("sgd",))},
    )

    def objective(params: dict[str, Any]) -> float:
        return 0.0 if params["opt"] == "adam" else 0.05 + (params["momentum"] - 0.4) ** 2

    study = lazybo.optimize(objective, space, n_trials=25, seed=0, progress=False)
    momentum = lazybo.ranges(study, distance=0.06)["momentum"]
    assert momentum.best is None
    assert momentum.at_best is None
    assert momentum.free is not None
    assert 0.2 < momentum.free.low < 0.4 < momentum.free.high < 0.6
    assert lazybo.ranges(study, distance=0.01)["momentum"].free is None


def test_measured_constraints_must_be_expected_to_hold() -> None:
    def objective(params: dict[str, float]) -> dict[str, float]:
        return {"value": params["x"] ** 2, "memory": params["x"]}

    study = lazybo.optimize(
        objective, {"x": (-1.0, 1.0)}, n_trials=25, constraints={"memory": (0.2, None)}, seed=0, progress=False
    )
    at_best = lazybo.ranges(study, distance=0.5)["x"].at_best
    assert at_best is not None
    assert at_best.low > 0.1
    assert at_best.high > 0.6


@pytest.mark.parametrize(
    ("distance", "message"), [(-1, "distance must be at least 0"), ("1", "distance must be a finite number")]
)
def test_wrong_distances(study: optuna.Study, distance: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lazybo.ranges(study, distance=distance)


def test_studies_without_ranges() -> None:
    with pytest.raises(TypeError, match=r"ranges\(\) has no argument within=; use distance="):
        lazybo.ranges(optuna.create_study(), within=0.1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="study must be an Optuna study"):
        lazybo.ranges("study")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no completed trial yet"):
        lazybo.ranges(optuna.create_study())
    with pytest.raises(ValueError, match="2 objectives"):
        lazybo.ranges(optuna.create_study(directions=["minimize", "minimize"]))


# ---------------------------------------------------------------- where they are shown


def storage_of(study: optuna.Study) -> str:
    return str(study._storage._backend.url if hasattr(study._storage, "_backend") else study._storage.url)  # type: ignore[attr-defined]


def test_the_command_shows_them(study: optuna.Study) -> None:
    url = storage_of(study)
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["show", url, "lazybo"])
    assert shown.exit_code == 0, shown.output
    assert "good ranges within" in shown.output
    assert "adam, lion" in shown.output
    printed = json.loads(CliRunner().invoke(app, ["show", url, "lazybo", "--json"]).stdout)
    ranges = printed["ranges"]
    assert ranges["parameters"]["idle"]["at_best"]["low"] == 1
    assert 0 <= ranges["parameters"]["lr"]["free"]["probability"] <= 1
