"""The report in a real browser: its numbers are those of `Optimizer.predict`, and nothing in it can break out."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from lazybo import Optimizer, Prediction
from lazybo.report.facts import facts_of
from lazybo.report.html import page_of
from lazybo.report.page_data import EXACT_ROWS
from lazybo.space import Structured
from lazybo.study import StudyView
from tests.browser import Page, open_page
from tests.report.studies import mixed_study, nasty_study, structured_study, two_objectives, with_earlier
from tests.report.test_page_data import success_chance

POINTS = 1000
PNG = b"\x89PNG\r\n\x1a\n"
READY = """new Promise((done) => {
  const look = () => (window.lazyboReport.model && !window.lazyboReport.model.ready ? setTimeout(look, 5) : done(true));
  look();
})"""
# What a person sees of the prediction is short; the element has the exact numbers too.
SHOWN = "document.querySelector('.reading .value').dataset.exact.split(' ').map(Number)"


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Any]:
    """Opens the report of a study in a browser of its own."""
    opened = []

    def open_report(study: optuna.Study, most: int = EXACT_ROWS, **size: int) -> Page:
        path = tmp_path / f"{len(opened)}.html"
        path.write_text(page_of(facts_of(study, most=most)), encoding="utf-8")
        context = open_page(path, tmp_path, **size)
        opened.append(context)
        page = context.__enter__()
        page.run(READY)
        return page

    yield open_report
    for context in reversed(opened):
        context.__exit__(None, None, None)


def ours(study: optuna.Study) -> Optimizer:
    return StudyView.of(study).model().optimizer


def positions(optimizer: Optimizer, params: dict[str, Any]) -> list[Any]:
    """The values of a configuration as the page takes them: choices by position, None where inactive."""
    space = optimizer.space
    found = []
    for name in space.points.names:
        value, distribution = params.get(name), space.distributions[name]
        chosen = isinstance(distribution, optuna.distributions.CategoricalDistribution) and name in params
        found.append(distribution.to_internal_repr(value) if chosen else value)
    return found


def largest_difference(study: optuna.Study, expected: list[Prediction], found: list[list[float]]) -> float:
    """As a share of the range of the trials' values; of predictions that are far beyond it, of these themselves."""
    ours = np.array([(each.value, each.low, each.high) for each in expected])
    values = [trial.value for trial in study.trials if trial.value is not None]
    return float((np.abs(ours - np.array(found)) / np.maximum(np.ptp(values), np.abs(ours))).max())


@pytest.mark.extra
@pytest.mark.parametrize("kind", ["conditional", "maximized", "constrained", "many earlier"])
def test_the_page_predicts_as_the_optimiser_does(pages: Any, kind: str) -> None:
    study = (
        with_earlier(many="many" in kind)
        if "earlier" in kind
        else mixed_study(
            150,
            conditional=kind == "conditional",
            direction="maximize" if kind == "maximized" else "minimize",
            constrained=kind == "constrained",
            many=kind == "many",
        )
    )
    page, optimizer = pages(study), ours(study)
    space = optimizer.space
    configurations = [space.points.decode(x) for x in space.points.sample(np.random.default_rng(7), POINTS)]
    values = json.dumps([positions(optimizer, params) for params in configurations])
    found = page.run(
        f"""(() => {{
          const {{ model }} = window.lazyboReport;
          return {values}.map((values) => {{
            const x = model.axes.map((axis, j) => (values[j] === null ? axis.snap(0.3) : axis.encode(values[j])));
            const {{ value, low, high }} = model.predict(model.objectives[0], x);
            return [value, low, high, model.feasible(x), model.success ? model.chance(model.success, x) : 1];
          }});
        }})()"""
    )
    difference = largest_difference(study, optimizer.predict(configurations), [row[:3] for row in found])
    print(f"{kind}: largest difference at {POINTS} points {difference:.1e} of the range")
    assert difference <= 1e-6
    feasible = optimizer.model.predict_feasible(configurations)
    assert (min(feasible) < 0.5) == (kind == "constrained")
    np.testing.assert_allclose([row[3] for row in found], feasible, atol=1e-6)
    success = success_chance(optimizer, np.array([space.points.encode(each) for each in configurations]))
    np.testing.assert_allclose([row[4] for row in found], success, atol=1e-6)
    assert page.problems == []
    assert len(page.requests) == 1, "only the file itself"


@pytest.mark.extra
def test_the_page_predicts_for_tried_values_of_structured_parameters(pages: Any) -> None:
    study = structured_study()
    page, optimizer = pages(study), ours(study)
    listed = page.run("window.lazyboReport.model.axes.map(({ rows, choices }) => (rows ? choices : null))")
    rng, space = np.random.default_rng(3), optimizer.space
    tried = {
        name: {Structured.text(space.values(t.params).get(name)): t.params for t in study.trials}
        for name in space.kinds
    }
    configurations, places = [], []
    for _ in range(200):
        params = dict(study.trials[int(rng.integers(len(study.trials)))].params)
        where: list[Any] = []
        for name, values in zip(space.points.names, listed, strict=True):
            if values is None:
                where.append(params[name] if name == "lr" else ["plain", "cell"].index(params[name]))
                continue
            where.append(int(rng.choice([i for i, text in enumerate(values) if values.count(text) == 1])))
            if name != "cell" or params["kind"] == "cell":
                params |= {each: tried[name][values[where[-1]]][each] for each in space.kinds[name].stored(name)}
        configurations.append(params)
        places.append(where)
    found = page.run(
        f"""(() => {{
          const {{ model }} = window.lazyboReport;
          return {json.dumps(places)}.map((values) => {{
            const {{ value, low, high }} = model.predict(
              model.objectives[0], model.axes.map((axis, j) => axis.encode(values[j])));
            return [value, low, high];
          }});
        }})()"""
    )
    assert largest_difference(study, optimizer.predict(configurations), found) <= 1e-6
    best = page.run("window.lazyboReport.explorer.readings[0].value.dataset.exact")
    expected = optimizer.predict([study.trials[page.run("window.lazyboReport.data.recommended.number")].params])
    assert float(best.split()[0]) == pytest.approx(expected[0].value, abs=1e-6)
    assert page.problems == []


