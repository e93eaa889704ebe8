"""Images from files in their real formats, tiny ones that these tests write, and what is said of broken ones."""

import gzip
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.paper.tuning import load_cifar10, load_mnist


def write_idx(folder: Path, n: int = 40, *, packed: bool = False, cut: int = 0) -> np.ndarray:
    """MNIST's two training files; ``cut`` bytes are missing at the end of the images."""
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8), rng.integers(0, 10, n, dtype=np.uint8)
    contents = {
        "train-images-idx3-ubyte": struct.pack(">4i", 2051, n, 28, 28) + images.tobytes(),
        "train-labels-idx1-ubyte": struct.pack(">2i", 2049, n) + labels.tobytes(),
    }
    contents["train-images-idx3-ubyte"] = contents["train-images-idx3-ubyte"][: -cut or None]
    for name, data in contents.items():
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(data) if packed else data)
    return images


def write_batches(folder: Path, n: int = 30) -> np.ndarray:
    """CIFAR-10's python batches, two of the five."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2 * n, 32, 32, 3), dtype=np.uint8)
    for i, part in enumerate(np.split(images, 2), 1):
        batch = {
            b"batch_label": b"training batch",
            b"labels": [int(x) for x in rng.integers(0, 10, n)],
            b"data": part.transpose(0, 3, 1, 2).reshape(n, 3072),
            b"filenames": [b"some.png"] * n,
        }
        (folder / f"data_batch_{i}").write_bytes(pickle.dumps(batch, protocol=2))
    return images


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files(tmp_path: Path, packed: bool) -> None:
    images = write_idx(tmp_path, packed=packed)
    loaded = load_mnist(tmp_path)
    assert (loaded.pixels[..., 0] == images).all()
    assert len(loaded) == 40


def test_python_batches_have_their_colours_last(tmp_path: Path) -> None:
    images = write_batches(tmp_path)
    assert (load_cifar10(tmp_path).pixels == images).all()


@pytest.mark.parametrize(("images", "labels"), [("x_train", "y_train"), ("x", "y")])
def test_npz_files(tmp_path: Path, images: str, labels: str) -> None:
    path = tmp_path / "some.npz"
    np.savez(path, **{images: np.zeros((25, 28, 28), np.uint8), labels: np.arange(25) % 10})
    assert load_mnist(path).pixels.shape == (25, 28, 28, 1)


def test_a_part_is_random_and_repeats(tmp_path: Path) -> None:
    write_idx(tmp_path)
    images = load_mnist(tmp_path)
    assert (images.some(30).labels == images.some(30).labels).all()
    assert len(images.some(None)) == 40
    with pytest.raises(ValueError, match="--images must be from 20 to 40"):
        images.some(41)


def no_folder(folder: Path) -> Path:
    return folder / "nowhere"


def no_files(folder: Path) -> Path:
    return folder


def cut_short(folder: Path) -> Path:
    write_idx(folder, cut=7)
    return folder


def cut_short_and_packed(folder: Path) -> Path:
    write_idx(folder, packed=True)
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-50])
    return folder


def labels_for_images(folder: Path) -> Path:
    write_idx(folder)
    (folder / "train-images-idx3-ubyte").write_bytes((folder / "train-labels-idx1-ubyte").read_bytes())
    return folder


def no_zip(folder: Path) -> Path:
    (folder / "a.npz").write_bytes(b"PK but no zip")
    return folder / "a.npz"


def objects(folder: Path) -> Path:
    np.savez(folder / "a.npz", x=np.array([Path], dtype=object), y=np.zeros(1))
    return folder / "a.npz"


def other_names(folder: Path) -> Path:
    np.savez(folder / "a.npz", images=np.zeros(3))
    return folder / "a.npz"


def other_shape(folder: Path) -> Path:
    np.savez(folder / "a.npz", x=np.zeros((30, 8, 8), np.uint8), y=np.zeros(30, int))
    return folder / "a.npz"


def other_labels(folder: Path) -> Path:
    np.savez(folder / "a.npz", x=np.zeros((30, 28, 28), np.uint8), y=np.full(30, 10))
    return folder / "a.npz"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (no_folder, "does not exist"),
        (no_files, "has no train-images-idx3-ubyte"),
        (cut_short, "should have 31360 bytes"),
        (cut_short_and_packed, "cannot be decompressed"),
        (labels_for_images, "does not begin with 2051"),
        (no_zip, "is not an .npz file, or is truncated"),
        (objects, "cannot be read as arrays"),
        (other_names, r"holds \['images'\], not x_train"),
        (other_shape, "must hold images of 28×28"),
        (other_labels, "one label from 0 to 9"),
    ],
)
def test_what_is_wrong_is_one_line_with_a_remedy(tmp_path: Path, make: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        load_mnist(make(tmp_path))
    assert "give --data a folder with MNIST's" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"no pickle", pickle.dumps({b"labels": []}), pickle.dumps(Path)])
def test_a_broken_batch_is_refused_and_runs_no_code(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "data_batch_1").write_bytes(content)
    with pytest.raises(ValueError, match=r"data_batch_1 is not a batch of CIFAR-10.*toronto"):
        load_cifar10(tmp_path)


def test_without_a_path_cifar_says_where_it_is() -> None:
    with pytest.raises(ValueError, match="CIFAR-10 is needed: give --data"):
        load_cifar10(None)
