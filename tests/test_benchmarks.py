"""The benchmarks' own parts that numbers rest on."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from benchmarks import cost, curves, failures, guard, parallel, report, resume
from benchmarks.optimizers import OPTIMIZERS, Peer, peer
from benchmarks.paper.tables import insert
from benchmarks.peers.encoding import UnitCube
from benchmarks.problems import Problem, family, levy
from benchmarks.problems import load as load_problem
from benchmarks.runner import append, balanced, play, read, run_all

ROOT = Path(__file__).parents[1]


def test_memory_grows_like_the_triangle() -> None:
    command = [sys.executable, "-m", "benchmarks.engine", "--grow", "3000"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    grown = json.loads(output.stdout)
    assert grown["n"] == 3001
    assert grown["peak_gb"] < 3 * grown["triangle_gb"]


@dataclass
class Script:
    """Tasks 0, 1, 2, …; of each it keeps how many values had been told when it was asked for."""

    known: list[int] = field(default_factory=list)
    told: list[int] = field(default_factory=list)

    def ask(self, n: int) -> list["Script.Task"]:
        self.known += [len(self.told)] * n
        return [Script.Task({"task": len(self.known) - n + i}) for i in range(n)]

    def tell(self, task: "Script.Task", _value: float, /) -> None:
        self.told.append(task.params["task"])

    @dataclass
    class Task:
        params: dict[str, Any]


def scripted(seconds: list[float], values: list[float]) -> parallel.Simulation:
    """The target of regret 0 is the task of value 0."""
    times = dict(enumerate(seconds))
    script = Problem(
        "script", "script", {}, lambda p: values[p["task"]], 0.0, 1.0, lambda p: times.get(p["task"], 100.0)
    )
    return parallel.Simulation(script, Script(), {1: 0.5, 2: 0.0}, budget=6)


def test_a_round_of_workers_ends_with_its_slowest() -> None:
    run = scripted([5, 1, 2, 3, 1, 1], [3, 2, 0.5, 1, 1, 0])
    parallel.synchronous(run, 2)
    assert (run.result(1).time, run.result(1).evaluations) == (8, 4)
    assert (run.result(2).time, run.result(2).evaluations) == (9, 6)
    assert run.contestant.known[:6] == [0, 0, 2, 2, 4, 4]


@pytest.mark.parametrize("ahead", [False, True])
def test_a_free_worker_gets_the_next_suggestion_at_once(ahead: bool) -> None:
    run = scripted([5, 1, 2, 3, 1, 1], [3, 2, 0.5, 1, 1, 0])
    parallel.asynchronous(run, 2, ahead=ahead)
    script: Any = run.contestant
    # Worker 0: task 0 to 5, 4 to 6, ...; worker 1: task 1 to 1, 2 to 3, 3 to 6, ...
    assert script.told == [1, 2, 0, 3, 4, 5] or script.told == [1, 2, 0, 4, 3, 5]
    assert (run.result(1).time, run.result(1).evaluations) == (3, 2)
    assert (run.result(2).time, run.result(2).evaluations) == (7, 6)
    assert script.known[:5] == ([0, 0, 0, 1, 2] if ahead else [0, 0, 1, 2, 3])


def test_the_optimisers_time_is_on_the_clock_only_if_wanted() -> None:
    ends = []
    for with_optimiser in (False, True):
        run = scripted([5, 1, 2, 3, 1, 1], [3, 2, 0.5, 1, 1, 0])
        run.with_optimiser = with_optimiser
        parallel.synchronous(run, 2)
        ends.append(run.now - (run.spent if with_optimiser else 0.0))
    assert ends == pytest.approx([9, 9], abs=1e-9)


def test_batches_of_ours_differ_only_in_rounds() -> None:
    runs = [
        parallel.simulate(levy(2), parallel.Arm("lazybo", "async", batch, 4), 0, {1: 0.0}, 16, "training")
        for batch in ("maxima", "fantasy")
    ]
    assert runs[0].best == runs[1].best


def test_parallel_runs_are_resumed_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(parallel.TARGETS, "levy-2d", {100: 0.5, 200: 0.0})
    chosen = [arm for name in ("lazybo", "optuna-tpe") for arm in parallel.arms(name, ["async", "sync"], [1, 3])]
    path = tmp_path / "parallel.csv"
    for seeds in (range(1), range(2)):
        parallel.run_all(path, chosen, ["levy-2d"], seeds, 12, "training", np.inf)
    rows = parallel.read(path)
    assert len(rows) == 2 * 2 * len(chosen)
    assert all(row["reached"] == "0" and row["evaluations"] == "12" for row in rows if row["target"] == "200")
    printed = parallel.report(path, "training")
    assert "| lazybo sync maxima" in printed
    assert "(2 of 2 not)" in printed


def test_runs_that_never_get_there_are_later_than_all_others() -> None:
    there, not_there = parallel.Reached(True, 2.0, 20, 0.0), parallel.Reached(False, 1.0, 10, 0.0)
    assert parallel.median([there, there, not_there]) == parallel.Median(2.0, 20.0, False, 1, 3)
    assert parallel.median([there, not_there, not_there]).bound
    slower = parallel.speed_up([there], [not_there], 5)
    assert (slower.time, slower.rounds, slower.sign) == (2.0, 10.0, "<")


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


def test_runs_are_resumed_and_compared(tmp_path: Path) -> None:
    path = tmp_path / "open.csv"
    chosen = {name: OPTIMIZERS[name] for name in ("lazybo", "random")}
    run_all(path, chosen, ["levy-2d"], range(1), 25)
    first = path.read_text()
    run_all(path, chosen, ["levy-2d", "rosenbrock-2d"], range(2), 25)
    assert path.read_text().startswith(first)
    assert len(read(path)) == 8
    run_all(path, {"optuna-tpe": OPTIMIZERS["optuna-tpe"]}, ["levy-2d", "rosenbrock-2d"], range(1), 25)
    suite = report.load(path)
    assert [(names, len(runs)) for names, runs in suite.groups()] == [
        (["lazybo", "random"], 4),
        (["lazybo", "optuna-tpe", "random"], 2),
    ]
    text = report.tables(tmp_path)
    assert "| mean regret (2 problems, 2 seeds) | 25 | 50 | 100 | 200 |" in text["evaluations"]
    ends = {(row["optimizer"], row["problem"], row["seed"]): float(row["r25"]) for row in read(path)}
    pairs = [(ends["lazybo", *key], end) for (label, *key), end in ends.items() if label == "random"]
    better, worse = sum(ours < theirs for ours, theirs in pairs), sum(ours > theirs for ours, theirs in pairs)
    assert better > worse
    assert f"{better} : {worse} (" in text["evaluations"]
    assert text["clock"].count("\n| lazybo") == 2


def test_rounds_have_one_problem_of_each_family() -> None:
    names, seeds = ["bbob-f1-5d", "levy-5d", "bbob-f3-5d", "bbob-f1-2d"], [7, 8]
    every = balanced(names, seeds, 4)
    assert sorted(every) == sorted((name, seed) for name in names for seed in seeds), "each pair once"
    assert every[:3] == [("bbob-f1-5d", 7), ("levy-5d", 7), ("bbob-f1-2d", 7)]
    assert every[3:6] == [("bbob-f3-5d", 8), ("levy-5d", 8), ("bbob-f1-2d", 8)]
    assert balanced(names, seeds, 1) == every[:3], "fewer rounds are the first ones"
    assert balanced(names, seeds, 9) == every


@pytest.mark.parametrize("suite", ["open", "dimension", "many", "trainings"])
def test_the_family_of_a_problem_is_known_before_it_is_loaded(suite: str) -> None:
    recorded = {row["problem"]: row["family"] for row in read(ROOT / "benchmarks" / "results" / f"{suite}.csv")}
    assert recorded
    assert {name: family(name) for name in recorded} == recorded


def test_regret_by_the_clock_counts_what_was_done_by_then() -> None:
    course = report.Course({5: 0.5, 10: 0.1}, {5: 1.0, 10: 20.0})
    assert course.at(0.0, 0.0) == 1.0
    assert course.at(1.0, 0.0) == pytest.approx(0.5)
    assert course.at(6.0, 1.0) == pytest.approx(0.5)
    assert course.at(18.0, 1.0) == pytest.approx(np.sqrt(0.5 * 0.1))
    assert course.at(30.0, 1.0) == course.at(99.0, 1.0) == pytest.approx(0.1)


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


def test_losses_of_curves_are_scaled_and_clipped() -> None:
    losses = np.array([[2.0, 1.0, np.nan], [4.0, 100.0, 2.0], [3.0, np.inf, 3.0]])
    assert curves.scaled_losses(losses, 2.0) == pytest.approx(
        np.array([[2 / 3, 1 / 3, 2], [4 / 3, 2, 2 / 3], [1, 2, 1]])
    )


def falling(params: Mapping[str, Any]) -> Iterator[float]:
    """The curve of x falls from 1 + x to x."""
    for step in range(4):
        yield params["x"] + 1 - step / 3


# A peer that trains each configuration to its second epoch, and then to its end.
HALVES = """
import random
from benchmarks.peers.curve_protocol import serve

