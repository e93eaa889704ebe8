"""The benchmarks' own parts that numbers rest on."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks import algorithm2


def test_algorithm_2_is_a_cholesky_factorisation(rng: np.random.Generator) -> None:
    a = rng.random((20, 20))
    k = a @ a.T + np.eye(20)
    np.testing.assert_allclose(algorithm2.cholesky(k.tolist()), np.linalg.cholesky(k), atol=1e-12)


def test_memory_grows_like_the_triangle() -> None:
    command = [sys.executable, "-m", "benchmarks.engine", "--grow", "3000"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    grown = json.loads(output.stdout)
    assert grown["n"] == 3001
    assert grown["peak_gb"] < 3 * grown["triangle_gb"]
