"""Files are written as a whole, or not at all."""

import os
import resource
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lazybo.core._codec import write_whole


@contextmanager
def almost_full(most: int) -> Iterator[None]:
    """No file can get longer than this, as if the disk was full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    with almost_full(1000), pytest.raises(OSError, match=r"File too large: '.*a\.html'"):
        write_whole(path, "x" * 5000)
    assert list(tmp_path.iterdir()) == []
    write_whole(path, "old")
    with almost_full(1000), pytest.raises(OSError, match="File too large"):
        write_whole(path, "x" * 5000)
    assert path.read_text() == "old"
    write_whole(path, b"new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_are_those_of_any_new_file_or_of_the_old_one(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    other.touch()
    write_whole(path, "x")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)
    path.chmod(0o600)
    write_whole(path, "y")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    real, link = tmp_path / "folder" / "real", tmp_path / "link"
    link.symlink_to(real)
    for text in ("new", "newer"):
        write_whole(link, text)
        assert link.is_symlink()
        assert real.read_text() == text


def test_a_pipe_is_written_directly(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    write_whole(pipe, "x")
    reader.join()
    assert found == ["x"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_an_error_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        write_whole(tmp_path / "none" / "a.html", "x")
    assert error.value.filename == str(tmp_path / "none" / "a.html")
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path, "x")
