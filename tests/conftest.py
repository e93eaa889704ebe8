import os

# Before NumPy is imported: small matrices gain nothing from threads, and competing threads are slow.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import subprocess  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

# The same examples on every run and no deadline: a shared machine may stall for a second.
settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("repeatable")
# Other examples on every run: `make fuzz`.
settings.register_profile("random", derandomize=False, deadline=None, print_blob=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores: many tests wait for other processes."""
    return min((os.cpu_count() or 1) + 1, 8)


# Files whose tests take long start first, so that no process waits for the last of them at the end.
LONG = ("test_ray.py", "test_documents.py", "test_benchmarks.py", "test_examples.py", "test_hydra.py")
PROGRAMS = ("test_documents.py", "test_examples.py", "test_hydra.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONG)
    for item in items:
        if item.get_closest_marker("extra"):
            # Fixtures of a module start clusters, servers and browsers: one process has all tests of a file, and one
            # has all that start Ray. Programs that share nothing are spread.
            ray = any(word in item.nodeid.lower() for word in ("ray", "cluster"))
            if ray or item.path.name not in PROGRAMS:
                item.add_marker(pytest.mark.xdist_group("ray" if ray else item.path.name))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260101)


@pytest.fixture
def mpirun() -> Callable[..., str]:
    """Run a program on several MPI ranks and return its output.

    Open MPI's wheel puts mpirun beside the interpreter; otherwise it is on the path.
    """

    def run(ranks: int, program: Path, *arguments: object) -> str:
        beside = Path(sys.executable).parent / "mpirun"
        command = [str(beside) if beside.exists() else "mpirun", "-n", str(ranks)]
        command += ["--oversubscribe", "--allow-run-as-root", sys.executable, "-m", "mpi4py.futures"]
        command += [str(program), *map(str, arguments)]
        process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert process.returncode == 0, process.stderr
        return process.stdout

    return run