class Halves:
    def __init__(self, space, seed, steps):
        self.random, self.steps, self.asked, self.told = random.Random(seed), steps, 0, []

    def ask(self):
        number, second = divmod(self.asked, 2)
        if not second:
            self.point = [self.random.random()]
        self.asked += 1
        return number, self.point, self.steps if second else 2

    def tell(self, values):
        assert len(values) == 2, "only new epochs are told"

serve(Halves, "halves 1.0")
"""


def test_a_run_on_curves_counts_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = curves.CurveProblem("taskset-x", {"x": FloatDistribution(0, 1)}, "minimize", 4, falling)
    command = [sys.executable, "-c", HALVES]
    monkeypatch.setattr(curves, "peer_command", lambda *_: command)
    labels = ("random + no pruning", "random + LazyPruner", curves.ONE_EPOCH, "DEHB")
    for label in labels:
        row = curves.run_one(problem, label, 0, 10)
        append(tmp_path / "c.csv", curves.FIELDS, row)
        assert float(str(row["b10"])) <= float(str(row["b5"]))
        assert "b20" not in row
    rows = {row["optimizer"]: row for row in read(tmp_path / "c.csv")}
    assert rows["random + no pruning"]["trials"] == rows["DEHB"]["finished"] == "10"
    assert int(rows["random + LazyPruner"]["trials"]) > 10
    table = curves.report(tmp_path / "c.csv", [0])
    assert "| random + no pruning | 1 | 1.000 |" in table
    assert all(label in table for label in labels)


def test_pairs_of_runs_on_curves_are_counted(tmp_path: Path) -> None:
    values = {curves.PAUSING: [3.0, 2.0], "DEHB": [4.0, 1.0], "TPE + ASHA": ["", 2.0]}
    for label, found in values.items():
        for seed, value in enumerate(found):
            row = {"problem": "taskset-0", "optimizer": label, "seed": seed, "b5": value}
            append(tmp_path / "c.csv", curves.FIELDS, {**dict.fromkeys(curves.FIELDS, ""), **row})
    _, _, dehb, asha = curves.pairs(tmp_path / "c.csv", [0, 1]).splitlines()
    assert dehb.startswith("| DEHB | 1 / 1 | 0 / 0 |")
    assert asha.startswith("| TPE + ASHA | 1 / 0 | 0 / 0 |")


class Listed:
    """Suggests 0, 1, 2, ... and notes what it is asked and told."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.told: list[int] = []

    def ask(self, left: float) -> Any:
        self.asked.append(left)
        return SimpleNamespace(params={"x": len(self.asked) - 1})

    def tell(self, task: Any, value: float, seconds: float, /) -> None:
        assert (value, seconds) == (-task.params["x"], [5.0, 1.0, 2.0][task.params["x"] % 3])
        self.told.append(task.params["x"])


