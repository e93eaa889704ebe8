"""What benchmarks measure is still so: work, memory, coverage, quality, and the tables in the pages."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from benchmarks import guard, ledger, notebook, report, resume, trained
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


def test_the_recorded_comparisons_share_no_seed() -> None:
    entries = sorted(ledger.read(), key=lambda entry: entry.first_seed)
    assert all(before.last_seed < after.first_seed for before, after in pairwise(entries))
    assert all((entry.first_seed >= ledger.FIRST_FINAL) == entry.final for entry in entries)
    assert all(entry.first_seed >= ledger.FIRST_CHOICE for entry in entries)


def test_the_page_of_the_notebook_is_that_of_the_ledger() -> None:
    text = notebook.PAGE.read_text()
    assert "<!-- ledger -->" in text
    assert insert(text, {"ledger": notebook.table(ledger.read())}) == text


@pytest.mark.parametrize("name", ["svm-wine", "boosting-cancer"])
def test_a_recorded_training_is_reproduced(name: str) -> None:
    """Other versions of scikit-learn may differ a bit."""
    rows = 12
    again, table = trained.record(name, rows), trained.table(name)
    stored = [[table.space[k].to_internal_repr(v) for k, v in p.items()] for p in table.configurations[:rows]]
    np.testing.assert_allclose(again[:, :-1], stored, rtol=1e-6)
    assert spearmanr(again[:, -1], table.errors[:rows]).statistic > 0.9
    assert np.median(np.abs(again[:, -1] - table.errors[:rows])) < 0.02
