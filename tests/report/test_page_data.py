"""The model as plain data: whoever computes the formulas of its docstring gets the numbers of `Optimizer.predict`."""

import base64
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
import pytest
from scipy.special import ndtr

from lazybo import Optimizer
from lazybo.report import html
from lazybo.report.facts import Facts, ModelFacts, facts_of
from lazybo.report.html import page_of
from lazybo.report.page_data import (
    KERNELS,
    as_json,
    data_of,
    portable_model,
    variance_rows,
    widening,
)
from lazybo.study import StudyView
from tests.report.studies import mixed_study, with_earlier

CORNER = math.sqrt(0.5)


def features(x: np.ndarray, model: dict[str, Any], scales: list[float]) -> list[np.ndarray]:
    """The coordinates of each column in units of its length scale, written out row by row."""
    parts = []
    for j, column in enumerate(model["columns"]):
        rows = []
        for value in x[:, j]:
            off = math.isnan(value)
            if column["categories"]:
                share = CORNER / column["categories"] if off else 0.0
                place = [share] * column["categories"]
                if not off:
                    place[int(value)] = CORNER
            else:
                place = [0.5 if off else value]
            rows.append(place + ([float(off)] if column["conditional"] else []))
        parts.append(np.array(rows) / scales[j])
    return parts


def matern(s: np.ndarray) -> np.ndarray:
    return (1 + s + s**2 / 3) * np.exp(-s)


def prior_mean(model: dict[str, Any], prior: dict[str, Any] | None, points: np.ndarray) -> np.ndarray:
    if prior is None:
        return np.zeros(len(points))
    d = len(model["columns"])
    *scales, scale, share = prior["values"]
    parts = features(points, model, scales)
    split = split_features(prior["z"], model, scales)
    squares = [((p[:, None] - q[None]) ** 2).sum(axis=2) for p, q in zip(parts, split, strict=True)]
    alone = sum(matern(np.sqrt(5 * d * square)) for square in squares) / d
    k = scale * ((1 - share) * matern(np.sqrt(5 * sum(squares))) + share * alone)
    return prior["offset"] + k @ decoded(prior["weights"])


def split_features(z: str, model: dict[str, Any], scales: list[float]) -> list[np.ndarray]:
    """Features by column. That of a choice is the choice, and here becomes the corner of a simplex."""
    columns = model["columns"]
    widths = [1 if c["categories"] else 1 + c["conditional"] for c in columns]
    parts = np.split(decoded(z, sum(widths)), np.cumsum(widths)[:-1], axis=1)
    for j, column in enumerate(columns):
        if column["categories"]:
            parts[j] = CORNER * np.eye(column["categories"])[parts[j][:, 0].astype(int)]
        parts[j] = parts[j] / scales[j]
    return parts


