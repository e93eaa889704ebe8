"""Comparing two variants: the statistics, the seeds, the order of the runs, and what is recorded."""

import json
import queue
import shutil
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_ind

from benchmarks import compare, false_alarms, ledger, notebook, runner, variants
from benchmarks.false_alarms import decided as decided_by
from benchmarks.ledger import Entry
from benchmarks.pairs import Runs, pairs_of
from benchmarks.paper.tables import insert
from benchmarks.sequential import PILOT, Monitor, critical, relative, rounds_needed, spent, stratified
from benchmarks.variants import Variant

FIRST = ledger.FIRST_CHOICE
FAMILIES = {"one": ["p"], "two": ["q", "r"], "five": ["s", "t", "u", "v", "w"]}


def entry_of(**changes: Any) -> Entry:
    a, b = ({"label": label, "options": {}, "optimizer": "", "source": "", "code": label} for label in ("a", "b"))
    given: dict[str, Any] = {"a": a, "b": b, "problems": FAMILIES, "suite": "open", "budget": 25, "at": [25]}
    return Entry(**{"date": "2026-01-01", "why": "Why?", "detect": 0.2, **given, **changes})


# ---------------------------------------------------------------------- statistics


def test_one_family_has_the_interval_of_a_t_test() -> None:
    values = np.random.default_rng(0).standard_normal(12) + 0.3
    expected = ttest_1samp(values, 0).confidence_interval(0.95)
    assert stratified([values]).interval(1.959964) == pytest.approx(tuple(expected), rel=1e-5)


def test_two_families_have_the_interval_of_welchs_test() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal(8), 3 * rng.standard_normal(20)
    expected = np.array(ttest_ind(x, -y, equal_var=False).confidence_interval(0.95)) / 2
    assert stratified([x, y]).interval(1.959964) == pytest.approx(expected, rel=1e-5)


def test_families_have_the_same_weight_however_many_pairs_they_have() -> None:
    a = [np.full(2, 1.0), np.full(50, 1.0)]
    b = [np.full(2, 0.5), np.full(50, 1.0)]
    assert relative(a, b).value == -0.25
    # The difference is relative to the mean of a, so swapping changes its size, but not whether it is there.
    assert relative(b, a).value == pytest.approx(1 / 3)


@pytest.mark.parametrize("times", [[1.0], [0.3, 1.0], [0.02, 0.3, 0.31, 0.7, 1.0], np.linspace(0.1, 1, 10).tolist()])
def test_looks_spend_what_they_may(times: list[float]) -> None:
    rng, bounds = np.random.default_rng(2), np.array(critical(times))
    steps = rng.standard_normal((100_000, len(times))) * np.sqrt(np.diff([0.0, *times]))
    beyond = np.abs(steps.cumsum(axis=1)) / np.sqrt(times) > bounds
    for i, time_ in enumerate(times):
        share = beyond[:, : i + 1].any(axis=1).mean()
        assert share == pytest.approx(spent(time_), abs=4 * np.sqrt(spent(time_) / 1e5) + 2e-4)


def simulated(seed: int, effect: float, detect: float) -> tuple[str, int, int]:
    """The decision on skewed regrets of four unlike families, its rounds, and how many the pilot has asked for."""
    rng, most = np.random.default_rng(seed), 300
    scales = np.array([0.02, 0.1, 0.2, 0.3])[:, None]
    shared = rng.lognormal(0.0, 0.5, (4, most))
    a, b = (factor * scales * shared * rng.lognormal(0.0, 0.4, (4, most)) for factor in (1.0, 1.0 + effect))
    pilot = relative(list(a[:, :PILOT]), list(b[:, :PILOT]))
    return *decided_by(list(a), list(b), detect), rounds_needed(pilot.error, PILOT, detect)


def test_without_a_difference_few_comparisons_find_one() -> None:
    decisions = Counter(simulated(seed, 0.0, 0.2)[0] for seed in range(400))
    assert decisions["better"] + decisions["worse"] <= 0.08 * 400  # 5 % and three standard errors
    assert abs(decisions["better"] - decisions["worse"]) <= 15
    assert decisions["equivalent"] > 200


