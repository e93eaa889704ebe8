"""Time and iterations to a fixed accuracy over the lag, from 200 seed points (paper, figure 6)."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from lazybo.gp.fit import Lag
from lazybo.paper import levy
from lazybo.paper.presets import paper_options
from lazybo.paper.records import Row, append_rows, quartiles, read_rows

SEED_POINTS = 200
LAGS: tuple[Lag, ...] = (1, 2, 3, 5, 10, 20, 50, 100, None, "auto")
# The paper does not name its accuracy. Most runs reach this one, but not at once.
ACCURACY = -0.5
FIELDS = ("kernel", "dim", "accuracy", "budget", "lag", "seed", "reached", "iterations", "seconds", "best")


def run_all(
    path: Path,
    *,
    seeds: int,
    iterations: int,
    kernels: Iterable[str],
    say: Callable[[str], None],
    lags: Iterable[Lag] = LAGS,
    dim: int = 5,
    accuracy: float = ACCURACY,
    seed_points: int = SEED_POINTS,
) -> None:
    """Record the runs that are not recorded yet; ``kernels`` are "paper" (its settings) and "ours"."""
    done = {tuple(row[name] for name in FIELDS[:6]) for row in read_rows(path)}
    for kernel in kernels:
        for seed in range(seeds):
            for lag in lags:
                key = (kernel, str(dim), str(accuracy), str(iterations), name_of(lag), str(seed))
                if key in done or (kernel == "paper" and lag == "auto"):
                    continue
                start = time.perf_counter()
                options = paper_options(lag, levy.space(dim)) if kernel == "paper" else {"lag": lag}
                course = levy.play(levy.seeded_optimizer(options, dim, seed_points, seed), iterations, accuracy)
                best = float(course.best[-1])
                numbers = (int(best >= accuracy), len(course.best), float(course.seconds[-1]), best)
                append_rows(path, FIELDS, [dict(zip(FIELDS, (*key, *numbers), strict=True))])
                taken = time.perf_counter() - start
                say(f"{kernel}, lag {key[4]}, seed {seed}: {best:.4g} after {len(course.best)} in {taken:.0f} s")


def name_of(lag: Lag) -> str:
    """A lag as shown in a table."""
    return "∞" if lag is None else str(lag)


def latest(path: Path) -> list[Row]:
    """All runs with the accuracy, budget and dimension of the last recorded run."""
    rows = read_rows(path)
    return [row for row in rows if all(row[name] == rows[-1][name] for name in ("dim", "accuracy", "budget"))]


def summary(path: Path, kernel: str) -> list[dict[str, object]]:
    """Quartiles of iterations and seconds for each lag; runs that did not reach the accuracy count as infinite."""
    rows = [row for row in latest(path) if row["kernel"] == kernel]
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