def components(model: dict[str, Any], output: dict[str, Any], points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each particle, each (s, m)."""
    found = [posterior(model, {**each, "prior": output["prior"]}, points) for each in output["particles"]]
    means, variances = zip(*found, strict=True)
    return np.array(means), np.array(variances)


def posterior(model: dict[str, Any], output: dict[str, Any], points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    d = len(model["columns"])
    *scales, scale, share = output["values"]
    x = decoded(model["x"], d)

    def k(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        pairs = zip(features(a, model, scales), features(b, model, scales), strict=True)
        squares = [((p[:, None] - q[None]) ** 2).sum(axis=2) for p, q in pairs]
        alone = sum(matern(np.sqrt(5 * d * square)) for square in squares) / d
        return scale * ((1 - share) * matern(np.sqrt(5 * sum(squares))) + share * alone)

    rows = slice(None) if model["rows"] is None else model["rows"]
    whole = k(x[rows], x[rows]) + np.diag(decoded(output["added"])[rows])
    cross = k(points, x)
    v = np.linalg.solve(whole, cross[:, rows].T)
    mean = cross @ decoded(output["alpha"])
    if output["targets"] is not None:
        np.testing.assert_allclose(v.T @ decoded(output["targets"]), mean, atol=1e-6)
        mean = v.T @ decoded(output["targets"])
    return mean + prior_mean(model, output["prior"], points), scale - np.sum(cross[:, rows] * v.T, axis=1)


def decoded(text: str, width: int | None = None) -> np.ndarray:
    """The inverse of `encoded`, (n,) or (n, width)."""
    numbers = np.frombuffer(base64.b64decode(text), dtype="<f8").astype(np.float64)
    return numbers if width is None else numbers.reshape(-1, width)


def model_of_page(content: Facts) -> ModelFacts:
    assert content.model is not None
    return content.model


def success_chance(optimizer: Optimizer, points: np.ndarray) -> np.ndarray:
    """The chance of success by the model of the failures; 1 if nothing has failed."""
    _, success = optimizer.model.limits()
    if success is None:
        return np.ones(len(points))
    log_weights, mean, std = success.posterior.components(points)
    return np.asarray(np.exp(log_weights) @ ndtr((success.threshold - mean) / std))


@pytest.fixture(scope="module", params=["conditional", "maximize", "constrained", "many"])
def found(request: pytest.FixtureRequest) -> tuple[optuna.Study, Facts]:
    study = mixed_study(
        45,
        conditional=request.param == "conditional",
        direction="maximize" if request.param == "maximize" else "minimize",
        constrained=request.param == "constrained",
        many=request.param == "many",
    )
    content = facts_of(study)
    assert content.portable is not None
    assert len(content.portable["constraints"]) == (request.param == "constrained")
    return study, content


def test_the_formulas_give_the_predictions_of_the_optimiser(found: tuple[optuna.Study, Facts]) -> None:
    model, facts = json.loads(as_json(found[1].portable)), model_of_page(found[1])
    optimizer = facts.optimizer
    space = optimizer.space
    points = space.points.sample(np.random.default_rng(1), 40)
    configurations = [space.points.decode(point) for point in points]
    (objective,) = model["objectives"]
    mean, variance = components(model, objective, points)
    weights, std = np.array(objective["weights"]), model["widened"] * np.sqrt(np.maximum(variance, 0))
    expected = optimizer.predict(configurations)
    warping = facts.predictors[0].warping

    def level(values: list[float]) -> np.ndarray:
        """The probability that the mixture is below each value."""
        targets = warping(objective["sign"] * np.array(values))
        return np.asarray(weights @ ndtr((targets - mean) / std))

    values = objective["sign"] * warping.inverse(weights @ mean)
    np.testing.assert_allclose(values, [each.value for each in expected], rtol=1e-6, atol=1e-7)
    low, high = model["interval"][:: int(objective["sign"])]
    np.testing.assert_allclose(level([each.low for each in expected]), low, atol=1e-4)
    np.testing.assert_allclose(level([each.high for each in expected]), high, atol=1e-4)
    feasible = np.prod([chance(model, limit, points) for limit in model["constraints"]], axis=0)
    np.testing.assert_allclose(feasible * np.ones(40), optimizer.model.predict_feasible(configurations), atol=1e-7)
    success = chance(model, model["success"], points)
    np.testing.assert_allclose(success, success_chance(optimizer, points), atol=1e-7)


def chance(model: dict[str, Any], limit: dict[str, Any], points: np.ndarray) -> np.ndarray:
    """The probability that a limit holds."""
    mean, variance = components(model, limit, points)
    return np.asarray(np.array(limit["weights"]) @ ndtr((limit["threshold"] - mean) / np.sqrt(variance)))


def test_learning_first_changes_no_number(found: tuple[optuna.Study, Facts]) -> None:
    study, ours = found[0], model_of_page(found[1])
    params = {n: v for n, v in study.best_params.items() if n in ours.optimizer.space.distributions}
    fresh = StudyView.of(study).model().optimizer
    assert fresh.predict(params) == ours.optimizer.predict(params)
    assert fresh.model.predict_feasible(params) == ours.optimizer.model.predict_feasible(params)


@pytest.mark.parametrize("many", [False, True])
def test_earlier_studies_are_a_prior_mean(many: bool) -> None:
    study = with_earlier(many=many)
    content = facts_of(study)
    model, portable = model_of_page(content), content.portable
    assert portable is not None
    (output,) = portable["objectives"]
    assert output["prior"] is not None
    space, (predictor,) = model.optimizer.space, model.predictors
    points = space.points.sample(np.random.default_rng(2), 50)
    mean, variance = components(portable, output, points)
    expected = predictor.posterior.components(points)
    assert float(np.std(prior_mean(portable, output["prior"], points))) > 0.1, "it says something"
    np.testing.assert_allclose(mean, expected.mean, atol=1e-7)
    np.testing.assert_allclose(variance, expected.std**2, atol=1e-7)
    assert [each.name for each in model.related] == ["mixed"]
    assert "Earlier studies that the model has learned from" in page_of(content)


def test_of_many_rows_the_median_is_exact_and_the_interval_never_narrower() -> None:
    model = model_of_page(facts_of(mixed_study(120, noise=0.1)))
    optimizer, predictors = model.optimizer, model.predictors
    process, space = predictors[0].posterior.leading, optimizer.space
    small = portable_model(optimizer, ["value"], predictors, most=50)
    assert small["rows"] is not None
    assert len(small["rows"]) == 50
    points = space.points.sample(np.random.default_rng(4), 60)
    (mean, *_), (variance, *_) = components(small, small["objectives"][0], points)
    whole = process.posterior(points)
    np.testing.assert_allclose(mean, whole.mean, atol=1e-9)
    assert np.all(variance >= whole.variance - 1e-9)
    ratio = np.median(np.sqrt(variance / whole.variance)) - 1
    assert small["widening"] == pytest.approx(widening(predictors[0], np.array(small["rows"])))
    assert small["widening"] == pytest.approx(ratio, abs=0.1)
    kept = variance_rows(process, 50)
    assert kept is not None
    best = np.argsort(np.where(process.known_variances < 1e9, process.targets, np.inf))[:25]
    assert set(best.tolist()) <= set(kept.tolist())
    assert variance_rows(process, 200) is None


def test_data_has_no_markup_and_no_nan() -> None:
    data = data_of(facts_of(mixed_study(20, conditional=True)))
    text = as_json({**data, "evil": "</script><!--&", "nan": [math.nan, math.inf]})
    assert not set("<>&") & set(text)
    again = json.loads(text)
    assert again["evil"] == "</script><!--&"
    assert again["nan"] == [None, None]


def test_the_script_computes_every_kernel_that_is_exported_and_refuses_others() -> None:
    script = (Path(html.__file__).parent / "page" / "model.js").read_text()
    known = re.search(r"const KERNELS = \[(.*?)\]", script)
    assert known is not None
    assert tuple(re.findall(r'"(\w+)"', known[1])) == KERNELS
    assert "if (!KERNELS.includes(data.kernel)) throw" in script


def test_a_kernel_that_the_page_does_not_know_is_not_exported() -> None:
    content = facts_of(mixed_study(20))
    leading = SimpleNamespace(kernel=SimpleNamespace(name="other"))
    other: Any = SimpleNamespace(posterior=SimpleNamespace(leading=leading))
    with pytest.raises(ValueError, match="the page cannot compute the kernel 'other', only matern52, additive"):
        portable_model(model_of_page(content).optimizer, ["value"], [other])
    content._portable = "There are no sliders: the kernel is new."
    page = page_of(content)
    assert "There are no sliders: the kernel is new." in page
    assert 'data-chart="parallel"' not in page, "its axes are those of the model"
    assert 'id="importances"' in page
