"""The experiments without data, at toy size through the command, and the numbers that tables rest on."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import lapack
from typer.testing import CliRunner

from benchmarks.paper import levy, tables, workers
from benchmarks.paper.command import app
from benchmarks.paper.common import (
    LABELS,
    first_at,
    improvements,
    optimizer_options,
    quartiles,
    read_rows,
    unit_kernel,
)
from lazybo import GrowingCholesky, Optimizer


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


# ------------------------------------------------------------------------ command


def test_the_levy_experiment_end_to_end_and_again(tmp_path: Path) -> None:
    options = ("--out", tmp_path, "--seeds", 1, "--iterations", 4, "--dim", 2, "--seed-points", "1,4")
    methods = ",".join(LABELS)
    output = call("levy", *options, "--methods", methods)
    for label in LABELS.values():
        assert f"| {label} | 1 |" in output
    before = (tmp_path / "levy.csv").read_bytes()
    assert call("levy", *options, "--methods", methods).endswith(output[-300:])
    assert (tmp_path / "levy.csv").read_bytes() == before, "what is recorded is not run again"


def test_the_lag_experiment_end_to_end_and_again(tmp_path: Path) -> None:
    options = ("--out", tmp_path, "--seeds", 1, "--iterations", 4, "--dim", 2, "--seed-points", 5, "--accuracy", -0.5)
    output = call("lag", *options)
    assert "| the paper's settings | ∞ |" in output
    assert "| our kernel | auto |" in output
    before = (tmp_path / "lag.csv").read_bytes()
    call("lag", *options)
    assert (tmp_path / "lag.csv").read_bytes() == before
    assert {row["reached"] for row in read_rows(tmp_path / "lag.csv")} <= {"0", "1"}
    assert len(levy.lag_summary(tmp_path / "lag.csv", "ours")) == len(levy.LAGS)


# ------------------------------------------------------------------------ numbers


def test_every_method_begins_from_the_same_seed_points() -> None:
    def values(method: str) -> list[float]:
        options = optimizer_options(method, levy.space(3))
        return [row["value"] for row in levy.seeded_optimizer(options, 3, 4, seed=1).state()["rows"]]

    assert values("naive") == values("lazy") == values("ours")


def test_the_paper_s_length_scale_is_1_in_raw_coordinates() -> None:
    kernel = unit_kernel(levy.space(2))
    s = math.sqrt(5.0)
    one_apart = kernel(np.array([[0.5, 0.5]]), np.array([[0.55, 0.5]]))[0, 0]
    assert one_apart == pytest.approx((1 + s + s * s / 3) * math.exp(-s))


def test_the_naive_and_the_lazy_factor_are_the_same() -> None:
    k = levy.covariance(30, 3)
    extended = GrowingCholesky()
    for n in range(30):
        extended.append(k[:n, n], k[n, n])
    anew = np.tril(lapack.dpotrf(k, lower=1)[0])
    np.testing.assert_allclose(levy.algorithm2(k.tolist()), anew, atol=1e-12)
    np.testing.assert_allclose(np.tril(extended.factor), anew, atol=1e-12)


def test_the_operations_of_algorithm_2_are_counted_right() -> None:
    def counted(n: int) -> int:
        return sum(sum(j + 1 for j in range(i)) + i + 1 for i in range(n))

    assert [levy.operations(n) for n in (1, 2, 7, 40)] == [counted(n) for n in (1, 2, 7, 40)]


def test_summaries() -> None:
    assert improvements([1.0, 0.5, 2.0, 2.0, 3.0]) == [(1, 1.0), (3, 2.0), (5, 3.0)]
    assert first_at([1.0, 2.0], 2.0) == 2.0
    assert first_at([1.0, 2.0], 3.0) == math.inf
    assert quartiles([3.0, 1.0, 2.0, math.inf, math.inf]) == (2.0, 3.0, math.inf)
    assert tables.count([3.0, math.inf, 1.0]) == "3 (2/3)"


def test_the_paper_s_tables_only_improve() -> None:
    every = [*tables.PAPER_LEVY[1].values(), *tables.PAPER_LEVY[100].values()]
    for steps in (*every, *tables.PAPER_LENET.values(), *tables.PAPER_RESNET.values()):
        assert list(steps) == sorted(steps)
        assert [value for _, value in steps] == sorted(value for _, value in steps)


# ------------------------------------------------------------------------ workers


def toy_table() -> workers.Table:
    from optuna.distributions import CategoricalDistribution

    space = {name: CategoricalDistribution(("a", "b", "c")) for name in ("p", "q", "r")}
    rows = {
        (p, q, r): (90.0 + "abc".index(p) - "abc".index(q) + 0.1 * "abc".index(r), 60.0 * (1 + "abc".index(r)))
        for p in "abc"
        for q in "abc"
        for r in "abc"
    }
    return workers.Table(space, rows)


@pytest.mark.parametrize("method", workers.METHODS)
def test_simulated_workers_find_the_best_and_sooner(method: str) -> None:
    table = toy_table()
    (one,) = workers.simulate(table, 1, "free", 0, [92.2], budget=27)
    (four,) = workers.simulate(table, 4, method, 0, [92.2], budget=27)
    assert one["reached"] == four["reached"] == 1
    assert four["hours"] < one["hours"]


# ------------------------------------------------------------------- what is missing


# ------------------------------------------------------------------- the paper's search


@pytest.mark.parametrize("method", ["lazy", "lazy-scaled"])
def test_the_paper_s_search_sees_the_expected_improvement_of_the_optimiser(method: str) -> None:
    options = optimizer_options(method, levy.space(2))
    optimizer = levy.seeded_optimizer(options, 2, 6, seed=0)
    reference = levy.seeded_optimizer(options, 2, 6, seed=0, paper_search=True)
    assert isinstance(optimizer, Optimizer)
    assert isinstance(reference, levy.PaperSearch)
    assert reference.best.value == optimizer.best.value
    params, value = optimizer.model.maxima()[0]
    point = (np.array([list(params.values())]) + levy.BOUND) / (2 * levy.BOUND)
    # The optimiser improves on a denoised value, which noise of 1e-6 hardly moves.
    assert math.log(reference.improvement(point)[0]) == pytest.approx(value, rel=1e-3)


# ------------------------------------------------------------------------ documents


def test_the_tables_of_the_documentation_are_those_of_the_records() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page, found = (docs / "paper.md").read_text(), tables.recorded(docs / "paper")
    assert set(found) == {"levy", "factorisation", "lag", "lenet", "resnet", "workers", "full/lenet", "architectures"}
    assert tables.insert(page, found) == page, (
        "run: python -m benchmarks.paper tables --out docs/paper --into docs/paper.md"
    )
