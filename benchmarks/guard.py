"""Guard against regressions without a clock: ``python -m benchmarks.guard`` prints the numbers, and CI checks them.

Work is counted per ask and tell at a number of observations, in three spaces: calls of our Python functions,
factorisations of all of K, and multiply-adds of solves and factorisations in passes over the factor's triangle (n²/2).
Quality is the mean log10 regret on three quick problems with fixed seeds, and coverage the share of 95 % intervals that
contain the truth there. A number that is better than its band fails too: then the band should be updated.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

import lazybo
from benchmarks.calibration import figures
from benchmarks.optimizers import Lazy
from benchmarks.problems import Problem, function
from benchmarks.runner import log10, play
from lazybo import Optimizer, Space
from lazybo.gp import Process

SOURCE = str(Path(lazybo.__file__).parent)
STEPS = 20
SEEDS = range(6)


@dataclass(frozen=True)
class Band:
    """The range in which a number must lie."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


# Work by space and number of observations. With 30 and 100 every few steps learn and rebuild up to eight particles and
# the posterior of 512 pool points by each; with 1000 a step only adds a row to one.
LEARNING = {"factorisations": Band(0.5, 8.0), "solves": Band(1000.0, 8000.0)}
SELDOM = {"factorisations": Band(0.0, 1.0), "solves": Band(40.0, 700.0)}
GROWING = {"factorisations": Band(0.0, 0.05), "solves": Band(6.0, 16.0)}
WORK: dict[tuple[str, int], dict[str, Band]] = {
    ("levy-5d", 30): {"calls": Band(1000, 3000), **LEARNING},
    ("levy-5d", 100): {"calls": Band(600, 2100), **SELDOM},
    ("levy-5d", 1000): {"calls": Band(400, 1900), **GROWING},
    ("mixed", 30): {"calls": Band(1800, 4200), **LEARNING},
    ("mixed", 100): {"calls": Band(1300, 3700), **SELDOM},
    ("mixed", 1000): {"calls": Band(800, 2900), **GROWING},
    ("many", 30): {"calls": Band(3000, 6300), **LEARNING},
    ("many", 100): {"calls": Band(2300, 5800), **SELDOM},
    ("many", 1000): {"calls": Band(1500, 4400), **GROWING},
}
# By problem: evaluations, and the mean log10 regret after them. The bands are wider than the differences between four
# sets of six seeds, since the rounding of another processor may change the course of a run.
QUALITY: dict[str, tuple[int, Band]] = {
    "levy-2d": (20, Band(-3.9, -2.0)),
    "rosenbrock-5d": (50, Band(-2.9, -2.0)),
    "mixed": (25, Band(-3.1, -1.2)),
}


# By whether the values have noise: coverage on the problems above after 25 evaluations.
COVERAGE: dict[bool, dict[str, Band]] = {
    noisy: {"random points": Band(0.9, 0.998), "predicted best": Band(0.85, 1.0), "recommended": Band(0.6, 1.0)}
    for noisy in (False, True)
}


@dataclass
class Counters:
    """Counts of work. ``processes`` are all that were built: after learning, the optimiser builds new ones."""

    calls: int = 0
    processes: list[Process] = field(default_factory=list)


@contextmanager
def counting() -> Iterator[Counters]:
    """Count the calls of our functions, and keep the processes that are built."""
    counters = Counters()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            counters.calls += 1
            if frame.f_code.co_name == "__init__" and isinstance(built := frame.f_locals.get("self"), Process):
                counters.processes.append(built)

    sys.setprofile(note)
    try:
        yield counters
    finally:
        sys.setprofile(None)


def work(name: str, n: int) -> dict[str, float]:
    """The work of ask and tell from n observations on, the mean over `STEPS` steps."""
    problem, rng = problem_of(name), np.random.default_rng(0)
    # The step of one model. Random points may look noisy, and noise takes another path.
    optimizer = Optimizer(problem.space, seed=0, local_after=None, deterministic=True)
    space = Space(problem.space)
    for params in space.points.decode_all(space.points.sample(rng, n)):
        optimizer.observe(params, problem.objective(params))
    optimizer.ask()
    first, _ = optimizer.model.surrogate()
    before = {id(first): (first.rebuilds, first.factor.work)}
    with counting() as counters:
        for _ in range(STEPS):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, problem.objective(suggestion.params))
    processes = {id(each): each for each in (first, *counters.processes)}
    rebuilds, passes = len(processes) - 1, 0.0
    for key, process in processes.items():
        old_rebuilds, old_work = before.get(key, (0, 0))
        rebuilds += process.rebuilds - old_rebuilds
        passes += process.factor.work - old_work
    return {"calls": counters.calls / STEPS, "factorisations": rebuilds / STEPS, "solves": passes / STEPS / (n**2 / 2)}


