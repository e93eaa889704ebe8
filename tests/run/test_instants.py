"""Runs that are killed or suspended between any two of their writing system calls, at a few instants.

`benchmarks.instants` makes them, at as many instants as one likes.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.instants import STORAGES

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
    pytest.mark.skipif(sys.platform != "linux", reason="needs LD_PRELOAD"),
]


def assert_laws_hold(count: int, arguments: list[str], folder: Path) -> None:
    """Run the command at so many instants."""
    command = [sys.executable, "-m", "benchmarks.instants", "--instants", str(count), *arguments, "--seed", "3"]
    command += ["--results", str(folder / "instants.csv")]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{count} instants, 0 broken laws" in done.stdout


def test_a_kill_between_two_writes_loses_nothing(tmp_path: Path) -> None:
    assert_laws_hold(6, ["--modes", "here", "process", "pauses"], tmp_path)


def test_a_suspension_between_two_writes_loses_nothing_while_another_driver_works(tmp_path: Path) -> None:
    assert_laws_hold(4, ["--suspend", "--storages", *STORAGES, "--modes", "here", "pauses"], tmp_path)


@pytest.mark.extra
@pytest.mark.parametrize("attack", [[], ["--suspend"]])
def test_neither_does_one_on_postgresql(attack: list[str], tmp_path: Path) -> None:
    assert_laws_hold(2, [*attack, "--storages", "postgresql", "--modes", "here", "pauses"], tmp_path)
