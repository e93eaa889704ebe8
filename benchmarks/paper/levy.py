"""Experiments on the negative Levy function (paper, section 4.1): best values, the lag, and factorisations.

A run is recorded when it has ended. Recorded runs are not run again.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from optuna.distributions import FloatDistribution
from scipy.linalg import lapack
from scipy.optimize import minimize

from benchmarks.paper.common import (
    NOISE,
    XI,
    Row,
    append_rows,
    first_at,
    improvement,
    optimizer_options,
    paper_options,
    quartiles,
    read_rows,
    unit_kernel,
)
from lazybo import GrowingCholesky, LazyGP, Optimizer, Suggestion
from lazybo.core import Array, Lag
from lazybo.demo import levy
from lazybo.gp import Learner, Targets, Warping

BOUND = 10.0
METHODS = ("naive", "lag3", "lazy", "lazy-scaled", "lazy-random", "naive-random", "ours-naive", "ours-lazy", "ours")
# The values whose first iteration is reported: about the range of the paper's tables.
TARGETS = (-5.0, -1.0, -0.3, -0.1, -0.04, -0.01)
# Every twentieth iteration is recorded, and each one that improved.
GRID = 20
FIELDS = ("dim", "seed_points", "method", "seed", "iteration", "best", "seconds")

# The experiment over the lag. The paper does not name its accuracy. Most runs reach this one, but not at once.
LAGS: tuple[Lag, ...] = (1, 2, 3, 5, 10, 20, 50, 100, None, "auto")
LAG_SEED_POINTS = 200
LAG_ACCURACY = -0.5
LAG_FIELDS = ("kernel", "dim", "accuracy", "budget", "lag", "seed", "reached", "iterations", "seconds", "best")

# Figure 5: the time of each factorisation by algorithm 3, LAPACK, and algorithm 2 as printed, three nested loops in
# Python. Algorithm 2 is timed at these sizes; others are extrapolated by operation count from the next smaller one.
LOOP_SIZES = (*range(1, 31), 50, 100, 150, 200)
FACTOR_FIELDS = ("n", "extended_seconds", "lapack_seconds", "algorithm2_seconds", "algorithm2_measured")

# The paper's own search: random candidates, and climbs from some more points.
CANDIDATES = 10_000
STARTS = 10
# Expected improvement is exactly 0 in doubles for z = γ/σ below about -38.6; σ is at most 1 here.
UNDERFLOW = 39.0


class Best(NamedTuple):
    """The best configuration so far."""

    params: dict[str, float]
    value: float


class PaperSearch:
    """Ask, tell and observe like `lazybo.Optimizer`, with the search of the paper's program; maximises.

    Our search samples around the best observations and climbs on the logarithm of expected improvement. The paper's
    program draws 10,000 points, climbs from 10 more, and takes the best, so it searches less near the best observation.
    """

    def __init__(self, space: Mapping[str, FloatDistribution], options: Mapping[str, Any], seed: int) -> None:
        self._names = list(space)
        self._low = np.array([d.low for d in space.values()])
        self._width = np.array([d.high - d.low for d in space.values()])
        self._learner = Learner(options["priors"], options["lag"])

        def transform(y: Array) -> Targets:
            warping = Warping.fit(options["value_transform"], y)
            shift, above = warping.inverse(np.array([0.0, 1.0]))  # both of the paper's warpings are linear
            return Targets(warping(y), float(shift), float(above - shift))

        self._gp = LazyGP(options["kernel"], options["noise"], transform=transform)
        self._rng = np.random.default_rng((seed, 2))
        self._learned_at = 0
        self._asked: dict[int, Array] = {}

    def observe(self, params: Mapping[str, float], value: float) -> None:
        """Add a result that was not asked for."""
        self._append((np.array([params[name] for name in self._names]) - self._low) / self._width, value)

    def tell(self, suggestion: Suggestion, value: float) -> None:
        """Add the value of a suggestion."""
        self._append(self._asked.pop(suggestion.number), value)

    def ask(self) -> Suggestion:
        """Suggest the point with the largest expected improvement that the search finds."""
        if self._learner.is_due(self._learned_at, self._gp.n):
            self._gp.learn(self._learner.priors)
            self._learned_at = self._gp.n
        x = self._search()
        number = self._gp.n
        self._asked[number] = x
        return Suggestion(number, dict(zip(self._names, map(float, self._low + x * self._width), strict=True)))

    @property
    def best(self) -> Best:
        """The best value observed or told."""
        row = int(np.argmin(self._gp.y))
        values = map(float, self._low + self._gp.X[row] * self._width)
        return Best(dict(zip(self._names, values, strict=True)), -float(self._gp.y[row]))

    def _append(self, x: Array, value: float) -> None:
        self._gp.append(x[None], [-value])  # internally, values are minimised

    def _search(self) -> Array:
        candidates = self._rng.random((CANDIDATES, len(self._names)))
        values = self.improvement(candidates)
        x, best = candidates[int(np.argmax(values))], float(values.max())
        box = [(0.0, 1.0)] * len(self._names)
        for start in self._rng.random((STARTS, len(self._names))):
            found = minimize(self.negative, start, jac=True, method="L-BFGS-B", bounds=box)
            if -found.fun > best:
                x, best = np.clip(found.x, 0.0, 1.0), -float(found.fun)
        return x

    def improvement(self, points: Array) -> Array:
        """Expected improvement in units of the targets, (m,). Points where it underflows to 0 skip the variance."""
        _, shift, scale = self._gp.targets
        incumbent = (float(self._gp.y.min()) - shift) / scale
        mean = self._gp.process.mean(points)
        near = np.flatnonzero(incumbent - mean - XI > -UNDERFLOW)
        values = np.zeros(len(points))
        if len(near):
            variance = self._gp.posterior(points[near]).variance / scale / scale
            values[near], *_ = improvement(mean[near], np.sqrt(variance), incumbent)
        return values

    def negative(self, x: Array) -> tuple[float, Array]:
        """-EI and its gradient at one point."""
        _, shift, scale = self._gp.targets
        incumbent = (float(self._gp.y.min()) - shift) / scale
        p = self._gp.posterior_gradient(x[None])
        std = np.sqrt(np.maximum(p.variance, 1e-18)) / scale
        value, by_mean, by_std = improvement((p.mean - shift) / scale, std, incumbent)
        slope = by_mean[0] * p.mean_gradient[0] / scale
        slope += by_std[0] * p.variance_gradient[0] / (2 * std[0] * scale * scale)
        return -float(value[0]), -slope


@dataclass(frozen=True)
class Run:
    """One run: a method from some random seed points, for some iterations."""

    method: str
    seed_points: int
    seed: int
    iterations: int = 1000
    dim: int = 5


@dataclass(frozen=True)
class History:
    """The best value after each iteration, (n,), and the optimiser's total CPU seconds so far, (n,)."""

    best: Array
    seconds: Array


