"""Benchmarks with many parameters and many evaluations."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from optuna.distributions import FloatDistribution, IntDistribution

from benchmarks import problems


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
