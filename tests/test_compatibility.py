"""Files of earlier versions: today's code reads the same from them, and continues them (tests/compatibility.py).

What was recorded never changes. What the model says of it is there, too, but may change with the model.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from typer.testing import CliRunner

import lazybo
from lazybo import write_report
from lazybo.study import Store, StudyView
from tests.cli.command import app
from tests.compatibility import EXPECTED, READERS, said

VERSIONS = sorted(path for path in (Path(__file__).parent / "data").iterdir() if path.is_dir())
# Another machine may round otherwise. A chance is a share of random draws, and one draw may fall on the other side.
TOLERANCE, OF_CHANCE = 1e-6, 2e-3
# What the model says: predictions, and what a continued study suggests next.
SPACE = {"x": (0.0, 1.0)}
OF_MODEL = {"contenders", "expected_gain", "importances", "next", "predicted", "recommended", "share"}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(level)


def differences(before: Any, now: Any, place: str = "") -> Iterator[str]:
    """Where plain data differ; numbers may differ by a rounding, and later versions may say more."""
    if isinstance(before, dict) and isinstance(now, dict) and before.keys() <= now.keys():
        for key in before.keys() - OF_MODEL:
            yield from differences(before[key], now[key], f"{place}/{key}")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for i, (a, b) in enumerate(zip(before, now, strict=True)):
            yield from differences(a, b, f"{place}/{i}")
    elif isinstance(before, float) and isinstance(now, float):
        rough = OF_CHANCE if place.endswith("chance") else 1e-9
        if not math.isclose(before, now, rel_tol=TOLERANCE, abs_tol=rough):
            yield f"{place}: {before!r} before, {now!r} now"
    elif before != now:
        yield f"{place}: {before!r} before, {now!r} now"


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
def test_files_of_earlier_versions_say_the_same_and_are_continued(folder: Path, name: str) -> None:
    expected, found = json.loads((folder / EXPECTED).read_text())[name], said(folder, name)
    for each in (expected, found):  # how a trial ends that is suggested today depends on the suggestion
        if "continued" in each:
            each["states"] = each["states"][: -each["continued"]]
    assert list(differences(expected, found)) == []


# ----------------------------------------------------------------- newer versions


def newer_study(path: Path) -> optuna.Study:
    """A study as a version would leave it whose studies this one misreads."""
    study = lazybo.optimize(lambda params: params["x"], SPACE, n_trials=3, storage=path, seed=0, progress=False)
    store = Store(study)
    store.set_attributes({"lazybo:format": 99})
    return study


@pytest.mark.parametrize("reader", ["optimize", "sampler", "model"])
def test_a_study_of_a_newer_version_gives_one_sentence_and_stays_as_it_is(reader: str, tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    study = newer_study(path)
    sampler = lazybo.LazySampler(seed=0)
    readers = {
        "optimize": lambda: lazybo.optimize(lambda params: params["x"], SPACE, n_trials=4, storage=path),
        "sampler": lambda: optuna.load_study(study_name="lazybo", storage=f"sqlite:///{path}", sampler=sampler).ask(
            {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}
        ),
        "model": lambda: StudyView.of(study).model(),
    }
    with pytest.raises(ValueError, match=r"written by a newer lazybo.*upgrade lazybo"):
        readers[reader]()
    assert [trial.state.name for trial in study.trials[:3]] == ["COMPLETE"] * 3


def test_show_and_report_say_that_a_study_is_of_a_newer_version(tmp_path: Path) -> None:
    study = newer_study(tmp_path / "study.db")
    assert "upgrade lazybo" in CliRunner().invoke(app, ["show", str(tmp_path / "study.db"), "lazybo"]).output
    assert "upgrade lazybo" in Path(write_report(study, tmp_path / "report.html")).read_text()


def test_an_optimiser_of_a_newer_version_gives_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "optimizer.json"
    optimizer = lazybo.Optimizer(SPACE, seed=0)
    optimizer.save(path)
    state = {**optimizer.state(), "version": 99}
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 99}))
    sentence = "written by a newer lazybo: it has version 99 of its format, and this one reads up to .*; upgrade lazybo"
    with pytest.raises(ValueError, match=sentence):
        lazybo.Optimizer.load(path)
    with pytest.raises(ValueError, match=sentence):
        lazybo.Optimizer(SPACE, seed=0).restore(state)