def test_the_virtual_clock_has_asynchronous_workers() -> None:
    times = [5.0, 1.0, 2.0]
    problem = Problem("p", "p", {}, lambda p: -p["x"], -10.0, 10.0, lambda p: times[p["x"] % 3])
    two, one = Listed(), Listed()
    # Worker 1 has 0 until 5, then 4 until 6, then 5; worker 2 has 1 until 1, then 2 until 3, then 3 until 8.
    ends = list(cost.played(problem, two, 2, 8.0))
    assert two.told == [1, 2, 0, 4, 3, 5]
    assert [clock for clock, _ in ends] == [1.0, 3.0, 5.0, 6.0, 8.0, 8.0]
    assert [round(10 * regret) for _, regret in ends] == [9, 8, 8, 6, 6, 5]
    assert two.asked == [1.0, 1.0, 7 / 8, 5 / 8, 3 / 8, 2 / 8]
    assert [clock for clock, _ in cost.played(problem, one, 1, 8.5)] == [5.0, 6.0, 8.0]
    assert one.told == [0, 1, 2], "3 has not ended in time"


@pytest.mark.parametrize("kind", failures.KINDS)
def test_a_part_of_a_problem_fails_and_nothing_else_is_better_than_its_optimum(kind: str) -> None:
    problem, rng = failures.Failing("levy-2d", kind, 0), np.random.default_rng(1)
    drawn = [problem.observed({"x0": float(x), "x1": float(y)}, rng) for x, y in rng.uniform(-10, 10, (3000, 2))]
    values = [value for value in drawn if value is not None]
    expected = failures.CRASHES if kind == "crashes" else failures.SHARE
    assert 1 - len(values) / len(drawn) == pytest.approx(expected, abs=0.03)
    assert min(values) >= problem.optimum
    assert problem.regret(float(np.median(values))) == pytest.approx(1.0, abs=0.1)


def test_the_worst_value_rule_gives_each_failure_the_worst_value() -> None:
    contestant = failures.WorstValue({"x": FloatDistribution(0.0, 1.0)}, 0)
    for value in (1.0, 3.0, None, 2.0, None, 5.0, None):
        failures.tell(contestant, contestant.ask(1)[0], value)
    process, _ = contestant.optimizer.model.surrogate()
    assert (process.targets[[2, 4, 6]] == process.targets.max()).all()
    assert not process.known_variances.any()
    contestant.ask(1)
    assert "failures" not in contestant.optimizer.planner.state()
