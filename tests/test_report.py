"""Tables of the suite `trainings`, in which families have equal weights and slow optimisers only some runs."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import records, report
from benchmarks.problems import SUITES, family
from benchmarks.records import ENOUGH, Course, Run, Suite
from benchmarks.runner import FIELDS, append, balanced

FAMILIES = {"svm-wine": "svm", "svm-moons": "svm", "mlp-wine": "mlp", "finals-car": "finals"}
VALUES = st.dictionaries(
    st.tuples(st.sampled_from(sorted(FAMILIES)), st.integers(0, 5)), st.floats(0.0, 5.0), min_size=1
)


@given(VALUES)
def test_families_have_equal_weights(values: Mapping[Run, float]) -> None:
    by_family = [[v for (p, _), v in values.items() if FAMILIES[p] == name] for name in ("svm", "mlp", "finals")]
    naive = np.mean([sum(own) / len(own) for own in by_family if own])
    assert Suite({}, FAMILIES, equal=True).mean(values, values.values()) == pytest.approx(naive)
    assert Suite({}, FAMILIES).mean(values, values.values()) == pytest.approx(np.mean(list(values.values())))


def course(end: float, n: int = 100) -> Course:
    return Course({25: 2 * end, n: end}, {25: 0.5, n: 2.0})


def suite_of(ends: Mapping[str, Mapping[Run, Course]]) -> Suite:
    return Suite({name: dict(own) for name, own in ends.items()}, FAMILIES, equal=True)


def cells(table: str, name: str) -> list[str]:
    (line,) = (line for line in table.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_a_pair_is_compared_on_the_runs_that_both_have() -> None:
    ours = {(p, seed): course(0.1 * (seed + 1)) for p in FAMILIES for seed in range(ENOUGH)}
    theirs = {
        ("svm-wine", 0): course(0.4),
        ("svm-wine", 1): course(0.1),
        ("svm-moons", 0): course(0.3),
        ("mlp-wine", 1): course(0.6),
        ("finals-car", 0): course(0.9),
        ("finals-car", 99): course(50.0),  # ours has no such run
    }
    text = report.trainings(suite_of({"lazybo": ours, "ax": theirs}))
    means, pairs, won, managed = text.split("\n\n")
    assert "ax" not in means, "it has too few runs"
    # svm 0.1, 0.2, 0.1 and 0.4, 0.1, 0.3; mlp 0.2 and 0.6; finals 0.1 and 0.9
    a, b = np.mean([0.4 / 3, 0.2, 0.1]), np.mean([0.8 / 3, 0.6, 0.9])
    assert cells(pairs, "ax") == ["5", f"{2 * a:.4f} / {2 * b:.4f}", f"{a:.4f} / {b:.4f}"]
    assert cells(won, "ax")[-1].startswith("4 : 1 (")
    # seeds, families, then runs and seconds after 25, 50 and 100
    assert cells(managed, "ax") == ["3", "3", "6", "0.5", "0", "", "6", "2"]


def test_a_peer_without_runs_of_a_family_is_not_compared() -> None:
    ours = {(p, seed): course(0.1) for p in FAMILIES for seed in range(ENOUGH)}
    theirs = {run: course(0.2) for run in ours if FAMILIES[run[0]] != "mlp"}
    longer = {run: course(0.2, 100 if run[0] == "mlp-wine" else 50) for run in ours}
    text = report.trainings(suite_of({"lazybo": ours, "ax": theirs, "hebo": longer}))
    _, pairs, won, managed = text.split("\n\n")
    assert "ax" not in pairs + won
    assert cells(managed, "ax")[:3] == [str(ENOUGH), "2", str(len(theirs))]
    assert cells(pairs, "hebo") == [str(len(ours)), "0.2000 / 0.4000", ""], "after 100 only one family"


def test_the_table_of_means_has_the_runs_of_all_its_optimisers() -> None:
    ours = {(p, seed): course(0.1 + 0.1 * seed) for p in FAMILIES for seed in range(ENOUGH + 2)}
    theirs = {run: course(0.31 if FAMILIES[run[0]] == "svm" else 0.01) for run in ours if run[1] >= 2}
    suite = suite_of({"lazybo": ours, "random": theirs})
    ((names, runs),) = suite.groups()
    assert names == ["lazybo", "random"]
    assert set(runs) == set(theirs)
    means, *_ = report.trainings(suite).split("\n\n")
    assert f"({len(FAMILIES)} problems, {len(theirs)} runs)" in means
    assert cells(means, "random") == ["0.2200", "0.1100", "33 %", "2"]
    by_family = report.by_family(suite).split("\n\n")
    assert f"svm ({2 * ENOUGH})" in by_family[-1]
    assert cells(by_family[-1], "random") == ["0.310", "0.010", "0.010"]


def test_without_runs_of_ours_there_is_nothing_to_compare() -> None:
    suite = suite_of({"random": {(p, seed): course(0.1) for p in FAMILIES for seed in range(ENOUGH)}})
    assert suite.groups() == []
    assert report.trainings(suite) == report.by_family(suite) == ""


def record(path: Path, names: Iterable[Run], ends: Mapping[str, float]) -> None:
    for name, seed in names:
        for optimizer, end in ends.items():
            row = {"problem": name, "family": family(name), "optimizer": optimizer, "seed": seed}
            append(path, FIELDS, {**row, **{f"{kind}{n}": end for kind in "rs" for n in (25, 50, 100)}})


def test_the_short_table_has_the_optimisers_that_both_suites_have(tmp_path: Path) -> None:
    runs = balanced(SUITES["trainings"], range(1_000_000, 1_000_010), ENOUGH)
    record(tmp_path / "trainings.csv", runs, {"lazybo": 0.1, "optuna-tpe": 0.2, "nevergrad": 0.4})
    both = {"lazybo": 0.01, "optuna-tpe": 0.03, "optuna-cmaes": 0.05}
    record(tmp_path / "open.csv", [(name, 0) for name in SUITES["open"]], both)
    assert records.load(tmp_path / "trainings.csv").equal
    assert not records.load(tmp_path / "open.csv").equal
    short = report.tables(tmp_path)["short"]
    assert cells(short, "lazybo") == ["0.100"] * 3 + ["0.010"] * 3 + ["", ""]
    assert cells(short, "optuna-tpe") == ["0.200"] * 3 + ["0.030"] * 3 + ["", ""]
    assert len(short.splitlines()) == 4, "the others have runs of one suite only"
