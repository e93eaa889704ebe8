"""A run that is killed between any two of its writing system calls (benchmarks/instants.py), at a few instants."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.skipif(sys.platform != "linux", reason="needs LD_PRELOAD")
@pytest.mark.parametrize("mode", ["here", "process", "pauses"])
def test_a_kill_between_two_writes_loses_nothing(mode: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.instants", "--instants", "4", "--modes", mode, "--seed", "3"]
    command += ["--results", str(tmp_path / "instants.csv")]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 instants, 0 broken laws" in done.stdout
