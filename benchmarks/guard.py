"""Guard against regressions without a clock: ``python -m benchmarks.guard`` prints the numbers, and CI checks them.

Work is counted per step at a fixed number of observations: factorisations of all of K, evaluations of the likelihood,
multiply-adds of solves and factorisations in passes over the factor's triangle (n²/2), and kernel evaluations in rows
of K (n). Quality is the mean log10 regret on three quick problems with fixed seeds, and coverage the share of 95 %
intervals that contain the truth there. A number that is better than its band fails too: then the band should be
updated.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from scipy.spatial.distance import pdist

from benchmarks.calibration import figures
from benchmarks.optimizers import Lazy
from benchmarks.problems import Problem, function
from benchmarks.runner import log10, play
from lazybo import Optimizer
from lazybo.gp import Process, fit
from lazybo.gp.kernels import matern
from lazybo.search import surrogate

STEPS = 20
SEEDS = range(6)


@dataclass(frozen=True)
class Band:
    """The range in which a number must lie."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


# The work of a step by the number of observations, on Levy's function in 5-D. With 50 observations every sixth step
# learns, and rebuilds up to eight particles and the posterior of 512 pool points by each. With 300 and more it only
# adds a row to one; learning is rare.
WORK: dict[int, dict[str, Band]] = {
    50: {
        "factorisations": Band(0.5, 3.0),
        "likelihoods": Band(1.5, 8.0),
        "solves": Band(600.0, 2500.0),
        "kernel rows": Band(800.0, 3000.0),
    },
    300: {
        "factorisations": Band(0.0, 0.1),
        "likelihoods": Band(0.0, 3.0),
        "solves": Band(8.0, 18.0),
        "kernel rows": Band(130.0, 280.0),
    },
    1000: {
        "factorisations": Band(0.0, 0.05),
        "likelihoods": Band(0.0, 1.5),
        "solves": Band(6.0, 14.0),
        "kernel rows": Band(50.0, 110.0),
    },
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
    noisy: {"random points": Band(0.9, 0.995), "predicted best": Band(0.85, 1.0), "recommended": Band(0.75, 1.0)}
    for noisy in (False, True)
}


@dataclass
class Counters:
    """Counts of work. ``processes`` are all that were built: after learning, the optimiser builds a new one."""

    likelihoods: int = 0
    kernel_entries: int = 0
    processes: list[Process] = field(default_factory=list)


@contextmanager
def counting() -> Iterator[Counters]:
    """Count evaluations of the likelihood and of the kernel, and keep the processes that are built."""
    counters = Counters()
    distance, real_evidence = matern.scaled_distance, fit.evidence  # type: ignore[attr-defined]

    def kept(*arguments: Any, **options: Any) -> Process:
        counters.processes.append(Process(*arguments, **options))
        return counters.processes[-1]

    def counted_evidence(*arguments: Any) -> Any:
        counters.likelihoods += 1
        return real_evidence(*arguments)

    def counted_distance(kernel: Any, z: np.ndarray, other: np.ndarray, *counted: Any) -> np.ndarray:
        counters.kernel_entries += len(z) * len(other)
        return distance(kernel, z, other, *counted)

    def counted_pairs(z: np.ndarray, out: np.ndarray) -> np.ndarray:
        counters.kernel_entries += len(out)
        return pdist(z, out=out)

    with (
        patch.object(fit, "evidence", counted_evidence),
        patch.object(matern, "scaled_distance", counted_distance),
        patch.object(matern, "pdist", counted_pairs),
        patch.object(surrogate, "Process", kept),
    ):
        yield counters


def work(n: int) -> dict[str, float]:
    """The work of a step from n observations on, the mean over `STEPS` steps."""
    problem, rng = function("levy", 5), np.random.default_rng(0)
    # The step of one model. Random points of Levy's function may look noisy, and noise takes another path.
    optimizer = Optimizer(problem.space, seed=0, local_after=None, deterministic=True)
    for _ in range(n):
        params = {key: float(rng.uniform(-10, 10)) for key in problem.space}
        optimizer.observe(params, problem.objective(params))
    optimizer.planner.propose(0)[0]
    first, _ = optimizer.model.surrogate()
    rebuilds, multiply_adds = first.rebuilds, first.factor.work
    with counting() as counters:
        for _ in range(STEPS):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, problem.objective(suggestion.params))
    processes = [first, *counters.processes]
    factorisations = len(counters.processes) + sum(process.rebuilds for process in processes) - rebuilds
    return {
        "factorisations": factorisations / STEPS,
        "likelihoods": counters.likelihoods / STEPS,
        "solves": (sum(process.factor.work for process in processes) - multiply_adds) / STEPS / (n**2 / 2),
        "kernel rows": counters.kernel_entries / STEPS / n,
    }


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
    return function(family, int(dim[:-1])) if dim else mixed()


def coverage(*, noisy: bool) -> dict[str, float]:
    """The share of intervals that contain the truth, over all problems and seeds."""
    found = [figures(problem_of(name), seed, (25,), noisy=noisy)[25] for name in QUALITY for seed in SEEDS]
    return dict(zip(("random points", "predicted best", "recommended"), np.mean(found, axis=0).tolist(), strict=False))


def quality(name: str) -> float:
    """The mean log10 regret over the seeds."""
    budget, _ = QUALITY[name]
    problem = problem_of(name)
    ends = [list(play(problem, Lazy(problem.space, seed, {}), budget))[-1].regret for seed in SEEDS]
    return float(np.mean(log10(ends)))


def main() -> None:
    print(f"{'':26} {'measured':>10} {'band':>20}")
    for n, bands in WORK.items():
        for key, value in work(n).items():
            print(_line(f"{key}, n = {n}", value, bands[key]))
    for name, (budget, band) in QUALITY.items():
        print(_line(f"{name} after {budget}", quality(name), band))
    for noisy, bands in COVERAGE.items():
        for key, value in coverage(noisy=noisy).items():
            print(_line(f"{key}, {'noisy' if noisy else 'exact'}", value, bands[key]))


def _line(title: str, value: float, band: Band) -> str:
    outside = "" if band.holds(value) else "  outside"
    return f"{title:26} {value:10.3g} {f'{band.low:g} to {band.high:g}':>20}{outside}"


if __name__ == "__main__":
    main()
