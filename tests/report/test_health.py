"""The checks of a study: what each says of numbers that are fine, doubtful and bad."""

import math

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import create_trial

from lazybo import Space
from lazybo.report import health
from lazybo.report.facts import facts_of
from lazybo.report.predictions import Noise, Quality
from lazybo.report.records import Failures, reason_of
from lazybo.study import TrialView
from tests.report.studies import mixed_study

SPACE = Space(
    {
        "lr": FloatDistribution(1e-4, 0.1, log=True),
        "layers": IntDistribution(1, 5),
        "units": IntDistribution(1, 1000),
        "opt": CategoricalDistribution(["a", "b"]),
        "two": IntDistribution(0, 1),
    }
)
EQUAL = [dict.fromkeys(SPACE.points.names, 0.2)]


def quality(explained: float, covered: float, n: int = 50) -> Quality:
    numbers = [0.0] * n
    return Quality(numbers, numbers, numbers, numbers, explained, covered)


def level(found: health.Finding | None) -> str | None:
    return None if found is None else found.level


def test_few_trials() -> None:
    assert [level(health.few_trials(n, 4)) for n in (0, 1, 9, 10)] == ["warning", "note", "note", "good"]
    assert level(health.few_trials(39, 20)) == "note"
    assert "1 trial has completed" in health.few_trials(1, 3).text


def test_failures_are_counted_with_their_most_frequent_reason() -> None:
    reasons = [Failures("CUDA out of memory", [1, 2, 3], None), Failures("timeout", [7], None)]
    found = health.many_failures(4, 10, reasons)
    assert found is not None
    assert found.level == "warning"
    assert "4 of 10 trials failed (40 %)" in found.text
    assert "(3 ×): CUDA out of memory" in found.text
    assert level(health.many_failures(1, 10, reasons)) == "note"
    assert level(health.many_failures(1, 2, reasons)) == "note", "too few to call many"
    assert level(health.many_failures(0, 10, [])) == "good"
    assert health.many_failures(0, 0, []) is None


@pytest.mark.parametrize(
    ("params", "ends"),
    [
        ({"lr": 0.01, "layers": 3, "units": 500}, {}),
        ({"lr": 0.1, "layers": 1, "units": 500}, {"lr": "upper", "layers": "lower"}),
        ({"lr": 0.0999, "layers": 2, "units": 5}, {"lr": "upper", "units": "lower"}),
        ({"lr": 0.09, "layers": 5, "units": 1000}, {"layers": "upper", "units": "upper"}),
    ],
)
def test_edges_of_a_configuration(params: dict[str, float], ends: dict[str, str]) -> None:
    point = SPACE.points.encode({**params, "opt": "a", "two": 0})
    assert health.edges_of(SPACE, point) == ends
    found = health.best_at_edge(SPACE, point[None], EQUAL)
    assert level(found) == ("warning" if ends else "good")
    assert found is not None
    for name, end in ends.items():
        assert f"the {end} end of {name}" in found.text
    assert ("widen these ranges" in found.text) == (len(ends) > 1)
    nothing = [{**EQUAL[0], **dict.fromkeys(ends, 0.01)}]
    assert level(health.best_at_edge(SPACE, point[None], nothing)) == "good", "what does not matter may be anywhere"


def test_a_front_is_at_the_edge_if_most_of_it_is() -> None:
    inside = {"lr": 0.01, "layers": 3, "units": 500, "opt": "a", "two": 0}
    points = np.array([SPACE.points.encode({**inside, "lr": lr}) for lr in (0.1, 0.1, 0.1, 0.1, 0.01)])
    assert level(health.best_at_edge(SPACE, points, EQUAL)) == "warning"
    assert level(health.best_at_edge(SPACE, points[1:], EQUAL)) == "good"
    assert health.best_at_edge(SPACE, points[:0], EQUAL) is None


def test_predictions_are_judged_by_what_they_explain_and_cover() -> None:
    little = Noise(0.01, 0.1)
    assert level(health.predictions(quality(0.9, 0.95), little)) == "good"
    assert level(health.predictions(quality(0.4, 0.95), little)) == "note"
    assert level(health.predictions(quality(0.1, 0.95), little)) == "warning"
    assert level(health.predictions(quality(-3.0, 0.95), little)) == "warning"
    assert level(health.predictions(quality(0.9, 0.6), little)) == "warning"
    assert level(health.predictions(quality(0.1, 0.95), Noise(0.8, 1.0))) == "note", "nobody can predict noise"
    assert health.predictions(quality(0.9, 0.95, n=5), little) is None
    assert health.predictions(None, None) is None
    named = health.predictions(quality(0.1, 0.95), little, "latency")
    assert named is not None
    assert "of latency" in named.title