@pytest.mark.extra
def test_sliders_move_the_prediction(pages: Any) -> None:
    study = mixed_study(80, conditional=True)
    page, optimizer = pages(study), ours(study)
    names = list(optimizer.space.points.names)

    def part(name: str, selector: str) -> str:
        """An element of the panel of a parameter."""
        return f"document.querySelector('[data-parameter=\"{names.index(name)}\"] {selector}')"

    def box(selector: str, name: str) -> dict[str, float]:
        found: dict[str, float] = page.run(
            f"""(() => {{
              const node = {part(name, selector)};
              node.scrollIntoView({{ block: 'center' }});
              const {{ x, y, width, height }} = node.getBoundingClientRect();
              return {{ x, y, width, height, disabled: node.disabled }};
            }})()"""
        )
        return found

    def expected() -> Prediction:
        coordinates = page.run("Array.from(window.lazyboReport.explorer.coordinates)")
        x = optimizer.space.points.repair(np.array([coordinates], dtype=float))
        return optimizer.predict(optimizer.space.points.decode(x[0]))

    def is_right() -> None:
        now = expected()
        assert page.run(SHOWN) == pytest.approx([now.value, now.low, now.high], abs=2e-6)

    # Where it starts: the recommended trial.
    recommended = optimizer.recommend()
    shown = page.run(SHOWN)
    assert shown[0] == pytest.approx(recommended.value, abs=2e-6)
    before = list(shown)
    for name, share in (("lr", 0.9), ("layers", 0.1), ("batch", 0.7), ("dropout", 0.5), ("shift", 0.2)):
        where = box("input[type=range]", name)
        slider = part(name, "input[type=range]")
        at = page.run(f"{slider}.value / {slider}.max")
        # The middle of the thumb moves from half its width to half its width before the end.
        start, end = (where["x"] + 8 + place * (where["width"] - 16) for place in (at, share))
        page.drag(start, where["y"] + where["height"] / 2, end)
        assert page.run(f"{slider}.value / {slider}.max") == pytest.approx(share, abs=0.2), name
        is_right()
        assert page.run(SHOWN) != before, name
        before = page.run(SHOWN)
    # A key, a typed number, and a choice.
    page.run(part("layers", "input[type=range]") + ".focus()")
    page.press("ArrowRight", 39)
    is_right()
    entry = part("lr", "input[type=number]")
    page.run(f"{entry}.value = '0.02'; {entry}.dispatchEvent(new Event('change'))")
    assert page.run("window.lazyboReport.explorer.coordinates")[names.index("lr")] == pytest.approx(
        math.log(0.02 / 1e-4) / math.log(1e3)
    )
    is_right()
    for choice, disabled in ((0, False), (1, True), (0, False)):
        select = part("opt", "select")
        page.run(f"{select}.value = '{choice}'; {select}.dispatchEvent(new Event('change'))")
        assert box("input[type=range]", "momentum")["disabled"] is disabled
        is_right()
    # A click into a picture moves the slider of its parameter.
    where = box("svg", "shift")
    page.click(where["x"] + where["width"] / 2, where["y"] + where["height"] / 2)
    is_right()
    page.run("[...document.querySelectorAll('.starts button')].find((b) => b.textContent === 'Recommended').click()")
    assert page.run(SHOWN)[0] == pytest.approx(recommended.value, abs=2e-6)
    assert page.problems == []


@pytest.mark.extra
def test_it_fits_a_phone_is_dark_at_night_and_prints(pages: Any, tmp_path: Path) -> None:
    page = pages(two_objectives())
    background = "getComputedStyle(document.documentElement).backgroundColor"
    for width, dark in ((1280, False), (390, False), (390, True)):
        page.emulate(dark=dark)
        page.resize(width, 844, mobile=width < 500)
        page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.run(background) == ("rgb(18, 22, 28)" if dark else "rgb(255, 255, 255)")
        picture = tmp_path / f"{width}-{dark}.png"
        page.screenshot(picture)
        assert picture.read_bytes()[:8] == PNG
        assert picture.stat().st_size > 50_000, "more than an empty page"
    page.emulate(dark=True, media="print")
    assert page.run(background) == "rgb(255, 255, 255)", "paper is white"
    assert page.run("getComputedStyle(document.querySelector('.tools')).display") == "none"
    assert page.problems == []


@pytest.mark.extra
def test_nothing_from_outside_becomes_markup(pages: Any) -> None:
    page = pages(nasty_study())
    assert page.run("window.broken") is None
    assert page.run("document.scripts.length") == 2
    assert page.run("document.querySelectorAll('main img, main i:not([class]) ~ script, main title').length") == 0
    assert page.run("document.querySelector('h1').textContent") == "</title></script><script>window.broken = 1</script>"
    names = page.run("[...document.querySelectorAll('.panel .name')].map((node) => node.textContent)")
    assert "</script><b>" in names
    assert "<img src=x onerror=alert(1)>" in names
    assert page.problems == []
    # What is injected later does not run either.
    page.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.broken = 9\">')")
    page.run("document.body.append(Object.assign(document.createElement('script'), { text: 'window.broken = 8' }))")
    assert page.run("window.broken") is None