def many() -> Problem:
    """Thirteen parameters of all kinds, as boosted trees have; the optimum is 0."""
    space: dict[str, BaseDistribution] = {
        **{f"x{j}": FloatDistribution(1e-4, 1.0, log=j % 2 == 0) for j in range(6)},
        **{f"i{j}": IntDistribution(1, 10 * (j + 1), log=j == 0) for j in range(4)},
        **{f"c{j}": CategoricalDistribution([*"abc"]) for j in range(3)},
    }

    def objective(p: Any) -> float:
        return float(sum((_unit(space[key], value) - 0.4) ** 2 for key, value in p.items()))

    return Problem("many", "many", space, objective, 0.0, 1.0)


def _unit(distribution: BaseDistribution, value: Any) -> float:
    """A value between 0 and 1."""
    if isinstance(distribution, CategoricalDistribution):
        return float(distribution.choices.index(value) / 2)
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high, at = (
        np.log(each) if distribution.log else each for each in (distribution.low, distribution.high, value)
    )
    return float((at - low) / (high - low))


def mixed() -> Problem:
    """A problem with integers, choices and a float that interact; the optimum is 0."""
    space = {
        **{f"i{j}": IntDistribution(0, 9) for j in range(3)},
        "c": CategoricalDistribution(["a", "b", "c", "d"]),
        "x": FloatDistribution(1e-4, 1.0, log=True),
    }
    centre = {"a": 2.0, "b": 4.0, "c": 6.0, "d": 8.0}
    depth = {"a": 1.0, "b": 0.3, "c": 0.0, "d": 0.6}

    def objective(p: Any) -> float:
        whole = sum((p[f"i{j}"] - centre[p["c"]] - j + 1) ** 2 for j in range(3)) / 20
        return float(whole + depth[p["c"]] + (np.log10(p["x"]) + 2) ** 2 / 2)

    return Problem("mixed", "mixed", space, objective, 0.0, 1.0)


def problem_of(name: str) -> Problem:
    family, _, dim = name.partition("-")
    return function(family, int(dim[:-1])) if dim else {"mixed": mixed, "many": many}[name]()


def coverage(*, noisy: bool) -> dict[str, float]:
    """The share of intervals that contain the truth, over all problems and half of the seeds."""
    seeds = SEEDS[: len(SEEDS) // 2]
    found = [figures(problem_of(name), seed, (25,), noisy=noisy)[25] for name in QUALITY for seed in seeds]
    return dict(zip(("random points", "predicted best", "recommended"), np.mean(found, axis=0).tolist(), strict=False))


def quality(name: str) -> float:
    """The mean log10 regret over the seeds."""
    budget, _ = QUALITY[name]
    problem = problem_of(name)
    ends = [list(play(problem, Lazy(problem.space, seed, {}), budget))[-1].regret for seed in SEEDS]
    return float(np.mean(log10(ends)))


def main() -> None:
    print(f"{'':36} {'measured':>10} {'band':>20}")
    for (name, n), bands in WORK.items():
        for key, value in work(name, n).items():
            print(_line(f"{key}, {name}, n = {n}", value, bands[key]))
    for name, (budget, band) in QUALITY.items():
        print(_line(f"{name} after {budget}", quality(name), band))
    for noisy, bands in COVERAGE.items():
        for key, value in coverage(noisy=noisy).items():
            print(_line(f"{key}, {'noisy' if noisy else 'exact'}", value, bands[key]))


def _line(title: str, value: float, band: Band) -> str:
    outside = "" if band.holds(value) else "  outside"
    return f"{title:36} {value:10.3g} {f'{band.low:g} to {band.high:g}':>20}{outside}"


if __name__ == "__main__":
    main()
