"""The benchmarks' own parts that numbers rest on."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import parallel
from benchmarks.problems import Problem, levy


def test_memory_grows_like_the_triangle() -> None:
    command = [sys.executable, "-m", "benchmarks.engine", "--grow", "3000"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
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


def test_parallel_runs_are_resumed_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(parallel.TARGETS, "levy-2d", {100: 0.5, 200: 0.0})
    chosen = [arm for name in ("lazybo", "optuna-tpe") for arm in parallel.arms(name, ["async", "sync"], [1, 3])]
    path = tmp_path / "parallel.csv"
    for seeds in (range(1), range(2)):
        parallel.run_all(path, chosen, ["levy-2d"], seeds, 12, "training", np.inf)
    rows = parallel.read(path)
    assert len(rows) == 2 * 2 * len(chosen)
    assert all(row["reached"] == "0" and row["evaluations"] == "12" for row in rows if row["target"] == "200")
    parallel.report(path, "training")
    printed = capsys.readouterr().out
    assert "| lazybo sync maxima" in printed
    assert "(2 of 2 not)" in printed


def test_runs_that_never_get_there_are_later_than_all_others() -> None:
    there, not_there = parallel.Reached(True, 2.0, 20, 0.0), parallel.Reached(False, 1.0, 10, 0.0)
    assert parallel.median([there, there, not_there]) == parallel.Median(2.0, 20.0, False, 1, 3)
    assert parallel.median([there, not_there, not_there]).bound
    slower = parallel.speed_up([there], [not_there], 5)
    assert (slower.time, slower.rounds, slower.sign) == (2.0, 10.0, "<")