def space(dim: int) -> dict[str, FloatDistribution]:
    """The space [-10, 10]ᵈ."""
    return {f"x{j}": FloatDistribution(-BOUND, BOUND) for j in range(dim)}


def negative_levy(params: Mapping[str, float]) -> float:
    """The negative Levy function; its maximum is 0 at (1, …, 1)."""
    return -levy(np.array(list(params.values())))


def seeded_optimizer(
    options: Mapping[str, Any], dim: int, seed_points: int, seed: int, *, paper_search: bool = False
) -> Optimizer | PaperSearch:
    """An optimiser that has observed random seed points; every method gets the same points."""
    optimizer: Optimizer | PaperSearch
    if paper_search:
        optimizer = PaperSearch(space(dim), options, seed)
    else:
        optimizer = Optimizer(space(dim), direction="maximize", seed=seed, n_startup=0, **options)
    for x in np.random.default_rng((seed, seed_points)).uniform(-BOUND, BOUND, (seed_points, dim)):
        params = dict(zip(space(dim), map(float, x), strict=True))
        optimizer.observe(params, negative_levy(params))
    return optimizer


def play(optimizer: Optimizer | PaperSearch, iterations: int, until: float = np.inf) -> History:
    """Ask and tell until a value is reached, for at most ``iterations`` steps; seed points do not count."""
    best, seconds, spent = [], [], 0.0
    for _ in range(iterations):
        start = time.process_time()
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, negative_levy(suggestion.params))
        spent += time.process_time() - start
        best.append(optimizer.best.value)
        seconds.append(spent)
        if best[-1] >= until:
            break
    return History(np.array(best), np.array(seconds))


