"""The page of a report without a browser: its texts, what is missing, and that nothing breaks out of it."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState, create_trial

import lazybo
from lazybo.report.facts import facts_of
from lazybo.report.html import number, page_of, write_report
from lazybo.report.page_data import MOST_TRIALS, data_of
from tests.report.studies import mixed_study, nasty_study, two_objectives

VOID = {"meta", "link", "br", "input"}


class Outline(HTMLParser):
    """The elements of a page and the texts in them; checks that every element is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sections: list[str] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "section":
            self.sections.append(dict(attrs)["id"] or "")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self._open):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def outline(study: optuna.Study) -> Outline:
    return Outline(page_of(facts_of(study)))


def test_a_report_has_all_sections_and_the_numbers_of_the_study(tmp_path: Path) -> None:
    study = mixed_study(40, conditional=True)
    path = write_report(study, tmp_path / "report.html")
    page = Outline(path.read_text(encoding="utf-8"))
    assert page.sections == [
        *("health", "recommendation", "course", "model", "importances", "ranges", "parallel", "quality", "failures"),
    ]
    recommended = lazybo.recommend(study)
    assert f"trial {recommended.number}" in page.text
    assert number(recommended.value) in page.text
    assert number(study.best_value) in page.text
    assert "36 complete, 4 failed" in page.text
    assert "2 CUDA out of memory <0>" in page.text
    model = facts_of(study).model
    assert model is not None
    for count, gain in model.gains.items():
        assert f"{number(gain, 2)} in the next {count}" in page.text


def test_why_the_recommended_trial_is_not_the_best_one() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study, rng, space = optuna.create_study(), np.random.default_rng(1), {"x": FloatDistribution(0, 1)}
    for _ in range(40):
        x = float(rng.random())
        value = (x - 0.3) ** 2 + 0.2 * float(rng.standard_normal())
        study.add_trial(create_trial(params={"x": x}, distributions=space, value=value))
    content = facts_of(study)
    assert content.model is not None
    assert content.model.advice is not None
    assert content.model.advice.differs
    page = Outline(page_of(content))
    assert f"The two differ: {content.model.advice.reason}." in page.text
    assert f"best seen: trial {study.best_trial.number}" in page.text


def test_several_objectives_have_a_front_and_no_recommendation() -> None:
    study = two_objectives()
    page = outline(study)
    assert page.sections[:2] == ["health", "front"]
    assert "recommendation" not in page.sections
    assert f"Best trade-offs {len(study.best_trials)}" in page.text
    assert data_of(facts_of(study))["best"] == [trial.number for trial in study.best_trials]


@pytest.mark.parametrize("kind", ["empty", "failed", "running", "one", "no parameters", "single values", "infeasible"])
def test_a_report_says_what_is_missing(kind: str) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(study_name=kind)
    x, fixed = {"x": FloatDistribution(0, 1)}, {"x": CategoricalDistribution(["a"])}
    if kind == "failed":
        for _ in range(4):
            study.add_trial(create_trial(state=TrialState.FAIL, params={"x": 0.5}, distributions=x))
    elif kind == "running":
        study.ask(x)
    elif kind == "one":
        study.add_trial(create_trial(params={"x": 0.5}, distributions=x, value=1.0))
    elif kind == "no parameters":
        study.add_trial(create_trial(value=1.0))
    elif kind == "single values":
        study.add_trial(create_trial(params={"x": "a"}, distributions=fixed, value=1.0))
    elif kind == "infeasible":
        for place in (0.1, 0.5, 0.9):
            limit = {"constraints:memory": 1.0}
            study.add_trial(create_trial(params={"x": place}, distributions=x, value=place, system_attrs=limit))
    page = outline(study)
    expected = {
        "empty": "No trial has completed yet, so there is no model.",
        "failed": "No trial has completed yet, so there is no model.",
        "running": "No trial has completed yet, so there is no model.",
        "one": "1 trial has completed",
        "no parameters": "The trials have no parameters, so there is no model.",
        "single values": "No parameter can vary, so there is nothing to model.",
        "infeasible": "Nothing is feasible yet.",
    }[kind]
    assert expected in page.text
    assert ("failures" in page.sections) == (kind == "failed")


def test_names_and_errors_are_text() -> None:
    text = page_of(facts_of(nasty_study()))
    page = Outline(text)
    assert page.tags.count("script") == 2
    assert not {"img", "b"} & set(page.tags) - {"b"}
    assert "</title></script><script>window.broken = 1</script>" in page.text
    assert "</code><script>window.broken = 3</script> at sqlite://user:***@host line 2" in page.text
    assert "secret" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_page_refers_to_nothing_outside(tmp_path: Path) -> None:
    text = write_report(mixed_study(15), tmp_path / "r.html").read_text(encoding="utf-8")
    assert re.findall(r"https?://[^\s\"'<]*", text) == ["http://www.w3.org/2000/svg"]
    assert re.findall(r"(?:src|href)=\"[^\"]*\"", text) == ['href="data:,"']
    assert "default-src 'none'" in text


def test_large_studies_are_thinned() -> None:
    study = mixed_study(12)
    content = facts_of(study)
    (trial,) = [t for t in study.trials if t.number == 3]
    many = [
        optuna.trial.create_trial(value=float(i), params=trial.params, distributions=trial.distributions)
        for i in range(MOST_TRIALS + 500)
    ]
    for i, each in enumerate(many):
        each.number = i
    content.view = replace(content.view, frozen=many)
    found = data_of(content)["trials"]
    assert len(found["numbers"]) == len(many)
    drawn = [i for i, places in enumerate(found["places"]) if places is not None]
    assert len(drawn) == MOST_TRIALS
    assert drawn[: MOST_TRIALS // 2] == list(range(MOST_TRIALS // 2)), "all of the best ones"
    assert drawn[-1] == len(many) - 1
