"""LeNet5, ResNet32 and the figures at toy size, end to end through the command, on tiny files in the real formats."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.paper.command import app
from benchmarks.paper.common import read_rows

pytestmark = pytest.mark.extra


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def mnist(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 10
    images = (rng.random((80, 28, 28)) * 60).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 3] = 255  # a bar whose place is the class
    np.savez(folder / "mnist.npz", x_train=images, y_train=labels)
    return folder / "mnist.npz"


def cifar(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    np.savez(folder / "cifar.npz", x=rng.integers(0, 256, (24, 32, 32, 3), dtype=np.uint8), y=np.arange(24) % 10)
    return folder / "cifar.npz"


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


def test_folds(tmp_path: Path) -> None:
    options = ("--data", mnist(tmp_path), "--out", tmp_path, "--epochs", 1, "--batch", 16, "--folds", 3)
    call("lenet", *options, "--methods", "lazy", "--iterations", 2)
    assert len(read_rows(tmp_path / "lenet.csv")) == 2


def test_resnet_one_after_the_other_and_with_parallel_processes(tmp_path: Path) -> None:
    options = ("--data", cifar(tmp_path), "--out", tmp_path, "--epochs", 1, "--batch", 10, "--methods", "lazy")
    call("resnet", *options, "--iterations", 2)
    output = call("resnet", *options, "--iterations", 3, "--parallel", 2)
    assert "| lazy (lag ∞) | 2 | here | 3 |" in output
    assert len(read_rows(tmp_path / "resnet.csv")) == 5


def test_the_networks_are_those_of_the_paper() -> None:
    import torch

    from benchmarks.paper import networks

    assert networks.parameters(networks.LeNet5()) == 61_706
    assert networks.parameters(networks.ResNet32()) == pytest.approx(0.46e6, rel=0.02)
    assert networks.ResNet32()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    drops = [module.p for module in networks.LeNet5((0.25, 1.0)).modules() if isinstance(module, torch.nn.Dropout)]
    assert drops == [0.75, 0.0]


def test_the_figures_are_drawn_from_what_is_recorded(tmp_path: Path) -> None:
    written = call("figures", "--out", tmp_path).split()
    assert sum(name.endswith(".png") for name in written) == 3, "figures 2 to 4 need no records"
    call("levy", "--out", tmp_path, "--seeds", 1, "--iterations", 25, "--dim", 2, "--methods", "naive,lazy,ours")
    call("lag", "--out", tmp_path, "--seeds", 1, "--iterations", 3, "--dim", 2, "--seed-points", 4)
    options = ("--data", mnist(tmp_path), "--out", tmp_path, "--epochs", 1, "--methods", "lazy,naive")
    call("lenet", *options, "--iterations", 3)
    written = call("figures", "--out", tmp_path).split()
    for kind in ("png", "svg"):
        assert sum(name.endswith(kind) for name in written) == 6
    assert all((tmp_path / Path(name).name).stat().st_size > 1000 for name in written if name.startswith("/"))