@pytest.mark.parametrize(("effect", "expected"), [(-0.2, "better"), (0.2, "worse")])
def test_a_difference_is_found_with_the_power_and_the_rounds_that_were_said(effect: float, expected: str) -> None:
    found = [simulated(seed, effect, 0.2) for seed in range(200)]
    decisions = Counter(decision for decision, _, _ in found)
    assert decisions[expected] >= 0.73 * 200  # 80 % and two and a half standard errors
    assert decisions[{"better": "worse", "worse": "better"}[expected]] <= 2
    rounds, said = np.array([(rounds, said) for _, rounds, said in found]).T
    assert rounds.mean() < np.mean(said), "it stops early"
    assert np.quantile(rounds, 0.9) < 2 * np.median(said)


def test_a_large_difference_is_found_sooner() -> None:
    small, large = (np.mean([simulated(seed, effect, 0.2)[1] for seed in range(50)]) for effect in (-0.2, -0.6))
    assert large < small / 2


def test_equal_runs_are_equivalent_as_soon_as_one_may_look() -> None:
    same = [np.array([0.1, 0.2, 0.3, 0.4])] * 3
    assert Monitor(0.1).look(relative(same, same), PILOT) == "equivalent"


def test_there_is_no_look_before_the_one_that_was_said() -> None:
    monitor, rng = Monitor(0.1), np.random.default_rng(3)
    noisy = [rng.lognormal(size=(2, PILOT)) for _ in range(3)]
    assert monitor.look(relative([x[0] for x in noisy], [x[1] for x in noisy]), PILOT) is None
    assert monitor.next_look > PILOT + 1
    assert monitor.look(relative([np.ones(5)] * 3, [np.zeros(5)] * 3), PILOT + 1) is None


def test_runs_that_are_swapped_at_random_have_no_difference(tmp_path: Path) -> None:
    for seed in range(3):
        for name, regret in (("good", 0.1 + seed / 10), ("poor", 0.5)):
            row = {"problem": "p", "family": "f", "optimizer": name, "seed": seed}
            runner.append(
                tmp_path / "open.csv", runner.FIELDS, {**row, **dict.fromkeys(("r25", "r50", "r100"), regret)}
            )
    (pairs,) = false_alarms.recorded(tmp_path / "open.csv", "good", "poor")
    assert pairs == pytest.approx(np.array([[0.1, 0.5], [0.2, 0.5], [0.3, 0.5]]))
    (a,), (b,) = false_alarms.drawn([pairs], 2000, 0.0, np.random.default_rng(0))
    assert a.mean() == pytest.approx(b.mean(), abs=0.02)
    assert set(np.round(a + b, 9)) == {0.6, 0.7, 0.8}


# ------------------------------------------------------------------------- schedule


def test_rounds_are_balanced_and_variants_take_turns() -> None:
    entry = entry_of(first_seed=1000, last_seed=1019)
    rounds = [pairs_of(entry, number) for number in range(20)]
    assert [[pair.family for pair in pairs] for pairs in rounds] == [list(FAMILIES)] * 20
    assert [{pair.seed for pair in pairs} for pairs in rounds] == [{1000 + number} for number in range(20)]
    counts = Counter(pair.problem for pairs in rounds for pair in pairs)
    assert counts == {"p": 20, "q": 10, "r": 10, **dict.fromkeys("stuvw", 4)}
    turns = [[pairs[2].problem for pairs in rounds[start : start + 5]] for start in range(0, 20, 5)]
    assert all(sorted(turn) == FAMILIES["five"] for turn in turns)
    assert len({tuple(turn) for turn in turns}) > 1, "the order is drawn anew"
    for i in range(3):
        assert all(before[i].swapped != after[i].swapped for before, after in pairwise(rounds))
    assert rounds == [pairs_of(entry, number) for number in range(20)]


