"""Many evaluations of Levy's function with asynchronous workers: ``python -m benchmarks.levy_async``.

The workers are simulated: the durations of evaluations are log-normal, a heap holds the running ones, and when one ends
its value is told and the free worker gets the next point. A row for each mark n: milliseconds of CPU time of ask and
tell, median and mean over the last 200 evaluations before n, memory of the process, and the best value so far (the
optimum is 0).

"cmaes" is the package of this name, from the middle with a sixth of the range as σ, as in Optuna. It evaluates one
generation after the other, so no result is late, and workers without a point wait. When it has converged it starts
again from a random point with twice the population (IPOP).
"""

import argparse
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from statistics import mean, median
from typing import Any, Protocol

import numpy as np
import psutil
from optuna.distributions import FloatDistribution

from benchmarks.engine import peak_gigabytes
from benchmarks.run import RESULTS
from benchmarks.runner import append
from lazybo import Optimizer, Suggestion
from lazybo.demo import levy

BOUND = 10.0
MARKS = (1000, 2000, 5000, 10_000, 11_000, 20_000, 50_000, 100_000, 200_000)
# Milliseconds are over so many evaluations.
WINDOW = 200
# The standard deviation of the logarithm of a duration.
SPREAD = 0.5
FIELDS = ("optimizer", "dim", "workers", "seed", "n", "ms", "mean_ms", "peak_mb", "rss_mb", "cpu_s", "best")


class Source(Protocol):
    """Points to evaluate."""

    def ask(self) -> Any | None:
        """The next task; None if it must wait for results."""

    def point(self, task: Any, /) -> np.ndarray:
        """The point of a task."""

    def tell(self, task: Any, value: float, /) -> None: ...


class Lazy:
    """Our optimiser with its defaults."""

    def __init__(self, dim: int, seed: int) -> None:
        self.optimizer = Optimizer({f"x{j}": FloatDistribution(-BOUND, BOUND) for j in range(dim)}, seed=seed)

    def ask(self) -> Suggestion:
        return self.optimizer.ask()

    def point(self, task: Suggestion, /) -> np.ndarray:
        return np.array(list(task.params.values()))

    def tell(self, task: Suggestion, value: float, /) -> None:
        self.optimizer.tell(task, value)


class Cma:
    """CMA-ES by generations, with restarts."""

    def __init__(self, dim: int, seed: int) -> None:
        self.rng, self.dim = np.random.default_rng(seed), dim
        self._start(np.zeros(dim), None)

    def _start(self, middle: np.ndarray, population: int | None) -> None:
        from cmaes import CMA

        bounds = np.tile([-BOUND, BOUND], (self.dim, 1))
        seed = int(self.rng.integers(2**31))
        self.cma = CMA(middle, 2 * BOUND / 6, bounds=bounds, seed=seed, population_size=population)
        self.asked, self.told = 0, list[tuple[np.ndarray, float]]()

    def ask(self) -> np.ndarray | None:
        if self.asked == self.cma.population_size:
            return None
        self.asked += 1
        return self.cma.ask()

    def point(self, task: np.ndarray, /) -> np.ndarray:
        return task

    def tell(self, task: np.ndarray, value: float, /) -> None:
        self.told.append((task, value))
        if len(self.told) < self.cma.population_size:
            return
        self.cma.tell(self.told)
        self.asked, self.told = 0, []
        if self.cma.should_stop():
            self._start(self.rng.uniform(-BOUND, BOUND, self.dim), 2 * self.cma.population_size)


SOURCES: dict[str, Callable[[int, int], Source]] = {"lazybo": Lazy, "cmaes": Cma}


@dataclass(frozen=True)
class Done:
    """The state after n evaluations, and the CPU seconds of ask and tell for the last one."""

    n: int
    best: float
    seconds: float


def simulate(source: Source, evaluations: int, workers: int, seed: int) -> Iterator[Done]:
    """One item for each evaluation, in the order in which they end."""
    durations = np.random.default_rng([seed, 1])
    running: list[tuple[float, int, Any]] = []
    asked, now, best = 0, 0.0, float("inf")

    def fill() -> None:
        nonlocal asked
        while len(running) < workers and asked < evaluations and (task := source.ask()) is not None:
            heappush(running, (now + durations.lognormal(0.0, SPREAD), asked, task))
            asked += 1

    start = time.process_time()
    fill()
    first = time.process_time() - start  # belongs to the first evaluation
    for n in range(1, evaluations + 1):
        now, _, task = heappop(running)
        value = levy(source.point(task))
        best = min(best, value)
        start = time.process_time()
        source.tell(task, value)
        fill()
        yield Done(n, best, time.process_time() - start + first)
        first = 0.0


def rows(name: str, dim: int, evaluations: int, workers: int, seed: int) -> Iterator[dict[str, object]]:
    """A row for each mark, and for the last evaluation."""
    recent: deque[float] = deque(maxlen=WINDOW)
    process, total = psutil.Process(), 0.0
    run = {"optimizer": name, "dim": dim, "workers": workers, "seed": seed}
    for done in simulate(SOURCES[name](dim, seed), evaluations, workers, seed):
        recent.append(1e3 * done.seconds)
        total += done.seconds
        if done.n in MARKS or done.n == evaluations:
            steps = {"ms": f"{median(recent):.3f}", "mean_ms": f"{mean(recent):.3f}", "cpu_s": f"{total:.1f}"}
            memory = {"peak_mb": f"{1e3 * peak_gigabytes():.0f}", "rss_mb": f"{process.memory_info().rss / 1e6:.0f}"}
            yield {**run, "n": done.n, **steps, **memory, "best": f"{done.best:.6g}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--optimizer", default="lazybo", choices=list(SOURCES))
    parser.add_argument("--evaluations", type=int, default=MARKS[-1])
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--dim", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path, default=RESULTS / "levy_async.csv")
    options = parser.parse_args()
    shown = FIELDS[4:]
    print(f"{options.optimizer}, Levy in {options.dim}-D, {options.workers} workers, seed {options.seed}")
    print(" ".join(f"{field:>10}" for field in shown))
    for row in rows(options.optimizer, options.dim, options.evaluations, options.workers, options.seed):
        append(options.csv, FIELDS, row)
        print(" ".join(f"{row[field]:>10}" for field in shown), flush=True)


if __name__ == "__main__":
    main()
