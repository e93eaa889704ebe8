"""The experiments without data, at toy size through the command, and the numbers that tables rest on."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import lapack
from typer.testing import CliRunner

import benchmarks.paper
from benchmarks.paper import levy, tables, workers
from benchmarks.paper.command import app
from benchmarks.paper.common import (
    LABELS,
    append_rows,
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("levy", "--methods", "best"), "--methods must be some of naive"),
        (("levy", "--seed-points", "1,few"), "--seed-points must be positive whole numbers"),
        (("lenet", "--data", "nowhere"), "nowhere does not exist; give --data"),
        (("resnet",), "CIFAR-10 is needed"),
        (("tables", "--out", "nowhere"), "nothing is recorded in nowhere"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2
    assert message in result.output
    assert len(result.output.strip().splitlines()) == 1


# ------------------------------------------------------------------------ numbers


def test_a_recorded_course_is_the_course(tmp_path: Path) -> None:
    run = levy.Run("ours", 1, 0, 50, 2)
    best = np.repeat([-9.0, -2.5, -0.1234], [7, 13, 30])
    history = levy.History(best, np.arange(50) * 0.5)
    path = tmp_path / "levy.csv"
    append_rows(path, levy.FIELDS, levy.rows_of(run, history))
    (again,) = levy.recorded(path).items()
    assert again[0] == run
    np.testing.assert_allclose(again[1].best, best)
    np.testing.assert_allclose(again[1].seconds, history.seconds)
    assert levy.reached([again[1]], -1.0) == [21.0]


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


def test_simulations_are_recorded_once(tmp_path: Path) -> None:
    path, said = tmp_path / "workers.csv", list[str]()
    for _ in range(2):
        workers.run_all(path, (1, 3), 2, said.append, table=toy_table(), targets=(91.0, 99.0), budget=27)
    assert len(said) == 6
    table = tables.workers_table(path)
    assert "| 91 % | 3 | rounds |" in table
    assert "| 99 % | 1 |  | inf (inf … inf) |" in table


# ------------------------------------------------------------------- what is missing


def test_without_torch_or_matplotlib_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("torch", "matplotlib"):
        monkeypatch.setitem(sys.modules, module, None)
    for module in ("networks", "figures"):
        monkeypatch.delitem(sys.modules, f"benchmarks.paper.{module}", raising=False)
        monkeypatch.delattr(benchmarks.paper, module, raising=False)
    np.savez(tmp_path / "a.npz", x=np.zeros((30, 28, 28), np.uint8), y=np.zeros(30, int))
    for arguments, missing in ((("lenet", "--data", str(tmp_path / "a.npz")), "torch"), (("figures",), "matplotlib")):
        result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)])
        assert result.exit_code == 2
        assert f"need {missing}" in result.output
        assert f"pip install {missing}" in result.output
        assert len(result.output.strip().splitlines()) == 1


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


def test_the_gradient_of_the_paper_s_search() -> None:
    reference = levy.seeded_optimizer(optimizer_options("lazy-scaled", levy.space(2)), 2, 6, 0, paper_search=True)
    assert isinstance(reference, levy.PaperSearch)
    x = np.array([0.4, 0.7])
    _, slope = reference.negative(x)
    steps = 1e-6 * np.eye(2)
    numeric = [(reference.negative(x + h)[0] - reference.negative(x - h)[0]) / 2e-6 for h in steps]
    np.testing.assert_allclose(slope, numeric, rtol=1e-4)


# ------------------------------------------------------------------------ documents


def test_tables_go_between_their_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- workers -->\nold\n<!-- /workers -->\nafter\n")
    workers.run_all(tmp_path / "workers.csv", (1,), 1, print, table=toy_table(), targets=(91.0,))
    for _ in range(2):
        call("tables", "--out", tmp_path, "--into", page)
    text = page.read_text()
    assert text.startswith("before\n<!-- workers -->\n\n| accuracy |")
    assert text.endswith("|\n\n<!-- /workers -->\nafter\n")
    assert "old" not in text


def test_the_tables_of_the_documentation_are_those_of_the_records() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page, found = (docs / "paper.md").read_text(), tables.recorded(docs / "paper")
    assert set(found) == {"levy", "factorisation", "lag", "lenet", "resnet", "workers", "full/lenet", "architectures"}
    assert tables.insert(page, found) == page, (
        "run: python -m benchmarks.paper tables --out docs/paper --into docs/paper.md"
    )
