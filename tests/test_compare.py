"""Comparing two variants: whether its answers can be trusted, and what it has recorded."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_ind

from benchmarks import ledger, notebook
from benchmarks.paper.tables import insert
from benchmarks.sequential import PILOT, Monitor, relative, stratified


def test_one_family_has_the_interval_of_a_t_test_and_two_that_of_welchs() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal(8), 3 * rng.standard_normal(20)
    assert stratified([x]).interval(1.959964) == pytest.approx(tuple(ttest_1samp(x, 0).confidence_interval(0.95)), 1e-5)
    expected = np.array(ttest_ind(x, -y, equal_var=False).confidence_interval(0.95)) / 2
    assert stratified([x, y]).interval(1.959964) == pytest.approx(expected, rel=1e-5)


def decision(seed: int, effect: float) -> str:
    """The decision on skewed regrets of four unlike families."""
    rng, most, monitor = np.random.default_rng(seed), 300, Monitor(0.2)
    scales = np.array([0.02, 0.1, 0.2, 0.3])[:, None]
    shared = rng.lognormal(0.0, 0.5, (4, most))
    a, b = (factor * scales * shared * rng.lognormal(0.0, 0.4, (4, most)) for factor in (1.0, 1.0 + effect))
    for n in range(PILOT, most + 1):
        if n < monitor.next_look and n < most:
            continue
        found = monitor.look(relative(list(a[:, :n]), list(b[:, :n])), n, last=n == most)
        if found is not None:
            return found
    return "undecided"


@pytest.mark.parametrize(("effect", "expected", "least"), [(0.0, "equivalent", 50), (-0.2, "better", 70)])
def test_decisions_are_as_often_right_as_they_claim(effect: float, expected: str, least: int) -> None:
    decisions = Counter(decision(seed, effect) for seed in range(100))
    assert decisions[expected] >= least  # 80 % for a difference, and two and a half standard errors
    assert sum(decisions[wrong] for wrong in {"better", "worse"} - {expected}) <= 11  # 5 % and three


def test_the_recorded_comparisons_share_no_seed() -> None:
    entries = sorted(ledger.read(), key=lambda entry: entry.first_seed)
    assert all(before.last_seed < after.first_seed for before, after in pairwise(entries))
    assert all((entry.first_seed >= ledger.FIRST_FINAL) == entry.final for entry in entries)
    assert all(entry.first_seed >= ledger.FIRST_CHOICE for entry in entries)


def test_the_page_of_the_notebook_is_that_of_the_ledger() -> None:
    text = notebook.PAGE.read_text()
    assert "<!-- ledger -->" in text
    assert insert(text, {"ledger": notebook.table(ledger.read())}) == text