def run_one(run: Run) -> History:
    """Run one run and return its history."""
    options = optimizer_options(run.method, space(run.dim))
    paper_search = run.method.endswith("-random")
    optimizer = seeded_optimizer(options, run.dim, run.seed_points, run.seed, paper_search=paper_search)
    return play(optimizer, run.iterations)


def run_all(path: Path, runs: Sequence[Run], say: Callable[[str], None]) -> None:
    """Run and record the runs that are not recorded yet."""
    done = recorded(path)
    missing = [run for run in runs if run not in done]
    for number, run in enumerate(missing, 1):
        start = time.perf_counter()
        history = run_one(run)
        append_rows(path, FIELDS, rows_of(run, history))
        label = f"{run.seed_points} seed points, {run.method}, seed {run.seed}"
        say(f"{number}/{len(missing)}  {label}: {history.best[-1]:.4g} in {time.perf_counter() - start:.0f} s")


def rows_of(run: Run, history: History) -> list[dict[str, Any]]:
    """The rows to record: where the best value changed in three digits, every twentieth, and the last."""
    rows, kept = [], ""
    for i, (best, seconds) in enumerate(zip(history.best, history.seconds, strict=True), 1):
        text = f"{best:.3g}"
        if text != kept or i % GRID == 0 or i == len(history.best):
            head = {"dim": run.dim, "seed_points": run.seed_points, "method": run.method, "seed": run.seed}
            rows.append({**head, "iteration": i, "best": float(best), "seconds": float(seconds)})
        kept = text
    return rows


def recorded(path: Path) -> dict[Run, History]:
    """The histories in a file; iterations between recorded rows are filled in."""
    by_run: dict[tuple[str, int, int, int], list[tuple[int, float, float]]] = defaultdict(list)
    for row in read_rows(path):
        key = row["method"], int(row["seed_points"]), int(row["seed"]), int(row["dim"])
        by_run[key].append((int(row["iteration"]), float(row["best"]), float(row["seconds"])))
    found = {}
    for (method, seed_points, seed, dim), points in by_run.items():
        iterations, best, seconds = (np.array(column) for column in zip(*points, strict=True))
        every = np.arange(1, iterations[-1] + 1)
        last = np.searchsorted(iterations, every, side="right") - 1
        run = Run(method, seed_points, seed, int(iterations[-1]), dim)
        found[run] = History(best[np.maximum(last, 0)], np.interp(every, iterations, seconds))
    return found


def plan(methods: Iterable[str], seed_points: Iterable[int], seeds: int, iterations: int, dim: int) -> list[Run]:
    """All runs, the cheap methods of every setting first."""
    slow = ("lag3", "lazy-random", "naive", "naive-random", "ours-naive")
    ordered = sorted(methods, key=lambda method: slow.index(method) if method in slow else -1)
    return [
        Run(method, points, seed, iterations, dim)
        for method in ordered
        for seed in range(seeds)
        for points in seed_points
    ]


def reached(histories: Iterable[History], target: float) -> list[float]:
    """The iteration at which each history reached a value; infinity if it never did."""
    return [first_at(list(history.best), target) for history in histories]


# ------------------------------------------------------------------------ the lag


def run_lags(
    path: Path,
    *,
    seeds: int,
    iterations: int,
    kernels: Iterable[str],
    say: Callable[[str], None],
    lags: Iterable[Lag] = LAGS,
    dim: int = 5,
    accuracy: float = LAG_ACCURACY,
    seed_points: int = LAG_SEED_POINTS,
) -> None:
    """Record the runs that are not recorded yet; ``kernels`` are "paper" (its settings) and "ours"."""
    done = {tuple(row[name] for name in LAG_FIELDS[:6]) for row in read_rows(path)}
    for kernel in kernels:
        for seed in range(seeds):
            for lag in lags:
                key = (kernel, str(dim), str(accuracy), str(iterations), "∞" if lag is None else str(lag), str(seed))
                if key in done or (kernel == "paper" and lag == "auto"):
                    continue
                start = time.perf_counter()
                options = paper_options(lag, space(dim)) if kernel == "paper" else {"lag": lag}
                history = play(seeded_optimizer(options, dim, seed_points, seed), iterations, accuracy)
                best = float(history.best[-1])
                numbers = (int(best >= accuracy), len(history.best), float(history.seconds[-1]), best)
                append_rows(path, LAG_FIELDS, [dict(zip(LAG_FIELDS, (*key, *numbers), strict=True))])
                taken = time.perf_counter() - start
                say(f"{kernel}, lag {key[4]}, seed {seed}: {best:.4g} after {len(history.best)} in {taken:.0f} s")