class Script:
    """A server that gives regrets by label, and notes its runs; it fails at a seed."""

    def __init__(self, fails_at: int = 0) -> None:
        self.runs: list[tuple[str, str, int]] = []
        self.fails_at = fails_at

    def run(self, variant: Variant, problem: str, seed: int, budget: int) -> dict[str, Any]:
        if seed == self.fails_at:
            raise SystemExit("a run failed")
        self.runs.append((variant.label, problem, seed))
        noise = np.random.default_rng((seed, len(variant.label))).uniform(0.8, 1.2)
        regret = noise * (0.1 if variant.label == "good" else 0.5)
        return {"problem": problem, "family": "", "seed": seed, f"r{budget}": regret, f"s{budget}": 1.0}


def decided(entry: Entry, path: Path, server: Any, *, workers: int = 1, limit: float = 60.0) -> Entry:
    free: Any = queue.Queue()
    for _ in range(workers):
        free.put([server, server])
    with Runs(path.parent / f"{entry.first_seed}.csv") as runs:
        rounds = compare.played(entry, runs, [Variant("poor"), Variant("good")], free, time.monotonic() + limit)
        compare.decide(entry, runs, rounds, path)
    return entry


@pytest.mark.parametrize("workers", [1, 3])
def test_a_clear_difference_ends_the_comparison_and_is_recorded(tmp_path: Path, workers: int) -> None:
    path, server = tmp_path / "ledger.jsonl", Script()
    entry = decided(ledger.begin(entry_of(), 50, path), path, server, workers=workers)
    (kept,) = ledger.read(path)
    assert kept == entry
    assert (entry.decision, entry.open, entry.result["rounds"]) == ("better", False, PILOT)
    low, value, high = entry.result["effect"]
    assert low < value < high < 0
    assert value == pytest.approx(-0.8, abs=0.1)
    assert entry.result["stuck"] == [3 * PILOT, 0]
    assert entry.result["families"]["two"]["better"] == PILOT
    assert {seed for _, _, seed in server.runs} <= set(range(entry.first_seed, entry.last_seed + 1))
    assert entry.last_seed < entry.first_seed + 10, "seeds that were not used are given back"
    if workers == 1:
        firsts = [label for label, _, _ in server.runs[:24:2]]
        assert firsts == (["poor", "good", "poor", "good", "poor", "good"] * 2)[:12]
        assert all(x[1:] == y[1:] and x[0] != y[0] for x, y in zip(server.runs[::2], server.runs[1::2], strict=True))


def test_an_interrupted_comparison_goes_on_where_it_was(tmp_path: Path) -> None:
    path, whole = tmp_path / "a" / "ledger.jsonl", Script()
    expected = decided(ledger.begin(entry_of(), 50, path), path, whole)
    path, server = tmp_path / "b" / "ledger.jsonl", Script(fails_at=FIRST + 2)
    with pytest.raises(SystemExit, match="a run failed"):
        decided(ledger.begin(entry_of(), 50, path), path, server)
    file = path.parent / f"{FIRST}.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:12])  # the last line was not finished
    again = Script()
    found = decided(ledger.begin(entry_of(date="2026-01-02"), 50, path), path, again)
    assert (found.result, found.date) == (expected.result, "2026-01-01")
    assert len(ledger.read(path)) == 1
    torn = lines[-1].split(",")
    assert any(torn[0] == problem for _, problem, _ in again.runs), "the pair of the torn line runs again"
    assert len(again.runs) < len(whole.runs), "the others do not"
    rows = runner.read(file)
    assert all(row["r25"] for row in rows)


def test_the_command_says_how_many_rounds_are_needed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    earlier = decided(ledger.begin(entry_of(), 50, path), path, Script())
    entry = ledger.begin(entry_of(detect=0.1), 50, path)
    assert "compared before" in compare.forecast(ledger.read(path), entry)
    low = rounds_needed(earlier.result["spread"], 1, 0.1)
    assert f"needed {low} to {low} rounds of 3 pairs" in compare.forecast(ledger.read(path), entry)
    assert "needed" not in compare.forecast([entry], entry).split("says")[0], "a comparison does not forecast itself"
    entry.result = {"rounds": 10, "needed": 70, "effect": [-0.3, -0.1, 0.1]}
    assert compare.progress(entry, None, 360.0).endswith("70 rounds are needed, but it ends after 50, 4.0 hours more")


