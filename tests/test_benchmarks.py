"""The benchmarks' own parts that numbers rest on."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from benchmarks import curves, failures, guard, report, resume
from benchmarks.optimizers import OPTIMIZERS, Peer, peer
from benchmarks.paper.tables import insert
from benchmarks.peers.encoding import UnitCube
from benchmarks.problems import family
from benchmarks.problems import load as load_problem
from benchmarks.runner import play, read

ROOT = Path(__file__).parents[1]


def test_memory_grows_like_the_triangle() -> None:
    command = [sys.executable, "-m", "benchmarks.engine", "--grow", "3000"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    grown = json.loads(output.stdout)
    assert grown["n"] == 3001
    assert grown["peak_gb"] < 3 * grown["triangle_gb"]


# -------------------------------------------------------------------------- peers

SPACE = {
    "x": FloatDistribution(1e-3, 10.0, log=True),
    "i": IntDistribution(0, 9),
    "c": CategoricalDistribution(["sgd", "adam", None]),
    "y": FloatDistribution(-5.0, 5.0),
    "two": IntDistribution(1, 2),
    "units": IntDistribution(16, 1024, log=True),
}

RANDOM_PEER = """
import random
from benchmarks.peers.protocol import serve

class Random:
    def __init__(self, space, seed, budget):
        self.space, self.random, self.told = space, random.Random(seed), 0
        print("a library that talks")

    def ask(self):
        return [self.draw(*parameter) for parameter in self.space]

    def draw(self, kind, *rest):
        if kind == "choice":
            return self.random.randrange(rest[0])
        return self.random.randint(rest[0], rest[1]) if kind == "int" else self.random.uniform(rest[0], rest[1])

    def tell(self, points, values):
        self.told += len(points)
        if self.told == 8:
            raise SystemExit(3)

serve(Random, "random 1.0")
"""


def objective(params: Mapping[str, Any]) -> float:
    return float(np.log10(params["x"]) ** 2 + (params["i"] - 4) ** 2 + (params["c"] != "adam") + params["y"] ** 2)


def check_point(params: Mapping[str, Any]) -> None:
    assert list(params) == list(SPACE)
    assert params["c"] in ("sgd", "adam", None)
    for name, each in SPACE.items():
        if not isinstance(each, CategoricalDistribution):
            assert isinstance(params[name], int if isinstance(each, IntDistribution) else float)
            assert each.low <= params[name] <= each.high


def test_a_peer_is_a_program_that_answers() -> None:
    peer = Peer([sys.executable, "-c", RANDOM_PEER], SPACE, 0, 20)
    assert peer.version == "random 1.0"
    for _ in range(3):
        (task,) = peer.ask(1)
        check_point(task.params)
        peer.tell(task, objective(task.params))
    peer.load([task.params] * 4, [1.0] * 4)
    # The clock of a process has steps of 10 ms: it runs until one is over.
    assert any(peer.ask(1) and peer.seconds() > 0 for _ in range(10_000))
    with pytest.raises(RuntimeError, match="ended with exit code 3"):
        peer.tell(task, 1.0)


@pytest.mark.extra
@pytest.mark.parametrize("name", ["botorch", "bayesopt", "cmaes", "skopt"])
def test_peers_run_on_a_mixed_space(name: str) -> None:
    peer = Peer([sys.executable, "-m", f"benchmarks.peers.{name}"], SPACE, 0, 20)
    values = []
    for _ in range(16):
        (task,) = peer.ask(1)
        check_point(task.params)
        values.append(objective(task.params))
        peer.tell(task, values[-1])
    assert min(values) < np.median(values[:8])


def test_a_peer_that_is_not_installed_says_what_to_do() -> None:
    with pytest.raises(SystemExit, match="make peers"):
        peer("nobody")(SPACE, 0, 20)


def test_the_cube_of_peers_is_there_and_back() -> None:
    cube = UnitCube([["float", 1e-3, 10.0, True], ["int", 0, 9, False], ["choice", 3], ["int", 1, 1, False]])
    assert cube.width == 6
    assert cube.encode([0.1, 9, 1, 1]) == pytest.approx([0.5, 1.0, 0.0, 1.0, 0.0, 0.5])
    assert cube.decode([0.5, 0.96, 0.2, 0.9, 0.3, 0.7]) == pytest.approx([0.1, 9, 1, 1])
    indices = UnitCube(cube.space, one_hot=False)
    assert indices.width == 4
    assert indices.decode(indices.encode([0.1, 9, 2, 1])) == pytest.approx([0.1, 9, 2, 1])


# ------------------------------------------------------------------ runs and report


def test_a_step_has_the_regret_without_the_noise() -> None:
    noisy = load_problem("levy-2d~0.5", 1)
    steps = list(play(noisy, OPTIMIZERS["random"](noisy.space, 0, 40), 40, seed=0))
    assert [step.n for step in steps] == list(range(1, 41))
    assert all(step.regret >= 0 for step in steps)
    assert np.diff([step.seconds for step in steps]).min() >= 0
    assert np.diff([step.regret for step in steps]).max() > 0, "noise misleads: the best value seen is not the best"


@pytest.mark.parametrize("suite", ["open", "dimension", "many", "trainings"])
def test_the_family_of_a_problem_is_known_before_it_is_loaded(suite: str) -> None:
    recorded = {row["problem"]: row["family"] for row in read(ROOT / "benchmarks" / "results" / f"{suite}.csv")}
    assert recorded
    assert {name: family(name) for name in recorded} == recorded


def test_the_tables_of_the_documents_are_those_of_the_records() -> None:
    texts, found = [document.read_text() for document in report.DOCUMENTS], report.tables()
    assert [name for name in found if not any(f"<!-- {name} -->" in text for text in texts)] == []
    assert [insert(text, found) == text for text in texts] == [True] * len(texts)


# -------------------------------------------------------------------------- guard


@pytest.mark.parametrize("n", guard.WORK)
def test_a_step_does_no_more_work_than_it_did(n: int) -> None:
    measured = guard.work(n)
    assert {key: value for key, value in measured.items() if not guard.WORK[n][key].holds(value)} == {}


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


def test_problems_of_curves_need_their_data(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="name the folder with --data"):
        curves.data_folder(tmp_path)


@pytest.mark.parametrize("kind", failures.KINDS)
def test_a_part_of_a_problem_fails_and_nothing_else_is_better_than_its_optimum(kind: str) -> None:
    problem, rng = failures.Failing("levy-2d", kind, 0), np.random.default_rng(1)
    drawn = [problem.observed({"x0": float(x), "x1": float(y)}, rng) for x, y in rng.uniform(-10, 10, (3000, 2))]
    values = [value for value in drawn if value is not None]
    expected = failures.CRASHES if kind == "crashes" else failures.SHARE
    assert 1 - len(values) / len(drawn) == pytest.approx(expected, abs=0.03)
    assert min(values) >= problem.optimum
    assert problem.regret(float(np.median(values))) == pytest.approx(1.0, abs=0.1)
