"""The search for architectures on a toy table: what is recorded, and the tables of it."""

from itertools import product
from pathlib import Path

import pytest

from benchmarks.paper import tables
from benchmarks.paper.architectures import CHECKPOINTS, METHODS, Networks, Run, run_all, simulate
from lazybo import Graph

OPERATIONS = ("none", "skip_connect", "nor_conv_3x3")


def toy_networks(_data: str = "cells-cifar10") -> Networks:
    """Cells of NAS-Bench-201 with three operations; each convolution adds to the accuracy, and an hour."""
    codes = list(product(OPERATIONS, repeat=6))
    rows = {code: (50.0 + 5 * code.count("nor_conv_3x3"), 3600.0 * (1 + code.count("nor_conv_3x3"))) for code in codes}
    graph = Graph(nodes=4, operations=OPERATIONS)
    return Networks({f"Op{i}": OPERATIONS for i in range(6)}, graph, {**rows}, lambda code: code)


@pytest.mark.parametrize("method", METHODS)
def test_a_search_ends_with_the_best_network(method: str) -> None:
    networks = toy_networks()
    *_, last = simulate(networks, Run("cells-cifar10", method, 1, seed=0, budget=300))
    assert last["found"] == last["evaluations"] < 300
    assert last["best"] == networks.best == 80.0


def test_twenty_workers_are_sooner_than_one() -> None:
    one, twenty = (
        simulate(toy_networks(), Run("cells-cifar10", "choices", workers, seed=0, budget=300))[-1]
        for workers in (1, 20)
    )
    assert twenty["found"]
    assert twenty["hours"] < one["hours"]


def test_a_whole_run_continues_and_records_every_checkpoint() -> None:
    rows = simulate(toy_networks(), Run("cells-cifar10", "choices", 1, seed=0, budget=120, whole=True))
    assert [row["evaluations"] for row in rows] == [CHECKPOINTS[0], 120]
    assert rows[0]["found"] == rows[1]["found"] < 100
    assert all(row["ms"] > 0 and row["megabytes"] > 10 for row in rows)


def test_numbers_at_full_size_are_in_a_folder_of_their_own(tmp_path: Path) -> None:
    run_all(tmp_path / "full" / "architectures.csv", [Run("cells-cifar10", "choices", 1, 0, 5)], print, toy_networks)
    assert list(tables.recorded(tmp_path)) == ["full/architectures"]