def latest_lags(path: Path) -> list[Row]:
    """All runs with the accuracy, budget and dimension of the last recorded run."""
    rows = read_rows(path)
    return [row for row in rows if all(row[name] == rows[-1][name] for name in ("dim", "accuracy", "budget"))]


def lag_summary(path: Path, kernel: str) -> list[dict[str, object]]:
    """Quartiles of iterations and seconds for each lag; runs that did not reach the accuracy count as infinite."""
    rows = [row for row in latest_lags(path) if row["kernel"] == kernel]
    found: list[dict[str, object]] = []
    for lag in dict.fromkeys(row["lag"] for row in rows):
        own = [row for row in rows if row["lag"] == lag]
        counts = [float(row["iterations"]) if row["reached"] == "1" else np.inf for row in own]
        found.append(
            {
                "lag": lag,
                "reached": sum(row["reached"] == "1" for row in own),
                "runs": len(own),
                "iterations": quartiles(counts),
                "seconds": quartiles([float(row["seconds"]) for row in own]),
                "seconds_a_step": quartiles([float(row["seconds"]) / float(row["iterations"]) for row in own]),
            }
        )
    return found


# ----------------------------------------------------------------- factorisations


def covariance(n: int, dim: int) -> Array:
    """The paper's covariance of n random points, noise included."""
    k = unit_kernel(space(dim))(np.random.default_rng(0).random((n, dim)))
    k[np.diag_indices_from(k)] += NOISE
    return k


def measure_factors(steps: int, dim: int = 5) -> list[dict[str, Any]]:
    """One row for each number of observations, 1 … steps."""
    k = covariance(steps, dim)
    factor, rows = GrowingCholesky(), []
    loops: dict[int, float] = {}
    for n in range(1, steps + 1):
        start = time.process_time()
        factor.append(k[: n - 1, n - 1], k[n - 1, n - 1])
        extended = time.process_time() - start
        whole = np.asfortranarray(k[:n, :n])
        start = time.process_time()
        lapack.dpotrf(whole, lower=1, overwrite_a=1)
        full = time.process_time() - start
        if n in LOOP_SIZES:
            matrix = k[:n, :n].tolist()
            start = time.process_time()
            algorithm2(matrix)
            loops[n] = time.process_time() - start
        last = max(loops)
        by_count = loops[last] * operations(n) / operations(last)
        numbers = (n, extended, full, by_count, int(n in LOOP_SIZES))
        rows.append(dict(zip(FACTOR_FIELDS, numbers, strict=True)))
    return rows


def operations(n: int) -> int:
    """Operation count of algorithm 2: iterations of the inner loops, plus one for each pivot."""
    return n * (n - 1) * (n - 2) // 6 + n * (n - 1) + n


def record_factors(path: Path, steps: int) -> list[dict[str, float]]:
    """The recorded rows; measured first if they are not recorded for this many steps."""
    if len(read_rows(path)) != steps:
        path.unlink(missing_ok=True)
        append_rows(path, FACTOR_FIELDS, measure_factors(steps))
    return [{name: float(row[name]) for name in FACTOR_FIELDS} for row in read_rows(path)]


def total_seconds(rows: list[dict[str, float]]) -> dict[str, float]:
    """Seconds over all steps."""
    return {name: sum(row[name] for row in rows) for name in FACTOR_FIELDS[1:4]}


def algorithm2(k: list[list[float]]) -> list[list[float]]:
    """Overwrite ``k`` with its lower factor and return it: algorithm 2, as printed except for two typos.

    Line 6 assigns to K[i, j], and the second inner loop runs over k.
    """
    n = len(k)
    for i in range(n):
        for j in range(i):
            for m in range(j):
                k[i][j] -= k[i][m] * k[j][m]
            k[i][j] /= k[j][j]
        for m in range(i):
            k[i][i] -= k[i][m] ** 2
        k[i][i] **= 0.5
    for i in range(n):
        for j in range(i + 1, n):
            k[i][j] = 0.0
    return k
