"""What benchmarks measure is still so: work, memory, coverage, quality, and the tables in the pages."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import guard, report, resume
from benchmarks.paper.tables import insert

ROOT = Path(__file__).parents[1]


def test_memory_grows_like_the_triangle() -> None:
    command = [sys.executable, "-m", "benchmarks.engine", "--grow", "3000"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    grown = json.loads(output.stdout)
    assert grown["n"] == 3001
    assert grown["peak_gb"] < 3 * grown["triangle_gb"]


def test_the_tables_of_the_documents_are_those_of_the_records() -> None:
    texts, found = [document.read_text() for document in report.DOCUMENTS], report.tables()
    assert [name for name in found if not any(f"<!-- {name} -->" in text for text in texts)] == []
    assert [insert(text, found) == text for text in texts] == [True] * len(texts)


@pytest.mark.parametrize(("name", "n"), guard.WORK)
def test_a_step_does_no_more_work_than_it_did(name: str, n: int) -> None:
    measured = guard.work(name, n)
    assert {key: value for key, value in measured.items() if not guard.WORK[name, n][key].holds(value)} == {}


@pytest.mark.parametrize("noisy", guard.COVERAGE)
def test_intervals_contain_the_truth_as_often_as_they_did(noisy: bool) -> None:
    measured = guard.coverage(noisy=noisy)
    assert {key: value for key, value in measured.items() if not guard.COVERAGE[noisy][key].holds(value)} == {}


@pytest.mark.parametrize("name", guard.QUALITY)
def test_quick_problems_end_where_they_did(name: str) -> None:
    measured, (_, band) = guard.quality(name), guard.QUALITY[name]
    assert band.holds(measured), f"{measured:.3g} is outside {band.low:g} to {band.high:g}"


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_run_that_was_stopped_and_resumed_is_the_same_to_the_last_bit(seed: int) -> None:
    run = replace(resume.make_run(seed), n_trials=13, stops=(7, 10))
    assert resume.differences(run) == []
