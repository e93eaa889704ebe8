"""The paper's experiments: they run at toy size through the command, and the page has what is recorded."""

from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import lapack
from typer.testing import CliRunner

from benchmarks.paper import levy, tables
from benchmarks.paper.command import app
from benchmarks.paper.common import LABELS, read_rows
from lazybo import GrowingCholesky


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_levy_experiment_end_to_end_and_again(tmp_path: Path) -> None:
    options = ("--out", tmp_path, "--seeds", 1, "--iterations", 4, "--dim", 2, "--seed-points", "1,4")
    methods = ",".join(LABELS)
    output = call("levy", *options, "--methods", methods)
    for label in LABELS.values():
        assert f"| {label} | 1 |" in output
    before = (tmp_path / "levy.csv").read_bytes()
    assert call("levy", *options, "--methods", methods).endswith(output[-300:])
    assert (tmp_path / "levy.csv").read_bytes() == before, "what is recorded is not run again"


def test_the_naive_and_the_lazy_factor_are_the_same() -> None:
    k = levy.covariance(30, 3)
    extended = GrowingCholesky()
    for n in range(30):
        extended.append(k[:n, n], k[n, n])
    anew = np.tril(lapack.dpotrf(k, lower=1)[0])
    np.testing.assert_allclose(levy.algorithm2(k.tolist()), anew, atol=1e-12)
    np.testing.assert_allclose(np.tril(extended.factor), anew, atol=1e-12)


def test_the_tables_of_the_documentation_are_those_of_the_records() -> None:
    docs = Path(__file__).parents[1] / "docs"
    page, found = (docs / "paper.md").read_text(), tables.recorded(docs / "paper")
    assert set(found) == {"levy", "factorisation", "lag", "lenet", "resnet", "workers", "full/lenet", "architectures"}
    assert tables.insert(page, found) == page, (
        "run: python -m benchmarks.paper tables --out docs/paper --into docs/paper.md"
    )


def mnist(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 10
    images = (rng.random((80, 28, 28)) * 60).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 3] = 255  # a bar whose place is the class
    np.savez(folder / "mnist.npz", x_train=images, y_train=labels)
    return folder / "mnist.npz"


@pytest.mark.extra
def test_lenet_end_to_end_and_resumed(tmp_path: Path) -> None:
    options = ("--data", mnist(tmp_path), "--out", tmp_path, "--epochs", 1, "--batch", 16)
    call("lenet", *options, "--methods", "lazy,naive", "--iterations", 2)
    output = call("lenet", *options, "--methods", "lazy,naive,ours", "--iterations", 3)
    assert "| lazy (lag ∞) | 1 | here | 3 |" in output
    assert "0.96 (239)" in output, "the paper's figures are beside ours"
    rows = read_rows(tmp_path / "lenet.csv")
    assert [row["iteration"] for row in rows] == ["1", "2", "3"] * 3
    assert all(0 <= float(row["test"]) <= 1 and float(row["train_seconds"]) > 0 for row in rows)
    assert any(row["overhead_seconds"] for row in rows)
