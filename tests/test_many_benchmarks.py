"""Benchmarks with many parameters and many evaluations."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from optuna.distributions import FloatDistribution, IntDistribution

from benchmarks import levy_async, many, problems
from benchmarks.runner import append, read
from lazybo.demo import levy


def test_a_part_of_the_suite_has_a_bit_of_everything() -> None:
    names = problems.SUITES["many"]
    groups = [(family, f"{dim}d") for family, dim, _ in problems.MANY]
    assert Counter((name.split("-")[0], name.split("-")[2]) for name in names) == {
        (family, f"{dim}d"): len(functions) for family, dim, functions in problems.MANY
    }
    assert len(set(names)) == len(names) == 11 + 11 + 4 * 10 + 5
    assert [(name.split("-")[0], name.split("-")[2]) for name in names[:7]] == groups
    assert len({name.split("-")[1] for name in names[:7]}) >= 6


@pytest.mark.extra
@pytest.mark.parametrize("name", ["mixint-f3-5d", "mixint-f17-10d", "mixint-f24-40d", "largescale-f8-80d"])
def test_the_optimum_of_a_coco_suite_is_attained_and_never_passed(
    name: str, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cocoex import Suite

    monkeypatch.chdir(tmp_path)
    problem = problems.load(name, 2)
    family, number, dim = name.split("-")
    suite = Suite(f"bbob-{family}", "instances:2", f"function_indices:{number[1:]} dimensions:{dim[:-1]}")
    coco = suite.get_problem(0)
    best = dict(zip(problem.space, problems._best_point(coco), strict=True))
    assert list(tmp_path.iterdir()) == []
    assert problem.name == name
    assert problem.objective(best) == problem.optimum
    assert problem.scale > 0
    for _ in range(300):
        point = dict(best)
        key = rng.choice(list(best))
        each = problem.space[key]
        assert isinstance(each, IntDistribution | FloatDistribution)
        step = rng.choice([-1, 1]) if isinstance(each, IntDistribution) else rng.normal() * 10 ** rng.uniform(-4, 0)
        point[key] = min(max(point[key] + step, each.low), each.high)
        assert problem.objective(point) >= problem.optimum


@pytest.mark.extra
def test_four_of_five_parameters_of_mixint_are_integers_with_their_bounds() -> None:
    first, second = (problems.load("mixint-f1-10d", instance) for instance in (1, 2))
    ranges = [(type(each).__name__, each.low, each.high) for each in first.space.values()]  # type: ignore[attr-defined]
    integers = [("IntDistribution", 0, high) for high in (1, 1, 3, 3, 7, 7, 15, 15)]
    assert ranges == [*integers, *[("FloatDistribution", -5.0, 5.0)] * 2]
    assert first.family == "mixint 10-D"
    assert first.optimum == 79.48  # the sphere's, as in bbob
    assert second.optimum != first.optimum


# --------------------------------------------------------------------- many.py


def plan(budget: int, patience: float = np.inf, names: tuple[str, ...] = ("levy-2d",)) -> many.Plan:
    chosen = {name: many.CONTESTANTS[name] for name in ("random", "optuna-tpe-multivariate")}
    return many.Plan(chosen, names, range(2), budget, patience=patience)


def test_only_missing_or_longer_runs_are_run(tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    for budget, rows in ((10, 4), (10, 4), (25, 8), (10, 8)):
        many.run_all(path, plan(budget))
        assert len(read(path)) == rows
    assert [row["budget"] for row in many.longest(read(path)).values()] == ["25"] * 4
    many.run_all(path, plan(25, names=("levy-2d", "rosenbrock-2d")))
    assert len(read(path)) == 12
    text = many.report(path, ours="random")
    assert [line.split(":")[0] for line in text.splitlines() if "log10" in line] == ["| levy", "| rosenbrock", "| all"]
    first, *_ = read(path)
    assert float(first["d10"]) > 0
    assert first["d25"] == ""


def test_a_run_ends_when_the_optimiser_takes_too_long(tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    for _ in range(2):
        many.run_all(path, plan(25, patience=-1.0))
    assert [(row["d10"], row["budget"]) for row in read(path)] == [("", "25")] * 4
    assert "| random | 2 |  |  |  |  | 0.0 |" in many.report(path)


def test_tables_have_means_and_pairs_by_group(tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    values = {
        ("lazybo", "mixint 5-D", 0): (10.0, 1.0, 0.1),
        ("lazybo", "mixint 5-D", 1): (10.0, 100.0, None),
        ("lazybo", "bbob 20-D", 0): (100.0, 10.0, 0.0),
        ("random", "mixint 5-D", 0): (100.0, 10.0, 10.0),
        ("random", "mixint 5-D", 1): (10.0, 10.0, 10.0),
        ("random", "bbob 20-D", 1): (1.0, 1.0, 1.0),
        ("mine", "bbob 20-D", 0): (1000.0, 10.0, 1e-9),
    }
    for (name, family, seed), distances in values.items():
        row = {"problem": f"{family} f1", "family": family, "optimizer": name, "seed": seed, "budget": 200}
        reached = {n: distance for n, distance in zip((50, 100, 200), distances, strict=True) if distance is not None}
        cells = {f"d{n}": distance for n, distance in reached.items()} | {f"s{n}": n / 10 for n in reached}
        append(path, many.FIELDS, row | cells)
    first, second, whole = many.report(path).split("\n\n")
    assert first.startswith("| bbob 20-D: ")
    assert "| lazybo | 1 | 2.00 | 1.00 | -8.00 |  | 20.0 |  |  |" in first
    assert "| mine | 1 | 3.00 | 1.00 | -8.00 |  | 20.0 | 100: 0 : 0 (+0.00) | 200: 0 : 0 (+0.00) |" in first
    assert "| random | 1 | 0.00 | 0.00 | 0.00 |  | 20.0 |  |  |" in first, "no run in common"
    assert "| lazybo | 2 | 1.00 | 1.00 | -1.00 (1) |  | 15.0 |  |  |" in second
    assert "| random | 2 | 1.50 | 1.00 | 1.00 |  | 20.0 | 100: 1 : 1 (+0.00) | 200: 1 : 0 (-2.00) |" in second
    assert "| random | 3 |" in whole
    assert "| lazybo | 1 |" in many.report(path, [1])


# --------------------------------------------------------------- levy_async.py


@dataclass
class Rounds:
    """Points 0, 1, 2, … in rounds of a size: the next round waits for all results of the one before."""

    size: int
    asked: int = 0
    told: list[int] = field(default_factory=list)
    most: int = 0

    def ask(self) -> int | None:
        if self.asked >= self.size * (len(self.told) // self.size + 1):
            return None
        self.asked += 1
        self.most = max(self.most, self.asked - len(self.told))
        return self.asked - 1

    def point(self, task: int) -> np.ndarray:
        return np.full(2, float(task))

    def tell(self, task: int, value: float) -> None:
        assert value == levy(np.full(2, float(task)))
        self.told.append(task)


def test_free_workers_get_the_next_point() -> None:
    source = Rounds(1000)
    done = list(levy_async.simulate(source, 40, 7, 0))
    assert [each.n for each in done] == list(range(1, 41))
    assert sorted(source.told) == list(range(40)) != source.told
    assert (source.asked, source.most) == (40, 7)
    assert done[-1].best == levy(np.ones(2))
    assert all(task < 7 + position for position, task in enumerate(source.told))


def test_workers_wait_for_a_generation() -> None:
    source = Rounds(5)
    assert len(list(levy_async.simulate(source, 13, 7, 0))) == 13
    assert source.most == 5
    assert [sorted(source.told[i : i + 5]) for i in (0, 5, 10)] == [[*range(5)], [*range(5, 10)], [10, 11, 12]]


def test_a_run_has_a_row_for_each_mark_and_is_repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levy_async, "MARKS", (10, 20))
    runs = [list(levy_async.rows("lazybo", 3, 25, 4, 1)) for _ in range(2)]
    assert [row["n"] for row in runs[0]] == [10, 20, 25]
    assert [row["best"] for row in runs[0]] == [row["best"] for row in runs[1]]
    assert set(runs[0][0]) == set(levy_async.FIELDS)
    assert all(float(str(row["peak_mb"])) >= float(str(row["rss_mb"])) > 10 for row in runs[0])


@pytest.mark.extra
def test_cma_es_starts_again_with_a_larger_population() -> None:
    source = levy_async.Cma(2, 0)
    small = source.cma.population_size
    best = [done.best for done in levy_async.simulate(source, 3000, 10, 0)][-1]
    assert source.cma.population_size > small
    assert best < 1e-6
