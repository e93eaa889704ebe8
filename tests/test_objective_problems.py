"""The benchmark problems with several objectives and constraints: their fronts and optima are those that they claim."""

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest

from benchmarks import lcbench
from benchmarks.objective_problems import Measured, Problem, load, weights_bound, weights_front

MIDDLE = {f"x{i}": 0.5 for i in range(6)}
LOWEST = {f"x{i}": 0.0 for i in range(6)}


def share(problem: Problem, found: list[Measured]) -> float:
    """The share of the largest hypervolume that these evaluations have."""
    return 1.0 - problem.regret(found)


@pytest.mark.parametrize("name", ["ZDT1", "ZDT3"])
def test_the_front_of_zdt_has_the_published_hypervolume(name: str) -> None:
    problem = load(name)
    found = [problem.evaluate({**LOWEST, "x0": float(x)}) for x in np.linspace(0, 1, 2001)]
    assert share(problem, found) == pytest.approx(1.0, abs=1e-4)


def test_the_front_of_dtlz2_has_the_published_hypervolume() -> None:
    problem = load("DTLZ2")
    grid = np.linspace(0, 1, 25)
    found = [problem.evaluate({**MIDDLE, "x0": float(a), "x1": float(b)}) for a in grid for b in grid]
    assert 0.93 < share(problem, found) < 1.0
    assert all(math.hypot(*each.values) == pytest.approx(1.0) for each in found)


def test_the_feasible_front_of_c2dtlz2_has_the_published_hypervolume() -> None:
    problem = load("C2DTLZ2")
    found = [problem.evaluate({**MIDDLE, "x0": float(x)}) for x in np.linspace(0, 1, 4001)]
    assert share(problem, found) == pytest.approx(1.0, abs=2e-3)
    assert 0 < sum(each.feasible for each in found) < len(found)


@pytest.mark.parametrize(
    ("name", "least"), [("BraninCurrin", 0.99), ("ConstrainedBraninCurrin", 0.98), ("VehicleSafety", 0.9)]
)
def test_many_random_points_come_near_to_the_published_hypervolume(name: str, least: float) -> None:
    problem, rng = load(name), np.random.default_rng(0)
    draws = np.clip(rng.uniform(-0.1, 1.1, (60_000, len(problem.space))), 0.0, 1.0)
    found = [problem.evaluate({f"x{i}": float(x) for i, x in enumerate(draw)}) for draw in draws]
    assert least < share(problem, found) <= 1.0


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("Gardner", 0.7704346, 0.97489466),
        ("GardnerNarrow", 0.78537137, 0.20887266),
        ("Gramacy", 0.19510658, 0.40468149),
    ],
)
def test_the_optimum_is_at_the_edge_of_what_is_feasible(name: str, x: float, y: float) -> None:
    problem = load(name)
    near = [problem.evaluate({"x0": x + dx, "x1": y + dy}) for dx in (-1e-4, 0.0, 1e-4) for dy in (-1e-4, 0.0, 1e-4)]
    best = min(each.values[0] for each in near if each.feasible)
    assert best == pytest.approx(problem.best, abs=1e-3)
    assert best >= problem.best - 1e-9
    assert not all(each.feasible for each in near)


# -------------------------------------------------------------------- LCBench


@pytest.fixture
def trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of made-up trainings in the place of the real one: wider networks are better and larger."""
    rng = np.random.default_rng(0)
    low = np.array([float(each.low) for each in lcbench.LCBENCH.values()])  # type: ignore[attr-defined]
    high = np.array([float(each.high) for each in lcbench.LCBENCH.values()])  # type: ignore[attr-defined]
    configs = low + rng.random((300, len(low))) * (high - low)
    units = configs[:, list(lcbench.LCBENCH).index("max_units")]
    np.savez(
        tmp_path / "lcbench_finals.npz",
        names=np.array(["made up"]),
        columns=np.array(list(lcbench.LCBENCH)),
        configs=configs[None],
        val_accuracy=(60 + 30 * units / 1024)[None],
        parameters=(100 * units).astype(int)[None],
    )
    monkeypatch.setenv("LAZYBO_CURVES", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(lcbench, "DRAWS", 300)
    monkeypatch.setattr(lcbench, "ROUNDS", 3)
    monkeypatch.setattr(lcbench, "finals", lcbench.Finals)
    return "made up"


def test_the_surrogate_of_lcbench_has_error_and_weights_of_the_trainings(trainings: str) -> None:
    free, bounded = weights_front(trainings), weights_bound(trainings)
    small, large = ({name: d.low for name, d in free.space.items()} | {"max_units": n} for n in (64, 1000))  # type: ignore[attr-defined]
    errors, weights = zip(*(free.evaluate(params).values for params in (small, large)), strict=True)
    assert errors[0] > errors[1] + 10
    assert weights == pytest.approx([math.log10(6400), math.log10(100_000)], abs=0.1)
    assert [bounded.evaluate(params).feasible for params in (small, large)] == [True, False]
    assert 0.1 < free.regret([free.evaluate(small), free.evaluate(large)]) < 1, "no point beats both medians"
    between = [free.evaluate({**small, "max_units": n}) for n in range(64, 1001, 8)]
    assert free.regret(between) < 0.1
    assert bounded.regret([bounded.evaluate(small)]) > 0