def test_a_limit_leaves_a_comparison_open(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    entry = decided(ledger.begin(entry_of(), 50, path), path, Script(), limit=-1.0)
    assert entry.open
    assert entry.result == {}
    assert "has no 4 rounds yet" in compare.report(entry)
    assert ledger.begin(entry_of(), 50, path).first_seed == entry.first_seed


def test_a_comparison_is_run_by_one_command_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "1000.csv"
    with Runs(path), pytest.raises(SystemExit, match="another command is running comparison 1000"):
        Runs(path)
    with Runs(path) as runs:
        assert runs.rows == {}


# --------------------------------------------------------------------------- ledger


def test_no_seed_is_used_twice(tmp_path: Path) -> None:
    path, used = tmp_path / "ledger.jsonl", list[int]()
    for number in range(6):
        entry = ledger.begin(entry_of(budget=25 + number, final=number % 3 == 2), 30, path)
        if number % 2:
            entry.open, entry.last_seed = False, entry.first_seed + 4
            ledger.update(entry, path)
        used += range(entry.first_seed, entry.last_seed + 1)
        assert (entry.first_seed >= ledger.FIRST_FINAL) == entry.final
    assert len(set(used)) == len(used)
    assert min(used) == ledger.FIRST_CHOICE


def test_only_the_same_comparison_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    first = ledger.begin(entry_of(), 30, path)
    renamed = entry_of()
    renamed.a = {**renamed.a, "source": "another commit"}
    assert ledger.begin(renamed, 30, path).first_seed == first.first_seed
    other_code = entry_of()
    other_code.b = {**other_code.b, "code": "changed"}
    assert ledger.begin(other_code, 30, path).first_seed > first.last_seed
    first.open = False
    ledger.update(first, path)
    assert ledger.begin(entry_of(), 30, path).first_seed > first.last_seed


def test_a_damaged_ledger_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger.begin(entry_of(), 30, path)
    whole = path.read_text()
    for text in (whole + whole[:40], "<<<<<<< ours\n" + whole, whole + '{"why": 1}\n'):
        path.write_text(text)
        with pytest.raises(SystemExit, match=r"line [12] of ledger.jsonl is no entry"):
            ledger.begin(entry_of(), 30, path)
        assert path.read_text() == text


def test_the_recorded_comparisons_share_no_seed() -> None:
    entries = sorted(ledger.read(), key=lambda entry: entry.first_seed)
    assert all(before.last_seed < after.first_seed for before, after in pairwise(entries))
    assert all((entry.first_seed >= ledger.FIRST_FINAL) == entry.final for entry in entries)
    assert all(entry.first_seed >= ledger.FIRST_CHOICE for entry in entries)


# ------------------------------------------------------------------------- variants


def test_a_variant_is_options_and_a_source(tmp_path: Path) -> None:
    found = variants.parse("strict noise,priors.length_scale=0.3,n_startup=7,kernel=matern52,lag=null")
    priors = {"noisy_odds": 0.0, "length_scale": 0.3}
    given = {"n_startup": 7, "kernel": "matern52", "lag": None}
    assert found.options == {"priors": priors, "acquisition": "logei", **given}
    assert variants.VARIANTS["strict noise"]["priors"] == {"noisy_odds": 0.0}
    package = tmp_path / "src" / "lazybo"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("one = 1\n")
    first = variants.parse(f"src={tmp_path}/src")
    (package / "__init__.py").write_text("one = 2\n")
    second = variants.parse(f"src={tmp_path}/src,n_startup=7")
    assert first.code != second.code
    assert variants.parse("default").options == first.options == {}
    assert str(tmp_path) not in json.dumps(first.record()), "a folder means nothing elsewhere"
    assert second.record()["label"] == f"n_startup=7, source {second.code}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lag 3", "'lag 3' is no variant: expected option=value, src=FOLDER, or one of 'default'"),
        ("src=/nowhere", "must contain the package lazybo"),
        ("optuna-tpe,n_startup=3", "optuna-tpe takes no options"),
    ],
)
def test_what_is_no_variant_says_so(text: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        variants.parse(text)


# -------------------------------------------------------------------------- command


def command(monkeypatch: pytest.MonkeyPatch, path: Path, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["compare", *words, "--ledger", str(path)])
    compare.main()


def test_two_source_trees_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other = tmp_path / "ledger.jsonl", tmp_path / "other"
    shutil.copytree(variants.OURS, other)
    optimizer = other / "lazybo" / "search" / "optimizer.py"
    optimizer.write_text(optimizer.read_text() + "\n# another version\n")
    settings = ["--problems", "levy-2d", "rosenbrock-2d", "--budget", "10", "--rounds", "20"]
    command(monkeypatch, path, "default", f"src={other}", "--why", "Is it the same?", *settings)
    assert "equivalent" in capsys.readouterr().out
    (entry,) = ledger.read(path)
    assert (entry.decision, entry.result["pairs"], entry.result["effect"]) == ("equivalent", 2 * PILOT, [0.0, 0.0, 0.0])
    assert entry.a["code"] != entry.b["code"]
    command(monkeypatch, path, "default", "random", *settings, "--rounds", "4")
    assert "| rosenbrock |" in capsys.readouterr().out
    first, second = ledger.read(path)
    assert second.first_seed > first.last_seed
    assert (second.b["optimizer"], second.result["rounds"]) == ("random", 4)
    command(monkeypatch, path, "default", "random", "--only-report")
    assert f"Comparison {second.first_seed}: {second.decision}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["default", "n_startups=3"], "'n_startups=3' cannot be run: .*n_startups"),
        (["default", "lag=1", "--problems", "nothing-2d"], "problem 'nothing-2d' cannot be loaded"),
        (["default", "lag=1", "--budget", "40", "--at", "50"], r"--at must be among \[5, 10, 15, 25, 40\]"),
        (["default", "lag=1", "--budget", "4"], "--at must be among"),
        (["default", "lag=1", "--detect", "10"], "--detect must be a share between 0 and 1"),
        (["default", "lag=1", "--rounds", "3"], "--rounds must be at least 4"),
        (["default", "lag=1", "--only-report"], "the ledger has no comparison of 'default' with 'lag=1'"),
    ],
)
def test_wrong_input_is_one_sentence(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=message):
        command(monkeypatch, tmp_path / "ledger.jsonl", *words)
    assert not (tmp_path / "ledger.jsonl").exists(), "no seeds are taken"