def test_noise_is_judged_by_its_share() -> None:
    assert [level(health.noise_level(Noise(share, 0.5))) for share in (0.01, 0.3, 0.8)] == ["good", "note", "warning"]
    found = health.noise_level(Noise(0.8, 0.0123))
    assert found is not None
    assert "± 0.012" in found.text
    assert health.noise_level(None) is None


def test_a_parameter_is_useless_only_if_the_model_can_tell() -> None:
    shares = {"x": 0.7, "y": 0.299, "z": 0.001}
    found = health.useless([shares], [quality(0.9, 0.95)], {"z"})
    assert found is not None
    assert found.title == "One parameter does nothing"
    assert found.text.startswith("z:")
    assert health.useless([shares], [quality(0.2, 0.95)], {"z"}) is None
    assert health.useless([shares], [quality(0.9, 0.95, n=8)], {"z"}) is None
    many = {f"x{i}": 1 / 40 for i in range(40)}
    assert health.useless([many], [quality(0.9, 0.95, n=100)], many) is None, "too few values for so many parameters"
    assert level(health.useless([{**many, "x7": 0.008}], [quality(0.9, 0.95, n=150)], many)) == "good", (
        "a third of its share"
    )
    assert level(health.useless([{**many, "x7": 0.001}], [quality(0.9, 0.95, n=150)], many)) == "note"
    assert level(health.useless([shares, {**shares, "z": 0.3}], [quality(0.9, 0.95)] * 2, shares)) == "good"
    near = health.useless([shares], [quality(0.9, 0.95)], {"x"})
    assert level(near) == "good"
    assert near is not None
    assert near.text == "z: it has less than 1 % of the variation over the whole space, but it matters near the best."


def test_equal_values_and_few_feasible_trials() -> None:
    assert level(health.equal_values([2.0] * 5)) == "warning"
    assert health.equal_values([2.0, 2.0, 2.1]) is None
    assert health.equal_values([2.0, 2.0]) is None
    assert [level(health.few_feasible(n, 40, ["memory"])) for n in (0, 2, 20)] == ["warning", "note", "good"]
    assert health.few_feasible(0, 40, []) is None


def findings(study: optuna.Study) -> dict[str, str]:
    return {each.check: each.level for each in facts_of(study).findings}


def made(space: dict[str, optuna.distributions.BaseDistribution], value: object, n: int = 40) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study, rng = optuna.create_study(), np.random.default_rng(3)
    for _ in range(n):
        params = {name: float(rng.uniform(0, 1)) for name in space}
        study.add_trial(create_trial(params=params, distributions=space, value=value(params, rng)))  # type: ignore[operator]
    return study


def test_real_studies_get_the_findings_that_they_deserve() -> None:
    space = {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}
    smooth = findings(made(space, lambda p, rng: (p["x"] - 0.4) ** 2 + (p["y"] - 0.6) ** 2))
    assert set(smooth.values()) == {"good"}, smooth
    noise = findings(made(space, lambda p, rng: float(rng.standard_normal())))
    assert noise["noise"] == "warning" or noise["predictions"] == "warning"
    idle = findings(made(space, lambda p, rng: (p["x"] - 0.4) ** 2))
    assert idle["useless"] == "note"
    edge = made(space, lambda p, rng: p["x"] + 0.3 * p["y"])
    edge.add_trial(create_trial(params={"x": 0.0, "y": 0.001}, distributions=space, value=0.0003))
    assert findings(edge)["edge"] == "warning"
    assert findings(made(space, lambda p, rng: 1.0))["equal"] == "warning"


def test_a_parameter_that_matters_only_near_the_best_is_not_useless() -> None:
    space = {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}

    def value(params: dict[str, float], _: object) -> float:
        return 20 * params["x"] ** 2 + params["y"] * math.exp(-((params["x"] / 0.3) ** 2))

    content = facts_of(made(space, value, 60))
    assert content.model is not None
    assert content.model.importances[0]["y"] < 0.01
    good = content.model.good_ranges
    assert good is not None
    assert good["y"].at_best is not None
    assert good["y"].at_best.high < 0.9
    assert {each.check: each.level for each in content.findings}["useless"] == "good"


@pytest.mark.parametrize("kept", [7, "x", [], {}, {"summary": 7}])
def test_a_failure_that_was_edited_still_has_a_reason(kept: object) -> None:
    trial = mixed_study(40).trials[8]
    trial.system_attrs["lazybo:failure"] = kept
    assert reason_of(TrialView(trial)) == ("7" if kept == {"summary": 7} else "CUDA out of memory <0>")
