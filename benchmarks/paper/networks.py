"""LeNet5 and ResNet32, trained as in the paper with SGD, momentum and weight decay.

torch is imported only here, and uses one thread: several processes with several threads each would slow each other
down.
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from benchmarks.paper.tuning import Images

CLASSES = 10
# Images predicted at a time.
EVALUATION_BATCH = 500


class LeNet5(nn.Module):
    """LeCun's network with a dropout layer after each of its two hidden fully connected layers."""

    def __init__(self, keep: tuple[float, float] = (1.0, 1.0)) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.classify = nn.Sequential(
            *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Dropout(1.0 - keep[0])),
            *(nn.Linear(120, 84), nn.ReLU(), nn.Dropout(1.0 - keep[1]), nn.Linear(84, CLASSES)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        scores: Tensor = self.classify(self.features(x))
        return scores


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut; where the width doubles, the shortcut is padded with zeros (option A)."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.stride = outside // inside
        self.conv1 = nn.Conv2d(inside, outside, 3, stride=self.stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.padding = (outside - inside) // 2

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        y = functional.relu(self.norm1(self.conv1(x)))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        if self.padding:
            shortcut = functional.pad(shortcut, (0, 0, 0, 0, self.padding, self.padding))
        return functional.relu(self.norm2(self.conv2(y)) + shortcut)


class ResNet32(nn.Module):
    """He et al.'s residual network for CIFAR-10 with 6·5 + 2 layers, 0.46 million parameters."""

    def __init__(self, blocks: int = 5) -> None:
        super().__init__()
        widths = [16] * (blocks + 1) + [32] * blocks + [64] * blocks
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.blocks = nn.Sequential(*(Block(a, b) for a, b in pairwise(widths)))
        self.last = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        scores: Tensor = self.last(self.blocks(self.first(x)).mean(dim=(2, 3)))
        return scores


def make_network(name: str, params: dict[str, float]) -> nn.Module:
    """A fresh network for these hyperparameters."""
    return LeNet5((params["d1"], params["d2"])) if name == "lenet" else ResNet32()


def train(
    name: str, images: "Images", rows: np.ndarray, params: dict[str, float], epochs: int, batch: int, seed: int
) -> nn.Module:
    """Train a network on some of the images; stops early if the loss is no longer finite."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    network = make_network(name, params)
    optimiser = torch.optim.SGD(
        network.parameters(), lr=params["lr"], momentum=params["momentum"], weight_decay=params["weight_decay"]
    )
    x, y = to_tensor(images, rows), torch.from_numpy(images.labels[rows])
    network.train()
    for _ in range(epochs):
        for part in _batches(len(rows), batch):
            optimiser.zero_grad(set_to_none=True)
            loss = functional.cross_entropy(network(x[part]), y[part])
            if not math.isfinite(loss.item()):
                return network
            loss.backward()
            optimiser.step()
    return network


def accuracy(network: nn.Module, images: "Images", rows: np.ndarray) -> float:
    """The share of images that the network classifies correctly."""
    network.eval()
    x, labels = to_tensor(images, rows), images.labels[rows]
    with torch.inference_mode():
        guesses = [network(part).argmax(dim=1) for part in x.split(EVALUATION_BATCH)]
    return float((torch.cat(guesses).numpy() == labels).mean())


def to_tensor(images: "Images", rows: np.ndarray) -> Tensor:
    """Some images as input of the networks: channels first, with mean 0 and standard deviation 1."""
    pixels: Any = images.pixels[rows].astype(np.float32) / 255.0
    mean, std = images.pixels.mean() / 255.0, images.pixels.std() / 255.0
    return torch.from_numpy(((pixels - mean) / max(std, 1e-6)).astype(np.float32).transpose(0, 3, 1, 2).copy())


def parameters(network: nn.Module) -> int:
    """The number of trainable parameters."""
    return sum(each.numel() for each in network.parameters())


def _batches(n: int, size: int) -> Iterator[Tensor]:
    """Random batches of this size. A last batch of one image is dropped: batch normalisation needs two."""
    for part in torch.randperm(n).split(size):
        if len(part) > 1:
            yield part