# ------------------------------------------------------------------------- notebook


def test_the_notebook_has_what_the_ledger_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, page = tmp_path / "ledger.jsonl", tmp_path / "notebook.md"
    page.write_text("before\n\n<!-- ledger -->\n\n<!-- /ledger -->\n\nafter\n")
    notebook.write(path, page)
    assert "No comparison is recorded yet." in page.read_text()
    entry = decided(ledger.begin(entry_of(why="Is good | poor?"), 50, path), path, Script())
    words = ["--conclude", str(entry.first_seed), "Good is kept."]
    monkeypatch.setattr(sys, "argv", ["notebook", *words, "--ledger", str(path), "--page", str(page)])
    notebook.main()
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {FIRST}, 2026-01-01 |")]
    assert r"| Is good \| poor? *Good is kept.* | a | b |" in line
    assert f"12 pairs, seeds {FIRST} to {FIRST + 3}" in line
    assert "| 12 → 0 | **better**: -" in line
    with pytest.raises(SystemExit, match="the ledger has no comparison 7"):
        ledger.find(ledger.read(path), 7)


def test_the_page_of_the_notebook_is_that_of_the_ledger() -> None:
    text = notebook.PAGE.read_text()
    assert "<!-- ledger -->" in text
    assert insert(text, {"ledger": notebook.table(ledger.read())}) == text
